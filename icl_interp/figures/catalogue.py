"""All figures of a report, by name and in their order."""

import logging
from collections.abc import Callable, Mapping, Sequence

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.boundary import boundary
from icl_interp.figures.claims import forest
from icl_interp.figures.classes import classes
from icl_interp.figures.context import context
from icl_interp.figures.dispersion import dispersion
from icl_interp.figures.far_query import far_query
from icl_interp.figures.growth import growth
from icl_interp.figures.heads import heads
from icl_interp.figures.layers import layers
from icl_interp.figures.linear_attention import linear_attention
from icl_interp.figures.shift import shift
from icl_interp.figures.style import Figure, safe
from icl_interp.results import Result

Drawing = Callable[[Results, Sequence[Finding], Facts], Figure | None]

log = logging.getLogger(__name__)

FIGURES: dict[str, Drawing] = {
    "claims": forest,
    "far_query": far_query,
    "growth": growth,
    "boundary": boundary,
    "context": context,
    "heads": heads,
    "dispersion": dispersion,
    "layers": layers,
    "classes": classes,
    "shift": shift,
    "linear_attention": linear_attention,
}

# What one sees, for readers who meet the figure for the first time.
CAPTIONS = {
    "claims": (
        "Each claim on its own axis. A filled mark is the estimate with its 95 % interval; shaded zones were fixed "
        "before anything was measured. Hollow marks are controls: a diamond is the same measurement on an untrained "
        "twin, a square the same intervention where it should do nothing."
    ),
    "far_query": (
        "The context stays in distribution and only the last query moves, in both directions. Each thin line is one "
        "context; dotted lines are the functions that these contexts show. With LayerNorm the lines are expected to "
        "run into one plateau on each side, which the weights alone predict (dashed) within bounds that no output can "
        "leave (shaded); without it, into one line on each side, whatever the context says."
    ),
    "growth": (
        "Left, the size of the prediction far out; middle, its slope on these logarithmic axes: 0 is a plateau, 1 a "
        "line. Norms are frozen at their in-distribution scale, at the query only; the sham freezes the context "
        "instead and should change nothing. Right, what each of these does to the error, in units of the error of "
        "always predicting 0."
    ),
    "boundary": (
        "Query alone, both directions; grey is the trained range. Left, one context (thin) and the mean over all "
        "(thick), with the end of the zone in which f follows the function, the onset of the plateau, and the bounds "
        "that the weights certify (shaded). Middle, how f nears its own end: parallel to the guide is an approach like "
        "1/|x|, below the dashed line is level. Right, exponents of growth: f grows as its numerator does, less the "
        "scale that divides it; a plateau needs the two to cancel."
    ),
    "context": (
        "Left, how much predictions still differ between contexts as the query goes far; the dotted guide falls like "
        "1/|x|, and the two bars are the claim's thresholds. Right, whether what is left still tells which function "
        "the context shows: R² near 1 means attenuated but not erased; permuted coefficients are the null."
    ),
    "heads": (
        "Left, a row a head: how far its attention at the last query is from a hardmax, in distribution (grey) and "
        "far out (blue; mean over |x| = 10⁴ and 10⁵); the shaded strip counts as a hardmax. Hollow heads are not "
        "shown to matter. Right, how much heads of a layer overlap, beside the overlap of randomly rotated ones."
    ),
    "dispersion": (
        "Left, how far attention is from a uniform average as prompts grow: 0 is uniform. Right, the largest weight "
        "on any key: it shrinks with any bounded scores, which is dispersion and not uniformity. Solid: measured on "
        "prompts of that length. Dashed: scores resampled from prompts of the trained length."
    ),
    "layers": (
        "First, what the read-out makes of the stream after each layer, for one prompt, as the query moves. Then the "
        "share of the final prediction's variance that is there after so many layers: for the model's own read-out "
        "(the logit lens), and for the best affine one, fitted to other functions, which finds a prediction in any "
        "basis; the claim is supported where that lies in the shaded zone. Then errors, 1 for whoever always predicts "
        "0, with a part of the model made its mean, at every position or at the query's token alone. Where several "
        "degrees can be compared: how far apart their mean attention patterns are, in units of the distance between "
        "two prompts of one degree; shaded counts as alike."
    ),
    "classes": (
        "Left, a row a class of functions: the squared error where the function is determined, 1 for whoever always "
        "predicts 0 (the mean, for the fixed functions). Filled marks are degrees the model was trained on. Right, a "
        "row a classical algorithm: how far its predictions for the query are from the model's, in units of how far "
        "the model is from itself when its context is reshuffled (or trained from another seed), and no less than its "
        "error. It resembles an algorithm that lies in the shaded zone with all three marks."
    ),
    "shift": (
        "This model beside those that differ from it in one respect, on the same functions and points. Errors as "
        "coefficients leave their training range; errors from the centre of the inputs' interval to its edge (shaded: "
        "what the claim compares); and, where models trained on other intervals are at hand, errors of each on each "
        "interval: learning from a larger one moves the range without removing its end."
    ),
    "linear_attention": (
        "First, the error at the query after M examples: measured, and by theory for the layer that training should "
        "end at, on the same draws; intervals are those of the ratio of the two. Dashed, as the slides print it. "
        "Then, where the run kept weights on its way, the exact excess loss and squared gradient at these steps, and "
        "the bound on the latter by Lemma 5.4. Last, how near the model is to algorithms for linear regression, told "
        "the law of the task: 1 is the same prediction, 0 as far as predicting 0 is from the truth."
    ),
}


def draw(results: Mapping[str, Result], findings: Sequence[Finding], facts: Facts) -> dict[str, Figure]:
    """Every figure that the stored results allow, in a fixed order.

    A figure is a pure function of what is stored and changes no number. Results that no figure knows are left alone;
    a finding on any claim, also one of your own, has its row in "claims". A figure that cannot be drawn, for want of a
    measurement that failed, say, is left out and the log says why: it costs no other.
    """
    drawn = {name: _drawn(name, Results(results), findings, facts) for name in FIGURES}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _drawn(name: str, results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    try:
        figure = FIGURES[name](results, findings, facts)
        return None if figure is None else safe(figure)
    except Exception:
        log.warning("the figure %s could not be drawn and is left out", name, exc_info=True)
        return None
