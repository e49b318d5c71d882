"""The search for a circuit: proposed by attribution, decided by exact ablation."""

from collections.abc import Callable, Sequence
from itertools import combinations, compress
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from icl_interp.circuits.attribution import gradients
from icl_interp.circuits.nodes import Ablated, Circuit, Edge
from icl_interp.circuits.shares import interval_columns
from icl_interp.errors import InputError, real, whole
from icl_interp.interventions.base import mean_activations
from icl_interp.interventions.edges import edges_of, readers, writers, written
from icl_interp.models.hooked import HookedModel
from icl_interp.models.parts import READ_IN, READ_OUT
from icl_interp.models.transformer import chunks, model_in
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_array, make_table

N_FUNCTIONS = 256
N_RANDOM = 100
N_SETS = 10  # random sets of parts for completeness
Item = TypeVar("Item")


def circuit(
    checkpoint: Any,
    tolerance: float = 0.05,
    *,
    with_edges: bool = True,
    n_functions: int = N_FUNCTIONS,
    n_random: int = N_RANDOM,
    seed: int = 0,
) -> Circuit:
    """A smallest set of heads and MLPs that keeps the error of a model, all others at their means.

    Gradients propose an order of parts. Parts then leave one after another, and stay away where the
    exact error stays within the tolerance; a second search adds parts in the opposite order and
    prunes. The smaller set is the circuit. No part of it can be left out; a smaller set of other
    parts is not excluded. Edges between its parts are pruned in the same way. What is reported is
    measured on fresh prompts, so the error there may lie a little beyond the tolerance.

    Assumes that a part which gives its mean over prompts is one that does nothing for them.

    Parts leave one at a time. Two heads that cancel each other are therefore kept, though both
    together do nothing (`icl-interp selfcheck --tools`).

    Source: Wang, Variengien, Conmy, Shlegeris & Steinhardt (2022), *Interpretability in the wild*,
    for faithfulness, completeness and minimality; Conmy et al. (2023), *Towards automated circuit
    discovery*, for pruning by exact ablation.

    Args:
        checkpoint: a model with its task and encoding.
        tolerance: by how much the squared error at the query may rise, in units of that of
            predicting 0.
        with_edges: whether to prune edges between the parts, too, where they are defined.
        n_functions: prompts of the search; as many fresh ones judge.
        n_random: random sets of as many heads and MLPs.
        seed: of prompts, random sets and resampling.

    Raises:
        InputError: values that are vectors, errors that are not finite, a tolerance that is not
            positive, a model that has nothing to lose, or edges of a model whose stream is no sum.

    With a tolerance that the mean alone keeps, no part is needed:

    >>> import icl_interp
    >>> loaded = icl_interp.load("affine_attn_only")
    >>> circuit(loaded, 2.0, with_edges=False, n_functions=16, n_random=1).parts
    ()
    """
    real(tolerance, "tolerance", 0, above=True)
    whole(n_functions, "n_functions", 8)
    whole(n_random, "n_random", 1)
    task = getattr(checkpoint, "task", None)
    if task is None:
        raise InputError(
            "a circuit needs a checkpoint with a task, but got a "
            f"{type(checkpoint).__name__}: icl_interp.load gives one, and icl_interp.adapt takes "
            "task="
        )
    if with_edges:
        edges_of(model_in(checkpoint))  # refuses a model that has none
    tried = task.sample(n_functions, generator(seed, "circuits/search"))
    search = Ablated.measure(checkpoint, tried)
    kept = _parts(search, tolerance)
    left: tuple[Edge, ...] = ()
    if with_edges:
        left = _edges(search, kept, tolerance)
    judge = search.on(checkpoint, task.sample(n_functions, generator(seed, "circuits/judge")))
    return _judged(judge, kept, left, tolerance, n_random, seed)


def _parts(search: Ablated, tolerance: float) -> tuple[str, ...]:
    """Parts that stay, in the order of layers."""
    every = search.parts
    intact = float(search.without(()).mean())
    nothing = float(search.without(every).mean())
    if not nothing > intact:
        raise InputError(
            f"with every part at its mean the error is {nothing:.3g}, and {intact:.3g} as it is "
            "(1 is predicting 0): there is nothing that a circuit could keep"
        )
    limit = intact + tolerance

    def fits(kept: Sequence[str]) -> bool:
        return float(search.without(set(every) - set(kept)).mean()) <= limit

    # One search takes parts away, one adds them; both end with a set that no part can leave.
    rises = expected_rises(search)
    order = sorted(rises, key=rises.__getitem__)
    shrunk = pruned(order, order, fits)
    grown: list[str] = []
    for part in reversed(order):
        if fits(grown):
            break
        grown.append(part)
    grown = pruned(grown, order, fits)
    best = min(shrunk, grown, key=len)
    return tuple(part for part in every if part in best)


