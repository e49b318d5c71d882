"""Which heads matter: every verdict over heads counts these only."""

import numpy as np

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.verdicts import LEARNED_R2, Facts, Results, measurement
from icl_interp.interventions import Intervention, SwapPattern
from icl_interp.resampling import simultaneous
from icl_interp.results import Matrix


def labels(lab: Lab) -> tuple[str, ...]:
    """Names of the heads, "layer.head"."""
    return tuple(f"{layer}.{head}" for layer, head in lab.heads)


@measurement("heads/relevance")
def relevance(lab: Lab) -> Matrix:
    """What happens in distribution when a head's pattern is made uniform, and when its output is made its mean.

    rise: of the squared error over scored points; movement: squared change of the prediction over its variance (for
    models that learned nothing, whose error says nothing).
    """
    base, truth = lab.predictions()
    variance = float(base.var())
    values = []
    for head in lab.heads:
        edits: tuple[Intervention, ...] = (SwapPattern("uniform", (head,)), lab.head_means.only(head))
        rows = []
        for edit in edits:
            out, _ = lab.predictions(edit)
            rise = (out - truth).square().mean(1) - (base - truth).square().mean(1)
            rows.append([lab.by_function(rise), lab.by_function((out - base).square().mean(1) / variance)])
        values.append(rows)
    axes = {
        "head": labels(lab), "intervention": ("uniform", "mean ablation"), "statistic": ("rise", "movement"),
        "function": tuple(range(lab.n_functions)),
    }  # fmt: skip
    return Matrix(values, axes, note=f"{len(lab.few)} prompts, all scored points")


def relevant(results: Results, facts: Facts) -> list[str]:
    """The heads that matter: the error rises, with an interval above 0, when the head is made uniform or its mean.

    Intervals hold for all heads at once. Where the model has not learned its task an error means nothing, and a head
    matters if it moves the prediction by more than 1 % of its standard deviation.
    """
    result = results["heads/relevance"]
    names = np.array(result.axes["head"])
    if facts["r2"] > LEARNED_R2:
        rise = result.at(statistic="rise")  # (head, intervention, function)
        _, low, _ = simultaneous(rise.reshape(-1, rise.shape[-1]).T)
        return list(names[(low.reshape(rise.shape[:2]) > 0).any(1)])
    moved = result.at(statistic="movement").mean(-1)
    return list(names[(moved > 1e-4).any(1)])
