"""Other starts: they are paths of the same matrices.

Rescaled keys are theory's rescaled product.
"""

import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.interventions import PutActivations, intervene
from icl_interp.models.diagonal_unit import DiagonalAttention
from icl_interp.models.tokens import States
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.measurements import start_states
from icl_interp.tasks import AutoregressiveProcess
from icl_interp.theory import autoregression as theory

N_POINTS = 5


def process(matrices, tiles=1):
    return AutoregressiveProcess(n_dims=4, matrices=matrices, tiles=tiles, n_points=N_POINTS)


def check_paths(task, factor):
    prompts = task.sample(3, generator(0, "test"), dtype=torch.float64)
    other = start_states.multiplied(prompts, factor)
    torch.testing.assert_close(task.value(prompts.parameters, other.xs), other.ys)
    torch.testing.assert_close(other.ys[:, :-1], other.xs[:, 1:])
    size = factor.abs().repeat(task.tiles).repeat_interleave(2)
    assert not torch.allclose(other.xs, prompts.xs)
    start = prompts.xs[:, 0].unflatten(-1, (-1, 2)).norm(dim=-1)
    torch.testing.assert_close(
        other.xs[:, 0].unflatten(-1, (-1, 2)).norm(dim=-1), start * size[::2]
    )


def test_they_are_paths_of_the_same_matrices():
    for task in (process("unitary"), process("conjugate_pairs"), process("rotations", tiles=2)):
        for factor in start_states.other_starts(task, 0):
            check_paths(task, factor)
    haar = AutoregressiveProcess(
        n_dims=8, n_points=N_POINTS
    )  # matrices that do not commute with the factor
    must_fail(check_paths, haar, start_states.other_starts(process("unitary"), 0)[0])


def test_conjugate_coordinates_start_conjugate():
    for factor in start_states.other_starts(process("conjugate_pairs"), 0):
        assert torch.equal(factor[1::2], factor[::2].conj())
    sizes = start_states.other_starts(process("unitary"), 0).abs()
    assert start_states.LEAST <= float(sizes.min()) < float(sizes.max()) <= start_states.MOST


def test_rescaled_keys_are_theorys_rescaled_product():
    """with_start divides column i of C by |s_0i|^2, that is the i-th entry of each a_h."""
    A, B = torch.randn(2, 3, 4, generator=generator(0, "test"), dtype=torch.float64)
    P = torch.randn(N_POINTS, N_POINTS, generator=generator(1, "test"), dtype=torch.float64)
    task = process("unitary")
    factor = start_states.other_starts(task, 0)[0]
    C = theory.with_start(theory.head_product(A, B), factor.abs())
    model = DiagonalAttention(A / factor.abs().square() + 0j, B + 0j, P).to_transformer()
    plain = DiagonalAttention(A + 0j, B + 0j, P).to_transformer()
    torch.testing.assert_close(theory.head_product(A / factor.abs().square(), B), C)
    prompts = start_states.multiplied(
        task.sample(3, generator(0, "test"), dtype=torch.float64), factor
    )
    shrunk = start_states.multiplied(prompts, 1 / factor.abs().square().to(factor))
    with intervene(plain, PutActivations.measure(plain, shrunk.xs, [start_states.KEYS])):
        found = plain(prompts.xs)
    torch.testing.assert_close(found, model(prompts.xs))
    must_fail(torch.testing.assert_close, plain(prompts.xs), model(prompts.xs))


def test_a_minimiser_predicts_from_any_start_only_with_rescaled_heads():
    task = process("unitary")
    A, B, _ = theory.unitary_heads(4, N_POINTS)
    unit = DiagonalAttention(A + 0j, B + 0j, torch.eye(N_POINTS, dtype=torch.float64))
    result = Lab(unit.to_transformer(), task, States(), n_units=8, n_contexts=1).measure(
        start_states.starts
    )
    means = {str(arm): float(result.sel(arm=arm).values.mean()) for arm in result.indexes["arm"]}
    assert means[start_states.USUAL] < 1e-20
    assert means[start_states.RESCALED] < 1e-20
    assert means[start_states.PLAIN] > 0.1


def test_starts_are_drawn_with_the_sample():
    """No start is known beforehand: another seed gives others."""
    task = process("unitary")
    torch.testing.assert_close(
        start_states.other_starts(task, 3), start_states.other_starts(task, 3)
    )
    must_fail(
        torch.testing.assert_close,
        start_states.other_starts(task, 3),
        start_states.other_starts(task, 4),
    )
