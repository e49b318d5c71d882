"""Pickles are refused and never executed."""

import io
import os
import pickle

import pytest
import torch
from helpers import must_fail
from safetensors.torch import save
from tiny_runs import refuse

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


PICKLES = {"torch": by_torch, "old torch": by_old_torch, **{f"protocol {p}": by_pickle(p) for p in (2, 4, 5)}}


def check_never_executed(folder, marker, write, read):
    for path in (folder / "model.safetensors", folder / "model.pt"):
        write(path)
        read(path if path.suffix == ".pt" else folder)
        assert not marker.exists()


def refusing(source):
    refuse(source, "is a pickle, which can run code when read")


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


def test_text_pickles_are_refused_and_never_executed(folder, tmp_path):
    marker = tmp_path / "trapped"
    check_never_executed(folder, marker, by_pickle(0)(Trap(marker)), lambda source: refuse(source, "is not a"))


def test_a_safetensors_file_by_itself_is_no_pickle(tmp_path):
    for padding in range(512):
        data = save({"a": torch.ones(1)}, metadata={"pad": "x" * padding})
        if data[:1] == b"\x80":
            (tmp_path / "weights.safetensors").write_bytes(data)
            refuse(tmp_path / "weights.safetensors", "is not a checkpoint: give a run folder")
            return
    raise AssertionError("no such header")
