"""Weights on disk: what was written comes back, and every mismatch is named."""

import json
import struct

import pytest
import torch
from helpers import must_fail
from small_models import BASE, MODELS, make

from icl_interp.errors import InputError
from icl_interp.models import weights
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer


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
    """The length of the header comes first, and its first byte may look like a pickle's."""
    path = tmp_path / "model.safetensors"
    for padding in range(64):
        header = (
            json.dumps({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
            + b" " * 8 * padding
        )
        header += b" " * (-len(header) % 8)
        path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<f", 1.5))
        assert weights.read(path)["t"].item() == 1.5


def edited(path, **tensors):
    """A file of a model with some tensors replaced, or dropped where None."""
    state = {
        **make().state_dict(),
        **{name.replace("__", "."): value for name, value in tensors.items()},
    }
    weights.write(path, {name: value for name, value in state.items() if value is not None})
    weights.load_into(make(), path)


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ({"embed__b_E": None}, "lacks the tensor embed.b_E that the config asks for"),
        (
            {"embed__b_E": torch.zeros(3)},
            r"embed.b_E has shape \(3,\), but the config asks for \(12,\)",
        ),
        ({"embed__b_E": torch.full((12,), torch.nan)}, "embed.b_E holds NaN or infinite numbers"),
        (
            {"embed__extra": torch.zeros(3)},
            "holds the tensor embed.extra, which the config does not ask for",
        ),
        *(
            (
                {"embed__b_E": torch.zeros(12).to(dtype)},
                f"embed.b_E holds numbers of the type {name}, but float32 or",
            )
            for dtype, name in [
                (torch.complex64, "C64"),
                (torch.int64, "int64"),
                (torch.bool, "BOOL"),
                (torch.float8_e4m3fn, "F8_E4M3"),
            ]
        ),
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
        with pytest.raises(InputError, match="is a pickle, which can run code when it is read"):
            weights.read(path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_width_of_float_is_read(tmp_path, dtype):
    path, model = tmp_path / "model.safetensors", make().float()
    weights.write(path, {name: tensor.to(dtype) for name, tensor in make().state_dict().items()})
    weights.load_into(model, path)
    for name, tensor in make().state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.to(dtype).float()), name


def test_numbers_are_finite_as_the_model_holds_them(tmp_path):
    path = tmp_path / "model.safetensors"
    weights.write(
        path, {**make().state_dict(), "embed.b_E": torch.full((12,), 1e300, dtype=torch.float64)}
    )
    weights.load_into(make(), path)  # a model in float64
    model = make().float()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(InputError, match=r"embed.b_E holds NaN or infinite numbers \(as float32\)"):
        weights.load_into(model, path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_what_is_not_finite_is_named():
    fine = {"a": torch.ones(2), "b": torch.ones(1, dtype=torch.float64)}
    weights.check_finite(fine, "here")
    for bad in (torch.nan, torch.inf, -torch.inf):
        for named in (
            {**fine, "c": torch.tensor([1.0, bad])},
            [*fine.items(), ("c", torch.tensor(bad))],
        ):
            with pytest.raises(InputError, match="here: c holds NaN or infinite numbers"):
                weights.check_finite(named, "here")


# Sizes that a config asks for, known before a model is made


def check_asked_for(cfg, change=lambda asked: asked):
    model = HookedTransformer(cfg)
    asked = change(dict(weights.asked_for(HookedTransformer, cfg)))
    assert asked == {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert weights.n_parameters(HookedTransformer, cfg) == sum(
        p.numel() for p in model.parameters()
    )


@pytest.mark.parametrize("name", [*MODELS, "LNPre", "Tanh", "three layers"])
def test_the_tensors_of_a_config_are_those_of_its_model(name):
    change = {"LNPre": {"normalization_type": "LNPre"}, "Tanh": {"normalization_type": "Tanh"}}
    change["three layers"] = {"n_layers": 3}
    cfg = HookedTransformerConfig(**{**BASE, **MODELS.get(name, change.get(name))})
    check_asked_for(cfg)
    must_fail(
        check_asked_for, cfg, lambda asked: {n: s for n, s in asked.items() if n != "unembed.b_U"}
    )
    must_fail(check_asked_for, cfg, lambda asked: {**asked, "embed.b_E": (13,)})


@pytest.mark.parametrize("size", ["n_layers", "d_mlp", "n_ctx", "d_in"])
def test_numbers_of_parameters_are_counted_without_making_any(size):
    few, more = ({**BASE, "d_mlp": 5, "n_ctx": 7, "d_in": 3, size: n} for n in (10**9, 10**9 + 1))
    counts = [
        weights.n_parameters(HookedTransformer, HookedTransformerConfig(**sizes))
        for sizes in (few, more)
    ]
    block = 4 * 12 * 12 + 4 * 12 + 2 * 12 * 5 + 12 + 5 + 4 * 12
    assert (
        counts[1] - counts[0]
        == {"n_layers": block, "d_mlp": 2 * (12 + 12 + 1), "n_ctx": 12, "d_in": 12}[size]
    )


@pytest.mark.parametrize(
    "sizes", [{"d_model": 10**9}, {"n_ctx": 10**30}, {"d_in": 2**62}, {"d_mlp": 10**400}]
)
def test_sizes_that_no_tensor_has_are_refused(sizes):
    cfg = HookedTransformerConfig(**{**BASE, "n_heads": 1, "d_head": 4, **sizes})
    with pytest.raises(
        InputError, match="no tensor can be as large as this config asks for"
    ) as refused:
        weights.n_parameters(HookedTransformer, cfg)
    assert len(str(refused.value)) < 400


def test_a_header_that_asks_for_more_than_the_file_holds_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    for shape, end in ([10**12], 4 * 10**12), ([10**10, 10**10], 4), ([2], 4), ([10**30], 4):
        header = json.dumps(
            {"t": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}
        ).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + b"1234")
        for read in (weights.header, weights.read):
            with pytest.raises(InputError, match="is not a whole safetensors file") as refused:
                read(path)
            assert "\n" not in str(refused.value)
