"""How alike the heads of a layer are as maps: their OV and QK maps, from the weights alone."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.errors import InputError
from icl_interp.models.hooked import HookedModel
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.base import with_weights
from icl_interp.probes.reading import Reading
from icl_interp.results import make_arrays

SHARE = 0.99
CENTRED = ("LN", "LNPre")  # norms that remove the mean over the stream
Bases = list[Tensor]  # one orthonormal basis a head, (d_model, k)


def written(model: HookedTransformer, layer: int) -> Float[Tensor, "head d_head d_model"]:
    """W_O of a layer's heads in float64, in so far as anything reads it.

    With `residual_scale` in it. Where a LayerNorm reads the stream, the mean over the stream's
    coordinates is removed; not where the read-out reads the stream itself.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2))
    >>> bool(written(model, 0).mean(-1).abs().max() < 1e-15)
    True
    """
    cfg = model.cfg
    write = _maps_of(model, layer)
    raw = cfg.norm_position == "pre" and not cfg.has_final_norm
    centred = cfg.normalization_type in CENTRED and not raw
    if not centred:
        return write
    return write - write.mean(-1, keepdim=True)


def _maps_of(model: HookedTransformer, layer: int) -> Float[Tensor, "head d_head d_model"]:
    """What a layer's heads write by, with `residual_scale` in it."""
    writing = model.blocks[layer].attn.writing[0]
    return writing.detach().double()


def read_as(
    model: HookedTransformer, layer: int, reading: Reading
) -> Float[Tensor, "head d_head d_model"]:
    """W_O of a layer's heads in float64, in coordinates with the inner product of `reading`."""
    write = _maps_of(model, layer)
    factor = reading.factors[layer].to(write)
    return write @ factor


def read_in(
    model: HookedTransformer, layer: int, name: str
) -> Float[Tensor, "head d_model d_head"]:
    """W_Q, W_K or W_V (`name`) in float64, with the gain of the norm before it folded in.

    Centred over the stream where that norm centres its input. Raw where norms come after their
    layer: their gains act on the stream itself, or on what the layer writes.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2))
    >>> x = torch.randn(5, 8).double()
    >>> normalized = x - x.mean(-1, keepdim=True)  # up to the scale
    >>> folded, raw = read_in(model, 0, "W_V")[1], model.W_V[0, 1].double()
    >>> torch.allclose(normalized @ folded, normalized @ raw)
    True
    """
    cfg = model.cfg
    block = model.blocks[layer]
    weights = getattr(block.attn, name).detach().double()
    if not cfg.sublayers_read_normed:
        return weights
    gain = getattr(block.ln1, "w", None)
    if gain is not None:
        gain = gain.detach().double()
        weights = gain[:, None] * weights
    if cfg.normalization_type not in CENTRED:
        return weights
    return weights - weights.mean(-2, keepdim=True)


