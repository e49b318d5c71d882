"""Ordinary slips in notebooks: what is meant is taken, or one line says what was expected."""

import numpy as np
import pytest
import torch

import icl_interp
from icl_interp import intervene
from icl_interp.errors import InputError
from icl_interp.interventions import (
    AblateHeads,
    At,
    FreezeNorms,
    MeanOutputs,
    PutActivations,
    PutPatterns,
    SwapPattern,
    Temperature,
    patch,
)
from icl_interp.probes import Activations
from icl_interp.prompts import Prompts

LOADED = icl_interp.load("two_layers_attn_only")
MODEL = LOADED.model
PROMPTS = LOADED.task.sample(4, torch.Generator().manual_seed(0))
TOKENS = LOADED.encoding.encode(PROMPTS)
HOOK = "blocks.0.hook_resid_pre"

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def last(out):
    return out[:, -1].mean()


def test_a_checkpoint_stands_for_its_model():
    edit = AblateHeads.zero((0, 0))
    with intervene(MODEL, edit):
        expected = MODEL(TOKENS)
    with intervene(LOADED, edit) as model:
        assert model is MODEL
        torch.testing.assert_close(model(TOKENS), expected)


def test_prompts_stand_for_tokens_beside_a_checkpoint():
    for of_tokens, of_prompts in (
        (AblateHeads.measure(MODEL, TOKENS, (0, 1)), AblateHeads.measure(LOADED, PROMPTS, (0, 1))),
        (FreezeNorms.measure(MODEL, TOKENS), FreezeNorms.measure(LOADED, PROMPTS)),
        (MeanOutputs.measure(MODEL, TOKENS, [HOOK]), MeanOutputs.measure(LOADED, PROMPTS, [HOOK])),
        (
            PutActivations.measure(MODEL, TOKENS, [HOOK]),
            PutActivations.measure(LOADED, PROMPTS, [HOOK]),
        ),
        (PutPatterns.measure(MODEL, TOKENS, [0]), PutPatterns.measure(LOADED, PROMPTS, [0])),
    ):
        outs = []
        for edit in (of_tokens, of_prompts):
            with intervene(MODEL, edit):
                outs.append(MODEL(TOKENS))
        torch.testing.assert_close(*outs)
    found = [
        patch(*given, last, "z", by=())
        for given in ((MODEL, TOKENS, -TOKENS), (LOADED, PROMPTS, -TOKENS))
    ]
    np.testing.assert_allclose(found[0].values, found[1].values, rtol=1e-5)


SLIPS = {
    "tokens are needed": lambda: AblateHeads.measure(MODEL, PROMPTS, (0, 0)),
    "a HookedTransformer or a Checkpoint is needed": lambda: intervene("affine").__enter__(),
    "pass them one after another": lambda: intervene(MODEL, [AblateHeads.zero((0, 0))]).__enter__(),
    r"heads are pairs \(layer, head\).*but got \(0, 1\)": lambda: AblateHeads.zero(0, 1),
    r"heads are pairs": lambda: SwapPattern("uniform", heads=(0, 1)),
    r"heads must be a list": lambda: Temperature(2.0, heads=0),
    "a head must be a whole number": lambda: AblateHeads.zero((0, "1")),
    "positions must be a list, but got -1": lambda: At(-1, AblateHeads.zero((0, 0))),
    "a position must be a whole number": lambda: At((0.5,), AblateHeads.zero((0, 0))),
    "a torch.Generator is needed": lambda: LOADED.task.sample(4, 0),
    "n_functions must be a whole number": lambda: LOADED.task.sample("4", torch.Generator()),
    "tokens are float64 and weights float32": lambda: MODEL(TOKENS.double()),
    "tokens are int64 and weights float32": lambda: MODEL(TOKENS.long()),
    "a model reads tokens": lambda: MODEL(PROMPTS),
    "needs at least one token": lambda: MODEL(TOKENS[:, :0]),
    "predict takes Prompts": lambda: LOADED.predict(TOKENS),
    "xs of prompts must be a torch.Tensor": lambda: Prompts(
        np.zeros((2, 5, 1)), *(torch.zeros(2, 5),) * 3
    ),
    r"claims must be a list, but got 'heads.orthogonality'": lambda: icl_interp.analyze(
        LOADED, claims="heads.orthogonality"
    ),
    r"names of hooks must be a list": lambda: Activations(HOOK),
    "names of hooks must be a list, but got 'blocks": lambda: MeanOutputs.measure(
        MODEL, TOKENS, HOOK
    ),
    "norms must be a list": lambda: FreezeNorms.measure(MODEL, TOKENS, "ln_final"),
    "layers must be a list": lambda: PutPatterns.measure(MODEL, TOKENS, 0),
}


@pytest.mark.parametrize("words", SLIPS)
def test_one_line_says_what_was_expected(words):
    with pytest.raises(InputError, match=words) as caught:
        SLIPS[words]()
    assert "\n" not in str(caught.value)


def test_positions_may_be_a_tensor():
    torch.testing.assert_close(MODEL(TOKENS, torch.tensor([0, 2])), MODEL(TOKENS, (0, 2)))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(MODEL(TOKENS, torch.tensor([0, 2])), MODEL(TOKENS, (0, 4)))
