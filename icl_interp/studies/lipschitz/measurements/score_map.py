"""The bilinear map from tokens to one head's scores at the query, by least squares.

A head gives the example (x_i; y_i) the score s_i at the query x_q. For a unit of equation (2) of
Collins et al. (2024) it is x_i^T M x_q plus a number that all examples share, which softmax does
not see. Other heads may read labels too, or the query less: the map has a term for each.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.resampling import r_squared

# Mean square of scores about their mean below which a head attends to all examples alike.
NOTHING = 1e-24


class ScoreMap(NamedTuple):
    """What least squares finds of one head's scores.

    Attributes:
        terms: coefficients of (x_i; y_i) against (x_q; 1). M is all of it but the last row, of
            labels, and the last column, of x_i alone.
        fit: share of the scores' variance in prompts that x_i^T M x_q explains.
        fit_of_all: the share that all terms explain.
        labels: mean square of the terms of labels, over that of the scores.
    """

    terms: Float[Tensor, "dim+1 dim+1"]
    fit: float
    fit_of_all: float
    labels: float

    @property
    def matrix(self) -> Float[Tensor, "dim dim"]:
        """M."""
        return self.terms[:-1, :-1]


def centred(values: Float[Tensor, "batch key *term"]) -> Float[Tensor, "batch key *term"]:
    """Values about their mean over the examples of a prompt."""
    return values - values.mean(1, keepdim=True)


def score_map(
    xs: Float[Tensor, "batch point dim"],
    ys: Float[Tensor, "batch point 1"],
    scores: Float[Tensor, "batch example"],
) -> ScoreMap:
    """The map of one head.

    Args:
        xs: inputs of prompts, the query last.
        ys: their labels.
        scores: the head's, at the query, of the examples before it.

    >>> xs = torch.randn(50, 9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> matrix = torch.tensor([[2.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    >>> scores = torch.einsum("bid,de,be->bi", xs[:, :-1], matrix, xs[:, -1])
    >>> found = score_map(xs, xs[..., :1] ** 2, scores)
    >>> torch.testing.assert_close(found.matrix, matrix)
    >>> found.fit
    1.0
    """
    d = xs.shape[-1]
    tokens = torch.cat([xs, ys], -1)
    examples = tokens[:, :-1]
    query = torch.nn.functional.pad(xs[:, -1], (0, 1), value=1.0)

    # Softmax sees neither scores nor terms but about their means over the examples.
    products = torch.einsum("bie,bf->bief", examples, query)
    terms_by_example = products.flatten(2)
    features = centred(terms_by_example).flatten(0, 1)
    s = centred(scores).flatten()
    found = torch.linalg.lstsq(features, s[:, None])
    weights = found.solution[:, 0]
    total = float(s.square().mean())

    def explained(part: Float[Tensor, " term"]) -> float:
        fitted = features @ part
        left = s - fitted
        missed = float(left.square().mean())
        # M = 0 explains all of a head that gives every example the same score.
        return float(r_squared(missed, total, empty=1.0, least=NOTHING))

    terms = weights.view(d + 1, d + 1)
    of_inputs = terms.clone()
    of_inputs[-1] = 0
    of_inputs[:, -1] = 0
    of_labels = torch.zeros_like(terms)
    of_labels[-1] = terms[-1]
    by_labels = features @ of_labels.flatten()
    size = float(by_labels.square().mean())
    labels = 0.0
    if total > NOTHING:
        labels = size / total
    fit = explained(of_inputs.flatten())
    fit_of_all = explained(weights)
    return ScoreMap(terms, fit, fit_of_all, labels)
