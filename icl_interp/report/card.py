"""A model card: what a report found, in Markdown, to stand beside the weights as README.md."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from icl_interp.analyses import multiplicity
from icl_interp.analyses.finding import Finding
from icl_interp.checkpoints import assumptions
from icl_interp.descriptions import model_words
from icl_interp.errors import printable
from icl_interp.report.words import (
    MARKS,
    REFERENCES,
    answer,
    by_question,
    measured,
    needed,
    sentence,
)

# Marks of Markdown and of HTML; between letters an underscore is none.
_MARKS = re.compile(r"([\\`*\[\]<>|~$]|(?<!\w)_|_(?!\w))")
HEAD = """---
library_name: icl_interp
tags:
- in-context-learning
- mechanistic-interpretability
---
"""
HOW = (
    "A claim is supported where the whole 95 % interval of what was measured lies in the region "
    "that supports it. It is contradicted where the interval lies in the opposite region. Else it "
    "is open. Regions were fixed before anything was measured."
)


def plain(text: object) -> str:
    r"""Text of one line that Markdown shows as it stands.

    >>> print(plain("a|b <i> in_context\n**x**"))
    a\|b \<i\> in_context \*\*x\*\*
    """
    return _MARKS.sub(r"\\\1", printable(" ".join(str(text).split())))


def markdown(
    checkpoint: Mapping[str, Any],
    model: Mapping[str, Any],
    findings: Sequence[Finding],
    provenance: Mapping[str, Any],
    summary: Sequence[str] = (),
) -> str:
    """The model card of a report.

    It holds the model, the answer, a table of verdicts for each question, how to load the model,
    and the report's provenance.

    Args:
        checkpoint: the name, step and origin of the model.
        model: facts about it.
        findings: of all claims that were asked.
        provenance: of the analysis.
        summary: what the model does, in sentences.
    """
    shown = [f for f in findings if f.verdict != "not_applicable"]
    parts = [
        f"{HEAD}\n# {plain(checkpoint['name'])}",
        _what(model),
        *([plain(" ".join(summary))] if summary else []),
        plain(answer(shown)),
        "## Error in distribution",
        _error(model["in_distribution"]),
        *(plain(line) for line in assumptions.lines(checkpoint)),
        "## Verdicts",
        HOW,
        *_tables(shown),
    ]
    if left_out := len(findings) - len(shown):
        parts.append(f"{left_out} of {len(findings)} claims do not apply to this model.")
    if firm := multiplicity.by_chance(findings, provenance.get("n_prompts", 0)):
        parts.append(plain(firm))
    parts += [
        "## Use",
        USE_OF_PREDICTOR if model.get("outside") else USE,
        "## Task and model",
        _fenced(model),
        "## Origin",
        _origin(checkpoint, provenance),
    ]
    return "\n\n".join(parts) + "\n"


USE = """```python
import icl_interp

checkpoint = icl_interp.load("FOLDER")  # the folder that holds this file
report = icl_interp.analyze(checkpoint)
```"""


USE_OF_PREDICTOR = """```python
import icl_interp

report = icl_interp.analyze(predictor, task=task)  # a predictor without weights, and its task
```"""


def _what(model: Mapping[str, Any]) -> str:
    """What it is, in a sentence."""
    words = plain(model_words(model["config"]))
    if model.get("outside"):
        return f"A predictor that learns functions from the numbers in its prompt, {words}."
    return (
        f"A transformer that learns functions from the numbers in its prompt: {words}; "
        f"{model['n_parameters']:,} parameters."
    )


def _error(error: Mapping[str, Any]) -> str:
    rows = [("this model", error["error"], f"{error['low']:.3g} to {error['high']:.3g}")]
    rows += [
        (name, error[key], "") for name, key in REFERENCES.items() if error.get(key) is not None
    ]
    lines = ["| | mean squared error | 95 % interval |", "|---|---|---|"]
    lines += [f"| {name} | {value:.3g} | {interval} |" for name, value, interval in rows]
    return "\n".join([*lines, "", f"R2 is {error['r2']:.4f}. {plain(error.get('note', ''))}"])


def _tables(findings: Sequence[Finding]) -> Iterator[str]:
    for question, of_it in by_question(findings):
        lines = [f"### {question.capitalize()}", ""]
        lines += ["| | claim | measured | needed |", "|---|---|---|---|", *map(_row, of_it)]
        yield "\n".join(lines)


def _row(f: Finding) -> str:
    e = f.test or f.estimate
    number = f"{e.name}: {measured(e)}" if e else "not measured"
    needs = needed(f.decided_by, e.unit) if e else ""
    return (
        f"| {MARKS[f.verdict][0]} | {plain(sentence(f))} ({plain(f.id)}) | {plain(number)} | "
        f"{plain(needs)} |"
    )


def _fenced(model: Mapping[str, Any]) -> str:
    text = yaml.safe_dump(
        {key: model[key] for key in ("task", "encoding", "config")}, sort_keys=False
    )
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks}yaml\n{text}{ticks}"


def _origin(checkpoint: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """Where the model and the report come from, as far as it is known."""
    known = {
        "run": checkpoint.get("run_id"),
        "step": checkpoint.get("step"),
        "recipe": checkpoint.get("recipe"),
        "analysed": provenance.get("analyzed"),
        "prompts": provenance.get("n_prompts"),
        "seed of the prompts": provenance.get("seed"),
    }
    return "\n".join(
        f"- {name}: {plain(value)}" for name, value in known.items() if value not in (None, "")
    )
