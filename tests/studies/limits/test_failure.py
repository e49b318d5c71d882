"""How much of a failure freezing removes: the share phi of made-up errors, and real errors.

The latter are checked against whole prompts.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts
from measured_claims import judged_on
from small_models import long, small_lab
from xarray import DataArray

from icl_interp.analyses import registry
from icl_interp.analyses.natural import in_a_sentence
from icl_interp.analyses.reasons import END
from icl_interp.interventions.base import At, intervene
from icl_interp.interventions.norms import FreezeNorms
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.resampling import Interval
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.failure import (
    DECIDING,
    Place,
    quantities,
    relative_error,
    removed,
)
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.failure import (
    ARMS,
    DRAWN,
    FUNCTIONS,
    NEAR,
    PLACES,
    QUERIES,
    SCALES,
    drawn_sizes,
    failure,
)

FAILURE = "limits.layernorm_causes_failure"
LAW = 3.0  # the error of guessing the law's mean, which is the unit of the others


def errors(n: int = 40, near: float = 0.02, **changed: float | dict[str, float]) -> DataArray:
    """`far/failure` of functions of slightly different size.

    Intact and frozen errors are 1 far out, but for what is changed. Keys are arms with _ for a
    space; values are errors at all places but in distribution, or by place.
    """
    size = LAW * (1 + 0.1 * np.random.default_rng(0).normal(size=n) ** 2)
    values = np.ones((len(ARMS), len(PLACES)))
    values[1:, 0] = near
    for key, value in changed.items():
        arms = [arm for arm in SCALES] if key == "frozen" else [key.replace("_", " ")]
        for arm in arms:
            by_place = value if isinstance(value, dict) else dict.fromkeys(PLACES[1:], value)
            for place, one in by_place.items():
                values[ARMS.index(arm), PLACES.index(place)] = one
    axes = {"arm": ARMS, "unit": tuple(range(n)), "place": PLACES}
    return make_array(values[:, None] * size[:, None], axes)


def stored(found: DataArray, matched: bool = False) -> dict[str, DataArray]:
    """All results that the claim asks for."""
    n, x = found.sizes["unit"], (-1e3, 1e3)
    arms = ("intact", "frozen", "law mean")
    axes = {"arm": arms, "statistic": far.GROWN, "unit": tuple(range(n)), "x": x}
    curve = make_curve(np.ones((3, 4, n, 2)), axes)
    other = {"statistic": far.GROWN, "unit": tuple(range(n if matched else 0)), "x": x}
    without = make_curve(4 * np.ones((4, n if matched else 0, 2)), other)
    return {
        "far/failure": found,
        "far/norm arms": curve,
        "far/counterpart": without,
        "twin/far/norm arms": curve,
    }


def verdict(found: DataArray, **known) -> str:
    finding = judged_on(FAILURE, stored(found), facts(n_units=64, **known))
    claim = registry.REGISTRY[FAILURE]
    asked = in_a_sentence(claim.statement)
    answers = {
        "supported": (claim.statement,),
        "contradicted": (claim.denied,),
        "inconclusive": (f"It is open whether {asked}.", f"So it cannot be told whether {asked}."),
    }
    sentences = END.split(finding.reason)
    says = [name for name, ways in answers.items() if any(way in sentences for way in ways)]
    assert says == [finding.verdict]
    return finding.verdict


def test_phi_is_the_share_of_the_failure_that_is_gone():
    found = errors(near=0.1, intact=0.9, frozen=0.3)

    def check(share):
        i = share(found, "mean", "query x 10")
        assert (i.value, i.low, i.high) == pytest.approx((0.75,) * 3)

    check(removed)
    must_fail(check, lambda found, arm, place: removed(found, "sham", place))
    must_fail(check, relative_error)
    assert relative_error(found, "intact", "query x 10").value == pytest.approx(0.9)


def check_regions(judge):
    """At 10 and 1,000 half-widths, at every scale: what is mostly gone supports.

    What is mostly there contradicts.
    """
    one_scale = {"quantile_.1": {"query x 10": 0.6}}
    one_place = {"frozen": {"query x 1000": 0.1}}
    for changed, expected in (
        ({"frozen": 0.1}, "supported"),
        ({"frozen": 0.6}, "inconclusive"),
        ({"frozen": 0.9}, "contradicted"),
        ({"frozen": 40.0}, "contradicted"),
        ({}, "contradicted"),  # freezing does nothing: it fails without the norm as well
        ({"frozen": 0.1, **one_scale}, "inconclusive"),
        (one_place, "inconclusive"),
        (
            {"frozen": dict.fromkeys((*DECIDING, *DRAWN), 0.1)},
            "supported",
        ),  # other places do not decide
        ({"frozen": dict.fromkeys(DECIDING, 0.1)}, "inconclusive"),  # nor known ones alone
    ):
        assert judge(errors(**changed)) == expected, changed


@pytest.mark.slow
def test_the_regions_of_phi():
    check_regions(verdict)
    must_fail(
        check_regions,
        lambda found: verdict(found.where(found["arm"] != "quantile .1", found.sel(arm="mean"))),
    )
    must_fail(
        check_regions,
        lambda found: verdict(
            found.where(found["place"] != "query x 10", found.sel(place="query x 1000"))
        ),
    )


@pytest.mark.slow
def test_preconditions_come_first():
    """A model that does not fail decides nothing.

    Nor does one that was not intact nearby once frozen, or whose sham acts as well.
    """
    good = {"frozen": 0.1}
    assert verdict(errors(**good)) == "supported"
    for changed, reason in (
        ({"intact": 0.3}, "The model does not fail there: its squared error is 0.30 times"),
        (
            {"intact": {"query x 10": 0.3}},
            "The model does not fail there: its squared error is 0.30 times",
        ),
        (
            {"quantile_.9": {NEAR: 0.2}},
            "Frozen norms spoil the prediction in distribution too: its squared error",
        ),
        (
            {"sham": {"query x 10": 0.88}},
            "the context positions, already removes 0.122 of the failure",
        ),
        (
            {"sham": {"query x 1000": 1.2}},
            "the context positions, already removes -0.204 of the failure",
        ),
    ):
        finding = judged_on(FAILURE, stored(errors(**{**good, **changed})), facts(n_units=64))
        assert finding.verdict == "inconclusive", changed
        assert "So it cannot be told whether LayerNorm causes most of" in finding.reason
        assert reason in finding.reason
    assert verdict(errors(**good), r2=0.8) == "inconclusive"
    assert verdict(errors(), r2=0.8) == "inconclusive"


def test_each_place_has_an_answer_of_its_own():
    found = errors(frozen={"query x 3": 0.1, "functions x 3": 0.1}, intact={"functions x 10": 0.2})
    finding = judged_on(FAILURE, stored(found), facts(n_units=64))
    assert finding.verdict == "contradicted"
    rows = {row["place"]: row for row in finding.details}
    answers = {place: row["answer"] for place, row in rows.items()}
    assert answers == {
        "query x 3": "supported",
        "query x 10": "contradicted",
        "query x 1000": "contradicted",
        "drawn about x 10": "contradicted",
        "drawn about x 1000": "contradicted",
        "functions x 3": "supported",
        "functions x 10": "inconclusive",
    }
    assert rows["query x 3"]["phi, own"] == pytest.approx(0.9 / 0.98)
    assert "does not fail" in rows["functions x 10"]["because"]
    assert [place for place, row in rows.items() if "sham" in row] == [
        *QUERIES,
        *DRAWN,
    ]  # a function has none
    assert (rows["query x 3"]["phi, lowest"], rows["query x 3"]["phi, highest"]) == pytest.approx(
        (0.9 / 0.98,) * 2
    )
    assert finding.estimate.value == pytest.approx(0.0, abs=1e-9)


def test_the_worst_place_is_what_a_precondition_names():
    found = errors(intact={"query x 10": 0.6}, sham={"query x 10": 0.95})
    places = [Place.of(found, name) for name in DECIDING]
    asked = quantities(places, Interval(0.0, 0.0, 0.0))
    assert asked["fails"].value == pytest.approx(0.6)
    assert asked["sham"].value == pytest.approx(-0.35 / 0.58)
    assert asked["phi"].value == pytest.approx(0.0)


@pytest.mark.slow
def test_what_follows_from_sizes_says_so():
    """Predictions of a hundredth of the truth's size remove next to nothing of an error.

    This holds whether they are frozen or not.
    """
    tiny = {"query x 1000": 1e-4, "drawn about x 1000": 1e-4}
    by_algebra = judged_on(
        FAILURE, stored(errors(size=tiny, **{"size,_frozen": tiny})), facts(n_units=64)
    )
    assert by_algebra.verdict == "contradicted"
    assert by_algebra.reason.startswith(
        f"By algebra, {in_a_sentence(registry.REGISTRY[FAILURE].denied)}: at 1000 times"
    )
    for other in ({"size": tiny}, {"size,_frozen": tiny}, {}):
        finding = judged_on(FAILURE, stored(errors(**other)), facts(n_units=64))
        assert finding.verdict == "contradicted"
        assert finding.reason.startswith(registry.REGISTRY[FAILURE].denied)


@pytest.mark.slow
def test_a_model_trained_without_a_norm_is_shown_beside():
    alone, both = (
        judged_on(FAILURE, stored(errors(), matched), facts(n_units=64))
        for matched in (False, True)
    )
    assert "trained without" not in alone.causal["far error / law mean"]
    assert both.causal["far error / law mean"]["trained without"] == pytest.approx(4)
    assert both.verdict == alone.verdict == "contradicted"


# ---- the measurement -----------------------------------------------------------------------------


def whole(lab, prompts: Prompts, *edits) -> torch.Tensor:
    """Predictions for the query of whole prompts."""
    with torch.no_grad(), intervene(lab.model, *edits):
        return lab.model(lab.tokens(prompts))[:, -1, 0]


def moved(lab, x) -> Prompts:
    """The lab's prompts with the query elsewhere: at one place, or each at its own."""
    xs = lab.few.xs.clone()
    xs[:, -1] = x if isinstance(x, float) else torch.as_tensor(x)[:, None]
    return replace(lab.few, xs=xs)


