"""The one call, `analyze`: checkpoint -> measurements -> verdicts -> report."""

import copy
import datetime
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icl_interp import evaluation
from icl_interp.analyses import example_prompts, mechanism, one_model, registry
from icl_interp.analyses.claim import Claim, asked_once
from icl_interp.analyses.controls import measure
from icl_interp.analyses.facts import Facts, is_large
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement, Results
from icl_interp.analyses.outside import OutsideLab
from icl_interp.analyses.sizes import Sizes, checked
from icl_interp.checkpoints import companions as companions_of
from icl_interp.checkpoints import foreign, store
from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.config import check_registered, check_round_trip
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.descriptions import OUTSIDE
from icl_interp.devices import checked_device
from icl_interp.errors import InputError, in_one_line, logger, several, shown, whole
from icl_interp.models import tokens, weights
from icl_interp.models.tokens import Encoding
from icl_interp.predictors import adapters, checks
from icl_interp.progress import Measuring
from icl_interp.provenance import encode, environment, generator, run_id
from icl_interp.report.comparison import Comparison
from icl_interp.report.report import Report
from icl_interp.studies.base import STUDIES
from icl_interp.tasks.base import Task

log = logger(__name__)


@np.errstate(all="ignore")  # numbers that overflow far from the data are results, and say so
def analyze(
    checkpoint: Any,
    task: Task | None = None,
    *,
    claims: Sequence[str] | None = None,
    n_prompts: int | None = None,
    seed: int = 0,
    encoding: Encoding | str | None = None,
    n_heads: int | None = None,
    settings: Mapping[str, Any] | None = None,
    companions: Sequence[Any] = (),
    device: str | None = None,
    progress: bool = True,
    control: Any = None,
) -> Report:
    """Put published claims to the test on a model's own weights, or on a predictor's outputs.

    Args:
        checkpoint: a run folder or a file in it, the name of a bundled model, somebody else's
            folder or file in one of the formats that `load` reads, a `Checkpoint`, or any model
            with TransformerLens' hook and weight names. Or whatever predicts without weights: an
            object with `predict(prompts)`, a function `(xs, ys, x_query) -> y_query` that is
            batched over prompts, or an estimator of scikit-learn (`icl_interp.predictors`). Of
            these only claims about outputs are judged, and nothing is edited.
        task: for what brings none, such as a bare model; it replaces a checkpoint's own.
        claims: ids of claims; all registered ones by default.
        n_prompts: size of the sample: 8 for each antithetic pair of functions (two functions x 4
            contexts). Fewer than 256 leave every verdict inconclusive. By default 128 pairs: 1,024
            prompts; of a model with more than two million parameters 64 pairs x 4 prompts, which
            takes far less time (`analyses.facts.is_large` says what it costs).
        seed: of the sample.
        encoding: a name of `icl_interp.encodings`, such as "stacked", where a bare model's width
            does not tell, or a file of weights.
        n_heads: attention heads of a block, where a file of weights does not tell.
        settings: further settings of the model that a file of weights does not tell; see `load`.
        companions: further checkpoints that differ from this one in a single respect (no
            normalisation, no attention, another degree, another seed, ...), for claims about what
            that changes; bundled ones are found by themselves. Several in one respect must be alike
            but for their seed: claims about a kind of training ask for several seeds of each kind.
            Those that do not fit are left out: a warning and `report.model["companions_left_out"]`
            say which and why.
        device: where to run; it must know float64.
        progress: a progress bar (none where there is no terminal).
        control: an untrained predictor of the same kind, beside a predictor without weights. A
            claim about training is at most inconclusive without one. Models have controls of their
            own: fresh weights of the same config.

    Returns:
        The report: a finding for every claim, figures, and all numbers behind them. A claim whose
        measurement or judge fails is inconclusive, with the error in its reason; the others stand.

    Raises:
        InputError: not a checkpoint, unknown claims, a bare model without a task, a task of one's
            own that is not registered, a model to which hooks or interventions are attached,
            weights that hold NaN or infinity, a sample of no such size, a device that is not there
            or does not know float64; a predictor that fails a check (`predictors.checked`), or an
            argument that is not for predictors.
    """
    claims = None if claims is None else several(claims, "claims")
    n_prompts = None if n_prompts is None else checked(n_prompts)
    seed = whole(seed, "seed", 0)
    device = None if device is None else str(checked_device(device, torch.float64))
    selected = [asked_once(claim) for claim in registry.select(claims)]
    predictor = adapters.recognised(checkpoint)
    if predictor is not None:
        models_only = {
            "encoding": encoding,
            "n_heads": n_heads,
            "settings": settings,
            "companions": companions or None,
            "device": device,
        }
        return _from_outside(
            predictor, task, selected, n_prompts, seed, models_only, control, progress
        )
    if control is not None:
        raise InputError("control= is for predictors without weights; a model's are fresh weights")
    foreign.check_intact(checkpoint, "analyze")
    loaded = store.load(checkpoint, task, encoding=encoding, n_heads=n_heads, settings=settings)
    weights.check_finite(loaded.model.named_parameters(), "the model")
    check_round_trip(loaded.config)
    started = time.perf_counter()
    sizes = Sizes.of(loaded.model, n_prompts)
    _check_is_one(loaded)
    matched, left_out = companions_of_model(companions, loaded)
    known = facts_of(loaded, sizes.n_units, matched, left_out)
    without_norm = matched.get(Role("no norm"))
    lab = Lab(
        loaded.model,
        loaded.task,
        loaded.encoding,
        n_units=sizes.n_units,
        n_contexts=sizes.n_contexts,
        seed=seed,
        matched=without_norm.model if without_norm else None,
        companions=matched,
        device=device,
        snapshots=loaded.snapshots,
        config=loaded.config,
    )
    described = []
    if claims is None:  # whoever asks for some claims gets these only
        described = [*mechanism.measurements(lab), *example_prompts.measurements(lab)]
    origin = {
        **loaded.provenance,
        "name": loaded.name,
        "step": loaded.step,
        "run_id": run_id(loaded.config),
        "weights_sha256": weights.weights_hash(loaded.model),
    }
    if loaded.config.training:
        origin["kind_of_training"] = companions_of.kind_of(encode(loaded.config))
    return _judged(lab, selected, described, known, origin, started, progress)


