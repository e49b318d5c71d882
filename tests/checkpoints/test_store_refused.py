"""What is found in a run folder and does not fit is refused in one clear line."""

import json

import pytest
import tiny_runs
import torch
from helpers import must_fail
from safetensors.torch import load as parse
from safetensors.torch import save
from tiny_runs import check_same_model, refuse

from icl_interp.checkpoints.store import load
from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def check_refused(folder, match):
    """Loading says what is wrong, and leaves the folder as it is."""
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
    "header is other JSON": (
        raw(lambda data: data.replace(b'"dtype":"F32"', b'"dtype":"XYZ"', 1)),
        WHOLE,
    ),
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
    "infinity": (
        tensors(lambda state: state["embed.W_E"].fill_(torch.inf)),
        "embed.W_E holds NaN or infinite numbers",
    ),
    "no file": (
        remove("model.safetensors"),
        "run is not a checkpoint: it has no model.safetensors",
    ),
}
BAD_CONFIGS = {
    "width": (
        section("model", d_model=16, d_head=4, d_mlp=32),
        r": [a-zA-Z0-9_.]+ has shape \(.*8.*\), but the config asks for \(.*16.*\)",
    ),
    "layers": (
        section("model", n_layers=2),
        r"lacks the tensor blocks\.1\.[a-zA-Z0-9_.]+ that the config asks for",
    ),
    "norm": (
        section("model", normalization_type=None),
        "holds the tensor [a-zA-Z0-9_.]*ln[a-zA-Z0-9_.]*, which the config does not ask for",
    ),
    "context": (
        section("model", n_ctx=20),
        r"pos_embed.W_pos has shape \(12, 8\), but the config asks for \(20, 8\)",
    ),
    "context too short": (
        section("task", n_points=7),
        (
            "n_ctx=12 tokens is too short for prompts of n_points=7: interleaved prompts of that "
            "length need 13"
        ),
    ),
    "encoding": (
        section(encoding="stacked"),
        "stacked prompts .* d_in=2, but the model has d_in=1",
    ),
    "unknown encoding": (
        section(encoding="interleaving"),
        "unknown encoding 'interleaving': did you mean 'interleaved'",
    ),
    "unknown key": (
        section(trainning={}),
        "unknown key in config.json 'trainning': did you mean 'training'",
    ),
    "unknown model key": (
        section("model", n_layer=1),
        "unknown key in config.json.model 'n_layer': did you mean 'n_layers'",
    ),
    "unknown task key": (
        section("task", degree=1),
        "unknown key in config.json.task 'degree': did you mean 'degrees'",
    ),
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
    "unknown task": (
        section("task", kind="Polynom"),
        "unknown kind in config.json.task 'Polynom': did you mean 'Poly",
    ),
    "no model": (
        config(lambda data: data.pop("model") and data),
        "config.json lacks the key 'model'",
    ),
    "model is null": (section(model=None), "config.json.model must be a mapping, but got None"),
    "text for a number": (
        section("model", eps="small"),
        "config.json.model.eps must be a number, but got 'small'",
    ),
    "impossible": (
        section("model", attn_only=True, mlp_only=True),
        "attn_only and mlp_only exclude each other",
    ),
    "wrong schema": (
        section(schema="icl_interp.config/99"),
        (
            "config.json has schema 'icl_interp.config/99', but this version reads "
            "'icl_interp.config/1'"
        ),
    ),
    "no schema": (config(lambda data: data.pop("schema") and data), "config.json has schema None"),
    "list": (config(lambda data: [data]), "config.json has schema None"),
    "cut off": (
        raw(lambda data: data[: len(data) // 2], "config.json"),
        "config.json is not JSON .*cut off or edited",
    ),
    "empty": (raw(lambda data: b"", "config.json"), "config.json is not JSON"),
    "not text": (raw(lambda data: b"\xff\xfe\x00", "config.json"), "config.json is not JSON"),
    "no file": (remove("config.json"), "run is not a checkpoint: it has no config.json"),
    "provenance cut off": (
        raw(lambda data: data[:9], "provenance.json"),
        "provenance.json is not JSON",
    ),
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
    """A changed header gives one clear line or the same model.

    The model stays the same where the change is in padding or in a name of metadata.
    """
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
        refuse(
            tmp_path / name, rf"{name} is not a checkpoint: give a run folder .* or a bundled name"
        )
    refuse(tmp_path / "nothing", "nothing is not a checkpoint: it has no config.json")
    refuse(str(tmp_path / "none"), "no such path or bundled model: '.*none'; .*bundled models: ")
    refuse(tmp_path / "notes.txt" / "run", "no such path")
    refuse("afine", "no such path or bundled model: 'afine'; did you mean 'affine'")
    refuse("x" * 5000, "cannot read x+: File name too long")
    assert len(list(tmp_path.iterdir())) == 4
