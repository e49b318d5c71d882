"""The setting of Wu's slides on Zhang, Frei & Bartlett (2023), experiment by experiment, and ours.

The slides prove theorems about a layer of linear self-attention and show figures of GPT-2-style
models, of which they give the lengths and the laws, and no sizes.
"""

from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.settings import Setting, by_scale, not_given, of_task, shape, trained

LARGE = "Experiments with large, nonlinear transformers"
NONE = "none: the theorem is about gradient flow"


def _n(run: RunConfig) -> int:
    return run.task.n_points - 1


def _n_of_softmax(run: RunConfig) -> int | None:
    return None if run.model.score_fn == "linear" else _n(run)


PROMPTS = (not_given("blocks of prompts", by_scale("n_functions")),)
SIZES = (
    not_given("d", of_task("n_dims")),
    not_given("layers", shape("n_layers")),
    not_given("heads", shape("n_heads")),
    not_given("width", shape("d_model")),
    not_given("steps", trained("steps")),
    not_given("batch", trained("batch_size")),
    not_given("rate", trained("learning_rate")),
)
MODEL = "GPT-2"
GPT2 = Setting("model", MODEL, LARGE, "transformers with softmax and MLP, trained from scratch")
LENGTHS = Setting("N", "40, 70, 100", f"{LARGE}, figure", _n_of_softmax)
SCALES = Setting("c", "1, 4, 9", f"{LARGE}, figure", "1, 4, 9")
LAWS = "covariance I, or diagonal with entries from Exp(1)"
COVARIANCES = Setting("laws in training", LAWS, LARGE, LAWS)

COVARIANCE = (GPT2, COVARIANCES, LENGTHS, SCALES, *SIZES, *PROMPTS)
LENGTH_SPIKE = (GPT2, COVARIANCES, LENGTHS, SCALES, *SIZES, *PROMPTS)
SHIFTED = "Behavior of trained transformer under distribution shift"
SHIFTS = (
    Setting("model", MODEL, f"{SHIFTED}, figure of Garg et al.", GPT2.ours),
    Setting("law in training", "isotropic normal inputs", SHIFTED, "isotropic normal inputs"),
    Setting("optimiser", "Adam", SHIFTED, "Adam"),
    Setting(
        "shifts",
        "non-isotropic inputs, noise on labels, one orthant",
        SHIFTED,
        "non-isotropic inputs of two kinds, noise on labels, one orthant",
    ),
    not_given("N", _n),
    *SIZES,
    *PROMPTS,
)
LAYER = (
    not_given("d", of_task("n_dims")),
    not_given("N", _n),
    not_given("batch", trained("batch_size")),
)
CONVERGENCE = (
    Setting("trained", NONE, "Theorem 4.1", "flow and SGD on the exact loss, Adam on prompts"),
    Setting(
        "start",
        "Assumption 3.3, sigma below the theorem's bound",
        "Theorem 4.1",
        "Assumption 3.3, sigma of 0.3, 0.9 and 3 times the theorem's bound; Adam: small weights",
    ),
    *LAYER,
    not_given("steps of Adam", trained("steps")),
)
RISK_FORMULA = (
    Setting("layer", "at the minimum of Theorem 4.1", "Theorem 4.2", "at it, and trained"),
    Setting("labels", "any law with moments", "Theorem 4.2", "linear, without noise and with"),
    not_given("M", "1, 2, 5, 10, 20, 40, 80, 160"),
    *LAYER,
    *PROMPTS,
)
TRAP = (
    Setting("start", "balanced, Assumption 3.3", "Theorem 4.1", "random: outside the assumption"),
    Setting("trained", NONE, "Theorem 4.1", "L-BFGS on the exact loss, and Adam on prompts"),
    *LAYER,
)
