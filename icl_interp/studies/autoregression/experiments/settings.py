"""The setting of Sander et al. (2024), experiment by experiment, beside ours.

The text of the work that we read has lost its formulas, and many numbers with them. What the
authors' code has (https://github.com/michaelsdr/ical) stands here with the name of its file; the
numbers that it does not have either are said to be lost.
"""

from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.settings import LOST, Setting, not_given

AUGMENTED = "the authors' code, augmented.py"
PLAIN = "the authors' code, non_augmented.py"
SAME = 'appendix B, "identical" to Figure 5; the authors\' code, augmented.py'
FRESH = "fresh sequences in every step"
FIXED = "16,384 fixed sequences, 200 epochs"
TESTED = "1,024 fixed sequences"
SAMPLE = {
    name: f"{preset.n_functions} blocks of {preset.n_contexts} fresh sequences"
    for name, preset in PRESETS.items()
}
RATE = "0.01"


def _data(place: str) -> tuple[Setting, ...]:
    """Sequences and training of the experiments on matrices that do not commute."""
    return (
        Setting("matrices", "orthogonal", place, "=task.matrices"),
        Setting("d", "5", place, "=task.n_dims"),
        Setting("length of a sequence", "50", place, "=task.n_points"),
        Setting("training set", FIXED, place, FRESH),
        Setting("batch", "1,024", place, "=training.batch_size"),
        Setting("rate of Adam", RATE, place, "=training.learning_rate"),
        not_given("steps", "=training.steps"),
        Setting("test set", TESTED, place, SAMPLE),
    )


WIDE = "3 d = 15"
FIGURE5 = (
    Setting(
        "layer",
        "relation (4) iterated, LayerNorm on the output of attention",
        f"section 6, augmented setting; {AUGMENTED}",
        "relation (4) iterated, LayerNorm on the output of attention",
    ),
    Setting("layers", LOST, "", "=model.n_layers"),
    Setting("heads", "1", AUGMENTED, "=model.n_heads"),
    Setting("width", WIDE, AUGMENTED, "=model.d_model"),
    *_data(AUGMENTED),
    Setting(
        "step of gradient descent",
        "chosen for the fastest decrease",
        "section 6, augmented setting",
        "chosen for the fastest decrease",
    ),
)
FIGURE10 = (
    Setting(
        "layer",
        "softmax attention and MLP as in Vaswani et al.",
        "appendix B",
        "softmax attention and MLP as in Vaswani et al.",
    ),
    Setting("layers", LOST, "", "=model.n_layers"),
    not_given("heads", "=model.n_heads"),
    not_given("width", "=model.d_model"),
    *_data(SAME),
)
FIGURE7 = (
    Setting(
        "layer",
        "model (6), P a softmax of a positional similarity with matrices W_Q and W_K, LayerNorm on "
        "the output of attention",
        f"section 6, non-augmented setting; {PLAIN}",
        "linear attention with learned weights of positions, without LayerNorm on its output at "
        "width 32, and with it on tokens as they are",
    ),
    Setting("heads", "several, of which 64", PLAIN, "=model.n_heads"),
    Setting("states in a token", "once, and twice", "section 6", "once, and twice"),
    not_given("width", "=model.d_model"),
    *_data(PLAIN),
)
FOUR = "with and without softmax and MLP"
START = "alike in all heads, with small changes"
FIGURE8 = (
    Setting("start", START, "section 6, non-augmented setting", START),
    Setting("states in a token", "twice", "section 6, non-augmented setting", "twice"),
    Setting("heads", LOST, "", {"smoke": "4", "small": "4, 8", "paper": "4, 8"}),
    not_given("width", "32"),
    Setting("d", "5", PLAIN, "5"),
    Setting("training set", FIXED, PLAIN, FRESH),
    not_given("seeds of each", {"smoke": "1", "small": "2", "paper": "4"}),
)
FIGURE9 = (
    Setting("models", FOUR, "appendix B", FOUR),
    Setting("matrices", "unitary", 'appendix B, "section 5"', "=task.matrices"),
    Setting("layers", LOST, "", "=model.n_layers"),
    Setting("d", LOST, "", "=task.n_dims"),
    Setting("length of a sequence", LOST, "", "=task.n_points"),
    Setting("hidden width of the MLP", "32", "appendix B", "32"),
    not_given("steps", "=training.steps"),
    not_given("seeds", {"smoke": "1", "small": "2", "paper": "3"}),
)
