"""Puts the sources of the documentation together: `python docs/assemble.py FOLDER`.

What stands elsewhere is taken from there, so that nothing is said twice: guides from README.md and
CONTRIBUTING.md, one a heading; notebooks; the catalogue of claims, the command line and the names
of hooks from the code.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import catalogue
import citation
import coverage
import gallery
import torch

from icl_interp import HookedTransformer, HookedTransformerConfig, theory
from icl_interp import registry as verdicts
from icl_interp.studies import STUDIES
from icl_interp.testing.planted import tools as trial
from icl_interp.theory.errata import Erratum

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
NOTEBOOKS = (
    "00_quickstart",
    "mechanism",
    "training_dynamics",
    "algorithm",
    "own_model",
    "own_claim",
)  # then those of the studies
MODULES = {
    "analyze": (
        *("analyze", "algorithm", "circuit", "compare", "evaluate", "load", "train"),
        *("train_many", "trajectory", "probe", "intervene"),
    ),
    "classes": ("Report", "Checkpoint", "HookedTransformer", "HookedTransformerConfig"),
}
PACKAGES = (
    "adapters",
    "probes",
    "interventions",
    "contrasts",
    "circuits",
    "tasks",
    "analyses",
    "algorithms",
    "figures",
    "testing",
    "testing.planted",
    "experiments",
    "baselines",
    "registry",
)
MADE = {  # what a link in the repository leads to, and the page that is made of it
    "../icl_interp/studies": "claims/index.md",
    "../icl_interp/__init__.py": "reference/api.md",
    "../icl_interp/cli/__init__.py": "reference/command_line.md",
    "pages/hooks.md": "reference/hooks.md",
    "pages/errata.md": "errata.md",
    "pages/tools.md": "tools.md",
    "pages/registry.md": "registry.md",
    "coverage.csv": "coverage.md",
    "pages/gallery.md": "gallery.md",
    "../SECURITY.md": "security.md",
    "../CHANGELOG.md": "changelog.md",
    "../CITATION.cff": "citation.md",
}
GUIDES = {
    "Add a claim",
    "Add a task",
    "Add an encoding",
    "Add a probe",
    "Add an intervention",
    "Add a format",
    "Add a study",
}


def sources() -> dict[str, str]:
    """The text of every page, by its path."""
    written = [path for path in DOCS.rglob("*.md") if path.parent.name != "pages"]
    found = {
        path.relative_to(DOCS).as_posix(): linked(path.read_text("utf-8"), path) for path in written
    }
    found |= {f"howto/{name}.md": text for name, text in guides().items()}
    found |= {f"tutorials/{name}.ipynb": text for name, text in notebooks().items()}
    found |= {f"claims/{name}.md": text for name, text in catalogue.pages().items()}
    found |= {f"reference/{name}.md": text for name, text in api().items()}
    found |= {
        "reference/command_line.md": command_line(),
        "reference/hooks.md": hooks(),
        "errata.md": errata(),
        "tools.md": tools(),
        "registry.md": registry(),
        "coverage.md": coverage.page(),
        "citation.md": citation.page(ROOT / "CITATION.cff"),
        "gallery.md": figures(),
    }
    for name in ("SECURITY", "CHANGELOG"):
        path = ROOT / f"{name}.md"
        found[f"{name.lower()}.md"] = linked(path.read_text("utf-8"), path, "")
    return found


def figures() -> str:
    """The gallery, with what its code draws."""
    path = DOCS / "pages" / "gallery.md"
    return gallery.with_figures(linked(path.read_text("utf-8"), path, ""))


def guides() -> dict[str, str]:
    """A page for each heading of CONTRIBUTING.md, and one of the README's section on use."""
    found = {}
    for file, wanted in (("CONTRIBUTING.md", GUIDES), ("README.md", {"Use"})):
        for section in re.split(r"^## ", (ROOT / file).read_text("utf-8"), flags=re.MULTILINE)[1:]:
            title, _, text = section.partition("\n")
            if title in wanted:
                name = title.lower().replace(" ", "_")
                found[name] = f"# {title}\n\n*From `{file}`.*\n{linked(text, ROOT / file, 'howto')}"
    return found


def linked(text: str, path: Path, folder: str | None = None) -> str:
    """A text whose links lead to pages of the site instead of files of the repository.

    Args:
        text: Markdown.
        path: the file that it stands in.
        folder: of the site, that the page goes to; where it stands below `docs/` if it is not
            given.
    """
    folder = path.parent.relative_to(DOCS).as_posix() if folder is None else folder

    def replaced(match: re.Match[str]) -> str:
        file, _, heading = match[1].partition("#")
        target = os.path.relpath((path.parent / file).resolve(), DOCS)
        if target in ("../CONTRIBUTING.md", "../README.md"):
            target = f"howto/{heading.replace('-', '_')}.md"
        target = MADE.get(target, re.sub(r"^../notebooks/", "tutorials/", target))
        return f"]({os.path.relpath(target, folder)})"

    return re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", replaced, text)


def notebooks() -> dict[str, str]:
    """The notebooks, which Sphinx executes."""
    files = {name: ROOT / "notebooks" / f"{name}.ipynb" for name in (*NOTEBOOKS, *STUDIES)}
    return {
        name: file.read_text("utf-8")
        for name, file in files.items()
        if name in NOTEBOOKS or file.is_file()
    }


