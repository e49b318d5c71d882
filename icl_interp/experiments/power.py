"""Power curves: how surely a claim is judged on hand-built models of known truth.

One number takes the models from where the claim is false to where it is true.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from pandas import DataFrame

from icl_interp.analyses import registry
from icl_interp.analyses.finding import Finding
from icl_interp.errors import whole
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import NO, YES, Case
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.registers import View
from icl_interp.results import make_table

COLUMNS: tuple[str, ...] = ("dial", "claim", "value", YES, NO, "undecided", "draws", "measured")


@dataclass(frozen=True)
class Dial:
    """Models of known truth in which one number decides whether a claim is true.

    Attributes:
        name: what the number is, in words: it is the title of an axis.
        claim: the id of the claim.
        why: what the number does, in a sentence.
        build: a random model for a value of the number, from a generator; a model alone is one on
            the affine task.
        values: from one for which the claim is false, across its threshold, to one for which it is
            true.
        quantity: of the claim's criterion, the one that the number moves; the first by default.
    """

    name: str
    claim: str
    why: str
    build: Callable[[float, torch.Generator], "HookedTransformer | Case"]
    values: tuple[float, ...]
    quantity: str = ""

    def draw(self, value: float, seed: int) -> Case:
        """One model, in float64.

        The same seed draws the same for every value, but for what the value changes.
        """
        draws = generator(seed, f"dial/{self.name}")
        case = self.build(value, draws)
        if not isinstance(case, Case):
            case = Case(case)
        case.model.double().eval()
        return case

    def judge(self, value: float, seed: int = 0) -> Finding:
        """What the claim says of one model."""
        case = self.draw(value, seed)
        (finding,) = calibration.judge(case, (self.claim,), seed=seed)
        return finding


DIALS: View[Dial] = View("dial", lambda study: {one.name: one for one in study.dials})


def curve(name: str, n_draws: int, seed: int = 0) -> DataFrame:
    """The power curve of a dial: a row a value.

    Args:
        name: of the dial.
        n_draws: models drawn for each value.
        seed: of the first draw.

    Returns:
        How many of the draws are "supported", "contradicted" and "undecided" (any other verdict),
        and "measured", the median over draws of the dial's quantity; NaN where no draw has it.
    """
    whole(n_draws, "draws", 1, 10**6)
    whole(seed, "seed", 0)
    dial = DIALS.named(name)
    (claim,) = registry.select((dial.claim,))
    quantity = dial.quantity or claim.criterion.conditions[0].quantity
    columns: dict[str, list[Any]] = {}
    for column in COLUMNS:
        columns[column] = []
    # A row a value: how its draws are judged, and what is measured of them.
    for value in dial.values:
        verdicts = []
        measured = []
        for draw in range(seed, seed + n_draws):
            finding = dial.judge(value, draw)
            verdicts.append(finding.verdict)
            if quantity in finding.evidence:
                measured.append(finding.evidence[quantity].value)
        supported = verdicts.count(YES)
        contradicted = verdicts.count(NO)
        undecided = n_draws - supported - contradicted
        middle = median(measured) if measured else math.nan
        counts = (supported, contradicted, undecided, n_draws)
        row = (name, dial.claim, float(value), *counts, middle)
        for column, entry in zip(COLUMNS, row, strict=True):
            columns[column].append(entry)
    return make_table(columns, note=f"draws {seed} .. {seed + n_draws - 1} for each value")
