"""Any kernel at once: log weights on prompts that share nothing but example and query."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.experiments import calibration
from icl_interp.models.softmax_unit import SoftmaxAttention
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.lipschitz.claims import smoother as claims
from icl_interp.studies.lipschitz.claims.smoother import MISSED, REPLACED, SMOOTHER_CLAIM, Part
from icl_interp.studies.lipschitz.constructions import kernels
from icl_interp.studies.lipschitz.measurements import alike_heads, heads, redrawn_examples
from icl_interp.tasks import RidgeFunction, Sphere

TASK = RidgeFunction(inputs=Sphere(3), link="relu", noise_std=0.5, n_points=13)


def prompts_of(task, n, seed=0):
    return task.sample(n, generator(seed, "test/any kernel"), dtype=torch.float64)


def judged(case, n_units=64):
    lab, known = calibration.lab_for(case, n_units=n_units)
    return SMOOTHER_CLAIM.judge_results(calibration.measure(lab, known, [SMOOTHER_CLAIM]), known)


# ---- redraws -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 12, 40])
def test_every_example_is_kept_once_a_round(n):
    plan = redrawn_examples.plan(n, seed=3)
    assert len(plan) == redrawn_examples.ROUNDS * redrawn_examples.n_blocks(n)
    kept = torch.cat([one for one, _ in plan])
    assert torch.bincount(kept, minlength=n).tolist() == [redrawn_examples.ROUNDS] * n
    assert all(len(one) >= 2 and len(one) == len(set(places.tolist())) for one, places in plan)
    assert max(len(one) for one, _ in plan) / n == redrawn_examples.share_kept(n)


def test_redraws_share_the_query_and_what_is_kept_and_nothing_else():
    prompts = prompts_of(TASK, 6)
    for (kept, places), other in redrawn_examples.redraws(TASK, prompts, seed=0):
        torch.testing.assert_close(other.xs[:, places], prompts.xs[:, kept])
        torch.testing.assert_close(other.xs[:, -1], prompts.xs[:, -1])
        fresh = torch.ones(12, dtype=torch.bool)
        fresh[places] = False
        assert not torch.isclose(other.xs[:, :-1][:, fresh], prompts.xs[:, :1]).all(-1).any()
        assert not torch.isclose(other.ys[:, places], prompts.ys[:, kept]).any()


def test_labels_of_redraws_follow_the_law():
    """The new function's values where the inputs stand, and noise of the task's size."""
    prompts = prompts_of(TASK, 2000)
    (_, other) = next(redrawn_examples.redraws(TASK, prompts, seed=0))
    noise = (other.ys - TASK.targets(other.parameters, other.xs))[:, :-1]

    def check(values):
        assert abs(float(values.std()) - 0.5) < 0.01
        assert abs(float(values.mean())) < 0.02

    check(noise)
    must_fail(check, noise + other.ys[:, :-1] * 0.2)


# ---- what redraws leave --------------------------------------------------------------------------


def test_the_log_weights_of_a_kernel_come_back():
    """The log weights of a kernel with a period and a jump come back, in any prompt's own units.

    This is an independent route, without any fit.
    """
    prompts = prompts_of(TASK, 5)

    def scores(other):
        inner = torch.einsum("bnd,bd->bn", other.xs[:, :-1], other.xs[:, -1])
        log_k = 9 * (14 * inner).cos() + 3 * (other.xs[:, :-1, 0] > 0.2)
        shared = 5 * other.ys[:, :-1].sum(1)  # what all examples of a prompt share, whatever it is
        return (log_k + shared)[:, None]

    found = redrawn_examples.common(scores, TASK, prompts, seed=0)

    def check(values):
        torch.testing.assert_close(values.softmax(-1), scores(prompts).softmax(-1))

    check(found)
    must_fail(check, 1.001 * found)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n", [5, 12, 40])
def test_the_share_that_redraws_change_is_that_of_what_is_not_told(share, n):
    task = replace(TASK, n_points=n + 1)
    prompts = prompts_of(task, 1000)
    noise = generator(0, "test/noise")

    def scores(other):
        told = other.xs[:, :-1, 0] * math.sqrt(3)  # of variance 1
        rest = torch.randn(told.shape, generator=noise, dtype=torch.float64)
        small = 0.05  # so that all examples weigh alike
        return small * (math.sqrt(1 - share) * told + math.sqrt(share) * rest)[:, None]

    spread, rest = heads.spreads(
        scores(prompts), redrawn_examples.common(scores, task, prompts, seed=0)
    )
    found = redrawn_examples.surely_missed(float(rest.mean() / spread.mean()), n)
    assert abs(found - share) < 0.02


def test_bounds_take_the_draws_into_account():
    exact = 1 + redrawn_examples.error_of_draws(100)
    assert redrawn_examples.surely_missed(exact, 100) == pytest.approx(1)
    assert (
        1 / redrawn_examples.ROUNDS
        < redrawn_examples.error_of_draws(100)
        < 1.1 / redrawn_examples.ROUNDS
    )
    kept = redrawn_examples.share_kept(40)
    assert redrawn_examples.surely_told((1 - kept) ** 2, 40) == pytest.approx(1)
    assert redrawn_examples.surely_told(0.01, 2) == math.inf


# ---- how heads count -----------------------------------------------------------------------------


FAILS = (0.9, 0.8, 1.0)


@pytest.mark.parametrize(
    ("part", "value", "possible"),
    [
        (Part(), "out", {"out"}),
        (Part(0.01, 0.0, 0.05), "yes", {"yes"}),
        (Part(*FAILS), "no", {"yes", "no"}),
        (Part(*FAILS, 0.01, 0.0, 0.02), "yes", {"yes"}),
        (Part(*FAILS, 0.6, 0.5, 0.7), "no", {"no"}),
        (Part(*FAILS, 0.3, 0.26, 0.35), "no", {"yes", "no"}),
    ],
    ids=[
        "not tried",
        "family",
        "family fails",
        "any kernel",
        "none",
        "none, by less than the draws' own error",
    ],
)
def test_no_kernel_only_where_any_kernel_has_failed_too(part, value, possible):
    found = part.standing(n_examples=40)
    assert (found.value, set(found.possible)) == (value, possible)


CASES = [
    (kernels.periodic, "supported"),
    (kernels.laplace, "supported"),
    (kernels.tilted_by_labels, "contradicted"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "verdict"), CASES)
def test_constructions(make, verdict):
    assert judged(make(generator(2, "test"))).verdict == verdict


@pytest.mark.parametrize("make", [kernels.periodic, kernels.laplace])
def test_these_are_kernels(make):
    """The prediction does not depend on where examples stand.

    It is an average with weights of the inputs alone.
    """
    case = make(generator(2, "test"))
    lab, _ = calibration.lab_for(case, n_units=4, n_contexts=1)
    seen, other = (
        heads.at_query(lab, p) for p in (lab.prompts, replace(lab.prompts, ys=-lab.prompts.ys))
    )
    torch.testing.assert_close(seen.scores, other.scores)
    torch.testing.assert_close(seen.prediction, -other.prediction)
    average = (seen.scores[:, -1].softmax(-1) * lab.prompts.ys[:, :-1, 0]).sum(1)
    torch.testing.assert_close(seen.prediction[:, 0], average)


@pytest.mark.slow
def test_without_redraws_a_periodic_kernel_was_contradicted_for_a_false_reason(monkeypatch):
    """The mutant: nothing but the family, as any kernel."""
    case = kernels.periodic_kernel(25.0, 6 * math.pi)
    finding = judged(case, n_units=128)
    assert finding.verdict == "supported"
    assert "depend on more" not in f"{finding.reason} {finding.scope}"
    rows = finding.details
    assert rows[-1]["labels: missed"] > MISSED
    assert rows[-1]["labels: missed by any kernel"] < 1e-6
    family = heads.weights_by_polynomial

    def only_the_family(scores, task, prompts, seed):
        lab, _ = calibration.lab_for(case, n_units=128)
        seen = heads.at_query(lab, prompts)
        fold = torch.arange(len(prompts) // 2).repeat_interleave(2) % 2
        return family(seen, prompts, fold).log()

    monkeypatch.setattr(heads, "common", only_the_family)
    monkeypatch.setattr(claims, "surely_missed", lambda missed, n_examples: missed)
    finding = judged(case, n_units=128)
    assert finding.verdict == "contradicted"
    assert "depend on more" in f"{finding.reason} {finding.scope}"


@pytest.mark.slow
def test_the_reason_names_what_log_weights_depend_on():
    finding = judged(kernels.tilted_by_labels(generator(2, "test")))
    assert "so they depend on more than two inputs" in f"{finding.reason} {finding.scope}"
    first, second = finding.details
    assert first["labels: missed"] < 1e-6  # the mean label is an average of labels too
    assert second["log weights: share that redraws change"] > MISSED


@pytest.mark.slow
def test_values_that_are_no_labels_do_not_blame_the_weights():
    """A window on an input in the place of the labels has the weights of a kernel.

    The reason says so.
    """
    case = calibration.CONSTRUCTIONS.named("softmax unit that averages inputs").draw(1)
    finding = judged(case)
    assert finding.verdict == "contradicted"
    assert "but it does not average labels alone" in f"{finding.reason} {finding.scope}"
    assert finding.details[0]["log weights: share that redraws change"] < REPLACED


# ---- heads that count once -----------------------------------------------------------------------


def copied(unit, sizes):
    """The unit of one head, and further heads that write multiples of what others write.

    The others are random heads, or the first one.
    """
    w = {name: t.clone() for name, t in unit.state_dict().items()}
    cfg = replace(unit.cfg, n_heads=1 + len(sizes), unit=None)
    draw = generator(5, "test/copied")
    random = {
        n: torch.randn(1, *w[f"blocks.0.attn.{n}"].shape[1:], generator=draw, dtype=torch.float64)
        for n in NAMES
    }
    for name in NAMES:
        key = f"blocks.0.attn.{name}"
        own = w[key]
        parts = [own]
        for of_first, size in sizes:
            one = own if of_first else random[name]
            parts.append(size * one if name == "W_O" else one)
        w[key] = torch.cat(parts)
    model = HookedTransformer(cfg).double()
    model.load_state_dict(w)
    return model.eval()


NAMES = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")


def softmax_unit():
    matrix = 4 * torch.eye(3, dtype=torch.float64)
    return SoftmaxAttention.from_product(matrix).to_transformer(TASK.n_points)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ([(False, 3.0), (False, -3.0)], ["0.0", "0.1+0.2"]),
        ([(True, 3.0), (True, -3.0)], ["0.0+0.1+0.2"]),
        ([(False, 0.0)], ["0.0", "0.1"]),
        ([(True, -0.5)], ["0.0+0.1"]),
    ],
    ids=["a pair that cancels", "copies that cancel", "a null head", "split in two"],
)
def test_heads_of_one_function_count_once(sizes, names, monkeypatch):
    model = copied(softmax_unit(), sizes)
    case = calibration.Case(model, TASK)
    finding = judged(case)
    assert finding.verdict == "supported", finding.reason
    assert [row["head"] for row in finding.details] == names
    assert sum(row["counts"] for row in finding.details) == 1
    if sizes[0] == (False, 3.0):  # the mutant: each head by itself
        monkeypatch.setattr(heads, "together", lambda w: [(h,) for h in range(w.shape[1])])
        assert judged(case).verdict != "supported"


def test_what_nobody_reads_makes_no_other_heads():
    """Two copies that write to coordinates of their own that nobody reads are one head.

    With a reader there they are two heads.
    """
    unit = copied(softmax_unit(), [(True, 1.0)])
    reads = alike_heads.read_later(unit, 0)
    assert reads.shape == (4, 1)
    written = torch.randn(50, 2, 4, generator=generator(0, "test"), dtype=torch.float64)
    written[:, 1, -1] = 2 * written[:, 0, -1]  # alike where the read-out looks, and nowhere else
    assert alike_heads.together(written @ reads) == [(0, 1)]
    assert alike_heads.together(written) == [(0,), (1,)]


def test_a_norm_reads_all_of_the_stream():
    cfg = replace(softmax_unit().cfg, normalization_type="LN", unit=None)
    model = HookedTransformer(cfg)
    np.testing.assert_array_equal(alike_heads.read_later(model, 0), np.eye(4))
