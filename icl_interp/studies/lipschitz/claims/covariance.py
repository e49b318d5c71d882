"""The claim of `lipschitz` on the shape of the window.

M is the inverse of the inputs' covariance, up to a scale.
"""

import torch

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.studies.lipschitz.claims.window import (
    IS_KERNEL,
    LEARNED_ENOUGH,
    excess,
    gates,
    never_asked,
    percent,
    width,
)
from icl_interp.studies.lipschitz.measurements.prediction import tied_window
from icl_interp.studies.lipschitz.measurements.unit import (
    SOURCE,
    functions_of,
    kernel,
    needs_all_directions,
    scores,
    scores_by_function,
    sigma_of,
    task_in,
    whitened_kernel,
)
from icl_interp.studies.lipschitz.measurements.window_losses import (
    ISOTROPIC,
    MODEL,
    SKEW,
    SKEWED,
    matrix_losses,
    optimum,
)
from icl_interp.theory import lipschitz as theory

NEAR, FAR = 0.1, 0.25  # |M - w I| / |w| of whitened M
# Loss of w* I with eigenvalues moved by FAR above that of w* I, relative: below, the loss hardly
# tells.
TELLING = 1e-3
LARGEST = 1e6  # of the distance, which a w of 0 makes infinite
# w over the largest singular value of whitened M: 1 for a positive multiple of the identity, -1 for
# a negative one. The regions met at w = 0, so that the smallest w had a verdict; now a sign that is
# lost in the rest of M decides nothing.
POSITIVE, NEGATIVE = 0.5, -0.5
assert SKEW == FAR

COVARIANCE = Criterion(
    (
        Condition("distance", "", (0.0, NEAR), (FAR, INF)),
        Condition("window", "", (POSITIVE, 1.0), (-1.0, NEGATIVE)),
    ),
    (
        LEARNED_ENOUGH,
        IS_KERNEL,
        *TIED,
        Precondition(
            "telling",
            (TELLING, INF),
            f"The loss hardly depends on the shape of M: eigenvalues {100 * FAR:g} % off raise it "
            f"by only {{value:.2g}} of the least loss ({TELLING:g} needed).",
        ),
    ),
    terms=(
        "distance of the matrix M from a multiple w of the inverse covariance Sigma^-1, over w: |S M S "
        f"- w I| / |w|, S = Sigma^(1/2), spectral norms, w = tr(S M S) / d: <= {NEAR:g} / >= {FAR:g}; "
        f"and w over |S M S|, for even functions |w|: >= {POSITIVE:g} / <= {NEGATIVE:g}"
    ),
)


def distance(results: Results) -> float:
    """How far whitened M is from w I, relative to w."""
    found = float(theory.isotropy(whitened_kernel(results[kernel])).deviation)
    return min(found, LARGEST) if found == found else LARGEST  # NaN: M is 0


def sign(own: Results, facts: Facts) -> float:
    """w over the largest singular value of whitened M, of a model or its control.

    It is 0 where M is 0.
    """
    size = float(torch.linalg.matrix_norm(whitened_kernel(own[kernel]), 2))
    return max(-1.0, min(1.0, width(own, facts) / size)) if size > 0 else 0.0


def evidence(results: Results, facts: Facts) -> Evidence:
    """Is M proportional to Sigma^-1?"""
    task, window, off = task_in(facts), width(results, facts), distance(results)
    cost = excess(results[matrix_losses], MODEL, over=ISOTROPIC)
    telling = excess(results[matrix_losses], SKEWED)
    m = whitened_kernel(results[kernel])
    eigenvalues = ", ".join(
        f"{v:.3g}" for v in torch.linalg.eigvalsh((m + m.T) / 2).flip(0).tolist()
    )
    sigma = sigma_of(task)
    variance = float(sigma.diagonal()[0])
    one_variance = float(theory.isotropy(sigma).deviation) < 1e-9
    name = "distance of M from a multiple of the inverse covariance, over that multiple"
    scale = "multiple w over the largest singular value of M, whitened"
    quantities = {
        "distance": Estimate.exactly(name, off),
        "window": Estimate.exactly(scale, sign(results, facts)),
        "telling": Estimate.exactly(
            f"rise of the loss with eigenvalues {100 * FAR:g} % off, relative", telling.value
        ),
        **gates(results, facts),
    }
    says = answer(
        COVARIANCE,
        quantities,
        "The query-key matrix M is the inverse covariance of the inputs, up to a scale.",
        "The query-key matrix M is not a positive multiple of the inverse covariance of the "
        "inputs.",
        "the query-key matrix M is the inverse covariance of the inputs, up to a scale",
    )
    threshold = bound(
        COVARIANCE, quantities, "distance", f"at most {100 * NEAR:g} %", f"at least {100 * FAR:g} %"
    )
    says += (
        f" For inputs scaled to unit covariance it is {percent(off)} % away from a multiple of the "
        f"identity ({threshold})."
    )
    if window <= 0 and not functions_of(task).even:
        caveat = f"The multiple is {window:.3g}, and Lemma 1 asks for a positive one."
    elif functions_of(task).even:
        caveat = "The target is even, so M and -M have the same loss."
    elif one_variance:
        caveat = (
            "All inputs have one variance here, so the lemma asks for a multiple of the identity."
        )
    else:
        caveat = (
            f"The error of M is {percent(cost.value)} % above that of the multiple of the inverse "
            "covariance."
        )
    numbers = {"eigenvalues of the symmetric part, whitened": eigenvalues}
    numbers |= {"error above that of w Sigma^-1, relative": f"{cost.value:.3g}"}
    numbers |= {"Sigma": f"{variance:.3g} I"} if one_variance else {}
    return Evidence(
        quantities,
        says,
        scope="these weights; exact where scores are bilinear in the inputs",
        control={
            "distance": Estimate.exactly(name, distance(results.control)),
            "window": Estimate.exactly(scale, sign(results.control, facts)),
        },
        details=(
            *(
                {"row": i + 1, **{f"column {j + 1}": float(m[i, j]) for j in range(task.dim)}}
                for i in range(task.dim)
            ),
            *({"number": key, "value": value} for key, value in numbers.items()),
        ),
        caveat=caveat,
    )


INVERSE_COVARIANCE_CLAIM = Claim(
    id="lipschitz.inverse_covariance",
    question="weights and training",
    short="Queries and keys meet in the inverse covariance of the inputs.",
    quote=Quote(
        "Under natural symmetry conditions: x_i ∼ Σ^(1/2) U^d ∀ i ⟹ M* = w_KQ Σ⁻¹ for any M* ∈ arg "
        "min L(M) and some w_KQ ≥ 0",
        "Collins et al. (2024), slides by A. Mokhtari, 'Lemma 1: Inverting the data covariance'",
        "The lemma is about minimisers of the loss; we ask it of trained weights. Its symmetry "
        "conditions are read as: the distribution of functions is the same in all directions of "
        "the inputs Σ^(-1/2) x. Where it is the same in all directions of x itself the lemma is "
        "false, and the claim is not asked. For even functions, f(x) = f(-x), w may be negative.",
    ),
    kind="learning",
    statement="The query-key matrix M = W_K^T W_Q is the inverse of the inputs' covariance, up to "
    "a scale",
    source=f"{SOURCE}, Lemma 1",
    criterion=COVARIANCE,
    measurements=(scores, scores_by_function, kernel, tied_window, optimum, matrix_losses),
    control=(kernel,),
    about_weights=True,
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    excluded=needs_all_directions,
    learned=never_asked,
    figures=("lipschitz_window",),
)