def facts_of(
    loaded: Checkpoint,
    n_units: int,
    matched: Mapping[Role, Checkpoint] | None = None,
    left_out: Sequence[dict[str, Any]] = (),
) -> Facts:
    """What claims know of a model before anything is measured, its error on its task included.

    Args:
        loaded: the model, with its task.
        n_units: of the sample that is to be measured.
        matched: models that differ from it in one respect, by that respect.
        left_out: matched models that could not be read, and why.
    """
    encoding = tokens.name_of(loaded.encoding)
    n_contexts = 1 if is_large(loaded.model) else 8
    errors = evaluation.in_distribution(loaded, loaded.task, n_contexts)
    names = {role: other.name for role, other in (matched or {}).items()}
    return Facts.of(
        loaded.model,
        loaded.task,
        encoding,
        errors,
        n_units=n_units,
        n_claims=len(registry.REGISTRY),
        optimizer="Adam" if loaded.config.training else "",
        n_steps=_steps(loaded),
        snapshots=_kept(loaded),
        companions=names,
        companions_left_out=tuple(left_out),
    )


def applying(checkpoint: Any, study: str | None = None) -> dict[str, str | None]:
    """Which claims apply to a model: why not, by id, or None for one that does.

    Args:
        checkpoint: a path, the name of a bundled model, or a `Checkpoint`; None for no model: then
            every claim is listed.
        study: the claims of this study only.

    Raises:
        InputError: no such study or checkpoint, or one without a task.
    """
    # Reading the register loads the studies of other packages, whose claims count as well.
    asked = registry.select(None) if study is None else STUDIES.named(study).claims
    if checkpoint is None:
        return {claim.id: None for claim in asked}
    loaded = store.load(checkpoint)
    facts = facts_of(loaded, Sizes.of(loaded.model, None).n_units)
    return {claim.id: claim.exclusion(facts) for claim in asked}


