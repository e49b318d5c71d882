"""Run folders: what is saved loads as the same model, and whatever else is found there is refused in one clear line."""

import io
import json
import os
import pickle

import jaxtyping
import pytest
import tiny_runs
import torch
from helpers import must_fail
from safetensors.torch import load as parse
from safetensors.torch import save

from icl_interp import provenance
from icl_interp.checkpoints.store import Checkpoint, load
from icl_interp.errors import InputError
from icl_interp.models import weights
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator


@pytest.fixture(autouse=True)
def as_users_run_it(monkeypatch):
    """Without the run-time check of annotations, which only tests switch on: it would refuse wrong types first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def folder(tmp_path):
    """A saved checkpoint."""
    return tiny_runs.checkpoint().save(tmp_path / "run")


KINDS = {
    "pre": {},
    "post": {"model": {"norm_position": "post"}},
    "rms": {"model": {"normalization_type": "RMS"}},
    "no norm": {"model": {"normalization_type": None, "positional_embedding_type": "none"}},
    "attention only": {"model": {"attn_only": True}},
    "linear": {"model": {"score_fn": "linear", "score_norm": "visible"}},
    "stacked": tiny_runs.STACKED,
    "no training": {"training": None},
}


def check_same_model(found, saved):
    """Equal predictions, config, task and encoding."""
    prompts = saved.task.sample(5, generator(0, "test"))
    tokens = saved.encoding.encode(prompts)
    with torch.no_grad():
        assert torch.equal(found.model(tokens), saved.model(tokens))
    assert torch.equal(found.predict(prompts).nan_to_num(9), saved.predict(prompts).nan_to_num(9))
    assert (found.config, found.task, found.encoding) == (saved.config, saved.task, saved.encoding)
    assert not found.model.training


@pytest.mark.parametrize("name", KINDS)
def test_what_is_saved_loads_as_the_same_model(tmp_path, name):
    saved = tiny_runs.checkpoint(**KINDS[name])
    folder = saved.save(tmp_path / "run")
    assert sorted(tiny_runs.contents(folder)) == ["config.json", "model.safetensors", "provenance.json"]
    for source in (folder, str(folder), folder / "config.json", folder / "model.safetensors"):
        check_same_model(load(source), saved)
    model = HookedTransformer.from_checkpoint(folder)
    check_same_model(Checkpoint(model, saved.task, saved.encoding, saved.config), saved)


def test_another_model_is_noticed(folder):
    saved = tiny_runs.checkpoint()
    for name in saved.model.state_dict():
        other = load(folder)
        with torch.no_grad():
            other.model.get_parameter(name).view(-1)[0] += 0.1
        if name not in ("blocks.0.attn.b_K",):  # adds the same to every score of a query
            must_fail(check_same_model, other, saved)
    must_fail(check_same_model, tiny_runs.checkpoint(task={"n_points": 4}), saved)


def test_a_checkpoint_loads_as_itself_and_says_where_it_came_from(folder):
    found = load(folder)
    assert load(found) is found
    assert (found.name, found.step) == ("run", 0)
    assert found.provenance["run_id"] == provenance.run_id(found.config) == tiny_runs.checkpoint().name
    later = Checkpoint(found.model, found.task, found.encoding, found.config, step=7, provenance={"note": "mine"})
    again = load(later.save(folder.parent / "later"))
    assert (again.name, again.step, again.provenance["note"]) == ("later", 7, "mine")


def test_two_files_are_enough(folder):
    (folder / "provenance.json").unlink()
    check_same_model(load(folder), tiny_runs.checkpoint())


def test_a_header_whose_length_looks_like_a_pickle_is_read(folder):
    """The first byte of a safetensors file is the lowest byte of the header's length, 0x80 once in 32 files."""
    path = folder / "model.safetensors"
    tensors = parse(path.read_bytes())
    heads = set()
    for padding in range(512):
        data = save(tensors, metadata={"pad": "x" * padding})
        if data[:1] == b"\x80" and data[:2] not in heads:
            heads.add(data[:2])
            path.write_bytes(data)
            check_same_model(load(folder), tiny_runs.checkpoint())
    assert heads


