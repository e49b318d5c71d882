"""The default probes of `icl_interp.probe` against bare forward passes, and against caching what they read.

The peer caches the same activations with `run_with_cache`, batch by batch, and feeds them to the
same reductions afterwards.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

import icl_interp
from benchmarks import fresh
from benchmarks.measuring import MB, Goal, Options, Row, ratio_row, take_turns, timed
from benchmarks.sizes import ENCODING, PAPER, TINY, Size, prompts, untrained
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import Probe
from icl_interp.probes.runner import default_probes
from icl_interp.products import fast

BATCH, PROMPTS, MANY, TURNS = 64, 256, 1024, 3
TOGETHER, FLAT = Goal(1.5, aim=1.25), Goal(1.1)
BARE, FASTER = "bare forward passes", "bare forward passes, products by the faster kernel"
ALL, PEER = "all default probes", "run_with_cache, then the same reductions"


def batches(size: Size, n: int) -> list[Tensor]:
    """Encoded prompts in float32, `BATCH` at once."""
    return list(ENCODING.encode(prompts(size, n)).float().split(BATCH))


def positions(size: Size) -> Mapping[str, list[int]]:
    """Token positions of each kind; the last token is the query."""
    found: dict[str, list[int]] = defaultdict(list)
    for i, kind in enumerate(ENCODING.kinds(size.points)[:-1]):
        found[kind].append(i)
    return {**found, "query": [size.n_tokens - 1]}


@torch.no_grad()
def forward(model: HookedTransformer, tokens: list[Tensor]) -> None:
    """Every position, nobody listening."""
    for batch in tokens:
        model(batch)


@torch.no_grad()
def cached(model: HookedTransformer, tokens: list[Tensor], probes: list[Probe], size: Size) -> None:
    """What the probes read, cached batch by batch and reduced afterwards."""
    readers: dict[str, list[Callable[..., object]]] = defaultdict(list)
    for each in probes:
        for name, read in each.hooks(model, positions(size)):
            readers[name].append(read)
    for batch in tokens:
        _, cache = model.run_with_cache(batch, names_filter=list(readers))
        for name in cache:  # in the order of the model, as hooks see it
            for read in readers[name]:
                read(cache[name], hook=model.hook_dict[name])
    for each in probes:
        each.results()


def probe_prompts(n: int, quick: bool) -> None:
    """All default probes on as many prompts, in a process of its own."""
    size = TINY if quick else PAPER
    icl_interp.probe(untrained(size), prompts(size, n), encoding=ENCODING, batch_size=BATCH)


def cache_prompts(n: int, quick: bool) -> None:
    """The peer with as many prompts in one batch, in a process of its own."""
    size = TINY if quick else PAPER
    model = untrained(size)
    cached(model, [ENCODING.encode(prompts(size, n)).float()], default_probes(model), size)


def run(options: Options) -> list[Row]:
    """Seconds in forward passes, together and each alone, and peak memory."""
    size, n, many = (TINY, 4, 8) if options.quick else (PAPER, PROMPTS, MANY)
    model, given, tokens = untrained(size), prompts(size, n), batches(size, n)

    def probing(name: str | None = None) -> Callable[[], object]:
        """Fresh probes at each call: all default ones, or one of them."""
        return lambda: icl_interp.probe(
            model,
            given,
            [p for p in default_probes(model) if name in (None, p.name)],
            encoding=ENCODING,
            batch_size=BATCH,
        )

    variants: dict[str, Callable[[], object]] = {
        BARE: lambda: forward(model, tokens),
        ALL: probing(),
    }
    variants[FASTER] = fast()(variants[BARE])
    variants |= {f"{p.name} alone": probing(p.name) for p in default_probes(model)}
    variants[PEER] = fast()(lambda: cached(model, tokens, default_probes(model), size))
    for name in (BARE, ALL):  # enough to warm up; a whole turn takes long
        variants[name]()
    times = take_turns(variants, options.turns_or(TURNS), warm_up=False)
    rows = [
        ratio_row(
            name,
            each,
            times[BARE],
            note=f"times the {BARE} of {n} prompts, {BATCH} at once",
            goal=TOGETHER if name == ALL else None,
        )
        for name, each in times.items()
    ]
    return [*rows, once(model, tokens[0], size), *memory(options.quick, n, many)]


def once(model: HookedTransformer, batch: Tensor, size: Size) -> Row:
    """What the probes take at the end, however many prompts there were."""
    probes = default_probes(model)
    with torch.no_grad(), icl_interp.probes.observe(model, *probes, positions=positions(size)):
        model(batch)
    seconds = timed(lambda: [each.results() for each in probes])
    return Row(
        what="results of all default probes",
        value=seconds.wall,
        unit="s",
        seconds=seconds,
        note="once, for any number of prompts; part of each row above",
    )


def memory(quick: bool, n: int, many: int) -> list[Row]:
    """Peak memory, each of a fresh process."""

    def peak(function: Callable[..., None], n: int) -> float:
        return (
            fresh.call(function, here=quick, threads=torch.get_num_threads(), n=n, quick=quick).peak
            / MB
        )

    few, more, whole = peak(probe_prompts, n), peak(probe_prompts, many), peak(cache_prompts, n)
    note = "of a fresh process, imports too"
    return [
        Row(what=f"peak memory of probing {n} prompts", value=few, unit="MB", note=note),
        Row(what=f"peak memory of probing {many} prompts", value=more, unit="MB", note=note),
        Row(
            what=f"peak memory, {many} prompts : {n} prompts", value=more / few, unit="x", goal=FLAT
        ),
        Row(what=f"peak memory of caching {n} prompts at once", value=whole, unit="MB", note=note),
    ]
