"""The catalogue of claims, from the registers: a page a claim, and one that lists them by study."""

import functools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from divs import div

from icl_interp.analyses import REGISTRY, Claim
from icl_interp.analyses.claim import QUESTIONS
from icl_interp.experiments.calibration import CONSTRUCTIONS
from icl_interp.experiments.power import DIALS
from icl_interp.figures.power import power_curve
from icl_interp.report.card import plain
from icl_interp.report.terminal import about
from icl_interp.report.words import MARKS, needed, region
from icl_interp.studies import BUNDLED
from icl_interp.testing import battery, curves

RECORD = (
    Path(__file__).resolve().parents[1] / "tests" / "golden" / "findings"
)  # a file a bundled model
Row = Sequence[str]
BATTERIES = {study.name: battery.kept(study) for study in BUNDLED}
POWER = {study.name: curves.kept(study) for study in BUNDLED}
TRIALS = {
    "edit": "edits of a model that leave what it computes",
    "ignorant": "models that know nothing of the function in their prompt",
    "draw": "other samples of prompts, and half of one",
    "beside": "idle models, in front of another that makes the prediction",
}


def pages() -> dict[str, str]:
    """Markdown by the name of a page: "index", and the id of each claim of a bundled study."""
    names = {study.name for study in BUNDLED}
    claims = [claim for claim in REGISTRY.values() if claim.study in names]
    return {"index": _index(claims), **{claim.id: page(claim) for claim in claims}}


def page(claim: Claim) -> str:
    """All that is known of a claim, as Markdown.

    It holds what the claim says and quotes, how it is measured, what decides, and how it was tried.
    """
    known = about(claim)
    parts = [
        f"# {plain(claim.statement)}",
        (
            f"`{claim.id}`, a claim of the study `{claim.study}`. In a terminal: `icl-interp "
            f"explain {claim.id}`."
        ),
        "## What it says",
        _ended(plain(claim.statement)),
        *_said(claim),
        "## How it is measured",
        "\n".join(f"* {_measurement(line)}" for line in known["measured"].split("\n")),
        "## What decides",
        _ended(plain(claim.criterion.text)),
        "The claim is supported where every quantity lies in its region with its whole interval, "
        "and contradicted where one lies in the opposite region. Both were fixed before anything "
        "was measured.",
        _table(("quantity", "supported", "contradicted"), _conditions(claim)),
        *_asked_first(claim),
        "## Controls",
        plain(known["kind"]),
        plain(known.get("control", "No randomly initialised model is measured beside it.")),
        *_hand_built(claim),
        *_power(claim),
        *_withstood(claim),
        "## Verdicts on bundled models",
        _verdicts(claim),
    ]
    return "\n\n".join(parts) + "\n"


