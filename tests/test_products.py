"""Products by either kernel, against float64."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextvars import Context
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import must_fail
from torch import Tensor

import icl_interp
from icl_interp import products, provenance
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement
from icl_interp.probes.base import Probe
from icl_interp.probes.sweep import Sweep, places, run
from icl_interp.products import MULTIPLICATIONS, ROWS, fast, gram, linear
from icl_interp.results import make_array
from icl_interp.training import trainer

N_IN, N_OUT = 64, MULTIPLICATIONS // ROWS // 64  # with ROWS rows just large enough
needs_onednn = pytest.mark.skipif(
    not products.ONEDNN, reason="torch has no oneDNN for this processor"
)


def drawn(*shape: int, stream: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(stream))


def operands(*rows: int, n_out: int = N_OUT) -> list[Tensor]:
    return [drawn(*rows, N_IN), drawn(n_out, N_IN, stream=1), drawn(n_out, stream=2)]


@pytest.fixture(autouse=True)
def by_the_faster_kernel() -> Iterator[None]:
    """With two threads: with one, torch keeps convolutions of so few images from oneDNN."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with fast():
        yield
    torch.set_num_threads(before)


def kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of the two kernels is called from now on."""
    called: list[str] = []
    for name in ("linear", "conv2d"):
        kernel = getattr(F, name)
        monkeypatch.setattr(
            F, name, lambda *args, name=name, kernel=kernel: called.append(name) or kernel(*args)
        )
    return called


def is_the_product(product, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Up to float32's rounding of a sum of 64 terms of size 1."""
    wanted = torch.einsum("...i,oi->...o", x.double(), weight.double())
    wanted = wanted if bias is None else wanted + bias.double()
    torch.testing.assert_close(product(x, weight, bias).double(), wanted, rtol=0, atol=1e-4)


