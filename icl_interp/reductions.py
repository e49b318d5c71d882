"""Statistics of a stream in constant memory; each takes batches, and two can be merged.

All of them add up in float64 whatever comes in, keep their state where the batches live, and give
the same numbers (up to rounding) however the stream was cut or merged. Rows, the first axis of a
batch, are what is reduced.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.products import gram


class Moments:
    """Count, mean and variance of every element of a row.

    Merging: n = n_a + n_b, delta = mean_b - mean_a, mean = mean_a + delta n_b / n,
    M = M_a + M_b + delta^2 n_a n_b / n with M the sum of squared deviations. Nothing cancels, also
    where the mean is far larger than the spread.

    Source: Chan, Golub & LeVeque (1983), "Algorithms for computing the sample variance: analysis
    and recommendations", section 2.

    Attributes:
        count: rows seen, for each element, `(*shape)`.
        mean: `(*shape)`; 0 where nothing was seen (`result` says NaN there).

    >>> m = Moments()
    >>> m.update(torch.tensor([[1.0, 1e9], [3.0, 1e9 + 2]], dtype=torch.float64))
    >>> m.mean.tolist(), m.variance.tolist()
    ([2.0, 1000000001.0], [1.0, 1.0])
    """

    def __init__(self) -> None:
        # Scalars until the first batch tells the shape.
        self.count = torch.zeros((), dtype=torch.float64)
        self.mean = torch.zeros((), dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)

    def update(
        self, batch: Float[Tensor, "row *shape"], where: Bool[Tensor, "row *#shape"] | None = None
    ) -> None:
        """Add rows; with `where`, only the elements at which it is true.

        Raises:
            InputError: rows of another shape than before.
        """
        part = Moments()
        values = batch.detach().double()
        part.count = values.new_full(values.shape[1:], len(values))
        if where is not None:
            part.count = where.sum(0).to(values).expand(values.shape[1:]).clone()
        # Mostly an element counts in all rows or in none, and those of none are cleared at the end.
        mixed = None
        if where is not None:
            in_some = (part.count > 0) & (part.count < len(values))
            mixed = where if bool(in_some.any()) else None
        # What is left out may be NaN, and NaN times 0 is NaN: hence `where` and no products.
        part.mean = _kept(values, mixed).sum(0) / part.count.clamp(min=1)
        part._squares = _kept(values - part.mean, mixed).square().sum(0)
        if where is not None:
            seen = part.count > 0
            part.mean = part.mean.where(seen, 0.0)
            part._squares = part._squares.where(seen, 0.0)
        self.merge(part)

    def merge(self, other: "Moments") -> None:
        """Add all that another one has seen."""
        _same_shape(self.count, other.count, self._empty or other._empty)
        if self._empty:
            self.count = other.count.clone()
            self.mean = other.mean.clone()
            self._squares = other._squares.clone()
            return
        count = self.count + other.count
        share = other.count / count.clamp(min=1)
        delta = other.mean - self.mean
        # In place: what stays is to stand where it stood (see `Rows`).
        self._squares += other._squares + delta.square() * self.count * share
        self.mean += delta * share
        self.count.copy_(count)

    def over(self, entries: Sequence[int]) -> "Moments":
        """The moments of some entries of the first axis together, as if all rows were of one entry.

        >>> m = Moments()
        >>> m.update(torch.tensor([[1.0, 1e9, 4.0], [3.0, 1e9, 4.0]]))
        >>> m.over([0, 2]).result.tolist()  # of 1, 3, 4, 4
        [3.0, 1.224744871391589]
        """
        together = Moments()
        chosen = list(entries)
        count = self.count[chosen]
        mean = self.mean[chosen]
        together.count = count.sum(0)
        together.mean = (count * mean).sum(0) / together.count.clamp(min=1)
        # Squares about a row's own mean, and of its mean about the common one.
        within = self._squares[chosen].sum(0)
        between = count * (mean - together.mean).square()
        together._squares = within + between.sum(0)
        return together

    @property
    def _empty(self) -> bool:
        return self.count.ndim == 0 and not self.count

    @property
    def variance(self) -> Float[Tensor, "*shape"]:
        """Mean squared deviation (divided by n, as LayerNorm's); NaN where nothing was seen."""
        return self._squares / self.count

    @property
    def std(self) -> Float[Tensor, "*shape"]:
        """Root of the variance."""
        return self.variance.sqrt()

    @property
    def result(self) -> Float[Tensor, "*shape statistic"]:
        """Mean and standard deviation on a last axis; NaN where nothing was seen."""
        mean = self.mean.where(self.count > 0, torch.nan)
        return torch.stack([mean, self.std], -1)


class Extremes:
    """Smallest and largest value of every element of a row. A NaN stays in sight: both become NaN.

    Attributes:
        minimum: `(*shape)`. maximum: `(*shape)`.

    >>> e = Extremes()
    >>> e.update(torch.tensor([[1.0, 5.0], [3.0, 4.0]]))
    >>> e.minimum.tolist(), e.maximum.tolist()
    ([1.0, 4.0], [3.0, 5.0])
    """

    def __init__(self) -> None:
        self.minimum = torch.tensor(torch.inf, dtype=torch.float64)
        self.maximum = torch.tensor(-torch.inf, dtype=torch.float64)

    def update(self, batch: Float[Tensor, "row *shape"]) -> None:
        """Add rows.

        Raises:
            InputError: rows of another shape than before.
        """
        if len(batch):
            part = Extremes()
            part.minimum, part.maximum = batch.detach().double().aminmax(dim=0)
            self.merge(part)

    def merge(self, other: "Extremes") -> None:
        """Add all that another one has seen."""
        _same_shape(self.minimum, other.minimum, self._empty or other._empty)
        if self._empty:
            self.minimum = other.minimum.clone()
            self.maximum = other.maximum.clone()
            return
        torch.minimum(self.minimum, other.minimum, out=self.minimum)
        torch.maximum(self.maximum, other.maximum, out=self.maximum)

    @property
    def _empty(self) -> bool:
        return self.minimum.ndim == 0 and bool(self.minimum > self.maximum)


class Gram:
    """Mean and covariance of vectors: the centred Gram matrix, merged as in `Moments`.

    Rows may hold several vectors, one for each of a few places. Each place then has a mean of its
    own, and what is pooled over places is the covariance about these means.

    Attributes:
        count: rows seen.
        mean: `(d)`, or `(place, d)`.

    >>> g = Gram()
    >>> g.update(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    >>> g.covariance.tolist(), g.spectrum.round(decimals=6).abs().tolist()
    ([[1.0, 0.0], [0.0, 0.0]], [1.0, 0.0])
    >>> round(float(g.participation_ratio), 6)
    1.0
    >>> g = Gram()
    >>> rows = [[[1.0, 0.0], [5.0, 5.0]], [[-1.0, 0.0], [5.0, 5.0]]]  # two rows of two places
    >>> g.update(torch.tensor(rows))
    >>> g.mean.tolist(), g.covariance.tolist()
    ([[0.0, 0.0], [5.0, 5.0]], [[0.5, 0.0], [0.0, 0.0]])
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros((), dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)

    def update(self, batch: Float[Tensor, "row *place d"]) -> None:
        """Add rows.

        Raises:
            InputError: vectors of another length, or of other places, than before.
        """
        if len(batch):
            part = Gram()
            values = batch.detach()
            # The products of a batch keep its own precision, which spares a copy in float64: once
            # it is centred nothing cancels. It is centred twice, because a mean in its precision
            # may miss by more than the spread.
            about = values.mean(0)
            centred = values - about
            rest = centred.mean(0)
            centred -= rest
            part.count = len(values)
            part.mean = about.double() + rest.double()
            part._squares = gram(centred.flatten(0, -2))
            self.merge(part)

    def merge(self, other: "Gram") -> None:
        """Add all that another one has seen."""
        _same_shape(self.mean, other.mean, not (self.count and other.count))
        if not other.count:
            return
        if not self.count:
            self.count = other.count
            self.mean = other.mean.clone()
            self._squares = other._squares.clone().double()
            return
        count = self.count + other.count
        share = other.count / count
        delta = other.mean - self.mean
        between = delta.view(-1, delta.shape[-1])
        # In place: what stays is to stand where it stood (see `Rows`).
        self._squares.add_(other._squares).addmm_(between.T, between, alpha=self.count * share)
        self.mean += delta * share
        self.count = count

    @property
    def covariance(self) -> Float[Tensor, "d d"]:
        """E (v - E v)(v - E v)^T, divided by the number of vectors."""
        if not self.count:
            raise InputError("there is no covariance of no vectors: update with some first")
        return self._squares / (self.count * self.mean[..., 0].numel())

    @property
    def spectrum(self) -> Float[Tensor, " d"]:
        """Eigenvalues of the covariance, largest first; rounding below 0 is cut off."""
        return torch.linalg.eigvalsh(self.covariance).flip(0).clamp(min=0)

    @property
    def participation_ratio(self) -> Float[Tensor, ""]:
        """(sum_i l_i)^2 / sum_i l_i^2 over the eigenvalues l_i of the covariance.

        It tells how many directions share the variance, from 1 to d.

        NaN where nothing varies. Source: Abbott, Rajan & Sompolinsky (2011), "Interactions between
        intrinsic and stimulus-evoked activity in recurrent neural networks".
        """
        # The traces of C and C^2: the same numbers without a decomposition.
        covariance = self.covariance
        return covariance.trace().square() / covariance.square().sum()


class Rows:
    """Rows of a stream, one after the other in one tensor that doubles when it is full.

    Many small tensors that stay, made between large ones that go, would leave holes in a process's
    memory that no later large one fits in.

    >>> r = Rows()
    >>> for i in range(3):
    ...     r.append(torch.full((2, 1), float(i)))
    >>> r.all.flatten().tolist()
    [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    """

    def __init__(self) -> None:
        self._n = 0
        self._kept = torch.empty(0)

    def append(self, rows: Shaped[Tensor, "row *shape"]) -> None:
        """Add rows of the shape, type and device of the first ones."""
        n = self._n + len(rows)
        shape = rows.shape[1:]
        if not self._n:
            self._kept = rows.clone(memory_format=torch.contiguous_format)
        elif self._kept.shape[1:] != shape:
            own = tuple(self._kept.shape[1:])
            raise InputError(f"rows of shape {tuple(shape)} cannot join rows of {own}")
        elif n > len(self._kept):
            room = max(n, 2 * len(self._kept))
            grown = self._kept.new_empty(room, *shape)
            grown[: self._n] = self._kept[: self._n]
            self._kept = grown
        self._kept[self._n : n] = rows
        self._n = n

    @property
    def all(self) -> Shaped[Tensor, "row *shape"]:
        """The rows so far."""
        return self._kept[: self._n]


class PerPrompt:
    """A value for each prompt: the mean over the tokens of a kind.

    The only state that grows with the prompts.

    >>> p = PerPrompt()
    >>> p.update(torch.tensor([[1.0, 3.0], [5.0, 5.0]]))  # two prompts of two tokens
    >>> p.result.tolist()
    [2.0, 5.0]
    """

    def __init__(self) -> None:
        self._rows = Rows()

    def update(
        self,
        batch: Float[Tensor, "prompt token *shape"],
        where: Bool[Tensor, "prompt token *#shape"] | None = None,
    ) -> None:
        """Add prompts.

        With `where`, a prompt's mean is over the tokens at which `where` is true, and NaN without
        any.
        """
        values = batch.detach().double()
        # Not `nanmean`: a NaN among the values stays in sight.
        if where is None:
            means = values.mean(1)
        else:
            means = values.where(where, 0.0).sum(1) / where.sum(1)
        self._rows.append(means)

    @property
    def result(self) -> Float[Tensor, "*shape prompt"]:
        """The values, prompts on the last axis."""
        return self._rows.all.movedim(0, -1)


def _kept(values: Tensor, where: Tensor | None) -> Tensor:
    """Values with 0 in place of those that do not count."""
    return values if where is None else values.where(where, 0.0)


def _same_shape(mine: Tensor, other: Tensor, anything_goes: bool) -> None:
    # Broadcasting would pass over it in silence.
    if not anything_goes and mine.shape != other.shape:
        raise InputError(
            f"rows of shape {tuple(other.shape)} cannot join rows of shape {tuple(mine.shape)}"
        )
