"""The setting of Naim & Asher (2025), experiment by experiment, beside ours.

Models are named in the work by degree: M3 is trained on degree 3, M135 on degrees 1, 3 and 5, AL
has attention layers only. What is said of "all models" counts for each of them.
"""

from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.settings import (
    Ours,
    Setting,
    by_scale,
    not_given,
    of_task,
    shape,
    trained,
)

U1 = "U(-1, 1)"
SIGMAS = "1 to 10"
TWELVE = "section 4.1, on all 12 layers of the best models"


def _norms(run: RunConfig) -> str:
    where = {"pre": "before each sublayer", "post": "after each sublayer"}
    return where[run.model.norm_position] if run.model.normalization_type else "none"


def _lengths(run: RunConfig) -> str:
    first = run.training.curriculum.first_points if run.training else run.task.n_points
    return f"{first} to {run.task.n_points} points"


TRAINING = (
    Setting("norms", "after each sublayer", "section 6, Add & Norm", _norms),
    Setting("steps", "500,000", "section 3.2", trained("steps")),
    Setting("batch", "64", "section 3.2", trained("batch_size")),
    Setting("rate of Adam", "0.0001", "appendix A", trained("learning_rate")),
    Setting("lengths in training", "1 to 40 points", "section 3.2", _lengths),
)
POINTS = Setting("points of a prompt", "41", "section 3.3", of_task("n_points"))
SAMPLE = (
    Setting("functions", "100", "section 3.3", by_scale("n_functions")),
    Setting("contexts of each", "64", "section 3.3", by_scale("n_contexts")),
    POINTS,
)


def _sized(place: str) -> tuple[Setting, ...]:
    """A model that the work calls 12L8AH, of width 256."""
    return (
        Setting("layers", "12", place, shape("n_layers")),
        Setting("heads", "8", place, shape("n_heads")),
        Setting("width", "256", place, shape("d_model")),
    )


def _of_best(place: str) -> tuple[Setting, ...]:
    """A model of which the work says no more than that its best ones have 12 layers."""
    return (
        Setting("layers", "12", place, shape("n_layers")),
        not_given("heads", shape("n_heads")),
        not_given("width", shape("d_model")),
    )


def _laws(inputs: str, functions: str, place: str, ours: str = "") -> tuple[Setting, ...]:
    """Laws of inputs and coefficients in training; ours are the same unless said."""
    said = f"inputs {inputs}, coefficients {functions}"
    return (Setting("laws in training", said, place, ours or said),)


def _contexts(ours: Ours) -> tuple[Setting, ...]:
    """A sample of prompts that the work does not describe for this figure."""
    return (not_given("contexts", ours), POINTS)


