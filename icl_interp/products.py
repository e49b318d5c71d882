"""Products of activations with weights, and with themselves, by the fastest kernel.

On a CPU torch computes products with MKL and convolutions with oneDNN. MKL leaves half of the
vector units of AMD's processors idle and oneDNN does not, so there a large product in float32 takes
half the time as a convolution of width 1 (`python -m benchmarks product`). oneDNN knows no float64,
and with a single thread torch does not ask it for such small batches, so then nothing changes.

The package's own loops (training, evaluation, probes, analyses) run within `fast`. Outside it, and
wherever it is compiled, a model is made of torch's usual operations, for whoever traces it or
compares it with another library.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.nn.grad import conv2d_weight

ONEDNN = torch.backends.mkldnn.is_available() and platform.machine().lower() in ("x86_64", "amd64")
# Below these sizes what a convolution costs besides its arithmetic is more than it saves.
ROWS = 256
MULTIPLICATIONS = 2**23
_FAST = ContextVar("large products by the faster kernel", default=False)


@contextmanager
def fast() -> Iterator[None]:
    """A context, or a decorator, in which large products run in the faster kernel.

    Numbers agree up to rounding.

    Not around a `yield` and not on a generator function: it would hold for whoever runs in between,
    or not at all. A new thread starts without it.

    >>> x = torch.randn(1024, 128)
    >>> with fast():
    ...     quick = gram(x)
    >>> torch.allclose(quick, gram(x), rtol=0, atol=1e-2)
    True
    """
    before = _FAST.set(True)
    try:
        yield
    finally:
        _FAST.reset(before)


def linear(
    x: Float[Tensor, "*row n_in"],
    weight: Float[Tensor, "n_out n_in"],
    bias: Float[Tensor, " n_out"] | None = None,
) -> Float[Tensor, "*row n_out"]:
    """x weight^T + bias, as `torch.nn.functional.linear`, for a bias of one number an output.

    >>> x, weight, bias = torch.randn(1024, 64), torch.randn(256, 64), torch.randn(256)
    >>> with fast():
    ...     out = linear(x, weight, bias)
    >>> torch.allclose(out, F.linear(x, weight, bias), rtol=0, atol=1e-4)
    True
    """
    n_out = len(weight)
    if not _by_convolution(x, n_out):
        return F.linear(x, weight, bias)
    image = F.conv2d(_image(x), weight[:, :, None, None], bias)
    by_pixel = image.permute(0, 2, 3, 1)
    return by_pixel.reshape(*x.shape[:-1], n_out)


def gram(x: Float[Tensor, "row d"]) -> Float[Tensor, "d d"]:
    """x^T x: the products of all pairs of columns.

    >>> gram(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[10.0, 14.0], [14.0, 20.0]]
    """
    d = x.shape[1]
    if not _by_convolution(x, d):
        return x.T @ x
    # What a convolution's weights would be moved by: sums over pixels of products of channels.
    image = _image(x)
    moved = conv2d_weight(image, (d, d, 1, 1), image)
    return moved[:, :, 0, 0]


def _by_convolution(x: Float[Tensor, "*row n_in"], n_out: int) -> bool:
    """Whether a product is computed by oneDNN."""
    # First: what compiles a model can't look into a ContextVar, and would compile anew for each
    # size asked for below.
    if torch.compiler.is_compiling() or not _FAST.get():
        return False
    if not ONEDNN or torch.get_num_threads() < 2:
        return False
    n_numbers = x.numel()
    n_rows = n_numbers // max(1, x.shape[-1])
    if n_rows < ROWS or n_numbers * n_out < MULTIPLICATIONS:
        return False
    return x.dtype == torch.float32 and x.device.type == "cpu"


def _image(x: Float[Tensor, "*row n_in"]) -> Float[Tensor, "1 n_in 1 n_row"]:
    """A matrix as an image of one line, rows as pixels and columns as channels, without a copy."""
    by_pixel = x.reshape(1, 1, -1, x.shape[-1])
    return by_pixel.permute(0, 3, 1, 2)
