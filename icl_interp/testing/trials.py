"""Trials of verdicts: a model is changed in a way that a verdict must survive, and judged again.

Four kinds. An *edit* leaves what the model computes, so verdict and estimate must stay. An *ignorant* model knows
nothing of the function in its prompt, so it must support nothing about that. Another *draw* of the sample, or half of
it, must not turn a verdict into its opposite. *Beside* another model, which makes the prediction, a model that a claim
is true or false of decides nothing: the verdict is the other model's, or none.

Edits are tried on bundled models and on constructions (models of known truth), the other model on constructions.
"""

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pandas import DataFrame

from icl_interp import evaluation
from icl_interp.analyses.claim import Claim
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.twins import Twins
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import NO, YES, Case, Construction
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.rescaled import RescaledValues
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator, write_json
from icl_interp.results import make_table
from icl_interp.testing import beside, ignorant, parts
from icl_interp.testing.edits.base import Edit, differ, freed
from icl_interp.testing.edits.named import EDITS
from icl_interp.testing.edits.targets import TARGET_EDITS, Posed, TargetEdit

SEEDS = tuple(range(8))  # of the sample
# An estimate stays where it moves by less than this share of itself, or of its interval: edits leave the function up to
# rounding, but bootstraps of a model whose heads stand in another order need not draw the same.
CLOSE, OF_INTERVAL = 1e-3, 0.1
ROUNDING = 1e-6  # that of float32 in predictions of size 1
# An edited model says the same up to rounding: at the prompts' own queries, and far out.
NEARBY, FAR = 1.0, (1e2, 1e4)
SAME, SAME_FAR = 1e-9, 1e-6  # far out numbers that cancel may be larger than the prediction
ORDINARY = 1e6  # weights below which rounding cannot explain that an edit moves the prediction
LEFT_OUT = "left out"  # in the place of a trial's name: an edit that is not exact for a model, or its class
COLUMNS = ("trial", "model", "variant", "claim", "before", "after", "estimate before", "estimate after", "wrong")


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
    twin_config: HookedTransformerConfig | None = None,
    twins: Twins | None = None,
) -> Findings:
    """Findings about a model by itself, without companions or snapshots.

    Args:
        model: what is judged, and on what.
        claims: what is judged of it.
        sample: of prompts.
        twin_config: of the untrained twins; the model's own by default.
        twins: `twins_of` the same task, encoding, sample and config, which are then not measured again.
    """
    lab = _lab(model, sample, twin_config)
    if twins is not None:
        lab.twins = twins
    errors = evaluation.in_distribution(lab, model.task, sample.n_contexts)
    facts = Facts.of(lab.model, model.task, _encoding(model.encoding), errors, n_units=sample.n_units)
    results = calibration.measure(lab, facts, claims)
    return {claim.id: claim.judge_results(results, facts) for claim in claims}


def twins_of(model: Posed, sample: Sample) -> Twins:
    """The untrained twins of a model: edits of its weights, and ignorant models of its config, have the same."""
    return _lab(model, sample).twins


def _lab(model: Posed, sample: Sample, twin_config: HookedTransformerConfig | None = None) -> Lab:
    return Lab(
        model.model,
        model.task,
        model.encoding,
        n_units=sample.n_units,
        n_contexts=sample.n_contexts,
        seed=sample.seed,
        twin_config=twin_config,
    )


def _encoding(encoding: Encoding) -> str:
    return tokens.name_of(encoding.inner if isinstance(encoding, RescaledValues) else encoding)


# ---- what may differ ------------------------------------------------------------------------------------------------


def stays(before: Estimate | None, after: Estimate | None) -> bool:
    """Whether an estimate is the same but for rounding and the draws of its interval."""
    if before is None or after is None:
        return before is after
    a, b = before.value, after.value
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b or (math.isnan(a) and math.isnan(b))
    width = max(e.high - e.low if e.known else 0.0 for e in (before, after))
    return abs(a - b) <= max(CLOSE * max(abs(a), abs(b)), OF_INTERVAL * width, ROUNDING)


def turned(before: Finding, after: Finding) -> bool:
    """Whether one is supported and the other contradicted."""
    return {before.verdict, after.verdict} == {"supported", "contradicted"}


