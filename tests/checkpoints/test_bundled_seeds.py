"""Further seeds of the recipes: whole runs of the recipe and the seed that their names say."""

from dataclasses import replace

import pytest
from helpers import must_fail

from icl_interp.checkpoints import bundled, store
from icl_interp.training import recipes

FOLDERS = sorted(path.parent for path in (bundled.ZOO / "seeds").glob("*/config.json"))


def check(checkpoint, name):
    recipe, _, seed = name.rpartition("_seed")
    assert checkpoint.config == recipes.resolve(recipe, [f"training.seed={seed}"])
    assert checkpoint.step == checkpoint.config.training.steps
    assert checkpoint.provenance["recipe"] == f"{recipe}.yaml"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_is_a_whole_run_of_its_recipe(folder):
    checkpoint = store.load(folder)
    check(checkpoint, folder.name)
    must_fail(check, checkpoint, folder.name + "0")
    must_fail(check, replace(checkpoint, step=checkpoint.step - 1), folder.name)


def test_they_are_no_bundled_models():
    assert FOLDERS
    assert not {folder.name for folder in FOLDERS} & set(bundled.names())
