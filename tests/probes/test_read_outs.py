"""Read-outs of streams: against ridge regression of scikit-learn, and what they leave alone."""

import pytest
import torch
from helpers import must_fail
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from icl_interp.probes import read_outs
from icl_interp.provenance import generator

N = 200


def draws(width=5):
    """A stream with columns of unlike sizes, and values that it tells in part."""
    g = generator(0, "test")
    sizes = torch.tensor([1.0, 10.0, 0.1, 3.0, 1.0])[:width]
    stream = sizes * torch.randn(2 * N, width, generator=g, dtype=torch.float64) + 2
    noise = torch.randn(2 * N, 1, generator=g, dtype=torch.float64)
    return stream, stream[:, :1] - 4 * stream[:, 2:3] + noise


def by_sklearn(stream, values, asked, penalty):
    """Ridge regression on standardised columns."""
    # Columns are in units of the sample's own standard deviation, which divides by n - 1.
    scale = StandardScaler().fit(stream.numpy())
    scale.scale_ = scale.scale_ * (N / (N - 1)) ** 0.5
    ridge = Ridge(alpha=penalty * N).fit(scale.transform(stream.numpy()), values.numpy())
    return torch.from_numpy(ridge.predict(scale.transform(asked.numpy()))).view(-1, 1)


def test_a_read_out_is_ridge_regression():
    stream, values = draws()
    found = read_outs.read_out(stream[:N], values[:N], stream[N:])

    def check(penalty):
        expected = by_sklearn(stream[:N], values[:N], stream[N:], penalty)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)

    check(read_outs.PENALTY)
    must_fail(check, 10 * read_outs.PENALTY)


def test_without_a_penalty_it_is_the_same_in_all_coordinates():
    stream, values = draws()
    g = generator(1, "test")
    other = stream @ torch.randn(5, 5, generator=g, dtype=torch.float64)

    def check(penalty):
        found = [
            read_outs.read_out(each[:N], values[:N], each[N:], penalty) for each in (stream, other)
        ]
        torch.testing.assert_close(*found, rtol=0, atol=1e-4)

    check(1e-9)
    must_fail(check, 0.1)


def test_a_column_that_does_not_vary_says_nothing():
    stream, values = draws()
    constant = torch.full((2 * N, 1), 7.0, dtype=torch.float64)
    wider = torch.cat([stream, constant], 1)
    found = read_outs.read_out(wider[:N], values[:N], wider[N:])
    expected = read_outs.read_out(stream[:N], values[:N], stream[N:])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_each_layer_has_a_read_out_of_its_own():
    stream, values = draws()
    both = [stream[:N], stream[:N, :1]]
    asked = [stream[N:], stream[N:, :1]]
    whole, one = read_outs.by_layer(both, values[:N], asked)
    missed = [float((each - values[N:]).square().mean()) for each in (whole, one)]
    # The noise alone is left of the first; the second column of the truth has variance 16 * .01.
    assert missed[0] == pytest.approx(1.0, rel=0.2)
    assert missed[1] > missed[0]
