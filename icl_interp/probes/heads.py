"""How alike the heads of a layer are in what they write, and how alike chance would make them."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.hooks import edited
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import maps
from icl_interp.probes.base import Hook, Positions, Probe, at_places
from icl_interp.probes.reading import Reading
from icl_interp.reductions import Gram, Rows
from icl_interp.results import Result, make_array

ROUNDING = 1e-13  # spread of what a head mixes, in units of its size, up to which it is a constant
ALL = "all"  # the position kind that pools every token
Kind = str | float  # of a position


# |cosine| of two heads' outputs from which they are one head, which writes their sum
PARALLEL = 0.99
# Size of what a head writes, over that of the largest of its layer, up to which it writes nothing.
NOTHING = 1e-3
NO_HEAD = -1  # in place of the number of a head: this one writes nothing


class HeadOrthogonality(Probe):
    """How alike the heads of a layer are: in what they write on these prompts, and as maps.

    With o_h the addition of head h to the stream (`hook_result`, without b_O) as it is read, and
    o~ = o - E o, its deviation from the mean over prompts at that token position, so that what a
    head writes whatever the prompt does not count:

        cosine(h, g) = E <o~_h, o~_g> / sqrt(E |o~_h|^2  E |o~_g|^2)

    "As it is read" is said by a `Reading`: the inner product <a, b> is a^T G b, how far two small
    additions move the predictions together, and the tokens at which nobody reads do not count. So
    nothing depends on what is written where nobody reads it. This is what the report's claim on
    heads asks about. Without a reading the whole stream counts, less its mean where a LayerNorm
    reads it (`maps.written`).

    Heads are told apart by what they write. Those whose outputs are parallel, or opposite
    (|cosine| >= `PARALLEL`, also by way of others), are one head, which writes their sum; it writes
    nothing if that is at most `NOTHING` times the largest of the layer. So a copy counts once, and
    two heads that take each other off do not count. Heads that attend alike in every prompt are one
    head of several parts (`alike`): what one of them writes and another takes off nobody writes.

    Chance gives each pair a cosine too. Let D be the fewest directions that hold `share` of what
    the heads of a layer write, each distinct head scaled to the same size. Were the directions of a
    head turned at random (Haar) in D dimensions, the mean square of its cosine would be, with M = E
    o~_h o~_g^T,

        chance(h, g)^2 = |M|^2 / (D  E |o~_h|^2  E |o~_g|^2)

    since E tr(M Q)^2 = |M|^2 / D for Haar Q. Of a head that counts with others o~ is their sum.

    All of it and the subspaces follow from the covariance of `hook_z`, in which o_h = z_h W_O is
    linear, so nobody listens to `hook_result`. Edits of it, and of what attention adds, would not
    be seen: where these are other than their products, there is no answer. The subspace of a head
    is spanned by the fewest principal directions of o~_h that hold `share` of its variance. The
    position "all" pools the tokens of every kind.

    Source of the question: Sander, Giryes, Suzuki, Blondel & Peyre (2024), section 6.

    Args:
        share: of the variance that a head's subspace holds, and of what a layer writes that D
            directions hold.
        angles: whether to compute angles between subspaces, which takes about a second for a
            hundred heads.
        per_prompt: also keep a number a prompt, of what intervals are made. Memory then grows with
            their number: every head's mixtures of values are kept.
        reading: what is read of the stream, measured beforehand: `Reading.measure(model, tokens)`.
        alike: for each head, layer by layer, the number in the layer of the first head that attends
            as it does in every prompt; each its own by default.

    Results:
        output_cosine: Matrix (layer, position, head, other); NaN for a head that writes a constant.
        output_chance: Matrix (layer, position, head, other), the root mean square of that cosine by
            chance.
        distinct: Matrix (layer, position, head), the number of the head as which each counts: its
            own, that of the first of those that are one with it, or `NO_HEAD` where it writes
            nothing.
        directions: Matrix (layer, position), D.
        output_inner: with `per_prompt`, <o~_h, o~_g> of each prompt, a mean over all tokens,
            Matrix (layer, head, other, prompt); 0 for a head that writes a constant.
        output_angles: with `angles`, principal angles between these subspaces in radians, smallest
            first, Matrix (layer, position, head, other, angle); NaN where a pair has fewer angles.
        ov_cosine, qk_cosine: as `map_orthogonality` gives them; with `angles` also ov_read_angles,
            ov_write_angles, qk_query_angles, qk_key_angles.

    Raises:
        InputError: a share that is none; in use, a model without two heads in a layer, or one in
            which what heads write is edited behind `hook_z`.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.probes.runner import probe
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, init_std=1.0)
    >>> model = HookedTransformer(config)
    >>> with torch.no_grad():  # two heads that do the same
    ...     for name in ("W_Q", "W_K", "W_V", "W_O"):
    ...         weight = getattr(model.blocks[0].attn, name)
    ...         _ = weight[1].copy_(weight[0])
    >>> found = probe(model, torch.randn(64, 5, 1), [HeadOrthogonality(per_prompt=True)])
    >>> cosine = found["head_orthogonality.output_cosine"]
    >>> cosine.sel(layer=0, position="all", head=0, other=1).round(6).item()
    1.0
    >>> inner = found["head_orthogonality.output_inner"].sel(layer=0).mean("prompt").values
    >>> bool(abs(inner[0, 1] / inner[0, 0] - 1) < 1e-6)
    True
    """

    name: ClassVar[str] = "head_orthogonality"
    weights: ClassVar[str | None] = "W_V and W_O of its heads"

    def __init__(
        self,
        share: float = maps.SHARE,
        angles: bool = True,
        per_prompt: bool = False,
        reading: Reading | None = None,
        alike: Sequence[Sequence[int]] | None = None,
    ) -> None:
        if not 0 < share <= 1:
            raise InputError(f"share must lie in (0, 1], but got {share}")
        self.share = share
        self.angles = angles
        self.per_prompt = per_prompt
        self.reading = reading
        self.alike = alike

    def refusal(self, model: HookedTransformer) -> str | None:
        """Models without two heads in a layer."""
        return maps.refusal(model)

    def hooks(self, model: HookedTransformer, positions: Positions) -> list[Hook]:
        """Hooks at the heads' mixtures of values and at the output of attention in each layer."""
        self._model = model
        self._positions = positions
        self._places = sorted(set(itertools.chain(*positions.values())))
        self._grams: list[dict[Kind, Gram]] = []
        self._mixtures: list[Rows] = []
        self._seen: dict[int, Tensor] = {}
        hooks: list[Hook] = []
        for layer in range(model.cfg.n_layers):
            self._grams.append({kind: Gram() for kind in positions})
            self._mixtures.append(Rows())
            mixtures = f"blocks.{layer}.attn.hook_z"
            hooks.append((mixtures, partial(self._read, layer)))
            hooks.append((mixtures, partial(self._remember, layer)))
            hooks.append((f"blocks.{layer}.hook_attn_out", partial(self._check, layer)))
        return hooks

    def _remember(
        self, layer: int, z: Float[Tensor, "batch token head d_head"], hook: object
    ) -> None:
        self._seen[layer] = z

    def _check(self, layer: int, added: Float[Tensor, "batch token d_model"], hook: object) -> None:
        """Refuse what attention adds to the stream, where it is not what the heads have written."""
        block = self._model.blocks[layer]
        z = self._seen.pop(layer).flatten(2)
        attn = block.attn
        after = (attn, attn.hook_result, block.hook_attn_out)
        if not any(map(edited, after)):
            return
        W_O, b_O = attn.writing
        W_O = W_O.flatten(0, 1)
        written = z @ W_O + b_O
        size = torch.linalg.vector_norm(z, dim=-1) * torch.linalg.matrix_norm(W_O)
        size += torch.linalg.vector_norm(b_O)
        rounding = 100 * torch.finfo(z.dtype).eps * size
        difference = torch.linalg.vector_norm(added - written, dim=-1)
        if not (difference <= rounding).all():
            raise InputError(
                f"probe {self.name} reads what heads write off their hook_z, but in block {layer} "
                "it is edited after that, at hook_result or hook_attn_out: edit hook_z instead, or "
                "ask without that edit"
            )

    def _read(self, layer: int, z: Float[Tensor, "batch token head d_head"], hook: object) -> None:
        if self.per_prompt:
            self._mixtures[layer].append(at_places(z.detach(), self._places).cpu())
            return
        for kind, places in self._positions.items():
            self._grams[layer][kind].update(at_places(z, places).flatten(2))

    def _moments(self, layer: int) -> dict[Kind, Gram]:
        """The moments of the heads' mixtures of values, for each position kind.

        They come from the kept mixtures with `per_prompt`.
        """
        if not self.per_prompt:
            return dict(self._grams[layer])
        z = self._mixtures[layer].all.double()
        found: dict[Kind, Gram] = {}
        for kind, places in self._positions.items():
            rows = list(map(self._places.index, places))
            found[kind] = Gram()
            found[kind].update(at_places(z, rows).flatten(2))
        return found

    def covariances(self) -> Iterator[dict[Kind, Float[Tensor, "head d_head head d_head"]]]:
        """For each layer and position kind, the covariance of the heads' mixtures of values.

        The kind "all" is one of the position kinds.

        It is 0 for a head that writes a constant, and where nobody reads; kinds count in "all" as
        much as they are read.
        """
        cfg = self._model.cfg
        of_heads = (cfg.n_heads, cfg.head_width)
        shape = of_heads * 2
        for layer in range(cfg.n_layers):
            read = self._read_at(layer)
            parts: dict[Kind, Tensor] = {}
            weighted = []
            sizes = []
            n_places = 0
            grams = self._moments(layer)
            for kind, places in self._positions.items():
                gram = grams[kind]
                parts[kind] = read[kind] * gram.covariance
                n = len(places)
                n_places += n
                weighted.append(parts[kind] * n)
                means = gram.mean.view(-1, *of_heads)
                sizes.append(means.square().sum(-1).amax(0))
            # Kinds count by how many places they have.
            pooled = torch.stack(weighted).sum(0) / n_places
            parts[ALL] = pooled
            # The spread of a head that writes a constant is rounding, and has no direction.
            size = torch.stack(sizes).amax(0)
            varies = (_spread(pooled.view(shape)) > ROUNDING**2 * size).to(pooled)
            each = varies[:, None].expand(of_heads).flatten()
            kept = torch.outer(each, each)
            yield {kind: (part * kept).view(shape) for kind, part in parts.items()}

    def _read_at(self, layer: int) -> dict[Kind, float]:
        """How much each position kind is read: 1 everywhere without a reading."""
        if self.reading is None:
            return dict.fromkeys(self._positions, 1.0)
        shares = self.reading.shares[layer]
        found = {}
        for kind, places in self._positions.items():
            found[kind] = float(shares[list(places)].mean())
        return found

    def _weights_of_places(self, layer: int) -> Float[Tensor, " token"]:
        """Each token counts as much as its kind is read."""
        read = self._read_at(layer)
        at = {}
        for kind, places in self._positions.items():
            for place in places:
                at[place] = read[kind]
        return torch.tensor([at[place] for place in self._places], dtype=torch.float64)

    def _written(self, layer: int) -> Float[Tensor, "head d_head d_model"]:
        """W_O of the heads in the coordinates of what is read."""
        if self.reading is None:
            return maps.written(self._model, layer)
        return maps.read_as(self._model, layer, self.reading)

    def results(self) -> dict[str, Result]:
        """Outputs and maps."""
        cfg = self._model.cfg
        cosines = []
        chances = []
        inner = []
        angles = []
        distinct = []
        directions = []
        for layer, found in enumerate(self.covariances()):
            firsts = range(cfg.n_heads) if self.alike is None else self.alike[layer]
            write = self._written(layer).to(found[ALL].device)
            pairs = torch.einsum("hed,gfd->hegf", write, write)
            for covariance in found.values():
                # E <o~_h, o~_g> = trace of E[z~_h z~_g^T] W_g W_h^T.
                products = (covariance * pairs).sum((1, 3))
                cosines.append(maps.cosines_of(products))
                heads = told_apart(products, firsts)
                distinct.append(heads)
                n = _n_directions(covariance, write, products, heads, self.share)
                directions.append(n)
                chance = _by_chance(covariance, pairs, products, max(n, 1))
                _of_joined(chance, covariance, write, products, heads, max(n, 1))
                chances.append(chance)
                if self.angles:
                    bases = _output_subspaces(covariance, write, self.share)
                    angles.append(maps.all_angles(bases, cfg.head_width))
            if self.per_prompt:
                varies = _spread(found[ALL]) > 0
                weights = self._weights_of_places(layer)
                mixtures = self._mixtures[layer].all.double()
                inner.append(_by_prompt(mixtures, write.cpu(), varies.cpu(), weights))
        # What stands above for each layer and kind becomes an array over these axes.
        between = maps.axes_of(self._model)
        of_layers = {"layer": between["layer"], "position": (*self._positions, ALL)}
        of_heads = {**of_layers, "head": between["head"]}
        axes = {**of_heads, "other": between["other"]}
        shape = tuple(map(len, axes.values()))
        cosine = torch.stack(cosines).view(shape).cpu().numpy()
        chance = torch.stack(chances).view(shape).cpu().numpy()
        counted_as = np.reshape(distinct, shape[:3])
        n_directions = np.reshape(directions, shape[:2])
        note = "over prompts and the positions of each kind, centred at each position"
        results: dict[str, Result] = {
            "output_cosine": make_array(cosine, axes, note=note),
            "output_chance": make_array(chance, axes, note=note),
            "distinct": make_array(counted_as, of_heads, note=f"{NO_HEAD}: writes nothing"),
            "directions": make_array(n_directions, of_layers, "directions"),
        }
        if self.per_prompt:
            values = torch.stack(inner).numpy()
            of_prompts = {**between, "prompt": tuple(range(values.shape[-1]))}
            results["output_inner"] = make_array(values, of_prompts, note=note)
        if self.angles:
            wide = {**axes, "angle": maps.numbers(cfg.head_width)}
            values = torch.stack(angles).view(*shape, -1).cpu().numpy()
            results["output_angles"] = make_array(values, wide, "rad", maps.note_on(self.share))
        as_maps = maps.map_orthogonality(self._model, self.share, self.angles, self.reading)
        return {**results, **as_maps}


