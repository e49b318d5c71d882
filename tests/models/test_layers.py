"""Norms and activations by their formulas, on both of their routes: with gradients and without."""

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import must_fail
from torch import Tensor

from icl_interp.analyses.bench import Bench
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.layers import Norm, gelu
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.weights import lay_out
from icl_interp.tasks import LinearRegression

KINDS = ("LN", "LNPre", "RMS")


def norm(kind: str) -> Norm:
    made = Norm(
        HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, normalization_type=kind)
    ).double()
    with torch.no_grad():
        for i, parameter in enumerate(made.parameters()):
            parameter.copy_(torch.linspace(-1, 2, 8) + i)
    return made


def inputs() -> Tensor:
    """Vectors of all sizes, far from centred."""
    drawn = (
        torch.randn(4, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 3
    )
    return drawn * 10.0 ** torch.arange(-3, 2)[:, None]


def by_formula(made: Norm, x: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """The scale and the output."""
    centred = x - x.sum(-1, keepdim=True) / 8 if made.centred else x
    scale = ((centred * centred).sum(-1, keepdim=True) / 8 + eps) ** 0.5
    gain = 1.0 if made.w is None else made.w.detach()
    return scale, centred / scale * gain + (0.0 if made.b is None else made.b.detach())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_a_norm_follows_its_formula(kind: str, gradients: bool, read: bool) -> None:
    made, x, seen = norm(kind), inputs(), []
    if read:
        made.hook_scale.register_forward_hook(lambda module, given, out: seen.append(out.detach()))
    with torch.set_grad_enabled(gradients):
        out = made(x)
    scale, wanted = by_formula(made, x)
    torch.testing.assert_close(out.detach(), wanted, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(
        out.detach(), by_formula(made, x, eps=0.0)[1], rtol=1e-6, atol=1e-6
    )  # a mutant
    if read:
        torch.testing.assert_close(seen[0], scale, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_who_only_reads_a_scale_leaves_every_bit(kind: str) -> None:
    made, x = norm(kind), inputs()
    with torch.no_grad():
        bare = made(x)
        for hook in (made.hook_scale, made.hook_normalized):
            hook.register_forward_hook(lambda module, given, out: None)
        assert torch.equal(made(x), bare)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_place", [False, True])
def test_a_replaced_scale_divides_its_own_token_only(kind: str, in_place: bool) -> None:
    made, x = norm(kind), inputs()

    def edit(module: object, given: object, scale: Tensor) -> Tensor | None:
        edited = scale if in_place else scale.clone()
        edited[:, 2] = 7.0
        return None if in_place else edited

    with torch.no_grad():
        bare = made(x)
        handle = made.hook_scale.register_forward_hook(edit)
        moved = made(x)
        handle.remove()
        assert torch.equal(made(x), bare)
    others = [0, 1, 3, 4]
    assert torch.equal(moved[:, others], bare[:, others])
    gain, bias = (
        (1.0 if made.w is None else made.w.detach()),
        (0.0 if made.b is None else made.b.detach()),
    )
    centred = x - x.mean(-1, keepdim=True) if made.centred else x
    torch.testing.assert_close(
        moved[:, 2], (centred / 7.0 * gain + bias)[:, 2], rtol=1e-12, atol=1e-12
    )
    assert not torch.allclose(moved[:, 2], bare[:, 2])


def test_gelu_gives_the_same_numbers_without_gradients() -> None:
    x = torch.linspace(-9, 9, 1001, dtype=torch.float64)
    kept = x.clone()
    with torch.no_grad():
        short = gelu(x)
    assert torch.equal(x, kept)  # in place, but not in the caller's
    torch.testing.assert_close(short, F.gelu(x), rtol=0, atol=1e-14)
    torch.testing.assert_close(short, gelu(x), rtol=0, atol=0)
    assert not torch.allclose(short, F.gelu(x, approximate="tanh"), rtol=0, atol=1e-5)  # a mutant


def test_weights_laid_out_for_products_predict_the_same() -> None:
    task = LinearRegression(n_dims=2, n_points=6)
    cfg = HookedTransformerConfig(n_layers=2, d_model=16, n_heads=2, d_in=2, n_ctx=12)
    model = HookedTransformer(cfg, seed=1).double()
    tokens = torch.randn(4, 11, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    laid = lay_out(copy.deepcopy(model))
    for name, weight in laid.named_parameters():
        assert torch.equal(weight, model.get_parameter(name))
        if name.endswith(("W_O", "W_in", "W_out")):
            assert weight.flatten(0, -2).T.is_contiguous()
            assert not model.get_parameter(name).flatten(0, -2).T.is_contiguous()
            assert copy.deepcopy(laid).float().get_parameter(name).flatten(0, -2).T.is_contiguous()
    with torch.no_grad():
        torch.testing.assert_close(laid(tokens), model(tokens), rtol=1e-12, atol=1e-14)
    bench = Bench(model, task, Interleaved(), n_units=2, n_contexts=1)
    assert bench.model.blocks[0].mlp.W_in.T.is_contiguous()
    assert bench.single.blocks[0].mlp.W_in.T.is_contiguous()
    assert model.blocks[0].mlp.W_in.is_contiguous()  # the caller's stays as it is


def test_a_listener_may_return_a_number_for_a_scale():
    def divided(two):
        made = norm("LN")
        made.hook_scale.register_forward_hook(lambda module, given, scale: two(scale))
        with torch.no_grad():
            return made(inputs())

    wanted = divided(lambda scale: torch.full_like(scale, 2.0))
    torch.testing.assert_close(divided(lambda scale: 2.0), wanted)
    must_fail(torch.testing.assert_close, divided(lambda scale: 2.1), wanted)