def check_errors(found: DataArray, lab):
    """Each arm against whole prompts: norms of the query, or of the context, frozen.

    The query's norms are frozen at their scale in distribution.
    """
    _, cache = lab.model.run_with_cache(lab.tokens(lab.few))
    last = {name: cache[f"{name}.hook_scale"][:, -1:] for name in lab.model.norms}
    n = lab.encoding.n_tokens(lab.few.n_points)

    def frozen(of):
        return At((n - 1,), FreezeNorms({name: of(scale) for name, scale in last.items()}))

    edits = {
        "intact": (),
        "mean": (frozen(lambda s: s.mean(0)),),
        "quantile .9": (frozen(lambda s: s.quantile(0.9, 0)),),
        "own": (frozen(lambda s: s),),
        "sham": (At(tuple(range(n - 1)), lab.frozen),),
    }
    for arm, edit in edits.items():
        for place, x in QUERIES.items():
            square = 0.0
            for sign in (1, -1):
                at = sign * x * lab.x_unit
                truth = as_numbers(lab.truth([at], lab.few))[:, 0]
                square = square + (whole(lab, moved(lab, at), *edit) - truth).square() / 2
            np.testing.assert_allclose(
                found.sel(arm=arm, place=place), lab.by_unit(square), rtol=1e-7, err_msg=arm
            )
        for place, sizes in zip(DRAWN, np.split(drawn_sizes(lab), 2, 1), strict=True):
            square = 0.0
            for side in sizes.repeat(2, 0).T:  # two prompts of each unit
                elsewhere = moved(lab, side)
                truth = as_numbers(lab.task.targets(lab.few.parameters, elsewhere.xs))[:, -1]
                square = square + (whole(lab, elsewhere, *edit) - truth).square() / 2
            np.testing.assert_allclose(
                found.sel(arm=arm, place=place), lab.by_unit(square), rtol=1e-7, err_msg=arm
            )
        truth = as_numbers(lab.task.targets(lab.few.parameters, lab.few.xs))[:, -1]
        square = (whole(lab, lab.few, *edit) - truth).square()
        np.testing.assert_allclose(
            found.sel(arm=arm, place=NEAR), lab.by_unit(square), rtol=1e-7, err_msg=arm
        )
        for place, factor in FUNCTIONS.items() if arm != "sham" else ():
            scaled = replace(lab.few, ys=factor * lab.few.ys)  # the law's mean is 0
            square = (whole(lab, scaled, *edit) - factor * truth).square()
            np.testing.assert_allclose(
                found.sel(arm=arm, place=place), lab.by_unit(square), rtol=1e-7, err_msg=arm
            )


