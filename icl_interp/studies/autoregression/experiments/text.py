"""How well processes x_{t+1} = W x_t fit a text, against the same tokens in random order.

Two measurements. The authors' fits a W of its own to each short sequence: with more coordinates
than transitions that is exact unless a token comes twice with different successors. The second fits
one W to half of the text and tests it on the other half. Both take any tokens and any embedding:
`embeddings.of_text` reads these from files.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from icl_interp.errors import InputError, whole
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.autoregression.experiments.embeddings import Embedding, Tokens

LENGTH = 5  # tokens of a sequence with a W of its own, as in the authors' code
CHUNK = 50  # tokens of a chunk: the unit of the intervals
FEWEST = 8  # chunks in each half
EXACT = 1e-12  # mean square of a fit's residual up to which it is exact, as in the authors' code
SINGULAR = 1e-8  # of the largest singular value: a smaller one is 0
BATCH = 2000  # sequences that are fitted at once


@dataclass(frozen=True)
class Fit:
    """One W for a text, tested on chunks that it was not fitted to.

    Errors are mean square errors of a number, chunk by chunk.

    Attributes:
        text: of W fitted to and tested on the text.
        shuffled: the same for the tokens of each half in random order.
        mean: of predicting the mean of the first half's tokens, on the text.
        zero: of predicting 0, on the text.
    """

    text: Float[np.ndarray, " chunk"]
    shuffled: Float[np.ndarray, " chunk"]
    mean: Float[np.ndarray, " chunk"]
    zero: Float[np.ndarray, " chunk"]

    @property
    def quotient(self) -> Interval:
        """Error on the text over that on shuffled text.

        The 95 % interval is over the chunks tested, W being fixed.
        """
        return over(self.text, self.shuffled)


def ar_fit(tokens: Tokens, embedding: Embedding, length: int = CHUNK, seed: int = 0) -> Fit:
    """Fit W by least squares on the first half of a text, and test it on the second.

    It is fitted to the transitions within chunks.

    Random order is within each half, so that text and shuffled text have the same tokens in both.

    Args:
        tokens: rows of the embedding; what is left beyond whole chunks is not used.
        embedding: a row for each token.
        length: tokens of a chunk, at least 2.
        seed: of the order.

    Raises:
        InputError: tokens beyond the embedding, or too few: each half needs 8 chunks, and more
            transitions than coordinates.
    """
    _check(tokens, embedding)
    dim = embedding.shape[1]
    half = check_size(len(tokens), dim, length)
    used = tokens[: 2 * half * length]
    halves = used.reshape(2, half * length)
    mixed = np.stack([_shuffled(part, seed, i) for i, part in enumerate(halves)])
    shape = (2, half, length, dim)
    vectors = embedding[halves].reshape(shape)
    others = embedding[mixed].reshape(shape)
    first, second = vectors[:, :, 1:]
    mean = first.mean((0, 1))
    return Fit(
        text=_mean_square(_missed(vectors)),
        shuffled=_mean_square(_missed(others)),
        mean=_mean_square(second - mean),
        zero=_mean_square(second),
    )


def check_size(n_tokens: int, dim: int, length: int = CHUNK) -> int:
    """Chunks in each half of a text of so many tokens, if `ar_fit` can do with them.

    Raises:
        InputError: too few.
    """
    half = n_tokens // (2 * whole(length, "length", 2))
    if half < FEWEST or half * (length - 1) <= dim:
        raise InputError(
            f"each half of the text needs {FEWEST} chunks of {length} tokens and more transitions "
            f"than the {dim} coordinates, got {half} chunks: give a longer text"
        )
    return half


def _missed(
    vectors: Float[np.ndarray, "2 chunk token dim"],
) -> Float[np.ndarray, "chunk transition dim"]:
    """What W of the first half leaves on the second."""
    d = vectors.shape[-1]
    before = vectors[:, :, :-1]
    after = vectors[:, :, 1:]
    inputs = before[0].reshape(-1, d)
    targets = after[0].reshape(-1, d)
    transposed, *_ = np.linalg.lstsq(inputs, targets, rcond=None)
    return after[1] - before[1] @ transposed


def _mean_square(error: Float[np.ndarray, "chunk transition dim"]) -> Float[np.ndarray, " chunk"]:
    return np.square(error).mean((1, 2))


# ---- a W for each sequence -----------------------------------------------------------------------


@dataclass(frozen=True)
class Sequences:
    """A W for each sequence of a text, and of the same tokens in random order.

    Attributes:
        text: mean square of a number of what the best W leaves, by sequence.
        shuffled: the same after a permutation of all tokens.
        ambiguous: whether a token of the sequence comes twice with different successors; of the
            text.
        ambiguous_shuffled: the same after the permutation.
    """

    text: Float[np.ndarray, " sequence"]
    shuffled: Float[np.ndarray, " sequence"]
    ambiguous: Bool[np.ndarray, " sequence"]
    ambiguous_shuffled: Bool[np.ndarray, " sequence"]

    @property
    def quotient(self) -> Interval:
        """Sequences of the text that no W fits, over those of shuffled text.

        Both are numbers of sequences, and the interval is over sequences.
        """
        of_text = self.text > EXACT
        of_shuffled = self.shuffled > EXACT
        return over(of_text.astype(float), of_shuffled.astype(float))

    @property
    def disagreeing(self) -> int:
        """Sequences, of both, where not both or neither of these hold: no W fits.

        A token has two successors.
        """
        of_text = self.text > EXACT
        of_shuffled = self.shuffled > EXACT
        wrong = of_text != self.ambiguous
        wrong_shuffled = of_shuffled != self.ambiguous_shuffled
        return int(wrong.sum() + wrong_shuffled.sum())


def sequence_fits(
    tokens: Tokens,
    embedding: Embedding,
    length: int = LENGTH,
    most: int | None = None,
    seed: int = 0,
) -> Sequences:
    """Fit a W to each sequence of a few tokens, and to those of all tokens in random order.

    The residual is that of loss (5). The authors' code measures how far a path that W generates
    from the first token is from the sequence: it is 0 for the same sequences.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), section 6 and Figure 4, with their
    published code.

    Args:
        tokens: rows of the embedding.
        embedding: a row for each token.
        length: tokens of a sequence, at least 3.
        most: sequences at most, from the start of the text.
        seed: of the order.

    Raises:
        InputError: tokens beyond the embedding, too few of them, or fewer coordinates than
            transitions.
    """
    _check(tokens, embedding)
    if embedding.shape[1] < whole(length, "length", 3) - 1:
        raise InputError(
            f"a sequence of {length} tokens has {length - 1} transitions and needs as many "
            f"coordinates, but the embedding has {embedding.shape[1]}"
        )
    n = min(len(tokens) // length, len(tokens) if most is None else most)
    if n < FEWEST:
        raise InputError(
            f"at least {FEWEST} sequences of {length} tokens are needed, got {n}: give a longer "
            "text"
        )
    used = tokens[: n * length]
    own = used.reshape(n, length)
    order = _shuffled(used, seed, 2)
    mixed = order.reshape(n, length)
    return Sequences(
        text=misfits(own, embedding),
        shuffled=misfits(mixed, embedding),
        ambiguous=ambiguous(own),
        ambiguous_shuffled=ambiguous(mixed),
    )


def misfits(sequences: np.ndarray, embedding: Embedding) -> Float[np.ndarray, " sequence"]:
    """Mean square of a number of what the best W of each sequence leaves.

    `sequences`, (sequence, token), holds rows of the embedding.
    """
    found = []
    for start in range(0, len(sequences), BATCH):
        batch = sequences[start : start + BATCH]
        vectors = embedding[batch]
        before = vectors[:, :-1]
        after = vectors[:, 1:]
        transposed = np.linalg.pinv(before, SINGULAR) @ after
        left = after - before @ transposed
        found.append(_mean_square(left))
    return np.concatenate(found)


def ambiguous(sequences: np.ndarray) -> Bool[np.ndarray, " sequence"]:
    """Whether a token comes twice with different successors: told by the tokens alone.

    >>> ambiguous(np.array([[1, 2, 1, 2], [1, 2, 1, 3]])).tolist()
    [False, True]
    """
    before = sequences[:, :-1]
    after = sequences[:, 1:]
    same = before[:, :, None] == before[:, None]
    other = after[:, :, None] != after[:, None]
    return (same & other).any((1, 2))


# ---- both ----------------------------------------------------------------------------------------


def over(a: Float[np.ndarray, " unit"], b: Float[np.ndarray, " unit"]) -> Interval:
    """Quotient of two means with its 95 % bootstrap interval over units; 0 / 0 is NaN."""
    if a.any() and b.any():
        return bootstrap(lambda x, y: x / y, a, b, positive=True)

    def quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        undefined = np.full_like(x, np.nan)
        return np.divide(x, y, out=undefined, where=y != 0)

    return bootstrap(quotient, a, b)


def _shuffled(tokens: Tokens, seed: int, part: int) -> Tokens:
    draw = generator(seed, "autoregression/order", part)
    order = torch.randperm(len(tokens), generator=draw)
    return tokens[order.numpy()]


def _check(tokens: Tokens, embedding: Embedding) -> None:
    if not len(tokens):
        return
    least = tokens.min()
    most = tokens.max()
    if not (least >= 0 and most < len(embedding)):
        raise InputError(
            f"tokens are rows 0 to {len(embedding) - 1} of the embedding, got {least} to {most}"
        )
