"""Schedules as pure functions of the step, and recipes: what is read, changed and refused."""

import math

import numpy as np
import pytest
import tiny_runs
import yaml
from helpers import must_fail, one_in

from icl_interp.checkpoints import bundled
from icl_interp.checkpoints.config import Curriculum, RunConfig, TrainingConfig
from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer
from icl_interp.tasks import Polynomial, Uniform
from icl_interp.training.recipes import resolve
from icl_interp.training.schedules import learning_rate, task_at

pytestmark = pytest.mark.usefixtures("as_users_run_it")
TASK = Polynomial(degrees=(0, 1), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=20)


def settings(**change):
    return TrainingConfig(**{"steps": 1000, "warmup_steps": 100, "learning_rate": 0.5, **change})


@pytest.mark.parametrize(
    ("change", "rates"),
    [
        ({"decay": "cosine"}, {0: 0.005, 49: 0.25, 99: 0.5, 100: 0.5, 550: 0.25, 1000: 0.0}),
        (
            {"decay": "linear"},
            {0: 0.005, 49: 0.25, 99: 0.5, 100: 0.5, 325: 0.375, 550: 0.25, 1000: 0.0},
        ),
        ({"decay": "constant"}, {0: 0.005, 99: 0.5, 100: 0.5, 999: 0.5}),
        ({"warmup_steps": 0}, {0: 0.5, 500: 0.25}),
        ({"warmup_steps": 4000}, {0: 0.5 / 4000, 999: 0.125}),
        ({"warmup_steps": 1000}, {999: 0.5}),
    ],
)
def test_the_learning_rate_at_its_edges(change, rates):
    for step, rate in rates.items():
        assert learning_rate(settings(**change), step) == pytest.approx(rate, abs=1e-15)


def check_schedule(rate):
    """Up to the peak without a jump, then down to almost nothing.

    The same whatever was asked before.
    """
    rates = [rate(step) for step in range(1000)]
    strides = np.diff(rates)
    assert (strides[:99] > 0).all()
    assert (strides[100:] <= 0).all()
    assert np.abs(strides).max() < 0.006
    assert min(rates) > 0
    assert max(rates) == 0.5
    assert rates[-1] < 1e-3
    assert [rate(step) for step in reversed(range(1000))] == rates[::-1]


def stateful():
    calls = iter(range(10**6))
    return lambda step: learning_rate(settings(), next(calls))


def test_the_learning_rate_is_a_pure_function_of_the_step():
    for decay in ("cosine", "linear"):
        check_schedule(lambda step, decay=decay: learning_rate(settings(decay=decay), step))
    must_fail(check_schedule, lambda step: learning_rate(settings(decay="constant"), step))
    must_fail(check_schedule, lambda step: learning_rate(settings(warmup_steps=0), step))
    must_fail(check_schedule, stateful())


def check_lengths(length, first, until):
    """From `first` to the task's length in equal strides, never shorter than before."""
    lengths = [length(step) for step in range(until + 5)]
    assert lengths[0] == first
    assert lengths[until:] == [TASK.n_points] * 5
    assert lengths[until - 1] < TASK.n_points
    strides = np.diff(lengths)
    assert 0 <= strides.min() <= strides.max() <= math.ceil((TASK.n_points - first) / until)
    for step in range(until):
        assert abs(lengths[step] - (first + (TASK.n_points - first) * step / until)) < 1


def length_at(curriculum, task=TASK):
    return lambda step: task_at(settings(curriculum=curriculum), task, step).n_points


@pytest.mark.parametrize(("first", "until"), [(2, 400), (3, 17), (5, 4), (19, 10)])
def test_prompts_grow_to_their_full_length(first, until):
    check_lengths(length_at(Curriculum(first, until)), first, until)
    must_fail(check_lengths, length_at(Curriculum(first, 2 * until)), first, until)
    must_fail(check_lengths, lambda step: first if step < until else TASK.n_points, 3, 400)


