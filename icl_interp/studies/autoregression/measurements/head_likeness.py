"""How alike the heads of a layer are, as cosines between heads.

A cosine is that between what two heads weigh by times that between what they write.

A head is the tensor of its two matrices: the bilinear form F_h of query and key, and the map G_h
from a key's token to the prediction. The cosine of two such tensors is that of the forms times that
of the maps, in the Frobenius inner product. Both are taken in coordinates of what tokens and
targets hold (`Span`): numbers of the weights that no prompt meets say nothing, and copies of a
state count once. Another basis or width of the stream leaves them as they are.

Heads with one pattern are one head, which writes the sum of what they write; heads that write
nothing are none.
"""

import itertools
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import one_pattern
from icl_interp.probes.maps import frobenius_cosines
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.autoregression.measurements import parts
from icl_interp.studies.autoregression.measurements.maps import needs_paths

NOW = "now"
FIRST_KEPT = "the first that the run kept"
N_DRAWS = 500  # layers of heads drawn at random
HOLDS = 1e-9  # of the largest mean square: directions of tokens and targets below are never met
NULL = 1e-6  # of the largest head: what writes less writes nothing
Maps = Float[Tensor, "head row column"]


class Heads(NamedTuple):
    """Different heads of a layer.

    Attributes:
        forms: F_h, `(head, query coordinate, key coordinate)`.
        maps: G_h, `(head, key coordinate, target coordinate)`.
        first: the head that each is, the first one where several are one.
    """

    forms: Maps
    maps: Maps
    first: tuple[int, ...]


class Span(NamedTuple):
    """What tokens and targets hold.

    Attributes:
        tokens: C^(1/2) in the basis of the eigenvectors of C, the mean of x x^T over tokens:
            `(d_in, direction)`.
        targets: the eigenvectors of targets, without their sizes: `(d_out, direction)`.
    """

    tokens: Float[Tensor, "d_in direction"]
    targets: Float[Tensor, "d_out direction"]

    @classmethod
    def of(cls, lab: Lab) -> "Span":
        """From two prompts of each unit."""
        seen = lab.tokens(lab.few).cpu()
        sizes, tokens = _held(seen)
        _, targets = _held(lab.few.ys)
        return cls(tokens * sizes.sqrt(), targets)


def _held(rows: Float[Tensor, "batch token number"]) -> tuple[Tensor, Tensor]:
    """Mean squares along the directions that rows have, and these directions as columns."""
    flat = rows.double().flatten(0, 1)
    squares = flat.T @ flat / len(flat)
    sizes, directions = torch.linalg.eigh(squares)
    there = sizes > HOLDS * sizes.max()
    return sizes[there], directions[:, there]


def needs_heads_of_a_layer(facts: Facts) -> str | None:
    """Why there are no heads of a single layer that read tokens as they are."""
    if reason := needs_paths(facts):
        return reason
    cfg = facts.config
    if cfg.n_layers != 1:
        return (
            "The claim is about one layer, whose heads read tokens and predict; this model has "
            f"{cfg.n_layers}"
        )
    if cfg.n_heads < 2:
        return "The claim is about two heads or more; this model has one"
    if cfg.positional_embedding_type == "rotary":
        return (
            "The claim is about heads that weight two tokens alike at all positions; here queries "
            "and keys are rotated by their positions (rotary)"
        )
    if cfg.norm_position == "output":
        return (
            "The claim is about heads whose outputs are added to the prediction; here a norm "
            f"({cfg.normalization_type}) acts on their sum"
        )
    if cfg.sublayers_read_normed:
        return (
            "The claim is about heads that read tokens unchanged; here a norm "
            f"({cfg.normalization_type}) precedes them"
        )
    return None


def head_maps(model: HookedTransformer) -> tuple[Maps, Maps]:
    """F_h = W_E W_Q W_K^T W_E^T and G_h = W_E W_V W_O W_U of the first layer.

    They leave out biases, positions and an MLP.
    """
    attn = model.blocks[0].attn
    embed = model.embed.W_E.detach().double()
    out = model.unembed.W_U.detach().double()
    w_q = attn.W_Q.detach().double()
    w_k = attn.W_K.detach().double()
    w_v = attn.W_V.detach().double()
    query = embed @ w_q
    key = embed @ w_k
    value = embed @ w_v
    written = attn.writing[0].detach().double() @ out
    forms = query @ key.transpose(1, 2)
    maps = value @ written
    return forms.cpu(), maps.cpu()


def different_heads(
    model: HookedTransformer, patterns: parts.Pattern, span: Span | None = None
) -> Heads:
    """The heads of a layer, each different one once, and without those that write nothing.

    Args:
        model: its first layer is meant.
        patterns: of its heads on some prompts: those with one pattern are one head.
        span: what tokens and targets hold; None for matrices in the coordinates of tokens and
            targets themselves.
    """
    forms, maps = head_maps(model)
    if span is not None:
        forms = span.tokens.T @ forms @ span.tokens
        maps = span.tokens.T @ maps @ span.targets
    rows = patterns.transpose(0, 1).flatten(1)
    scaled = parts.proportional(model.cfg)
    whole = _sizes(forms, maps).max()
    alike, maps = one_pattern.summed(rows, maps, scaled)
    first = [group[0] for group in alike]
    forms = forms[first]
    if scaled:  # what heads weigh by is linear then: with one map they weigh by a sum
        alike, forms = one_pattern.summed(maps.flatten(1), forms, scaled)
        chosen = [group[0] for group in alike]
        first = [first[one] for one in chosen]
        maps = maps[chosen]
    # What is left of a sum that takes itself off is rounding of its parts.
    least = NULL * whole
    writes = _sizes(forms, maps) > least
    kept = torch.tensor(first)[writes.cpu()]
    return Heads(forms[writes], maps[writes], tuple(kept.tolist()))


