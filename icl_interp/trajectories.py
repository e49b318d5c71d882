"""A run along its training: verdicts, roles of heads, influence of examples and error.

Each is asked of every snapshot of the run, on the same prompts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from icl_interp import pipeline
from icl_interp.checkpoints import store
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError, logger, several, unknown, whole
from icl_interp.figures import trajectory as figures
from icl_interp.figures.drawing import Drawing
from icl_interp.figures.render import render
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.influence import ExampleInfluence
from icl_interp.probes.roles import roles
from icl_interp.probes.units import ratio_over_functions
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import rows_in, table_of_rows

N_PROMPTS = 256  # the fewest that decide a claim
N_FUNCTIONS = 256  # of the error
N_DESCRIBED = 64  # functions that roles and influence are measured on
DECIDED = ("supported", "contradicted")
log = logger(__name__)


@dataclass
class _Stopped(Checkpoint):
    """A run as it was after some step: it knows the snapshots up to there, and no later ones."""

    kept: Mapping[int, HookedTransformer] = field(default_factory=dict)

    def snapshots(self) -> dict[int, HookedTransformer]:
        return dict(self.kept)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What `trajectory` found.

    Attributes:
        name: of the run.
        steps: of its snapshots, in order.
        error: rows step, value, low, high: the squared error at the query over that of predicting
            0, with its 95 % interval over functions.
        verdicts: rows step, claim, verdict, value, low, high (the claim's estimate; NaN where there
            is none) and reason.
        decided: rows claim, first (the step of the first decided verdict), settled (the step from
            which on the verdict is the last one), verdict (the last one) and reversals (how often
            a decided verdict turned into the opposite). Steps are NaN where nothing is decided, and
            settled is where the last snapshot is open.
        roles: rows step and those of `probes.roles`; None where it refuses the model. Its p-values
            are adjusted (Benjamini-Yekutieli) within a snapshot.
        influence: rows step and those of `ExampleInfluence.summary`; None where it refuses.
        left_out: why, by name ("roles", "influence").
    """

    name: str
    steps: tuple[int, ...]
    error: pd.DataFrame
    verdicts: pd.DataFrame
    decided: pd.DataFrame
    roles: pd.DataFrame | None
    influence: pd.DataFrame | None
    left_out: Mapping[str, str]

    def drawing(self) -> Drawing:
        """Error, influence, roles and verdicts against the step, as data."""
        return figures.drawn(self.name, self.error, self.verdicts, self.roles, self.influence)

    def figure(self) -> Any:
        """The drawing, rendered: a plotly figure."""
        return render(self.drawing())

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.steps)} snapshots, step {self.steps[0]} to "]
        lines[0] += str(self.steps[-1])
        if len(self.decided):
            lines.append(self.decided.to_string(index=False, na_rep="–"))
        for name, reason in self.left_out.items():
            lines.append(f"{name} left out: {reason}")
        return "\n".join(lines)


def trajectory(
    run: Any,
    claims: Sequence[str] | None = None,
    *,
    steps: Sequence[int] | None = None,
    n_prompts: int = N_PROMPTS,
    seed: int = 0,
) -> Trajectory:
    """Ask every snapshot of a run what is asked of a trained model.

    Each snapshot is treated as a run that was stopped there: claims about the way to a model see
    the snapshots up to it, and bundled companions, which were trained to the end, stand beside no
    earlier snapshot. Prompts are the same at all steps, so that curves differ by the weights alone.

    A verdict is that of `analyze` on the snapshot, at the level of a single report. It is not
    adjusted for the number of snapshots: with many of them a first decided verdict may come by
    chance. `decided["settled"]`, from where on the verdict stays, is the safer number.

    The cost is about that of one report with `n_prompts` prompts for each snapshot (for the small
    bundled runs 5 to 10 seconds of one core). `claims=()` judges nothing, and takes about a second
    for each snapshot; `claims=[...]` and `steps=[...]` ask for a part.

    Source: Olsson et al. (2022), "In-context learning and induction heads", section on the phase
    change, for heads and error along training.

    Args:
        run: a run folder with snapshots, the name of a bundled run that has them, or such a
            `Checkpoint`.
        claims: ids; by default all that apply to the last weights of the run.
        steps: which snapshots; by default all.
        n_prompts: of each report, see `analyze`. Fewer than 256 decide nothing.
        seed: of all prompts.

    Raises:
        InputError: a run without snapshots, a step that has none, or what `analyze` refuses.

    >>> import icl_interp
    >>> found = trajectory("lsa_flow", claims=(), steps=(0, 4000))
    >>> found.error["value"].round(1).tolist()[0] > found.error["value"].round(1).tolist()[1]
    True
    """
    loaded = store.load(run)
    models = _snapshots(loaded)
    chosen = _steps(models, steps)
    if claims is None:
        applying = pipeline.applying(loaded)
        claims = [claim for claim, reason in applying.items() if reason is None]
    asked = list(several(claims, "claims"))
    # The prompts of error, roles and influence; each report draws those of its seed.
    whole(seed, "seed", 0)
    prompts = loaded.task.sample(N_FUNCTIONS, generator(seed, "trajectories/error"))
    few = loaded.task.sample(N_DESCRIBED, generator(seed, "trajectories/described"))
    describing: dict[str, Callable[[Checkpoint], pd.DataFrame]] = {
        "roles": lambda at: roles(at, few, seed=seed),
        "influence": lambda at: ExampleInfluence.measure(at, few, inputs=False).summary(),
    }
    errors: list[dict[str, Any]] = []
    judged: list[dict[str, Any]] = []
    described: dict[str, list[dict[str, Any]]] = {name: [] for name in describing}
    left_out: dict[str, str] = {}
    for step in chosen:
        at = stopped(loaded, models, step)
        log.info("%s at step %s", loaded.name, step)
        errors.append({"step": step, **_error(at, prompts)})
        if asked:
            judged += _verdicts(at, asked, n_prompts, seed)
        for name, describe in describing.items():
            if name in left_out:
                continue
            try:
                found = rows_in(describe(at))
            except InputError as error:
                left_out[name] = f"step {step}: {error}"
                continue
            for row in found:
                described[name].append({"step": step, **row})
    tables = {}
    for name, rows in described.items():
        tables[name] = None if name in left_out else table_of_rows(rows)
    verdicts = table_of_rows(judged, f"{n_prompts} prompts at each step")
    note = "squared error at the query over that of predicting 0"
    return Trajectory(
        name=loaded.name,
        steps=chosen,
        error=table_of_rows(errors, note),
        verdicts=verdicts,
        decided=decided(verdicts),
        **tables,
        left_out=left_out,
    )


