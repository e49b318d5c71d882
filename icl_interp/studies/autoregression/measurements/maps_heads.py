"""How alike the heads of a layer are: the cosine between what they weigh by times that between what they write.

A head is the tensor of its two matrices: the bilinear form F_h of query and key, and the map G_h from a key's token to
the prediction. The cosine of two such tensors is that of the forms times that of the maps, in the Frobenius inner
product. Both are taken in the coordinates of tokens and predictions, so that another basis or width of the stream
leaves them as they are.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.maps import frobenius_cosines
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.autoregression.measurements.maps import needs_paths

NOW, FIRST_KEPT = "now", "the first that the run kept"
N_DRAWS = 500  # layers of heads drawn at random
Maps = Float[Tensor, "head row column"]


def needs_heads_of_a_layer(facts: Facts) -> str | None:
    """Why there are no heads of a single layer that read tokens as they are."""
    if reason := needs_paths(facts):
        return reason
    cfg = facts.config
    if cfg.n_layers != 1:
        return f"The claim is about one layer, whose heads read tokens and predict; this model has {cfg.n_layers}"
    if cfg.n_heads < 2:
        return "The claim is about two heads or more; this model has one"
    if cfg.normalization_type and cfg.norm_position == "pre":
        return (
            f"The claim is about heads that read tokens unchanged; here a norm ({cfg.normalization_type}) precedes them"
        )
    return None


def head_maps(model: HookedTransformer) -> tuple[Maps, Maps]:
    """F_h = W_E W_Q W_K^T W_E^T and G_h = W_E W_V W_O W_U of the first layer, without biases, positions and an MLP."""
    attn, embed, out = model.blocks[0].attn, model.embed.W_E.detach().double(), model.unembed.W_U.detach().double()
    query, key, value = (embed @ getattr(attn, f"W_{letter}").detach().double() for letter in "QKV")
    return query @ key.transpose(1, 2), value @ (attn.W_O.detach().double() @ out)


def cosines(forms: Maps, maps: Maps) -> Float[Tensor, " pair"]:
    """|cos| between the tensors of every two heads; NaN where a head is zero."""
    found = torch.ones(len(forms), len(forms), dtype=torch.float64)
    for each in (forms, maps):
        # As a product with the identity, which is how `frobenius_cosines` takes a map.
        eye = torch.eye(each.shape[2], dtype=torch.float64).expand(len(each), -1, -1)
        found = found * frobenius_cosines(each.cpu(), eye)
    first, second = torch.triu_indices(len(forms), len(forms), 1)
    return found[first, second].abs()


def random_maps(maps: Maps, n_draws: int, draw: torch.Generator) -> Float[Tensor, "draw head row column"]:
    """As many maps with the singular values of these, and random (Haar) singular vectors.

    Args:
        maps: of the heads.
        n_draws: how many times all are drawn.
        draw: of the draws.
    """
    values, sides = torch.linalg.svdvals(maps.cpu()), []
    for size in maps.shape[1:]:
        normal = torch.randn(n_draws, len(maps), size, size, generator=draw, dtype=torch.float64)
        factor = torch.linalg.qr(normal)
        signs = torch.where(factor.R.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).double()
        sides.append((factor.Q * signs[..., None, :])[..., : values.shape[1]])
    return (sides[0] * values[:, None]) @ sides[1].mT


def random_cosines(maps: Maps, n_draws: int, draw: torch.Generator) -> Float[Tensor, "draw pair"]:
    """cos between every two of as many `random_maps`; NaN where a head is zero."""
    drawn = random_maps(maps, n_draws, draw).flatten(2)
    size = maps.cpu().square().sum((1, 2)).sqrt()
    first, second = torch.triu_indices(len(maps), len(maps), 1)
    return (drawn @ drawn.mT / size[:, None] / size)[:, first, second]


@measurement("autoregression/likeness of heads")
def likeness(lab: Lab) -> DataArray:
    """|cos| between every two heads, of the model and of the first that its run kept: (when, pair); NaN where none is.

    NaN too for heads that write nothing.
    """
    now = cosines(*head_maps(lab.model))
    kept = lab.snapshots
    first = cosines(*head_maps(kept[min(kept)])) if kept else torch.full_like(now, torch.nan)
    n = lab.model.cfg.n_heads
    names = tuple(f"0.{a} ~ 0.{b}" for a in range(n) for b in range(a + 1, n))
    return make_array(torch.stack([now, first]).numpy(), {"when": (NOW, FIRST_KEPT), "pair": names})


@measurement("autoregression/likeness by chance")
def by_chance(lab: Lab) -> DataArray:
    """The mean |cos| of as many heads whose maps have the same singular values, and random directions: (draw)."""
    forms, maps = head_maps(lab.model)
    draw = generator(lab.seed, "autoregression/random heads")
    found = random_cosines(forms, N_DRAWS, draw) * random_cosines(maps, N_DRAWS, draw)
    return make_array(found.abs().nanmean(-1).numpy(), {"draw": tuple(range(N_DRAWS))})
