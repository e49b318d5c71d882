"""Recipes and changes to them: what cannot be meant is refused at once, in one line."""

import time

import pytest
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.training import recipes

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
TEXTS = {
    "aliases": (LAUGHS, "anchors"),
    "an anchor": ("model: &a {n_layers: 1}", "anchors"),
    "deep lists": ("[" * 5000, "20 levels"),
    "deep mappings": ("{a: " * 3000, "20 levels"),
    "a key twice": ("model: {n_layers: 1, n_layers: 2}", "'n_layers' twice"),
    "a section twice": (
        "task: {}\nmodel: {}\ntask: {}",
        "line 3: expected each key once, and not 'task' twice",
    ),
    "a merge": ("<<: {model: {}}", "merge"),
    "a date": ("model: 2024-01-01", "timestamp"),
    "an object": ("!!python/object/apply:os.system ['true']", "os.system"),
    "a tag": ("model: !mine {n_layers: 1}", "!mine"),
    "bytes": ("model: !!binary aGVsbG8=", "binary"),
    "a set": ("model: !!set {x}", "set"),
    "a number as key": ("1: 2", "text as keys"),
    "a list as key": ("? [a]\n: 1", "text as keys"),
    "many digits": ("model: {n_layers: " + "9" * 5000 + "}", "digits"),
    "a number past all": (
        "model: {n_layers: " + "9" * 400 + "}",
        "model.n_layers must be a whole number below 2**63",
    ),
    "a large file": ("# " + "x" * 200_000, "bytes"),
    "a long text": ("model: " + "x" * 90_000, "model must be a mapping"),
    "no text": ("\0", "not YAML"),
    "no end": ("model: [1,\n  b: }", "not YAML"),
}
CHANGES = {
    "deep": ("a." * 3000 + "a=1", "training.steps=1000"),
    "no name": ("a..b=1", "training.steps=1000"),
    "long": ("a" * 10**6, "training.steps=1000"),
    "nested": ("model=" + "[" * 5000, "20 levels"),
    "an alias": ("training.steps=*a", "anchors"),
    "digits": ("training.steps=" + "9" * 5000, "digits"),
    "past all": (
        "training.learning_rate=1" + "0" * 400,
        "affine.training.learning_rate must be a whole number below",
    ),
    "a long list": ("task.degrees=[" + "1," * 10_000 + "x]", "degrees"),
    "a long word": ("task.kind=" + "x" * 10_000, "kind"),
}


def check_refused(call, words):
    started = time.perf_counter()
    with pytest.raises(InputError) as refused:
        call()
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) <= 6000
    assert time.perf_counter() - started < 3


@pytest.mark.parametrize("name", TEXTS)
def test_a_recipe_that_cannot_be_meant_is_refused(tmp_path, name):
    text, words = TEXTS[name]
    path = tmp_path / "r.yaml"
    path.write_text(text)
    check_refused(lambda: recipes.resolve(path), words)
    must_fail(check_refused, lambda: recipes.resolve("affine"), words)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_cannot_be_meant_is_refused(name):
    change, words = CHANGES[name]
    check_refused(lambda: recipes.resolve("affine", [change]), words)


def test_data_of_a_caller_is_held_to_the_same():
    deep: dict = {}
    for _ in range(5000):
        deep = {"a": deep}
    check_refused(lambda: recipes.resolve({"model": deep}), "nests deeper than the 20 levels")
    check_refused(
        lambda: recipes.resolve({"model": {"n_layers": 10**400}}),
        "config.model.n_layers must be a whole",
    )
    check_refused(lambda: recipes.resolve({"model": {1: 2}}), "must be text, but got 1")
    check_refused(
        lambda: recipes.resolve({"model": {"n_layers": {3}}}),
        "config.model.n_layers must be a number, text",
    )


def test_a_recipe_in_bytes_that_are_no_text_is_refused(tmp_path):
    (tmp_path / "r.yaml").write_bytes(b"model: \xff\xfe")
    check_refused(lambda: recipes.resolve(tmp_path / "r.yaml"), "cannot read")
