"""What a file does not tell is recorded and shown; the trained length is the one reached."""

import json

import pytest
import torch
import yaml
from foreign_files import TheirTransformer, config, predicts_the_same, run_folder, state_dict
from helpers import must_fail
from tiny_runs import refuse

import icl_interp
from icl_interp.checkpoints import assumptions
from icl_interp.checkpoints.formats import masked, positions
from icl_interp.console import console
from icl_interp.provenance import generator
from icl_interp.report import terminal
from icl_interp.tasks import LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it")
TASK = LinearRegression(n_dims=3, n_points=5)
NOISY = {"task": "noisy_linear_regression", "data": "uniform"}


def recorded(found):
    return {each.name: each.value for each in found.assumptions}


def test_assumptions_are_recorded_saved_and_fall_away_with_their_task(tmp_path, caplog):
    folder = run_folder(tmp_path / "theirs", TheirTransformer(), config(**NOISY))
    found = icl_interp.load(folder)
    assert recorded(found) == {"noise_std": 0.0, "inputs": "U(0, 1)"}
    noise = next(each for each in found.assumptions if each.name == "noise_std")
    assert noise.others == ("3 (HariDaCoder)",)
    assert "--task" in noise.remedy
    assert 'verdicts "in distribution" rest on this' in caplog.text
    again = icl_interp.load(found.save(tmp_path / "ours"))
    assert again.assumptions == found.assumptions
    for source in (folder, found, tmp_path / "ours"):
        assert recorded(icl_interp.load(source, TASK)) == {}
    said = config(**{**NOISY, "data": "gaussian", "task_kwargs": {"noise_std": 0.5}})
    told = icl_interp.load(run_folder(tmp_path / "told", TheirTransformer(), said))
    assert (told.assumptions, told.task.noise_std) == ((), 0.5)


def test_a_report_says_what_it_rests_on(tmp_path):
    folder = run_folder(tmp_path / "theirs", TheirTransformer(), config(**NOISY))
    claims = ("limits.layernorm_saturation",)
    report = icl_interp.analyze(folder, claims=claims, n_prompts=16, progress=False)
    line = "The file does not say inputs=U(0, 1) (elsewhere U(-1, 1)"
    with (screen := console(400)).capture() as shown:
        screen.print(terminal.screen(report))
    page = tmp_path / "report.html"
    report.to_html(page)
    for text in (shown.get(), page.read_text("utf-8")):
        assert line in text
        assert "noise_std=0.0 (elsewhere 3 (HariDaCoder)" in text
    assert "noise" in report.to_markdown()
    data = json.loads(json.dumps(report.to_dict()))["checkpoint"]
    assert {each["name"] for each in data["assumptions"]} == {"noise_std", "inputs"}
    assert terminal.as_data(report)["assumptions"] == data["assumptions"]
    assert assumptions.lines(icl_interp.load(folder, TASK).provenance) == []


# ---- the trained length --------------------------------------------------------------------------

LONG = {
    "dims": {"start": 3, "end": 3, "inc": 1, "interval": 2000},
    "points": {"start": 11, "end": 101, "inc": 2, "interval": 2000},
}


def test_the_trained_length_is_the_one_reached(tmp_path):
    """A public run (fixedcov-N100-50ksteps) ends at 101 points in its config, and saw 59."""
    model = TheirTransformer(n_positions=101)
    data = config(n_positions=101, curriculum=LONG, train_steps=50001)
    folder = run_folder(tmp_path, model, data, step=50000)
    assert icl_interp.load(folder).task.n_points == 59
    torch.save(state_dict(model), folder / "weights.pt")  # no step: the config's train_steps
    bare = icl_interp.load(folder / "weights.pt")
    assert bare.task.n_points == 59
    assert not bare.assumptions
    (folder / "config.yaml").write_text(
        yaml.dump({**data, "training": {**data["training"], "train_steps": -1}})
    )
    assert recorded(icl_interp.load(folder / "weights.pt")) == {"n_points": 101}