def decided(verdicts: pd.DataFrame) -> pd.DataFrame:
    """When each claim became decided.

    Args:
        verdicts: rows step, claim, verdict, in the order of steps.

    Returns:
        The rows of `Trajectory.decided`.

    >>> steps = {"step": [0, 10, 20, 30], "claim": ["a"] * 4}
    >>> found = ["contradicted", "inconclusive", "supported", "supported"]
    >>> print(decided(pd.DataFrame({**steps, "verdict": found})).to_string(index=False))
    claim  first  settled   verdict  reversals
        a    0.0     20.0 supported          1
    """
    rows = []
    groups = verdicts.groupby("claim", sort=False) if len(verdicts) else ()
    for claim, group in groups:
        steps = group["step"].tolist()
        found = group["verdict"].tolist()
        last = found[-1]
        times = {"first": np.nan, "settled": np.nan}
        sure = group.loc[group["verdict"].isin(DECIDED)]
        if len(sure):
            times["first"] = float(sure["step"].iloc[0])
        if last in DECIDED:
            # Back from the end, as long as the verdict is the last one.
            at = len(found) - 1
            while at > 0 and found[at - 1] == last:
                at -= 1
            times["settled"] = float(steps[at])
        reversals = sum(a != b for a, b in pairwise(sure["verdict"]))
        rows.append({"claim": claim, **times, "verdict": last, "reversals": reversals})
    return table_of_rows(rows)


def stopped(loaded: Checkpoint, models: Mapping[int, HookedTransformer], step: int) -> Checkpoint:
    """The run as it was after a step, as a checkpoint.

    Args:
        loaded: the run.
        models: its snapshots by step.
        step: one of them.
    """
    training = loaded.config.training
    earlier = {one: model for one, model in models.items() if one <= step}
    if training is not None and step > 0:
        training = replace(training, steps=step, snapshots=tuple(earlier))
    elif training is not None:
        training = None  # fresh weights: no step was made
    config = RunConfig(loaded.config.model, loaded.config.task, loaded.config.encoding, training)
    provenance = {**loaded.provenance, "name": f"{loaded.name}, step {step}"}
    return _Stopped(
        models[step],
        loaded.task,
        loaded.encoding,
        config,
        step=step,
        provenance=provenance,
        kept=earlier,
    )


def _snapshots(loaded: Checkpoint) -> dict[int, HookedTransformer]:
    models = loaded.snapshots()
    if not models:
        raise InputError(
            f"{loaded.name} keeps no snapshots, so nothing is known of its training: train with "
            "training.snapshots, for example [0, 100, 1000], or take a bundled run that has them, "
            "such as lsa_flow"
        )
    return models


def _steps(models: Mapping[int, HookedTransformer], asked: Sequence[int] | None) -> tuple[int, ...]:
    if asked is None:
        return tuple(models)
    wanted = several(asked, "steps")
    if not wanted:
        raise InputError("steps must name at least one snapshot, but the list is empty")
    for step in wanted:
        if step not in models:
            raise unknown("step of a snapshot", str(step), map(str, models))
    return tuple(step for step in models if step in wanted)


def _error(at: Checkpoint, prompts: Prompts) -> dict[str, float]:
    """Squared error at the query over that of predicting 0."""
    truth = prompts.ys[:, -1].double().cpu()
    predicted = at.predict(prompts)[:, -1].double().cpu()
    missed = (predicted - truth).square().sum(-1)
    found = ratio_over_functions(missed.numpy(), truth.square().sum(-1).numpy(), prompts)
    return {"value": found.value, "low": found.low, "high": found.high}


def _verdicts(at: Checkpoint, claims: list[str], n_prompts: int, seed: int) -> list[dict[str, Any]]:
    report = pipeline.analyze(at, claims=claims, n_prompts=n_prompts, seed=seed, progress=False)
    rows = []
    for finding in report.findings:
        row: dict[str, Any] = {"step": at.step, "claim": finding.id}
        row["verdict"] = finding.verdict
        ends: dict[str, float] = dict.fromkeys(("value", "low", "high"), np.nan)
        estimate = finding.estimate
        if estimate is not None:
            ends = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
        rows.append({**row, **ends, "reason": finding.reason})
    return rows
