"""A setting written with another word for it is found, though no letters lead there."""

import pytest
import tiny_runs
from helpers import must_fail

from icl_interp.checkpoints import config
from icl_interp.errors import InputError


@pytest.mark.parametrize(
    ("section", "word", "value", "meant"),
    [
        ("model", "norm", "RMS", "normalization_type"),
        ("model", "heads", 4, "n_heads"),
        ("model", "activation", "relu", "act_fn"),
        ("training", "lr", 0.1, "learning_rate"),
        ("training", "warmup", 3, "warmup_steps"),
        ("model", "n_layer", 3, "n_layers"),  # found by its letters, as before
    ],
)
def test_the_setting_that_is_meant_is_suggested(section, word, value, meant, monkeypatch):
    def suggests():
        with pytest.raises(
            InputError,
            match=rf"unknown key in config\.{section} '{word}': did you mean '{meant}'\?",
        ):
            config.parse(tiny_runs.data(**{section: {word: value}}))

    suggests()
    if word == "norm":
        monkeypatch.setattr(config, "_MEANT", {})
        must_fail(suggests)


def test_every_near_word_leads_to_a_setting():
    known = {f.name for cls in config._SECTIONS.values() for f in config.fields(cls)}
    assert set(config._MEANT.values()) <= known
    assert not set(config._MEANT) & known


def test_a_near_word_of_another_section_is_not_suggested():
    with pytest.raises(
        InputError, match=r"unknown key in config\.training 'heads': \(?known|did you mean"
    ) as caught:
        config.parse(tiny_runs.data(training={"heads": 3}))
    assert "n_heads" not in str(caught.value)
