"""Dials of `autoregression`, each for the power curve of a claim.

A dial takes hand-built models across the threshold of the claim.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.checkpoints import store
from icl_interp.experiments.calibration import Case
from icl_interp.experiments.power import Dial
from icl_interp.prompts import Prompts
from icl_interp.studies.autoregression.constructions import maps, units
from icl_interp.tasks.autoregressive import AutoregressiveProcess
from icl_interp.theory import autoregression as theory


def _two_tokens(ratio: float, g: torch.Generator) -> Case:
    """Proposition 6 with p_{T-1} = this ratio times p_T."""
    d = 2 * int(torch.randint(1, 3, (), generator=g))
    return units.at_ratio(g, d, ratio)


def _shared(share: float, g: torch.Generator) -> Case:
    """The unitary minimiser, of which a second set of heads does a share."""
    A, B = units.mixed(g, torch.eye(2, dtype=torch.float64))
    twice = torch.cat([A, A])
    parts = torch.cat([(1 - share) * B, share * B])
    P = units.on_last(1.0)
    return units.case_of(g, "unitary", twice, parts, P)


def _alike(size: float, g: torch.Generator) -> Case:
    """Proposition 3 with A = I + a number in every entry."""
    task = AutoregressiveProcess(n_dims=3, matrices="unitary", n_points=8)
    mixing = torch.eye(3, dtype=torch.float64) + size
    minimum = theory.unitary_minimiser(3, 8, scale=1.0)
    model = maps.unit(minimum, mixing)
    return Case(model, task)


def _own(share: float, g: torch.Generator) -> Case:
    """Tiled states: A from entries of one size (0) to the identity (1)."""
    identity = torch.eye(3, dtype=torch.complex128)
    mixing = (1 - share) * maps.fourier() + share * identity
    return maps.tiled(g, mixing)


def _towards_a_step(share: float, g: torch.Generator) -> Case:
    """A share of what two layers that take a gradient step say, and least squares for the rest."""
    case = maps.one_step(g)

    def predict(prompts: Prompts) -> Float[Tensor, "batch point target"]:
        said = store.predict(case.model, case.reads(), prompts)
        squares = maps.least_squares(prompts)
        return share * said + (1 - share) * squares

    return replace(case, predictor=predict)


def _of_least_squares(share: float, g: torch.Generator) -> Case:
    """This share of what least squares says."""
    return maps.short_of_steps(g, share, share)


def _ragged(size: float, g: torch.Generator) -> Case:
    """Rows of P with weights of this size that do not show."""
    return units.ragged(g, size)


DIALS: tuple[Dial, ...] = (
    Dial(
        "share of a gradient step in the prediction",
        maps.MAP,
        "the rest of the prediction is that of least squares",
        _towards_a_step,
        (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0),
    ),
    Dial(
        "share of what least squares says",
        maps.DEPTH,
        "five layers that say this share of it: four gradient steps miss a few hundredths of the "
        "variance",
        _of_least_squares,
        (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0),
    ),
    Dial(
        "weight of the token before the last, over that of the last",
        units.IDENTITY,
        "the loss is 0 for every ratio, and A B^T has entries off its diagonal unless it is -1/2 "
        "or 0",
        _two_tokens,
        (2.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.0),
    ),
    Dial(
        "size of weights of positions that do not show",
        units.DIAGONALS,
        "each row of P has weights of this size in directions that leave predictions as they are",
        _ragged,
        (10.0, 3.0, 1.0, 0.7, 0.5, 0.3, 0.1, 0.03, 0.0),
    ),
    Dial(
        "share of the work that spare heads do",
        units.SPARE,
        "two sets of heads do what one could",
        _shared,
        (0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.03, 0.0),
    ),
    Dial(
        "weight that all heads have in common",
        maps.ORTHOGONAL,
        "a_h = e_h plus this number in every entry, where the prediction is the same",
        _alike,
        (6.0, 3.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.0),
    ),
    Dial(
        "share of a head's own coordinate in its weights",
        maps.SPECIALISE,
        "tiled states, and heads that attend to all coordinates alike (0) or to one each (1)",
        _own,
        (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0),
    ),
)
