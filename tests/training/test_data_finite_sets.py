"""A finite set of prompts in epochs, with a test set: what each step takes, and runs cut off."""

import json
from dataclasses import replace

import pytest
import tiny_runs
import torch
from helpers import must_fail
from tiny_runs import RUNS, check_same_run

from icl_interp.errors import InputError
from icl_interp.provenance import encode, generator
from icl_interp.training import trainer
from icl_interp.training.data import Batches

pytestmark = pytest.mark.usefixtures("quick")
NAME = "a finite set"
FIRST_POINTS = {"first_points": 5}


def batches(**training):
    section = {"n_prompts": 16, "curriculum": FIRST_POINTS, **training}
    run = tiny_runs.config(training=section)
    return Batches(run.task, run.training)


def epoch_of(made, number):
    """The first numbers of the prompts that an epoch of four steps takes, in its order."""
    return torch.cat([made.at(4 * number + i).xs[:, 0, 0] for i in range(4)])


def test_each_epoch_takes_every_prompt_once_in_an_order_of_its_own():
    made = batches()
    first, second = epoch_of(made, 0), epoch_of(made, 1)
    assert len(first.unique()) == 16

    def check(a, b):
        assert torch.equal(a.sort().values, b.sort().values)

    check(first, second)
    assert not torch.equal(first, second)
    must_fail(check, first, epoch_of(batches(n_prompts=None), 1))
    assert torch.equal(second, epoch_of(batches(), 1))  # whoever asks, whenever
    assert not torch.equal(first, epoch_of(batches(seed=1), 0))


def test_the_test_set_is_none_of_the_set():
    made = batches()
    tested = made.test.xs[:, 0, 0]
    assert len(tested) == 16
    assert not set(tested.tolist()) & set(epoch_of(made, 0).tolist())
    assert batches(n_prompts=None).test is None


def test_fresh_prompts_are_those_of_before():
    made = batches(n_prompts=None)
    expected = made.task.sample(4, generator(made.training.seed, "train/prompts", 7))
    assert torch.equal(made.at(7).xs, expected.xs)


@pytest.mark.parametrize("stops", [[3], [5, 6, 11]], ids=["once", "three times"])
def test_a_run_that_was_cut_off_is_the_uninterrupted_one(tmp_path, stops):
    """Within an epoch, at its end and several times: byte for byte."""
    config = tiny_runs.data(**RUNS[NAME])
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    trainer.train(config, whole, progress=False)
    for step in stops:
        tiny_runs.train_until(config, cut, step)
    trainer.train(config, cut, progress=False)
    check_same_run(cut, whole)
    lines = [json.loads(line) for line in (cut / "metrics.jsonl").read_text().splitlines()]
    assert all(line["test_loss"] > 0 for line in lines)
    fresh = tiny_runs.data(training={"curriculum": FIRST_POINTS})
    trainer.train(fresh, tmp_path / "fresh", progress=False)
    must_fail(check_same_run, tmp_path / "fresh", whole)


@pytest.mark.parametrize(
    ("section", "match"),
    [
        ({"n_prompts": 18}, "multiple of training.batch_size=4, .* but got 18"),
        ({"n_prompts": 0}, "multiple of training.batch_size=4"),
        ({"n_prompts": 16, "curriculum": {"until": 5}}, "one set of prompts for all steps"),
        ({"n_prompts": "many"}, "n_prompts must be a whole number"),
    ],
)
def test_sets_that_no_epoch_goes_through_are_refused(section, match):
    with pytest.raises(InputError, match=match):
        tiny_runs.config(training=section)


def test_configs_from_before_keep_their_names():
    run = tiny_runs.config()
    assert run.training.n_prompts is None
    set_of_prompts = replace(run.training, n_prompts=16)
    assert "n_prompts" not in json.dumps(encode(run))
    assert "n_prompts" in json.dumps(encode(set_of_prompts))