def pruned(
    kept: Sequence[Item], order: Sequence[Item], fits: Callable[[Sequence[Item]], bool]
) -> list[Item]:
    """What is left where one after another leaves, until none can leave any more.

    Args:
        kept: what there is.
        order: in which they are tried.
        fits: whether a set will do.

    >>> pruned([1, 2, 3, 4], [1, 2, 3, 4], lambda kept: sum(kept) >= 6)
    [3, 4]
    """
    left = list(kept)
    changed = True
    while changed:
        changed = False
        for item in order:
            if item not in left:
                continue
            fewer = left.copy()
            fewer.remove(item)
            if fits(fewer):
                left = fewer
                changed = True
    return left


def expected_rises(search: Ablated) -> dict[str, float]:
    """By how much gradients expect the squared error to rise without each part."""
    # Where each part writes: a hook, and which head there.
    model = search.model
    names: dict[str, tuple[str, int | None]] = {}
    for part in search.parts:
        kind, place = part.split()
        if kind == "head":
            layer, head = place.split(".")
            names[part] = (f"blocks.{layer}.attn.hook_z", int(head))
        else:
            names[part] = (f"blocks.{place}.hook_mlp_out", None)
    hooks = list(dict.fromkeys(hook for hook, _ in names.values()))
    means = mean_activations(model, search.tokens, hooks)
    # How far each prediction moves if a part gives its mean, some prompts at a time.
    moves: dict[str, list[Tensor]] = {part: [] for part in names}
    gaps = []
    for rows in chunks(model, len(search.tokens), search.tokens.shape[1]):
        out, cache = model.run_with_cache(
            search.tokens[rows],
            names_filter=hooks,
            incl_bwd=True,
            number=lambda out: out[:, -1, 0].sum(),
        )
        gaps.append(out[:, -1, 0].double().cpu() - search.truth[rows])
        for part, (hook, head) in names.items():
            product = cache[f"{hook}_grad"] * (means[hook] - cache[hook])
            own = product if head is None else product[:, :, head]
            moves[part].append(own.sum((1, 2)))
    gap = torch.cat(gaps)
    return {part: _rise(gap, torch.cat(moved)) for part, moved in moves.items()}


def _rise(gap: Tensor, moved: Tensor) -> float:
    """Of the mean square of a gap, where each prediction moves."""
    further = gap + moved.double().cpu()
    return float((further.square() - gap.square()).mean())


def _edges(search: Ablated, kept: tuple[str, ...], tolerance: float) -> tuple[Edge, ...]:
    """Edges that stay between parts that stay, the read-in and the read-out."""
    inside = edges_between(search.model, kept)
    rises = expected_rises_of_edges(search, inside)
    order = sorted(rises, key=rises.__getitem__)
    others = set(search.parts) - set(kept)
    limit = float(search.without(()).mean()) + tolerance

    def fits(left: Sequence[Edge]) -> bool:
        gone = set(inside) - set(left)
        return float(search.without(others, gone).mean()) <= limit

    return tuple(pruned(inside, order, fits))


def expected_rises_of_edges(search: Ablated, inside: Sequence[Edge]) -> dict[Edge, float]:
    """By how much gradients expect the squared error to rise without each edge.

    The means of all writers are kept in `search.means`.
    """
    model = search.model
    sources = writers(model)
    hooks = list(dict.fromkeys(part.hook for part in sources.values()))
    means = mean_activations(model, search.tokens, hooks)
    for name, part in sources.items():
        search.means[name] = part.of(means[part.hook][None])
    # Gradients of the intact model, some prompts at a time.
    targets = readers(model)
    moves: dict[Edge, list[Tensor]] = {pair: [] for pair in inside}
    gaps = []
    for rows in chunks(model, len(search.tokens), search.tokens.shape[1]):
        tokens = search.tokens[rows]
        values = written(model, tokens)
        slopes = gradients(model, tokens)
        with torch.no_grad():
            gaps.append(model(tokens)[:, -1, 0].double().cpu() - search.truth[rows])
        for writer, reader in inside:
            target = targets[reader]
            change = search.means[writer] - values[writer]
            product = change * target.of(slopes[target.hook])
            moves[writer, reader].append(product.sum((1, 2)))
    gap = torch.cat(gaps)
    return {pair: _rise(gap, torch.cat(moved)) for pair, moved in moves.items()}