SHAPES = [(ROWS,), (ROWS - 1,), (2, ROWS // 2), (3, 5, ROWS), (2 * ROWS,), (1, 1), (0, 7)]


@pytest.mark.parametrize("rows", SHAPES)
def test_it_is_the_product(rows: tuple[int, ...]) -> None:
    x, weight, bias = operands(*rows)
    is_the_product(linear, x, weight, bias)
    is_the_product(linear, x, weight, None)
    if x.numel():
        must_fail(is_the_product, lambda x, weight, bias: linear(x, weight), x, weight, bias)
        must_fail(
            is_the_product,
            lambda x, weight, bias: linear(x.flip(-1), weight, bias),
            x,
            weight,
            bias,
        )


@needs_onednn
def test_only_large_products_in_float32_are_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    called = kernels(monkeypatch)
    x, weight, bias = operands(ROWS)
    linear(x, weight, bias)
    few, (_, wide, offsets) = operands(ROWS - 1)[0], operands(1, n_out=2 * N_OUT)
    assert few.numel() * len(wide) > MULTIPLICATIONS
    linear(few, wide, offsets)  # too few rows
    linear(x, weight[1:], bias[1:])  # too few multiplications
    linear(x.double(), weight.double(), bias.double())
    assert called == ["conv2d", "linear", "linear", "linear"]
    monkeypatch.setattr(products, "ONEDNN", False)
    linear(x, weight, bias)
    monkeypatch.setattr(products, "ONEDNN", True)
    torch.set_num_threads(1)
    linear(x, weight, bias)
    assert called[4:] == ["linear", "linear"]


@needs_onednn
def test_two_threads_bring_it_to_onednn() -> None:
    """What `fast` promises is oneDNN's kernel, and not another one of torch's."""
    given = operands(4 * ROWS)
    with torch.profiler.profile() as seen:
        linear(*given)
        gram(given[0])
    names = {event.key for event in seen.key_averages()}
    assert any("mkldnn" in name for name in names), names
    assert not any("slow_conv2d" in name for name in names), names


@pytest.mark.parametrize("turned", [False, True])
def test_layout_in_memory_makes_no_difference(turned: bool) -> None:
    x, weight, bias = operands(ROWS, 2)
    if turned:
        x, weight = x.transpose(0, 1).contiguous().transpose(0, 1), weight.T.contiguous().T
        assert not x.is_contiguous()
        assert not weight.is_contiguous()
    is_the_product(linear, x, weight, bias)
    is_the_product(linear, x[:, :1].expand(-1, 2, -1), weight, bias)
    assert linear(x, weight, bias).is_contiguous()


@pytest.mark.parametrize("turned", [False, True])
def test_gradients_are_those_of_the_product(turned: bool) -> None:
    def gradients_agree(product) -> None:
        x, weight, bias = operands(4, ROWS)
        given = [
            t.requires_grad_() for t in (x, weight.T.contiguous().T if turned else weight, bias)
        ]
        # To the sine of the output, so that gradients depend on it.
        found = torch.autograd.grad(product(*given).sin().sum(), given)
        exact = [t.detach().double().requires_grad_() for t in given]
        wanted = torch.autograd.grad((exact[0] @ exact[1].T + exact[2]).sin().sum(), exact)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-2)

    gradients_agree(linear)
    must_fail(
        gradients_agree, lambda x, weight, bias: linear(x, weight.detach(), bias) + 0 * weight.sum()
    )


def test_a_row_with_nan_spoils_no_other() -> None:
    x, weight, bias = operands(ROWS)
    whole = linear(x, weight, bias)
    x[3, 5] = torch.nan
    out = linear(x, weight, bias)
    assert out[3].isnan().all()
    others = torch.arange(ROWS) != 3
    torch.testing.assert_close(out[others], whole[others], rtol=0, atol=1e-5)


def test_the_same_operands_give_the_same_bits() -> None:
    given = operands(3, ROWS)
    assert torch.equal(linear(*given), linear(*given))


# ---- products of all columns ---------------------------------------------------------------------


def is_the_gram_matrix(product, x: Tensor) -> None:
    wanted = torch.einsum("ri,rj->ij", x.double(), x.double())
    torch.testing.assert_close(
        product(x).double(), wanted, rtol=0, atol=1e-4 * max(1, len(x)) ** 0.5
    )


@pytest.mark.parametrize(
    ("rows", "d"), [(4 * ROWS, 128), (ROWS, 256), (3, 256), (ROWS, 3), (1, 1), (0, 2)]
)
def test_products_of_all_columns(rows: int, d: int) -> None:
    x = drawn(rows, d)
    is_the_gram_matrix(gram, x)
    is_the_gram_matrix(gram, x.T.contiguous().T)
    is_the_gram_matrix(gram, drawn(rows, 2 * d)[:, ::2])
    if rows > 1:
        must_fail(is_the_gram_matrix, lambda x: gram(x - x.mean(0)), x + 1)


@needs_onednn
def test_only_large_ones_of_columns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    kernel = products.conv2d_weight
    monkeypatch.setattr(
        products, "conv2d_weight", lambda *args: called.append("convolution") or kernel(*args)
    )
    x = drawn(4 * ROWS, 128)
    gram(x)
    gram(x.double())
    gram(x[:ROWS])
    assert called == ["convolution"]


# ---- when ----------------------------------------------------------------------------------------


def asks_for_speed() -> bool:
    return products._FAST.get()


def test_the_faster_kernel_is_asked_for_and_put_back() -> None:
    def in_and_out() -> None:
        assert not asks_for_speed()
        with fast():
            with fast():
                assert asks_for_speed()
            assert asks_for_speed()  # the package's loops stand in one another
        assert not asks_for_speed()
        with pytest.raises(ZeroDivisionError), fast():
            1 / 0  # noqa: B018
        assert not asks_for_speed()
        assert fast()(asks_for_speed)()
        assert not asks_for_speed()

    Context().run(in_and_out)


@needs_onednn
def test_a_model_by_itself_is_made_of_the_usual_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = icl_interp.load("affine")
    prompts = checkpoint.task.sample(128, provenance.generator(0, "test/products"))
    tokens = checkpoint.encoding.encode(prompts).float()
    called = kernels(monkeypatch)

    def by_hand() -> list[str]:
        called.clear()
        with torch.no_grad():
            checkpoint.model(tokens)
        return list(called)

    def by_the_package() -> list[str]:
        called.clear()
        checkpoint.predict(prompts)
        return list(called)

    assert "conv2d" not in Context().run(by_hand)
    assert "conv2d" in Context().run(by_the_package)
    assert "conv2d" in by_hand()  # within the fixture's `fast`


class Noting(Probe):
    name = "noting"

    def hooks(self, model, positions):
        return [("hook_embed", lambda t, hook: noted.append(asks_for_speed()))]

    def results(self):
        return {}


noted: list[bool] = []


def probes() -> None:
    icl_interp.probe(icl_interp.load("affine").model, torch.zeros(1, 3, 1), [Noting()])


def sweeps() -> None:
    checkpoint = icl_interp.load("affine")
    prompts = checkpoint.task.sample(2, provenance.generator(0, "test/products"))
    run(
        checkpoint.model,
        checkpoint.encoding,
        [Sweep(prompts, places([0.5], 1), (0.5,), probes=(Noting(),))],
    )


def measurements() -> None:
    asked = Measurement(
        "test/products", lambda lab: noted.append(asks_for_speed()) or make_array(0.0, {})
    )
    checkpoint = icl_interp.load("affine")
    Lab(checkpoint.model, checkpoint.task, checkpoint.encoding, n_units=2).measure_all([asked])


@pytest.mark.parametrize("loop", [probes, sweeps, measurements])
def test_the_packages_own_loops_ask_for_it(loop: Callable[[], None]) -> None:
    noted.clear()
    Context().run(loop)
    assert noted
    assert all(noted)
    assert not Context().run(asks_for_speed)


def test_so_does_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noted.clear()
    monkeypatch.setattr(trainer.Run, "go", lambda *_: noted.append(asks_for_speed()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Context().run(lambda: icl_interp.train("affine", tmp_path / "run"))
    assert noted == [True]


# ---- compiled models -----------------------------------------------------------------------------

# In a process of its own: what checks types at run time does not compile.
COMPILED = """
import sys
import torch
from contextlib import nullcontext
from icl_interp import HookedTransformer, HookedTransformerConfig, products

if "mutant" in sys.argv:  # asks what no compiler can see
    products._by_convolution = lambda x, n_out: products._FAST.get() and len(x) > 1
model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=128, n_heads=4, n_ctx=16))
tokens = torch.randn(64, 9, 1)
with torch.no_grad():
    wanted = model(tokens)
    for context in (nullcontext, products.fast):
        torch.compiler.reset()
        compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
        with context():
            for n in (64, 20, 3):  # on either side of where a product would change its kernel
                torch.testing.assert_close(compiled(tokens[:n]), wanted[:n], rtol=1e-4, atol=1e-5)
    exported = torch.export.export(model, (tokens,), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=512)},))
    torch.testing.assert_close(exported.module()(tokens[:20]), wanted[:20], rtol=1e-4, atol=1e-5)
print("compiled and exported")
"""


@pytest.mark.slow
def test_a_model_compiles_as_one_graph_for_any_batch() -> None:
    def run_it(*mutant: str) -> None:
        found = subprocess.run(
            [sys.executable, "-c", COMPILED, *mutant], capture_output=True, text=True
        )
        assert "compiled and exported" in found.stdout, found.stderr[-2000:]

    run_it()
    must_fail(run_it, "mutant")
