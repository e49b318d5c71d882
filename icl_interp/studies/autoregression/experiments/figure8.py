"""Figure 8: how alike heads are before and after training, where all of them start nearly alike.

The measure is that of the paper's figure: the cosine between the tensors V_h (x) Q_h K_h of two
heads, in size, in the coordinates of tokens and predictions. The rule is that of the claim
`heads_orthogonal_after_training`: random heads are nearly orthogonal already, so heads count as
orthogonal where they are less alike than these. A fall from the start, where all heads are alike,
does not count. Whether heads specialise in coordinates of tokens has the rule of the claim
`heads_specialise`, in the same way.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from xarray import DataArray

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.presets import config
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import encode, generator
from icl_interp.results import Result, make_array, make_table, table_of_rows
from icl_interp.studies.autoregression.claims.heads_orthogonal import ABOVE, LESS, UPPER
from icl_interp.studies.autoregression.claims.specialise import MORE, NO_MORE
from icl_interp.studies.autoregression.experiments import models, settings
from icl_interp.studies.autoregression.experiments.figure7 import LAYER, RECIPE, TRAINING
from icl_interp.studies.autoregression.measurements.head_coordinates import (
    attention_to,
    divided,
    folded,
)
from icl_interp.studies.autoregression.measurements.head_likeness import (
    N_DRAWS,
    cosines,
    head_maps,
    random_cosines,
    random_maps,
)

RUNS = {  # heads and seed
    "smoke": ((4, 0),),
    "small": ((4, 0), (4, 1), (8, 0), (8, 1)),
    "paper": tuple((heads, seed) for heads in (4, 8) for seed in range(4)),
}
SPREAD = 0.1  # of the small changes that tell heads apart at the start, in units of fresh weights
N_RANDOM = 200  # draws of random heads
WHEN = ("before", "after")
LEAST = 1e-12  # division of random heads: one below would be rounding

APART = at_most(
    "mean |cosine| between heads after training / of random heads", LESS, ABOVE, models.LEARNED
)
SPECIALISED = at_least(
    "division of coordinates among heads / upper end of random heads", MORE, NO_MORE, models.LEARNED
)
SIZES = {
    "smoke": "1 layer of linear attention, 4 heads, width 32, 40 steps: shows that it runs, and "
    "nothing else",
    "small": "1 layer of linear attention, 4 and 8 heads, width 32, d = 5, states twice, 3,000 "
    "steps of Adam",
    "paper": "1 layer of linear attention, 4 and 8 heads, width 32, d = 5, states twice, 12,000 "
    "steps of Adam",
}


def overlaps(model: HookedTransformer) -> Float[np.ndarray, "head other"]:
    """|cos| between the tensors of every two heads, with 1 on the diagonal.

    `measurements.head_likeness` defines it.
    """
    forms, maps = head_maps(model)
    n = model.cfg.n_heads
    found = np.eye(n)
    found[np.triu_indices(n, 1)] = cosines(forms, maps).numpy()
    return np.maximum(found, found.T)


def between(matrix: Float[np.ndarray, "head other"]) -> float:
    """The mean over pairs of different heads."""
    n = len(matrix)
    off_diagonal = matrix.sum() - np.trace(matrix)
    n_pairs = n * (n - 1)
    return float(off_diagonal / n_pairs)


class Trained:
    """A model whose heads start alike, trained where something is asked that was not kept."""

    def __init__(self, setup: Setup, wanted: RunConfig) -> None:
        self._setup = setup
        self.wanted = wanted

    @cached_property
    def both(self) -> tuple[np.ndarray, HookedTransformer]:
        """`overlaps` before training, and the model after it."""
        training = self.wanted.training
        assert training is not None
        model = models.alike(self.wanted.model, SPREAD, training.seed)
        before = overlaps(model)
        return before, models.trained(model, self.wanted)

    @property
    def pairs(self) -> DataFrame:
        """Pairs of heads with |cos| before and after; see `_pairs`."""
        kept = self._setup.keep(
            "autoregression: heads that start alike",
            [],
            self._compared,
            config=encode(self.wanted),
            spread=SPREAD,
        )
        assert isinstance(kept, DataFrame)
        return kept

    def _compared(self) -> DataFrame:
        before, model = self.both
        return _pairs(self._setup, self.wanted, before, model)

    @property
    def forms(self) -> DataArray:
        """What heads weigh after training: (head, row, column), in coordinates of tokens."""
        kept = self._setup.keep(
            "autoregression: forms of heads that started alike",
            [],
            self._weighed,
            config=encode(self.wanted),
            spread=SPREAD,
        )
        assert isinstance(kept, DataArray)
        return kept

    def _weighed(self) -> DataArray:
        _, model = self.both
        return _forms(model)


def run(setup: Setup) -> dict[str, Result]:
    """Matrices of |cos| before and after, and their means beside those of random heads.

    Coordinates that heads attend to after training are in "coordinates, ... heads" and "division".
    """
    rows = []
    divisions = []
    results = {}
    for heads, seed in RUNS[setup.preset.name]:
        wanted = _config(heads, seed, setup.preset.name)
        layer = Trained(setup, wanted)
        pairs = layer.pairs
        row: dict[str, Any] = {"heads": heads, "seed": seed}
        axes = {"head": range(1, heads + 1), "other": range(1, heads + 1)}
        for when in WHEN:
            matrix = pairs[when].to_numpy().reshape(heads, heads)
            row[when] = between(matrix)
            if seed == 0:
                name = f"{when}, {heads} heads"
                results[name] = make_array(matrix, axes, note="|cos| of V (x) QK of two heads")
        # These are the same for all pairs.
        for key in ("random heads", "error"):
            row[key] = float(pairs[key].iloc[0])
        rows.append(row)
        # Where heads attend to, and how far they divide the coordinates among themselves.
        forms = torch.from_numpy(layer.forms.values.copy())
        tiles = getattr(wanted.task, "tiles", 1)
        names = {"heads": heads, "seed": seed, "error": row["error"]}
        divisions.append({**names, **division(forms, tiles, setup.seed)})
        if seed == 0:
            results[f"coordinates, {heads} heads"] = _parts(forms)
    words = (
        "mean |cos| of V (x) QK over pairs of heads; error: over that of predicting 0, at late "
        "points"
    )
    apart = (
        "mutual information of head and coordinate of states in |W_Q W_K^T|^2, copies added up; "
        "random heads have the same singular values, and `highest` is their 97.5 % quantile"
    )
    return {
        "means": table_of_rows(rows, words),
        "division": table_of_rows(divisions, apart),
        **results,
    }


def division(
    forms: Float[torch.Tensor, "head row column"], tiles: int, seed: int
) -> dict[str, float]:
    """How far heads divide coordinates of states among themselves, and the upper end of chance.

    It is that of the claim `heads_specialise`, in the coordinates of one copy of the state.
    """
    own = folded(forms, tiles)
    draw = generator(seed, "autoregression/figure 8, coordinates")
    drawn = random_maps(own, N_DRAWS, draw)
    of_heads = divided(attention_to(own))
    by_chance = divided(attention_to(drawn))
    highest = np.quantile(by_chance.numpy(), UPPER)
    return {"division": float(of_heads), "highest": float(highest)}


def _parts(forms: Float[torch.Tensor, "head row column"]) -> DataArray:
    """The part of each coordinate of tokens in what a head weighs."""
    parts = attention_to(forms)
    n_heads, n_coordinates = parts.shape
    axes = {"head": range(1, n_heads + 1), "coordinate": range(1, n_coordinates + 1)}
    return make_array(parts.numpy(), axes, note="part of |QK|^2 in a coordinate's row and column")


def _forms(model: HookedTransformer) -> DataArray:
    forms, _ = head_maps(model)
    axes = {}
    for name, size in zip(("head", "row", "column"), forms.shape, strict=True):
        axes[name] = range(size)
    return make_array(forms.numpy(), axes, note="W_E W_Q W_K^T W_E^T of each head after training")


def _config(heads: int, seed: int, scale: str) -> RunConfig:
    layer = {**LAYER, "n_heads": heads}
    model = models.varied(RECIPE, "", seed, model=layer, training=TRAINING)
    return config(RECIPE, scale, [f"training.seed={seed}"], model.scaled)


def _pairs(
    setup: Setup, wanted: RunConfig, before: np.ndarray, after: HookedTransformer
) -> DataFrame:
    """Pairs of heads with |cos| before and after training.

    Numbers of the whole layer are the same in all rows.
    """
    training = wanted.training
    assert training is not None
    encoding = tokens.named(wanted.encoding)
    found = Checkpoint(after, wanted.task, encoding, wanted, training.steps)
    # The errors are not kept on their own: the whole table is.
    unkept = Setup({}, setup.preset, seed=setup.seed)
    task = models.task_of(found)
    points = models.point_errors(unkept, "heads that start alike", task, found)
    error = models.scored(points, late=True).mean()
    n = before.size
    columns = {
        "before": before.ravel().tolist(),
        "after": overlaps(after).ravel().tolist(),
        "error": [float(error)] * n,
        "random heads": [_random(after, setup.seed)] * n,
    }
    return make_table(columns, note="pairs of heads, row by row")


def _random(model: HookedTransformer, seed: int) -> float:
    """The mean |cos| of as many heads with the singular values of these, and random directions."""
    draw = generator(seed, "autoregression/random heads")
    forms, maps = head_maps(model)
    of_forms = random_cosines(forms, N_RANDOM, draw)
    of_maps = random_cosines(maps, N_RANDOM, draw)
    products = of_forms * of_maps
    return float(products.abs().mean())


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Whether heads that start nearly alike are less alike than random heads after training."""
    rows = errors.rows_of(results, "means")
    if not rows:
        return (note("Nothing is measured."),)
    lines = []
    for heads in dict.fromkeys(row["heads"] for row in rows):
        own = errors.rows_of(results, "means", heads=heads)
        lines.append(_states_heads(heads, own))
    apart = errors.rows_of(results, "division")
    if apart:
        lines.append(_states_division(apart))
    return tuple(lines)


