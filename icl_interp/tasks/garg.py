"""Function classes learned in context: sparse linear, two-layer ReLU networks, decision trees.

Source: Garg, Tsipras, Liang & Valiant (2022), "What can transformers learn in-context? A case study
of simple function classes", and the code released with it (github.com/dtsip/in-context-learning),
which fixes what the text leaves open.

Their linear regression is `LinearRegression`: with noisy labels `noise_std: 1`, with skewed inputs
`covariance: skewed` or numbers from `skewed_covariance`.

Their evaluation on noisy labels (src/eval.py, noisyLR) sets `renormalize_ys`, which multiplies each
batch of labels so that its standard deviation is sqrt(n_dims). With noise_std = 1 the variance of a
label is n_dims + 1, so that is nearly the factor sqrt(20 / 21) for n_dims = 20. Here labels are <w,
x> + noise as they are: squared errors are 21 / 20 times those on their scale, and the share of the
variance that is noise is the same. A factor that depends on the other prompts of a batch is no
property of a task, so a config.yaml with `renormalize_ys: true` is refused.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, real, whole
from icl_interp.provenance import generator as stream
from icl_interp.tasks import covariance
from icl_interp.tasks.base import Task
from icl_interp.tasks.covariance import Rows, Vector
from icl_interp.tasks.distributions import Distribution, Normal, is_symmetric

STANDARD = Normal(1.0)
MAX_NUMBERS = 10**6  # of a network, for the same reason
# Depth of a tree: a function has 2^(depth + 1) numbers, and an evaluation holds 2,048 functions at
# once.
MAX_DEPTH = 12


@dataclass(frozen=True, kw_only=True)
class _OfManyInputs(Task):
    """What the tasks of this file share: inputs of `n_dims` coordinates, N(0, I) by default."""

    n_dims: int
    inputs: Distribution = STANDARD

    def __post_init__(self) -> None:
        whole(self.n_dims, "n_dims", 1)
        super().__post_init__()

    @property
    def dim(self) -> int:
        """Coordinates of an input."""
        return self.n_dims


@dataclass(frozen=True, kw_only=True)
class SparseLinearRegression(_OfManyInputs):
    """y = <w, x>, where all but `sparsity` coordinates of w are 0.

    w is drawn anew for each function, and Var y = sparsity.

    Source: Garg et al. (2022), sparse linear functions, with n_dims = 20 and sparsity = 3;
    `SparseLinearRegression` of their src/tasks.py. Lasso finds w from fewer points than least
    squares does.

    Attributes:
        n_dims: d, coordinates of x and of w.
        sparsity: s, coordinates of w that may differ from 0. Every set of s coordinates is equally
            likely.
        weights: the law of each of these coordinates.
        inputs: the law of each coordinate of x.

    >>> from icl_interp.provenance import generator
    >>> task = SparseLinearRegression(n_dims=20, sparsity=3, n_points=41)
    >>> prompts = task.sample(4, generator(0, "doc"), n_contexts=2)
    >>> prompts.xs.shape, (prompts.parameters != 0).sum(-1).tolist()
    (torch.Size([8, 41, 20]), [3, 3, 3, 3, 3, 3, 3, 3])
    """

    compared_with: ClassVar[tuple[str, ...]] = ("averaging estimator", "lasso")

    sparsity: int = 3
    weights: Distribution = STANDARD

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_law("weights")
        whole(self.sparsity, "sparsity", 1)
        if self.sparsity > self.n_dims:
            raise InputError(
                "sparsity must be at most n_dims, the number of coordinates, but got "
                f"sparsity={self.sparsity} and n_dims={self.n_dims}"
            )

    @property
    def n_determining(self) -> int:
        """s + 1 points determine w, or d points if s = d.

        Almost surely no other s coordinates fit them.
        """
        return min(self.sparsity + 1, self.n_dims, self.n_points - 1)

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """w of each function."""
        shape = (n_functions, self.n_dims)
        weights = self.weights.sample(shape, generator, dtype)
        keys = torch.rand(shape, generator=generator, dtype=torch.float64)
        order = keys.argsort(-1)
        return weights * (order < self.sparsity)

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """The mean of each coordinate of w that is not 0: the partner has the same ones."""
        if not is_symmetric(self.weights):
            return None
        present = (parameters != 0).to(parameters.dtype)
        return self.weights.mean * present

    def closed_mean(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """<E w, x>: each coordinate of w differs from 0 in a share s / d of functions."""
        mean = self.weights.mean * self.sparsity / self.n_dims
        return mean * xs.sum(-1, keepdim=True)

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point"]:
        """<w, x>."""
        products = xs @ parameters[:, :, None]
        return products[..., 0]

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"]:
        """x itself: there is no intercept."""
        return xs

    def scaled(self, functions: float = 1.0, inputs: float = 1.0) -> Self:
        """The same task with weights and inputs scaled, each by its own factor."""
        weights = self.weights.scaled(functions)
        return replace(self, weights=weights, inputs=self.inputs.scaled(inputs))


@dataclass(frozen=True, kw_only=True)
class ReLUNetwork(_OfManyInputs):
    """y = sqrt(2 / h) sum_i a_i relu(<w_i, x>) with h hidden units, without biases; Var y = n_dims.

    Source: Garg et al. (2022), two-layer networks, with n_dims = 20 and hidden = 100;
    `Relu2nnRegression` of their src/tasks.py. The factor gives labels the variance that they have
    in linear regression, since for x ~ N(0, I) E relu(<w, x>)^2 = |w|^2 / 2.

    Attributes:
        n_dims: d, coordinates of x.
        hidden: h, units of the hidden layer.
        weights: the law of each coordinate of w_i, the weights of a hidden unit.
        readout: the law of a_i.
        inputs: the law of each coordinate of x.

    >>> task = ReLUNetwork(n_dims=1, hidden=2, n_points=3)
    >>> parameters = torch.tensor([[1.0, -1.0, 3.0, 5.0]])  # w_1 = 1, w_2 = -1, a = (3, 5)
    >>> task.value(parameters, torch.tensor([[[2.0], [0.0], [-2.0]]]))
    tensor([[ 6.,  0., 10.]])
    """

    compared_with: ClassVar[tuple[str, ...]] = (
        "linear fit",
        "averaging estimator",
        "two-layer network",
    )

    hidden: int = 100
    weights: Distribution = STANDARD
    readout: Distribution = STANDARD

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.hidden, "hidden", 1)
        if self.hidden * (self.n_dims + 1) > MAX_NUMBERS:
            raise InputError(
                f"a network of hidden={self.hidden:,} units and n_dims={self.n_dims:,} inputs has "
                f"more than the {MAX_NUMBERS:,} weights that a function may have: choose smaller "
                "sizes"
            )
        self._check_law("weights")
        self._check_law("readout")

    @property
    def n_determining(self) -> int:
        """d, from where on a linear fit is unique.

        The network has more parameters than a prompt has points.
        """
        return min(self.n_dims, self.n_points - 1)

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """(w_1, ..., w_h, a) of each function, h (d + 1) numbers."""
        n_weights = self.hidden * self.n_dims
        weights = self.weights.sample((n_functions, n_weights), generator, dtype)
        readout = self.readout.sample((n_functions, self.hidden), generator, dtype)
        return torch.cat([weights, readout], -1)

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """The function's own hidden weights, and the mean of the readout."""
        return _with_last(parameters, self.hidden, self.readout)

    def closed_mean(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"] | None:
        """0 where the readout has mean 0; without a closed form otherwise."""
        if self.readout.mean != 0:
            return None
        return torch.zeros_like(xs[..., :1])

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point"]:
        """The network's output."""
        weights = parameters[:, : -self.hidden].unflatten(-1, (self.hidden, self.n_dims))
        readout = parameters[:, -self.hidden :, None]
        hidden = (xs @ weights.mT).relu()
        sums = hidden @ readout
        return math.sqrt(2 / self.hidden) * sums[..., 0]

    def scaled(self, functions: float = 1.0, inputs: float = 1.0) -> Self:
        """The same task with the readout and inputs scaled, each by its own factor."""
        readout = self.readout.scaled(functions)
        return replace(self, readout=readout, inputs=self.inputs.scaled(inputs))


@dataclass(frozen=True, kw_only=True)
class DecisionTree(_OfManyInputs):
    """y is the number at the leaf that x reaches in a decision tree; Var y = 1.

    Each inner node asks whether one coordinate is positive.

    Source: Garg et al. (2022), decision trees, with n_dims = 20 and depth = 4; `DecisionTree` of
    their src/tasks.py. The tree is complete. The coordinate of each node is drawn uniformly and
    with replacement, so that a path may test one coordinate twice. A positive coordinate leads to
    the right, one of exactly 0 to the left, as in their code.

    Attributes:
        n_dims: d, coordinates of x.
        depth: tests on the way to a leaf; there are 2^depth leaves.
        leaves: the law of the number at each leaf.
        inputs: the law of each coordinate of x. Only its sign counts.

    >>> task = DecisionTree(n_dims=2, depth=1, n_points=3)
    >>> # The second coordinate is tested, and the leaves hold -3 and 5.
    >>> parameters = torch.tensor([[1.0, -3.0, 5.0]])
    >>> task.value(parameters, torch.tensor([[[9.0, 0.1], [9.0, 0.0], [9.0, -2.0]]]))
    tensor([[ 5., -3., -3.]])
    """

    compared_with: ClassVar[tuple[str, ...]] = ("linear fit", "averaging estimator", "trees")

    depth: int = 4
    leaves: Distribution = STANDARD

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.depth, "depth", 1, MAX_DEPTH)
        self._check_law("leaves")

    @property
    def n_leaves(self) -> int:
        """2^depth."""
        return 2**self.depth

    @property
    def n_determining(self) -> int:
        """2^depth: fewer points cannot have reached every leaf.

        More do not determine a tree for certain either.
        """
        return min(self.n_leaves, self.n_points - 1)

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """The coordinate that each inner node tests, then the numbers at leaves.

        Coordinates are counted from 0, and nodes level by level.
        """
        shape = (n_functions, self.n_leaves - 1)
        tests = torch.randint(self.n_dims, shape, generator=generator)
        leaves = self.leaves.sample((n_functions, self.n_leaves), generator, dtype)
        return torch.cat([tests.to(dtype), leaves], -1)

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """The function's own tests, and the mean of the number at a leaf."""
        return _with_last(parameters, self.n_leaves, self.leaves)

    def closed_mean(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """The mean of the number at a leaf."""
        return torch.full_like(xs[..., :1], self.leaves.mean)

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point"]:
        """The number at the leaf."""
        tests = parameters[:, : -self.n_leaves].long()
        leaves = parameters[:, -self.n_leaves :]
        # The children of node i are the nodes 2 i + 1 and 2 i + 2.
        node = torch.zeros(xs.shape[:2], dtype=torch.long, device=xs.device)
        for _ in range(self.depth):
            coordinate = tests.gather(1, node)
            tested = xs.gather(2, coordinate[..., None])[..., 0]
            node = 2 * node + 1 + (tested > 0)
        n_inner = self.n_leaves - 1
        return leaves.gather(1, node - n_inner)

    def scaled(self, functions: float = 1.0, inputs: float = 1.0) -> Self:
        """The same task with leaves and inputs scaled, each by its own factor.

        Scaled inputs reach the same leaves.
        """
        leaves = self.leaves.scaled(functions)
        return replace(self, leaves=leaves, inputs=self.inputs.scaled(inputs))


def _with_last(
    parameters: Float[Tensor, "function parameter"], n: int, law: Distribution
) -> Float[Tensor, "function parameter"] | None:
    """The parameters, with the last `n` of them replaced by the mean of their law.

    None where the law is not known to be symmetric.
    """
    if not is_symmetric(law):
        return None
    means = torch.full_like(parameters[:, -n:], law.mean)
    return torch.cat([parameters[:, :-n], means], -1)


def skewed_covariance(n_dims: int, power: float = 2.0, seed: int | None = 0) -> Rows | Vector:
    """A covariance for `LinearRegression` with eigenvalues proportional to 1 / i^power and trace d.

    i runs from 1 to d.

    Source: Garg et al. (2022), skewed covariance, power = 2: `build_evals` of their src/eval.py
    multiplies x ~ N(0, I) by a symmetric matrix with eigenvalues proportional to 1 / i. A config
    holds the numbers themselves: `yaml.safe_dump(icl_interp.provenance.encode(task))` writes them.

    Args:
        n_dims: d.
        power: how fast eigenvalues fall; 0 is the identity.
        seed: of the orthogonal basis, drawn uniformly. None: the basis is that of the coordinates.

    Returns:
        d rows, to 12 decimals; for `seed=None` the d numbers of the diagonal.

    Raises:
        InputError: a size, power or seed out of range.

    >>> from icl_interp.tasks.regression import LinearRegression
    >>> task = LinearRegression(n_dims=20, covariance=skewed_covariance(20), n_points=41)
    >>> skewed_covariance(2, seed=None)
    (1.6, 0.4)
    """
    whole(n_dims, "n_dims", 1)
    real(power, "power", 0)
    numbers = torch.arange(1, n_dims + 1, dtype=torch.float64)
    spectrum = numbers**-power
    spectrum = n_dims * spectrum / spectrum.sum()
    if seed is None:
        return tuple(round(value, 12) for value in spectrum.tolist())
    whole(seed, "seed", 0)
    draws = stream(seed, "tasks/skewed")
    normal = torch.randn(n_dims, n_dims, generator=draws, dtype=torch.float64)
    # Uniform up to the signs of its columns, which do not matter here.
    basis = torch.linalg.qr(normal).Q
    matrix = basis * spectrum @ basis.T
    symmetric = (matrix + matrix.T) / 2
    return covariance.rounded(symmetric)


KINDS: dict[str, type] = {
    cls.__name__: cls for cls in (SparseLinearRegression, ReLUNetwork, DecisionTree)
}