def _row(trial: str, name: str, variant: str, before: Finding | None, after: Finding, wrong: str) -> Row:
    old, new = (e.estimate.value if e and e.estimate else math.nan for e in (before, after))
    return trial, name, variant, after.id, before.verdict if before else "", after.verdict, old, new, wrong


# ---- edits ----------------------------------------------------------------------------------------------------------


def edits_of(model: Posed, one_a_family: bool = False) -> list[Edit | TargetEdit]:
    """The edits that apply to a model; of each family the first, where that is asked for."""
    found = [edit for edit in EDITS if not edit.applies(model.model.cfg)]
    all_of_them = [*found, *(edit for edit in TARGET_EDITS if not edit.applies(model))]
    if not one_a_family:
        return all_of_them
    return list({edit.family: edit for edit in reversed(all_of_them)}.values())[::-1]


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
    return float((mine - theirs).abs().max() / mine.abs().max().clamp_min(1e-300))


def inexact(model: Posed, other: Posed, edit: Edit | TargetEdit) -> str | None:
    """Why an edit does not leave the function of this very model; None where it does.

    Far out the numbers that cancel may grow past what float64 holds beside the prediction, and so may weights of a
    hand-built model, as those that hide a key. A class of its own may read weights in its own way.

    Raises:
        AssertionError: the edit moves what a `HookedTransformer` of ordinary weights predicts nearby: it is wrong.
    """
    if isinstance(edit, TargetEdit):
        return None
    mine = copy.deepcopy(model.model).double()
    largest = max(float(weight.abs().max()) for weight in model.model.parameters())
    ordinary = type(model.model) is HookedTransformer and largest < ORDINARY
    for size in (NEARBY, *FAR):
        moved = moves(mine, other.model, model, size)
        if moved <= (SAME if size == NEARBY else SAME_FAR):
            continue
        if ordinary and size == NEARBY:
            raise AssertionError(f"the edit {edit.name!r} moves the prediction by {moved:.1e} of itself")
        where = "nearby" if size == NEARBY else f"at {size:g} times the query"
        return f"it moves the prediction {where} by {moved:.1e} of itself"
    return None


def survives(claim: Claim, edit: Edit | TargetEdit, before: Finding, after: Finding) -> str:
    """What a finding did not survive; nothing where verdict and estimate stay.

    A claim about what the edit changes the shape of, as layers of one head, may say that it does not apply any more. A
    claim that did not apply may be open.
    """
    shapes = () if isinstance(edit, TargetEdit) else edit.may_refuse
    if before.verdict != after.verdict:
        refuses = after.verdict == "not_applicable" and set(claim.aspects) & set(shapes)
        opens = (before.verdict, after.verdict) == ("not_applicable", "inconclusive") and shapes
        return "" if refuses or opens else f"from {before.verdict} to {after.verdict}"
    # Values in other units give other numbers in these units.
    if isinstance(edit, TargetEdit) or stays(before.estimate, after.estimate):
        return ""
    return "the estimate moves"


def config_of_twins(before: HookedTransformer, after: HookedTransformer) -> HookedTransformerConfig:
    """The config of an edited model's untrained twins: the source's, with as many layers as the edited model has.

    How far random weights are from what training made depends on their shape. An edit of the shape is not to change
    what the model is compared with; measurements that go layer by layer need as many of them.
    """
    if before.cfg.n_layers == after.cfg.n_layers:
        return before.cfg
    return replace(freed(before.cfg), n_layers=after.cfg.n_layers)


def concerned(claims: Sequence[Claim], edit: Edit | TargetEdit) -> list[Claim]:
    """The claims whose verdict must survive an edit."""
    return [claim for claim in claims if not set(claim.aspects) & set(edit.may_change)]