def _from_outside(
    predictor: adapters.Outside,
    task: Task | None,
    selected: Sequence[Claim],
    n_prompts: int | None,
    seed: int,
    models_only: Mapping[str, Any],
    control: Any,
    progress: bool,
) -> Report:
    """The report on a predictor without weights."""
    for name, value in models_only.items():
        if value is not None:
            raise InputError(f"{name}= is for models; {predictor.name} is seen from outside")
    if not isinstance(task, Task):
        raise InputError(
            "a predictor brings no task: pass task=, for example icl_interp.tasks.Polynomial(...)"
        )
    check_registered(task)
    started = time.perf_counter()
    untrained = None if control is None else adapters.recognised(control)
    if control is not None and untrained is None:
        raise InputError(
            f"control= takes an untrained predictor without weights, but got {shown(control)}"
        )

    # Nothing is judged before the checks have passed, those of the control included.
    tried = checks.checked(predictor, task, seed)
    if untrained is not None:
        checks.checked(untrained, task, seed)

    sizes = Sizes.of_outputs(n_prompts)
    known = Facts.of_outputs(
        task,
        evaluation.in_distribution(predictor, task, 2),  # a fit each
        n_units=sizes.n_units,
        n_claims=len(registry.REGISTRY),
        checks=tuple(check.to_dict() for check in tried),
        control=untrained.name if untrained else "",
    )
    lab = OutsideLab(
        predictor,
        task,
        n_units=sizes.n_units,
        n_contexts=sizes.n_contexts,
        seed=seed,
        control=untrained,
    )
    origin = {"name": predictor.name, "step": None, "seen": OUTSIDE}
    return _judged(lab, selected, (), known, origin, started, progress)


def _judged(
    lab: Lab,
    selected: Sequence[Claim],
    described: Sequence[Measurement[Any]],
    known: Facts,
    origin: dict[str, Any],
    started: float,
    progress: bool,
) -> Report:
    """Measure what the claims need, judge them, and put all into a report."""
    applying = [claim for claim in selected if claim.applies(known)]
    results, failed = _measure(lab, applying, described, known, progress)
    known = replace(known, failed=failed)
    findings = [claim.finding(results, known) for claim in selected]
    versions = {}
    for claim in selected:
        for name, measurement in claim.needs.items():
            if name in results:
                versions[name] = measurement.version
    now = datetime.datetime.now(datetime.UTC)
    provenance = {
        "analyzed": now.isoformat(timespec="seconds"),
        "seconds": time.perf_counter() - started,
        "n_prompts": len(lab.prompts),
        "seed": lab.seed,
        "measurements": versions,
        "environment": environment(),
    }
    return Report(origin, known.to_dict(), findings, results, provenance)


def _check_is_one(loaded: Checkpoint) -> None:
    """Refuse a model whose ways to predict disagree, since a report would mix two functions."""
    model = copy.deepcopy(loaded.model).double().eval()
    draw = generator(0, "pipeline/one model")
    prompts = loaded.task.sample(one_model.N_PROMPTS, draw, dtype=torch.float64)
    one_model.check(model, loaded.encoding, prompts)


def _steps(loaded: Checkpoint) -> int:
    """Steps that it was trained for, as far as its run tells."""
    training = loaded.config.training
    if training is None:
        return 0
    return int(loaded.step or training.steps)


def _kept(loaded: Checkpoint) -> tuple[int, ...]:
    """Steps whose weights its run kept; without a training section the file of weights tells."""
    training = loaded.config.training
    if training:
        return tuple(training.snapshots)
    return tuple(loaded.snapshots())


