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
    line = " ".join(str(text).split())
    return _MARKS.sub(r"\\\1", printable(line))


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
    # What the model is, and the answer.
    title = plain(checkpoint["name"])
    parts = [f"{HEAD}\n# {title}", _what(model)]
    if summary:
        parts.append(plain(" ".join(summary)))
    parts.append(plain(answer(shown)))
    parts.append("## Error in distribution")
    parts.append(_error(model["in_distribution"]))
    parts += map(plain, assumptions.lines(checkpoint))

    # The findings.
    parts += ["## Verdicts", HOW, *_tables(shown)]
    left_out = len(findings) - len(shown)
    if left_out:
        parts.append(f"{left_out} of {len(findings)} claims do not apply to this model.")
    n_prompts = provenance.get("n_prompts", 0)
    firm = multiplicity.by_chance(findings, n_prompts)
    if firm:
        parts.append(plain(firm))

    # How it is used, and where it comes from.
    parts.append("## Use")
    parts.append(USE_OF_PREDICTOR if model.get("outside") else USE)
    parts.append("## Task and model")
    parts.append(_fenced(model))
    parts.append("## Origin")
    parts.append(_origin(checkpoint, provenance))
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
    interval = f"{error['low']:.3g} to {error['high']:.3g}"
    lines = [
        "| | mean squared error | 95 % interval |",
        "|---|---|---|",
        f"| this model | {error['error']:.3g} | {interval} |",
    ]
    for name, key in REFERENCES.items():
        if error.get(key) is not None:
            lines.append(f"| {name} | {error[key]:.3g} |  |")
    lines.append("")
    note = plain(error.get("note", ""))
    lines.append(f"R2 is {error['r2']:.4f}. {note}")
    return "\n".join(lines)


def _tables(findings: Sequence[Finding]) -> Iterator[str]:
    for question, of_it in by_question(findings):
        lines = [f"### {question.capitalize()}", ""]
        lines += ["| | claim | measured | needed |", "|---|---|---|---|"]
        lines += map(_row, of_it)
        yield "\n".join(lines)


def _row(f: Finding) -> str:
    mark, _ = MARKS[f.verdict]
    claim = f"{plain(sentence(f))} ({plain(f.id)})"
    e = f.test or f.estimate
    number = "not measured"
    needs = ""
    if e:
        number = f"{e.name}: {measured(e)}"
        needs = needed(f.decided_by, e.unit)
    return f"| {mark} | {claim} | {plain(number)} | {plain(needs)} |"


def _fenced(model: Mapping[str, Any]) -> str:
    facts = {key: model[key] for key in ("task", "encoding", "config")}
    text = yaml.safe_dump(facts, sort_keys=False)
    # A fence is longer than every run of ticks inside it.
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}yaml\n{text}{fence}"


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
    lines = []
    for name, value in known.items():
        if value not in (None, ""):
            lines.append(f"- {name}: {plain(value)}")
    return "\n".join(lines)
