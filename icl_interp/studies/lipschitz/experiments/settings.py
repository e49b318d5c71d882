"""The setting of the slides on Collins et al. (2024), experiment by experiment, beside ours.

The slides show figures and give hardly any number of how these were made: neither d, n and sigma
nor how units are trained. The paper itself is not the source here.
"""

from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.settings import Setting, by_scale, not_given, of_task, trained

ATTENTION = "one softmax unit, M"
UNIT = Setting("model", ATTENTION, "Learning Model, equation (2)", ATTENTION)


def _d(run: RunConfig) -> int:
    return run.task.dim


def _n(run: RunConfig) -> int:
    return run.task.n_points - 1


SIZES = (
    not_given("d", _d),
    not_given("n", _n),
    not_given("sigma", of_task("noise_std")),
    not_given("steps", trained("steps")),
    not_given("batch", trained("batch_size")),
    not_given("rate", trained("learning_rate")),
)
PROMPTS = (not_given("blocks of prompts", by_scale("n_functions")),)
RELU = Setting("functions", "ReLU class F_L^+", "Intuition Summary", "ReLU class F_L^+")
SPHERE = Setting("inputs", "uniform on the sphere", "Lemma 1, Sigma = I", "uniform on the sphere")
L = of_task("lipschitz")

WINDOW = (
    UNIT,
    RELU,
    SPHERE,
    Setting("values of L", "three", "ICL estimator intuition, figure of three rows", "three"),
    not_given("L", L),
    *SIZES,
    *PROMPTS,
)
BIAS_NOISE = (
    UNIT,
    RELU,
    SPHERE,
    Setting("noise and bias", "their order in w, n, L", "Proof Sketch", "measured, and exact"),
    not_given("L", L),
    *SIZES,
    *PROMPTS,
)
BOTH = "isotropic, and not"
NORM_GROWTH = (
    UNIT,
    Setting("functions", "ReLU and cosine", "Empirical Scaling of ||M||", "ReLU and cosine"),
    Setting("inputs", BOTH, "Empirical Scaling of ||M||", BOTH),
    not_given("L", L),
    *SIZES,
)
PLACE = "Empirical Generalization"
OURS = "; ours: cosine of L = 1 and frequency 10, affine of L = 10"
TRAINED_ON = "affine, ReLU and cosine of L = 1; cosine of L = 0.1 and 10"
GENERALIZATION = (
    UNIT,
    Setting("trained on", TRAINED_ON, PLACE, f"{TRAINED_ON}{OURS}"),
    Setting(
        "tested on",
        "affine, ReLU and cosine of L = 1",
        PLACE,
        f"affine, ReLU and cosine of L = 1{OURS}",
    ),
    *SIZES,
    *PROMPTS,
)
LINKS = "w·x + 2, (w·x)², cos(4 w·x)"
LOW_RANK = (
    UNIT,
    Setting("links", LINKS, "Softmax Attention Learns Low-Dimensional Structure", LINKS),
    Setting("noise in Theorem 4", "none, or n = 2", "Theorem 4", "none, at n = 10 and 200"),
    Setting("cap on BᵀMB", "C", "Theorem 4", "exact minima: C = 3; trained units: none"),
    not_given("k", "2"),
    *SIZES,
    *PROMPTS,
)
