"""The iterate that is nearest to each layer of the bundled softmax models (Fu et al., Figure 3)."""

from dataclasses import replace
from pathlib import Path

from icl_interp.analyses.criterion import Estimate
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.errors import rows_of
from icl_interp.experiments.presets import of_regression
from icl_interp.experiments.settings import read
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement
from icl_interp.results import Result, table_of_rows
from icl_interp.studies.newton.claims import iterations
from icl_interp.studies.newton.measurements.iterates import NEWTON, iterates

SOURCE = "Fu, Chen, Jia & Sharan (2023), Figure 3, by another measure of what is near"
MODELS = ("softmax_fixed_14", "softmax_fixed_20", "softmax_fixed_no_positions")
SIZES = {
    "smoke": "2 layers, d = 2, 100 steps: shows that it runs, and nothing else",
    "small": "3 layers of 4 heads, d = 4, N = 14 and 20",
    "paper": "12 layers of 8 heads, d = 20, N = 70 and 100",
}


def run(setup: Setup) -> dict[str, Result]:
    """Of each model the best iterates by layer, and the numbers that the claims judge."""
    layers = []
    trends = []
    for name in setup.among(MODELS):
        result = setup.measure(name, iterates)
        layers += [{"model": name, **row} for row in iterations.rows(result)]
        found = iterations.numbers(result)
        for quantity, each in iterations.LINEAR_CLAIM.criterion.named(found).items():
            ends = {"value": each.value, "low": each.low, "high": each.high}
            trends.append({"model": name, "quantity": quantity, **ends})
    if not layers:
        return {}
    note = "k of the nearest iterate by layer, with 95 % intervals over functions"
    tables: dict[str, Result] = {"layers": table_of_rows(layers, note=note)}
    tables["trends"] = table_of_rows(trends, note="numbers of both claims")
    return tables


def states(results: Results) -> tuple[Statement, ...]:
    """Of each model Newton's best iterates, and what both claims say of it."""
    # The numbers of each model, and its iterates by layer in words.
    trends: dict[str, dict[str, Estimate]] = {}
    for row in rows_of(results, "trends"):
        name = row["quantity"]
        its = trends.setdefault(row["model"], {})
        its[name] = Estimate(name, row["value"], row["low"], row["high"])
    best: dict[str, list[str]] = {}
    for row in rows_of(results, "layers"):
        if row["rival"] == NEWTON:
            best.setdefault(row["model"], []).append(f"{row['k']:.1f}")
    lines = []
    for model, evidence in trends.items():
        words = f"Newton's best iterates are {', '.join(best[model])} by layer."
        for claim in iterations.CLAIMS:
            rule = replace(claim.criterion, terms="")
            line = Statement(f"{model}, {claim.id}: {words}", rule, evidence)
            lines.append(line)
    return tuple(lines)


LAYERS_EXPERIMENT = Experiment(
    "newton.layers",
    "The iterate that is nearest to each layer",
    SOURCE,
    tuple(Model(name, scaled=of_regression) for name in MODELS),
    run,
    states,
    sample="512 functions, read-outs fitted on 1,024 others",
    sizes=SIZES,
    settings=read(Path(__file__).with_name("settings.json"))["layers"],
)
