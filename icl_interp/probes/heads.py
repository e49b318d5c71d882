"""How alike the heads of a layer are: in what they write, and in their OV and QK maps."""

from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.base import Hook, Positions, Probe, at_places
from icl_interp.reductions import Gram
from icl_interp.results import Result, make_array, make_arrays

SHARE = 0.99
ROUNDING = 1e-13  # spread of what a head mixes, in units of its size, up to which it is a constant
ALL = "all"  # the position kind that pools every token
Bases = list[Tensor]  # one orthonormal basis a head, (d_model, k)


def frobenius_cosines(
    left: Float[Tensor, "head d_model d_head"], right: Float[Tensor, "head d_head d_model"]
) -> Float[Tensor, "head head"]:
    """cos(h, g) = <A_h, A_g> / (|A_h| |A_g|) for the maps A_h = left_h right_h, in the Frobenius inner product.

    The absolute value is the Frobenius overlap. Never forms a map: <L R, L' R'> = sum of (L^T L') * (R R'^T), which
    costs d_model d_head^2 instead of d_model^2 d_head. NaN for a map that is zero.

    >>> left = torch.eye(4).view(2, 2, 4).transpose(1, 2)  # two heads that read different coordinates
    >>> frobenius_cosines(left, left.transpose(1, 2)).round(decimals=6)
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    left, right = left.detach().double(), right.detach().double()
    inner = torch.einsum("hde,gdf->hgef", left, left) * torch.einsum("hed,gfd->hgef", right, right)
    return _cosines(inner.sum((-2, -1)))


def principal_angles(a: Float[Tensor, "d_model k"], b: Float[Tensor, "d_model m"]) -> Float[Tensor, " angle"]:
    """The min(k, m) angles between two subspaces, given by orthonormal columns, in radians, smallest first.

    Small angles come from sines and large ones from cosines, so that all are accurate to rounding.
    Source: Bjorck & Golub (1973), "Numerical methods for computing angles between linear subspaces".

    >>> principal_angles(torch.eye(3)[:, :2], torch.eye(3)[:, 1:])
    tensor([0.0000, 1.5708], dtype=torch.float64)
    """
    if a.shape[1] < b.shape[1]:
        a, b = b, a
    a, b = a.double(), b.double()
    inner = a.T @ b
    cosines = torch.linalg.svdvals(inner)
    sines = torch.linalg.svdvals(b - a @ inner).flip(0)[: len(cosines)]
    return torch.atan2(sines, cosines)


def map_orthogonality(model: HookedTransformer, share: float = SHARE, angles: bool = True) -> dict[str, DataArray]:
    """How alike heads of a layer are as maps: cosines and principal angles, from the weights alone.

    The OV map W_V W_O takes what a head reads to what it writes; the QK map W_Q W_K^T is the bilinear form of query
    and key (both as in `model.OV`, `model.QK`: a preceding norm's gain is not folded in). Subspaces are spanned by the
    fewest singular directions that hold `share` of a map's squared norm.

    Returns:
        ov_cosine, qk_cosine: `frobenius_cosines`, Matrix (layer, head, other).
        With `angles` also ov_read_angles, ov_write_angles, qk_query_angles, qk_key_angles: `principal_angles` in
        radians between what heads read from and write to, Matrix (layer, head, other, angle); NaN where a pair has
        fewer angles.

    Raises:
        InputError: a model without two heads in a layer.
    """
    if reason := _refusal(model):
        raise InputError(reason)
    cosines: dict[str, list[Tensor]] = {"ov_cosine": [], "qk_cosine": []}
    names = ("ov_read_angles", "ov_write_angles", "qk_query_angles", "qk_key_angles") if angles else ()
    between: dict[str, list[Tensor]] = {name: [] for name in names}
    for block in model.blocks:
        attn = block.attn
        for kind, left, right in (("ov", attn.W_V, attn.W_O), ("qk", attn.W_Q, attn.W_K.transpose(1, 2))):
            cosines[f"{kind}_cosine"].append(frobenius_cosines(left, right))
            subspaces = _map_subspaces(left, right, share) if angles else ()
            of_kind = [name for name in names if name.startswith(kind)]
            for name, bases in zip(of_kind, subspaces, strict=True):
                between[name].append(_all_angles(bases, attn.cfg.head_width))
    axes, note = _axes(model), _note(share)
    wide = {**axes, "angle": _numbers(model.cfg.head_width)}
    return {
        **make_arrays({name: torch.stack(v).cpu().numpy() for name, v in cosines.items()}, axes),
        **make_arrays(
            {name: torch.stack(v).cpu().numpy() for name, v in between.items()},
            wide,
            dict.fromkeys(between, "rad"),
            note,
        ),
    }


class HeadOrthogonality(Probe):
    """How alike the heads of a layer are: in what they write on these prompts, and as maps.

    With o_h the addition of head h to the stream (`hook_result`, without b_O) and o~ = o - E o, its deviation from the
    mean over prompts at that token position, so that what a head writes whatever the prompt does not count:

        cosine(h, g) = E <o~_h, o~_g> / sqrt(E |o~_h|^2  E |o~_g|^2)

    Both it and the subspaces follow from the covariance of `hook_z`, in which o_h = z_h W_O is linear, so nobody
    listens to `hook_result`. The subspace of a head is spanned by the fewest principal directions of o~_h that hold
    `share` of its variance.

    The position "all" pools the tokens of every kind.

    Args:
        share: of the variance that a head's subspace holds.
        angles: whether to compute angles between subspaces, which takes about a second for a hundred heads.

    Results:
        output_cosine: Matrix (layer, position, head, other); NaN for a head that writes a constant.
        output_angles: with `angles`, principal angles between these subspaces in radians, smallest first, Matrix
            (layer, position, head, other, angle); NaN where a pair has fewer angles.
        ov_cosine, qk_cosine: as `map_orthogonality` gives them; with `angles` also ov_read_angles, ov_write_angles,
            qk_query_angles, qk_key_angles.
    """

    name: ClassVar[str] = "head_orthogonality"

    def __init__(self, share: float = SHARE, angles: bool = True) -> None:
        if not 0 < share <= 1:
            raise InputError(f"share must lie in (0, 1], but got {share}")
        self.share, self.angles = share, angles

    def refusal(self, model: HookedTransformer) -> str | None:
        """Models without two heads in a layer."""
        return _refusal(model)

    def hooks(self, model: HookedTransformer, positions: Positions) -> list[Hook]:
        """One a layer, at the heads' mixtures of values."""
        self._model, self._positions = model, positions
        self._grams = [{kind: Gram() for kind in positions} for _ in range(model.cfg.n_layers)]
        return [(f"blocks.{layer}.attn.hook_z", partial(self._read, layer)) for layer in range(model.cfg.n_layers)]

    def _read(self, layer: int, z: Float[Tensor, "batch token head d_head"], hook: object) -> None:
        for kind, places in self._positions.items():
            self._grams[layer][kind].update(at_places(z, places).flatten(2))

    def covariances(self) -> list[dict[str | float, Float[Tensor, "head d_head head d_head"]]]:
        """For each layer and position kind, "all" among them, the covariance of the heads' mixtures of values."""
        cfg = self._model.cfg
        shape = (cfg.n_heads, cfg.head_width, cfg.n_heads, cfg.head_width)
        sizes = {kind: len(places) for kind, places in self._positions.items()}
        found: list[dict[str | float, Tensor]] = []
        for grams in self._grams:
            parts: dict[str | float, Tensor] = {kind: gram.covariance for kind, gram in grams.items()}
            pooled = torch.stack([parts[kind] * n for kind, n in sizes.items()]).sum(0) / sum(sizes.values())
            # The spread of a head that writes a constant is rounding, and has no direction.
            size = torch.stack([gram.mean.view(-1, *shape[:2]).square().sum(-1).amax(0) for gram in grams.values()])
            own = pooled.view(shape).diagonal(dim1=0, dim2=2).diagonal(dim1=0, dim2=1).sum(-1)
            varies = (own > ROUNDING**2 * size.amax(0)).to(pooled)[:, None].expand(shape[:2]).flatten()
            kept = varies[:, None] * varies
            found.append({kind: (part * kept).view(shape) for kind, part in {**parts, ALL: pooled}.items()})
        return found

    def results(self) -> dict[str, Result]:
        """Outputs and maps."""
        cfg = self._model.cfg
        cosines, angles = [], []
        for block, found in zip(self._model.blocks, self.covariances(), strict=True):
            write = block.attn.W_O.detach().double()
            pairs = torch.einsum("hed,gfd->hegf", write, write)
            for covariance in found.values():
                # E <o~_h, o~_g> = trace of E[z~_h z~_g^T] W_g W_h^T.
                cosines.append(_cosines((covariance * pairs).sum((1, 3))))
                if self.angles:
                    angles.append(_all_angles(_output_subspaces(covariance, write, self.share), cfg.head_width))
        layers, *heads = _axes(self._model).items()
        axes = dict([layers, ("position", (*self._positions, ALL)), *heads])
        shape = tuple(map(len, axes.values()))
        note = "over prompts and the positions of each kind, centred at each position"
        found = {"output_cosine": make_array(torch.stack(cosines).view(shape).cpu().numpy(), axes, note=note)}
        if self.angles:
            wide = {**axes, "angle": _numbers(cfg.head_width)}
            values = torch.stack(angles).view(*shape, -1).cpu().numpy()
            found["output_angles"] = make_array(values, wide, "rad", _note(self.share))
        return {**found, **map_orthogonality(self._model, self.share, self.angles)}


def _refusal(model: HookedTransformer) -> str | None:
    if model.cfg.mlp_only:
        return "this model has no attention heads"
    return "this model has one head a layer, and nothing to compare it with" if model.cfg.n_heads < 2 else None


def _cosines(inner: Float[Tensor, "head head"]) -> Float[Tensor, "head head"]:
    norms = inner.diagonal().clamp(min=0).sqrt()
    # One after the other: the product of two tiny norms is 0. What is no cosine comes of a spread that is rounding.
    cosines = inner / norms[:, None] / norms
    return cosines.where(cosines.abs() <= 1 + 1e-6, torch.nan)


def _map_subspaces(left: Tensor, right: Tensor, share: float) -> tuple[Bases, Bases]:
    """Input and output subspaces of every left_h right_h, by way of a matrix no larger than d_head."""
    q_in, r_in = torch.linalg.qr(left.detach().double())
    q_out, r_out = torch.linalg.qr(right.detach().double().transpose(1, 2))
    u, s, vh = torch.linalg.svd(r_in @ r_out.transpose(1, 2), full_matrices=False)
    kept = [_kept(values, share) for values in s]
    inputs = [basis[:, :k] for basis, k in zip(q_in @ u, kept, strict=True)]
    return inputs, [basis[:, :k] for basis, k in zip(q_out @ vh.transpose(1, 2), kept, strict=True)]


def _output_subspaces(
    covariance: Float[Tensor, "head d_head head d_head"], write: Float[Tensor, "head d_head d_model"], share: float
) -> Bases:
    """Principal directions of every head's output, from the covariance of the mixtures it comes from."""
    own = torch.stack([covariance[h, :, h] for h in range(len(write))])
    values, vectors = torch.linalg.eigh(own)
    # Its squared singular values are the variances of the output along its right singular vectors.
    root = values.clamp(min=0).sqrt()[..., None] * vectors.transpose(1, 2)
    _, s, vh = torch.linalg.svd(root @ write, full_matrices=False)
    return [v[: _kept(values, share)].T for values, v in zip(s, vh, strict=True)]


def _kept(singular_values: Float[Tensor, " k"], share: float) -> int:
    """How many leading singular values hold this share of the sum of squares; none if all are zero."""
    squares = singular_values.square()
    total = squares.cumsum(0)
    # What rounding leaves of a zero direction is none of the map's, also for a share of 1.
    real = squares > squares[0] * (len(squares) * torch.finfo(squares.dtype).eps) ** 2
    return int(min((total < share * total[-1]).sum() + 1, real.sum()))


def _all_angles(bases: Bases, n_angles: int) -> Float[Tensor, "head head angle"]:
    """Principal angles of every pair, filled up with NaN."""
    n = len(bases)
    angles = torch.full((n, n, n_angles), torch.nan, dtype=torch.float64, device=bases[0].device)
    for h in range(n):
        for g in range(h, n):
            between = principal_angles(bases[h], bases[g])
            angles[h, g, : len(between)] = angles[g, h, : len(between)] = between
    return angles


def _numbers(n: int) -> tuple[int, ...]:
    return tuple(range(1, n + 1))


def _axes(model: HookedTransformer) -> dict[str, tuple[int, ...]]:
    heads = tuple(range(model.cfg.n_heads))
    return {"layer": tuple(range(model.cfg.n_layers)), "head": heads, "other": heads}


def _note(share: float) -> str:
    return f"subspaces hold {share:g} of the squared norm; smallest angle first, NaN where a pair has fewer"
