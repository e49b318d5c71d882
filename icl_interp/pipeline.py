"""The one call, `analyze`: checkpoint -> measurements -> verdicts -> report."""

import datetime
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from icl_interp import evaluation
from icl_interp.analyses import published, verdicts  # noqa: F401  (importing the published claims registers them)
from icl_interp.analyses.lab import Lab, facts
from icl_interp.checkpoints import companions as companions_of
from icl_interp.checkpoints import foreign, store
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.devices import checked_device
from icl_interp.errors import InputError, whole
from icl_interp.models import tokens
from icl_interp.models.tokens import Encoding
from icl_interp.provenance import encode, environment, run_id
from icl_interp.report import Report
from icl_interp.results import Result
from icl_interp.tasks.base import Task

N_CONTEXTS = 16
MOST = 2**17  # prompts of an analysis: far more than a verdict needs, and memory grows with them


def analyze(
    checkpoint: Any,
    task: Task | None = None,
    *,
    claims: Sequence[str] | None = None,
    n_prompts: int = 1024,
    seed: int = 0,
    encoding: Encoding | str | None = None,
    companions: Sequence[Any] = (),
    device: str | None = None,
    progress: bool = True,
) -> Report:
    """Put published claims to the test on a model's own weights.

    Args:
        checkpoint: a run folder or a file in it, the name of a bundled model, a `Checkpoint`, or any model with
            TransformerLens' hook and weight names.
        task: for a bare model, which brings none.
        claims: ids of claims; all registered ones by default.
        n_prompts: size of the sample: functions x 16 contexts. Fewer than 256 leave every verdict inconclusive.
        seed: of the sample.
        encoding: "interleaved" or "stacked", where a bare model's width does not tell.
        companions: further checkpoints that differ from this one in a single respect (no normalisation, no attention,
            another degree, ...), for claims about what that changes; bundled ones are found by themselves.
        device: where to run; it must know float64.
        progress: a progress bar (none where there is no terminal).

    Returns:
        The report: a finding for every claim, figures, and all numbers behind them.

    Raises:
        InputError: not a checkpoint, unknown claims, a bare model without a task, a sample of no such size, a device
            that is not there or does not know float64.
    """
    n_prompts, seed = whole(n_prompts, "n_prompts", 2 * N_CONTEXTS, MOST), whole(seed, "seed", 0)
    device = None if device is None else str(checked_device(device, torch.float64))
    selected = verdicts.select(tuple(claims) if claims is not None else None)
    loaded = _loaded(checkpoint, task, encoding)
    started = time.perf_counter()
    n_functions = n_prompts // N_CONTEXTS
    error = evaluation.in_distribution(loaded, loaded.task)
    known = facts(loaded.model, loaded.task, tokens.name_of(loaded.encoding), error)
    known["n_functions"] = n_functions
    known["snapshots"] = list(loaded.config.training.snapshots) if loaded.config.training else []
    beside = _companions(companions, loaded)
    known["companions"] = {role: other.name for role, other in beside.items()}
    without_norm = beside.get("no norm")
    lab = Lab(
        loaded.model, loaded.task, loaded.encoding, n_functions=n_functions, n_contexts=N_CONTEXTS, seed=seed,
        counterpart=without_norm.model if without_norm else None, companions=beside, device=device,
        snapshots=loaded.snapshots,
    )  # fmt: skip
    results = _measure(lab, [claim for claim in selected if not claim.excluded(known)], progress)
    findings = [claim.judge_results(results, known) for claim in selected]
    provenance = {
        "analyzed": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": time.perf_counter() - started,
        "n_prompts": n_functions * N_CONTEXTS,
        "seed": seed,
        "environment": environment(),
    }
    origin = {**loaded.provenance, "name": loaded.name, "step": loaded.step, "run_id": run_id(loaded.config)}
    return Report(origin, known, findings, results, provenance)


def _measure(lab: Lab, claims: list[verdicts.Claim], progress: bool) -> dict[str, Result]:
    """Everything the claims need, each measurement once; the untrained twin's under "twin/"."""
    wanted = {m.name: m for claim in claims for m in claim.measurements}
    of_twin = {f"twin/{m.name}": m for claim in claims for m in claim.twin}
    bar = tqdm({**wanted, **of_twin}.items(), desc="measuring", leave=False, disable=None if progress else True)
    for name, measurement in bar:
        bar.set_postfix_str(name, refresh=False)
        (lab.twin if name in of_twin else lab).measure(measurement)
    return lab.results


def _loaded(checkpoint: Any, task: Task | None, encoding: Encoding | str | None) -> Checkpoint:
    """What was given, as a checkpoint."""
    if isinstance(encoding, str):
        encoding = tokens.named(encoding)
    if isinstance(checkpoint, (str, Path, Checkpoint)):
        loaded = store.load(checkpoint)
        task, encoding = task or loaded.task, encoding or loaded.encoding
        if task == loaded.task and encoding == loaded.encoding:
            return loaded
        config = RunConfig(loaded.model.cfg, task, tokens.name_of(encoding), loaded.config.training)
        return Checkpoint(loaded.model, task, encoding, config, loaded.step, loaded.provenance, loaded.folder)
    model = foreign.adopt(checkpoint)
    if task is None:
        raise InputError(
            "a bare model brings no task: pass task=, for example icl_interp.tasks.Polynomial(degrees=(1,), "
            "inputs=icl_interp.tasks.Uniform(-1, 1), coefficients=icl_interp.tasks.Uniform(-1, 1), n_points=20)"
        )
    encoding = encoding or tokens.infer(model.cfg.d_in, task.dim)
    config = RunConfig(model.cfg, task, tokens.name_of(encoding))
    return Checkpoint(model, task, encoding, config, provenance={"name": "bare model"})


def _companions(given: Sequence[Any], loaded: Checkpoint) -> dict[str, Checkpoint]:
    """Companions by role: bundled ones, and in front of them those that were given."""
    run = encode(loaded.config)
    found = {role: store.load(name) for role, name in companions_of.of(run).items()}
    for source in [given] if isinstance(given, (str, Path, Checkpoint)) else given:
        stored = isinstance(source, (str, Path, Checkpoint))
        other = store.load(source) if stored else _loaded(source, loaded.task, loaded.encoding)
        role = companions_of.relation(run, encode(other.config))
        if role is None:
            raise InputError(
                f"a companion differs from the model in one respect, but {other.name} and {loaded.name} differ in none "
                f"or in several; roles are: {', '.join(companions_of.ROLES)}"
            )
        found[role] = other
    return found
