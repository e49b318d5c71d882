"""Models of Garg et al. (2022) and of forks, from files made here, predict like the originals."""

import pytest
import tiny_runs
import torch
import yaml
from foreign_files import TheirTransformer, config, predicts_the_same, run_folder, state_dict
from helpers import must_fail
from tiny_runs import refuse

import icl_interp
from icl_interp.models import tokens
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it")
TASK = LinearRegression(n_dims=3, n_points=5)


def changed(model, name, change):
    """The same model with another tensor."""
    with torch.no_grad():
        tensor = model.get_parameter(name)
        tensor.copy_(change(tensor).clone())
    return model


def swapped(weight):
    """Keys and queries the other way round."""
    q, k, v = weight.chunk(3, -1)
    return torch.cat([k, q, v], -1)


MUTANTS = {
    "transposed c_attn": lambda m: changed(
        m, "_backbone.h.0.attn.c_attn.weight", lambda w: w.T.reshape(w.shape)
    ),
    "transposed c_proj": lambda m: changed(m, "_backbone.h.1.attn.c_proj.weight", lambda w: w.T),
    "keys for queries": lambda m: changed(m, "_backbone.h.0.attn.c_attn.weight", swapped),
    "positions by one": lambda m: changed(m, "_backbone.wpe.weight", lambda w: w.roll(1, 0)),
    "no read-in bias": lambda m: changed(m, "_read_in.bias", torch.zeros_like),
    "ln_1 as ln_2": lambda m: changed(
        m, "_backbone.h.0.ln_1.weight", lambda _: m._backbone.h[0].ln_2.weight
    ),
    "gelu": lambda m: TheirTransformer(activation_function="gelu"),
    "eps": lambda m: TheirTransformer(layer_norm_epsilon=0.1),
    "heads": lambda m: TheirTransformer(n_head=4),
}


@pytest.fixture
def theirs(tmp_path):
    return run_folder(tmp_path / "their run", TheirTransformer())


def test_a_run_folder_predicts_what_the_original_predicts(theirs):
    for source in (theirs / "config.yaml", theirs, str(theirs / "state.pt")):
        found = icl_interp.load(source)
        predicts_the_same(found, TheirTransformer())
        assert (found.task, found.encoding, found.step) == (TASK, tokens.Interleaved(), 500000)
        assert not found.model.training
    assert icl_interp.load(theirs).name == "their run"
    assert found.name == "their run/state.pt"
    assert found.provenance["format"] == "model of Garg et al. (2022)"
    assert "note" not in found.provenance
    assert sum(p.numel() for p in found.model.parameters()) == sum(
        p.numel() for name, p in TheirTransformer().named_parameters() if "wte" not in name
    )


@pytest.mark.parametrize("mutant", MUTANTS)
def test_another_model_predicts_something_else(theirs, mutant):
    must_fail(predicts_the_same, icl_interp.load(theirs), MUTANTS[mutant](TheirTransformer()))


def test_what_was_read_is_saved_and_read_as_ours(theirs, tmp_path):
    found = icl_interp.load(theirs)
    again = icl_interp.load(found.save(tmp_path / "ours"))
    tiny_runs.check_same_model(again, found)
    assert (again.step, again.provenance["format"]) == (500000, found.provenance["format"])


def wrapped(state, prefix):
    return {prefix + name: tensor for name, tensor in state.items()}