def try_edit(
    name: str,
    model: Posed,
    edit: Edit | TargetEdit,
    claims: Sequence[Claim],
    before: Findings,
    sample: Sample,
    twins: Twins | None = None,
) -> list[Row]:
    """A row a claim: its verdict and estimate before and after an edit; `twins` are those of the model, if at hand."""
    other = edited(model, edit, sample.seed)
    if not isinstance(edit, TargetEdit) and not differ(model.model, other.model):
        return []
    asked = concerned(claims, edit)
    if why := inexact(model, other, edit):
        return _left_out(name, edit, asked, before, why)
    config = config_of_twins(model.model, other.model)
    same = None if isinstance(edit, TargetEdit) else twins  # other targets are another task
    same = same if config == model.model.cfg else None
    after = judged(other, asked, sample, twin_config=config, twins=same)
    return _after(name, edit, asked, before, after)


def _after(name: str, edit: Edit | TargetEdit, asked: Sequence[Claim], before: Findings, after: Findings) -> list[Row]:
    rows = []
    for claim in asked:
        one, two = before[claim.id], after[claim.id]
        rows.append(_row("edit", name, edit.name, one, two, survives(claim, edit, one, two)))
    return rows


def _left_out(name: str, edit: Edit | TargetEdit, asked: Sequence[Claim], before: Findings, why: str) -> list[Row]:
    """A row a claim that was not asked."""
    variant = f"{edit.name}: {why}"
    return [_row(LEFT_OUT, name, variant, before[claim.id], before[claim.id], "") for claim in asked]


# ---- models of known truth ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A construction on which claims are decided, with the member that is tried and these claims."""

    construction: Construction
    case: Case
    claims: tuple[Claim, ...]

    @property
    def alone(self) -> bool:
        """Whether it is a model by itself, with neither companions nor snapshots."""
        return not (self.case.companions or self.case.snapshots)


def known(constructions: Sequence[Construction], claims: Sequence[Claim], seed: int = 0) -> list[Known]:
    """For each claim the first construction that must support it, and the first that must contradict it.

    What predicts in a model's place has no weights that an edit could change, so it is passed over.
    """
    drawn = {one.name: one.draw(seed) for one in constructions}
    chosen: dict[str, list[Claim]] = {}
    for claim in claims:
        for verdict in (YES, NO):
            for one in constructions:
                if one.expected.get(claim.id) == verdict and not drawn[one.name].predictor:
                    chosen.setdefault(one.name, []).append(claim)
                    break
    return [Known(one, drawn[one.name], tuple(chosen[one.name])) for one in constructions if one.name in chosen]


def judged_case(
    case: Case,
    claims: Sequence[Claim],
    seed: int = 0,
    twin_config: HookedTransformerConfig | None = None,
    twins: Twins | None = None,
) -> Findings:
    """Findings about a model of known truth, on its own task with what stands beside it."""
    lab, facts = calibration.lab_for(case, seed=seed)
    lab.twin_config = twin_config or lab.twin_config
    if twins is not None:
        lab.twins = twins
    results = calibration.measure(lab, facts, claims)
    return {claim.id: claim.judge_results(results, facts) for claim in claims}


def edited_case(case: Case, edit: Edit, seed: int = 0) -> Case:
    """A case after an edit of its model, and of every companion and snapshot that the edit applies to.

    Snapshots are of one run, so what is drawn for the edit is the same for each; companions draw for themselves.
    """

    def after(model: HookedTransformer, drawn_by: str = "") -> HookedTransformer:
        if edit.applies(model.cfg):
            return model
        return edit.apply(model, generator(seed, f"edit/{edit.name}{drawn_by}"))

    companions = {}
    for role, one in case.companions.items():
        model = after(one.model, f"/{role}")
        companions[role] = replace(one, model=model, config=replace(one.config, model=model.cfg))
    return replace(
        case,
        model=edit.apply(case.model, generator(seed, f"edit/{edit.name}")),
        companions=companions,
        snapshots={step: after(model) for step, model in case.snapshots.items()},
        encoding=case.reads(),
    )


def posed_case(case: Case) -> Posed:
    """The model of a case with its task, as edits are asked about it."""
    return Posed(case.model, case.task or calibration.TASK, case.reads())


