"""Variants of experiments: other models under the same names, and words that say so."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.experiments import base, kept, variants
from icl_interp.experiments.kept import checked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import read_json
from icl_interp.reproduction import run
from icl_interp.reproduction.page import index
from icl_interp.studies.limits.experiments.post_ln import POST_LN, after_each_sum
from icl_interp.training import recipes

TABLE1 = base.get("limits.table1")


def normed(x):
    """LayerNorm by its formula, without gains."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def check_section_6(config):
    """AN = LN(A(x) + x), then LN(FF(AN) + AN), layer by layer, and no norm at the end."""
    small = replace(config.model, n_layers=2, d_model=8, n_heads=2, d_head=4, d_mlp=16, n_ctx=6)
    model = HookedTransformer(small, seed=3).double()
    tokens = torch.linspace(-1, 1, 6, dtype=torch.float64).view(1, 6, 1)
    with torch.no_grad():
        out, cache = model.run_with_cache(tokens)
    stream = cache["blocks.0.hook_resid_pre"]
    for layer in range(2):
        stream = normed(stream + cache[f"blocks.{layer}.hook_attn_out"])
        stream = normed(stream + cache[f"blocks.{layer}.hook_mlp_out"])
    expected = stream @ model.unembed.W_U + model.unembed.b_U
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-9)


def test_the_model_is_that_of_section_6():
    config = recipes.resolve("affine")
    check_section_6(after_each_sum(config))
    must_fail(check_section_6, config)


def test_models_without_a_norm_stay_what_they_are():
    bare = recipes.resolve("affine_no_ln")
    assert after_each_sum(bare) is bare
    form = variants.of(TABLE1, "post_ln")
    own = dict(zip((m.name for m in TABLE1.models), TABLE1.models, strict=True))
    for model in form.models:
        same = model is own[model.name]
        assert same == model.name.startswith("affine_no_ln")
        assert (model.folder == own[model.name].folder) == same


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_every_model_with_a_norm_has_it_after_each_sum(scale):
    """In every table and figure, also of recipes that exist at one scale only."""

    def check(experiment):
        for model in experiment.models_at(scale):
            shape = model.config(scale).model
            assert shape.normalization_type is None or shape.norm_position == "post"

    having = [name for name in base.names() if POST_LN in base.get(name).variants]
    assert len(having) == 11
    for name in having:
        form = variants.of(base.get(name), "post_ln")
        check(form)
        assert [m.name for m in form.models] == [m.name for m in base.get(name).models]
        assert [m.config(scale).training for m in form.models_at(scale)] == [
            m.config(scale).training for m in base.get(name).models_at(scale)
        ]
    must_fail(check, TABLE1)


def test_words_and_settings_name_the_variant():
    form = variants.of(TABLE1, "post_ln")
    assert "variant post_ln: LayerNorm after each sum" in form.words("small")
    assert "variant" not in TABLE1.words("small")
    norms = {row.name: row.ours for row in form.settings_at("small")}["norms"]
    assert norms == "after each sublayer, none"
    said = variants.changes(form, "paper")
    assert said.endswith("In this form: affine; as in the experiment: affine_no_ln.")


@pytest.mark.parametrize(
    ("name", "variant", "words"),
    [
        ("limits.table4", "post_ln", "limits.table4 has no variant 'post_ln': it has none; these"),
        ("limits.table1", "pre_ln", "limits.table1 has no variant 'pre_ln': it has post_ln"),
        ("lipschitz.window", "x", "lipschitz.window has no variant 'x': it has none"),
    ],
)
def test_a_variant_that_there_is_not_is_one_line(name, variant, words):
    for call in (lambda: variants.of(base.get(name), variant), lambda: run.asked([name], variant)):
        with pytest.raises(InputError) as refused:
            call()
        assert str(refused.value).startswith(words)
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="no experiment has a variant 'x'"):
        run.asked((), "x")


def test_without_ids_those_that_have_it_are_asked():
    assert [one.folder for one in run.asked((), "post_ln")] == [
        f"{name}.post_ln" for name in base.names() if base.get(name).variants
    ]
    assert [one.id for one in run.asked(())] == base.names()


@pytest.mark.slow
def test_a_variant_stands_beside_the_experiment(tmp_path):
    """In one folder: each with its models, its page and its line of the index."""
    for variant in (None, "post_ln"):
        run.reproduce(
            ["limits.figure1"], tmp_path, scale="smoke", variant=variant, formats=(), progress=False
        )
    records = []
    for folder in ("limits.figure1", "limits.figure1.post_ln"):
        path = tmp_path / folder / "results.json"
        records.append(checked(read_json(path), str(path)))
    plain, post = records
    assert [r["variant"] for r in records] == ["", "post_ln"]
    assert [r["id"] for r in records] == ["limits.figure1"] * 2
    assert "(variant post_ln)" in post["title"]
    assert any(line.startswith("Variant post_ln: LayerNorm after") for line in post["says"])
    assert not any("ariant" in line for line in plain["says"])
    assert post["provenance"]["command"].endswith("--variant post_ln")
    assert plain["models"].keys() == post["models"].keys()
    for name, facts in plain["models"].items():
        assert facts["run_id"] != post["models"][name]["run_id"]
    page = (tmp_path / "limits.figure1.post_ln" / "figure.html").read_text()
    assert "variant post_ln: LayerNorm after each sum" in page

    def leads_to_both(html):
        for folder in ("limits.figure1", "limits.figure1.post_ln"):
            assert f'href="{folder}/figure.html"' in html

    leads_to_both((tmp_path / "index.html").read_text())
    must_fail(leads_to_both, index([plain]))


def kept_apart(places):
    """A variant's results stand beside those of the experiment, and replace none."""
    assert len(set(places)) == len(places)
    assert {place.parent for place in places} == {places[0].parent}


def test_results_of_a_variant_are_kept_beside_those_of_the_experiment():
    having = [name for name in variants.every() if name.startswith("limits.table1")]
    assert [variants.in_folder(name).variant for name in having] == ["", "post_ln"]
    kept_apart([kept.place(name) for name in having])
    must_fail(kept_apart, [kept.place(variants.in_folder(name).id) for name in having])
    with pytest.raises(InputError, match="has no variant 'pre_ln'"):
        variants.in_folder("limits.table1.pre_ln")
    with pytest.raises(InputError, match=r"reproduce limits\.figure8 --variant post_ln"):
        kept.record("limits.figure8.post_ln")


def test_the_tool_keeps_a_variant_beside_the_experiment(tmp_path, monkeypatch):
    file = Path(__file__).parents[2] / "tools" / "keep_results.py"
    spec = importlib.util.spec_from_file_location("keep_results", file)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    plain = kept.record("limits.figure1")
    monkeypatch.setattr(kept, "FOLDERS", {"limits": tmp_path})

    def check():
        for path in tmp_path.iterdir():
            path.unlink()
        tool.keep(plain)
        tool.keep({**plain, "variant": "post_ln"})
        assert {path.name for path in tmp_path.iterdir()} == {
            "figure1.json",
            "figure1.post_ln.json",
        }
        found = read_json(tmp_path / "figure1.post_ln.json")
        assert found["title"].endswith("(variant post_ln)")
        assert found["says"][0].startswith("Variant post_ln: LayerNorm after each sum")

    check()
    monkeypatch.setattr(tool, "folder_of", lambda record: record["id"])
    must_fail(check)
