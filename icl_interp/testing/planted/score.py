"""What each tool finds of what is planted: parts found, others named, and whether intervals cover.

A tool *names* what its own test at 5 % names and what has a size worth naming. Its intervals are
compared with the planted numbers, or with those of many more prompts where the plan gives none.
Intervals of a number that is the same in all prompts have no width; they are not counted.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from icl_interp import contrasts
from icl_interp.circuits.activations import patch_activations
from icl_interp.circuits.attribution import attribute_edges
from icl_interp.circuits.nodes import Ablated
from icl_interp.circuits.paths import patch_paths, path_predictions
from icl_interp.circuits.search import circuit
from icl_interp.contrasts import Way
from icl_interp.interventions.edges import edges_of
from icl_interp.interventions.patching import patch
from icl_interp.models.transformer import HookedTransformer, tokens_in
from icl_interp.probes.influence import ExampleInfluence
from icl_interp.probes.learned import fit
from icl_interp.probes.roles import roles
from icl_interp.probes.units import mean_over_functions
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import rows_in
from icl_interp.testing.planted.base import Planted

LEVEL = 0.05
TOLERANCE = 0.02  # of circuits, in units of the error of predicting 0
METHODS = (
    "activation patching",
    "path patching",
    "attribution patching",
    "example influence",
    "learned probes",
    "steer",
    "project out",
    "head roles",
    "circuit",
    "circuit edges",
)
N_FUNCTIONS = 64  # pairs of prompts of a contrast
N_CAUSAL = 64  # prompts of edits along directions
N_DIRECTIONS = 19  # random ones beside an edit: the least p-value is 0.05
N_CIRCUIT = 128  # prompts of the search for a circuit, and as many that judge it
N_MANY = 2048  # prompts that intervals are compared with
N_SIZE = 8192  # prompts that tell how much an answer varies
N_RANDOM = 20  # sets beside a circuit
HAS_ROLE = 0.25  # a quarter of the way from chance to all attention
LEAST = 0.01  # of a share: what leaks past a score of -30 is far below
FOLLOWS = 0.1  # of the change that a steered prediction should make
FAINT = 0.05  # of an even share: a weight below counts as none
SAME_ROW = 0.01  # squared distance of hat rows, of their size
NOISE = 0.5  # of a probe's target, in standard deviations of the answer
R2 = 1 / (1 + NOISE**2)  # what a linear reader of the answer reaches
STILL = 1e-6  # width of an interval that has none


@dataclass(frozen=True)
class Score:
    """What one tool said of one model.

    Attributes:
        planted: things that it should name.
        found: of these, named ones.
        others: things that it should not name.
        named: of these, named ones.
        intervals: that have a width and something to cover.
        covered: of these, those that do.
    """

    planted: int
    found: int
    others: int
    named: int
    intervals: int = 0
    covered: int = 0

    def __add__(self, other: "Score") -> "Score":
        mine = vars(self)
        theirs = vars(other)
        return Score(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def exact(self) -> bool:
        """Whether everything planted was named, and nothing else."""
        return self.found == self.planted and not self.named

    @classmethod
    def of(
        cls,
        named: Collection[Any],
        planted: Collection[Any],
        candidates: Iterable[Any],
        covers: Iterable[bool] = (),
    ) -> "Score":
        """Of sets.

        >>> Score.of({1, 2}, {2, 3}, range(5), [True])
        Score(planted=2, found=1, others=3, named=1, intervals=1, covered=1)
        """
        wrong = [one for one in candidates if one not in planted]
        found = [one for one in planted if one in named]
        also = [one for one in wrong if one in named]
        judged = list(covers)
        return cls(len(planted), len(found), len(wrong), len(also), len(judged), sum(judged))


NOTHING = Score(0, 0, 0, 0)
Scores = Iterator[tuple[str, Score]]


def scored(one: Planted) -> dict[str, Score]:
    """The score of every method on a planted model, by the names of `METHODS`."""
    total: dict[str, Score] = dict.fromkeys(METHODS, NOTHING)
    for ask in (_patching, _influence, _probes, _roles, _circuits):
        for name, score in ask(one):
            total[name] += score
    return total


def covers(low: float, high: float, value: float) -> Iterable[bool]:
    """Whether an interval covers a number; nothing where it has no width.

    >>> list(covers(0.0, 1.0, 0.5)), list(covers(0.0, 1.0, 2.0)), list(covers(1.0, 1.0, 1.0))
    ([True], [False], [])
    """
    if high - low > STILL * max(1.0, abs(value)):
        yield bool(low <= value <= high)


# ---- patching ------------------------------------------------------------------------------------


def _patching(one: Planted) -> Scores:
    """Heads whose output is patched, edges patched exactly, and edges by gradients.

    The intervals of all three are compared with exact shares over many more pairs.
    """
    model = one.checkpoint.model
    for kind, carrying in one.truth.carried.items():
        make = contrasts.KINDS[kind]
        task = one.checkpoint.task
        pairs = make(task, n_functions=N_FUNCTIONS, seed=one.seed)
        many = make(task, n_functions=N_MANY, seed=one.seed + 1)
        way = Way.of(one.checkpoint, many)
        clean = tokens_in(many.clean, one.checkpoint)
        corrupted = tokens_in(many.corrupted, one.checkpoint)
        # Heads.
        by_head = _whole_shares(model, clean, corrupted, way)
        table = patch_activations(one.checkpoint, pairs, "z", ("head",))
        planted = {writer for writer, _ in carrying if writer.startswith("head")}
        yield "activation patching", _of_shares(table, list(by_head), planted, by_head)
        # Edges.
        order = sorted(carrying)
        out = path_predictions(model, clean, corrupted, order)[..., 0].double().cpu()
        exact: dict[Any, float] = dict(zip(order, map(way.share, out), strict=True))
        table = patch_paths(one.checkpoint, pairs)
        names = list(zip(table["writer"], table["reader"], strict=True))
        yield "path patching", _of_shares(table, names, carrying, exact)
        table = attribute_edges(one.checkpoint, pairs, n_checked=2).table
        yield "attribution patching", _of_shares(table, names, carrying, exact)


def _whole_shares(
    model: HookedTransformer, clean: Tensor, corrupted: Tensor, way: Way
) -> dict[Any, float]:
    """The exact share of every head."""

    def share(out: Tensor) -> float:
        return way.share(out[:, -1, 0].double().cpu())

    found = patch(model, clean, corrupted, share, "z", by=("head",))
    shares = {}
    for layer, row in enumerate(found.values):
        for head, value in enumerate(row):
            shares[f"head {layer}.{head}"] = float(value)
    return shares


def _of_shares(
    table: pd.DataFrame, names: list[Any], planted: Collection[Any], exact: dict[Any, float]
) -> Score:
    """Of a table of shares with q-values, a row a name."""
    named = set()
    judged: list[bool] = []
    for name, row in zip(names, rows_in(table), strict=True):
        if row["q"] < LEVEL and abs(row["share"]) >= LEAST:
            named.add(name)
        if name in planted:
            judged += covers(row["low"], row["high"], exact[name])
    return Score.of(named, planted, names, judged)


# ---- examples ------------------------------------------------------------------------------------


def _influence(one: Planted) -> Scores:
    """Examples that carry weight, and the hat row as a whole; nothing where there is no row."""
    hat = one.truth.hat
    if hat is None:
        return
    found = ExampleInfluence.measure(one.checkpoint, inputs=False, seed=one.seed)
    prompts = found.prompts
    weights = found.weights.values
    planted = hat(prompts).numpy()
    n_examples = weights.shape[1]
    least = FAINT / n_examples
    named: set[Any] = set()
    for i in range(n_examples):
        if mean_over_functions(np.abs(weights[:, i]), prompts).low > least:
            named.add(i)
    carrying: set[Any] = set(np.flatnonzero(np.abs(planted).mean(0) > least).tolist())
    # The row itself is one more thing to find.
    carrying.add("row")
    if ((weights - planted) ** 2).sum() < SAME_ROW * (planted**2).sum():
        named.add("row")
    rows = hat(_many(one)).numpy()
    exact = {"sum of weights": rows.sum(1).mean()}
    exact["effective examples"] = (np.abs(rows).sum(1) ** 2 / (rows**2).sum(1)).mean()
    judged: list[bool] = []
    for row in rows_in(found.summary()):
        if row["name"] in exact:
            judged += covers(row["low"], row["high"], exact[row["name"]])
    yield "example influence", Score.of(named, carrying, [*range(n_examples), "row"], judged)


# ---- probes --------------------------------------------------------------------------------------


def _probes(one: Planted) -> Scores:
    """Depths at which the answer can be read, and at which edits say that it is used.

    What probes read is the answer with noise, so that the R2 of a perfect reader is known.
    """
    # How much the answer varies tells how much noise there is to be.
    wide = one.checkpoint.task.sample(N_SIZE, generator(one.seed, "planted/size"))
    size = float(one.truth.answer(wide).std())

    def target(prompts: Prompts) -> Tensor:
        draw = generator(one.seed, f"planted/noise/{one.family}")
        noise = torch.randn(len(prompts), generator=draw, dtype=torch.float64)
        return one.truth.answer(prompts) + NOISE * size * noise

    # One probe a depth, and both edits along what it reads.
    found = fit(one.checkpoint, target, seed=one.seed)
    fresh = one.checkpoint.task.sample(N_CAUSAL, generator(one.seed, "planted/causal"))
    named: dict[str, set[str]] = {"learned probes": set(), "steer": set(), "project out": set()}
    decided = []
    judged: list[bool] = []
    for i, row in enumerate(rows_in(found.table)):
        hook = row["hook"]
        if hook in one.truth.undecided:
            continue
        decided.append(hook)
        if row["p"] < LEVEL and row["selectivity"] > 0:
            named["learned probes"].add(hook)
        if hook in one.truth.readable:
            judged += covers(row["low"], row["high"], R2)
        table = found.causal(i, prompts=fresh, effect=_ones, n_random=N_DIRECTIONS)
        for edit, value, p in table[["edit", "value", "p"]].to_numpy().tolist():
            follows = value >= FOLLOWS if edit == "steer" else value > 1
            if p <= LEVEL and follows:
                named[edit].add(hook)
    readable, used = one.truth.readable, one.truth.used
    yield "learned probes", Score.of(named["learned probes"], readable, decided, judged)
    yield "steer", Score.of(named["steer"], used, decided)
    yield "project out", Score.of(named["project out"], used, decided)


def _ones(prompts: Prompts) -> Tensor:
    """A unit of the answer moves the prediction by one."""
    return torch.ones(len(prompts))


# ---- roles ---------------------------------------------------------------------------------------


def _roles(one: Planted) -> Scores:
    """Roles of heads; nothing where attention is linear, as shares are not defined there."""
    if one.checkpoint.model.cfg.score_fn != "softmax":
        return
    table = roles(one.checkpoint, seed=one.seed)
    many = roles(one.checkpoint, _many(one))
    exact = many["score"].to_numpy()
    named = set()
    decided = []
    judged: list[bool] = []
    for i, row in enumerate(rows_in(table)):
        head = f"head {row['layer']}.{row['head']}"
        pair = (head, row["role"])
        # Positions alone have no p-value; a copy attends as the head that it is one of.
        if row["role"] == "position only" or head in one.truth.copies:
            continue
        # Random heads may have a role by chance.
        by_chance = pair not in one.truth.roles and exact[i] >= HAS_ROLE
        if pair in one.truth.open_roles or by_chance:
            continue
        decided.append(pair)
        if row["p"] < LEVEL and row["score"] >= HAS_ROLE:
            named.add(pair)
        if pair in one.truth.roles:
            judged += covers(row["low"], row["high"], exact[i])
    yield "head roles", Score.of(named, one.truth.roles, decided, judged)


# ---- circuits ------------------------------------------------------------------------------------


def _circuits(one: Planted) -> Scores:
    """Heads and MLPs of the circuit, and its edges."""
    found = circuit(
        one.checkpoint, TOLERANCE, n_functions=N_CIRCUIT, n_random=N_RANDOM, seed=one.seed
    )
    # The same means, on many more prompts.
    tried = one.checkpoint.task.sample(N_CIRCUIT, generator(one.seed, "circuits/search"))
    search = Ablated.measure(one.checkpoint, tried)
    many = search.on(one.checkpoint, _many(one))
    others = set(search.parts) - set(found.parts)
    intact = float(many.without(()).mean())
    alone = float(many.without(others).mean())
    nothing = float(many.without(search.parts).mean())
    exact = {"error of the model": intact, "error of the circuit": alone}
    exact["error without any part"] = nothing
    exact["faithfulness"] = (nothing - alone) / (nothing - intact)
    for part in found.parts:
        exact[part] = float(many.without({*others, part}).mean()) - alone
    judged: list[bool] = []
    for table in (found.summary, found.minimality):
        key = str(table.columns[0])
        for row in rows_in(table):
            if row[key] in exact:
                judged += covers(row["low"], row["high"], exact[row[key]])
    yield "circuit", Score.of(found.parts, one.truth.parts, search.parts, judged)
    every = edges_of(one.checkpoint.model)
    yield "circuit edges", Score.of(found.edges, one.truth.edges, every)


def _many(one: Planted) -> Prompts:
    """Prompts that numbers are compared on."""
    return one.checkpoint.task.sample(N_MANY, generator(one.seed, "planted/many"))
