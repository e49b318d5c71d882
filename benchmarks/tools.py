"""The tools of interpretability: what a call of each takes, and what more prompts cost.

The aim is all of them in a minute on two cores on `affine`, and in five on a model of 12 layers and
width 256: patching and paths, influence of examples, learned probes, roles of heads, the circuit.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

import icl_interp
from benchmarks import fresh
from benchmarks.measuring import MB, Goal, Options, Row, timed
from benchmarks.sizes import ENCODING, PAPER, affine, untrained
from icl_interp import circuits, contrasts, probes
from icl_interp.checkpoints.config import RunConfig
from icl_interp.models import tokens as encodings
from icl_interp.provenance import generator

MODEL = "affine"
SIZE = replace(PAPER, points=20)
TOGETHER, DEEP, FLAT = Goal(60.0), Goal(300.0), Goal(1.1)
FUNCTIONS, FEW, MANY = 64, 256, 1024
FITTED = 1024  # functions that the read-out of the large model is fitted to
PENALTY = 1e-3  # of the fit, in units of the mean square of the stream
FEW_FUNCTIONS = 32  # of the circuit of the large model
N_RUNS = 100  # of the search for its edges
CIRCUIT = "circuit with edges"
FASTEST = ("patching of heads", "composition of heads")
Call = Callable[[], object]


def large() -> icl_interp.Checkpoint:
    """An untrained model of 12 layers and width 256, whose read-out alone is fitted.

    Without that every part would do nothing, and there would be no circuit to look for.
    """
    model = untrained(SIZE)
    task = affine(SIZE)
    prompts = task.sample(FITTED, generator(0, "benchmarks/read-out"))
    tokens = ENCODING.encode(prompts).float()
    with torch.no_grad():
        streams = []
        for batch in tokens.split(FUNCTIONS):
            _, cache = model.run_with_cache(batch, names_filter=["ln_final.hook_normalized"])
            streams.append(cache["ln_final.hook_normalized"][:, -1])
        stream = torch.cat(streams).double()
        square = stream.mT @ stream / len(stream)
        moment = stream.mT @ prompts.ys[:, -1].double() / len(stream)
        damped = square + PENALTY * square.diagonal().mean() * torch.eye(len(square))
        model.unembed.W_U.copy_(torch.linalg.solve(damped, moment))
    config = RunConfig(model.cfg, task, encodings.name_of(ENCODING))
    return icl_interp.Checkpoint(model, task, ENCODING, config)


def calls(loaded: icl_interp.Checkpoint, n: int, n_random: int) -> dict[str, Call]:
    """Each tool on as many functions, with its default settings else."""
    pairs = contrasts.labels(loaded.task, n_functions=n)
    prompts = loaded.task.sample(n, generator(0, "benchmarks/tools"))
    paths = [("head 0.2", "MLP 0"), ("head 0.2", "head 1.0 k")]

    def influence() -> object:
        return probes.ExampleInfluence.measure(loaded, prompts).summary()

    def circuit() -> object:
        return icl_interp.circuit(loaded, n_functions=n, n_random=n_random)

    return {
        "patching of heads": lambda: circuits.patch_activations(loaded, pairs),
        "attribution of all edges": lambda: circuits.attribute_edges(loaded, pairs),
        "path patching of two edges": lambda: circuits.patch_paths(loaded, pairs, paths),
        "influence of examples": influence,
        "learned probes of coefficients": lambda: probes.fit(loaded, "coefficients"),
        "roles of heads": lambda: probes.roles(loaded, prompts),
        "composition of heads": lambda: probes.composition(loaded),
        CIRCUIT: circuit,
    }


def patch_prompts(n: int) -> None:
    """Patching of heads and attribution of edges on as many functions, in its own process."""
    loaded = icl_interp.load(MODEL)
    pairs = contrasts.labels(loaded.task, n_functions=n)
    circuits.patch_activations(loaded, pairs)
    circuits.attribute_edges(loaded, pairs, n_checked=2)


def run(options: Options) -> list[Row]:
    """Seconds of each tool and of all, and peak memory of few and many prompts."""
    loaded = icl_interp.load(MODEL)
    if options.quick:
        every = calls(loaded, 8, 2)
        rows = seconds({name: every[name] for name in FASTEST}, MODEL, TOGETHER)
        return [*rows, *memory(quick=True)]
    rows = seconds(calls(loaded, FUNCTIONS, 100), MODEL, TOGETHER)
    # Of the large model a circuit is asked of fewer functions, and its edges of so many runs: it is
    # one of the hardest cases, since no part of an untrained model is idle.
    deep = large()
    every = calls(deep, FUNCTIONS, 100)
    del every[CIRCUIT]
    what = f"circuit, {FEW_FUNCTIONS} functions, {N_RUNS} runs for edges"
    every[what] = lambda: icl_interp.circuit(deep, n_functions=FEW_FUNCTIONS, n_runs=N_RUNS)
    rows += seconds(every, str(SIZE), DEEP)
    return [*rows, *memory(quick=False)]


def seconds(asked: dict[str, Call], name: str, goal: Goal) -> list[Row]:
    """A row a tool, and their sum."""
    rows = []
    note = f"{FUNCTIONS} functions where a call takes their number and nothing is said; one turn"
    for what, call in asked.items():
        found = timed(call)
        rows.append(Row(what=what, value=found.wall, unit="s", seconds=found, note=note))
    total = sum(row.value for row in rows)
    rows.append(Row(what=f"all of them, {name}", value=total, unit="s", goal=goal))
    return rows


def memory(quick: bool) -> list[Row]:
    """Peak memory of patching and attribution, each of a fresh process."""
    rows = []
    for n in (4, 8) if quick else (FEW, MANY):
        made = fresh.call(patch_prompts, here=quick, threads=torch.get_num_threads(), n=n)
        what = f"peak memory of patching and attribution, {n} functions"
        rows.append(Row(what=what, value=made.peak / MB, unit="MB", note="of a fresh process"))
    few, many = (row.value for row in rows)
    rows.append(Row(what="peak memory, many : few", value=many / few, unit="x", goal=FLAT))
    return rows