def test_without_a_curriculum_prompts_are_full_from_the_start():
    assert {length_at(Curriculum())(step) for step in (0, 1, 999)} == {20}
    short = TASK.with_points(4)
    assert {
        length_at(Curriculum(first_points=9, until=100), short)(step) for step in (0, 50, 200)
    } == {4}


def test_degrees_come_in_stages():
    staged = settings(curriculum=Curriculum(degrees=((10, (0,)), (20, (0, 1)), (30, (3,)))))
    found = {step: task_at(staged, TASK, step).degrees for step in (0, 9, 10, 19, 20, 29, 30, 999)}
    assert found == {
        0: (0, 1), 9: (0, 1), 10: (0,), 19: (0,), 20: (0, 1), 29: (0, 1), 30: (3,), 999: (3,),
    }  # fmt: skip
    both = settings(curriculum=Curriculum(2, 10, ((0, (0,)),)))
    posed = task_at(both, TASK, 5)
    assert (posed.n_points, posed.degrees, posed.inputs) == (11, (0,), TASK.inputs)


# Recipes


@pytest.mark.parametrize("name", one_in(3, sorted(bundled.recipes())))
def test_every_shipped_recipe_is_a_run(name):
    run = resolve(name)
    assert run.training.steps >= 1000
    assert (
        run
        == resolve(str(bundled.recipes()[name]))
        == resolve(yaml.safe_load(bundled.recipes()[name].read_text()))
    )
    # Every step poses prompts that the model has room for, up to the full length but for one run.
    lengths = [
        task_at(run.training, run.task, step).n_points for step in range(0, run.training.steps, 97)
    ]
    assert max(lengths) == run.reached.n_points
    assert (run.reached == run.task) == (not name.endswith("_stopped"))
    HookedTransformer(run.model)


def test_recipes_differ_where_their_names_say():
    affine = resolve("affine")
    assert resolve("affine_no_ln").model.normalization_type is None
    assert resolve("affine_post_ln").model.norm_position == "post"
    assert resolve("affine_attn_only").model.attn_only
    assert resolve("affine_hardmax").model.score_fn == "hardmax"
    assert resolve("degrees_135").task.degrees == (1, 3, 5)
    assert (
        affine.model.normalization_type,
        affine.model.norm_position,
        affine.model.attn_only,
    ) == ("LN", "pre", False)
    assert (affine.model.score_fn, affine.task.degrees) == ("softmax", (1,))


def test_changes_reach_every_depth_and_leave_the_source_alone():
    data = tiny_runs.data()
    before = repr(data)
    changes = [
        "training.steps=7",
        "model.attn_only=true",
        "task.degrees=[2, 3]",
        "task.inputs.high=2.5",
        "task.n_points=4",
    ]
    run = resolve(data, [*changes, "training.curriculum.until=3", "model.normalization_type=null"])
    assert (run.training.steps, run.model.attn_only, run.task.degrees) == (7, True, (2, 3))
    assert (run.task.inputs, run.task.coefficients, run.task.n_points) == (
        Uniform(-1, 2.5),
        Uniform(-1, 1),
        4,
    )
    assert (run.training.curriculum.until, run.model.normalization_type) == (3, None)
    assert repr(data) == before
    assert resolve(data) != run


def test_changes_apply_to_a_config_as_well():
    run = tiny_runs.config()
    assert resolve(run) is run
    changed = resolve(run, iter(["training.seed=5"]))
    assert (changed.training.seed, changed.model, changed.task) == (5, run.model, run.task)


def refused(call, match):
    with pytest.raises(InputError, match=match) as error:
        call()
    assert "\n" not in str(error.value)