# Bad input


def refuse(source, match, read=load):
    """`read` says what is wrong in one clear line."""
    with pytest.raises(InputError, match=match) as refused:
        read(source)
    assert "\n" not in str(refused.value)


def check_refused(folder, match):
    """So do both ways to read a run folder, and they leave it as it is."""
    before = tiny_runs.contents(folder)
    refuse(folder, match)
    assert tiny_runs.contents(folder) == before


def config(change):
    """Edit the config."""

    def spoil(folder):
        data = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(change(data) or data))

    return spoil


def section(*path, **values):
    def change(data):
        for name in path:
            data = data[name]
        data.update(values)

    return config(change)


def tensors(change):
    """Edit the weights."""

    def spoil(folder):
        state = parse((folder / "model.safetensors").read_bytes())
        change(state)
        (folder / "model.safetensors").write_bytes(save(state))

    return spoil


def raw(change, file="model.safetensors"):
    """Edit the bytes of a file."""

    def spoil(folder):
        (folder / file).write_bytes(change((folder / file).read_bytes()))

    return spoil


def remove(file):
    return lambda folder: (folder / file).unlink()


WHOLE = "model.safetensors is not a whole safetensors file .*copy or download it again"
BAD_WEIGHTS = {
    "empty file": (raw(lambda data: b""), WHOLE),
    "cut in the length": (raw(lambda data: data[:5]), WHOLE),
    "cut after the length": (raw(lambda data: data[:8]), WHOLE),
    "cut in the header": (raw(lambda data: data[:60]), WHOLE),
    "cut in the data": (raw(lambda data: data[:-200]), WHOLE),
    "cut by a byte": (raw(lambda data: data[:-1]), WHOLE),
    "a byte too many": (raw(lambda data: data + b"\0"), WHOLE),
    "length corrupted": (raw(lambda data: b"\xff" * 8 + data[8:]), WHOLE),
    "header corrupted": (raw(lambda data: data[:20] + b"\x00\x01\xfe" + data[23:]), WHOLE),
    "header is other JSON": (raw(lambda data: data.replace(b'"dtype":"F32"', b'"dtype":"XYZ"', 1)), WHOLE),
    "text": (raw(lambda data: b"these are no weights\n" * 20), WHOLE),
    "missing": (
        tensors(lambda state: state.pop("blocks.0.attn.W_Q")),
        "lacks the tensor blocks.0.attn.W_Q that the config asks for",
    ),
    "extra": (
        tensors(lambda state: state.update({"blocks.1.attn.W_Q": torch.zeros(2)})),
        "holds the tensor blocks.1.attn.W_Q, which the config does not ask for",
    ),
    "other shape": (
        tensors(lambda state: state.update({"unembed.W_U": torch.zeros(8, 2)})),
        r"unembed.W_U has shape \(8, 2\), but the config asks for \(8, 1\)",
    ),
    "NaN": (
        tensors(lambda state: state["blocks.0.mlp.b_in"].view(-1)[3:4].fill_(torch.nan)),
        "blocks.0.mlp.b_in holds NaN or infinite numbers",
    ),
    "infinity": (tensors(lambda state: state["embed.W_E"].fill_(torch.inf)), "embed.W_E holds NaN or infinite numbers"),
    "no file": (remove("model.safetensors"), "run is not a checkpoint: it has no model.safetensors"),
}
BAD_CONFIGS = {
    "width": (
        section("model", d_model=16, d_head=4, d_mlp=32),
        r": [a-zA-Z0-9_.]+ has shape \(.*8.*\), but the config asks for \(.*16.*\)",
    ),
    "layers": (section("model", n_layers=2), r"lacks the tensor blocks\.1\.[a-zA-Z0-9_.]+ that the config asks for"),
    "norm": (
        section("model", normalization_type=None),
        "holds the tensor [a-zA-Z0-9_.]*ln[a-zA-Z0-9_.]*, which the config does not ask for",
    ),
    "context": (section("model", n_ctx=20), r"pos_embed.W_pos has shape \(12, 8\), but the config asks for \(20, 8\)"),
    "context too short": (
        section("task", n_points=7),
        "n_ctx=12 tokens is too short for prompts of n_points=7: interleaved prompts of that length need 13",
    ),
    "encoding": (section(encoding="stacked"), "stacked prompts .* d_in=2, but the model has d_in=1"),
    "unknown encoding": (
        section(encoding="interleaving"),
        "unknown encoding 'interleaving': did you mean 'interleaved'",
    ),
    "unknown key": (section(trainning={}), "unknown key in config.json 'trainning': did you mean 'training'"),
    "unknown model key": (
        section("model", n_layer=1),
        "unknown key in config.json.model 'n_layer': did you mean 'n_layers'",
    ),
    "unknown task key": (section("task", degree=1), "unknown key in config.json.task 'degree': did you mean 'degrees'"),
    "unknown law": (
        section("task", "inputs", kind="Unifrom"),
        "unknown kind in config.json.task.inputs 'Unifrom': did you mean 'Uniform'",
    ),
    "unknown training key": (
        section("training", step=1),
        "unknown key in config.json.training 'step': did you mean 'steps'",
    ),
    "unknown curriculum key": (
        section("training", "curriculum", untill=1),
        "unknown key in config.json.training.curriculum 'untill': did you mean 'until'",
    ),
    "unknown task": (section("task", kind="Polynom"), "unknown kind in config.json.task 'Polynom': did you mean 'Poly"),
    "no model": (config(lambda data: data.pop("model") and data), "config.json lacks the key 'model'"),
    "model is null": (section(model=None), "config.json.model must be a mapping, but got None"),
    "text for a number": (section("model", eps="small"), "config.json.model.eps must be a number, but got 'small'"),
    "impossible": (section("model", attn_only=True, mlp_only=True), "attn_only and mlp_only exclude each other"),
    "wrong schema": (
        section(schema="icl_interp.config/99"),
        "config.json has schema 'icl_interp.config/99', but this version reads 'icl_interp.config/1'",
    ),
    "no schema": (config(lambda data: data.pop("schema") and data), "config.json has schema None"),
    "list": (config(lambda data: [data]), "config.json has schema None"),
    "cut off": (raw(lambda data: data[: len(data) // 2], "config.json"), "config.json is not JSON .*cut off or edited"),
    "empty": (raw(lambda data: b"", "config.json"), "config.json is not JSON"),
    "not text": (raw(lambda data: b"\xff\xfe\x00", "config.json"), "config.json is not JSON"),
    "no file": (remove("config.json"), "run is not a checkpoint: it has no config.json"),
    "provenance cut off": (raw(lambda data: data[:9], "provenance.json"), "provenance.json is not JSON"),
    "provenance of something else": (
        raw(lambda data: b"[1, 2]", "provenance.json"),
        "provenance.json is not what a run",
    ),
    "step of something else": (
        raw(lambda data: b'{"step": "x"}', "provenance.json"),
        "provenance.json is not what a run",
    ),
}


@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_weights_that_do_not_fit_are_refused(folder, name):
    spoil, match = BAD_WEIGHTS[name]
    must_fail(check_refused, folder, match)
    spoil(folder)
    check_refused(folder, match)
    if name != "no file":
        refuse(folder, match, HookedTransformer.from_checkpoint)


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_configs_that_do_not_fit_are_refused(folder, name):
    spoil, match = BAD_CONFIGS[name]
    must_fail(check_refused, folder, match)
    spoil(folder)
    check_refused(folder, match)


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes_of_a_header_are_refused_or_harmless(folder, seed):
    """Whatever happens to a header, it is one clear line or (in padding, in a name of metadata) the same model."""
    rng = torch.Generator().manual_seed(seed)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    data[int(torch.randint(header, (), generator=rng))] = int(torch.randint(256, (), generator=rng))
    path.write_bytes(data)
    try:
        found, line = load(folder), ""
    except InputError as error:
        found, line = None, str(error)
    assert "\n" not in line
    if found:
        check_same_model(found, tiny_runs.checkpoint())


def test_paths_that_are_no_checkpoints_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "random.bin").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "train.py").write_text("raise SystemExit('run')")
    (tmp_path / "nothing").mkdir()
    for name in ("notes.txt", "random.bin", "train.py"):
        refuse(tmp_path / name, rf"{name} is not a checkpoint: give a run folder .* or a bundled name")
    refuse(tmp_path / "nothing", "nothing is not a checkpoint: it has no config.json")
    refuse(str(tmp_path / "none"), "no such path or bundled model: '.*none'; .*bundled models: ")
    refuse(tmp_path / "notes.txt" / "run", "no such path")
    refuse("afine", "no such path or bundled model: 'afine'; did you mean 'affine'")
    refuse("x" * 5000, "cannot read x+: File name too long")
    assert len(list(tmp_path.iterdir())) == 4


def test_a_safetensors_file_by_itself_is_no_pickle(tmp_path):
    for padding in range(512):
        data = save({"a": torch.ones(1)}, metadata={"pad": "x" * padding})
        if data[:1] == b"\x80":
            (tmp_path / "weights.safetensors").write_bytes(data)
            refuse(tmp_path / "weights.safetensors", "is not a checkpoint: give a run folder")
            return
    raise AssertionError("no such header")


# Pickles are never executed


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


# Saving


def test_where_nothing_can_be_written_nothing_is(tmp_path):
    (tmp_path / "file").write_text("precious")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        refuse(
            folder, "cannot write .*model.safetensors: .*choose a folder you can write to", tiny_runs.checkpoint().save
        )
    assert tiny_runs.contents(tmp_path) == {"file": b"precious"}


class Killed(BaseException):
    """Stands for the end of the process."""


def check_killed_while_saving(folder, n_written, saver):
    """A fresh folder is a checkpoint once it is whole, and never before."""

    def dying(temporary, path, replace=os.replace):
        if len(list(folder.iterdir())) > n_written + 1:  # the temporary file counts
            raise AssertionError("a file of its own was left")
        if len([item for item in folder.iterdir() if not item.name.startswith(".")]) == n_written:
            raise Killed
        replace(temporary, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance.os, "replace", dying)
        with pytest.raises(Killed):
            saver(folder)
    assert len(list(folder.iterdir())) == n_written
    refuse(folder, "is not a checkpoint: it has no ")
    tiny_runs.checkpoint().save(folder)
    check_same_model(load(folder), tiny_runs.checkpoint())


def config_first(folder):
    checkpoint = tiny_runs.checkpoint()
    provenance.write_json(folder / "config.json", {"schema": "x", **provenance.encode(checkpoint.config)})
    weights.write(folder / "model.safetensors", checkpoint.model.state_dict())
    provenance.write_json(folder / "provenance.json", {})


@pytest.mark.parametrize("n_written", [0, 1, 2])
def test_a_save_cut_short_is_no_checkpoint(tmp_path, n_written):
    check_killed_while_saving(tmp_path / "run", n_written, tiny_runs.checkpoint().save)


def test_a_config_written_first_would_be_noticed(tmp_path):
    with pytest.raises(AssertionError):
        check_killed_while_saving(tmp_path / "run", 2, config_first)


def test_a_save_over_a_checkpoint_replaces_it(folder):
    other = tiny_runs.checkpoint(model={"d_model": 4}, task={"n_points": 4})
    other.save(folder)
    check_same_model(load(folder), other)
    must_fail(
        check_same_model, load(folder), Checkpoint(other.model, other.task.with_points(5), other.encoding, other.config)
    )