def told_apart(
    products: Float[Tensor, "head head"], firsts: Sequence[int] | None = None
) -> list[int]:
    """For each head of a layer, the head that it counts as, or `NO_HEAD`.

    Inner products of the heads' outputs decide, of heads that attend alike those of their sum.

    Args:
        products: E <o~_h, o~_g>.
        firsts: the first head that each attends like; each its own by default.

    >>> products = [[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 0.0], [2.0, 0.0, 4.0, 0.0], [0.0] * 4]
    >>> told_apart(torch.tensor(products))
    [0, 1, 0, -1]
    >>> products = [[1.0, 0.0, 0.0], [0.0, 9.0, -9.0], [0.0, -9.0, 9.0]]  # the last two cancel
    >>> told_apart(torch.tensor(products))
    [0, -1, -1]
    >>> products = [[1.0, 0.0, 0.0], [0.0, 9.0, -8.0], [0.0, -8.0, 9.0]]  # the last two, nearly
    >>> told_apart(torch.tensor(products)), told_apart(torch.tensor(products), [0, 1, 1])
    ([0, 1, 2], [0, 1, 1])
    """
    if firsts is None:
        return _one_by_one(products)
    # What heads that attend alike write together stands in the place of the first of them.
    members = torch.zeros_like(products)
    members[list(firsts), range(len(products))] = 1
    heads = _one_by_one(members @ products @ members.T)
    return [heads[first] for first in firsts]


