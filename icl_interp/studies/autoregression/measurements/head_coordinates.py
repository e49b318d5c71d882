"""Which coordinates of tokens each head weighs: whether heads divide these among themselves.

A head weighs a key y by x^T F y, x being the query's state. The part of |F|^2 in the row and the
column of a coordinate is the head's attention to it. Over all heads of a layer these parts, with
each head counted once, are a table of numbers that add up to 1; the mutual information of head and
coordinate in it is 0 where all heads attend alike, and log min(heads, coordinates) where they
divide the coordinates among themselves.

Copies of a state are alike, so that F matters by the sum over copies alone (`folded`): how a head
spreads its weight over copies shows in no prediction. Heads with one pattern are one head, and
heads that write nothing are none.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.autoregression.measurements.head_likeness import (
    N_DRAWS,
    Heads,
    different_heads,
    needs_heads_of_a_layer,
    random_maps,
)
from icl_interp.studies.autoregression.measurements.parts import patterns
from icl_interp.studies.autoregression.measurements.unit import process_in, process_of

Forms = Float[Tensor, "*draw head row column"]
TILED = "of tokens"
FOLDED = "of states, copies added up"
ROUNDING = 1e-12  # of a mutual information in float64: what is below is 0


def needs_tiled_heads(facts: Facts) -> str | None:
    """Why there are no heads that read states which stand in a token more than once."""
    if reason := needs_heads_of_a_layer(facts):
        return reason
    if process_in(facts).tiles < 2:
        return (
            "The claim is about states that stand in each token twice or more (tiles); here they "
            "stand in it once"
        )
    if facts.encoding != "states":
        return f"The claim is about plain states, a token each; this model's are {facts.encoding}"
    return None


def attention_to(forms: Forms) -> Float[Tensor, "*draw head coordinate"]:
    """The part of each coordinate in |F_h|^2: half of it from rows, half from columns.

    It is NaN for a head that is 0.
    """
    squares = forms.square()
    rows = squares.sum(-1)
    columns = squares.sum(-2)
    parts = (rows + columns) / 2
    return parts / parts.sum(-1, keepdim=True)


def divided(parts: Float[Tensor, "*draw head coordinate"]) -> Float[Tensor, "*draw"]:
    """Mutual information of head and coordinate, over the most that there can be.

    It is 0 for heads that attend alike (up to `ROUNDING`), and 1 for heads that divide coordinates.

    >>> divided(torch.eye(2)), divided(torch.full((2, 2), 0.5))
    (tensor(1.), tensor(0.))
    """
    n_heads, n_coordinates = parts.shape[-2:]
    mean = parts.mean(-2, keepdim=True)
    ratio = torch.where(parts > 0, parts / mean, 1.0)
    information = (parts * ratio.log()).sum(-1).mean(-1)
    most = math.log(min(n_heads, n_coordinates))
    found = information / most
    # Heads that attend alike leave a rest of rounding; so do random heads of equal singular
    # values, and the ratio of two such rests would be any number.
    return torch.where(found <= ROUNDING, 0.0, found)


def folded(forms: Forms, tiles: int) -> Float[Tensor, "*draw head coordinate coordinate"]:
    """The forms as functions of one copy of the state.

    The predictions are the same, since all copies are alike.
    """
    shape = (tiles, forms.shape[-1] // tiles)
    columns = forms.unflatten(-1, shape)
    both = columns.unflatten(-3, shape)
    return both.sum((-4, -2))


def different(lab: Lab) -> Heads:
    """The lab's different heads, in the coordinates of tokens."""
    seen = patterns(lab, 0)
    return different_heads(lab.model, seen)


@measurement("autoregression/coordinates", version=2)
def coordinates(lab: Lab) -> DataArray:
    """`attention_to` of each different head: (head, coordinate of states, copies added up)."""
    heads = different(lab)
    tiles = process_of(lab).tiles
    forms = folded(heads.forms, tiles)
    parts = attention_to(forms)
    names = tuple(f"0.{h}" for h in heads.first)
    places = tuple(range(parts.shape[1]))
    axes = {"head": names, "coordinate": places}
    return make_array(parts.numpy(), axes)


@measurement("autoregression/divided coordinates", version=2)
def division(lab: Lab) -> DataArray:
    """`divided` of the model and of random heads: (coordinates, draw).

    The forms of random heads have the same singular values.

    The first "draw", -1, is the model itself.
    """
    tiled = different(lab).forms
    of_states = folded(tiled, process_of(lab).tiles)
    rows = []
    for name, own in ((FOLDED, of_states), (TILED, tiled)):
        draw = generator(lab.seed, f"autoregression/random coordinates {name}")
        if len(own) < 2:
            found = torch.full((1 + N_DRAWS,), torch.nan, dtype=torch.float64)
        else:
            drawn = random_maps(own, N_DRAWS, draw)
            forms = torch.cat([own[None], drawn])
            found = divided(attention_to(forms))
        rows.append(found)
    axes = {"coordinates": (FOLDED, TILED), "draw": tuple(range(-1, N_DRAWS))}
    return make_array(torch.stack(rows).numpy(), axes)
