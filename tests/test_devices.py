"""Devices: a name is believed only after a computation on it."""

import pytest
import torch

from icl_interp.devices import checked_device
from icl_interp.errors import InputError


def test_the_cpu_is_the_default():
    assert (
        checked_device(None)
        == checked_device("cpu")
        == checked_device(torch.device("cpu"))
        == torch.device("cpu")
    )


ABSENT = [
    "gpu",
    "",
    "cpu:x",
    "meta",
    *([] if torch.cuda.is_available() else ["cuda", "cuda:1"]),
    "cuda:99",
]


@pytest.mark.parametrize("name", ABSENT)
def test_a_device_that_is_not_there_is_one_clear_line(name):
    match = rf"cannot compute with float32 on the device '{name}' \(.+\): give"
    with pytest.raises(InputError, match=match) as refused:
        checked_device(name)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_device_that_lacks_the_type_of_number_is_refused():
    with pytest.raises(InputError, match="cannot compute with float8_e5m2 on the device 'cpu'"):
        checked_device("cpu", torch.float8_e5m2)
