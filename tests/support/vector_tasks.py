"""Tasks of vectors as users write them: linear maps, and paths of rotations, states only."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_interp.checkpoints.config import RunConfig, TrainingConfig
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.tasks import Distribution, Normal, Sphere, Task


@dataclass(frozen=True, kw_only=True)
class LinearMap(Task):
    """y = W x with W (outputs, n_dims) of independent numbers."""

    n_dims: int
    outputs: int
    weights: Distribution

    @property
    def dim(self):
        return self.n_dims

    @property
    def n_targets(self):
        return self.outputs

    @property
    def n_determining(self):
        return self.n_dims

    def sample_parameters(self, n_functions, generator, dtype):
        return self.weights.sample((n_functions, self.outputs * self.n_dims), generator, dtype)

    def value(self, parameters, xs):
        return xs @ parameters.unflatten(-1, (self.outputs, self.n_dims)).mT

    def features(self, xs):
        return xs


@dataclass(frozen=True, kw_only=True)
class Rotations(Task):
    """s_{t+1} = R s_t in the plane, R by an angle that each function draws; s_1 is an input."""

    autoregressive: ClassVar[bool] = True

    angles: Distribution

    @property
    def dim(self):
        return 2

    @property
    def n_targets(self):
        return 2

    @property
    def n_determining(self):
        return 2

    def sample_parameters(self, n_functions, generator, dtype):
        return self.angles.sample((n_functions, 1), generator, dtype)

    def value(self, parameters, xs):
        cos, sin = parameters[:, :1].cos(), parameters[:, :1].sin()
        return torch.stack(
            [cos * xs[..., 0] - sin * xs[..., 1], sin * xs[..., 0] + cos * xs[..., 1]], -1
        )

    def features(self, xs):
        return xs

    def sample_points(self, parameters, n_points, generator, dtype):
        path = [self.inputs.sample((len(parameters), 1, 2), generator, dtype)]
        for _ in range(n_points):
            path.append(self.value(parameters, path[-1]))
        return torch.cat(path[:-1], 1), torch.cat(path[1:], 1)


MAPS = LinearMap(n_dims=2, outputs=3, weights=Normal(1), inputs=Normal(1), n_points=8)
PATHS = Rotations(angles=Normal(1), inputs=Sphere(2), n_points=10)
TRAINING = TrainingConfig(steps=6, batch_size=4, warmup_steps=2, log_every=2, checkpoint_every=3)
SHAPES = {"interleaved": (MAPS, 3), "stacked": (MAPS, 5), "states": (PATHS, 2)}  # task, d_in


def run(encoding: str, training: TrainingConfig | None = TRAINING, **model) -> RunConfig:
    """A short run on vectors, in each encoding."""
    task, d_in = SHAPES[encoding]
    sizes = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_ctx": 20, "init_std": 0.4}
    cfg = HookedTransformerConfig(**{**sizes, "d_in": d_in, "d_out": task.n_targets, **model})
    return RunConfig(cfg, task, encoding, training)