def _one_by_one(products: Float[Tensor, "head head"]) -> list[int]:
    """`told_apart` of heads that attend each in its own way."""
    n = len(products)
    # No comparison holds for NaN: such a head writes nothing.
    alike = maps.cosines_of(products).abs() >= PARALLEL
    heads = [h if bool(alike[h, h]) else NO_HEAD for h in range(n)]
    for h in range(n):
        for g in range(h):
            if alike[h, g] and heads[h] != heads[g]:
                first, later = sorted((heads[h], heads[g]))
                heads = [first if one == later else one for one in heads]
    # Heads whose sum is small beside the largest write nothing together.
    sizes = {}
    for one in set(heads) - {NO_HEAD}:
        sizes[one] = _squared_size(products, heads, one)
    least = NOTHING**2 * max(sizes.values(), default=0.0)
    return [one if sizes.get(one, 0.0) > least else NO_HEAD for one in heads]


def _squared_size(products: Float[Tensor, "head head"], heads: list[int], one: int) -> float:
    """E |sum of o~_h|^2 over the heads that count as this one."""
    members = [h for h, counted_as in enumerate(heads) if counted_as == one]
    return float(products[members][:, members].sum())


def _n_directions(
    covariance: Float[Tensor, "head d_head head d_head"],
    write: Float[Tensor, "head d_head d_model"],
    products: Float[Tensor, "head head"],
    heads: list[int],
    share: float,
) -> int:
    """The fewest directions that hold this share of the outputs of distinct heads.

    Each output is first scaled to the same size.
    """
    scales = torch.zeros_like(products)
    for h, one in enumerate(heads):
        for g, other in enumerate(heads):
            if one == other != NO_HEAD:
                scales[h, g] = 1 / _squared_size(products, heads, one)
    n = write.shape[0] * write.shape[1]
    scales = scales[:, None, :, None]
    scaled = (covariance * scales).where(scales > 0, 0.0).reshape(n, n)
    whole = write.reshape(n, -1)
    of_outputs = whole.T @ scaled @ whole
    values = torch.linalg.eigvalsh(of_outputs).flip(0).clamp(min=0)
    return maps.n_leading(values.sqrt(), share)


