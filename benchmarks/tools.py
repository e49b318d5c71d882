"""The tools of interpretability on `affine`: what a call of each takes, and what more prompts cost.

The aim is all of them in a minute on two cores: patching and paths, influence of examples, learned
probes, roles of heads, and the circuit.
"""

from collections.abc import Callable

import torch

import icl_interp
from benchmarks import fresh
from benchmarks.measuring import MB, Goal, Options, Row, timed
from icl_interp import circuits, contrasts, probes
from icl_interp.provenance import generator

MODEL = "affine"
TOGETHER, FLAT = Goal(60.0), Goal(1.1)
FUNCTIONS, FEW, MANY = 64, 256, 1024
Call = Callable[[], object]


def calls(n: int, n_random: int) -> dict[str, Call]:
    """Each tool on as many functions, with its default settings else."""
    loaded = icl_interp.load(MODEL)
    pairs = contrasts.labels(loaded.task, n_functions=n)
    prompts = loaded.task.sample(n, generator(0, "benchmarks/tools"))

    def influence() -> object:
        return probes.ExampleInfluence.measure(loaded, prompts).summary()

    def circuit() -> object:
        return icl_interp.circuit(loaded, n_functions=n, n_random=n_random)

    return {
        "patching of heads": lambda: circuits.patch_activations(loaded, pairs),
        "attribution of all edges": lambda: circuits.attribute_edges(loaded, pairs),
        "path patching of two edges": lambda: circuits.patch_paths(
            loaded, pairs, [("head 0.2", "MLP 0"), ("head 0.2", "head 1.0 k")]
        ),
        "influence of examples": influence,
        "learned probes of coefficients": lambda: probes.fit(loaded, "coefficients"),
        "roles of heads": lambda: probes.roles(loaded, prompts),
        "composition of heads": lambda: probes.composition(loaded),
        "circuit with edges": circuit,
    }


def patch_prompts(n: int) -> None:
    """Patching of heads on as many functions, in a process of its own."""
    loaded = icl_interp.load(MODEL)
    circuits.patch_activations(loaded, contrasts.labels(loaded.task, n_functions=n))


def run(options: Options) -> list[Row]:
    """Seconds of each tool and of all, and peak memory of patching few and many prompts."""
    n, n_random = (8, 2) if options.quick else (FUNCTIONS, 100)
    asked = calls(n, n_random)
    if options.quick:
        asked = {name: asked[name] for name in ("patching of heads", "composition of heads")}
    rows = []
    for name, call in asked.items():
        seconds = timed(call)
        note = f"{n} functions where a call takes their number; one turn"
        rows.append(Row(what=name, value=seconds.wall, unit="s", seconds=seconds, note=note))
    total = sum(row.value for row in rows)
    rows.append(Row(what="all of them", value=total, unit="s", goal=TOGETHER))
    return [*rows, *memory(options.quick)]


def memory(quick: bool) -> list[Row]:
    """Peak memory of patching, each of a fresh process."""
    rows = []
    for n in (4, 8) if quick else (FEW, MANY):
        made = fresh.call(patch_prompts, here=quick, threads=torch.get_num_threads(), n=n)
        what = f"peak memory of patching {n} functions"
        rows.append(Row(what=what, value=made.peak / MB, unit="MB", note="of a fresh process"))
    few, many = (row.value for row in rows)
    rows.append(Row(what="peak memory, many : few", value=many / few, unit="x", goal=FLAT))
    return rows
