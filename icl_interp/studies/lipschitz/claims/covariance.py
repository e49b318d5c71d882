"""The claim of `lipschitz` on the shape of the window.

M is the inverse of the inputs' covariance, up to a scale.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.studies.lipschitz.claims.window import (
    IS_KERNEL,
    LEARNED_ENOUGH,
    askew,
    excess,
    gates,
    never_asked,
    percent,
    width,
)
from icl_interp.studies.lipschitz.measurements.prediction import tied_window
from icl_interp.studies.lipschitz.measurements.unit import (
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

NEAR = 0.1  # |M - w I| / |w| of whitened M
FAR = 0.25
# Loss of w* I with eigenvalues moved by FAR above that of w* I, relative: below, the loss hardly
# tells.
TELLING = 1e-3
LARGEST = 1e6  # of the distance, which a w of 0 makes infinite
# w over the largest singular value of whitened M: 1 for a positive multiple of the identity, -1 for
# a negative one. The regions met at w = 0, so that the smallest w had a verdict; now a sign that is
# lost in the rest of M decides nothing.
POSITIVE = 0.5
NEGATIVE = -0.5
assert SKEW == FAR

CRITERION = Criterion(
    (
        Condition(
            "distance",
            "distance of whitened M from a multiple w of the identity, over w",
            at_most(NEAR, least=0.0),
            at_least(FAR),
            unit="share",
        ),
        Condition(
            "window",
            "multiple w over the largest singular value of whitened M",
            at_least(POSITIVE, most=1.0),
            at_most(NEGATIVE, least=-1.0),
            denied="The query-key matrix M is nearest to a negative multiple of the inverse "
            "covariance of the inputs.",
        ),
    ),
    (
        LEARNED_ENOUGH,
        IS_KERNEL,
        *TIED,
        Precondition(
            "telling",
            at_least(TELLING),
            f"The loss hardly depends on the shape of M: eigenvalues that are {100 * FAR:g} % off "
            f"raise it by only {{value:.2g}} of the least loss ({TELLING:g} needed).",
        ),
    ),
    terms="Whitened M is S M S with S = Sigma^(1/2), Sigma the covariance of the inputs. The "
    "multiple w is its mean eigenvalue, for even functions |w|. Sizes are spectral norms.",
)


def distance(results: Results) -> float:
    """How far whitened M is from w I, relative to w."""
    found = askew(results)
    if math.isnan(found):  # M is 0
        return LARGEST
    return min(found, LARGEST)


def sign(results: Results, facts: Facts) -> float:
    """w over the largest singular value of whitened M; 0 where M is 0."""
    size = float(torch.linalg.matrix_norm(whitened_kernel(results[kernel]), 2))
    if not size > 0:
        return 0.0
    share = width(results, facts) / size
    return max(-1.0, min(1.0, share))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How far M is from a multiple of Sigma^-1, and whether the loss could tell."""
    telling = excess(results[matrix_losses], SKEWED)
    return {
        "distance": distance(results),
        "window": sign(results, facts),
        "telling": telling.value,
        **gates(results, facts),
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """What the lemma asks for on this task, and what the distance costs."""
    task = task_in(facts)
    window = width(results, facts)
    cost = excess(results[matrix_losses], MODEL, over=ISOTROPIC)
    sigma = sigma_of(task)
    unequal = theory.isotropy(sigma)
    one_variance = float(unequal.deviation) < 1e-9
    if functions_of(task).even:
        caveat = "The target is even, so M and -M have the same loss."
    elif window <= 0:
        caveat = f"The multiple is {window:.3g}, and Lemma 1 asks for a positive one."
    elif one_variance:
        caveat = (
            "All inputs have one variance here, so the lemma asks for a multiple of the identity."
        )
    else:
        caveat = (
            f"The error of M is {percent(cost.value)} % above that of the multiple of the inverse "
            "covariance."
        )
    # The matrix itself, row by row, and numbers on it.
    matrix = whitened_kernel(results[kernel])
    rows: list[dict[str, Any]] = []
    for i, row in enumerate(matrix.tolist()):
        columns = {f"column {j + 1}": value for j, value in enumerate(row)}
        rows.append({"row": i + 1, **columns})
    symmetric = (matrix + matrix.T) / 2
    eigenvalues = torch.linalg.eigvalsh(symmetric).flip(0)
    listed = ", ".join(f"{value:.3g}" for value in eigenvalues.tolist())
    numbers = {
        "eigenvalues of the symmetric part, whitened": listed,
        "error above that of w Sigma^-1, relative": f"{cost.value:.3g}",
    }
    if one_variance:
        numbers["Sigma"] = f"{float(sigma[0, 0]):.3g} I"
    for name, value in numbers.items():
        rows.append({"number": name, "value": value})
    return Remarks(
        scope="these weights; exact where scores are bilinear in the inputs",
        caveat=caveat,
        details=tuple(rows),
    )


INVERSE_COVARIANCE_CLAIM = Claim(
    id="lipschitz.inverse_covariance",
    question="weights and training",
    statement="The query-key matrix M is the inverse covariance of the inputs, up to a scale.",
    denied="The query-key matrix M is not a multiple of the inverse covariance of the inputs.",
    quote=Quote(
        "Under natural symmetry conditions: x_i ∼ Σ^(1/2) U^d ∀ i ⟹ M* = w_KQ Σ⁻¹ for any M* ∈ arg "
        "min L(M) and some w_KQ ≥ 0",
        "Collins et al. (2024), slides by A. Mokhtari, 'Lemma 1: Inverting the data covariance'",
        "The lemma is about minimisers of the loss; we ask it of trained weights. We read its "
        "symmetry conditions so: the distribution of functions is the same in all directions of "
        "the inputs Σ^(-1/2) x. If it is the same in all directions of x itself, the lemma is "
        "false, and the claim is not judged. For even functions, f(x) = f(-x), w may be negative.",
    ),
    kind="learning",
    reads="weights and scores of the head",
    criterion=CRITERION,
    measurements=(scores, scores_by_function, kernel, tied_window, optimum, matrix_losses),
    control=(kernel,),
    of_control=("distance", "window"),
    about_weights=True,
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_all_directions,
    learned=never_asked,
    figures=("lipschitz_window",),
)
