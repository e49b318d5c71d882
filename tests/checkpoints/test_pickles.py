"""Pickles are refused and never executed."""

import io
import os
import pickle

import numpy as np
import pytest
import torch
from helpers import must_fail
from safetensors.torch import save
from tiny_runs import refuse

from icl_interp.checkpoints.formats import files

pytestmark = pytest.mark.usefixtures("as_users_run_it")


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def by_torch(trap):
    def write(path):
        torch.save({"embed.W_E": torch.ones(1, 8), "trap": trap}, path)

    return write


def by_old_torch(trap):
    def write(path):
        torch.save({"trap": trap}, path, _use_new_zipfile_serialization=False)

    return write


def by_pickle(protocol):
    def make(trap):
        return lambda path: path.write_bytes(pickle.dumps(trap, protocol))

    return make


PICKLES = {
    "torch": by_torch,
    "old torch": by_old_torch,
    **{f"protocol {p}": by_pickle(p) for p in (2, 4, 5)},
}


def check_never_executed(folder, marker, write, read):
    for path in (folder / "model.safetensors", folder / "model.pt"):
        write(path)
        read(path if path.suffix == ".pt" else folder)
        assert not marker.exists()


def refusing(source):
    refuse(source, "is a pickle, which can run code when it is read")


def unpickling(source):
    path = source if source.is_file() else source / "model.safetensors"
    torch.load(io.BytesIO(path.read_bytes()), weights_only=False)


@pytest.mark.parametrize("kind", PICKLES)
def test_a_pickle_is_refused_and_never_executed(folder, tmp_path, kind):
    marker = tmp_path / "trapped"
    check_never_executed(folder, marker, PICKLES[kind](Trap(marker)), refusing)


def test_executing_one_would_be_noticed(folder, tmp_path):
    marker = tmp_path / "trapped"
    must_fail(check_never_executed, folder, marker, by_torch(Trap(marker)), unpickling)


class Number:
    """A number of numpy of this type, made of these bytes."""

    def __init__(self, dtype, data=None):
        self.parts = (dtype, data)

    def __reduce__(self):
        dtype, data = self.parts
        return np.float64(0).__reduce__()[0], (np.dtype(dtype), data) if data else (
            np.dtype(dtype),
        )


def test_numbers_of_numpy_are_read_and_other_types_of_it_are_not(tmp_path):
    """A type of any size would take any memory."""
    whole = {"model_state_dict": {"a": torch.ones(2)}}
    for kind in ("bool", "int32", "int64", "float32", "float64"):
        torch.save({**whole, "train_step": np.dtype(kind).type(1)}, tmp_path / "x.pt")
        assert files.read(tmp_path / "x.pt").step == (1 if "int" in kind else None)
    for number in (
        Number("V1000000"),
        Number("O", b"text"),
        np.complex128(1),
        np.str_("text"),
        np.datetime64("2020"),
    ):
        torch.save({**whole, "train_step": number}, tmp_path / "x.pt")
        refuse(
            tmp_path / "x.pt",
            r"is a pickle, which can run code .* this one asks for numpy\.",
            files.read,
        )


def test_text_pickles_are_refused_and_never_executed(folder, tmp_path):
    marker = tmp_path / "trapped"
    check_never_executed(
        folder, marker, by_pickle(0)(Trap(marker)), lambda source: refuse(source, "is not a")
    )


def test_a_safetensors_file_by_itself_is_no_pickle(tmp_path):
    for padding in range(512):
        data = save({"a": torch.ones(1)}, metadata={"pad": "x" * padding})
        if data[:1] == b"\x80":
            (tmp_path / "weights.safetensors").write_bytes(data)
            refuse(tmp_path / "weights.safetensors", "is not a checkpoint: give a run folder")
            return
    raise AssertionError("no such header")
