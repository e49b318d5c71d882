"""Trials of verdicts: a model is changed in a way that a verdict must survive, and judged again.

Four kinds. An *edit* leaves what the model computes, so verdict and estimate must stay. An
*ignorant* model knows nothing of the function in its prompt, so it must support nothing about that.
Another *draw* of the sample, or half of it, must not turn a verdict into its opposite.
*Beside* another model, which makes the prediction, a model that a claim is true or false of decides
nothing: the verdict is the other model's, or none.

Edits are tried on bundled models and on constructions (models of known truth), the other model on
constructions.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from pandas import DataFrame

from icl_interp import evaluation
from icl_interp.analyses.claim import Claim
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.lab import Controls, Lab
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import calibration
from icl_interp.jobs.job import kept
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.rescaled import RescaledValues
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_table
from icl_interp.testing import null_models
from icl_interp.testing.reparameterisations.base import Edit, differ, freed
from icl_interp.testing.reparameterisations.named import EDITS
from icl_interp.testing.reparameterisations.targets import TARGET_EDITS, Posed, TargetEdit

SEEDS = tuple(range(8))  # of the sample
# An estimate stays where it moves by less than this share of itself, or of its interval: edits
# leave the function up to rounding, but bootstraps of a model whose heads stand in another order
# need not draw the same.
CLOSE = 1e-3
OF_INTERVAL = 0.1
ROUNDING = 1e-6  # that of float32 in predictions of size 1
# An edited model says the same up to rounding: at the prompts' own queries, and far out.
NEARBY = 1.0
FAR = (1e2, 1e4)
SAME = 1e-9
SAME_FAR = 1e-6  # far out numbers that cancel may be larger than the prediction
ORDINARY = 1e6  # weights below which rounding cannot explain that an edit moves the prediction
# Stands in the place of a trial's name: an edit that is not exact for a model, or its class.
LEFT_OUT = "left out"
COLUMNS = (
    "trial",
    "model",
    "variant",
    "claim",
    "before",
    "after",
    "estimate before",
    "estimate after",
    "wrong",
)


@dataclass(frozen=True)
class Sample:
    """How many prompts a trial reads."""

    n_units: int = 128
    n_contexts: int = 4
    seed: int = 0


Findings = dict[str, Finding]
Row = tuple[str, str, str, str, str, str, float, float, str]


def posed(checkpoint: Checkpoint) -> Posed:
    """A checkpoint as trials take it."""
    return Posed(checkpoint.model, checkpoint.task, checkpoint.encoding)


def judged(
    model: Posed,
    claims: Sequence[Claim],
    sample: Sample,
    control_config: HookedTransformerConfig | None = None,
    controls: Controls | None = None,
) -> Findings:
    """Findings about a model by itself, without companions or snapshots.

    Args:
        model: what is judged, and on what.
        claims: what is judged of it.
        sample: of prompts.
        control_config: of the untrained controls; the model's own by default.
        controls: `controls_of` the same task, encoding, sample and config, which are then not
            measured again.
    """
    lab = _lab(model, sample, control_config)
    if controls is not None:
        lab.controls = controls
    errors = evaluation.in_distribution(lab, model.task, sample.n_contexts)
    encoding = _encoding(model.encoding)
    facts = Facts.of(lab.model, model.task, encoding, errors, n_units=sample.n_units)
    return calibration.found(lab, facts, claims)


def controls_of(model: Posed, sample: Sample) -> Controls:
    """The untrained controls of a model, which edited and ignorant models share."""
    return _lab(model, sample).controls


def _lab(
    model: Posed, sample: Sample, control_config: HookedTransformerConfig | None = None
) -> Lab:
    return Lab(
        model.model,
        model.task,
        model.encoding,
        n_units=sample.n_units,
        n_contexts=sample.n_contexts,
        seed=sample.seed,
        control_config=control_config,
    )


def _encoding(encoding: Encoding) -> str:
    inner = encoding.inner if isinstance(encoding, RescaledValues) else encoding
    return tokens.name_of(inner)


# ---- what may differ -----------------------------------------------------------------------------


def stays(before: Estimate | None, after: Estimate | None) -> bool:
    """Whether an estimate is the same but for rounding and the draws of its interval."""
    if before is None or after is None:
        return before is after
    a = before.value
    b = after.value
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b or (math.isnan(a) and math.isnan(b))
    size = max(abs(a), abs(b))
    width = max(_width(before), _width(after))
    return abs(a - b) <= max(CLOSE * size, OF_INTERVAL * width, ROUNDING)


def _width(estimate: Estimate) -> float:
    return estimate.high - estimate.low if estimate.known else 0.0


def turned(before: Finding, after: Finding) -> bool:
    """Whether one is supported and the other contradicted."""
    return {before.verdict, after.verdict} == {"supported", "contradicted"}


def row_of(
    trial: str, name: str, variant: str, before: Finding | None, after: Finding, wrong: str
) -> Row:
    """The row of one claim in one trial; `wrong` says what its verdict did not survive."""
    verdict = before.verdict if before else ""
    old = _value(before)
    new = _value(after)
    return trial, name, variant, after.id, verdict, after.verdict, old, new, wrong


def _value(finding: Finding | None) -> float:
    if finding is None or not finding.estimate:
        return math.nan
    return finding.estimate.value


# ---- edits ---------------------------------------------------------------------------------------


def edits_of(model: Posed, one_a_family: bool = False) -> list[Edit | TargetEdit]:
    """The edits that apply to a model; of each family the first, where that is asked for."""
    found: list[Edit | TargetEdit] = []
    found += [edit for edit in EDITS if not edit.applies(model.model.cfg)]
    found += [edit for edit in TARGET_EDITS if not edit.applies(model)]
    if not one_a_family:
        return found
    # From the last to the first, which then hides the others of its family.
    of_family = {edit.family: edit for edit in reversed(found)}
    return list(of_family.values())[::-1]


def edited(model: Posed, edit: Edit | TargetEdit, seed: int = 0) -> Posed:
    """The model after an edit."""
    draw = generator(seed, f"edit/{edit.name}")
    if isinstance(edit, TargetEdit):
        return edit.apply(model, draw)
    return Posed(edit.apply(model.model, draw), model.task, model.encoding)


def moves(before: HookedTransformer, after: HookedTransformer, model: Posed, size: float) -> float:
    """How far an edit moves predictions for a few prompts, relative to the largest of them.

    Args:
        before: the model.
        after: the edited one.
        model: says what is asked, and how.
        size: what the query's token is multiplied by.
    """
    prompts = model.task.sample(8, generator(0, "edit/same"), dtype=torch.float64)
    asked = model.encoding.encode(prompts)
    asked[:, -1] *= size
    with torch.no_grad():
        mine = before(asked.to(before.unembed.W_U))[:, -1].double()
        theirs = after(asked)[:, -1]
    change = (mine - theirs).abs().max()
    largest = mine.abs().max().clamp_min(1e-300)
    return float(change / largest)


def inexact(model: Posed, other: Posed, edit: Edit | TargetEdit) -> str | None:
    """Why an edit does not leave the function of this very model; None where it does.

    Far out the numbers that cancel may grow past what float64 holds beside the prediction, and so
    may weights of a hand-built model, as those that hide a key. A class of its own may read weights
    in its own way.

    Raises:
        AssertionError: the edit moves what a `HookedTransformer` of ordinary weights predicts
            nearby: it is wrong.
    """
    if isinstance(edit, TargetEdit):
        return None
    mine = copy.deepcopy(model.model).double()
    largest = max(float(weight.detach().abs().max()) for weight in model.model.parameters())
    ordinary = type(model.model) is HookedTransformer and largest < ORDINARY
    for size in (NEARBY, *FAR):
        moved = moves(mine, other.model, model, size)
        if moved <= (SAME if size == NEARBY else SAME_FAR):
            continue
        if ordinary and size == NEARBY:
            raise AssertionError(
                f"the edit {edit.name!r} moves the prediction by {moved:.1e} of itself"
            )
        where = "nearby" if size == NEARBY else f"at {size:g} times the query"
        return f"it moves the prediction {where} by {moved:.1e} of itself"
    return None


def survives(claim: Claim, edit: Edit | TargetEdit, before: Finding, after: Finding) -> str:
    """What a finding did not survive; nothing where verdict and estimate stay.

    A claim about what the edit changes the shape of, as layers of one head, may say that it does
    not apply any more. A claim that did not apply may be open.
    """
    shapes = () if isinstance(edit, TargetEdit) else edit.may_refuse
    if before.verdict != after.verdict:
        refuses = after.verdict == "not_applicable" and set(claim.aspects) & set(shapes)
        opens = (before.verdict, after.verdict) == ("not_applicable", "inconclusive") and shapes
        if refuses or opens:
            return ""
        return f"from {before.verdict} to {after.verdict}"
    # Values in other units give other numbers in these units.
    if isinstance(edit, TargetEdit) or stays(before.estimate, after.estimate):
        return ""
    return "the estimate moves"


def config_of_controls(
    before: HookedTransformer, after: HookedTransformer
) -> HookedTransformerConfig:
    """The config of an edited model's untrained controls.

    It is that of the source, with as many layers as the edited model has.

    How far random weights are from what training made depends on their shape. An edit of the shape
    is not to change what the model is compared with; measurements that go layer by layer need as
    many of them.
    """
    if before.cfg.n_layers == after.cfg.n_layers:
        return before.cfg
    return replace(freed(before.cfg), n_layers=after.cfg.n_layers)


def concerned(claims: Sequence[Claim], edit: Edit | TargetEdit) -> list[Claim]:
    """The claims whose verdict must survive an edit."""
    found = []
    for claim in claims:
        if set(claim.aspects).isdisjoint(edit.may_change):
            found.append(claim)
    return found


def try_edit(
    name: str,
    model: Posed,
    edit: Edit | TargetEdit,
    claims: Sequence[Claim],
    before: Findings,
    sample: Sample,
    controls: Controls | None = None,
) -> list[Row]:
    """A row for each claim: its verdict and estimate before and after an edit.

    `controls` are the untrained controls of the model, if they are known already.
    """
    other = edited(model, edit, sample.seed)
    if not isinstance(edit, TargetEdit) and not differ(model.model, other.model):
        return []
    asked = concerned(claims, edit)
    why = inexact(model, other, edit)
    if why:
        return rows_left_out(name, edit, asked, before, why)
    config = config_of_controls(model.model, other.model)
    # Other targets are another task, with other controls.
    same = controls
    if isinstance(edit, TargetEdit) or config != model.model.cfg:
        same = None
    after = judged(other, asked, sample, control_config=config, controls=same)
    return rows_after(name, edit, asked, before, after)


def rows_after(
    name: str, edit: Edit | TargetEdit, asked: Sequence[Claim], before: Findings, after: Findings
) -> list[Row]:
    """A row a claim that was asked: its finding before and after an edit."""
    rows = []
    for claim in asked:
        one = before[claim.id]
        two = after[claim.id]
        wrong = survives(claim, edit, one, two)
        rows.append(row_of("edit", name, edit.name, one, two, wrong))
    return rows


def rows_left_out(
    name: str, edit: Edit | TargetEdit, asked: Sequence[Claim], before: Findings, why: str
) -> list[Row]:
    """A row a claim that was not asked."""
    variant = f"{edit.name}: {why}"
    rows = []
    for claim in asked:
        found = before[claim.id]
        rows.append(row_of(LEFT_OUT, name, variant, found, found, ""))
    return rows


# ---- models that know nothing --------------------------------------------------------------------


def try_ignorant(
    name: str,
    model: Posed,
    claims: Sequence[Claim],
    sample: Sample,
    controls: Controls | None = None,
) -> Iterator[list[Row]]:
    """For each model of the same config that knows nothing, a row a claim: none may be supported.

    Untrained ones are asked about what training made only: what follows from the design holds for
    them too.
    """
    for variant, other in null_models.ignorant(model.model, model.task, model.encoding):
        of_these = claims
        if variant.startswith("untrained"):
            of_these = [claim for claim in claims if claim.kind == "learning"]
        same = controls if other.cfg == model.model.cfg else None
        after = judged(model._replace(model=other), of_these, sample, controls=same)
        rows = []
        for found in after.values():
            wrong = "supported" if found.verdict == "supported" else ""
            rows.append(row_of("ignorant", name, variant, None, found, wrong))
        yield rows


# ---- other draws ---------------------------------------------------------------------------------


def try_draw(
    name: str, model: Posed, claims: Sequence[Claim], before: Findings, sample: Sample, variant: str
) -> list[Row]:
    """A row a claim: its verdict on another sample must not be the opposite."""
    after = judged(model, claims, sample)
    rows = []
    for key, found in after.items():
        wrong = "opposite verdict" if turned(before[key], found) else ""
        rows.append(row_of("draw", name, variant, before[key], found, wrong))
    return rows


# ---- all of them ---------------------------------------------------------------------------------

Job = Callable[[Findings], list[Row]]


def jobs(
    name: str, model: Posed, claims: Sequence[Claim], sample: Sample = Sample()
) -> Iterator[tuple[str, Job]]:
    """All trials of a model, by name: what each does with the findings about the model as it is."""
    controls = controls_of(model, sample)
    for edit in edits_of(model):
        job = partial(try_edit, name, model, edit, claims, sample=sample, controls=controls)
        yield f"edit: {edit.name}", job

    def ignorant(before: Findings) -> list[Row]:
        of_models = try_ignorant(name, model, claims, sample, controls)
        return list(chain.from_iterable(of_models))

    yield "ignorant", ignorant
    others = {}
    for seed in SEEDS:
        if seed != sample.seed:
            others[f"seed {seed}"] = replace(sample, seed=seed)
    others["half the sample"] = replace(sample, n_units=sample.n_units // 2)
    for variant, other in others.items():
        yield variant, partial(try_draw, name, model, claims, sample=other, variant=variant)


def run(
    models: Mapping[str, Posed],
    claims: Sequence[Claim],
    *,
    sample: Sample = Sample(),
    done: Path | None = None,
    watch: Callable[[str], object] | None = None,
) -> DataFrame:
    """Every trial of every model.

    Args:
        models: by name.
        claims: those that are put on trial.
        sample: the prompts of each trial.
        done: a folder that keeps the rows of each trial; what it holds already is not done again.
        watch: is told the name of each trial before it begins.

    Returns:
        A row a trial, model, variant and claim. "wrong" says what a verdict did not survive; it is
        empty where it did.
    """
    rows: list[Row] = []
    for name, model in models.items():

        def before(model: Posed = model) -> Findings:
            return judged(model, claims, sample)

        rows += done_or_made(name, before, jobs(name, model, claims, sample), done, watch)
    return table_of(rows)


def done_or_made(
    name: str,
    before: Callable[[], Findings],
    trials: Iterator[tuple[str, Job]],
    done: Path | None,
    watch: Callable[[str], object] | None,
) -> list[Row]:
    """The rows of all trials of a model; trials not kept in the folder are made and kept there."""
    rows: list[Row] = []
    findings: Findings | None = None
    for trial, job in trials:
        key = f"{name}: {trial}"

        def made(key: str = key, job: Job = job) -> list[Row]:
            nonlocal findings
            if watch:
                watch(key)
            findings = before() if findings is None else findings
            return job(findings)

        for row in kept(done, key, made) if done else made():
            rows.append(_row(*row))
    return rows


def _row(*kept: Any) -> Row:
    """A row that was kept as JSON, where NaN stands as text."""
    trial, model, variant, claim, before, after, first, second, wrong = kept
    return trial, model, variant, claim, before, after, float(first), float(second), wrong


def table_of(rows: Sequence[Row]) -> DataFrame:
    """Rows as a table, with `COLUMNS`."""
    columns = {}
    for i, column in enumerate(COLUMNS):
        columns[column] = [row[i] for row in rows]
    return make_table(columns)