M1 = "captions of Figures 2 and 3, for the models Mn"
TABLE1 = (
    *_sized(M1),
    Setting("norms", "after each sublayer, none", "Table 1; section 6, Add & Norm", _norms),
    *TRAINING[1:],
    *_laws(U1, U1, "caption of Table 1"),
    *SAMPLE,
    Setting("sigma", SIGMAS, "caption of Table 1", SIGMAS),
    not_given("models of each kind", {"smoke": "2", "small": "5", "paper": "1"}),
)
TABLE2 = (
    *_sized("captions of Figures 2 and 3, for Mn, M135 and M135AL"),
    *TRAINING,
    *_laws(U1, U1, "caption of Figure 2"),
    *SAMPLE,
    Setting("sigma", SIGMAS, "Table 2", SIGMAS),
)
TABLE3 = (
    *_sized(M1),
    *TRAINING,
    Setting(
        "laws in training",
        "U(-a, a) for inputs and coefficients, a = 1, 5, 10, 100",
        "Table 3; its caption names 1, 5 and 100",
        "U(-a, a) for inputs and coefficients, a = 1, 5, 10, 100",
    ),
    *SAMPLE,
    Setting("sigma", SIGMAS, "Table 3", SIGMAS),
)
VECTORS = "three vectors of five numbers"
TABLE4 = (
    Setting("vectors", VECTORS, "Table 4", f"{VECTORS}, and the same moved"),
    Setting("decimals printed", "6", "Table 4", "6"),
)
FIGURE1 = (
    *_of_best(TWELVE),
    *TRAINING,
    Setting("trained on", "degree 3", "caption of Figure 1", "degree 3"),
    Setting("inputs of the test", "[0, 1]", "caption of Figure 1", "[0, 1]"),
    *_contexts(by_scale("n_functions")),
)
FIGURE2 = (
    *_sized("caption of Figure 2; width: captions of Figures 3 and 5"),
    *TRAINING,
    Setting(
        "trained on",
        "one degree; 1, 3 and 5 with and without MLP; second row: curriculum 1, 2, 3, the same "
        "models",
        "caption of Figure 2",
        "one degree; 1, 3 and 5 with and without MLP; curriculum 1, 2, 3 with MLP, in one row",
    ),
    *_laws(U1, U1, "caption of Figure 2"),
    Setting("degrees of the test", "1 to 5", "caption of Figure 2", "1 to 5"),
    *SAMPLE,
)
FIGURE3 = (
    *_sized("caption of Figure 3; the larger one of section 5: width 512"),
    *TRAINING,
    *_laws(U1, U1, "caption of Figure 3"),
    Setting("degrees", "1 to 6", "section 4.1", "1 to 6"),
    *SAMPLE,
)
FIGURE4 = (
    Setting("layers, x² and x³", "12", TWELVE, {"smoke": "2", "small": "3", "paper": "12"}),
    Setting(
        "laws in training",
        "N(0, 1) for inputs and coefficients",
        "caption of Figure 4",
        "N(0, 1) for inputs and coefficients; 12x: U(-1, 1)",
    ),
    Setting(
        "model of 12x",
        "2 layers, 32 heads, width 256, attention only",
        "caption of Figure 4",
        {
            "smoke": "2 layers, 4 heads, width 32, attention only",
            "small": "2 layers, 8 heads, width 64, attention only",
            "paper": "2 layers, 32 heads, width 256, attention only",
        },
    ),
    *TRAINING,
    *_contexts(by_scale("n_contexts")),
)
NORMAL = "N(0, 1)"
FIGURE5 = (
    *_sized("caption of Figure 5"),
    *TRAINING,
    *_laws(NORMAL, NORMAL, "caption of Figure 5"),
    not_given("degrees", "1 to 3"),
    *SAMPLE,
)
FIGURE6 = (
    *_of_best(TWELVE),
    *TRAINING,
    Setting("trained on", "degree 3", "caption of Figure 6, model P3", "degree 3"),
    *_contexts(by_scale("n_functions")),
)
FIGURE7 = (
    *_sized("caption of Figure 2, for M135; width: captions of Figures 3 and 5"),
    *TRAINING,
    Setting(
        "laws in training",
        "U(-1, 1), and U(-5, 5), degrees 1, 3, 5",
        "caption of Figure 7",
        "U(-1, 1), and U(-5, 5), degrees 1, 3, 5",
    ),
    Setting("sigmas of each axis", SIGMAS, "caption of Figure 7", SIGMAS),
    Setting("functions", "100", "section 3.3", by_scale("n_functions")),
    Setting(
        "contexts of each",
        "64",
        "section 3.3",
        {"smoke": "4", "small": "16 at most", "paper": "16 at most"},
    ),
    POINTS,
)
FIGURE8 = (
    *_of_best(TWELVE),
    *TRAINING,
    Setting("trained on", "degree 1", "caption of Figure 8", "degree 1"),
    *_laws(U1, U1, "caption of Figure 8"),
    Setting("function", "f(x) = x", "caption of Figure 8", "f(x) = x"),
    *_contexts(by_scale("n_functions")),
)
APPENDIX_G = (
    Setting(
        "layer",
        "one, without norm in Proposition 5, with Add & Norm in Proposition 6",
        "appendix G.1",
        "the last attention of a trained model, in float64, without norm and with one",
    ),
    Setting("measured on", "nothing: a proof", "appendix G.1", by_scale("n_functions")),
    not_given("layers of the trained model", shape("n_layers")),
)
REMEDIES = (
    Setting("models", "none: a suggestion", "section 6", "eight trained models"),
    not_given("layers", shape("n_layers")),
    not_given("steps", trained("steps")),
    not_given("points of a prompt", of_task("n_points")),
)
