"""The product of activations and weights, by the kernel that is fastest for it."""

import platform

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

ONEDNN = torch.backends.mkldnn.is_available() and platform.machine().lower() in ("x86_64", "amd64")
# Below these sizes what a convolution costs besides its arithmetic is more than it saves.
ROWS, MULTIPLICATIONS = 256, 2**23


def linear(
    x: Float[Tensor, "*row n_in"], weight: Float[Tensor, "n_out n_in"], bias: Float[Tensor, " n_out"] | None = None
) -> Float[Tensor, "*row n_out"]:
    """x weight^T + bias, as `torch.nn.functional.linear`.

    On a CPU torch computes products with MKL and convolutions with oneDNN. MKL leaves half of the vector units of AMD's
    processors idle and oneDNN does not, so there a large product in float32 takes half the time as a convolution of
    width 1 (`python -m benchmarks product`). oneDNN knows no float64.

    >>> x, weight, bias = torch.randn(1024, 64), torch.randn(256, 64), torch.randn(256)
    >>> torch.allclose(linear(x, weight, bias), F.linear(x, weight, bias), rtol=0, atol=1e-4)
    True
    """
    n_rows = x.numel() // max(1, x.shape[-1])
    large = n_rows >= ROWS and n_rows * weight.numel() >= MULTIPLICATIONS
    if not (ONEDNN and large and x.dtype == torch.float32 and x.device.type == "cpu"):
        return F.linear(x, weight, bias)
    # One image of one line, whose pixels are rows and whose channels are columns: no number moves in memory.
    image = x.reshape(1, 1, n_rows, x.shape[-1]).permute(0, 3, 1, 2)
    out = F.conv2d(image, weight[:, :, None, None], bias)
    return out.permute(0, 2, 3, 1).reshape(*x.shape[:-1], len(weight))
