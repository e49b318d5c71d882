"""Figures 5 and 10: layers on augmented tokens against steps of gradient descent.

There are as many steps as layers. Layers are linear or full.

Steps have one size for all prompts and steps, the best for their number on other sequences. Errors
are those of the last quarter of the prompt: before d transitions W is not determined, and there all
methods fail alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.criterion import Criterion
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.settings import Setting
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.provenance import encode
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, make_array, table_of_rows
from icl_interp.studies.autoregression.experiments import models, settings
from icl_interp.studies.autoregression.experiments.models import LEARNED
from icl_interp.studies.autoregression.measurements.descent_steps import Path, best_sizes, late
from icl_interp.tasks.autoregressive import AutoregressiveProcess

LAYERS = {"smoke": (1, 2), "small": (1, 2, 4, 6, 8, 10), "paper": (1, 2, 3, 4, 6, 8, 10)}
STEPS = (1, 2, 3, 4, 6, 8, 10, 12, 16)  # of gradient descent
PAPER_DIMS = 5

FEW = 2  # layers up to which the paper finds linear ones competitive; beyond them descent is better
# What the stored results were measured on, which do not tell it: before relation (4) itself.
WIDE = "the stream has a width of 32, which leaves room beside the 3 d numbers of a token"
OF_TOKENS = "the stream is the token itself, 3 d numbers, and one head reads and writes all of it"
COMPETITIVE = at_most("error of 1 or 2 linear layers / error of as many steps", 1.5, 3.0, LEARNED)
OVERTAKEN = at_least(
    "error of 3 linear layers or more / error of as many steps", 10.0, 2.0, LEARNED
)
GAINS = at_least(
    "error over descent's with the most linear layers / the same with 2", 2.0, 1.0, LEARNED
)
BETTER = at_most("error of full layers / error of as many steps", 0.9, 1.1, LEARNED)


@dataclass(frozen=True)
class Kind:
    """A kind of transformer whose depth is compared with steps.

    Attributes:
        recipe: of one number of layers.
        words: what it is.
        expected: rule and sentence for the numbers of layers that a function picks.
    """

    recipe: str
    words: str
    expected: tuple[tuple[Criterion, str, Callable[[int], bool]], ...]

    def model(self, layers: int) -> models.VariedModel:
        """The model of so many layers."""
        scales = [scale for scale, held in LAYERS.items() if layers in held]
        label = f"{layers} layer{'s' * (layers > 1)} of tokens"
        fields = {"n_layers": layers}
        at_paper = {"n_dims": PAPER_DIMS}
        return models.varied(self.recipe, label, 0, scales, model=fields, at_paper=at_paper)

    @property
    def models(self) -> dict[int, models.VariedModel]:
        """All of them by their number of layers."""
        return {layers: self.model(layers) for layers in LAYERS["paper"]}


LINEAR = Kind(
    "autoregression_relation_4",
    "layers of linear attention with norms",
    (
        (
            COMPETITIVE,
            "the first layers are competitive with gradient descent",
            lambda layers: layers <= FEW,
        ),
        (
            OVERTAKEN,
            "gradient descent outperforms more layers by orders of magnitude",
            lambda layers: layers > FEW,
        ),
    ),
)
FULL = Kind(
    "autoregression_full_tokens",
    "layers of softmax attention and MLP with norms",
    (
        (
            BETTER,
            "full transformers outperform as many steps of gradient descent",
            lambda layers: True,
        ),
    ),
)


def descent_errors(setup: Setup, task: AutoregressiveProcess) -> DataArray:
    """Error of gradient descent over that of predicting 0, (step, block).

    Errors are those of the last quarter of the prompt.
    """

    def compute() -> DataArray:
        sizes = best_sizes(task, 1, setup.seed)
        points = late(task.n_points)
        found = []
        # A row a block: mean squares of each number of steps, over late points.
        for prompts in models.blocks(setup, task):
            total = torch.zeros(len(STEPS), dtype=torch.float64)
            for t in points:
                path = Path(prompts.xs[:, : t + 1])
                for i, n_steps in enumerate(STEPS):
                    size = torch.tensor([sizes[n_steps]], dtype=torch.float64)
                    said = path.descended(size, n_steps)[..., 0]
                    gap = said - prompts.ys[:, t]
                    total[i] += gap.square().mean()
            found.append(total / len(points))
        values = torch.stack(found, 1).numpy() / models.mean_square(setup, task)
        return make_array(values, {"step": STEPS, "block": range(values.shape[1])})

    kept = setup.keep(
        "autoregression: gradient descent in context", [], compute, task=encode(task), steps=STEPS
    )
    assert isinstance(kept, DataArray)
    return kept


def measure(kind: Kind, setup: Setup) -> dict[str, Result]:
    """Late errors by layers and by steps with intervals, and their quotients."""
    here = {}
    for layers, model in kind.models.items():
        if setup.has(model.name):
            here[layers] = model.name
    if not here:
        return {}
    first = next(iter(here.values()))
    task = models.task_of(setup.models[first])
    steps = descent_errors(setup, task)
    rows = []
    for n_steps in STEPS:
        row = _row("gradient descent", n_steps, steps.sel(step=n_steps).values)
        rows.append({"all points": np.nan, **row})
    # Late errors of so many layers and of as many steps, block by block.
    pairs = {}
    quotients = []
    for layers, name in here.items():
        points = models.point_errors(setup, name, task)
        own = models.scored(points, late=True)
        everywhere = float(models.scored(points).mean())
        row = _row("layers", layers, own)
        rows.append({"all points": everywhere, **row})
        pairs[layers] = (own, steps.sel(step=layers).values)
        ratio = bootstrap(lambda a, b: a / b, *pairs[layers], positive=True)
        quotients.append({"layers": layers, **models.ends(ratio)})
    words = (
        "squared error over that of predicting 0, last quarter of the prompt; 95 % bootstrap over "
        "blocks"
    )
    where = f"d = {task.n_dims}, {task.n_points} states"
    paired = "layers over as many steps, paired by block: the same matrices"
    return {
        "errors": table_of_rows(rows, f"{where}; {words}"),
        "quotients": table_of_rows(quotients, paired),
        "layer": _layer(setup, first),
        **_trend(pairs),
    }


def _trend(pairs: Mapping[int, tuple[Any, Any]]) -> dict[str, DataFrame]:
    """How much descent gains on layers from `FEW` of them to the most; none where fewer are here.

    Args:
        pairs: by the number of layers, their errors and those of as many steps, block by block.
    """
    most = max(pairs)
    if FEW not in pairs or most <= FEW:
        return {}

    def gain(few: Any, few_steps: Any, many: Any, many_steps: Any) -> Any:
        return many / many_steps / (few / few_steps)

    ratio = bootstrap(gain, *pairs[FEW], *pairs[most], positive=True)
    row = {"layers": most, **models.ends(ratio)}
    return {"trend": table_of_rows([row], f"over the same quotient with {FEW} layers")}


def _layer(setup: Setup, name: str) -> DataFrame:
    """What the layers are, which all models share."""
    cfg = setup.models[name].model.cfg
    row = {
        "width": cfg.d_model,
        "token": cfg.d_in,
        "heads": cfg.n_heads,
        "norm": str(cfg.normalization_type),
        "norm stands": cfg.norm_position,
    }
    return table_of_rows([row], "the layers of all these models")


def _row(what: str, n: int, blocks: Any) -> dict[str, Any]:
    error = bootstrap(lambda x: x, np.asarray(blocks), positive=True)
    return {"what": what, "number": n, **models.ends(error, "error")}


# ---- what came out -------------------------------------------------------------------------------


def say(kind: Kind, results: Results) -> tuple[Statement, ...]:
    """How layers compare with steps, and which number of steps each is worth."""
    quotients = errors.rows_of(results, "quotients")
    if not quotients:
        return (note("No model is here, so nothing is measured."),)
    lines = []
    for rule, sentence, picked in kind.expected:
        own = [row for row in quotients if picked(row["layers"])]
        if own:
            lines.append(_states(results, rule, sentence, own))
    trend = errors.rows_of(results, "trend")
    if trend and kind is LINEAR:
        lines.append(_states_trend(results, trend[0]))
        lines.append(note(_overtakes(quotients)))
    return (*lines, note(_worth(kind, results)))


def _states_trend(results: Results, row: Mapping[str, Any]) -> Statement:
    """Whether descent gains on layers as both grow in number."""
    text = (
        f"as layers are added, descent with as many steps gets ahead: from {FEW} to "
        f"{row['layers']} layers the error over that of descent grows {row['ratio']:.3g}-fold "
        f"[{row['low']:.3g}, {row['high']:.3g}]."
    )
    few = _error(results, FEW)
    most = _error(results, row["layers"])
    given = {LEARNED.quantity: max(few, most)}
    return statement(text, GAINS, models.ratio_of(row), given=given)


def _overtakes(quotients: Sequence[Mapping[str, Any]]) -> str:
    """From which number of layers on descent errs less."""
    worse = [row["layers"] for row in quotients if row["low"] > 1]
    if not worse:
        most = max(map(itemgetter("layers"), quotients))
        return f"Up to {most} layers, descent with as many steps never errs less."
    return f"From {min(worse)} layers on, descent with as many steps errs less."


def _states(
    results: Results, rule: Criterion, sentence: str, own: Sequence[Mapping[str, Any]]
) -> Statement:
    words = []
    found = []
    for row in own:
        layers = row["layers"]
        words.append(f"{layers} layer{'s' * (layers > 1)} {models.ratio_text(row)}")
        found.append(_error(results, layers))
    listed = "; ".join(words)
    layer = OF_TOKENS if "layer" in results else WIDE
    text = (
        f"{sentence}: at late points the error over that of as many steps is, for {listed} (one "
        f"run each; {layer})."
    )
    given = {LEARNED.quantity: max(found)}
    ratios = map(models.ratio_of, own)
    return statement(text, rule, *ratios, given=given)


def _error(results: Results, layers: int) -> float:
    """The late error of so many layers."""
    (row,) = errors.rows_of(results, "errors", what="layers", number=layers)
    return row["error"]


def _worth(kind: Kind, results: Results) -> str:
    steps = errors.rows_of(results, "errors", what="gradient descent")
    parts = []
    for row in errors.rows_of(results, "errors", what="layers"):
        better = [one["number"] for one in steps if one["error"] >= row["error"]]
        worth = f"as good as {better[-1]} steps at least" if better else "worse than 1 step"
        parts.append(f"{row['number']}: {row['error']:.2g}, {worth}")
    listed = "; ".join(parts)
    return f"Late errors over that of predicting 0, by number of {kind.words}: {listed}."


def compare(results: Results) -> DataFrame | None:
    """Late errors by layers and steps; the paper's figures print no numbers."""
    found = results.get("errors")
    return found if isinstance(found, DataFrame) else None


def _experiment(
    kind: Kind, number: int, title: str, source: str, beside: tuple[Setting, ...]
) -> Experiment:
    sizes = {
        "smoke": f"1 and 2 {kind.words}, width 3 d, 40 steps: shows that it runs, and nothing else",
        "small": f"1 to 10 {kind.words}, width 3 d, d = 3, 20 states, 4,000 steps of Adam",
        "paper": f"1 to 10 {kind.words}, width 3 d, d = 5, 50 states, 16,000 steps of Adam",
    }
    return Experiment(
        f"autoregression.figure{number}",
        title,
        f"{models.WORK}: {source}",
        tuple(kind.models.values()),
        lambda setup: measure(kind, setup),
        lambda results: say(kind, results),
        compare,
        sample=models.SAMPLE,
        sizes=sizes,
        settings=beside,
    )


FIGURE5_EXPERIMENT = _experiment(
    LINEAR,
    5,
    "Layers of linear attention against steps of gradient descent",
    "Figure 5 and section 6, augmented setting",
    settings.FIGURE5,
)
FIGURE10_EXPERIMENT = _experiment(
    FULL,
    10,
    "Full transformers against steps of gradient descent",
    "Figure 10 and appendix B",
    settings.FIGURE10,
)
