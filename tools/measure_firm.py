"""How often a firm verdict is wrong by the draw of its prompts, on real skewed units.

    python tools/measure_firm.py              # prints a table; about half an hour on one core
    python tools/measure_firm.py --samples 2000

Units of three claims whose errors are skewed are drawn from bundled models, far more than a report
has. All of them together stand for the law. From it come samples of a report's size; for each, the
far ends that firm verdicts rest on are computed as a report does, and whether the truth lies beyond
them is counted. A threshold at the truth itself is the worst case: any other is passed less often.
"""

import argparse
import math
from typing import NamedTuple

import numpy as np

from icl_interp.analyses.criterion import FEWEST_CLAIMS, firm_chance
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.sizes import N_UNITS
from icl_interp.checkpoints import store
from icl_interp.resampling import TOO_SMALL, UNSEEN, draw_weights, half_width
from icl_interp.studies.autoregression.measurements.descent_steps import descent
from icl_interp.studies.autoregression.measurements.softmax_misses import ALL, MISSED, missed
from icl_interp.studies.limits.measurements.unknown_degree import (
    LARGEST_DEGREE,
    MODEL,
    unknown_degree,
)
from icl_interp.tails import far_quantile

SEEDS = 120  # of the samples whose units make the law
STEPS = "2"  # of descent that the model of two layers is compared with


class Law(NamedTuple):
    """Units of a ratio of two mean errors: the model's and another's."""

    name: str
    own: np.ndarray
    other: np.ndarray


def drawn(model: str, measurement, rows) -> list[np.ndarray]:
    """Units of a measurement on fresh samples of prompts, those of all seeds together."""
    loaded = store.load(model)
    found = [
        rows(measurement(Lab(loaded.model, loaded.task, loaded.encoding, seed=seed)))
        for seed in range(SEEDS)
    ]
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def laws() -> list[Law]:
    """Three ratios whose errors are skewed."""
    softmax = drawn(
        "autoregression_rotations_softmax",
        missed,
        lambda r: [r.sel(who=who).values for who in (MISSED, ALL)],
    )
    depth = drawn(
        "autoregression_linear_2",
        descent,
        lambda r: [r.sel(who=who).mean("point").values for who in ("the model", STEPS)],
    )
    degrees = drawn(
        "degrees_135",
        unknown_degree,
        lambda r: [r.sel(predictor=who).mean("class").values for who in (MODEL, LARGEST_DEGREE)],
    )
    return [
        Law("a softmax layer's error over the law mean's", *softmax),
        Law("two layers' error over two steps of descent's", *depth),
        Law("error on unknown degrees over least squares'", *degrees),
    ]


def ends(own: np.ndarray, other: np.ndarray, chance: float) -> tuple[float, float, float, float]:
    """Far ends of log(mean of own / mean of other), as `bootstrap` gives them, and a normal law's.

    The same steps for this one statistic, whose slopes are known, so that 200,000 samples take
    minutes (`tests/test_tails_firm.py` compares it with `bootstrap`).
    """
    value, se = _at(np.ones(len(own)), own, other)
    draws, errors = _at(draw_weights(len(own)) * len(own), own, other)
    errors = np.where(errors >= TOO_SMALL * se, errors, se)
    t = (draws - value) / errors
    normal = half_width(2 * chance)
    down, up = max(normal, far_quantile(t, 1 - chance)), max(normal, -far_quantile(t, chance))
    influence = own / own.mean() - other / other.mean()
    starts = [(value, se)]
    for most in (influence.argmin(), influence.argmax()):
        weights = np.ones(len(own))
        weights[most] += UNSEEN
        starts.append(_at(weights, own, other))
    low = min(start - down * error for start, error in starts)
    high = max(start + up * error for start, error in starts)
    return low, high, value - normal * se, value + normal * se


def _at(weights: np.ndarray, own: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The logarithm of the ratio with weighted units, and its delta-method standard error."""
    parts = np.stack([own, other, own**2, own * other, other**2], 1)
    a, b, aa, ab, bb = ((weights @ parts) / weights.sum(-1, keepdims=True)).T
    variance = aa / a**2 - 2 * ab / (a * b) + bb / b**2
    return np.log(a / b), np.sqrt(np.maximum(variance, 0) / (len(own) - 1))


def beyond(law: Law, n_samples: int, chance: float) -> tuple[int, ...]:
    """How often the truth lies below and above a report's far ends, and those of a normal law."""
    truth = math.log(law.own.mean() / law.other.mean())
    draw, counts = np.random.default_rng(0), np.zeros(4, int)
    for _ in range(n_samples):
        rows = draw.integers(0, len(law.own), N_UNITS)
        low, high, normal_low, normal_high = ends(law.own[rows], law.other[rows], chance)
        counts += (truth < low, truth > high, truth < normal_low, truth > normal_high)
    return tuple(counts.tolist())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--samples", type=int, default=200_000, help="of each law (200,000 by default)"
    )
    n_samples = parser.parse_args().samples
    chance = firm_chance(FEWEST_CLAIMS, 1)
    print(
        f"allowed on each side: {chance:.5f} (claims: {FEWEST_CLAIMS}); {n_samples:,} samples of "
        f"{N_UNITS} units"
    )
    print(
        "| units of | skewness | truth below | truth above | below, normal ends | above, normal "
        "ends |"
    )
    print("|---|---|---|---|---|---|")
    for law in laws():
        skewness = float(((law.own - law.own.mean()) ** 3).mean() / law.own.std() ** 3)
        shares = [count / n_samples for count in beyond(law, n_samples, chance)]
        print(
            f"| {law.name} | {skewness:.1f} |" + "".join(f" {share:.5f} |" for share in shares),
            flush=True,
        )


if __name__ == "__main__":
    main()
