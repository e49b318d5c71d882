"""Running statistics: however a stream is cut, ordered and merged, they equal numpy's on the whole of it."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from icl_interp.errors import InputError
from icl_interp.reductions import Extremes, Gram, Moments, PerPrompt, Rows

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)
ROWS = hnp.arrays(np.float64, st.tuples(st.integers(1, 24), st.integers(1, 4)), elements=NUMBERS)


def of_whole(kind, data):
    """The same numbers by numpy, from all rows at once."""
    if issubclass(kind, Moments):
        return {"mean": data.mean(0), "variance": data.var(0)}
    if kind is Extremes:
        return {"minimum": data.min(0), "maximum": data.max(0)}
    covariance = np.cov(data.T, bias=True).reshape(data.shape[1], -1)
    return {
        "mean": data.mean(0),
        "covariance": covariance,
        "spectrum": np.linalg.eigvalsh(covariance)[::-1].clip(0),
    }


def fed(state, parts):
    for part in parts:
        state.update(torch.from_numpy(part))
    return state


def check_stream(kind, data, pieces, updated_by=fed):
    state = updated_by(kind(), pieces)
    scale = max(1.0, float(np.abs(data).max()))
    for name, expected in of_whole(kind, data).items():
        power = 2 if name in ("variance", "covariance", "spectrum") else 1
        np.testing.assert_allclose(
            getattr(state, name).numpy(),
            expected,
            rtol=1e-9,
            atol=1e-12 * scale**power,
            err_msg=name,
        )


def merged(state, parts):
    """Every part by itself, then merged as a tree."""
    states = [fed(type(state)(), [part]) for part in parts]
    while len(states) > 1:
        states[0].merge(states.pop())
        states.append(states.pop(0))
    return states[0]


KINDS = pytest.mark.parametrize("kind", [Moments, Extremes, Gram])


@KINDS
@given(
    data=ROWS,
    cuts=st.lists(st.integers(0, 24), max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_pieces_in_any_order_equal_the_whole(kind, data, cuts, order):
    pieces = np.split(data, sorted(cuts))  # some are empty
    order.shuffle(pieces)
    check_stream(kind, data, pieces)
    check_stream(kind, data, pieces, merged)


@KINDS
def test_a_lost_piece_is_noticed(kind):
    data = np.arange(12.0).reshape(6, 2)
    check_stream(kind, data, [data[:4], data[4:]])
    must_fail(check_stream, kind, data, [data[:4]])


class SumsOfSquares(Moments):
    """The textbook one-pass formula E v^2 - (E v)^2, which cancels."""

    def update(self, batch, where=None):
        self._raw = getattr(self, "_raw", 0) + batch.square().sum(0)
        super().update(batch, where)

    @property
    def variance(self):
        return self._raw / self.count - self.mean.square()


class ForgetsTheDistance(Moments):
    """Adds up squared deviations without the distance between the means."""

    def merge(self, other):
        squares = self._squares + other._squares
        super().merge(other)
        self._squares = squares


def check_far_from_zero(kind):
    """Spread 1 around 1e8: squares need 16 digits more than float64 has."""
    data = 1e8 + np.random.default_rng(0).normal(size=(4000, 2))
    state = fed(kind(), np.split(data, 40))
    np.testing.assert_allclose(state.variance.numpy(), data.var(0), rtol=1e-8)


def test_moments_do_not_cancel():
    check_far_from_zero(Moments)
    must_fail(check_far_from_zero, SumsOfSquares)


def test_moments_count_the_distance_between_batches():
    data = np.array([[0.0], [0.0], [5.0], [5.0]])
    check_stream(Moments, data, [data[:2], data[2:]])
    must_fail(check_stream, ForgetsTheDistance, data, [data[:2], data[2:]])


def test_float32_batches_are_reduced_in_float64():
    data = (1e4 + np.random.default_rng(0).normal(size=(1000, 3))).astype(np.float32)
    state = fed(Moments(), [data])
    np.testing.assert_allclose(state.variance.numpy(), data.astype(np.float64).var(0), rtol=1e-10)
    assert (
        state.mean.dtype
        == fed(Extremes(), [data]).minimum.dtype
        == fed(Gram(), [data]).mean.dtype
        == torch.float64
    )


class CentredOnce(Gram):
    """About the mean in float32, which misses by a part of the spread."""

    def update(self, batch):
        part = Gram()
        about = batch.mean(0)
        part.count, part.mean = len(batch), about.double()
        part._squares = (batch - about).T @ (batch - about)
        self.merge(part)


def check_small_spread(kind):
    """Spread 0.1 around 1e5, where neighbouring numbers of float32 are 0.008 apart."""
    data = (1e5 + 0.1 * np.random.default_rng(0).normal(size=(1000, 3))).astype(np.float32)
    expected = np.cov(data.astype(np.float64).T, bias=True)
    np.testing.assert_allclose(
        fed(kind(), [data]).covariance.numpy(), expected, rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(
        fed(kind(), np.split(data, 4)).covariance.numpy(), expected, rtol=1e-5, atol=1e-7
    )


def test_a_covariance_in_float32_does_not_cancel():
    check_small_spread(Gram)
    must_fail(check_small_spread, CentredOnce)


@given(
    data=ROWS,
    cut=st.integers(0, 24),
    seed=st.integers(0, 9),
    share=st.sampled_from([0.0, 0.3, 0.8]),
)
def test_moments_leave_out_what_where_says(data, cut, seed, share):
    keep = np.random.default_rng(seed).random(data.shape) < share
    holes = torch.from_numpy(np.where(keep, data, np.nan))
    state = Moments()
    for part, where in zip(
        np.split(holes, [cut]), np.split(torch.from_numpy(keep), [cut]), strict=True
    ):
        state.update(part, where=where)
    with np.errstate(all="ignore"):
        masked = np.ma.masked_array(data, ~keep)
        mean, std = masked.mean(0).filled(np.nan), masked.std(0).filled(np.nan)
    scale = max(1.0, float(np.abs(data).max()))
    np.testing.assert_array_equal(state.count.numpy(), keep.sum(0))
    np.testing.assert_allclose(
        state.result.numpy(), np.stack([mean, std], -1), rtol=1e-6, atol=1e-7 * scale
    )


@given(hnp.arrays(np.float64, (12, 3), elements=st.floats(-10, 10)))
def test_participation_ratio_is_that_of_the_spectrum(data):
    gram = fed(Gram(), [data])
    spectrum = gram.spectrum.numpy()
    if spectrum[0] < 1e-6:
        return
    assert float(gram.participation_ratio) == pytest.approx(
        spectrum.sum() ** 2 / (spectrum**2).sum(), rel=1e-6
    )


def test_participation_ratio_counts_directions():
    for k in (1, 2, 3):
        data = np.concatenate([np.eye(3)[:k], -np.eye(3)[:k]])
        assert float(fed(Gram(), [data]).participation_ratio) == pytest.approx(k)
    assert np.isnan(float(fed(Gram(), [np.ones((4, 3))]).participation_ratio))


def test_rows_of_any_shape():
    data = np.random.default_rng(0).normal(size=(20, 2, 3))
    state = fed(Moments(), np.split(data, 4))
    np.testing.assert_allclose(state.variance.numpy(), data.var(0), rtol=1e-12)
    scalars = fed(Moments(), [data[:, 0, 0], data[:, 1, 1]])
    assert scalars.count.shape == ()
    assert scalars.count == 40


def test_nothing_seen_is_nan():
    assert Moments().result.isnan().all()
    with pytest.raises(InputError, match="no covariance of no vectors"):
        Gram().spectrum  # noqa: B018


def test_nan_stays_in_sight():
    extremes = fed(Extremes(), [np.array([1.0, np.nan]), np.array([2.0])])
    assert extremes.minimum.isnan()
    assert extremes.maximum.isnan()
    assert fed(Moments(), [np.array([1.0, np.nan]), np.array([2.0])]).mean.isnan()


@KINDS
def test_rows_of_another_shape_are_refused(kind):
    state = fed(kind(), [np.ones((4, 3))])
    # Broadcasting would take this one silently.
    with pytest.raises(InputError, match=r"rows of shape \(1,\) cannot join rows of shape \(3,\)"):
        state.update(torch.ones(4, 1, dtype=torch.float64))


def test_gradients_do_not_pile_up():
    batch = torch.ones(4, 3, requires_grad=True) * 2
    for state, tensor in ((Moments(), "mean"), (Extremes(), "minimum"), (Gram(), "mean")):
        state.update(batch)
        assert not getattr(state, tensor).requires_grad


# ---- several vectors a row -----------------------------------------------------------------------

PLACES = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(1, 3)),
    elements=st.floats(-1e3, 1e3),
)


def check_places(data, pieces, feed=fed):
    """Each place is centred by itself; what is left is pooled."""
    gram = feed(Gram(), pieces)
    centred = (data - data.mean(0)).reshape(-1, data.shape[-1])
    np.testing.assert_allclose(gram.mean.numpy(), data.mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        gram.covariance.numpy(), centred.T @ centred / len(centred), rtol=1e-9, atol=1e-6
    )


@given(
    data=PLACES,
    cuts=st.lists(st.integers(0, 12), max_size=3),
    order=st.randoms(use_true_random=False),
)
def test_each_place_has_a_mean_of_its_own(data, cuts, order):
    pieces = np.split(data, sorted(cuts))
    order.shuffle(pieces)
    check_places(data, pieces)
    check_places(data, pieces, merged)


def test_a_mean_over_places_is_noticed():
    data = np.random.default_rng(0).normal(size=(6, 3, 2)) + 10 * np.arange(3)[:, None]

    def one_mean(state, parts):
        return fed(state, [part.reshape(-1, part.shape[-1]) for part in parts])

    check_places(data, [data[:4], data[4:]])
    must_fail(check_places, data, [data[:4], data[4:]], one_mean)
    must_fail(check_places, data, [data[:4]])


def test_vectors_of_other_places_are_refused():
    gram = fed(Gram(), [np.ones((4, 3, 2))])
    for shape in ((4, 1, 2), (4, 2), (4, 3, 1)):
        with pytest.raises(InputError, match="cannot join rows of shape"):
            gram.update(torch.ones(shape, dtype=torch.float64))


# ---- prompts of several tokens -------------------------------------------------------------------


def check_tokens(kind, data, keep, cut):
    """A prompt's mean over its tokens; only those that count."""
    state = kind()
    holes = torch.from_numpy(np.where(keep, data, np.nan))
    for part, where in zip(
        np.split(holes, [cut]), np.split(torch.from_numpy(keep), [cut]), strict=True
    ):
        state.update(part, where=where)
    expected = np.ma.masked_array(data, ~keep).mean(1).filled(np.nan)
    np.testing.assert_allclose(
        state.result.numpy(), np.moveaxis(expected, 0, -1), rtol=1e-7, atol=1e-6
    )


