"""Formats that are recognised and refused by name, with what makes each another model than ours."""

from collections.abc import Callable, Iterable

from icl_interp.checkpoints.formats import files, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.errors import InputError


def _refusing(name: str, marks: Callable[[str], bool], why: str) -> Format:
    """A format whose files hold a tensor with a telling name, and that is not read."""

    def recognises(source: Source) -> bool:
        return any(marks(key) for key in files.shapes(source))

    def read(source: Source, given: Given) -> Parts:
        article, keys = (
            "an" if name[0] in "aeiou" else "a",
            state.listed(_telling(files.shapes(source), marks)),
        )
        raise InputError(
            f"{source} is {article} {name} checkpoint (its keys are {keys}); icl_interp cannot "
            f"read it because {why}"
        )

    return Format(name, recognises, read)


def _telling(names: Iterable[str], marks: Callable[[str], bool]) -> list[str]:
    """The telling names first: a state dict has hundreds."""
    return sorted(names, key=lambda name: not marks(name))


def _begins(*starts: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(starts)


LOOPED = _refusing(
    "looped-transformer or nanoGPT",
    _begins("_backbone.transformer."),
    "the file does not tell how often its blocks are run on their own output, and its prompts have "
    "a token more",
)
PREFIXED = _refusing(
    "task-prefix",
    _begins("task_prefix_embeddings."),
    "its prompts start with a learned token for the task, which no encoding here has",
)
STATISTICIANS = _refusing(
    "transformers-as-statisticians encoder",
    _begins("_queries.", "_encoder._queries."),
    "its tokens hold x and y together in a layout that no encoding here has, and its heads' "
    "outputs have no matrix W_O",
)
ICAL = _refusing(
    "ical",
    _begins("decoder.layers.0.attention.values"),
    "its two variants, augmented and not, have the same names and compute different things: heads "
    "are summed, scores are masked to 0 or weighted by a softmax over positions, and only one of "
    "the two has a residual stream",
)
TIMAEUS = _refusing(
    "timaeus icl",
    _begins("token_sequence_transformer."),
    "its residual stream doubles at every block (x becomes x + block(x), and block(x) holds x "
    "already)",
)
ALLPARAM = _refusing(
    "LinearTransformer (Ahn et al.)",
    lambda name: name.rpartition(".")[2] == "allparam",
    "it has neither read-in nor read-out: its stream is the prompt itself, and it predicts minus "
    "the label channel",
)
GATED = _refusing(
    "gated linear attention",
    lambda name: name.endswith(".W_g.weight"),
    "a gate of each token multiplies its attention, which no model here has",
)
KERNEL = _refusing(
    "kernel attention",
    lambda name: name.startswith("layers.") and name.endswith(".scale"),
    "the kernel that its scores go through stands in no weight but its scale",
)
TWO_NORMS = _refusing(
    "attention between two norms",
    _begins("layers.0.W_q."),
    "in the public code with these names a block has a norm before its attention and one after it, "
    "and adds a tenth of what its attention writes, which no model here does",
)