def _spread(covariance: Float[Tensor, "head d_head head d_head"]) -> Float[Tensor, " head"]:
    """The variance of each head's mixtures: the trace of its own block."""
    blocks = covariance.diagonal(dim1=0, dim2=2)
    return blocks.diagonal(dim1=0, dim2=1).sum(-1)


def _by_chance(
    covariance: Float[Tensor, "head d_head head d_head"],
    pairs: Float[Tensor, "head d_head head d_head"],
    products: Float[Tensor, "head head"],
    n: int,
) -> Float[Tensor, "head head"]:
    """The root mean square cosine of two heads' outputs under random rotations in n dimensions.

    M = W_h^T C W_g with C the covariance of two heads' mixtures, so |M|^2 = tr(C^T W_h W_h^T C W_g
    W_g^T).
    """
    own = torch.stack([pairs[h, :, h] for h in range(len(pairs))])  # W_h W_h^T
    squares = torch.einsum("hegf,hek,hkgl,glf->hg", covariance, own, covariance, own).clamp(min=0)
    size = products.diagonal().clamp(min=0).sqrt()
    return (squares / n).sqrt() / size[:, None] / size


def _of_joined(
    chance: Float[Tensor, "head head"],
    covariance: Float[Tensor, "head d_head head d_head"],
    write: Float[Tensor, "head d_head d_model"],
    products: Float[Tensor, "head head"],
    heads: list[int],
    n: int,
) -> None:
    """Put in the chance of heads that count with others: that of the sum of their outputs."""
    members: dict[int, list[int]] = {}
    for head, one in enumerate(heads):
        if one != NO_HEAD:
            members.setdefault(one, []).append(head)
    for one, other in itertools.permutations(members, 2):
        mine = members[one]
        its = members[other]
        if len(mine) == len(its) == 1:
            continue
        # M = E o~ o~^T of both sums.
        cross = torch.zeros_like(write[0].T @ write[0])
        pairs = list(itertools.product(mine, its))
        for h, g in pairs:
            cross += write[h].T @ covariance[h, :, g] @ write[g]
        my_size = _squared_size(products, heads, one)
        its_size = _squared_size(products, heads, other)
        square = cross.square().sum() / (n * (my_size * its_size))
        cosine = square.sqrt()
        for h, g in pairs:
            chance[h, g] = cosine


