"""The extremes of Theorem 2: no noise, much noise, long prompts.

This is one part of the study `lipschitz`, which re-exports it. For much noise the window opens and
for long prompts it closes, as the slides say. Without noise it does not close at a finite n: the
slides' nearest neighbour is not the best estimator of the class.
"""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.lipschitz.classes import function_class, harmonic_energies
from icl_interp.theory.lipschitz.loss import Optimum, table_optimum, window_loss
from icl_interp.theory.lipschitz.rates import signal
from icl_interp.theory.lipschitz.table import loss_table
from icl_interp.theory.softmax import as_float64

__all__ = ["Noiseless", "noiseless_window", "noisy_window"]


class Noiseless(NamedTuple):
    """The best window without noise, and the narrowest one beside it."""

    optimum: Optimum  # at L = 1
    narrowest: Float[Tensor, ""]  # the narrowest window of the table, about the nearest neighbour
    ratio: Float[Tensor, ""]  # its loss over the least one
    ratio_error: Float[Tensor, ""]  # a standard error, of the narrowest window's loss alone


def noiseless_window(
    n: int, d: int, link: str = "relu", *, contexts: int | None = None, seed: int = 0
) -> Noiseless:
    """The best window for sigma = 0, the limit of L >> sigma: it is finite at every finite n.

    Several keys about a query tell its value better than the nearest one: a gap to one side is
    made up for by one to the other. So the slides' extreme "L >> sigma: pick the nearest
    neighbour, w_KQ -> inf" needs n to infinity as well: for n = 100 and d = 3 w* is about 27, and
    the nearest neighbour errs twice as much.

    Source: replaces Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A.
    Mokhtari, "Some extreme examples", second point.

    Args:
        n: labelled examples.
        d: coordinates of x.
        link: of the functions, see `function_class`.
        contexts: of the Monte Carlo, see `loss_table`.
        seed: of the Monte Carlo.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> found = noiseless_window(50, 3, contexts=400)
        >>> bool(found.optimum.high < 100), bool(found.ratio > 1.1)
        (True, True)
    """
    table = loss_table(n, d, function_class(link), contexts=contexts, seed=seed)
    best = table_optimum(table, 1.0, 0.0)
    narrowest = table.windows[-1]
    loss = window_loss(table, narrowest, 1.0, 0.0)
    return Noiseless(best, narrowest, loss.value / best.risk, loss.error / best.risk)


def noisy_window(
    lipschitz: float, noise: float, n: float, d: int, link: str = "relu"
) -> Float[Tensor, ""]:
    """e_1 n / sigma^2, which w* approaches as S = n L^2 / sigma^2 falls to 0.

    e_1 is the mean square of the linear part of f. For w to 0 the bias falls by 2 e_1 w / d and the
    noise rises by (sigma^2 / n) w^2 / d: so w* falls as S, faster than any exponent of Theorem 2.

    Source: replaces Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A.
    Mokhtari, "Some extreme examples", first point, by its rate.

    Args:
        lipschitz: L, positive.
        noise: sigma, positive.
        n: labelled examples, any positive number.
        d: coordinates of x.
        link: of the functions, see `function_class`.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> from icl_interp.theory.lipschitz import long_prompt_window
        >>> exact = long_prompt_window(1., 100., 100., d=3)
        >>> bool(abs(noisy_window(1., 100., 100., d=3) / exact - 1) < .01)
        True
    """
    signal(lipschitz, noise, n)
    linear = harmonic_energies(function_class(link, lipschitz), d, 1)[1]
    return as_float64(linear * n / noise**2)
