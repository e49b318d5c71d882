"""The search for a circuit: proposed by attribution, decided by exact ablation."""

from collections.abc import Callable, Sequence
from itertools import combinations, compress
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from icl_interp.circuits.expected import Expected, expected_moves, expected_moves_of_edges
from icl_interp.circuits.nodes import Ablated, Circuit, Edge
from icl_interp.circuits.pruning import Pruned, fewest, pruned
from icl_interp.circuits.shares import interval_columns
from icl_interp.errors import InputError, real, whole
from icl_interp.interventions.edges import edges_of
from icl_interp.models.hooked import HookedModel
from icl_interp.models.parts import READ_IN, READ_OUT
from icl_interp.models.transformer import model_in
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_array, make_table

N_FUNCTIONS = 256
N_RANDOM = 100
N_RUNS = 2000
N_SETS = 10  # random sets of parts for completeness
Item = TypeVar("Item")


def circuit(
    checkpoint: Any,
    tolerance: float = 0.05,
    *,
    with_edges: bool = True,
    n_functions: int = N_FUNCTIONS,
    n_random: int = N_RANDOM,
    n_runs: int = N_RUNS,
    seed: int = 0,
) -> Circuit:
    """A smallest set of heads and MLPs that keeps the error of a model, all others at their means.

    Gradients propose an order of parts. Parts then leave in this order, several at once where the
    exact error stays within the tolerance; a second search begins with the fewest parts at the
    other end of the order that will do, and prunes these. The smaller set is the circuit. No part
    of it can be left out; a smaller set of other parts is not excluded. Edges between its parts are
    pruned in the same way. What is reported is measured on fresh prompts, so the error there may
    lie a little beyond the tolerance.

    Assumes that a part which gives its mean over prompts is one that does nothing for them.

    Two parts that cancel each other leave together where gradients show it. Three that do so only
    together are kept, though they do nothing.

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
        n_runs: of the search for edges, at most. `n_untried` of what it gives says how many edges
            it did not come to.
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
    whole(n_runs, "n_runs", 1)
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
    edges = Pruned([], 0)
    if with_edges:
        edges = _edges(search, kept, tolerance, n_runs)
    judge = search.on(checkpoint, task.sample(n_functions, generator(seed, "circuits/judge")))
    return _judged(judge, kept, edges, tolerance, n_random, seed)


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
        removed = set(every) - set(kept)
        enough = float(search.without(removed).mean()) <= limit
        if enough:
            search.begin_at(removed)  # the next sets differ from this one by little
        return enough

    # One search takes parts away, one begins with the fewest that will do in the opposite order;
    # both end with a set that no part can leave, nor two that seem to cancel each other.
    expected = expected_moves(search)
    rises = expected.rises()
    order = sorted(rises, key=rises.__getitem__)
    shrunk = _without_pairs(order, order, expected, fits)
    grown = _without_pairs(fewest(order[::-1], fits), order, expected, fits)
    best = min(shrunk, grown, key=len)
    return tuple(part for part in every if part in best)


def _without_pairs(
    kept: Sequence[str],
    order: Sequence[str],
    expected: Expected,
    fits: Callable[[Sequence[str]], bool],
) -> list[str]:
    """What is left where parts leave alone, and two at a time if they seem to cancel each other."""
    left = pruned(kept, order, fits).left
    waiting = expected.cancelling(left)
    while waiting:
        pair = waiting.pop(0)
        fewer = [part for part in left if part not in pair]
        if fits(fewer):
            left = pruned(fewer, order, fits).left
            waiting = expected.cancelling(left)
    return left


def _edges(search: Ablated, kept: tuple[str, ...], tolerance: float, n_runs: int) -> Pruned:
    """Edges that stay between parts that stay, the read-in and the read-out."""
    inside = edges_between(search.model, kept)
    rises = expected_moves_of_edges(search, inside).rises()
    order = sorted(rises, key=rises.__getitem__)
    others = set(search.parts) - set(kept)
    limit = float(search.without(()).mean()) + tolerance

    def fits(left: Sequence[Edge]) -> bool:
        gone = set(inside) - set(left)
        return float(search.without(others, gone).mean()) <= limit

    return pruned(inside, order, fits, n_runs)


def _judged(
    judge: Ablated, kept: tuple[str, ...], edges: Pruned, tolerance: float, n_random: int, seed: int
) -> Circuit:
    """Everything that is said of a circuit."""
    # The circuit as a whole, then its edges, then every part of it, then random sets.
    every = judge.parts
    others = set(every) - set(kept)
    model = judge.without(()).numpy()
    alone = judge.without(others).numpy()
    judge.begin_at(others)  # what follows first differs from the circuit by little
    nothing = judge.without(every).numpy()
    summary = {
        "error of the model": bootstrap(_same, model, seed=seed),
        "error of the circuit": bootstrap(_same, alone, seed=seed),
        "error without any part": bootstrap(_same, nothing, seed=seed),
        "faithfulness": bootstrap(_kept, model, alone, nothing, seed=seed),
    }
    if edges.left:
        gone = set(edges_between(judge.model, kept)) - set(edges.left)
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
        edges=tuple(edges.left),
        n_untried=edges.n_untried,
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
    sets = list(filter(None, dict.fromkeys(sets)))
    others = set(judge.parts) - set(kept)
    by_set = {removed: judge.without({*others, *removed}).numpy() for removed in sets}
    judge.begin_at(())  # the model without a set differs from the model by little
    names = []
    errors: list[tuple[float, float]] = []
    gaps = []
    for removed, alone in by_set.items():
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