def _states_division(rows: Sequence[Mapping[str, Any]]) -> Statement:
    """Whether heads divide the coordinates among themselves more than random heads do."""
    ratios = [row["division"] / max(row["highest"], LEAST) for row in rows]
    words = []
    for ratio, row in zip(ratios, rows, strict=True):
        words.append(f"{ratio:.3g} ({row['heads']} heads, seed {row['seed']})")
    listed = ", ".join(words)
    text = (
        "heads become specialised in coordinates of states: the division of these among the "
        f"heads, over the 97.5 % quantile of random heads, is {listed}."
    )
    return statement(text, SPECIALISED, *ratios, given=_given(rows))


def _states_heads(heads: int, own: Sequence[Mapping[str, Any]]) -> Statement:
    before = _listed(own, "before")
    after = _listed(own, "after")
    ends = _listed(own, "error")
    text = (
        f"{heads} heads that start nearly alike are less alike than random heads after training: "
        f"the mean |cosine| between their tensors V ⊗ QK goes from {before} to {after} ({len(own)} "
        f"seed{'s' * (len(own) > 1)}); random heads with the same singular values have "
        f"{own[0]['random heads']:.2g}. Late errors are {ends} of that of predicting 0."
    )
    ratios = [row["after"] / row["random heads"] for row in own]
    return statement(text, APART, *ratios, given=_given(own))


def _listed(rows: Sequence[Mapping[str, Any]], key: str) -> str:
    return ", ".join(f"{row[key]:.3g}" for row in rows)


def _given(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The largest error, which tells whether models have learned."""
    worst = max(map(itemgetter("error"), rows))
    return {models.LEARNED.quantity: worst}


def compare(results: Results) -> DataFrame | None:
    """Means before and after; the paper's figure prints no numbers."""
    found = results.get("means")
    return found if isinstance(found, DataFrame) else None


FIGURE8_EXPERIMENT = Experiment(
    "autoregression.figure8",
    "Orthogonality of heads before and after training",
    f"{models.WORK}: Figure 8 and section 6, non-augmented setting",
    (),
    run,
    states,
    compare,
    sample="weights of the trained layers; 200 draws of random heads beside them",
    sizes=SIZES,
    settings=settings.FIGURE8,
)
