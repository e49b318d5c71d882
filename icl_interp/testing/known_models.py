"""Trials on models of known truth: edits of weights, and another model that makes the prediction.

The four kinds of trials are those of `metamorphic`. *Beside* is tried here only: it needs models
whose truth is known.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from pandas import DataFrame

from icl_interp.analyses.claim import Claim
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.lab import Controls
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import NO, YES, Case, Construction
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.testing import beside
from icl_interp.testing.metamorphic import (
    Findings,
    Job,
    Row,
    concerned,
    config_of_controls,
    done_or_made,
    inexact,
    row_of,
    rows_after,
    rows_left_out,
    table_of,
)
from icl_interp.testing.reparameterisations.base import Edit, differ
from icl_interp.testing.reparameterisations.named import EDITS
from icl_interp.testing.reparameterisations.targets import Posed


@dataclass(frozen=True)
class Known:
    """A construction that decides claims, with the member that is tried, and these claims."""

    construction: Construction
    case: Case
    claims: tuple[Claim, ...]

    @property
    def alone(self) -> bool:
        """Whether it is a model by itself, with neither companions nor snapshots."""
        return not (self.case.companions or self.case.snapshots)


def known(
    constructions: Sequence[Construction], claims: Sequence[Claim], seed: int = 0
) -> list[Known]:
    """For each claim the first construction that must support it and the first that contradicts it.

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
    found = []
    for one in constructions:
        if one.name in chosen:
            found.append(Known(one, drawn[one.name], tuple(chosen[one.name])))
    return found


def judged_case(
    case: Case,
    claims: Sequence[Claim],
    seed: int = 0,
    control_config: HookedTransformerConfig | None = None,
    controls: Controls | None = None,
) -> Findings:
    """Findings about a model of known truth, on its own task with what stands beside it."""
    lab, facts = calibration.lab_for(case, seed=seed)
    lab.control_config = control_config or lab.control_config
    if controls is not None:
        lab.controls = controls
    return calibration.found(lab, facts, claims)


def edited_case(case: Case, edit: Edit, seed: int = 0) -> Case:
    """A case after an edit of its model, and of every companion and snapshot that it applies to.

    Snapshots are of one run, so what is drawn for the edit is the same for each. Companions draw
    for themselves, but for the size of the edit: with different numbers of tokens or wider heads
    they would be no models that differ in one respect.
    """
    name = f"edit/{edit.name}"

    def after(model: HookedTransformer, drawn_by: str = "") -> HookedTransformer:
        if edit.applies(model.cfg):
            return model
        draw = generator(seed, f"{name}{drawn_by}")
        return edit.apply(model, draw, generator(seed, name))

    companions = {}
    for role, one in case.companions.items():
        model = after(one.model, f"/{role}")
        config = replace(one.config, model=model.cfg)
        companions[role] = replace(one, model=model, config=config)
    snapshots = {step: after(model) for step, model in case.snapshots.items()}
    # Runs that come with the package are not edited: beside them a model stays what was trained.
    trained_as = None if case.companions else case.trained_as or case.model.cfg
    return replace(
        case,
        model=edit.apply(case.model, generator(seed, name), generator(seed, name)),
        trained_as=trained_as,
        companions=companions,
        snapshots=snapshots,
        encoding=case.reads(),
    )


def posed_case(case: Case) -> Posed:
    """The model of a case with its task, as edits are asked about it."""
    return Posed(case.model, case.task or calibration.TASK, case.reads())


def try_edit_of_known(
    one: Known, edit: Edit, before: Findings, seed: int = 0, controls: Controls | None = None
) -> list[Row]:
    """A row for each claim: verdict and estimate on a known model, before and after an edit."""
    name = one.construction.name
    case = one.case
    other = edited_case(case, edit, seed)
    if not differ(case.model, other.model):
        return []
    asked = concerned(one.claims, edit)
    why = inexact(posed_case(case), posed_case(other), edit)
    if why:
        return rows_left_out(name, edit, asked, before, why)
    config = config_of_controls(case.model, other.model)
    same = controls if config == case.model.cfg else None
    after = judged_case(other, asked, seed, control_config=config, controls=same)
    return rows_after(name, edit, asked, before, after)


