"""Planted models as they are tried: beside random parts that nobody reads, a third with decoys.

Models set by hand get their decoy here. Trained ones have that of their plan.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch

from icl_interp.errors import InputError, unknown, whole
from icl_interp.models.config import HookedTransformerConfig as Config
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.testing import beside
from icl_interp.testing.planted import trained
from icl_interp.testing.planted.base import Planted, Truth, checkpoint_of
from icl_interp.testing.planted.families import FAMILIES
from icl_interp.testing.planted.plans import PLANS
from icl_interp.testing.reparameterisations import attention, layers
from icl_interp.testing.reparameterisations.base import Edit, made, weights_of

Changed = tuple[HookedTransformer, Truth, frozenset[str]]
EVERY = (*FAMILIES, *PLANS)  # set by hand, and trained
N_SEEDS = 8  # of each family that is set by hand, three of them with a decoy
NONE = "none"
WIDTH = 8  # of the stream of random parts
SIZE = 0.5  # of their weights
INIT = 0.2  # of a randomly initialised model of the same shape, the control of learned probes


def planted(family: str, seed: int = 0, decoy: str | None = None) -> Planted:
    """One model of a family.

    Every model stands beside random heads and MLPs that see its prompts and whose output nobody
    reads.

    Args:
        family: a name of `EVERY`.
        seed: of the draw. Of a trained family it says which of its models, in turn, and what stands
            beside it.
        decoy: a name of `DECOYS`, or "none"; by default that of the seed (`decoy_of`). A trained
            family has its own only.

    Raises:
        InputError: no such family, decoy or seed.

    >>> one = planted("one step", seed=0)
    >>> sorted(one.truth.parts), one.decoy, one.checkpoint.model.cfg.n_heads > 1
    (['head 0.0'], 'none', True)
    """
    whole(seed, "seed", 0)
    if family not in EVERY:
        raise unknown("family", family, EVERY)
    if decoy not in (None, NONE, *DECOYS):
        raise unknown("decoy", decoy, (NONE, *DECOYS))
    g = generator(seed, f"planted/{family}")
    decoys: frozenset[str] = frozenset()
    if family in PLANS:
        decoy, decoys = _of_plan(family, decoy)
        model, task, encoding, truth = trained.drawn(family, seed)
    else:
        decoy = decoy_of(seed) if decoy is None else decoy
        model, task, encoding, truth = FAMILIES[family](g)
    if decoy != NONE and family not in PLANS:
        model, truth, decoys = DECOYS[decoy](model, truth, g)
    # Random parts come last, so the others keep their names.
    both = beside.side_by_side(_random(model, g), model)
    whole_model = made(weights_of(both), replace(both.cfg, init_std=INIT))
    checkpoint = checkpoint_of(whole_model, task, encoding)
    return Planted(family, decoy, seed, checkpoint, truth, decoys)


def _of_plan(family: str, decoy: str | None) -> tuple[str, frozenset[str]]:
    """The decoy of a trained family, and its heads.

    Raises:
        InputError: another one is asked for.
    """
    plan = PLANS[family]
    if decoy not in (None, plan.decoy):
        raise InputError(
            f"models of {family!r} were trained with the decoy {plan.decoy!r}, so they have no "
            f"{decoy!r}: leave decoy out"
        )
    return plan.decoy, plan.decoys


def drawn(
    families: Iterable[str] | None = None, n_seeds: int = N_SEEDS, seed: int = 0
) -> Iterator[Planted]:
    """Models of families, one after another.

    Args:
        families: names of `EVERY`; all by default.
        n_seeds: models of each; of a trained family at most as many as there are.
        seed: of the first.
    """
    for family in EVERY if families is None else families:
        for each in seeds_of(family, n_seeds, seed):
            yield planted(family, each)


def seeds_of(family: str, n_seeds: int = N_SEEDS, seed: int = 0) -> range:
    """Seeds of a family that are tried.

    >>> len(seeds_of("one step")), len(seeds_of("trained step"))
    (8, 2)
    """
    if family in PLANS:
        n_seeds = min(n_seeds, len(trained.kept(family)))
    return range(seed, seed + n_seeds)


def decoy_of(seed: int) -> str:
    """The decoy of a seed, in families set by hand: three of eight have one, each another.

    >>> [decoy_of(seed) for seed in range(7)]
    ['none', 'none', 'cancelling pair', 'none', 'idle copy', 'none', 'early shortcut']
    """
    number = seed % N_SEEDS
    if not number or number % 2:
        return NONE
    return list(DECOYS)[number // 2 - 1]


def _random(model: HookedTransformer, g: torch.Generator) -> HookedTransformer:
    """Random heads and MLPs that stand in the same stream as a model's."""
    cfg = model.cfg
    alike = {name: getattr(cfg, name) for name in beside.ALIKE}
    small = Config(
        n_layers=cfg.n_layers,
        d_model=WIDTH,
        n_heads=int(torch.randint(1, 4, (), generator=g)),
        d_head=2,
        d_mlp=4,
        n_ctx=cfg.n_ctx,
        d_in=cfg.d_in,
        d_out=cfg.d_out,
        act_fn=cfg.act_fn,
        normalization_type=None,
        positional_embedding_type="none",
        **alike,
    )
    found = HookedTransformer(small).double()
    with torch.no_grad():
        for parameter in found.parameters():
            noise = torch.randn(parameter.shape, generator=g, dtype=torch.float64)
            parameter.copy_(SIZE * noise)
    return found


