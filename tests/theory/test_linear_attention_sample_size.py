"""How many examples an error needs, against exact quadrature over prompts of each length."""

import itertools

import pytest
import torch
from exact_prompts import covariance, grid, normal, root
from helpers import must_fail

from icl_interp.theory import linear_attention as theory


def exact_risk(matrix, m, lam, a, tau):
    """E(yhat - y)^2 over prompts of m examples and a query, by quadrature over all of them."""
    d = len(lam)
    nodes, weights = grid(*[3] * (m * d), *[3] * (m if tau else 0))
    z = nodes[:, : m * d].view(-1, m, d)
    xs = z @ root(lam).T
    ys = xs @ a
    if tau:
        ys = ys + tau * nodes[:, m * d :]
    miss = torch.einsum("pn,pnd->pd", ys, xs) @ matrix / m - a
    return float(weights @ torch.einsum("pi,ij,pj->p", miss, lam, miss)) + tau**2


def first_length(risks, most):
    """The first of the lengths 1, 2, ... from which on all measured risks are at most `most`."""
    within = [risk <= most for risk in risks]
    failures = [m for m, ok in enumerate(within, start=1) if not ok]
    return max(failures, default=0) + 1


@pytest.mark.parametrize(("d", "tau", "longest"), [(1, 0.0, 9), (1, 3.0, 5), (2, 0.0, 5)])
def test_the_number_of_examples_is_where_exact_risks_fall_below(d, tau, longest):
    lam, a = covariance(d), normal(d, seed=4)
    trained = theory.landscape(lam, 7).product
    risks = [exact_risk(trained, m, lam, a, tau) for m in range(1, longest + 1)]
    # A risk f + V / m at two lengths gives f and V without any formula of the package.
    floor = 2 * risks[1] - risks[0]
    wanted = [risk - floor + 1e-9 for risk in risks] + [(risks[0] - floor) / 2.5]

    def check(needed):
        for epsilon in wanted:
            assert needed(trained, epsilon, lam, a, tau**2) == first_length(risks, floor + epsilon)

    check(theory.examples_needed)
    must_fail(check, lambda p, e, *rest: theory.examples_needed(p, e / 2, *rest))  # L = risk / 2
    must_fail(check, lambda p, e, *rest: theory.examples_needed(p, e, *rest) - 1)
    must_fail(check, lambda p, e, lam, a, t: theory.examples_needed(p, e, 2 * lam, a, t))
    if tau:
        must_fail(check, lambda p, e, lam, a, t: theory.examples_needed(p, e, lam, a))


def test_a_tenth_of_the_error_needs_ten_times_the_examples():
    lam, tasks = covariance(3), torch.eye(3, dtype=torch.float64)
    trained = theory.landscape(lam, 20).product
    found = [theory.examples_needed(trained, 10.0**-k, lam, tasks) for k in range(1, 7)]
    for fewer, more in itertools.pairwise(found):
        assert 10 * (fewer - 1) < more <= 10 * fewer
    # A query of twice the size asks for four times the examples.
    longer = theory.examples_needed(trained, 1e-6, lam, tasks, query_covariance=4 * lam)
    assert abs(longer - 4 * found[-1]) <= 4


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf")])
def test_an_error_that_is_no_positive_number_is_refused(epsilon):
    eye = torch.eye(2, dtype=torch.float64)
    with pytest.raises(ValueError, match="positive number"):
        theory.examples_needed(eye, epsilon, eye, eye)