def api() -> dict[str, str]:
    """Stubs for autodoc: the names of `icl_interp`, its public packages, and the closed forms."""
    lines = []
    for title, kind, names in (
        ("Functions", "autofunction", MODULES["analyze"]),
        ("Classes", "autoclass", MODULES["classes"]),
    ):
        lines += [
            f"## {title}",
            "```{eval-rst}\n" + "\n\n".join(f".. {kind}:: icl_interp.{n}" for n in names) + "\n```",
        ]
    found = {
        "icl_interp": "\n\n".join(["# `icl_interp`", "The names that most work needs.", *lines])
        + "\n"
    }
    for name in PACKAGES:
        found[name] = _module(f"icl_interp.{name}")
    modules = [name for name in theory.__all__ if name != "ERRATA"]
    homes = {f"icl_interp.theory.{name}" for name in modules}
    for name in modules:
        found[f"theory.{name}"] = _module(f"icl_interp.theory.{name}", homes)
    listed = "\n".join(found)
    found["api"] = (
        '# Python\n\nFrom the docstrings. Shapes are written as `Float[Tensor, "batch token"]`: '
        "the kind of number, and a name for each axis.\n\n```{toctree}\n:maxdepth: 1\n\n"
        f"{listed}\n```\n"
    )
    return found


def _module(module: str, homes: Collection[str] = ()) -> str:
    """A stub. What a module offers of one that has a page itself, that page documents."""
    members = vars(importlib.import_module(module))
    others = [
        n for n, one in members.items() if getattr(one, "__module__", module) in {*homes} - {module}
    ]
    left_out = f"\n   :exclude-members: {', '.join(others)}" if others else ""
    return f"# `{module}`\n\n```{{eval-rst}}\n.. automodule:: {module}{left_out}\n```\n"


def errata() -> str:
    """What the works print and does not hold, as the theory lists it."""
    page = linked(
        (DOCS / "pages" / "errata.md").read_text("utf-8"), DOCS / "pages" / "errata.md", ""
    )
    parts = []
    for work in dict.fromkeys(one.work for one in theory.ERRATA):
        parts.append(f"## {catalogue.in_markdown(work)}")
        parts += [erratum(one) for one in theory.ERRATA if one.work == work]
    return page + "\n" + "\n\n".join(parts) + "\n"


def tools() -> str:
    """How the tools were tried, with what is kept of the last trial."""
    path = DOCS / "pages" / "tools.md"
    page = linked(path.read_text("utf-8"), path, "")
    found = trial.kept()
    assert found is not None
    shown = "\n".join(found.lines())
    return page.replace("<!-- kept -->", f"```text\n{shown}\n```")


def registry() -> str:
    """The table of the project's registry of verdicts."""
    path = DOCS / "pages" / "registry.md"
    found = verdicts.read(ROOT / "registry")
    return linked(path.read_text("utf-8"), path, "").replace(
        "<!-- table -->", verdicts.Table.of(found).page()
    )


def erratum(one: Erratum) -> str:
    """What is printed, what holds, an example where there is one, and the functions."""
    lines = [
        f"### {catalogue.in_markdown(one.place)}",
        f"*Printed.* {catalogue.in_markdown(one.printed)}",
        f"*Right.* {catalogue.in_markdown(one.right)}",
    ]
    if one.example is not None:
        found = one.example()
        name = catalogue.in_markdown(one.number)
        lines.append(f"*Example.* {name}: {found.printed:.4g} as printed, {found.right:.4g} right.")
    lines.append("Shown by " + ", ".join(f"`{name}`" for name in one.names) + ".")
    return "\n\n".join(lines)


def command_line() -> str:
    """What typer says of the commands."""
    command = [
        sys.executable,
        "-m",
        "typer",
        "icl_interp.cli",
        "utils",
        "docs",
        "--name",
        "icl-interp",
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    status = (
        "0 done; 2 the input is wrong (one line on standard error); 130 interrupted; 143 "
        "terminated."
    )
    text = text.replace("# `icl-interp`", "# Command line", 1)
    return f"{text.rstrip()}\n\n## Exit status\n\n{status} See also [errors](errors.md).\n"


def hooks() -> str:
    """Every hook of small models, with the axes of what passes it, told by their sizes."""
    sizes = {"batch": 2, "token": 7, "1": 1, "d_model": 20, "head": 4, "d_head": 5, "d_mlp": 11}
    page = linked(
        (DOCS / "pages" / "hooks.md").read_text("utf-8"), DOCS / "pages" / "hooks.md", "reference"
    )
    for mark in ("pre", "post", "both"):
        shape: dict[str, Any] = {
            "norm_position": mark,
            "attn_only": mark == "both",
            "n_layers": 1,
            "n_ctx": 20,
            "d_model": 20,
            "n_heads": 4,
            "d_head": 5,
            "d_mlp": 11,
        }
        model = HookedTransformer(HookedTransformerConfig(**shape))
        with torch.no_grad():
            tokens = torch.zeros(2, 7, model.cfg.d_in)
            _, cache = model.run_with_cache(tokens, names_filter=lambda name: True)
        axes = {size: name for name, size in sizes.items()}
        rows = [
            f"| `{name}` | {', '.join(axes.get(n, str(n)) for n in value.shape)} |"
            for name, value in cache.items()
        ]
        page = page.replace(f"<!-- {mark} -->", "\n".join(["| hook | axes |", "|---|---|", *rows]))
    return page


def main(folder: Path) -> None:
    """Write changed files and remove obsolete ones, so that Sphinx reads only what is new."""
    texts = sources()
    for path, text in texts.items():
        file = folder / path
        if not file.is_file() or file.read_text("utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    shutil.copy(DOCS / "far_query.svg", folder)
    for file in _stale(folder, set(texts)):
        file.unlink()


def _stale(folder: Path, kept: set[str]) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if file.suffix in (".md", ".ipynb") and file.relative_to(folder).as_posix() not in kept:
            yield file


if __name__ == "__main__":
    main(Path(sys.argv[1]))
