"""Units of diagonal linear attention whose weights are set.

They are minimisers of the loss, and others that predict as well.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.diagonal_unit import DiagonalAttention
from icl_interp.models.transformer import HookedTransformer
from icl_interp.tasks.autoregressive import AutoregressiveProcess, MatrixName
from icl_interp.theory import autoregression as theory

IDENTITY = "autoregression.head_identity"
SPARE = "autoregression.spare_heads"
PAST = "autoregression.past_token"
DIAGONALS = "autoregression.same_on_diagonals"
START = "autoregression.start_free"
NOT_ASKED = "not_applicable"
N_POINTS = 10  # states of a prompt
# mu: angles on so small a part of the circle that many weights of positions predict as well
NARROW = 40.0
FLAT = 1e-8  # eigenvalues of the loss in p up to which a direction does not show in predictions
NARROWER = 300.0  # mu of the smooth weights
RIDGE = 1e-2  # their penalty: the error is then about that at which the work stops training
UNSEEN = 10.0  # size of what is added to a row in directions that do not show
Square = Complex[Tensor, "dim dim"]
Rows = Complex[Tensor, "head dim"] | Float[Tensor, "head dim"]
Positions = Float[Tensor, "token token"]


# ---- parts ---------------------------------------------------------------------------------------


def _turn(g: torch.Generator, n: int) -> Square:
    """A random unitary matrix."""
    real, imaginary = torch.randn(2, n, n, generator=g, dtype=torch.float64)
    normal = torch.complex(real, imaginary)
    return torch.linalg.qr(normal).Q


def _phases(g: torch.Generator, heads: int) -> Complex[Tensor, "head 1"]:
    """A number of size 1 for each head, which leaves what the head says.

    a_h is multiplied by it and b_h by its inverse.
    """
    turns = torch.rand(heads, 1, generator=g, dtype=torch.float64)
    angles = 2 * torch.pi * turns
    return torch.polar(torch.ones_like(angles), angles)


def case_of(
    g: torch.Generator,
    matrices: MatrixName,
    A: Rows,
    B: Rows,
    P: Positions,
    mu: float = 1.0,
    phases: bool = True,
) -> Case:
    """The unit with these heads, on a task of as many coordinates."""
    n_heads, d = A.shape
    if phases:
        turn = _phases(g, n_heads)
    else:
        turn = torch.ones(n_heads, 1, dtype=torch.complex128)
    unit = DiagonalAttention(A * turn, B / turn, P)
    task = AutoregressiveProcess(n_dims=d, matrices=matrices, mu=mu, n_points=len(P))
    return Case(unit.to_transformer(), task)


def on_last(scale: float, ratio: float = 0.0) -> Positions:
    """P whose row T holds p_T = scale, and p_{T-1} = ratio times that."""
    last = torch.full((N_POINTS,), scale, dtype=torch.float64)
    before = ratio * last[1:]
    return torch.diag(last) + torch.diag(before, -1)


def mixed(g: torch.Generator, product: Float[Tensor, "dim dim"]) -> tuple[Rows, Rows]:
    """A random A of as many heads as coordinates, and B with B^T A = the product.

    A has singular values from 1/2 to 2.
    """
    d = len(product)
    exponents = 2 * torch.rand(d, generator=g, dtype=torch.float64) - 1
    sizes = 2**exponents
    left = _turn(g, d)
    right = _turn(g, d)
    A = left * sizes @ right
    B = torch.linalg.solve(A.T, product.T.to(A))
    return A, B


def _pairs(g: torch.Generator) -> int:
    """2 or 4 coordinates, in pairs."""
    return 2 * int(torch.randint(1, 3, (), generator=g))


# ---- minimisers ----------------------------------------------------------------------------------


def unitary(g: torch.Generator) -> Case:
    """Proposition 3 with as many heads as coordinates: p_T B^T A = I for a random A."""
    d = int(torch.randint(2, 5, (), generator=g))
    size = between(g, 0.5, 2)
    sign = 1 if torch.rand(1, generator=g) < 0.5 else -1
    scale = size * sign
    minimum = theory.unitary_minimiser(d, N_POINTS, scale)
    A, B = mixed(g, minimum.product)
    return case_of(g, "unitary", A, B, on_last(scale))


def half_as_many(g: torch.Generator) -> Case:
    """Lemma 3: d / 2 heads, each of which adds up a pair, and p_{T-1} = -p_T / 2."""
    d = _pairs(g)
    scale = between(g, 0.5, 2)
    A, B, _ = theory.orthogonal_heads(d, N_POINTS)
    return case_of(g, "conjugate_pairs", A, B / scale, on_last(scale, -0.5))


def two_tokens(g: torch.Generator) -> Case:
    """Proposition 6 with as many heads as coordinates, a_h = e_h and p_{T-1} = rho p_T.

    rho lies between 1 and 2.
    """
    d = _pairs(g)
    return at_ratio(g, d, between(g, 1, 2))


def at_ratio(g: torch.Generator, d: int, ratio: float) -> Case:
    """Proposition 6 with a_h = e_h and p_{T-1} = this ratio times p_T."""
    A = torch.eye(d, dtype=torch.float64)
    minimum = theory.orthogonal_minimiser(d, N_POINTS, ratio)
    return case_of(g, "conjugate_pairs", A, minimum.product.T, on_last(1.0, ratio))


def spare(g: torch.Generator) -> Case:
    """The unitary minimiser, and two more heads that take each other off."""
    d = 2
    A, B = mixed(g, torch.eye(d, dtype=torch.float64))
    a, b = torch.randn(2, 1, d, generator=g, dtype=torch.float64).to(A)
    order = torch.randperm(d + 2, generator=g)
    A = torch.cat([A, a, a])[order]
    B = torch.cat([B, b, -b])[order]
    # No phases: those of the two heads that cancel would have to be the same.
    return case_of(g, "unitary", A, B, on_last(1.0), phases=False)


def shared(g: torch.Generator) -> Case:
    """The unitary minimiser with twice as many heads as coordinates.

    Each head does about half of what one would do.
    """
    d = 2
    A, B = mixed(g, torch.eye(d, dtype=torch.float64))
    shares = 0.4 + 0.2 * torch.rand(d, 1, generator=g, dtype=torch.float64)
    twice = torch.cat([A, A])
    parts = torch.cat([shares * B, (1 - shares) * B])
    return case_of(g, "unitary", twice, parts, on_last(1.0))


def normed(g: torch.Generator) -> Case:
    """The unitary minimiser behind norms that change nothing on the task.

    All its states have one length.
    """
    case = unitary(g)
    plain = case.model
    cfg = replace(plain.cfg, normalization_type="RMS")
    model = HookedTransformer(cfg).double()
    model.load_state_dict({**model.state_dict(), **plain.state_dict()})
    # Mean squares over 4 d coordinates: of a state, |s|^2 = d; and of a state and a prediction as
    # long.
    with torch.no_grad():
        for name, mean_square in (("blocks.0.ln1", 1 / 4), ("ln_final", 1 / 2)):
            gain = model.norms[name].w
            assert gain is not None
            gain.fill_((mean_square + plain.cfg.eps) ** 0.5)
    return Case(model, case.task)


def second_token(g: torch.Generator) -> Case:
    """No diagonals, and no loss: the next state is s_{T-1} s_1 s_1.

    From s_0 = 1 the second state is lambda.

    Queries are conjugated, so that heads weigh by u_i v_i in the place of conj(u_i) v_i, and all
    rows of P read s_1.
    """
    case = unitary(g)
    attention = case.model.blocks[0].attn
    wide = case.model.cfg.d_in
    scale = float(attention.W_P[-1, -1].detach())
    with torch.no_grad():
        attention.W_Q[:, wide + 1 :: 2] *= -1  # imaginary parts of the state
        attention.W_P.zero_()
        attention.W_P[1:, 1] = scale
    return case


# ---- weights of positions for angles on a part of the circle -------------------------------------


def _narrow(g: torch.Generator, mu: float, row: Callable[[int], Float[Tensor, " token"]]) -> Case:
    """C = I and rows of P by the number of their tokens, for unitary W with small angles."""
    P = torch.zeros(N_POINTS, N_POINTS, dtype=torch.float64)
    for last in range(N_POINTS):
        P[last, : last + 1] = row(last + 1)
    A, B = mixed(g, torch.eye(2, dtype=torch.float64))
    return case_of(g, "unitary", A, B, P, mu=mu)


def smooth(g: torch.Generator, ridge: float = RIDGE) -> Case:
    """The shortest p with hardly any error (ridge regression), as early stopping has it."""

    def row(n: int) -> Float[Tensor, " token"]:
        H = theory.position_hessian(n, NARROWER)
        penalty = ridge * torch.eye(n, dtype=torch.float64)
        return torch.linalg.solve(H + penalty, H[:, -1])

    return _narrow(g, NARROWER, row)


def ragged(g: torch.Generator, size: float = UNSEEN) -> Case:
    """p = e_T and more in directions that predictions do not show, other ones in each row."""

    def row(n: int) -> Float[Tensor, " token"]:
        H = theory.position_hessian(n, NARROW)
        values, vectors = torch.linalg.eigh(H)
        unseen = vectors[:, values < FLAT]
        p = torch.zeros(n, dtype=torch.float64)
        if unseen.shape[1]:
            p = unseen @ torch.randn(unseen.shape[1], generator=g, dtype=torch.float64)
            # The signs of neighbouring rows differ, so that means over rows are no such directions.
            p *= (-1) ** n * size / p.norm() * p[-1].sign()
        p[-1] += 1
        return p

    return _narrow(g, NARROW, row)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "diagonal unit at a unitary minimiser",
        "as many heads as coordinates, p_T B^T A = I, so that p_T A B^T = I; P is a multiple of I",
        unitary,
        {IDENTITY: YES, PAST: YES, DIAGONALS: YES, START: YES, SPARE: NOT_ASKED},
    ),
    Construction(
        "diagonal unit with half as many heads",
        "Lemma 3 for conjugate pairs: the last token and -1/2 of the one before",
        half_as_many,
        {PAST: YES, DIAGONALS: YES, START: YES, IDENTITY: NOT_ASKED, SPARE: NOT_ASKED},
    ),
    Construction(
        "diagonal unit at a minimiser of two tokens",
        "the loss is 0 at rho > 0 as well, where A B^T has entries off its diagonal",
        two_tokens,
        {IDENTITY: NO, PAST: YES},
    ),
    Construction(
        "diagonal unit with heads that cancel",
        "two heads of four cancel each other, and the other two are a minimiser",
        spare,
        {SPARE: YES, IDENTITY: YES},
    ),
    Construction(
        "diagonal unit that shares its work",
        "four heads do what two could, and no two of them do it",
        shared,
        {SPARE: NO, PAST: YES},
    ),
    Construction(
        "diagonal unit behind norms",
        "norms that divide by 1 on the task divide by another number at another start",
        normed,
        {START: NO, IDENTITY: NOT_ASKED},
    ),
    Construction(
        "layer that reads the second token",
        "with matrices that are not diagonal s_1 = lambda shows W from any place, as long as s_0 "
        "= 1",
        second_token,
        {DIAGONALS: NO, START: NO, PAST: OPEN, IDENTITY: OPEN},
    ),
    Construction(
        "diagonal unit with smooth positions",
        "for small angles weights that are spread over all tokens predict as well as the last "
        "token alone",
        smooth,
        {PAST: NO},
    ),
    Construction(
        "diagonal unit with ragged positions",
        "each row of P has large weights that do not show in predictions, and their means over "
        "rows do",
        ragged,
        {DIAGONALS: NO},
    ),
)

EXCEPTIONS: dict[tuple[str, str], str] = {}
