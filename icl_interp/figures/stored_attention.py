"""Attention weights that a report holds, to look through in its page."""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import example_prompts, mechanism, relevance
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.descriptions import number
from icl_interp.figures.attention import AttentionView, drawable, in_short

DIV = "attention-view"
TITLE = "What each head looks at"
CAPTION = (
    "Attention weights, to look through: choose a prompt, a head and a query token. Tokens are "
    "named by what they show: x1, y1, x2, ... for the inputs and values of the context in their "
    "order, xy1 where a token holds both. A head that looks for content has an even mean pattern, "
    "since the matching token differs from prompt to prompt; a single prompt shows it. Below each "
    "small map stands what the head's mean ablation does: the factor on the squared error, or, "
    "for a model that has not learned its task, the change of the prediction in u."
)


def view(results: Results, facts: Facts) -> AttentionView | None:
    """Patterns of the mean and of a few prompts, with what each head does.

    None where the report holds no patterns of prompts.
    """
    stored = results.get(example_prompts.patterns)
    shown = results.get(example_prompts.tokens)
    if stored is None or shown is None:
        return None
    tokens, heads = (stored.indexes[name].tolist() for name in ("key", "head"))
    weights: dict[str, np.ndarray] = {}
    values: list[list[str] | None] = []
    mean = results.get(mechanism.patterns)
    # Of a large model the mean holds the row of the query only.
    if mean is not None and mean.sizes["query"] == len(tokens):
        weights[mean.attrs["note"]] = _of_heads(mean, heads)
        values.append(None)
    for prompt in stored.indexes["prompt"].tolist():
        weights[f"prompt {prompt}"] = stored.sel(prompt=prompt).values
        values.append(in_short(shown.sel(prompt=prompt).values.tolist()))
    data = drawable(tokens, heads, weights, values, facts.config)
    _tell(data, results, facts)
    return AttentionView(data)


def _of_heads(mean: DataArray, heads: list[str]) -> np.ndarray:
    """The mean patterns of these heads: (head, query, key)."""
    found = []
    for name in heads:
        layer, head = name.split(".")
        found.append(mean.sel(layer=int(layer), head=int(head)).values)
    return np.stack(found)


def _tell(data: dict[str, Any], results: Results, facts: Facts) -> None:
    """Add what each head does, as far as it was measured: in a word, and in a sentence."""
    # What was not measured is not said.
    effects: dict[str, float] = {}
    if relevance.relevance in results:
        effects = relevance.without_each(results[relevance.relevance], facts.has_learned)
    shares = None
    if mechanism.attribution in results:
        variance = results.get(mechanism.variance)
        shares = mechanism.pooled(results[mechanism.attribution], variance)
    # A head's mark stands below its small map; what it does, beside its row of weights.
    for name in data["heads"]:
        said = []
        if name in effects:
            effect = number(effects[name])
            data["marks"][name] = f"×{effect}" if facts.has_learned else f"{effect} u"
            said.append(f"With its output at its mean, {_changed(effect, facts.has_learned)}.")
        if shares is not None:
            percent = number(100 * float(shares.sel(part=f"head {name}")), 2)
            said.append(f"It writes {percent} % of the prediction's variance into the read-out.")
        data["effects"][name] = " ".join(said)


def _changed(effect: str, on_error: bool) -> str:
    if on_error:
        return f"the squared error is {effect} times as large"
    return f"the prediction changes by {effect} u"