def _ended(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _said(claim: Claim) -> Iterator[str]:
    if not claim.quote:
        yield f"Source: {plain(claim.source)}."
        return
    yield f"> {plain(claim.quote.text)}\n>\n> — {plain(claim.quote.place)}"
    if claim.quote.differs:
        yield f"*Where the test differs:* {plain(claim.quote.differs)}"


def _measurement(line: str) -> str:
    name, _, doc = line.partition(": ")
    return f"`{name}`: {in_markdown(doc)}" if doc else f"`{name}`"


def in_markdown(text: str) -> str:
    """Words of a docstring: what stands in backticks stays code, all else is plain text."""
    return "".join(
        part if i % 2 else plain(f"_{part}_")[2:-2]
        for i, part in enumerate(re.split(r"(`[^`]+`)", text))
    )


def _conditions(claim: Claim) -> Iterator[Row]:
    for c in claim.criterion.conditions:
        supported, _, contradicted = needed(c, c.unit).partition("; contradicted: ")
        optional = ", where it can be measured" if c.optional else ""
        yield f"`{c.quantity}`{optional}", supported, contradicted or "–"


def _asked_first(claim: Claim) -> Iterator[str]:
    if claim.criterion.preconditions:
        yield "Nothing is decided unless these hold:"
        yield _table(
            ("quantity", "must be", "else"),
            (
                (f"`{p.quantity}`", region(p.holds, ""), plain(_without_numbers(p.otherwise)))
                for p in claim.criterion.preconditions
            ),
        )


def _without_numbers(sentence: str) -> str:
    """The sentence of a precondition that fails, without the number of a model."""
    return re.sub(r"\{value[^}]*\}", "...", sentence)


def _hand_built(claim: Claim) -> Iterator[str]:
    yield "## Hand-built models"
    yield (
        "Models whose weights were written down, so that the right verdict is known (`icl-interp "
        "selfcheck`)."
    )
    kept, drawn = BATTERIES[claim.study], {}
    if kept:
        of_it = [row for row in kept.draws.to_dict("records") if row["claim"] == claim.id]
        drawn = {row["construction"]: f"{row['as expected']} of {row['draws']}" for row in of_it}
        yield (
            "The last column counts members of each family, drawn at random, that were judged so; "
            f"at least {battery.AS_EXPECTED} of {battery.DRAWS} are asked for."
        )
    head = ("model", "why", "must be", *(["was"] if kept else []))
    rows = [
        (
            *(plain(one.name), plain(one.why), f"{MARKS[verdict][0]}\N{NO-BREAK SPACE}{verdict}"),
            *([drawn.get(one.name, "not drawn yet")] if kept else []),
        )
        for one in CONSTRUCTIONS.values()
        if (verdict := one.expected.get(claim.id))
    ]
    yield _table(head, rows) if rows else "None."


def _power(claim: Claim) -> Iterator[str]:
    """The power curve of each of its dials, where the study has measured them."""
    kept = POWER[claim.study]
    tables = (
        {name: table for name, table in kept.tables.items() if DIALS[name].claim == claim.id}
        if kept
        else {}
    )
    if not tables:
        return
    yield "## Power"
    yield (
        "How surely the claim is judged, as one number takes hand-built models from where it is "
        f"false to where it is true (`{curves.COMMAND}`)."
    )
    for name, table in tables.items():
        dial = DIALS[name]
        moved = dial.quantity or claim.criterion.conditions[0].quantity
        yield f"*{_ended(_capital(plain(name)))}* {_ended(_capital(plain(dial.why)))}"
        yield f"```{{raw}} html\n{div(power_curve(table, claim.statement, moved))}\n```"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _withstood(claim: Claim) -> Iterator[str]:
    """What came out of the battery, where the study has one."""
    kept = BATTERIES[claim.study]
    if not kept:
        return
    yield "## What its verdicts withstood"
    models = ", ".join(f"`{name}`" for name in kept.settings["models"])
    yield (
        f"On {models} and, for edits and idle models, on hand-built ones, by `{battery.COMMAND}`. "
        "An edit must leave verdict and estimate. A model that knows nothing must support nothing. "
        "No other sample may turn a verdict into its opposite. An idle model in front of another "
        "must not decide. Only verdicts that are decided before the change (for models that know "
        "nothing: after it) say anything: an open one cannot turn. Randomly initialised controls "
        "of an edited model have the config of the model before the edit; in a report they have "
        "the config of the model that is given, so its shape is a part of what they are compared "
        "by."
    )
    rows = [
        (TRIALS[row["trial"]], str(row["verdicts"]), str(row["decided"]), str(row["wrong"]))
        for row in kept.claims.to_dict("records")
        if row["claim"] == claim.id
    ]
    yield _table(("trial", "verdicts", "of them decided", "wrong"), rows)
    wrong = [row for row in kept.wrong.to_dict("records") if row["claim"] == claim.id]
    if wrong:
        yield "\n".join(
            f"* `{row['model']}`, {plain(row['variant'])}: {plain(row['wrong'])}" for row in wrong
        )


@functools.cache
def _recorded() -> dict[str, dict[str, Any]]:
    """Findings by the name of a bundled model and the id of a claim."""
    return {
        path.stem: json.loads(path.read_text("utf-8")) for path in sorted(RECORD.glob("*.json"))
    }


def _verdicts(claim: Claim) -> str:
    rows = []
    for model, findings in _recorded().items():
        found = findings.get(claim.id)
        if found:
            mark = MARKS[found["verdict"]][0]
            rows.append(
                (
                    f"`{model}`",
                    f"{mark}\N{NO-BREAK SPACE}{found['verdict']}",
                    _number(found["test"]),
                )
            )
    if not rows:
        return "It applies to none of them."
    note = (
        "The number is the one that decided, in the unit of the table under *What decides*, with "
        "its 95 % interval. Models to which the claim does not apply are left out."
    )
    return (
        _table(("model", "verdict", "measured"), rows)
        + f"\n\n{note} It does not apply to models that are not listed."
    )


def _number(e: dict[str, str] | None) -> str:
    if e is None:
        return "not measured"
    value, low, high = (f"{float(e[key]):.3g}" for key in ("value", "low", "high"))
    return value if low == high else f"{value} \\[{low}, {high}\\]"


def _table(head: Row, rows: Iterator[Row] | Sequence[Row]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _index(claims: Sequence[Claim]) -> str:
    signs = ", ".join(f"{MARKS[v][0]} {v}" for v in ("supported", "contradicted", "inconclusive"))
    parts = [
        "# Catalogue of claims",
        f"All {len(claims)} claims that reports judge, by study. Each page has the sentence of the "
        "work, how it is measured, what decides, the controls, and the verdicts on the bundled "
        "models.",
        f"Columns on the right are bundled models: {signs}. An empty cell says that the claim does "
        "not apply to the model.",
    ]
    for study in BUNDLED:
        of_it = [claim for claim in claims if claim.study == study.name]
        # A model has a column where at least one claim of the study applies to it.
        ids = {claim.id for claim in of_it}
        models = [model for model, findings in _recorded().items() if ids & set(findings)]
        rows = [(*_described(claim), *_marks(claim, models)) for claim in of_it]
        head = ("claim", "about", "kind", *(f"`{model}`" for model in models))
        parts += [
            f"## {study.name}",
            _ended(plain(study.work)),
            f"```{{container}} claims-by-model\n{_table(head, rows)}\n```",
        ]
    listed = "\n".join(claim.id for claim in claims)
    parts.append(f"```{{toctree}}\n:hidden:\n\n{listed}\n```")
    return "\n\n".join(parts) + "\n"


def _described(claim: Claim) -> Row:
    return f"[{plain(claim.statement)}]({claim.id}.md)", _question(claim), claim.kind


def _marks(claim: Claim, models: Sequence[str]) -> Iterator[str]:
    """The sign of the verdict on each model, empty where the claim does not apply."""
    for model in models:
        found = _recorded()[model].get(claim.id)
        yield MARKS[found["verdict"]][0] if found else ""


def _question(claim: Claim) -> str:
    return claim.question if claim.question in QUESTIONS else "other"
