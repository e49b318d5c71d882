"""Which heads matter: every verdict over heads counts these only."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import LEARNED_R2
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.interventions.attention import SwapPattern
from icl_interp.interventions.base import Intervention
from icl_interp.resampling import simultaneous
from icl_interp.results import make_array


def labels(lab: Lab) -> tuple[str, ...]:
    """Names of the heads, "layer.head"."""
    return tuple(f"{layer}.{head}" for layer, head in lab.heads)


@measurement("heads/relevance")
def relevance(lab: Lab) -> DataArray:
    """What happens in distribution when a head's pattern is made uniform, and when its output is made its mean.

    rise: of the squared error over scored points; movement: squared change of the prediction over its variance (for
    models that learned nothing, whose error says nothing); intact: the squared error itself.
    """
    base, truth = lab.predictions()
    intact = (base - truth).square().mean((1, 2))
    variance = float(base.var())
    values = []
    for head in lab.heads:
        edits: tuple[Intervention, ...] = (SwapPattern("uniform", (head,)), lab.head_means.only(head))
        rows = []
        for edit in edits:
            out, _ = lab.predictions(edit)
            missed, moved = (out - truth).square().mean((1, 2)), (out - base).square().mean((1, 2))
            parts = (missed - intact, moved / variance, intact)
            rows.append([lab.by_function(part, lab.head_sample) for part in parts])
        values.append(rows)
    axes = {
        "head": labels(lab),
        "intervention": ("uniform", "mean ablation"),
        "statistic": ("rise", "movement", "intact"),
        "function": tuple(range(len(lab.head_sample.function.unique()))),
    }
    return make_array(values, axes, note=f"{len(lab.head_sample)} prompts, all scored points")


def relevant(results: Results, facts: Facts) -> list[str]:
    """The heads that matter: the error rises, with an interval above 0, when the head is made uniform or its mean.

    Intervals hold for all heads at once, and on the logarithm of the error: the rises of a few functions can be a
    hundred times those of the rest, and a symmetric interval around such a mean reaches below 0. Where the model has
    not learned its task an error means nothing, and a head matters if it moves the prediction by more than 1 % of its
    standard deviation.
    """
    result = results[relevance]
    names = np.array(result.indexes["head"])
    if facts.r2 > LEARNED_R2:
        rise, intact = (result.sel(statistic=s).values for s in ("rise", "intact"))  # (head, intervention, function)
        n_functions = rise.shape[-1]
        swapped, before = ((rise + intact).reshape(-1, n_functions).T, intact.reshape(-1, n_functions).T)
        _, low, _ = simultaneous(lambda after, before: np.log(after / before), swapped, before)
        return list(names[(low.reshape(rise.shape[:2]) > 0).any(1)])
    moved = result.sel(statistic="movement").values.mean(-1)
    return list(names[(moved > 1e-4).any(1)])
