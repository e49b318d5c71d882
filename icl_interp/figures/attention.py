"""Attention weights that one can look through: a prompt, a layer, a head, a query token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from icl_interp.adapters.adapted import Sizes
from icl_interp.analyses.mechanism import token_names
from icl_interp.errors import InputError, shown, whole
from icl_interp.figures.files import drawn_by, drawn_in_turn, policy
from icl_interp.figures.text import markup
from icl_interp.interventions.patching import hooks_of
from icl_interp.models import tokens as encodings
from icl_interp.models.config import HookedTransformerConfig
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
    "A map has a row for each query token and a column for each token that it looks at. Its "
    "colour is the weight times the number of tokens that the row sees, on a logarithmic scale. A "
    "row whose tokens all get the same weight has the middle tone. Orange: negative. Grey: hidden "
    "from the query. Click a head, or a row of the large map."
)


@dataclass(frozen=True, eq=False)
class AttentionView:
    """Attention weights as one page without network, for a notebook or a file.

    Attributes:
        data: what the page draws: "tokens", "heads", "prompts", "weights" (whole numbers, in
            "unit", a list a prompt and head), the mask "visible", and for heads of which it is
            known what they do "marks" (in a word) and "effects" (in a sentence).
    """

    data: dict[str, Any]

    def to_html(self) -> str:
        """The whole page."""
        drawn, script = drawn_by("attention.js", "attention.css", self.data, "attention")
        return str(
            markup(
                '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">{}<meta '
                'name="viewport" content="width=device-width, initial-scale=1">'
                "<title>Attention</title></head><body>{}</body></html>\n",
                policy([script]),
                drawn,
            )
        )

    def part_of_page(self, div_id: str) -> Markup:
        """It as a part of a page with `figures.files.policy`, drawn when it is its turn."""
        return drawn_in_turn("attention.js", "attention.css", self.data, div_id)

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
        InputError: a model without attention, no prompts, more than two million weights, or
            weights that are not finite.

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
    hooks_of("pattern", hooked)  # refuses an adapted module whose patterns nobody named
    n_heads = hooked.cfg.n_layers * hooked.cfg.n_heads
    n_weights = (n_chosen + 1) * n_heads * len(names) ** 2
    if n_weights > MOST:
        raise InputError(
            f"{n_weights:,} weights are too many for a page (at most {MOST:,}): give shorter "
            f"prompts, or n_prompts below {n_chosen}"
        )
    # (prompt, head, query, key), the mean first.
    every = _patterns(hooked, prompts, used)
    if not np.isfinite(every).all():
        raise InputError("attention weights must be finite to be shown, but some are NaN or inf")
    weights = np.concatenate([every.mean(0, keepdims=True), every[:n_chosen]])
    encoded = used.encode(prompts)
    labels = [f"mean of {len(prompts)} prompts"]
    values: list[Sequence[str] | None] = [None]  # a mean shows no prompt
    for number in range(n_chosen):
        labels.append(f"prompt {number}")
        first_channels = encoded[number, :, :SHOWN]
        values.append(in_short(first_channels.tolist()))
    heads = []
    for layer in range(hooked.cfg.n_layers):
        for head in range(hooked.cfg.n_heads):
            heads.append(f"{layer}.{head}")
    by_label = dict(zip(labels, weights, strict=True))
    data = drawable(names, heads, by_label, values, hooked.cfg)
    return AttentionView(data)


def drawable(
    names: Sequence[str],
    heads: Sequence[str],
    weights: Mapping[str, np.ndarray],
    values: Sequence[Sequence[str] | None],
    cfg: HookedTransformerConfig | Sizes,
) -> dict[str, Any]:
    """What the page draws, as plain data.

    Args:
        names: of the tokens.
        heads: their names, "layer.head".
        weights: (head, query, key), by what they are of.
        values: what each token shows, for each of these; None where it shows no prompt.
        cfg: of the model: which tokens a query sees.
    """
    every = np.stack(list(weights.values()))
    largest = float(np.abs(every).max())
    unit = (largest or 1.0) / STEPS
    rounded = np.rint(every / unit)
    flat = rounded.astype(int).reshape(*every.shape[:2], -1)
    return {
        "tokens": list(names),
        "heads": list(heads),
        "prompts": list(weights),
        "values": list(values),
        "unit": unit,
        "weights": flat.tolist(),
        "visible": _visible(cfg, len(names)),
        "marks": {},
        "effects": {},
        "note": NOTE,
    }


def _patterns(model: HookedModel, prompts: Prompts, encoding: Encoding) -> np.ndarray:
    """Weights of every prompt: (prompt, head, query, key), the heads of all layers in a row."""
    names = hooks_of("pattern", model)
    record = Activations(names)
    probe(model, prompts, [record], encoding)
    layers = []
    for name in names:
        layers.append(record.recorded[name].double().cpu().numpy())
    return np.concatenate(layers, 1)


def _visible(cfg: HookedTransformerConfig | Sizes, n: int) -> list[str]:
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


def in_short(tokens: Sequence[Sequence[float]]) -> list[str]:
    """The numbers of each token, for a person.

    >>> in_short([[0.12345, 1.0], [-2.0, 0.0]])
    ['0.123, 1', '-2, 0']
    """
    values = []
    for token in tokens:
        numbers = map("{:.3g}".format, token)
        values.append(", ".join(numbers))
    return values
