"""Tasks as users write them: ReLU networks, linear in no fixed features, changed polynomials."""

from dataclasses import dataclass

from icl_interp.checkpoints.config import RunConfig, TrainingConfig
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.tasks import Distribution, Polynomial, Task, Uniform


@dataclass(frozen=True, kw_only=True)
class ReluNetwork(Task):
    """sum_k v_k relu(w_k x + b_k), with independent weights."""

    width: int
    weights: Distribution

    @property
    def n_determining(self):
        return 3 * self.width

    def sample_parameters(self, n_functions, generator, dtype):
        return self.weights.sample((n_functions, 3 * self.width), generator, dtype)

    def value(self, parameters, xs):
        w, b, v = parameters.unflatten(-1, (3, self.width)).unbind(-2)
        return (v[:, None] * (xs * w[:, None] + b[:, None]).relu()).sum(-1)


class Plus5(Polynomial):
    """Polynomials shifted by 5: the law stays symmetric, about another centre."""

    def value(self, parameters, xs):
        return super().value(parameters, xs) + 5


class Square(Polynomial):
    """Squared values: not affine in the coefficients, so there are no pairs and no closed mean."""

    def value(self, parameters, xs):
        return super().value(parameters, xs).square()


class Squares(Polynomial):
    """Squared coefficients, whose law is not symmetric: there are no pairs."""

    def sample_parameters(self, n_functions, generator, dtype):
        return super().sample_parameters(n_functions, generator, dtype) ** 2


RELU = ReluNetwork(width=2, weights=Uniform(-1, 1), inputs=Uniform(-2, 2), n_points=10)
MODEL = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, n_ctx=20, init_std=0.2)
TRAINING = TrainingConfig(steps=6, batch_size=4, warmup_steps=2, log_every=2, checkpoint_every=3)


def run(task: Task, training: TrainingConfig | None = TRAINING) -> RunConfig:
    """A short run on a task of one's own."""
    return RunConfig(MODEL, task, "interleaved", training)