def try_edit_of_known(one: Known, edit: Edit, before: Findings, seed: int = 0, twins: Twins | None = None) -> list[Row]:
    """A row a claim: its verdict and estimate on a model of known truth, before and after an edit."""
    name, case = one.construction.name, one.case
    other = edited_case(case, edit, seed)
    if not differ(case.model, other.model):
        return []
    asked = concerned(one.claims, edit)
    if why := inexact(posed_case(case), posed_case(other), edit):
        return _left_out(name, edit, asked, before, why)
    config = config_of_twins(case.model, other.model)
    same = twins if config == case.model.cfg else None
    after = judged_case(other, asked, seed, twin_config=config, twins=same)
    return _after(name, edit, asked, before, after)


# ---- beside another model -------------------------------------------------------------------------------------------


SHAPES = {"single head": "n_heads", "single layer": "n_layers", "depth": "n_layers"}  # by what a claim may be about


def rivals(one: Known, claim: Claim, every: Sequence[Known]) -> list[tuple[str, HookedTransformer]]:
    """What makes the prediction in the place of a model of known truth: other models of its shape.

    They say one number, attend otherwise, or are those on which the claim has the other verdict. What a claim about
    depth asks of a prediction depends on the number of layers, so the other models have as many.
    """
    expected, model = one.construction.expected[claim.id], one.case.model
    shape = {SHAPES[aspect] for aspect in claim.aspects if aspect in SHAPES}
    others = [
        (f"another: {other.construction.name}", other.case.model)
        for other in every
        if other.construction.expected.get(claim.id) not in (expected, None)
        and other.alone
        and all(getattr(other.case.model.cfg, size) == getattr(model.cfg, size) for size in shape)
    ]
    plain = type(model) is HookedTransformer
    return [*others, *(beside.rivals_of(model) if plain else ())]


def misled(claim: Claim, found: Finding, rival: Finding) -> str:
    """What is wrong with a finding about an idle model in front of a rival; nothing where it may be so.

    A claim about weights must have the rival's verdict or none. Any other one must not be supported where it is not of
    the rival. It may be contradicted: that a part is not the cause of something is true of an idle part.

    Args:
        claim: what was judged.
        found: of the model with the idle object.
        rival: of the model that makes the predictions.
    """
    decides = (YES, NO) if claim.about_weights else (YES,)
    if found.verdict not in decides or found.verdict == rival.verdict:
        return ""
    return f"{found.verdict}, as the idle model: the one that predicts is {rival.verdict}"


def try_beside(one: Known, claims: Sequence[Claim], every: Sequence[Known], seed: int = 0) -> Iterator[list[Row]]:
    """For each claim, a row for each way in which the model stands idle beside a rival that has another verdict.

    Where both have the same verdict there is nothing to be seen, and no row. Claims that no model can be put beside get
    none either.
    """
    if not one.alone:
        return
    for claim in claims:
        alone = judged_case(one.case, [claim], seed)[claim.id]
        for name, rival in rivals(one, claim, every):
            pairs = list(beside.idle_beside(one.case.model, name, rival))
            if not pairs:
                continue
            rivals_own = judged_case(replace(one.case, model=rival), [claim], seed)[claim.id]
            if rivals_own.verdict == alone.verdict or alone.verdict not in (YES, NO):
                continue
            rows = []
            for pair in pairs:
                case = replace(one.case, model=pair.model, encoding=one.case.reads())
                found = judged_case(case, [claim], seed)[claim.id]
                wrong = misled(claim, found, rivals_own)
                rows.append(_row("beside", one.construction.name, pair.name, alone, found, wrong))
            yield rows


# ---- models that know nothing ---------------------------------------------------------------------------------------


def try_ignorant(
    name: str, model: Posed, claims: Sequence[Claim], sample: Sample, twins: Twins | None = None
) -> Iterator[list[Row]]:
    """For each model of the same config that knows nothing, a row a claim: none may be supported.

    Untrained ones are asked about what training made only: what follows from the design holds for them too.
    """
    for variant, other in ignorant.ignorant(model.model, model.task, model.encoding):
        of_these = [c for c in claims if c.kind == "learning"] if variant.startswith("untrained") else claims
        same = twins if other.cfg == model.model.cfg else None
        after = judged(model._replace(model=other), of_these, sample, twins=same)
        yield [
            _row("ignorant", name, variant, None, found, "supported" if found.verdict == "supported" else "")
            for found in after.values()
        ]


