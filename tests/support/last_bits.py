"""A pytest plugin: last bits of results change, as they do from processor to processor.

    make test ARGS="-p last_bits tests/theory tests/models"

The results of matrix products, reductions and factorisations, of torch and of numpy's functions,
are changed by at most their last bit. The change is a function of the operation and of all the
numbers and shapes that went in: a computation that is done twice gives the same, another route to
the same number does not. So a test that compares two routes by `==` fails here, and might on
another machine. Numbers with few digits, which every route gets exactly, stay as they are.

It is slow (ten times, on models), and numpy's methods and `@` escape it: it is for looking, not for
every run.
"""

import functools
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

TORCH = {
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "mv",
    "dot",
    "sum",
    "mean",
    "var",
    "std",
    "var_mean",
    "std_mean",
    "norm",
    "prod",
    "cumsum",
    "logsumexp",
    "_softmax",
    "native_layer_norm",
    "_scaled_dot_product_flash_attention_for_cpu",
}
NUMPY = {
    np: (
        "average",
        "corrcoef",
        "cov",
        "cumsum",
        "dot",
        "einsum",
        "mean",
        "median",
        "polyfit",
        "quantile",
        "std",
        "sum",
        "trapezoid",
        "var",
    ),
    np.linalg: ("eigh", "eigvalsh", "inv", "lstsq", "norm", "pinv", "qr", "solve", "svd"),
}
DIGITS = {
    np.dtype("float32"): 10,
    np.dtype("float64"): 30,
}  # binary ones behind the point that count as few


def digest(values: Iterable[Any], start: int = 0) -> int:
    """A number that changes with any number or shape among the values."""
    for value in values:
        if isinstance(value, torch.Tensor):
            value = (
                value.detach().cpu().float().numpy()
                if value.dtype == torch.bfloat16
                else value.detach().numpy()
            )
        if isinstance(value, np.ndarray):
            start = zlib.crc32(
                np.ascontiguousarray(value).tobytes(), zlib.crc32(repr(value.shape).encode(), start)
            )
        elif isinstance(value, (list, tuple)):
            start = digest(value, start)
        else:
            start = zlib.crc32(repr(value).encode(), start)
    return start


def changed(values: np.ndarray, seed: int) -> np.ndarray:
    """The values, each moved by one last bit up or down or left alone."""
    if values.dtype not in DIGITS:
        return values
    step = np.random.default_rng(seed).integers(-1, 2, values.shape) * np.finfo(values.dtype).eps
    with np.errstate(all="ignore"):
        shifted = np.ldexp(values, DIGITS[values.dtype])
        exact = (shifted == np.round(shifted)) | ~np.isfinite(values)
        return np.where(exact, values, values * (1 + step)).astype(values.dtype)


class LastBits(TorchDispatchMode):
    """Changes what torch's operations return."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and change its result if its last bits depend on the processor."""
        out, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        affected = name in TORCH or name.startswith(("linalg", "_linalg"))
        if not affected or "out" in func._overloadname:
            return out
        seed = digest((name, *args, *(kwargs or {}).values()))
        if isinstance(out, tuple) and type(out) is tuple:
            return tuple(self.one(part, seed) for part in out)
        return self.one(out, seed)

    def one(self, out: Any, seed: int) -> Any:
        """One result, if it is a tensor of numbers."""
        if (
            not isinstance(out, torch.Tensor)
            or out.is_meta
            or out.dtype not in (torch.float32, torch.float64)
        ):
            return out
        return torch.from_numpy(np.ascontiguousarray(changed(out.detach().numpy(), seed))).reshape(
            out.shape
        )


def patch(module: Any, name: str) -> None:
    """Make a function of numpy change its results."""
    function = getattr(module, name)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        out, seed = function(*args, **kwargs), digest((name, *args, *kwargs.values()))
        if isinstance(out, np.floating):
            return changed(np.asarray(out), seed)[()]
        if type(out) is tuple:
            return tuple(
                changed(part, seed) if isinstance(part, np.ndarray) else part for part in out
            )
        return changed(out, seed) if isinstance(out, np.ndarray) else out

    setattr(module, name, wrapped)


def pytest_configure(config: pytest.Config) -> None:
    """Only where the plugin is asked for: importing this file changes nothing."""
    for module, names in NUMPY.items():
        for name in names:
            if hasattr(module, name):  # np.trapezoid came with numpy 2
                patch(module, name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Every test runs with changed last bits."""
    with LastBits():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Any:
    """So do its fixtures."""
    with LastBits():
        return (yield)
