"""The plugin that changes last bits: it tells two routes apart, and nothing else."""

import numpy as np
import torch
from helpers import must_fail
from last_bits import LastBits, changed, digest, patch

A, B = (
    torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for seed in (0, 1)
)


def check_same(mode, first, second):
    with mode:
        assert torch.equal(first(), second())


def test_one_route_twice_is_one_number_and_another_route_is_another():
    product = lambda: A @ B  # noqa: E731
    check_same(LastBits(), product, product)
    check_same(torch.no_grad(), product, lambda: torch.cat([A, A])[3:] @ B)
    must_fail(check_same, LastBits(), lambda: A.sum(0), lambda: torch.cat([A, A]).sum(0) / 2)
    with LastBits():
        torch.testing.assert_close(A @ B, (B.T @ A.T).T, rtol=1e-15, atol=1e-15)


def test_numbers_of_few_digits_stay():
    exact = np.array([0.0, 1.0, -2.5, 1024.0, np.inf, np.nan])
    for seed in range(20):
        np.testing.assert_array_equal(changed(exact, seed), exact)
    third = np.full(99, 1 / 3)
    moved = changed(third, 0)
    assert set(np.sign(moved - third)) == {-1, 0, 1}
    np.testing.assert_allclose(moved, third, rtol=3e-16)


def test_functions_of_numpy_are_changed_by_what_they_read():
    class Module:
        mean = staticmethod(np.mean)

    patch(Module, "mean")
    values = np.random.default_rng(0).normal(size=(40, 7))
    assert np.array_equal(Module.mean(values, 0), Module.mean(values, 0))
    assert not np.array_equal(Module.mean(values, 0), np.mean(values, 0))
    np.testing.assert_allclose(Module.mean(values, 0), np.mean(values, 0), rtol=3e-16)


def test_a_digest_reads_numbers_and_shapes():
    base = digest(["sum", A])
    assert base == digest(["sum", A.clone()])
    others = (["sum", A + B], ["sum", A.reshape(1, 9)], ["mean", A])
    assert len({base, *map(digest, others)}) == 1 + len(others)
