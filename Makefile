# Needs make, git and Python 3.11 or newer; the rest is set up in .venv when a target first asks for it.
#
#   PYTHON=python3.12     another interpreter to build .venv with
#   ARGS="..."            passed on to icl-interp analyze (make demo), to pytest (make test, make slow), and names of
#                         notebooks (make notebooks)
#   WORKERS=4             processes that share the tests
#   PIP_EXTRA_INDEX_URL   read by pip itself: where to look for a CPU build of torch, say

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test slow lint notebooks docs dist clean

WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is kept, also where the environment says otherwise: compiling everything anew takes each process of the tests
# longer than all else it does before its first test. Work is stolen: each worker takes a row of files, so that what the
# tests of a file share is made once, and at the end takes from the other.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --dist worksteal

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile | awk -F '\t' '{ printf "make %-10s %s\n", $$1, $$2 }'

demo: $(VENV)/.demo ## analyse a bundled model: verdicts here, a report in ./icl-interp-out
	@$(BIN)/icl-interp analyze $(ARGS)

test: $(VENV)/.test ## the tests, without the slow ones
	@$(PYTEST) -m "not slow" -n $(WORKERS) $(ARGS)

# Without the checks of annotations at run time, which are two fifths of the time: make test has them.
slow: $(VENV)/.test ## the slow tests only: training runs, notebooks, browsers
	@JAXTYPING_DISABLE=1 $(PYTEST) -m slow --timeout 1500 -n $(WORKERS) $(ARGS)

lint: $(VENV)/.dev ## style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/basedpyright --pythonpath $(BIN)/python

notebooks: $(VENV)/.test ## run notebooks/*.py, and store each as .ipynb with its outputs (ARGS="limits" for one)
	@$(BIN)/python tools/run_notebooks.py $(ARGS)

docs: $(VENV)/.test ## the documentation, in build/docs/html
	@$(BIN)/python docs/assemble.py build/docs/source
	@$(BIN)/python -m sphinx -b html -c docs -E -W --keep-going -q build/docs/source build/docs/html
	@echo "documentation: build/docs/html/index.html"

dist: $(VENV)/.dev ## the source archive and the wheel, in dist/
	@rm -rf dist
	@$(BIN)/python -m build

clean: ## remove .venv, builds and caches; reports and runs stay
	rm -rf $(VENV) build dist .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp stands for one set of extras, installed; each set holds the one before it.
$(VENV)/.demo $(VENV)/.test $(VENV)/.dev: pyproject.toml constraints.txt $(BIN)/python

$(VENV)/.demo:
	@$(call install,figures,.demo)

$(VENV)/.test:
	@$(call install,test,.demo .test)

$(VENV)/.dev:
	@$(call install,dev,.demo .test .dev)

# Without a recipe: where the interpreter is gone, every stamp is out of date.
$(BIN)/python:

# $(call install,EXTRA,STAMPS). While it works, .venv/.half-made holds its process id: whoever finds that file left
# behind by an interrupted run starts again from an empty folder, since pip can't tell a half-written package from a
# whole one.
define install
set -e; mark=$(VENV)/.half-made; \
if [ -e $$mark ] && kill -0 "$$(cat $$mark)" 2>/dev/null; then \
	echo "$(VENV) is being set up by process $$(cat $$mark); wait for it, or run make clean" >&2; exit 1; \
fi; \
if [ -e $$mark ] || ! $(BIN)/python -c "" 2>/dev/null; then \
	$(need_python) \
	rm -rf $(VENV); mkdir $(VENV); echo $$$$ > $$mark; \
	echo "Setting up $(VENV): about 2 GB, once"; \
	$(PYTHON) -m venv $(VENV); \
fi; \
echo $$$$ > $$mark; \
$(BIN)/python -c "import pip" 2>/dev/null || $(BIN)/python -m ensurepip >/dev/null; \
echo "Installing icl-interp[$(1)] into $(VENV)"; \
quiet=; [ -t 1 ] || quiet=-qq; \
$(BIN)/python -m pip install $$quiet --disable-pip-version-check -c constraints.txt -e ".[$(1)]"; \
rm $$mark; cd $(VENV); touch $(2)
endef

# The first interpreter that is new enough, unless PYTHON names one.
new_enough := -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python; do \
	$$p $(new_enough) && echo $$p && break; done)

define need_python
$(PYTHON) $(new_enough) || { \
	echo "icl-interp needs Python 3.11 or newer and found $(if $(PYTHON),only $(PYTHON),none):" \
		"name one with make $(firstword $(MAKECMDGOALS)) PYTHON=/path/to/python3.11" >&2; exit 1; };
endef