def _sizes(forms: Maps, maps: Maps) -> Float[Tensor, " head"]:
    """|F_h| |G_h| of each head."""
    of_forms = forms.norm(dim=(1, 2))
    of_maps = maps.norm(dim=(1, 2))
    return of_forms * of_maps


def cosines(forms: Maps, maps: Maps) -> Float[Tensor, " pair"]:
    """|cos| between the tensors of every two heads; NaN where a head is zero."""
    n = len(forms)
    found = torch.ones(n, n, dtype=torch.float64)
    for each in (forms, maps):
        # As a product with the identity, which is how `frobenius_cosines` takes a map.
        width = each.shape[2]
        eye = torch.eye(width, dtype=torch.float64)
        identity = eye.expand(n, -1, -1)
        found = found * frobenius_cosines(each.cpu(), identity)
    first, second = torch.triu_indices(n, n, 1)
    of_pairs = found[first, second]
    return of_pairs.abs()


def random_maps(
    maps: Maps, n_draws: int, draw: torch.Generator
) -> Float[Tensor, "draw head row column"]:
    """As many maps with the singular values of these, and random (Haar) singular vectors.

    Args:
        maps: of the heads.
        n_draws: how many times all are drawn.
        draw: of the draws.
    """
    values = torch.linalg.svdvals(maps.cpu())
    n_values = values.shape[1]
    sides = []
    for size in maps.shape[1:]:
        shape = (n_draws, len(maps), size, size)
        normal = torch.randn(shape, generator=draw, dtype=torch.float64)
        factor = torch.linalg.qr(normal)
        # Q is uniform where R has a positive diagonal.
        diagonal = factor.R.diagonal(dim1=-2, dim2=-1)
        signs = torch.where(diagonal < 0, -1.0, 1.0).double()
        vectors = factor.Q * signs[..., None, :]
        sides.append(vectors[..., :n_values])
    left, right = sides
    return (left * values[:, None]) @ right.mT


def random_cosines(maps: Maps, n_draws: int, draw: torch.Generator) -> Float[Tensor, "draw pair"]:
    """cos between every two of as many `random_maps`; NaN where a head is zero."""
    drawn = random_maps(maps, n_draws, draw).flatten(2)
    size = maps.cpu().square().sum((1, 2)).sqrt()
    cosine = drawn @ drawn.mT / size[:, None] / size
    n = len(maps)
    first, second = torch.triu_indices(n, n, 1)
    return cosine[:, first, second]


@measurement("autoregression/likeness of heads", version=2)
def likeness(lab: Lab) -> DataArray:
    """|cos| between every two heads, of the model and of the first that its run kept: (when, pair).

    NaN where there is no such model, for heads that write nothing, and for those that count with
    another one.
    """
    span = Span.of(lab)
    n = lab.model.cfg.n_heads
    kept = lab.snapshots
    first = kept[min(kept)].double() if kept else None
    found = [_likeness(lab, model, span) for model in (lab.model, first)]
    pairs = itertools.combinations(range(n), 2)
    names = tuple(f"0.{a} ~ 0.{b}" for a, b in pairs)
    values = torch.stack(found).numpy()
    return make_array(values, {"when": (NOW, FIRST_KEPT), "pair": names})


def _likeness(lab: Lab, model: HookedTransformer | None, span: Span) -> Float[Tensor, " pair"]:
    n = lab.model.cfg.n_heads
    table = torch.full((n, n), torch.nan, dtype=torch.float64)
    if model is not None:
        patterns = parts.patterns(lab, 0, model)
        heads = different_heads(model, patterns, span)
        n_different = len(heads.first)
        rows, columns = torch.triu_indices(n_different, n_different, 1)
        at = torch.tensor(heads.first, dtype=torch.long)
        table[at[rows], at[columns]] = cosines(heads.forms, heads.maps)
    first, second = torch.triu_indices(n, n, 1)
    return table[first, second]


@measurement("autoregression/likeness by chance", version=2)
def by_chance(lab: Lab) -> DataArray:
    """The mean |cos| of as many random heads: (draw).

    Their maps have the same singular values and random directions.
    """
    patterns = parts.patterns(lab, 0)
    heads = different_heads(lab.model, patterns, Span.of(lab))
    draw = generator(lab.seed, "autoregression/random heads")
    if len(heads.first) < 2:
        found = torch.full((N_DRAWS, 1), torch.nan, dtype=torch.float64)
    else:
        of_forms = random_cosines(heads.forms, N_DRAWS, draw)
        of_maps = random_cosines(heads.maps, N_DRAWS, draw)
        found = of_forms * of_maps
    means = found.abs().nanmean(-1)
    return make_array(means.numpy(), {"draw": tuple(range(N_DRAWS))})
