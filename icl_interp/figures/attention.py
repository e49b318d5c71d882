"""Attention weights that one can look through: a prompt, a layer, a head, a query token."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icl_interp.analyses.mechanism import token_names
from icl_interp.errors import InputError, shown, whole
from icl_interp.figures.files import drawn_by, policy
from icl_interp.figures.text import markup
from icl_interp.models import tokens as encodings
from icl_interp.models.hooked import HookedModel
from icl_interp.models.tokens import Encoding
from icl_interp.probes.base import ModelWithEncoding, resolve
from icl_interp.probes.record import Activations
from icl_interp.probes.runner import probe
from icl_interp.prompts import Prompts
from icl_interp.provenance import write_atomically

MOST = 2_000_000  # weights of a view: some 8 MB
STEPS = 9999  # to which weights are rounded, up to the largest
SHOWN = 4  # channels of a token that are named
HEIGHT = 520  # pixels in a notebook
NOTE = (
    "A map has a row for each query token and a column for each token that it looks at. Its colour "
    "is the weight times the number of tokens that the row sees, on a logarithmic scale: where all "
    "get the same weight, a row has one middle tone. Orange: negative. Grey: hidden from the "
    "query. Click a head, or a row of the large map."
)


@dataclass(frozen=True, eq=False)
class AttentionView:
    """Attention weights as one page without network, for a notebook or a file.

    Attributes:
        data: what the page draws: "tokens", "prompts", "weights" (whole numbers, in "unit"), the
            mask "visible".
    """

    data: dict[str, Any]

    def to_html(self) -> str:
        """The whole page."""
        drawn, script = drawn_by("attention.js", "attention.css", self.data)
        return str(
            markup(
                '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">{}<meta '
                'name="viewport" content="width=device-width, initial-scale=1">'
                "<title>Attention</title></head><body>{}</body></html>\n",
                policy([script]),
                drawn,
            )
        )

    def save(self, path: str | Path) -> Path:
        """Write the page."""
        write_atomically(Path(path), self.to_html())
        return Path(path)

    def _repr_html_(self) -> str:
        # A frame of its own: styles and scripts of a notebook do not meet those of the page.
        return str(
            markup(
                '<iframe title="Attention" sandbox="allow-scripts" srcdoc="{}" '
                'style="width:100%;height:{}px;border:0"></iframe>',
                self.to_html(),
                HEIGHT,
            )
        )


def attention(
    model: ModelWithEncoding | Any,
    prompts: Prompts,
    encoding: Encoding | str | None = None,
    n_prompts: int = 8,
) -> AttentionView:
    """Attention weights to look through: choose a prompt, a layer, a head and a query token.

    Args:
        model: a checkpoint, or a model with the encoding that it comes with.
        prompts: to run it on. The first choice is the mean over all of them.
        encoding: how prompts become tokens; by default the checkpoint's.
        n_prompts: how many can be chosen by themselves, beside the mean.

    Raises:
        InputError: a model without attention, no prompts, or more than two million weights.

    >>> import icl_interp
    >>> from icl_interp.provenance import generator
    >>> checkpoint = icl_interp.load("affine_attn_only")
    >>> prompts = checkpoint.task.sample(4, generator(0, "doc"))
    >>> view = attention(checkpoint, prompts)
    >>> view.data["tokens"][:3], view.data["prompts"][:2]
    (['x1', 'y1', 'x2'], ['mean of 4 prompts', 'prompt 0'])
    """
    hooked, known = resolve(model, encoding)
    if not isinstance(prompts, Prompts) or not len(prompts):
        raise InputError(f"attention takes Prompts, at least one, but got {shown(prompts)}")
    if hooked.cfg.mlp_only:
        raise InputError("this model has no attention to show")
    used = known or encodings.infer_from(prompts, hooked.cfg.d_in)
    n_chosen = min(whole(n_prompts, "n_prompts", 0), len(prompts))
    # What would be stored, before anything is run.
    names = token_names(used.kinds(prompts.n_points))
    n_heads = hooked.cfg.n_layers * hooked.cfg.n_heads
    n_weights = (n_chosen + 1) * n_heads * len(names) ** 2
    if n_weights > MOST:
        raise InputError(
            f"{n_weights:,} weights are too many for a page (at most {MOST:,}): give shorter "
            f"prompts, or n_prompts below {n_chosen}"
        )
    # (prompt, layer, head, query, key), the mean first.
    every = _patterns(hooked, prompts, used)
    mean = every.mean(0, keepdims=True)
    weights = np.concatenate([mean, every[:n_chosen]])
    largest = float(np.abs(weights).max()) or 1.0
    unit = largest / STEPS
    rounded = np.rint(weights / unit).astype(int)
    flat = rounded.reshape(*rounded.shape[:3], -1)
    data: dict[str, Any] = {"tokens": names, "note": NOTE}
    data["unit"] = unit
    data["weights"] = flat.tolist()
    data["layers"] = flat.shape[1]
    data["heads"] = flat.shape[2]
    data["visible"] = _visible(hooked.cfg, len(names))
    data["prompts"] = [f"mean of {len(prompts)} prompts"]
    values: list[Sequence[str] | None] = [None]  # a mean shows no prompt
    for number in range(n_chosen):
        data["prompts"].append(f"prompt {number}")
        values.append(_values(used, prompts, number))
    data["values"] = values
    return AttentionView(data)


def _patterns(model: HookedModel, prompts: Prompts, encoding: Encoding) -> np.ndarray:
    """Weights of every prompt: (prompt, layer, head, query, key)."""
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    record = Activations(names)
    probe(model, prompts, [record], encoding)
    layers = []
    for name in names:
        layers.append(record.recorded[name].double().cpu().numpy())
    return np.stack(layers, 1)


def _visible(cfg: Any, n: int) -> list[str]:
    """For each query token a text of 1 and 0: which tokens it sees."""
    sees = np.ones((n, n), dtype=int)
    if cfg.attention_dir == "causal":
        sees = np.tril(sees)
    if getattr(cfg, "keys", None) == "labelled":
        sees[:, -1] = 0
    rows = []
    for row in sees.tolist():
        rows.append("".join(map(str, row)))
    return rows


def _values(encoding: Encoding, prompts: Prompts, prompt: int) -> Sequence[str]:
    """What each token of a prompt shows, in short."""
    values = []
    for token in encoding.encode(prompts)[prompt].tolist():
        numbers = map("{:.3g}".format, token[:SHOWN])
        values.append(", ".join(numbers))
    return values