# ---- beside another model ------------------------------------------------------------------------


# Sizes of a model, by what a claim may be about.
SHAPES = {"single head": "n_heads", "single layer": "n_layers", "depth": "n_layers"}


def rivals(one: Known, claim: Claim, every: Sequence[Known]) -> list[tuple[str, HookedTransformer]]:
    """What makes the prediction in the place of a model of known truth: other models of its shape.

    They say one number, attend otherwise, or are those on which the claim has the other verdict.
    What a claim about depth asks of a prediction depends on the number of layers, so the other
    models have as many.
    """
    expected = one.construction.expected[claim.id]
    model = one.case.model
    found = []
    for other in every:
        its_own = other.construction.expected.get(claim.id)
        if its_own in (expected, None) or not other.alone:
            continue
        if _alike(claim, model.cfg, other.case.model.cfg):
            found.append((f"another: {other.construction.name}", other.case.model))
    if type(model) is HookedTransformer:
        found += beside.rivals_of(model)
    return found


def _alike(claim: Claim, one: HookedTransformerConfig, other: HookedTransformerConfig) -> bool:
    """Whether two models have the same of the sizes that a claim is about."""
    for aspect in claim.aspects:
        size = SHAPES.get(aspect)
        if size and getattr(one, size) != getattr(other, size):
            return False
    return True


def misled(claim: Claim, found: Finding, rival: Finding) -> str:
    """What is wrong with a finding about an idle model in front of a rival, or nothing.

    A claim about weights must have the rival's verdict or none. Any other one must not be supported
    where it is not of the rival. It may be contradicted: that a part is not the cause of something
    is true of an idle part.

    Args:
        claim: what was judged.
        found: of the model with the idle object.
        rival: of the model that makes the predictions.
    """
    decides = (YES, NO) if claim.about_weights else (YES,)
    if found.verdict not in decides or found.verdict == rival.verdict:
        return ""
    return f"{found.verdict}, as the idle model: the one that predicts is {rival.verdict}"


def try_beside(
    one: Known, claims: Sequence[Claim], every: Sequence[Known], seed: int = 0
) -> Iterator[list[Row]]:
    """For each claim, a row for each way in which the model stands idle beside a rival.

    The rival is one that has another verdict.

    Where both have the same verdict there is nothing to be seen, and no row. Claims that no model
    can be put beside get none either.
    """
    if not one.alone:
        return
    name = one.construction.name
    for claim in claims:
        alone = judged_case(one.case, [claim], seed)[claim.id]
        for rival_name, rival in rivals(one, claim, every):
            pairs = list(beside.idle_beside(one.case.model, rival_name, rival))
            if not pairs:
                continue
            # Only where both are judged differently does a verdict tell which one was seen.
            with_rival = replace(one.case, model=rival)
            rivals_own = judged_case(with_rival, [claim], seed)[claim.id]
            if rivals_own.verdict == alone.verdict or alone.verdict not in (YES, NO):
                continue
            rows = []
            for pair in pairs:
                case = replace(one.case, model=pair.model, encoding=one.case.reads())
                found = judged_case(case, [claim], seed)[claim.id]
                wrong = misled(claim, found, rivals_own)
                rows.append(row_of("beside", name, pair.name, alone, found, wrong))
            yield rows


def jobs_of_known(one: Known, every: Sequence[Known], seed: int = 0) -> Iterator[tuple[str, Job]]:
    """All trials of a model of known truth, by name.

    There is one for each edit of weights that applies, and for every rival.
    """
    lab, _ = calibration.lab_for(one.case, seed=seed)
    controls = lab.controls
    for edit in EDITS:
        if not edit.applies(one.case.model.cfg):
            job = partial(try_edit_of_known, one, edit, seed=seed, controls=controls)
            yield f"edit: {edit.name}", job

    def stand_beside(before: Findings) -> list[Row]:
        of_claims = try_beside(one, one.claims, every, seed)
        return list(chain.from_iterable(of_claims))

    yield "beside", stand_beside


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

        trials = jobs_of_known(one, every, seed)
        kept += done_or_made(one.construction.name, before, trials, done, watch)
    return table_of(kept)