# ---- other draws ----------------------------------------------------------------------------------------------------


def try_draw(
    name: str, model: Posed, claims: Sequence[Claim], before: Findings, sample: Sample, variant: str
) -> list[Row]:
    """A row a claim: its verdict on another sample must not be the opposite."""
    after = judged(model, claims, sample)
    return [
        _row("draw", name, variant, before[key], two, "opposite verdict" if turned(before[key], two) else "")
        for key, two in after.items()
    ]


# ---- all of them ----------------------------------------------------------------------------------------------------

Job = Callable[[Findings], list[Row]]


def jobs(name: str, model: Posed, claims: Sequence[Claim], sample: Sample = Sample()) -> Iterator[tuple[str, Job]]:
    """All trials of a model, by name: what each does with the findings about the model as it is."""
    twins = twins_of(model, sample)
    for edit in edits_of(model):
        yield f"edit: {edit.name}", lambda before, edit=edit: try_edit(name, model, edit, claims, before, sample, twins)
    yield "ignorant", lambda before: [row for rows in try_ignorant(name, model, claims, sample, twins) for row in rows]
    for seed in SEEDS:
        if seed != sample.seed:
            other, variant = replace(sample, seed=seed), f"seed {seed}"
            yield variant, lambda before, o=other, v=variant: try_draw(name, model, claims, before, o, v)
    half = replace(sample, n_units=sample.n_units // 2)
    yield "half the sample", lambda before: try_draw(name, model, claims, before, half, "half the sample")


def jobs_of_known(one: Known, every: Sequence[Known], seed: int = 0) -> Iterator[tuple[str, Job]]:
    """All trials of a model of known truth, by name; each edit of weights that applies, and every rival."""
    lab, _ = calibration.lab_for(one.case, seed=seed)
    twins = lab.twins
    for edit in EDITS:
        if not edit.applies(one.case.model.cfg):
            yield (f"edit: {edit.name}", lambda before, edit=edit: try_edit_of_known(one, edit, before, seed, twins))
    yield ("beside", lambda before: [row for rows in try_beside(one, one.claims, every, seed) for row in rows])


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
        A row a trial, model, variant and claim. "wrong" says what a verdict did not survive; it is empty where it did.
    """
    kept: list[Row] = []
    for name, model in models.items():

        def before(model: Posed = model) -> Findings:
            return judged(model, claims, sample)

        kept += _done(name, before, jobs(name, model, claims, sample), done, watch)
    return _table(kept)


def run_known(
    chosen: Sequence[Known],
    every: Sequence[Known],
    *,
    seed: int = 0,
    done: Path | None = None,
    watch: Callable[[str], object] | None = None,
) -> DataFrame:
    """Every trial of models of known truth, as `run` gives it.

    Args:
        chosen: which are tried.
        every: all of the study: rivals of one another.
        seed: of the samples.
        done: a folder that keeps the rows of each trial.
        watch: is told the name of each trial before it begins.
    """
    kept: list[Row] = []
    for one in chosen:

        def before(one: Known = one) -> Findings:
            return judged_case(one.case, one.claims, seed)

        kept += _done(one.construction.name, before, jobs_of_known(one, every, seed), done, watch)
    return _table(kept)


def _done(
    name: str,
    before: Callable[[], Findings],
    trials: Iterator[tuple[str, Job]],
    done: Path | None,
    watch: Callable[[str], object] | None,
) -> list[Row]:
    """The rows of all trials of a model: those that a folder keeps, and the others made and kept there."""
    rows: list[Row] = []
    findings: Findings | None = None
    for trial, job in trials:
        key = f"{name}: {trial}"
        if done and parts.file_of(done, key).exists():
            stored = json.loads(parts.file_of(done, key).read_text())
            rows += [(*row[:6], float(row[6]), float(row[7]), row[8]) for row in stored]  # NaN stands as text
            continue
        if watch:
            watch(key)
        findings = before() if findings is None else findings
        found = job(findings)
        rows += found
        if done:
            write_json(parts.file_of(done, key), found)
    return rows


def _table(rows: Sequence[Row]) -> DataFrame:
    return make_table({column: [row[i] for row in rows] for i, column in enumerate(COLUMNS)})
