"""What pruning heads costs, and which heads are kept."""

import itertools
import math

import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.experiments import calibration
from icl_interp.models.diagonal_unit import DiagonalAttention
from icl_interp.models.tokens import States
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.constructions import units
from icl_interp.studies.autoregression.measurements import pruned_heads, unit
from icl_interp.studies.autoregression.measurements.unit import Heads
from icl_interp.tasks import AutoregressiveProcess
from icl_interp.tasks.autoregressive import complex_states


@pytest.mark.parametrize(("n_heads", "n_kept"), [(6, 3), (12, 5)])
def test_heads_to_keep(n_heads, n_kept):
    """Costs that add up: the dearest are kept, one after the other and all at once."""
    prices = torch.rand(n_heads, generator=generator(0, "test")).tolist()
    kept = pruned_heads.best_subset(n_heads, n_kept, lambda heads: -sum(prices[h] for h in heads))
    assert set(kept) == set(sorted(range(n_heads), key=prices.__getitem__)[-n_kept:])
    assert (math.comb(n_heads, n_kept) <= pruned_heads.MOST_SUBSETS) == (n_heads == 6)


def test_the_best_subset_is_found_where_one_after_the_other_fails():
    """Heads 2 and 3 are worth something together only, and more than 0 and 1."""

    def cost(heads):
        return -3 * ({2, 3} <= set(heads)) - sum(h in heads for h in (0, 1))

    assert set(pruned_heads.best_subset(4, 2, cost)) == {2, 3}

    def greedy(heads):
        return min(
            itertools.combinations(heads, len(heads) - 1),
            key=lambda h: -sum(x in h for x in (0, 1)),
        )

    assert set(greedy((0, 1, 2, 3))) >= {0, 1}


def pruned(case):
    assert case.task is not None
    lab = Lab(case.model, case.task, States(), n_units=32, n_contexts=1)
    return lab.measure(pruned_heads.pruned)


def mean(result, arm):
    return float(result.sel(arm=arm).values.mean())


@pytest.mark.slow
def test_what_pruning_costs_is_what_the_best_four_heads_miss():
    """What pruning costs, independent of interventions: predictions are sums over heads.

    What heads write has mean 0 on the task.
    """
    case = units.shared(generator(3, "test"))
    assert case.task is not None
    result = pruned(case)
    assert mean(result, pruned_heads.INTACT) < 1e-20
    assert mean(result, pruned_heads.NONE) == pytest.approx(1.0, abs=0.1)
    prompts = case.task.sample(4000, generator(0, "test/other"), dtype=torch.float64)
    states, after = complex_states(prompts.xs), complex_states(prompts.ys)
    real, P = unit.heads_of(case.model), case.model.blocks[0].attn.W_P.detach()
    each = [unit.says(Heads(real.keys[[h]], real.values[[h]]), P, states)[:, 1:] for h in range(8)]

    def missed(kept):
        return float((sum(each[h] for h in kept) - after[:, 1:]).abs().square().mean())

    def check(least):
        assert mean(result, pruned_heads.PRUNED) == pytest.approx(least, rel=0.2)

    costs = sorted(missed(kept) for kept in itertools.combinations(range(8), 4))
    check(costs[0])
    must_fail(check, costs[len(costs) // 2])


@pytest.mark.slow
def test_heads_that_cancel_cost_nothing_and_needed_ones_do():
    case = units.spare(generator(1, "test"))
    assert mean(pruned(case), pruned_heads.PRUNED) < 1e-20

    def one_of_them_gone():
        with torch.no_grad():
            case.model.blocks[0].attn.W_O[0] = 0
        assert mean(pruned(case), pruned_heads.PRUNED) < 1e-3

    must_fail(one_of_them_gone)


@pytest.mark.slow
def test_heads_are_chosen_on_other_functions(monkeypatch):
    """Each half of the units is judged with heads that were chosen on the other half."""
    asked = []
    plain = pruned_heads._errors

    def noted(lab, kept, rows=slice(None)):
        asked.append((rows.start, rows.stop))
        return plain(lab, kept, rows)

    monkeypatch.setattr(pruned_heads, "_errors", noted)
    pruned(units.spare(generator(1, "test")))
    n_subsets = math.comb(6, 4)  # of 8 heads two pairs have one pattern
    assert asked == [
        *((None, None),) * 2,
        *((0, 32),) * n_subsets,
        (32, None),
        *((32, None),) * n_subsets,
        (0, 32),
    ]


def check_cells(name, seed=5):
    for row in calibration.calibrate(1, seed, only=[name]).to_dict("records"):
        assert row["as expected"] == row["draws"], row


@pytest.mark.slow
def test_keeping_the_first_heads_breaks_the_cell_of_heads_that_cancel(monkeypatch):
    monkeypatch.setattr(
        pruned_heads, "best_subset", lambda n_heads, n_kept, cost: tuple(range(n_kept))
    )
    must_fail(check_cells, "diagonal unit with heads that cancel")


def test_rotations_in_real_coordinates_can_be_asked():
    task = AutoregressiveProcess(n_dims=2, matrices="rotations", n_points=5)
    one = DiagonalAttention.random(2, 1, 5, generator(0, "test"), scale=1.0)
    lab = Lab(one.to_transformer(), task, States(), n_units=8, n_contexts=1)
    assert lab.measure(pruned_heads.pruned).sizes == {"unit": 8, "point": 4, "arm": 3}
