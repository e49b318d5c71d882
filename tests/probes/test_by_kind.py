"""What probes keep of each position kind, against numpy on the whole of it."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from small_models import PROMPTS, make

from icl_interp.models.transformer import widest_bytes
from icl_interp.probes import runner
from icl_interp.probes.attention import AttentionEntropy
from icl_interp.probes.by_kind import ByKind
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.residual import LogitLens, ResidualStream
from icl_interp.reductions import Moments

KINDS = {"x": [0, 2], "y": [1], "query": [4]}  # token 3 is of no kind
SHAPE = (6, 5, 2)  # prompts, tokens, and two values at each


def by_numpy(data, keep, per_prompt):
    masked = np.ma.masked_array(data, ~keep)
    found = []
    for places in KINDS.values():
        here = masked[:, places]
        if per_prompt:
            found.append(np.moveaxis(here.mean(1).filled(np.nan), 0, -1))
        else:
            parts = (here.mean((0, 1)), here.std((0, 1)), here.min((0, 1)), here.max((0, 1)))
            found.append(np.stack([np.ma.filled(part, np.nan) for part in parts], -1))
    return np.stack(found)


def follows_numpy(kept, data, keep, cut, per_prompt=False, n_statistics=2):
    holes = torch.from_numpy(np.where(keep, data, np.nan))
    for part, where in zip(
        np.split(holes, [cut]), np.split(torch.from_numpy(keep), [cut]), strict=True
    ):
        kept.update(part, where=where)
    expected = by_numpy(data, keep, per_prompt)
    expected = expected if per_prompt else expected[..., :n_statistics]
    np.testing.assert_allclose(kept.result.numpy(), expected, rtol=1e-7, atol=1e-6)


DATA = hnp.arrays(np.float64, st.just(SHAPE), elements=st.floats(-10, 10))


@pytest.mark.parametrize("per_prompt", [False, True])
@given(
    data=DATA, cut=st.integers(0, 6), seed=st.integers(0, 9), share=st.sampled_from([0.0, 0.5, 1.0])
)
def test_kinds_of_positions(per_prompt, data, cut, seed, share):
    keep = np.random.default_rng(seed).random(SHAPE) < share
    follows_numpy(ByKind(KINDS, per_prompt), data, keep, cut, per_prompt)


@given(data=DATA, cut=st.integers(0, 6), seed=st.integers(0, 9))
def test_a_position_counts_in_all_prompts_or_in_none(data, cut, seed):
    """As the first token of a causal prompt, whose attention says nothing."""
    keep = np.broadcast_to(np.random.default_rng(seed).random(SHAPE[1:]) < 0.7, SHAPE).copy()
    follows_numpy(ByKind(KINDS), data, keep, cut)


def test_mutants_are_noticed():
    data, keep = np.arange(60.0).reshape(SHAPE) ** 1.5, np.arange(60).reshape(SHAPE) % 4 > 0

    class CountsAll(ByKind):
        def update(self, values, where=None):
            super().update(values.where(where, 0.0))

    class ForgetsTheSpreadOfMeans(ByKind):
        @property
        def result(self):
            found = super().result.clone()
            index = [self._places.index(place) for place in KINDS["x"]]
            moments = self._moments
            found[0, :, 1] = (moments._squares[index].sum(0) / moments.count[index].sum(0)).sqrt()
            return found

    class OtherPlaces(ByKind):
        def update(self, values, where=None):
            super().update(values.roll(1, 1), where.roll(1, 1))

    follows_numpy(ByKind(KINDS), data, keep, 4)
    for mutant in (CountsAll, ForgetsTheSpreadOfMeans, OtherPlaces):
        must_fail(follows_numpy, mutant(KINDS), data, keep, 4)


@pytest.mark.parametrize("cut", [0, 2, 6])
def test_extremes_too(cut):
    data = np.random.default_rng(0).normal(size=SHAPE)
    kept = ByKind(KINDS, extremes=True)
    for part in np.split(data, [cut]):
        kept.update(torch.from_numpy(part))
    np.testing.assert_allclose(
        kept.result.numpy(), by_numpy(data, np.ones(SHAPE, dtype=bool), False), rtol=1e-12
    )
    assert list(kept.axis()["statistic"]) == ["mean", "std", "min", "max"]
    assert ByKind(KINDS, per_prompt=True, extremes=True)._extremes is None


def test_where_may_say_it_for_all_values_of_a_token():
    data = torch.randn(SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    where = torch.rand(*SHAPE[:2], 1, generator=torch.Generator().manual_seed(1)) < 0.5
    for per_prompt in (False, True):
        short, whole = ByKind(KINDS, per_prompt), ByKind(KINDS, per_prompt)
        short.update(data, where)
        whole.update(data, where.expand(SHAPE))
        torch.testing.assert_close(short.result, whole.result, equal_nan=True, rtol=0, atol=0)


def together(moments, data):
    moments.update(torch.from_numpy(data))
    found = moments.over([0, 2]).result.numpy()
    pooled = data[:, [0, 2]].reshape(-1)
    np.testing.assert_allclose(found, [pooled.mean(), pooled.std()], rtol=1e-9)


def test_moments_of_several_entries_do_not_cancel():
    """Spread 1 around 1e8."""

    class FromSquares(Moments):
        def over(self, entries):
            found = super().over(entries)
            n = self.count[entries]
            raw = (self._squares[entries] + n * self.mean[entries].square()).sum(0)
            found._squares = raw - n.sum(0) * found.mean.square()
            return found

    data = 1e8 + np.random.default_rng(0).normal(size=(100, 3))
    together(Moments(), data)
    must_fail(together, FromSquares(), data)


# ---- how many prompts run at once ----------------------------------------------------------------


def same_in_parts(monkeypatch, probes, change=lambda part: part):
    """A probe's results where one, four and all prompts run at once."""
    model, found = make("pre"), []
    for at_once in (len(PROMPTS), 5, 4, 1):
        monkeypatch.setattr(runner, "WIDEST", at_once * widest_bytes(model, 13))
        seen, forward = [], model.forward
        monkeypatch.setattr(
            model,
            "forward",
            lambda t, run=forward, seen=seen: seen.append(len(t)) or run(change(t)),
        )
        found.append(runner.probe(model, PROMPTS, probes))
        monkeypatch.undo()
        assert max(seen) <= at_once
        assert sum(seen) == len(PROMPTS)
    for other in found[1:]:
        for name, result in found[0].items():
            np.testing.assert_allclose(
                other[name].values, result.values, rtol=1e-8, atol=1e-10, err_msg=name
            )


@pytest.mark.parametrize("one", [ResidualStream, LogitLens, LayerNormScale, AttentionEntropy])
def test_a_large_models_prompts_run_in_parts(monkeypatch, one):
    same_in_parts(monkeypatch, [one()])
    # A mutant that depends on how many run at once.
    must_fail(same_in_parts, monkeypatch, [one()], lambda part: part * (1 + len(part)))


def test_heads_too(monkeypatch):
    same_in_parts(monkeypatch, [HeadOrthogonality(angles=False)])
