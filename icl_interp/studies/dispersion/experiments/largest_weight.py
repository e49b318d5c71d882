"""The largest attention weight by the number of items, as trained and with sharper scores.

Veličković et al. (2024) train attention to find the largest of 16 items and ask it about more. Here
are heads of the bundled softmax models without positions, on prompts of their own tasks. The
control multiplies scores by log n / log N at n keys for the trained N, as scaled softmax does,
without training anew; the work's adaptive temperature is another rule.
"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from xarray import DataArray

from icl_interp.analyses.criterion import INF, Condition, Criterion
from icl_interp.analyses.lab import Lab
from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.errors import rows_of
from icl_interp.experiments.presets import of_regression, training_of, whole_prompts
from icl_interp.experiments.settings import read
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, note, statement
from icl_interp.interventions.attention import Temperature
from icl_interp.interventions.base import Intervention
from icl_interp.results import Result, table_of_rows
from icl_interp.studies.dispersion.claims import disperses
from icl_interp.studies.dispersion.measurements.largest import by_head, lengths, log_weights

SOURCE = (
    "Veličković et al. (2024), largest weights by the number of items (Figure 2 by the notes of a "
    "public re-implementation; the figure itself could not be seen)"
)
ONE_HEAD = "lipschitz_relu"
LAYERS = "softmax_fixed_no_positions"
TRAINED = "as trained"
SHARPENED = "scores times log n / log N"
WEIGHT = "largest weight"
SLOPE = "slope of the flattest head"
RULE = Criterion(
    (Condition(SLOPE, SLOPE, (disperses.STEEPEST, disperses.DISPERSED), (disperses.KEPT, INF)),)
)
SIZES = {
    "smoke": "one softmax head of 20 steps, and 2 layers of 100 steps: shows that it runs, and "
    "nothing else",
    "small": "one softmax head over 100 examples, and 3 layers of 4 heads over 14 examples",
    "paper": "one softmax head over 100 examples, and 12 layers of 8 heads over 70 examples",
}


def at_scale(config: RunConfig, scale: str) -> RunConfig:
    """The run of the single head at another scale: fewer steps at "smoke"."""
    section = training_of(config, scale)
    if scale != "smoke":
        return config
    changes = {"steps": 20, "warmup_steps": 5, "batch_size": 64, "checkpoint_every": 20}
    training = whole_prompts(section, config.task, changes)
    return replace(config, training=replace(training, snapshots=()))


def run(setup: Setup) -> dict[str, Result]:
    """Largest weights of the flattest head by model, scores and n, and its slope."""
    weights = []
    flattest = []
    for name in setup.among((ONE_HEAD, LAYERS)):
        for scores in (TRAINED, SHARPENED):
            result = _measured(setup, name, scores)
            slopes = disperses.Slopes.of(result)
            # The flattest head is the one that may be farthest from dispersing.
            head = int(np.argmax(slopes.value))
            row = {"model": name, "scores": scores, "head": result.indexes["head"][head]}
            ends = {end: float(values[head]) for end, values in slopes._asdict().items()}
            flattest.append(row | ends)
            logs = result.isel(head=head).mean("unit")
            for n, log in zip(logs["n"].values, logs.values, strict=True):
                weights.append({**row, "n": int(n), WEIGHT: float(np.exp(log))})
    if not weights:
        return {}
    words = "geometric mean over functions, of the head with the flattest slope"
    tables: dict[str, Result] = {"weights": table_of_rows(weights, note=words)}
    tables["slopes"] = table_of_rows(flattest, note="slope of log(largest weight) in log n")
    return tables


def _measured(setup: Setup, name: str, scores: str) -> DataArray:
    """Logarithms of the largest weights of a model, (n, head, unit)."""

    def compute() -> DataArray:
        model = setup.models[name]
        lab = Lab(model.model, model.task, model.encoding, seed=setup.seed)
        edits = _sharper(lab) if scores == SHARPENED else None
        values, n_keys = log_weights(lab, edits)
        return by_head(lab, values, n_keys)

    found = setup.keep("dispersion: log of the largest weight", [name], compute, scores=scores)
    assert isinstance(found, DataArray)
    return found


def _sharper(lab: Lab) -> dict[int, Intervention]:
    """For each number of points, scores times log n / log N."""
    # Keys are all tokens, or all but the query.
    hidden = int(lab.model.cfg.keys == "labelled")
    trained = lab.encoding.n_tokens(lab.task.n_points) - hidden
    edits: dict[int, Intervention] = {}
    for points in lengths(lab.task.n_points, lab.seed):
        n_keys = lab.encoding.n_tokens(points) - hidden
        edits[points] = Temperature(math.log(trained) / math.log(n_keys))
    return edits


def states(results: Results) -> tuple[Statement, ...]:
    """For each model the slope of its flattest head, and the same with sharper scores."""
    lines = []
    for row in rows_of(results, "slopes"):
        words = (
            f"{row['model']}, {row['scores']}: the head with the flattest slope, {row['head']}, "
            f"has {row['value']:.2f}."
        )
        trained = row["scores"] == TRAINED
        lines.append(statement(words, RULE, row["low"], row["high"]) if trained else note(words))
    return tuple(lines)


LARGEST_WEIGHT_EXPERIMENT = Experiment(
    "dispersion.largest_weight",
    "The largest attention weight by the number of items",
    SOURCE,
    (Model(ONE_HEAD, scaled=at_scale), Model(LAYERS, scaled=of_regression)),
    run,
    states,
    sample="128 functions, from the trained length to eight times as many points",
    sizes=SIZES,
    settings=read(Path(__file__).with_name("settings.json"))["largest_weight"],
)