def _by_prompt(
    z: Float[Tensor, "prompt token head d_head"],
    write: Float[Tensor, "head d_head d_model"],
    varies: Bool[Tensor, " head"],
    weights: Float[Tensor, " token"],
) -> Float[Tensor, "head head prompt"]:
    """<o~_h, o~_g> of each prompt, a mean over tokens, each of which counts with its weight."""
    centred = (z - z.mean(0)) * varies[:, None]
    said = torch.einsum("bthe,hed->bthd", centred, write)
    each = said @ said.transpose(2, 3)
    mean = (each * weights[:, None, None]).mean(1)
    return mean.permute(1, 2, 0)


def _output_subspaces(
    covariance: Float[Tensor, "head d_head head d_head"],
    write: Float[Tensor, "head d_head d_model"],
    share: float,
) -> maps.Bases:
    """Principal directions of each head's output, from the covariance of its mixtures of values."""
    own = torch.stack([covariance[h, :, h] for h in range(len(write))])
    values, vectors = torch.linalg.eigh(own)
    # Its squared singular values are the variances of the output along its right singular vectors.
    root = values.clamp(min=0).sqrt()[..., None] * vectors.transpose(1, 2)
    _, s, vh = torch.linalg.svd(root @ write, full_matrices=False)
    bases = []
    for sizes, directions in zip(s, vh, strict=True):
        k = maps.n_leading(sizes, share)
        bases.append(directions[:k].T)
    return bases
