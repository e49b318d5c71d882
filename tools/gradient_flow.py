"""Train a layer of linear self-attention by gradient flow, and put its run into a folder.

python tools/gradient_flow.py FOLDER

The layer holds the paper's own matrices, W_PV and W_KQ, and starts as Zhang, Frei & Bartlett (2023)
have it (Assumption 3.3). Gradient descent on the population loss with small steps stands for the
flow. `icl-interp train` cannot make this run: it trains the factors of these matrices, and by Adam
on drawn prompts. The bundled model `lsa_flow` is such a folder. It takes some seconds.

The same steps on 1,024 drawn prompts each, tried first, do not stay balanced: the squared sizes end
57 % apart. What the claim says of `lsa_flow` is about the flow on the population loss.
"""

import sys
from pathlib import Path

import torch

from icl_interp import evaluation
from icl_interp.checkpoints import store
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.models.tokens import Stacked
from icl_interp.tasks.regression import LinearRegression
from icl_interp.theory import linear_attention as theory

TASK = LinearRegression(n_dims=3, covariance=(0.5, 1.0, 2.0), n_points=21)
N_CTX = 161  # tokens: claims try prompts of more examples than in training
START = 0.5  # sigma in units of the largest sigma of Theorem 4.1
RATE = 0.02  # size of a step
KEPT = (0, 10, 20, 40, 70, 100, 150, 200, 300, 400, 500, 700, 1000, 1500, 2000, 3000, 4000)


def start() -> LinearSelfAttention:
    """W_KQ = sigma Theta Theta^T on the inputs, and w22 = sigma: balanced."""
    limit = theory.initial_scale_limit(TASK.covariance_matrix, TASK.n_points - 1)
    theta = torch.eye(3, dtype=torch.float64) / 3**0.25
    matrix, scalar = theory.initial_point(START * float(limit), theta)
    return LinearSelfAttention.from_product(scalar * matrix, float(scalar))


def train() -> dict[int, LinearSelfAttention]:
    """The layer at the steps that are kept."""
    layer = start()
    covariance = TASK.covariance_matrix
    kept = {0: LinearSelfAttention(layer.W_PV, layer.W_KQ)}
    for step in range(KEPT[-1]):
        loss = theory.population_loss(layer.W_PV, layer.W_KQ, covariance, TASK.n_points - 1)
        gradients = torch.autograd.grad(loss, [layer.W_PV, layer.W_KQ])
        with torch.no_grad():
            layer.W_PV -= RATE * gradients[0]
            layer.W_KQ -= RATE * gradients[1]
        if step + 1 in KEPT:
            kept[step + 1] = LinearSelfAttention(layer.W_PV, layer.W_KQ)
    return kept


def write(folder: Path, kept: dict[int, LinearSelfAttention]) -> None:
    """A run folder with the last layer, and all of them as its snapshots."""
    models = {step: layer.to_transformer(N_CTX).float() for step, layer in kept.items()}
    last = models[KEPT[-1]]
    config = RunConfig(last.cfg, TASK, "stacked")
    checkpoint = Checkpoint(last, TASK, Stacked(), config, KEPT[-1])
    checkpoint.provenance = {
        "finished": True,
        "in_distribution": evaluation.in_distribution(checkpoint, TASK),
        "recipe": "tools/gradient_flow.py",
    }
    folder.mkdir(parents=True, exist_ok=True)
    store.write_snapshots(folder, {step: model.state_dict() for step, model in models.items()})
    checkpoint.save(folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]), train())