KEYS = [
    ("mdoel={}", "unknown key in config 'mdoel': did you mean 'model'"),
    ("model.d_modle=8", "unknown key in config.model 'd_modle': did you mean 'd_model'"),
    ("task.degree=[1]", "unknown key in config.task 'degree': did you mean 'degrees'"),
    ("task.inputs.hihg=1", "unknown key in config.task.inputs 'hihg': did you mean 'high'"),
    (
        "training.learning_rat=0.1",
        "unknown key in config.training 'learning_rat': did you mean 'learning_rate'",
    ),
    (
        "training.curriculum.first_point=3",
        "unknown key in config.training.curriculum 'first_point': did you mean 'first_points'",
    ),
    ("task.kind=Polynomail", "unknown kind in config.task 'Polynomail': did you mean 'Polynomial'"),
    (
        "task.kind=Uniform",
        (
            r"kind in config.task 'Uniform': .*\(known: Arranged, AutoregressiveProcess, "
            r"Continuous, DecisionTree, Linear"
        ),
    ),
    ("task.kind=[1]", "unknown kind in config.task"),
    ("task.inputs.kind=Gaussian", "unknown kind in config.task.inputs 'Gaussian'"),
    ("encoding=interleavd", "unknown encoding 'interleavd': did you mean 'interleaved'"),
    ("model.score_fn=sofmax", "unknown score_fn 'sofmax': did you mean 'softmax'"),
    ("training.decay=cosin", "training.decay must be cosine, linear or constant, but got 'cosin'"),
]
VALUES = [
    (
        "training.learning_rate=1e-3",
        "config.training.learning_rate must be a number, but got '1e-3' .*write 1.0e-3",
    ),
    ("model.eps=1e-5", "config.model.eps must be a number, but got '1e-5' .*write 1.0e-3"),
    ("model.init_std=1e-2", "config.model.init_std must be a number, but got '1e-2'"),
    ("task.inputs.low=-1e0", "config.task.inputs.low must be a number, but got '-1e0'"),
    ("training.steps=1e3", "config.training.steps must be a whole number, but got '1e3'"),
    ("training.steps=10.0", "config.training.steps must be a whole number, but got 10.0"),
    ("training.steps=0", "training.steps must be a whole number from 1 up, but got 0"),
    ("training.steps=true", "config.training.steps must be a whole number, but got True"),
    (
        "training.warmup_steps=-1",
        "training.warmup_steps must be a whole number from 0 up, but got -1",
    ),
    ("training.learning_rate=-1", "training.learning_rate must be a positive number, but got -1"),
    (
        "training.learning_rate=.inf",
        "training.learning_rate must be a finite number of at most 1.8e308, but got inf",
    ),
    ("training.grad_clip=0", "training.grad_clip must be a positive number, but got 0"),
    ("training.seed=abc", "config.training.seed must be a whole number, but got 'abc'"),
    ("training.curriculum.first_points=1", "curriculum needs first_points >= 2"),
    (
        "training.curriculum.until=soon",
        "config.training.curriculum.until must be a whole number, but got 'soon'",
    ),
    (
        "training.curriculum.degrees=[1, 3]",
        r"curriculum.degrees holds pairs \(step, degrees\).* but got 1",
    ),
    ("training.curriculum.degrees=[[0, 1]]", r"holds pairs .* but got \(0, 1\)"),
    ("training.curriculum.degrees=[[9, [1]], [5, [2]]]", "must come in the order of their steps"),
    (
        "training.curriculum.degrees=[[0, [-1]]]",
        r"degrees must be whole numbers from 0 up, .* but got \(-1,\)",
    ),
    ("training.curriculum=7", "config.training.curriculum must be a mapping, but got 7"),
    ("training=fast", "config.training must be a mapping, but got 'fast'"),
    ("model=", "config.model must be a mapping, but got None"),
    ("model.n_layers=two", "config.model.n_layers must be a|n_layers must be a whole number"),
    ("model.attn_only=maybe", "config.model.attn_only must be true or false, but got 'maybe'"),
    ("task={degrees: [1]}", "config.task must name its kind, for example 'kind: Polynomial'"),
    ("task.degrees=1", "degrees must be a list of whole numbers"),
    ("task.degrees=[1.5]", "degrees must be whole numbers"),
    ("task.inputs=3", "inputs must be a law, for example .* but got 3"),
    ("task.coefficients={low: 1, high: 2}", "coefficients must be a law"),
    (
        "task.n_points=30",
        "n_ctx=12 tokens is too short for prompts of n_points=30: interleaved prompts .* need 59",
    ),
    ("task.n_points=1", "n_points counts the query too"),
    (
        "encoding=stacked",
        "stacked prompts with inputs of 1 coordinate have d_in=2, but the model has d_in=1",
    ),
]