# ---- decoys --------------------------------------------------------------------------------------


def cancelling_pair(model: HookedTransformer, truth: Truth, g: torch.Generator) -> Changed:
    """Two random heads in each layer that write much, with opposite signs, also to the answer.

    Each alone moves the prediction; both together do nothing.
    """
    return _edited(model, truth, g, attention.RANDOM_PAIR[0], copied=False)


def idle_copy(model: HookedTransformer, truth: Truth, g: torch.Generator) -> Changed:
    """A copy of a head of each layer that attends as it does and writes nothing."""
    return _edited(model, truth, g, attention.IDLE_COPY, copied=True)


def early_shortcut(model: HookedTransformer, truth: Truth, g: torch.Generator) -> Changed:
    """The whole model once more, a layer earlier, where nobody reads its answer.

    So the answer stands in the stream before the parts that the prediction comes from.
    """
    later = layers.LAYER_BEFORE.apply(model, g)
    both = beside.side_by_side(model, later)
    n_own = model.cfg.n_heads
    # What was in layer i is in layer i + 1 now; the copy has further heads in layer i.
    copies = set()
    for layer in range(both.cfg.n_layers):
        for head in range(2 * n_own):
            if head >= n_own or not layer:
                copies.add(f"head {layer}.{head}")
    moved = truth.renamed(_one_later)
    used = frozenset(map(_hook_later, truth.used))
    unsure = frozenset(map(_hook_later, truth.undecided))
    found = replace(
        moved,
        readable=truth.readable | used,
        used=used,
        undecided=(truth.undecided | unsure) - truth.readable - used,
        copies=frozenset(copies),
    )
    return both, found, frozenset(copies)


DECOYS: dict[str, Callable[[HookedTransformer, Truth, torch.Generator], Changed]] = {
    "cancelling pair": cancelling_pair,
    "idle copy": idle_copy,
    "early shortcut": early_shortcut,
}


def _edited(
    model: HookedTransformer, truth: Truth, g: torch.Generator, edit: Edit, *, copied: bool
) -> Changed:
    """A model with further heads at places that are drawn, and where its own went."""
    found = edit.apply(model, g)
    places: dict[str, str] = {}
    for layer in range(model.cfg.n_layers):
        for head in range(model.cfg.n_heads):
            places[f"head {layer}.{head}"] = f"head {layer}.{_place(model, found, layer, head)}"
    every = set()
    for layer in range(found.cfg.n_layers):
        for head in range(found.cfg.n_heads):
            every.add(f"head {layer}.{head}")
    decoys = frozenset(every - set(places.values()))
    moved = truth.renamed(lambda part: places.get(part, part))
    if copied:
        moved = replace(moved, copies=decoys)
    return found, moved, decoys


def _place(before: HookedTransformer, after: HookedTransformer, layer: int, head: int) -> int:
    """Where a head is now, by its weights."""
    own = before.blocks[layer].attn
    found = after.blocks[layer].attn
    for place in range(after.cfg.n_heads):
        same = [
            torch.equal(getattr(own, name)[head], getattr(found, name)[place])
            for name in ("W_Q", "W_K", "W_V", "W_O")
        ]
        if all(same):
            return place
    raise AssertionError(f"head {layer}.{head} is not in the edited model")


def _one_later(part: str) -> str:
    """The part of the same place one layer later."""
    kind, place = part.split()
    layer, dot, head = place.partition(".")
    return f"{kind} {int(layer) + 1}{dot}{head}"


def _hook_later(hook: str) -> str:
    """The hook of the same name one layer later."""
    _, layer, name = hook.split(".")
    return f"blocks.{int(layer) + 1}.{name}"