def _judged(
    judge: Ablated,
    kept: tuple[str, ...],
    left: tuple[Edge, ...],
    tolerance: float,
    n_random: int,
    seed: int,
) -> Circuit:
    """Everything that is said of a circuit."""
    # The circuit as a whole, then its edges, then every part of it, then random sets.
    every = judge.parts
    others = set(every) - set(kept)
    model = judge.without(()).numpy()
    alone = judge.without(others).numpy()
    nothing = judge.without(every).numpy()
    summary = {
        "error of the model": bootstrap(_same, model, seed=seed),
        "error of the circuit": bootstrap(_same, alone, seed=seed),
        "error without any part": bootstrap(_same, nothing, seed=seed),
        "faithfulness": bootstrap(_kept, model, alone, nothing, seed=seed),
    }
    if left:
        gone = set(edges_between(judge.model, kept)) - set(left)
        by_edges = judge.without(others, gone).numpy()
        summary["error of the circuit's edges"] = bootstrap(_same, by_edges, seed=seed)
    rises = {}
    for part in kept:
        rise = judge.without({*others, part}).numpy() - alone
        rises[part] = bootstrap(_same, rise, seed=seed)
    completeness, gap = _completeness(judge, kept, seed)
    if gap is not None:
        summary["mean completeness gap"] = gap
    errors = _random_sets(judge, kept, n_random, seed)
    as_good = np.count_nonzero(np.array(errors) <= alone.mean())
    note = f"{len(model)} fresh prompts; units of the error of predicting 0"
    return Circuit(
        parts=kept,
        edges=left,
        tolerance=tolerance,
        summary=_table("quantity", summary, note),
        minimality=_table("without", rises, note),
        completeness=completeness,
        random=make_array(errors, {"set": range(n_random)}, "", note),
        p=(1 + as_good) / (1 + n_random),
    )


def edges_between(model: HookedModel, kept: Sequence[str]) -> list[Edge]:
    """Edges between some parts, the read-in and the read-out."""
    found = []
    for writer, reader in edges_of(model):
        # "head 0.2 k" belongs to head 0.2.
        owner = " ".join(reader.split()[:2])
        if writer in (READ_IN, *kept) and owner in (READ_OUT, *kept):
            found.append((writer, reader))
    return found


def _completeness(
    judge: Ablated, kept: Sequence[str], seed: int
) -> tuple[pd.DataFrame, Interval | None]:
    """Errors of the circuit and of the model without the same parts, and the mean gap.

    Sets are every part alone, and random halves of the circuit.
    """
    # Sets of parts that are taken from the circuit and from the model alike.
    random = np.random.default_rng([seed, len(kept)])
    sets = list(combinations(kept, 1))
    for _ in range(N_SETS if len(kept) > 2 else 0):
        chosen = random.random(len(kept)) < 0.5
        sets.append(tuple(compress(kept, chosen)))
    others = set(judge.parts) - set(kept)
    names = []
    errors: list[tuple[float, float]] = []
    gaps = []
    for removed in filter(None, dict.fromkeys(sets)):
        alone = judge.without({*others, *removed}).numpy()
        model = judge.without(removed).numpy()
        names.append(", ".join(removed))
        errors.append((alone.mean(), model.mean()))
        gaps.append(alone - model)
    if not gaps:
        return make_table({"removed": names}), None
    alone, model = np.transpose(errors)
    intervals = interval_columns([bootstrap(_same, gap, seed=seed) for gap in gaps])
    intervals["gap"] = intervals.pop("value")
    table = make_table({"removed": names, "circuit": alone, "model": model, **intervals})
    mean = bootstrap(lambda means: np.abs(means).mean(-1), np.stack(gaps, 1), seed=seed)
    return table, mean


def _random_sets(judge: Ablated, kept: Sequence[str], n: int, seed: int) -> list[float]:
    """Errors of random sets of as many heads and MLPs."""
    random = np.random.default_rng([seed, n, 1])
    kinds = [_of_kind(judge.parts, "head"), _of_kind(judge.parts, "MLP")]
    counts = [len(_of_kind(kept, "head")), len(_of_kind(kept, "MLP"))]
    errors = []
    for _ in range(n):
        chosen: set[str] = set()
        for known, count in zip(kinds, counts, strict=True):
            chosen.update(random.permutation(known)[:count].tolist())
        errors.append(float(judge.without(set(judge.parts) - chosen).mean()))
    return errors


def _of_kind(parts: Sequence[str], kind: str) -> list[str]:
    return [part for part in parts if part.startswith(kind)]


def _table(name: str, found: dict[str, Interval], note: str) -> pd.DataFrame:
    return make_table({name: list(found), **interval_columns(list(found.values()))}, note=note)


def _same(mean: np.ndarray) -> np.ndarray:
    return mean


def _kept(model: np.ndarray, circuit: np.ndarray, nothing: np.ndarray) -> np.ndarray:
    return (nothing - circuit) / (nothing - model)