STATES = {
    "bare": lambda s: s,
    "torch.compile": lambda s: wrapped(s, "_orig_mod."),
    "DataParallel": lambda s: wrapped(s, "module."),
    "both": lambda s: wrapped(s, "module._orig_mod."),
    "part compiled": lambda s: {
        n.replace("_backbone.", "_backbone._orig_mod."): t for n, t in s.items()
    },
    "float64": lambda s: {
        name: t.double() if t.is_floating_point() else t for name, t in s.items()
    },
    "no masks": lambda s: {
        name: t for name, t in s.items() if not name.endswith((".attn.bias", "masked_bias"))
    },
    "no words": lambda s: {name: t for name, t in s.items() if "wte" not in name},
    "other key": lambda s: {"model": s, "step": 7},
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("old", [False, True])
def test_what_wrappers_and_versions_change_does_not_matter(tmp_path, name, old):
    """Told by content, not by the suffix: the file has none."""
    original = TheirTransformer()
    path = tmp_path / "checkpoint_7"
    torch.save(STATES[name](state_dict(original)), path, _use_new_zipfile_serialization=not old)
    found = icl_interp.load(path, TASK, n_heads=2)
    predicts_the_same(found, original)
    assert found.step == 7
    must_fail(predicts_the_same, icl_interp.load(path, TASK, n_heads=4), original)


def test_a_named_step_has_seen_the_prompts_of_its_step(tmp_path):
    folder = run_folder(tmp_path, TheirTransformer(n_dims=1), config(n_dims=1))
    torch.save(state_dict(TheirTransformer(n_dims=1)), folder / "model_1000.pt")
    found = icl_interp.load(folder / "model_1000.pt")
    assert (found.step, found.task.n_points) == (1000, 3)
    assert icl_interp.load(folder).task.n_points == 5  # state.pt stands for the folder


def test_width_one_is_read_as_the_constant_that_it_is(tmp_path, caplog):
    """A LayerNorm of width 1 erases its input: the output is W_U b + b_U whatever the prompt."""
    data = config(n_dims=1, n_embd=1, n_layer=1, n_head=1, task="polynomial_regression")
    data["training"]["curriculum"]["polynomial_degree"] = {
        "start": 2,
        "end": 2,
        "inc": 1,
        "interval": 5000,
    }
    original = TheirTransformer(n_dims=1, n_embd=1, n_layer=1, n_head=1)
    found = icl_interp.load(run_folder(tmp_path, original, data))
    prompts = found.task.scaled(1e3, 1e3).sample(8, generator(0, "test"))
    constant = original._read_out.weight * original._backbone.ln_f.bias + original._read_out.bias
    torch.testing.assert_close(
        found.predict(prompts), constant.detach().expand(8, 5, 1), rtol=0, atol=1e-6
    )
    c, r = icl_interp.theory.limits.output_certificate(
        *(
            t.detach().double()
            for t in (found.model.W_U[:, 0], found.model.ln_final.w, found.model.ln_final.b)
        ),
        found.model.b_U[0].detach().double(),
    )
    (record,) = caplog.records
    assert record.getMessage() == f"{tmp_path.name}: {found.provenance['note']}"
    output = found.predict(prompts)[0, 0].item()
    note = found.provenance["note"]
    assert note.startswith("constant output: a LayerNorm of width 1 erases its input")
    assert (
        f"so the output is {output:.6g} for every prompt (certificate: |output - c| <= r with "
        f"c = {c:.6g}, "
    ) in note
    assert note.endswith("r = 0)")
    assert float(c) == pytest.approx(constant.item(), abs=1e-6)
    assert float(r) == pytest.approx(0, abs=1e-12)


# ---- refusals ------------------------------------------------------------------------------------


def without(name):
    return lambda state: state.pop(name)


def put(name, tensor):
    return lambda state: state.update({name: tensor})


SPOILED = {
    "missing": (without("_backbone.h.1.ln_2.bias"), r"it lacks _backbone\.h\.1\.ln_2\.bias$"),
    "unknown": (put("_extra.weight", torch.ones(2)), r"it has besides _extra\.weight$"),
    "several": (
        lambda s: (s.pop("_read_in.bias"), s.update(a=torch.ones(1), _read_out=torch.ones(1))),
        "it lacks _read_in.bias; it has besides a, _read_out$",
    ),
    "nn.Linear": (
        put("_backbone.h.0.attn.c_attn.weight", torch.ones(24, 8)),
        r"it has _backbone\.h\.0\.attn\.c_attn\.weight with shape \(24, 8\) instead of \(8, 24\)$",
    ),
    "more outputs": (
        lambda s: s.update({"_read_out.weight": torch.ones(5, 8), "_read_out.bias": torch.ones(5)}),
        "_read_out has 5 outputs, and nothing tells which of them is y",
    ),
    "no first block": (
        without("_backbone.h.0.attn.c_attn.weight"),
        r"lacks h\.0\.attn\.c_attn\.weight",
    ),
    "no mask by its shape": (
        put("_backbone.h.0.attn.bias", torch.ones(8)),
        r"besides _backbone\.h\.0\.attn\.bias$",
    ),
    "NaN": (
        put("_read_in.bias", torch.full((8,), torch.nan)),
        r"x\.pt: _read_in\.bias holds NaN or infinite",
    ),
    "local": (
        put("_backbone.h.0.attn.bias", torch.ones(1, 1, 12, 12).tril().triu(-3)),
        r"the mask _backbone\.h\.0\.attn\.bias hides other keys than those to come",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_tensors_that_do_not_match_are_listed(tmp_path, name):
    spoil, match = SPOILED[name]
    state = state_dict(TheirTransformer())
    spoil(state)
    torch.save(state, tmp_path / "x.pt")
    refuse(tmp_path / "x.pt", match, lambda path: icl_interp.load(path, TASK, n_heads=2))


def test_what_is_missing_is_asked_for_by_name_all_at_once(tmp_path):
    torch.save(state_dict(TheirTransformer()), tmp_path / "state.pt")
    match = (
        r"not tell the number of attention heads and the task: give n_heads=N \(--n-heads N\) and "
        r"task=.* \(--task FILE"
    )
    refuse(tmp_path / "state.pt", match)
    refuse(
        tmp_path / "state.pt",
        "does not tell the task",
        lambda path: icl_interp.load(path, n_heads=2),
    )
    refuse(
        tmp_path / "state.pt",
        "tell the number of attention heads: give",
        lambda path: icl_interp.load(path, TASK),
    )
    for given in ({"n_heads": 3}, {"n_heads": 3, "settings": {"d_head": 5}}):
        match = r"state\.pt: width 8 does not divide into 3 heads: give 1, 2, 4 or 8$"
        refuse(
            tmp_path / "state.pt", match, lambda p, given=given: icl_interp.load(p, TASK, **given)
        )
    wide = {"n_heads": 2, "settings": {"d_head": 5}}
    refuse(
        tmp_path / "state.pt",
        "says d_head=4, but d_head=5",
        lambda p: icl_interp.load(p, TASK, **wide),
    )


CONFIGS = {
    "another run's": (
        lambda d: d["model"].update(n_embd=16),
        r"model\.n_embd is 16, but the weights beside it have 8",
    ),
    "positions": (
        lambda d: d["model"].update(n_positions=7),
        "n_positions is 7, but the weights beside it have 6",
    ),
    "family": (
        lambda d: d["model"].update(family="lstm"),
        r"model\.family must be 'gpt2' or .* as a predictor\), but got 'lstm'",
    ),
    "heads": (
        lambda d: d["model"].update(n_head="two"),
        "n_head must be a whole number from 1 up, but got 'two'",
    ),
    "3 heads": (
        lambda d: d["model"].update(n_head=3),
        (
            r"config\.yaml: model\.n_head is 3, but width 8 does not divide into so many heads: is "
            r"it the config of"
        ),
    ),
    "no model": (
        lambda d: d.pop("model"),
        "is a recipe that inherits 'base.yaml', .*: give the run's own config.yaml",
    ),
    "task": (
        lambda d: d["training"].update(task="linear_classification"),
        (
            r"training\.task must be one of linear_regression, .*'linear_classification'; give the "
            r"task, as task="
        ),
    ),
    "no task": (
        lambda d: d["training"].pop("task"),
        r"training lacks the key 'task'; give the task, as task=",
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_does_not_fit_is_refused(theirs, name):
    change, match = CONFIGS[name]
    data = config()
    change(data)
    (theirs / "config.yaml").write_text(yaml.dump(data))
    refuse(theirs, match)


def test_a_config_is_plain_data(theirs, tmp_path):
    (theirs / "config.yaml").write_text(
        f"model: !!python/object/apply:os.mkdir ['{tmp_path / 'trap'}']"
    )
    refuse(theirs, "config.yaml is not YAML: could not determine a constructor")
    assert not (tmp_path / "trap").exists()
    for text, match in (
        ("- 1", "must be a mapping"),
        ("[" * 5000, "line 1: expected at most 20 levels"),
        ("a: b: c", "is not YAML"),
    ):
        (theirs / "config.yaml").write_text(text)
        refuse(theirs, match)


def test_what_the_caller_says_replaces_the_task_and_contradicts_nothing(theirs):
    other = LinearRegression(n_dims=3, n_points=4, noise_std=0.5)
    assert icl_interp.load(theirs, other).task == other
    assert icl_interp.load(theirs, n_heads=2).model.cfg.n_heads == 2
    for given, match in (
        ({"n_heads": 4}, "says n_heads=2, but n_heads=4 was given: leave out what"),
        ({"settings": {"act_fn": "relu"}}, "says act_fn='gelu_new', but act_fn='relu' was given"),
        ({"settings": {"actfn": "relu"}}, "unknown setting 'actfn': did you mean 'act_fn'"),
        ({"encoding": "stacked"}, "stacked prompts with inputs of 3 coordinates have d_in=4"),
        ({"task": LinearRegression(n_dims=3, n_points=7)}, "n_ctx=12 tokens is too short"),
    ):
        refuse(theirs, match, lambda path, given=given: icl_interp.load(path, **given))
