"""Formats that are recognised and refused by name, with what makes each another model than ours."""

from collections.abc import Callable, Iterable

from icl_interp.checkpoints.formats import files, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.errors import InputError


def _of_ahn(name: str) -> bool:
    return name.rpartition(".")[2] == "allparam"


def _gated(name: str) -> bool:
    return name.endswith(".W_g.weight")


def _low_rank(name: str) -> bool:
    return name.startswith("layers.") and name.endswith((".E.weight", ".E_block.weight"))


def _of_kernel(name: str) -> bool:
    return name.startswith("layers.") and name.endswith(".scale")


# How the name of a telling tensor begins, or whether it is one, by the name of the format.
MARKS: dict[str, str | tuple[str, ...] | Callable[[str], bool]] = {
    "looped-transformer or nanoGPT": "_backbone.transformer.",
    "task-prefix": "task_prefix_embeddings.",
    "transformers-as-statisticians encoder": ("_queries.", "_encoder._queries."),
    "ical": "decoder.layers.0.attention.values",
    "timaeus icl": "token_sequence_transformer.",
    "LinearTransformer (Ahn et al.)": _of_ahn,
    "gated linear attention": _gated,
    "low-rank attention": _low_rank,
    "kernel attention": _of_kernel,
}
# What makes each another model than ours.
WHY = {
    "looped-transformer or nanoGPT": (
        "the file does not tell how often its blocks are run on their own output, and its "
        "prompts have a token more"
    ),
    "task-prefix": (
        "its prompts start with a learned token for the task, which no encoding here has"
    ),
    "transformers-as-statisticians encoder": (
        "its tokens hold x and y together in a layout that no encoding here has, and its "
        "heads' outputs have no matrix W_O"
    ),
    "ical": (
        "its two variants, augmented and not, have the same names and compute different "
        "things: heads are summed, scores are masked to 0 or weighted by a softmax over "
        "positions, and only one of the two has a residual stream"
    ),
    "timaeus icl": (
        "its residual stream doubles at every block (x becomes x + block(x), and block(x) "
        "holds x already)"
    ),
    "LinearTransformer (Ahn et al.)": (
        "it has neither read-in nor read-out: its stream is the prompt itself, and it "
        "predicts minus the label channel"
    ),
    "gated linear attention": (
        "a gate of each token multiplies its values, and its queries and keys pass a function, "
        "which no model here has"
    ),
    "low-rank attention": (
        "it maps the keys and values of all tokens to those of fewer, which no model here does"
    ),
    "kernel attention": (
        "the kernel that its scores go through stands in no weight but its scale: queries and "
        "keys pass a function, ELU in one version of its code, which no model here has"
    ),
}


def _refusing(name: str) -> Format:
    """A format whose files hold a tensor with a telling name, and that is not read."""
    mark = MARKS[name]

    def telling(key: str) -> bool:
        return mark(key) if callable(mark) else key.startswith(mark)

    def recognises(source: Source) -> bool:
        return any(map(telling, files.shapes(source)))

    def read(source: Source, given: Given) -> Parts:
        article = "an" if name[0] in "aeiou" else "a"
        names = files.shapes(source)
        keys = state.listed(_first(names, telling))
        raise InputError(
            f"{source} is {article} {name} checkpoint (its keys are {keys}); icl_interp cannot "
            f"read it because {WHY[name]}"
        )

    return Format(name, recognises, read)


def _first(names: Iterable[str], telling: Callable[[str], bool]) -> list[str]:
    """The telling names first: a state dict has hundreds."""
    return sorted(names, key=lambda name: not telling(name))


LOOPED = _refusing("looped-transformer or nanoGPT")
PREFIXED = _refusing("task-prefix")
STATISTICIANS = _refusing("transformers-as-statisticians encoder")
ICAL = _refusing("ical")
TIMAEUS = _refusing("timaeus icl")
ALLPARAM = _refusing("LinearTransformer (Ahn et al.)")
GATED = _refusing("gated linear attention")
LOW_RANK = _refusing("low-rank attention")
KERNEL = _refusing("kernel attention")