def test_positions_that_never_trained_are_told_by_their_spread():
    rng = generator(0, "table")

    def found(width, first, trained, size=positions.INITIAL):
        table = size * torch.randn(40, width, generator=rng)
        table[:first] += trained * torch.randn(first, width, generator=rng)
        return positions.untrained_from(table)

    assert found(64, 25, 0.1) == 25
    assert found(16, 25, 0.2) in range(20, 26)  # a narrow row may pass for an initial one
    assert found(64, 0, 0.1) == 0
    assert found(64, 40, 0.1) is None
    assert found(64, 25, 0.1, size=0.4) is None
    assert found(4, 25, 0.1) is None


@pytest.mark.parametrize(("first", "said"), [(5, "modulo 10"), (0, "no positions"), (9, "")])
def test_a_table_that_contradicts_the_length_is_said(tmp_path, first, said):
    model = TheirTransformer(n_embd=32)
    with torch.no_grad():
        rows = model._backbone.wpe.weight[first:]
        rows.copy_(positions.INITIAL * torch.randn(rows.shape, generator=generator(0, "rows")))
    torch.save(state_dict(model), tmp_path / "state.pt")
    for source in (tmp_path / "state.pt", run_folder(tmp_path / "x", model, config(n_embd=32))):
        given = {"n_heads": 2, "task": TASK} if source.is_file() else {}
        notes = icl_interp.load(source, **given).provenance.get("notes", [])
        assert [said in note for note in notes] == [True] * bool(said)


# ---- a finite mask -------------------------------------------------------------------------------


def strong(size):
    """A model with scores of about minus size^2: keys are minus the queries."""
    model = TheirTransformer()
    with torch.no_grad():
        weight = model._backbone.h[0].attn.c_attn
        weight.bias[:8] = size
        weight.bias[8:16] = -size
    return model


def test_a_finite_mask_that_scores_reach_is_refused(tmp_path):
    for size in (1, 300):
        torch.save(state_dict(strong(size)), tmp_path / f"{size}.pt")
    given = {"task": TASK, "n_heads": 2}
    predicts_the_same(icl_interp.load(tmp_path / "1.pt", **given), strong(1))
    match = "its masked_bias is -10000, and visible scores come down to"
    refuse(tmp_path / "300.pt", match, lambda path: icl_interp.load(path, **given))
    kept = {n: t for n, t in state_dict(strong(300)).items() if "masked_bias" not in n}
    torch.save(kept, tmp_path / "infinite.pt")
    icl_interp.load(tmp_path / "infinite.pt", **given)


def test_the_bound_on_scores_holds():
    model = icl_interp.HookedTransformer(
        icl_interp.HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, d_in=3, init_std=1.0)
    )
    bound = masked._largest(model)
    lowest = min(masked._lowest(model, size) for size in masked.SIZES)
    assert -bound <= lowest < 0
    _, cache = model.run_with_cache(30 * torch.randn(4, 9, 3, generator=generator(0, "x")))
    scores = cache["blocks.0.attn.hook_attn_scores"]
    assert scores[scores.isfinite()].abs().max() <= bound


# ---- recipes -------------------------------------------------------------------------------------


def test_a_recipe_is_followed_where_its_parents_lie_beside_it(tmp_path):
    whole = config()
    folder = run_folder(tmp_path / "run", TheirTransformer(), whole)
    model = {"model": {**whole["model"], "n_head": 4}}
    (folder / "base.yaml").write_text(yaml.dump({**model, "training": whole["training"]}))
    recipe = {"inherit": ["base.yaml"], "model": {"n_head": 2}, "training": {"batch_size": 3}}
    (folder / "config.yaml").write_text(yaml.dump(recipe))
    found = icl_interp.load(folder)
    predicts_the_same(found, TheirTransformer())
    must_fail(predicts_the_same, found, TheirTransformer(n_head=4))
    (folder / "config.yaml").write_text(yaml.dump({"inherit": "config.yaml", "model": {}}))
    refuse(folder, "is a recipe that inherits 'config.yaml'")
    (folder / "config.yaml").write_text(yaml.dump({"inherit": "../base.yaml", "model": {}}))
    refuse(folder, "is a recipe that inherits '../base.yaml', which does not lie beside it")
