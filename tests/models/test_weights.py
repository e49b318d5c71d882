"""Weights on disk: what was written comes back, and every mismatch is named."""

import json
import struct

import pytest
import torch
from helpers import must_fail
from small_models import make

from icl_interp.errors import InputError
from icl_interp.models import weights


def comes_back(path, model, other):
    weights.write(path, model.state_dict())
    weights.load_into(other, path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_weights_come_back(tmp_path):
    model = make()
    with torch.no_grad():
        model.embed.W_E += 1 / 3
    comes_back(tmp_path / "model.safetensors", model, make())
    must_fail(comes_back, tmp_path / "model.safetensors", model, make().float())


def test_a_header_of_any_length_is_read(tmp_path):
    """A safetensors file begins with the length of its header, whose first byte may be the one a pickle begins with."""
    path = tmp_path / "model.safetensors"
    for padding in range(64):
        header = json.dumps({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode() + b" " * 8 * padding
        header += b" " * (-len(header) % 8)
        path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<f", 1.5))
        assert weights.read(path)["t"].item() == 1.5


def edited(path, **tensors):
    """A file of a model with some tensors replaced, or dropped where None."""
    state = {**make().state_dict(), **{name.replace("__", "."): value for name, value in tensors.items()}}
    weights.write(path, {name: value for name, value in state.items() if value is not None})
    weights.load_into(make(), path)


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ({"embed__b_E": None}, "lacks the tensor embed.b_E that the config asks for"),
        ({"embed__b_E": torch.zeros(3)}, r"embed.b_E has shape \(3,\), but the config asks for \(12,\)"),
        ({"embed__b_E": torch.full((12,), torch.nan)}, "embed.b_E holds NaN or infinite numbers"),
        ({"embed__extra": torch.zeros(3)}, "holds the tensor embed.extra, which the config does not ask for"),
    ],
)
def test_what_does_not_match_is_named(tmp_path, tensors, match):
    edited(tmp_path / "fine.safetensors")
    with pytest.raises(InputError, match=match):
        edited(tmp_path / "model.safetensors", **tensors)


def test_what_is_no_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(InputError, match=r"cannot read .*model.safetensors: No such file"):
        weights.read(path)
    weights.write(path, make().state_dict())
    whole = path.read_bytes()
    for broken in (whole[:-9], whole[:20], b"", b"\xff" + whole[1:]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match="is not a whole safetensors file"):
            weights.read(path)
    for zipped in (True, False):
        torch.save(make().state_dict(), path, _use_new_zipfile_serialization=zipped)
        with pytest.raises(InputError, match="is a pickle, which can run code when read"):
            weights.read(path)
