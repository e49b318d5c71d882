"""Attention and points of a few prompts, to look through in the page. No claim rests on it."""

from typing import Any

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement, measurement
from icl_interp.analyses.mechanism import token_names
from icl_interp.probes.record import Activations
from icl_interp.probes.runner import probe
from icl_interp.results import make_array

HEADS = 12  # of which patterns are kept
PROMPTS = 2
MOST = 40_000  # weights of all patterns
DECIMALS = 4  # of a weight
SHOWN = 4  # channels of a token
CONTEXTS = 12  # whose points are kept


@measurement("mechanism/example patterns", needs=(relevance.relevance,))
def patterns(lab: Lab, found: DataArray) -> DataArray:
    """Attention weights in a few prompts: (prompt, head, query, key), to `DECIMALS` places.

    Of a model with many heads, or long prompts, those heads are kept whose mean ablation moves the
    prediction most.
    """
    n_weights = _n_tokens(lab) ** 2
    n_heads = min(HEADS, MOST // n_weights, len(lab.heads))
    n_prompts = min(PROMPTS, MOST // (n_weights * n_heads))
    ablated = found.sel(intervention="mean ablation", statistic="movement")
    moved = ablated.mean("unit").values
    largest = np.argsort(-moved, kind="stable")
    kept = sorted(largest[:n_heads].tolist())
    # One run of the prompts shows the patterns of all layers, each (prompt, head, query, key).
    names = []
    for layer in range(lab.model.cfg.n_layers):
        names.append(f"blocks.{layer}.attn.hook_pattern")
    record = Activations(names)
    prompts = lab.one_each[:n_prompts]
    probe(lab.single, prompts, [record], lab.encoding)
    seen = []
    for number in kept:
        layer, head = lab.heads[number]
        of_layer = record.recorded[names[layer]]
        seen.append(of_layer[:, head].double().numpy())
    labels = relevance.labels(lab)
    shown = _names(lab)
    axes = {"prompt": range(n_prompts), "head": [labels[number] for number in kept]}
    axes |= {"query": shown, "key": shown}
    weights = np.stack(seen, 1).round(DECIMALS)
    return make_array(weights, axes, "", "prompts in distribution")


@measurement("mechanism/example tokens")
def tokens(lab: Lab) -> DataArray:
    """What the tokens of these prompts show: (prompt, token, channel), the first channels."""
    prompts = lab.one_each[:PROMPTS]
    first_channels = lab.tokens(prompts)[..., :SHOWN]
    shown = first_channels.double().cpu().numpy()
    n_prompts, _, n_channels = shown.shape
    axes = {"prompt": range(n_prompts), "token": _names(lab), "channel": range(n_channels)}
    return make_array(shown, axes)


@measurement("mechanism/example points")
def points(lab: Lab) -> DataArray:
    """The labelled points (x, f(x)) of one prompt of each of the first units: (context, point, of).

    For inputs and values that are numbers.
    """
    prompts = lab.one_each[:CONTEXTS]
    shown = torch.cat([prompts.xs, prompts.ys], -1)[:, :-1].double().cpu().numpy()
    n_contexts, n_points, _ = shown.shape
    axes = {"context": range(n_contexts), "point": range(n_points), "of": ("x", "y")}
    return make_array(shown, axes)


def measurements(lab: Lab) -> list[Measurement[Any]]:
    """Those that the lab's model has something for.

    Patterns and tokens need a head whose pattern is small enough; points need numbers.
    """
    found: list[Measurement[Any]] = []
    if lab.heads and _n_tokens(lab) ** 2 <= MOST:
        found += [patterns, tokens]
    if lab.few.xs.shape[-1] == lab.few.n_targets == 1 and not lab.task.autoregressive:
        found.append(points)
    return found


def _names(lab: Lab) -> list[str]:
    """Of the tokens of a prompt."""
    kinds = lab.encoding.kinds(lab.few.n_points)
    return token_names(kinds)


def _n_tokens(lab: Lab) -> int:
    return len(_names(lab))
