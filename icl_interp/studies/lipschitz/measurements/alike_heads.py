"""Heads that weights of the same function may split, copy or let cancel.

Such heads are edited together and count once.

What a head writes at the query is compared where later weights read it. Two heads of a layer whose
writing is proportional over all prompts are one head, or nothing where they cancel. So are several
whose sum is the same for every prompt.
"""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.models.transformer import HookedTransformer

SAME = 1e-9  # of a correlation from 1: rounding, also in float32
NOTHING = 1e-5  # of the largest: a size below is rounding


def read_later(model: HookedTransformer, layer: int) -> Float[Tensor, "d_model read"]:
    """An orthonormal basis of what weights after a layer's attention read of the stream.

    A norm reads all of it.
    """
    width = model.cfg.d_model
    if model.cfg.normalization_type is not None:
        return torch.eye(width, dtype=torch.float64)
    readers = [model.unembed.W_U]
    for i, block in enumerate(model.blocks):
        if i > layer:
            # Each of these holds a matrix a head.
            readers.extend(block.attn.W_Q)
            readers.extend(block.attn.W_K)
            readers.extend(block.attn.W_V)
        if i >= layer and not model.cfg.attn_only:
            readers.append(block.mlp.W_in)
    all_read = torch.cat(readers, 1).detach().double().cpu()
    left, sizes, _ = torch.linalg.svd(all_read, full_matrices=False)
    is_read = sizes > NOTHING * sizes.max()
    return left[:, is_read]


def together(written: Float[Tensor, "batch head read"]) -> list[tuple[int, ...]]:
    """Heads of a layer that count as one, in the order of the first of each.

    All others stand alone.

    Args:
        written: what each head writes at the query, where it is read.

    >>> one, other = torch.randn(2, 50, 1, 3, generator=torch.Generator().manual_seed(0))
    >>> together(torch.cat([one, other, -2 * one], 1)), together(torch.cat([one, other], 1))
    ([(0, 2), (1,)], [(0,), (1,)])
    >>> together(torch.cat([one, other, one + other, -one - other], 1))
    [(0,), (1,), (2, 3)]
    """
    n_heads = written.shape[1]
    centred = written - written.mean(0)
    about = centred.transpose(0, 1).flatten(1).double()
    sizes = about.norm(dim=1)
    alone = sizes <= NOTHING * sizes.max()  # writes nothing, or the same for all prompts
    unit = about / torch.where(alone, 1.0, sizes)[:, None]
    correlations = unit @ unit.T
    alike = 1 - correlations.abs() <= SAME
    alike[alone] = False
    alike[:, alone] = False

    # A head that is in no group yet begins one, with all later heads like it.
    later = alike.triu(1)
    groups: list[tuple[int, ...]] = []
    grouped: set[int] = set()
    for head in range(n_heads):
        if head not in grouped:
            others = torch.nonzero(later[head])[:, 0].tolist()
            groups.append((head, *others))
            grouped.update(others)
    return _with_cancelling(groups, about)


def _with_cancelling(
    groups: list[tuple[int, ...]], about: Float[Tensor, "head number"]
) -> list[tuple[int, ...]]:
    """Groups joined where their sum is nothing, though none of them is."""
    sums = torch.stack([about[list(group)].sum(0) for group in groups])
    size = sums.norm(dim=1)
    there = torch.nonzero(size > NOTHING * size.max())[:, 0]
    if len(there) < 3:
        return groups
    # Heads that cancel lie in the null space of the sums, with one coefficient for all of them.
    left, values, _ = torch.linalg.svd(sums[there], full_matrices=True)
    rank = int((values > NOTHING * values.max()).sum())
    null = left[:, rank:]
    projection = null @ null.T
    joins = projection.abs() > NOTHING
    joined: dict[int, list[int]] = {}
    for row in joins:
        members = there[row].tolist()
        if len(members) < 3:
            continue
        remainder = sums[members].sum(0)
        if remainder.norm() <= NOTHING * size[members].max():
            joined[min(members)] = members

    taken = set().union(*joined.values())
    found = [group for i, group in enumerate(groups) if i not in taken]
    for members in joined.values():
        heads = itertools.chain.from_iterable(groups[i] for i in members)
        found.append(tuple(sorted(heads)))
    return sorted(found)