@given(
    data=hnp.arrays(np.float64, st.just((6, 3, 2)), elements=st.floats(-10, 10)),
    cut=st.integers(0, 6),
    seed=st.integers(0, 9),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_tokens_of_prompts(data, cut, seed, share):
    keep = np.random.default_rng(seed).random(data.shape) < share
    check_tokens(PerPrompt, data, keep, cut)
    state, everything = PerPrompt(), PerPrompt()
    state.update(torch.from_numpy(data))
    everything.update(torch.from_numpy(data), where=torch.ones(data.shape, dtype=torch.bool))
    np.testing.assert_allclose(
        state.result.numpy(), everything.result.numpy(), rtol=1e-9, atol=1e-9
    )


def test_tokens_that_do_not_count_are_left_out():
    data, keep = np.arange(36.0).reshape(6, 3, 2), np.arange(36).reshape(6, 3, 2) % 4 > 0

    class CountsAll(PerPrompt):
        def update(self, batch, where=None):
            super().update(batch.where(where, 0.0))

    class MixesPrompts(PerPrompt):
        def update(self, batch, where=None):
            super().update(batch.flip(0), where.flip(0))

    check_tokens(PerPrompt, data, keep, 4)
    for mutant in (CountsAll, MixesPrompts):
        must_fail(check_tokens, mutant, data, keep, 4)


def test_a_nan_among_the_tokens_stays_in_sight():
    state = PerPrompt()
    state.update(torch.tensor([[1.0, torch.nan], [1.0, 3.0]]))
    assert state.result.isnan().tolist() == [True, False]


# ---- rows that are kept --------------------------------------------------------------------------


def check_rows(kept, pieces):
    """All rows in their order, whatever becomes of the pieces; what was kept stays where it stood, but for growth."""
    places = set()
    for piece in pieces:
        given_away = piece.clone()
        kept.append(given_away)
        given_away.fill_(torch.nan)  # its memory is somebody else's again
        places.add(kept.all.data_ptr())
    assert torch.equal(kept.all, torch.cat(pieces))
    assert len(places) <= 2 + np.log2(len(kept.all) / len(pieces[0]))


class Forgets(Rows):
    """Grows by as much as it needs and leaves what was there behind."""

    def append(self, rows):
        if self._n and self._n + len(rows) > len(self._kept):
            self._kept = self._kept.new_zeros(2 * len(self._kept), *self._kept.shape[1:])
        super().append(rows)


class Moves(Rows):
    """Makes room for no more than it is given."""

    def append(self, rows):
        self._kept = torch.cat([self.all, rows]) if self._n else rows.clone()
        self._n = len(self._kept)


class Views(Rows):
    """Keeps the first rows where they were given."""

    def append(self, rows):
        super().append(rows)
        if self._n == len(rows):
            self._kept = rows


def test_rows_are_kept_in_one_place():
    pieces = list(torch.arange(60.0).view(20, 3).split([2, 1, 4, 2, 2, 2, 2, 2, 2, 1]))
    check_rows(Rows(), pieces)
    for mutant in (Forgets, Moves, Views):
        must_fail(check_rows, mutant(), pieces)


def test_rows_of_another_shape_cannot_be_kept_together():
    kept = Rows()
    kept.append(torch.zeros(2, 3))
    with pytest.raises(InputError, match=r"rows of shape \(1,\) cannot join rows of \(3,\)"):
        kept.append(torch.zeros(2, 1))


@pytest.mark.parametrize("kind", [Moments, Extremes, Gram])
def test_a_merged_statistic_leaves_the_other_as_it_is(kind):
    """Statistics grow in place: what was merged into an empty one must not grow with it."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(8, 3)), 5 + rng.normal(size=(8, 3))
    donor, whole = fed(kind(), [first]), kind()
    whole.merge(donor)
    whole.update(torch.from_numpy(second))

    def is_of_the_first(state):
        for name, expected in of_whole(kind, first).items():
            np.testing.assert_allclose(
                getattr(state, name).numpy(), expected, atol=1e-12, err_msg=name
            )

    is_of_the_first(donor)
    must_fail(is_of_the_first, whole)
