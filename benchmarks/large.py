"""What it costs that a large model is measured on fewer prompts: models, analysed as if small and as if large.

A large model's contexts are read in float32, its sample is smaller, and heads and blocks are
ablated on a part of it (`analyses.facts.is_large`). Here any model is measured both ways, whatever
its size: bundled ones, or those asked for.
"""

import math
import statistics
import sys
from collections.abc import Mapping
from typing import Any

import torch

import icl_interp
from benchmarks import fresh
from benchmarks.measuring import Options, Row, Seconds
from icl_interp.analyses import facts, relevance
from icl_interp.analyses.facts import Facts
from icl_interp.report import Report

MODELS = (
    "affine",
    "affine_hardmax",
    "affine_no_ln",
    "affine_post_ln",
    "affine_attn_only",
    "degrees_135",
    "lipschitz_relu",
    "autoregression_rotations_softmax",
)
DECIDED = ("supported", "contradicted")


def judge(model: str, large: bool, quick: bool) -> dict[str, Any]:
    """Verdict and width of the interval of each claim, and widths of the intervals of heads' effects."""
    before = facts.LARGE
    facts.LARGE = 0 if large else sys.maxsize
    try:
        less = {"n_prompts": 32, "claims": ("limits.softmax_hardmax",)} if quick else {}
        report = icl_interp.analyze(model, progress=False, **less)
    finally:
        facts.LARGE = before
    verdicts = {f.id: f.verdict for f in report.findings if f.verdict != "not_applicable"}
    widths = {f.id: f.estimate.high - f.estimate.low for f in report.findings if f.estimate}
    return {"verdicts": verdicts, "widths": widths, "heads": head_widths(report)}


def head_widths(report: Report) -> dict[str, float]:
    """Widths of the intervals of what ablating each head does, of the logarithm, by head."""
    if relevance.relevance not in report.results:
        return {}
    effects = relevance.effects(report.results, Facts.from_dict(report.model))
    return {name: math.log(effect.high / effect.low) for name, effect in effects.items()}


def ratios(plain: Mapping[str, float], large: Mapping[str, float]) -> list[float]:
    """How many times as wide intervals are; those of no width and of no number are left out."""
    pairs = [(plain[name], large[name]) for name in plain.keys() & large.keys()]
    return sorted(b / a for a, b in pairs if a > 0 and math.isfinite(a) and math.isfinite(b))


def run(options: Options) -> list[Row]:
    """Verdicts and widths of intervals of each model, both ways.

    Raises:
        InputError: a model that was asked for is not there, or can't be read.
    """
    for model in options.models:  # before anything is measured
        icl_interp.load(model)
    rows, changed = [], {"decided, then open": 0, "open, then decided": 0, "reversed": 0}
    n = 0
    for model in options.models or MODELS[: 1 if options.quick else None]:
        plain, large = (
            fresh.call(
                judge,
                here=options.quick,
                threads=torch.get_num_threads(),
                model=model,
                large=large,
                quick=options.quick,
            )
            for large in (False, True)
        )
        for claim, verdict in plain.result["verdicts"].items():
            n += 1
            other = large.result["verdicts"].get(claim)
            if verdict != other:
                changed[change(verdict, other)] += 1
                rows.append(
                    Row(
                        what=f"{model}: {claim} is {verdict}, then {other}",
                        value=1,
                        unit="verdicts",
                    )
                )
        for name, key in (("claims", "widths"), ("heads' effects", "heads")):
            if found := ratios(plain.result[key], large.result[key]):
                rows.append(
                    Row(
                        what=f"{model}: intervals of {name}",
                        value=statistics.median(found),
                        unit="x",
                        low=found[len(found) // 10],
                        high=found[-1 - len(found) // 10],
                        seconds=Seconds(large.wall, large.processor) if key == "widths" else None,
                        note="as wide as on the plain sample; the range leaves out a tenth at "
                        "either end",
                    )
                )
    counts = [
        Row(what=name, value=count, unit="verdicts", note=f"of {n}")
        for name, count in changed.items()
    ]
    return [*rows, *counts]


def change(plain: str, large: str | None) -> str:
    """What became of a verdict."""
    if plain in DECIDED and large in DECIDED:
        return "reversed"
    return "decided, then open" if plain in DECIDED else "open, then decided"
