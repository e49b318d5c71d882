"""Edits of targets: values of functions in other units, and a model that answers in these.

The function that the model computes changes with the task, so that what it makes of a function
stays. Where its weights can take that up, its tokens show the new values; else the encoding shows
it the old ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from icl_interp.errors import InputError
from icl_interp.models.folding import Weights
from icl_interp.models.rescaled import RescaledValues
from icl_interp.models.tokens import Encoding, Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.tasks.base import Task
from icl_interp.tasks.rescaled import Rescaled
from icl_interp.testing.reparameterisations.base import Aspect, Family, freed, made, weights_of


class Posed(NamedTuple):
    """A model with the prompts that it is asked, and how it reads them."""

    model: HookedTransformer
    task: Task
    encoding: Encoding


class Units(NamedTuple):
    """What becomes of a value y: scale y + shift."""

    scale: float
    shift: float


@dataclass(frozen=True)
class TargetEdit:
    """Other units of values, for the task and for a model of it.

    Attributes:
        name: what is done, in a few words.
        refusal: why a model that is posed so cannot answer in other units this way; None where it
            can.
        show: edits a copy of the weights in place, so that tokens in the new units are read as
            those in the old were; returns the encoding that shows them.
        scales: whether values are multiplied by a number. shifts: whether a number is added.
        may_change: what a claim may be about whose verdict need not stay.
    """

    family: ClassVar[Family] = "targets"

    name: str
    refusal: Callable[[Posed], str | None]
    show: Callable[[Weights, Posed, Units], Encoding]
    scales: bool
    shifts: bool
    may_change: tuple[Aspect, ...] = ("zero reference", "kind of task")

    def applies(self, posed: Posed) -> str | None:
        """Why it does not apply to a model that is posed so; None where it does."""
        if type(posed.model) is not HookedTransformer:
            return (
                "what a class of its own adds to predictions need not be in the units of its "
                "read-out"
            )
        if posed.task.autoregressive or not posed.encoding.shows_values:
            return "values are the next inputs, so they have no units of their own"
        return self.refusal(posed)

    def apply(self, posed: Posed, generator: torch.Generator) -> Posed:
        """The task in other units, drawn at random, with a model and an encoding of it.

        Values become two to four times as large, and are shifted by two to four times their
        standard deviation, up or down.

        Raises:
            InputError: the edit does not apply; the message says why.
        """
        if reason := self.applies(posed):
            raise InputError(f"the edit {self.name!r} does not apply to this model: {reason}")
        a, b, sign = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        spread = float(posed.task.sample(64, generator, dtype=torch.float64).ys.std())
        scale = 2 + 2 * a
        shift = (2 + 2 * b) * spread * (1 if sign < 0.5 else -1)
        return self.in_units(
            posed, Units(scale if self.scales else 1.0, shift if self.shifts else 0.0)
        )

    def in_units(self, posed: Posed, units: Units) -> Posed:
        """The task in these units, with a model and an encoding of it."""
        weights = weights_of(posed.model)
        weights["unembed.W_U"] *= units.scale
        weights["unembed.b_U"] = units.scale * weights["unembed.b_U"] + units.shift
        encoding = self.show(weights, posed, units)
        return Posed(
            made(weights, freed(posed.model.cfg)), Rescaled.of(posed.task, *units), encoding
        )


def _cannot_shift(posed: Posed) -> str | None:
    cfg = posed.model.cfg
    if not isinstance(posed.encoding, Interleaved):
        return (
            "no position of its own shows a value, so that no position's vector can take up a shift"
        )
    if cfg.positional_embedding_type != "standard":
        return "it has no vectors of positions that could take up a shift"
    return (
        None if cfg.embed_bound is None else "the length of what a token is read in as is bounded"
    )


def _by_positions(weights: Weights, posed: Posed, units: Units) -> Encoding:
    """Undo a shift c of values by positions.

    A shift adds c times the first rows of W_E to the stream where a token shows y; W_pos subtracts
    this there.
    """
    weights["pos_embed.W_pos"][1::2] -= units.shift * weights["embed.W_E"][
        : posed.task.n_targets
    ].sum(0)
    return posed.encoding


def _cannot_scale(posed: Posed) -> str | None:
    if isinstance(posed.encoding, Stacked):
        return None
    return "values and inputs are read in by the same rows of W_E"


def _by_read_in(weights: Weights, posed: Posed, units: Units) -> Encoding:
    """Rows of W_E that read values are divided by the scale.

    The query's label is 0 in all units.
    """
    weights["embed.W_E"][posed.task.dim :] /= units.scale
    return posed.encoding


def _always(posed: Posed) -> None:
    """It applies to every model that is shown values."""


def _by_encoding(weights: Weights, posed: Posed, units: Units) -> Encoding:
    return RescaledValues(posed.encoding, *units)


SHIFTED = TargetEdit(
    "targets shifted, W_pos changed", _cannot_shift, _by_positions, scales=False, shifts=True
)
SCALED = TargetEdit(
    "targets scaled, W_E changed", _cannot_scale, _by_read_in, scales=True, shifts=False
)
RESCALED = TargetEdit("targets scaled and shifted", _always, _by_encoding, scales=True, shifts=True)
TARGET_EDITS = (SHIFTED, SCALED, RESCALED)