@pytest.mark.slow
def test_errors_are_those_of_whole_prompts():
    lab = small_lab()
    found = failure(lab)
    check_errors(found, lab)
    renamed = dict(zip(ARMS, [*ARMS[:2], *ARMS[3:7], "mean", *ARMS[7:]], strict=True))
    must_fail(check_errors, found.assign_coords(arm=[renamed[arm] for arm in ARMS]), lab)
    must_fail(
        check_errors,
        found.sel(place=[NEAR, *reversed(QUERIES), *DRAWN, *FUNCTIONS]).assign_coords(
            place=list(PLACES)
        ),
        lab,
    )
    must_fail(
        check_errors,
        found.sel(place=[NEAR, *QUERIES, *reversed(DRAWN), *FUNCTIONS]).assign_coords(
            place=list(PLACES)
        ),
        lab,
    )
    assert np.isnan(found.sel(arm="sham", place=list(FUNCTIONS))).all()


def test_a_slope_that_ignores_the_context_has_its_closed_form():
    """1 + s^2 / E[a^2] with the law's mean 0: the averaged frozen prediction as a predictor.

    The average is over prompts.
    """
    lab = small_lab()
    found, xs = failure(lab), 1e3 * lab.x_unit * np.array([1, -1])
    _, cache = lab.model.run_with_cache(lab.tokens(lab.few))
    freeze = FreezeNorms(
        {name: cache[f"{name}.hook_scale"][:, -1].mean(0, keepdim=True) for name in lab.model.norms}
    )
    f = as_numbers(lab.sweep(xs, prompts=lab.few, query=[freeze])).mean(0)
    truth = as_numbers(lab.truth(xs, lab.few))
    place = "query x 1000"
    ratio = (
        found.sel(arm="context-free", place=place).mean()
        / found.sel(arm="law mean", place=place).mean()
    )
    # In antithetic pairs the mixed term of the square cancels exactly.
    assert float(ratio) == pytest.approx(
        float(1 + f.square().mean() / truth.square().mean()), rel=1e-9
    )


@pytest.mark.slow
def test_the_far_error_is_that_of_the_model(measured):
    bench = measured(long("pre"), FAILURE)
    finding = bench.judge(FAILURE)
    assert finding.verdict == "inconclusive"  # random weights have learned nothing
    assert "can be explained in distribution" in finding.reason
    f, truth = (
        bench.lab.sweep([1e3, -1e3], prompts=bench.lab.few),
        bench.lab.truth([1e3, -1e3], bench.lab.few),
    )
    relative = float((f - truth).square().mean() / truth.square().mean())
    assert finding.causal["far error / law mean"]["intact"] == pytest.approx(relative, rel=1e-9)
    # Prompts are run in two parts: each at scales of its own is what it was.
    near = bench.results["far/failure"].sel(place=NEAR)
    np.testing.assert_allclose(near.sel(arm="own"), near.sel(arm="intact"), rtol=1e-7)
    assert not np.allclose(near.sel(arm="mean"), near.sel(arm="intact"), rtol=1e-3)