@pytest.mark.parametrize(("change", "match"), KEYS + VALUES)
def test_a_wrong_key_or_value_is_refused_by_name(change, match):
    refused(lambda: resolve(tiny_runs.data(), [change]), match)


def test_what_is_right_is_not_refused():
    for change, match in [
        ("training.learning_rate=0.001", "learning_rate"),
        ("task.n_points=6", "too short"),
    ]:
        must_fail(refused, lambda change=change: resolve(tiny_runs.data(), [change]), match)
    assert (
        resolve(tiny_runs.data(), ["training.learning_rate=1.0e-3"]).training.learning_rate == 1e-3
    )


def test_stages_of_degrees_need_polynomials():
    task = {"kind": "Continuous", "function": "sin", "inputs": tiny_runs.UNIFORM, "n_points": 5}
    staged = {**tiny_runs.data(training={"curriculum": {"degrees": [[0, [1]]]}}), "task": task}
    refused(
        lambda: resolve(staged),
        "a curriculum over degrees needs a Polynomial task, but got Continuous",
    )
    assert isinstance(resolve({**tiny_runs.data(), "task": task}), RunConfig)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            "training.steps",
            "changes to a recipe look like training.steps=1000, but got 'training.steps'",
        ),
        ("=5", "changes to a recipe look like"),
        ("task.degrees=[1", r"the value '\[1' is not YAML"),
        ("task.n_points=2024-13-45", "the value '2024-13-45', line 1: .*not 'timestamp'"),
    ],
)
def test_a_change_that_can_not_be_read_is_refused(change, match):
    refused(lambda: resolve(tiny_runs.data(), [change]), match)


def test_a_missing_section_or_key_is_named():
    data = tiny_runs.data()
    for name in ("model", "task"):
        refused(
            lambda name=name: resolve({k: v for k, v in data.items() if k != name}),
            f"lacks the key '{name}'",
        )
    refused(
        lambda: resolve({**data, "training": {"batch_size": 3}}),
        "config.training lacks the key 'steps'",
    )
    assert resolve({k: v for k, v in data.items() if k != "training"}).training is None


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("model: {n_layers: 1\ntask: [", "recipe.yaml is not YAML: while parsing .* line 1"),
        ("model:\n\t- a", "recipe.yaml is not YAML"),
        (
            "a: !!python/object/apply:os.system ['true']",
            "recipe.yaml, line 1: expected numbers, text",
        ),
        ("", "recipe.yaml must be a mapping with the sections model, task and training"),
        ("- a\n- b", "recipe.yaml must be a mapping"),
        ("just words", "recipe.yaml must be a mapping"),
        (b"\xff\xfe\x00\x80", "cannot read .*recipe.yaml"),
    ],
)
def test_a_recipe_that_is_none_is_one_clear_line(tmp_path, text, match):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(lambda: resolve(path), match)


def test_an_unknown_recipe_is_refused_with_the_nearest(tmp_path):
    refused(
        lambda: resolve("afine"),
        r"unknown recipe \(or no such file\) 'afine': did you mean 'affine'",
    )
    refused(lambda: resolve(tmp_path / "none.yaml"), "unknown recipe .*none.yaml.*known: affine, ")
    refused(lambda: resolve(tmp_path), "unknown recipe")
