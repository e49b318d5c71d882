"""A model is one function.

Whoever predicts in two ways is refused in a line, before anything is judged.
"""

import pytest
import torch
from helpers import must_fail

import icl_interp
from icl_interp.analyses import one_model
from icl_interp.checkpoints import store
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.tasks import Polynomial, Uniform

TASK = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=8)
SHAPE = {"n_layers": 2, "d_model": 8, "n_heads": 2, "init_std": 0.3}


class Clamped(HookedTransformer):
    """`forward` is clamped, the short ways are not: they differ far out only."""

    def forward(self, tokens, positions=None):
        return super().forward(tokens, positions).clamp(-1e3, 1e3)


class Opposite(HookedTransformer):
    def forward(self, tokens, positions=None):
        return -super().forward(tokens, positions)


class Noisy(HookedTransformer):
    """Every way to run it reads out with noise."""

    def _read_out(self, stream):
        out = super()._read_out(stream)
        return out + 1e-3 * torch.randn_like(out)


class Drifting(HookedTransformer):
    """It remembers how often it was asked."""

    def _read_out(self, stream):
        self.asked = getattr(self, "asked", 0) + 1
        return super()._read_out(stream) * (1 + 1e-3 * self.asked)


class OfTheBatch(HookedTransformer):
    """A prediction that depends on the other prompts of the batch, as batch norms make it."""

    def _read_out(self, stream):
        out = super()._read_out(stream)
        return out - 0.1 * out.mean(0, keepdim=True)


class OtherPositions(HookedTransformer):
    def forward(self, tokens, positions=None):
        out = super().forward(tokens, positions)
        return out if positions is None else out + 0.1


class OtherWhenHeard(HookedTransformer):
    def forward(self, tokens, positions=None):
        return super().forward(tokens, positions) + 0.1 * self._anyone_listens()


class OtherResume(HookedTransformer):
    def resume_after(self, memory, stream, block):
        return super().resume_after(memory, stream, block) + 0.1 * (block == 1)


class Whole(HookedTransformer):
    """Another function, the same in all ways: it is added where every way reads out."""

    def _read_out(self, stream):
        return super()._read_out(stream).sin()


def built(kind: type[HookedTransformer], **settings) -> HookedTransformer:
    config = HookedTransformerConfig(**{**SHAPE, "n_ctx": 16, **settings})
    return kind(config, seed=3).double().eval()


def check(kind, **settings) -> None:
    model = built(kind, normalization_type=None, **settings)
    encoding = tokens.infer_for(TASK, model.cfg.d_in)
    prompts = TASK.sample(20, generator(0, "one"), dtype=torch.float64)
    one_model.check(model, encoding, prompts)


def refused(kind, **settings) -> None:
    with pytest.raises(InputError, match="not one function"):
        check(kind, **settings)


@pytest.mark.parametrize(
    "kind",
    [Clamped, Opposite, Noisy, Drifting, OfTheBatch, OtherPositions, OtherWhenHeard, OtherResume],
)
def test_two_functions_under_one_name_are_refused(kind):
    refused(kind)
    must_fail(refused, Whole)


@pytest.mark.parametrize("kind", [Noisy, Drifting, OfTheBatch, OtherPositions, OtherWhenHeard])
def test_also_where_whole_prompts_are_read(kind):
    refused(kind, attention_dir="bidirectional", d_in=2)
    check(Whole, attention_dir="bidirectional", d_in=2)


@pytest.mark.parametrize("score", ["softmax", "hardmax", "linear"])
@pytest.mark.parametrize("mlp", [True, False])
def test_the_package_s_own_models_are_one(score, mlp):
    check(HookedTransformer, score_fn=score, attn_only=not mlp)
    check(Whole, score_fn=score, attn_only=not mlp)


def test_the_message_says_where_they_differ():
    with pytest.raises(
        InputError, match=r"`after` a context, for queries at 1e\+06 times their place"
    ):
        check(Clamped)
    with pytest.raises(InputError, match="a second pass over the same prompts"):
        check(Noisy)


def analysed(kind) -> None:
    source = store.load("affine_no_ln")
    model = kind(source.model.cfg)
    model.load_state_dict(source.model.state_dict())
    config = RunConfig(model.cfg, source.task, tokens.name_of(source.encoding))
    checkpoint = Checkpoint(model.eval(), source.task, source.encoding, config)
    icl_interp.analyze(
        checkpoint, claims=("limits.linear_asymptote",), n_prompts=16, progress=False
    )


def refused_by_analyze(kind) -> None:
    with pytest.raises(InputError, match="not one function"):
        analysed(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Clamped, Noisy])
def test_analyze_refuses(kind):
    refused_by_analyze(kind)
    must_fail(refused_by_analyze, HookedTransformer)


def test_a_copy_predicts_what_the_model_does():
    model, seen = built(Opposite), torch.randn(5, 8, 1, dtype=torch.float64)
    plain = HookedTransformer(model.cfg).double()
    plain.load_state_dict(model.state_dict())
    with pytest.raises(InputError, match="built anew"):
        one_model.check_copy(plain, model, seen)
    same = Opposite(model.cfg).double()
    same.load_state_dict(model.state_dict())
    one_model.check_copy(same, model, seen)