def compare(checkpoints: Iterable[Any], **settings: Any) -> Comparison:
    """Analyse several models and put their verdicts side by side.

    Seeds of one recipe are pooled too.

    Args:
        checkpoints: each a `Report`, or what `analyze` takes.
        settings: those of `analyze`, for all of them.

    Raises:
        InputError: fewer than two models, two of one name, or what `analyze` refuses.
    """
    if isinstance(checkpoints, (str, Path, Report, Checkpoint)):
        raise InputError(
            f"compare takes a list of models, but got {shown(checkpoints)}: put it in [ ] with "
            "another"
        )
    given = list(checkpoints)
    if len(given) < 2:
        raise InputError(f"a comparison needs two models at least, but got {len(given)}")
    reports = []
    for each in given:
        reports.append(each if isinstance(each, Report) else analyze(each, **settings))
    return Comparison(tuple(reports))


def _measure(
    lab: Lab,
    claims: list[Claim],
    described: Sequence[Measurement[Any]],
    known: Facts,
    progress: bool,
) -> tuple[Results, dict[str, str]]:
    """Everything the claims need, and what describes the model beside; and what failed, why."""
    failed: dict[str, str] = {}
    with Measuring(lab.n_controls, progress) as bar:
        errors = measure(lab, claims, known, described, bar.watch, bar.stage)
    for name, error in errors.items():
        log.warning("measuring %s failed", name, exc_info=error)
        failed[name] = in_one_line(error)
    return lab.results, failed


def companions_of_model(
    given: Any, loaded: Checkpoint
) -> tuple[dict[Role, Checkpoint], list[dict[str, str]]]:
    """Companions by role, and the given companions that do not fit, with the reason.

    In each role, bundled companions come after given ones.
    """
    run = encode(loaded.config)
    matched: dict[Role, Checkpoint] = {}
    left_out: list[dict[str, str]] = []
    several = isinstance(given, Iterable) and not isinstance(given, str)
    for source in given if several else [given]:
        name = _name(source)
        try:
            other = _companion(source, loaded)
            name = other.name
            role = companions_of.role(run, encode(other.config))
            free = _free(role, other, matched)
            _refuse_copy(other, [loaded, *matched.values()])
            matched[free] = other
        except InputError as error:
            log.warning("the companion %s is left out: %s", name, error)
            left_out.append({"name": name, "reason": str(error)})
    # Runs of the package fill the roles that are free.
    found = {}
    for role, name in companions_of.of(run).items():
        if role not in matched:
            found[role] = store.load(name)
    return {**found, **matched}, left_out


def _free(role: Role, other: Checkpoint, matched: Mapping[Role, Checkpoint]) -> Role:
    """The role of one more companion: numbered where it is a further seed of an earlier one."""
    alike = [first for taken, first in matched.items() if taken.first == role]
    if alike:
        earliest = alike[0]
        own_kind = companions_of.kind_of(encode(other.config))
        if own_kind != companions_of.kind_of(encode(earliest.config)):
            raise InputError(
                f"{earliest.name} has the same role, {str(role)!r}, and came first; several "
                "companions in one role must be alike but for their seed"
            )
    if other.config.training and other.config in [one.config for one in alike]:
        raise InputError(
            f"its seed is that of a companion that came first, in the role {str(role)!r}"
        )
    return replace(role, further=len(alike))


def _refuse_copy(other: Checkpoint, known: Iterable[Checkpoint]) -> None:
    """Refuse a companion whose weights are a slightly changed copy: it is no second seed."""
    for one in known:
        if weights.are_copies(one.model, other.model):
            raise InputError(
                f"its weights are those of {one.name} but for changes below {weights.COPY:g} of "
                "their size: a copy is no further model"
            )


def _companion(source: Any, loaded: Checkpoint) -> Checkpoint:
    foreign.check_intact(source, "analyze")
    if not isinstance(source, (str, Path, Checkpoint)):
        return foreign.as_checkpoint(source, loaded.task, loaded.encoding)
    other = store.load(source)
    weights.check_finite(other.model.named_parameters(), "the model")
    return other


def _name(source: Any) -> str:
    """What to call a companion that may not load."""
    if isinstance(source, (str, Path)):
        return str(source)
    return source.name if isinstance(source, Checkpoint) else type(source).__name__