def frobenius_cosines(
    left: Float[Tensor, "head d_model d_head"], right: Float[Tensor, "head d_head d_model"]
) -> Float[Tensor, "head head"]:
    """cos(h, g) = <A_h, A_g> / (|A_h| |A_g|) for the maps A_h = left_h right_h.

    <., .> is the Frobenius inner product.

    The absolute value is the Frobenius overlap. Never forms a map: <L R, L' R'> = sum of (L^T
    L') * (R R'^T), which costs d_model d_head^2 instead of d_model^2 d_head. NaN for a map that is
    zero.

    >>> left = torch.eye(4).view(2, 2, 4).transpose(1, 2)  # heads read different coordinates
    >>> frobenius_cosines(left, left.transpose(1, 2)).round(decimals=6)
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    left = left.detach().double()
    right = right.detach().double()
    of_left = torch.einsum("hde,gdf->hgef", left, left)
    of_right = torch.einsum("hed,gfd->hgef", right, right)
    inner = (of_left * of_right).sum((-2, -1))
    return cosines_of(inner)


def principal_angles(
    a: Float[Tensor, "d_model k"], b: Float[Tensor, "d_model m"]
) -> Float[Tensor, " angle"]:
    """The min(k, m) angles between two subspaces, in radians, smallest first.

    The subspaces are given by orthonormal columns.

    Small angles come from sines and large ones from cosines, so that all are accurate to rounding.
    Source: Bjorck & Golub (1973), "Numerical methods for computing angles between linear
    subspaces".

    >>> principal_angles(torch.eye(3)[:, :2], torch.eye(3)[:, 1:])
    tensor([0.0000, 1.5708], dtype=torch.float64)
    """
    # The larger subspace is `a`: sines are of what the smaller one has outside it.
    if a.shape[1] < b.shape[1]:
        a, b = b, a
    a = a.double()
    b = b.double()
    inner = a.T @ b
    outside = b - a @ inner
    cosines = torch.linalg.svdvals(inner)
    sines = torch.linalg.svdvals(outside).flip(0)
    return torch.atan2(sines[: len(cosines)], cosines)


def map_orthogonality(
    model: HookedModel, share: float = SHARE, angles: bool = True, reading: Reading | None = None
) -> dict[str, DataArray]:
    """How alike heads of a layer are as maps: cosines and principal angles, from the weights alone.

    The OV map W_V W_O takes what a head reads to what it writes. The QK map W_Q W_K^T is the
    bilinear form of query and key. Both are made of `read_in` and `written`, which fold in gains of
    norms and leave out what a LayerNorm removes. So the maps stay as they are when weights change
    and no output does. (`model.OV` and `model.QK` are the bare products.) With a `reading`, what a
    head writes is taken as it is read (`read_as`).

    Angles are those between subspaces. A subspace is spanned by the fewest singular directions that
    hold `share` of a map's squared norm.

    Returns:
        ov_cosine, qk_cosine: `frobenius_cosines`, Matrix (layer, head, other).
        With `angles` also ov_read_angles, ov_write_angles, qk_query_angles, qk_key_angles:
        `principal_angles` in radians between what heads read from and write to, Matrix (layer,
        head, other, angle); NaN where a pair has fewer angles.

    Raises:
        InputError: a model without two heads in a layer, or an adapted module.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2))
    >>> before = map_orthogonality(model)
    >>> attn, gain = model.blocks[0].attn, torch.linspace(1, 2, 8)
    >>> with torch.no_grad():  # gains move from the weights that read into the norm before them
    ...     _ = model.blocks[0].ln1.w.copy_(gain)
    ...     for weight in (attn.W_Q, attn.W_K, attn.W_V):
    ...         _ = weight.div_(gain[:, None])
    >>> change = map_orthogonality(model)["ov_cosine"] - before["ov_cosine"]
    >>> bool(abs(change).max() < 1e-6)  # weights are float32
    True
    """
    model = with_weights(model, "probes.map_orthogonality")
    reason = refusal(model)
    if reason:
        raise InputError(reason)
    cosines: dict[str, list[Tensor]] = {"ov_cosine": [], "qk_cosine": []}
    between: dict[str, list[Tensor]] = {}
    for layer in range(model.cfg.n_layers):
        query = read_in(model, layer, "W_Q")
        key = read_in(model, layer, "W_K").transpose(1, 2)
        value = read_in(model, layer, "W_V")
        write = written(model, layer) if reading is None else read_as(model, layer, reading)
        cosines["ov_cosine"].append(frobenius_cosines(value, write))
        cosines["qk_cosine"].append(frobenius_cosines(query, key))
        if not angles:
            continue
        # Each map has two subspaces: what heads read from and what they write to.
        read, written_to = _map_subspaces(value, write, share)
        of_query, of_key = _map_subspaces(query, key, share)
        subspaces = {
            "ov_read_angles": read,
            "ov_write_angles": written_to,
            "qk_query_angles": of_query,
            "qk_key_angles": of_key,
        }
        for name, bases in subspaces.items():
            of_layer = all_angles(bases, model.cfg.head_width)
            between.setdefault(name, []).append(of_layer)
    axes = axes_of(model)
    wide = {**axes, "angle": numbers(model.cfg.head_width)}
    units = dict.fromkeys(between, "rad")
    results = make_arrays(_stacked(cosines), axes)
    return results | make_arrays(_stacked(between), wide, units, note_on(share))


def _stacked(of_layers: dict[str, list[Tensor]]) -> dict[str, np.ndarray]:
    """Quantities of all layers, each as one array (layer, ...)."""
    return {name: torch.stack(layers).cpu().numpy() for name, layers in of_layers.items()}


def refusal(model: HookedTransformer) -> str | None:
    """Why there are no two heads to compare."""
    if model.cfg.mlp_only:
        return "this model has no attention heads"
    if model.cfg.n_heads < 2:
        return "this model has one head a layer, and nothing to compare it with"
    return None


def cosines_of(inner: Float[Tensor, "head head"]) -> Float[Tensor, "head head"]:
    """Inner products as cosines; NaN where one of the two is nothing but rounding."""
    norms = inner.diagonal().clamp(min=0).sqrt()
    # One after the other: the product of two tiny norms is 0. What is no cosine comes of a spread
    # that is rounding.
    cosines = inner / norms[:, None] / norms
    return cosines.where(cosines.abs() <= 1 + 1e-6, torch.nan)


def _map_subspaces(left: Tensor, right: Tensor, share: float) -> tuple[Bases, Bases]:
    """Input and output subspaces of every left_h right_h, from a matrix no larger than d_head."""
    q_in, r_in = torch.linalg.qr(left.detach().double())
    q_out, r_out = torch.linalg.qr(right.detach().double().transpose(1, 2))
    u, s, vh = torch.linalg.svd(r_in @ r_out.transpose(1, 2), full_matrices=False)
    read = q_in @ u
    written_to = q_out @ vh.transpose(1, 2)
    inputs = []
    outputs = []
    for head, values in enumerate(s):
        k = n_leading(values, share)
        inputs.append(read[head, :, :k])
        outputs.append(written_to[head, :, :k])
    return inputs, outputs


def n_leading(singular_values: Float[Tensor, " k"], share: float) -> int:
    """The number of leading singular values that hold this share of the sum of squares.

    It is 0 if all are 0.
    """
    squares = singular_values.square()
    total = squares.cumsum(0)
    # What rounding leaves of a zero direction is none of the map's, also for a share of 1.
    rounding = len(squares) * torch.finfo(squares.dtype).eps
    n_real = (squares > squares[0] * rounding**2).sum()
    n_needed = (total < share * total[-1]).sum() + 1
    return int(min(n_needed, n_real))


def all_angles(bases: Bases, n_angles: int) -> Float[Tensor, "head head angle"]:
    """Principal angles of every pair, filled up with NaN."""
    n = len(bases)
    shape = (n, n, n_angles)
    angles = torch.full(shape, torch.nan, dtype=torch.float64, device=bases[0].device)
    for h in range(n):
        for g in range(h, n):
            between = principal_angles(bases[h], bases[g])
            k = len(between)
            angles[h, g, :k] = between
            angles[g, h, :k] = between
    return angles


def numbers(n: int) -> tuple[int, ...]:
    """1 to n."""
    return tuple(range(1, n + 1))


def axes_of(model: HookedTransformer) -> dict[str, tuple[int, ...]]:
    """The axes of every result: a head beside every other of its layer."""
    heads = tuple(range(model.cfg.n_heads))
    layers = tuple(range(model.cfg.n_layers))
    return {"layer": layers, "head": heads, "other": heads}


def note_on(share: float) -> str:
    """What is said of angles."""
    return (
        f"subspaces hold {share:g} of the squared norm; smallest angle first, NaN where a pair has "
        "fewer"
    )
