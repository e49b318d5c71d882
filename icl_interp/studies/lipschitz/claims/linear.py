"""The claim of `lipschitz` on linear attention: it has no window, so that it cannot adapt one."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.lipschitz.claims.window import never_asked, percent
from icl_interp.studies.lipschitz.measurements.example_weights import (
    MODEL,
    PLAIN,
    WINDOW,
    by_cosine,
    label_weights_near,
    needs_linear_attention,
)
from icl_interp.studies.lipschitz.measurements.unit import SOURCE

NONE, SOME = 0.2, 0.5  # of the way from the kernel x_i . x_q to the best window
ABOVE, BELOW = 0.9, 0.6  # of the error of the best linear function of the query
READS = 0.05  # root mean square of predictions over that of f from which a model says something
APART = 0.1  # by which the best window's share and that of x_i . x_q must differ
# Share of the labels' weights that may reach the prediction by another way than attention.
BESIDE = 0.01
NOTHING = 1e-300

LINEAR = Criterion(
    (
        Condition("concentration", "", (-INF, NONE), (SOME, INF)),
        Condition("error", "", (ABOVE, INF), (-INF, BELOW), scale="log"),
    ),
    (
        Precondition(
            "apart",
            (APART, INF),
            "For this task the best window gathers hardly more weight near the query than x_i . "
            f"x_q does (the shares differ by {{value:.2g}}, {APART:g} needed).",
        ),
        Precondition(
            "reads",
            (READS, INF),
            "The model predicts next to nothing (its predictions have {value:.2g} times the size "
            f"of the target, {READS:g} needed).",
        ),
        Precondition(
            "beside",
            (0.0, BESIDE),
            "With attention at its mean, {value:.2g} of the labels' weights in the prediction stay "
            f"(at most {BESIDE:g} allowed): something beside linear attention reads the examples.",
        ),
    ),
    terms=(
        "concentration: how far the share of the examples' weights near the query has gone from that "
        f"of the kernel x_i . x_q (0) to that of the best softmax window (1): <= {NONE:g} / >= "
        f"{SOME:g}; and the mean squared error over that of the best linear function of the query: >= "
        f"{ABOVE:g} / <= {BELOW:g}"
    ),
)


def concentration(result: DataArray) -> Interval:
    """0 for the kernel x_i . x_q, 1 for the best window."""
    shares = [result.sel(number=f"share, {name}").values for name in (MODEL, PLAIN, WINDOW)]
    return bootstrap(lambda own, plain, window: (own - plain) / (window - plain), *shares)


def error(result: DataArray) -> Interval:
    """Mean squared error over that of the best linear function of the query.

    Both are on the same functions and queries.
    """
    mine, least = (result.sel(number=name).values for name in ("error", "least"))
    return bootstrap(lambda e, other: e / np.maximum(other, NOTHING), mine, least, positive=True)


def quantities(result: DataArray) -> dict[str, Estimate]:
    """What the criterion asks for."""
    plain, window = (result.sel(number=f"share, {name}").values for name in (PLAIN, WINDOW))
    size = bootstrap(
        lambda own, true: np.sqrt(own / np.maximum(true, NOTHING)),
        result.sel(number="prediction^2").values,
        result.sel(number="truth^2").values,
    )
    found = {
        "apart": Estimate.of(
            "share of the weight near the query: best window less x_i . x_q",
            bootstrap(lambda a, b: a - b, window, plain),
        ),
        "reads": Estimate.of("size of predictions over that of the target", size),
        "beside": Estimate.of(
            "share of the labels' weights that stays with attention at its mean",
            bootstrap(
                lambda rest, every: rest / np.maximum(every, NOTHING),
                result.sel(number="weights beside attention").values,
                result.sel(number="weights").values,
            ),
        ),
        "error": Estimate.of("error over that of the best linear function", error(result)),
    }
    if np.isfinite(result.sel(number=f"share, {MODEL}").values).all():
        return found | {
            "concentration": Estimate.of("concentration of the weights", concentration(result))
        }
    return found | {
        "concentration": Estimate("concentration of the weights", np.nan, np.nan, np.nan)
    }


def _concentration(found: dict[str, Estimate], shares: dict[str, float]) -> str:
    threshold = bound(
        LINEAR, found, "concentration", f"at most {100 * NONE:g} %", f"at least {100 * SOME:g} %"
    )
    return (
        f"Their share of the weight has gone {percent(found['concentration'].value)} % of the way "
        f"from that without a window to that of the best window ({threshold})."
    )


def _error(found: dict[str, Estimate]) -> str:
    threshold = bound(LINEAR, found, "error", f"at least {ABOVE:g}", f"at most {BELOW:g}")
    return (
        f"The error is {found['error'].value:.3g} times that of the best linear function "
        f"({threshold})."
    )


def is_linear(cfg: HookedTransformerConfig) -> bool:
    """Whether predictions are linear in the query whatever the weights are, biases apart.

    So it is in one layer of linear attention whose keys are the examples alone: the query enters
    once, through what it attends by.
    """
    plain = cfg.attn_only and cfg.normalization_type is None and cfg.embed_bound is None
    return plain and cfg.n_layers == 1 and cfg.score_fn == "linear" and cfg.keys == "labelled"


def evidence(results: Results, facts: Facts) -> Evidence:
    """Do the weights on examples gather near the query, and is the error small?

    The error must be below that of the best linear function.
    """
    result = results[label_weights_near]
    found = quantities(result)
    shares = {
        name: float(result.sel(number=f"share, {name}").values.mean())
        for name in (MODEL, PLAIN, WINDOW)
    }
    names = {
        "mean squared error": "error",
        "mean squared error of the best linear function of the query for each target": "least",
        "cosine to the query from which an example counts as near": "edge",
    }
    numbers = {name: float(result.sel(number=key).values.mean()) for name, key in names.items()}
    decided = LINEAR.decide(found).condition
    stays = "Examples near the query get no more weight, and the error stays that of a linear fit."
    if is_linear(facts.config):
        stays = (
            "By algebra, the model stays a linear fit; examples near the query get no more weight."
        )
    says = answer(
        LINEAR,
        found,
        stays,
        "The weights of the examples gather near the query."
        if decided and decided.quantity == "concentration"
        else "The error falls clearly below that of a linear fit.",
        "linear attention adapts its weights to the functions",
    )
    part, rest = _concentration(found, shares), _error(found)
    if decided and decided.quantity == "error":
        part, rest = rest, part
    says += f" {part}"
    fresh = quantities(results.control[label_weights_near])
    return Evidence(
        found,
        says,
        scope="these weights, this task, prompts in distribution; attention is the derivative of ŷ "
        "by the labels",
        control={key: fresh[key] for key in ("concentration", "error")},
        details=(
            *({"kernel": name, "share near the query": share} for name, share in shares.items()),
            *({"number": name, "value": value} for name, value in numbers.items()),
        ),
        caveat=rest,
    )


LINEAR_CLAIM = Claim(
    id="lipschitz.linear_attention_does_not_adapt",
    question="attention",
    short="Linear attention has no window that could adapt.",
    quote=Quote(
        "To our knowledge, first result showing how pretrained softmax attention facilitates ICL.",
        "Collins et al. (2024), slides by A. Mokhtari, 'Results Part I', 'Some extreme examples'",
        "This is the nearest sentence: the slides do not speak of linear attention. That it cannot "
        "adapt is our converse: its weight x_i^T M x_q / n has one shape at every size of M, so "
        "that neither L nor the noise can narrow it. We also ask it of models of several layers, "
        "with MLPs before a layer of linear attention, which can.",
    ),
    kind="architecture",
    statement="Linear attention does not adapt: its weights do not gather near the query, and it "
    "stays a linear fit",
    source=f"{SOURCE}, Theorem 2, for linear attention in the place of softmax",
    criterion=LINEAR,
    measurements=(label_weights_near, by_cosine),
    control=(label_weights_near,),
    aspects=("kind of task",),
    evidence=evidence,
    excluded=needs_linear_attention,
    learned=never_asked,
    figures=("lipschitz_linear",),
)
