"""Attention patterns of polynomials by their degree, and predictions with patterns exchanged.

Every degree meets the same inputs. Points are exchangeable, so a mean pattern by position would
average away whatever attention makes of their content: keys are therefore lined up by how near
their x is to the query's. Heads without which predictions do not move are left out, and so are
layers that have no others.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.attention import PutPatterns, SwapPattern
from icl_interp.interventions.base import Intervention, intervene
from icl_interp.probes.record import Activations
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.resampling import draw_weights
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements.classes import (
    polynomial_task,
    polynomials,
    prompts_per_unit,
)

# Distance between prompts, in weight moved, below which patterns do not depend on the prompt.
RESPONDS = 0.05
CHUNK = 64  # prompts at once where whole patterns are kept
# Prompts of each unit, and one where two functions meet the same inputs: a report must stay quick.
N_PROMPTS = 2
N_SHIFTS = 4  # other prompts that each one is compared with
LARGEST = "largest"
BY_LAYER = ("between", "within", "ratio", "low", "high", "by position", "shuffled", "excess")
STATISTICS = (*BY_LAYER, "response low", "response high")
PERCENTILES = (0.025, 0.975)


# ---- prompts and patterns ------------------------------------------------------------------------


def degrees(lab: Lab) -> list[int]:
    """1 up to the largest degree trained on."""
    largest = polynomial_task(lab).max_degree
    return list(range(1, largest + 1))


def others(lab: Lab, degree: int) -> Prompts:
    """The same inputs with other functions of the same degree: those of the sample's next unit."""
    prompts = polynomials(lab, degree)
    xs = prompts.xs
    per = prompts_per_unit(lab)
    parameters = prompts.parameters.roll(-per, 0)
    function = prompts.function.roll(-per, 0)
    ys = lab.task.targets(parameters, xs)
    return Prompts(xs, ys, parameters, function)


def some(lab: Lab, prompts: Prompts, n: int = N_PROMPTS) -> Prompts:
    """So many prompts of each unit: as many of either partner of a pair.

    One prompt is the first partner's.
    """
    per = prompts_per_unit(lab)
    every = max(per // n, 1)
    in_unit = torch.arange(len(prompts)) % per
    return prompts[in_unit % every == 0]


def by_nearness(lab: Lab, prompts: Prompts) -> Tensor:
    """The keys of each prompt's last query, (batch, key): pairs from the nearest x to the furthest.

    The query itself is last. An interleaved pair has two keys, first its x and then its y.
    """
    n_points = prompts.n_points
    n_pairs = n_points - 1
    xs = prompts.xs[..., 0]
    offset = xs[:, :-1] - xs[:, -1:]
    order = offset.abs().argsort(stable=True, dim=-1)
    n_tokens = lab.encoding.n_tokens(n_points)
    each = (n_tokens - 1) // n_pairs
    keys = each * order[..., None] + torch.arange(each)
    query = each * n_pairs
    own = torch.full((len(prompts), 1), query)
    return torch.cat([keys.flatten(1), own], 1)


def last_patterns(lab: Lab, prompts: Prompts) -> Float[Tensor, "batch layer head key"]:
    """Attention of the last query, keys by position.

    It is computed in float32, as the model runs, and returned in float64.
    """
    n_layers = lab.model.cfg.n_layers
    hooks = [f"blocks.{i}.attn.hook_pattern" for i in range(n_layers)]
    seen = Activations(hooks)
    lab.last_predictions(prompts, [seen])
    recorded = list(seen.recorded.values())
    patterns = torch.stack(recorded, 1)  # (batch, layer, head, query, key)
    return patterns[:, :, :, 0].double()


def variation(a: Tensor, b: Tensor) -> Tensor:
    """Total variation of two patterns: half the sum of |a - b| over keys, the weight that moves.

    It is the mean over heads.
    """
    change = (a - b).abs()
    distance = change.sum(-1)
    return 0.5 * distance.mean(-1)


# ---- measurements --------------------------------------------------------------------------------


@measurement("patterns/degrees", version=3, needs=(relevance.relevance,))
def distances(lab: Lab, effects: DataArray) -> DataArray:
    """How far apart patterns of two degrees are, against prompts of one degree, by layer.

    It is given for each pair of degrees and each layer, of heads that move predictions
    (`relevance.that_move`); NaN for a layer without any.

    Statistics, in weight moved (total variation, mean over heads):
        between: distance of the two degrees' mean patterns, keys lined up by nearness.
        within: mean distance between two prompts of the same degree (other functions, other
            inputs), lined up alike.
        ratio: between / within, within no less than `RESPONDS`; low and high from 2,000 draws of
            units. "largest" is the maximum over pairs, over layers, or both, in every draw.
        response low, response high: of the interval of the mean of "within" over layers and pairs;
            in "largest" only.
        by position: the ratio with keys as they stand. shuffled: with the degrees of each unit
            permuted, which leaves what the sample's size makes.
        excess: the distance between functions of the two degrees at the *same* inputs over that
            between two functions of one degree at the same inputs, less 1: sees what means over
            prompts do not.
    """
    levels = degrees(lab)
    n_layers = lab.model.cfg.n_layers
    heads_of = _moving_heads(lab, effects)
    layers = list(heads_of)

    # Patterns by position, lined up by nearness, and lined up with the degrees shuffled.
    own = _by_degree(lab, polynomials, N_PROMPTS)
    other = _by_degree(lab, others, 1)
    of_first = polynomials(lab, levels[0])
    asked = some(lab, of_first)
    keys = by_nearness(lab, asked)
    near = own.gather(-1, keys[:, None, None, None].expand_as(own))
    shuffled = _with_degrees_shuffled(lab, near)

    pairs = list(combinations(range(len(levels)), 2))
    shape = (len(pairs) + 1, n_layers + 1)
    values = {name: np.full(shape, np.nan) for name in STATISTICS}
    ratios = []
    responses = []
    step = len(own) // len(other)
    for layer, heads in heads_of.items():
        between, within = _draws(lab, near[:, :, layer, heads], pairs)
        ratios.append(_ratio(between, within))
        responses.append(within)
        plain = _draws(lab, own[:, :, layer, heads], pairs, just_mean=True)
        noise = _draws(lab, shuffled[:, :, layer, heads], pairs, just_mean=True)
        mine = own[::step, :, layer, heads]
        its = other[:, :, layer, heads]
        by_pair = {
            "between": between[0],
            "within": within[0],
            "by position": _ratio(*plain)[0],
            "shuffled": _ratio(*noise)[0],
            "excess": _excess(mine, its, pairs),
        }
        for name, column in by_pair.items():
            values[name][:-1, layer] = column
    if layers:
        by_layer = np.stack(ratios, -1)
        _add_ratios(values, by_layer, layers)
        _add_largest(values, layers)
        response = np.mean(responses, (0, 2))  # by draw
        low, high = np.quantile(response[1:], PERCENTILES)
        values["response low"][-1, -1] = low
        values["response high"][-1, -1] = high

    names = [f"{levels[a]} ~ {levels[b]}" for a, b in pairs]
    axes = {
        "pair": (*names, LARGEST),
        "layer": (*range(n_layers), LARGEST),
        "statistic": STATISTICS,
    }
    note = f"{len(own)} prompts a degree, the same inputs for all; float32"
    tables = list(values.values())
    return make_array(np.stack(tables, -1), axes, note=note)


def _moving_heads(lab: Lab, effects: DataArray) -> dict[int, list[int]]:
    """The heads of each layer that move predictions; layers that have any."""
    found: dict[int, list[int]] = {}
    moving = relevance.that_move(effects)
    for (layer, head), moves in zip(lab.heads, moving, strict=True):
        if moves:
            found.setdefault(layer, []).append(head)
    return found


def _by_degree(
    lab: Lab, draw: Callable[[Lab, int], Prompts], n: int
) -> Float[Tensor, "batch degree layer head key"]:
    """Last patterns of so many prompts of each unit, for every degree."""
    patterns = []
    for degree in degrees(lab):
        prompts = some(lab, draw(lab, degree), n)
        patterns.append(last_patterns(lab, prompts))
    return torch.stack(patterns, 1)


def _with_degrees_shuffled(lab: Lab, patterns: Tensor) -> Tensor:
    """The same patterns with the degrees of each unit permuted."""
    draw = generator(lab.seed, "patterns/permutation")
    n_units = lab.n_units
    n_prompts = len(patterns)
    n_degrees = patterns.shape[1]
    noise = torch.rand(n_units, n_degrees, generator=draw)
    order = noise.argsort(1)
    permuted = order.repeat_interleave(n_prompts // n_units, 0)  # units are permuted whole
    rows = torch.arange(n_prompts)[:, None]
    return patterns[rows, permuted]


def _ratio(between: np.ndarray, within: np.ndarray) -> np.ndarray:
    return between / np.maximum(within, RESPONDS)


def _add_ratios(
    values: Mapping[str, np.ndarray], ratios: np.ndarray, layers: Sequence[int]
) -> None:
    """Fill in ratio, low and high from draws: (draw, pair, layer)."""
    over_pairs = ratios.max(1, keepdims=True)
    ratios = np.concatenate([ratios, over_pairs], 1)
    over_layers = ratios.max(2, keepdims=True)
    ratios = np.concatenate([ratios, over_layers], 2)
    measured = ratios[0]
    low, high = np.quantile(ratios[1:], PERCENTILES, axis=0)
    at = [*layers, -1]
    values["ratio"][:, at] = measured
    # Noise only adds to distances, so draws lie above what was measured.
    values["low"][:, at] = np.minimum(low, measured)
    values["high"][:, at] = high


def _add_largest(values: Mapping[str, np.ndarray], layers: Sequence[int]) -> None:
    """Fill in the largest of each statistic over pairs and over layers.

    Of the distance within it is the smallest.
    """
    for name in ("between", "within", "by position", "shuffled", "excess"):
        most = np.min if name == "within" else np.max
        table = values[name]
        table[-1, layers] = most(table[:-1, layers], 0)
        table[:, -1] = most(table[:, layers], 1)


def _draws(
    lab: Lab,
    patterns: Float[Tensor, "batch degree head key"],
    pairs: list[tuple[int, int]],
    just_mean: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Distances of mean patterns, and of prompts of the two degrees: each (draw, pair).

    The first draw is not resampled.
    """
    n_units = lab.n_units
    weights = np.full((1, n_units), 1 / n_units)
    if not just_mean:
        weights = np.concatenate([weights, draw_weights(n_units)])

    # Within: each prompt beside those of the next units.
    per = len(patterns) // n_units
    n_shifts = min(N_SHIFTS, n_units - 1)
    moved = []
    for shift in range(1, n_shifts + 1):
        shifted = patterns.roll(per * shift, 0)
        moved.append(variation(patterns, shifted))
    mean_moved = torch.stack(moved).mean(0)
    of_degree = weights @ lab.by_unit(mean_moved)  # (draw, degree)

    profiles = np.tensordot(weights, lab.by_unit(patterns), axes=1)  # (draw, degree, head, key)
    between = []
    within = []
    for a, b in pairs:
        change = profiles[:, a] - profiles[:, b]
        weight = np.abs(change).sum(-1)
        between.append(0.5 * weight.mean(-1))
        both = of_degree[:, a] + of_degree[:, b]
        within.append(both / 2)
    return np.stack(between, 1), np.stack(within, 1)


def _excess(own: Tensor, other: Tensor, pairs: list[tuple[int, int]]) -> list[float]:
    """Distance between functions of two degrees over that of one degree, less 1.

    Both are taken at the same inputs.
    """
    same = []
    for degree in range(own.shape[1]):
        moved = variation(own[:, degree], other[:, degree])
        same.append(float(moved.mean()))
    out = []
    for a, b in pairs:
        # Functions of two degrees share their first coefficients where they have the same number:
        # take another.
        one_way = variation(own[:, a], other[:, b])
        other_way = variation(other[:, a], own[:, b])
        both = one_way + other_way
        across = float(both.mean() / 2)
        base = (same[a] + same[b]) / 2
        least = max(base, 1e-12)  # patterns that read inputs only: no excess
        out.append((across - base) / least)
    return out


@measurement("patterns/swapped", version=2)
def swapped(lab: Lab) -> DataArray:
    """Squared error at the last query when the model attends as it would to another function.

    The other function has the same inputs.

    Sources: "own" (nothing replaced), "degree d" (all patterns, at every position, from another
    function of degree d; the target's own degree is the control), "uniform". Also the error of
    always saying 0. One prompt of each unit; the lowest degree and the highest.
    """
    trained = degrees(lab)
    levels = trained[:: len(trained) - 1]
    names = tuple(f"degree {d}" for d in levels)
    sources = ("own", *names, "uniform", "zero")
    targets = [some(lab, polynomials(lab, d), 1) for d in levels]
    givers = [some(lab, others(lab, d), 1) for d in levels]
    n_units = lab.n_units
    values = np.empty((len(levels), len(sources), n_units))
    uniform = SwapPattern("uniform")
    # Whole patterns take memory: a part of the prompts at a time.
    for start in range(0, n_units, CHUNK):
        part = slice(start, start + CHUNK)
        edits: list[list[Intervention]] = [[]]
        for prompts in givers:
            tokens = lab.tokens(prompts[part])
            given = PutPatterns.measure(lab.single, tokens.to(lab.single.numbers))
            edits.append([given])
        edits.append([uniform])
        for t, prompts in enumerate(targets):
            shown = prompts[part]
            truth = shown.ys[:, -1]
            for s, edit in enumerate(edits):
                predicted = _query(lab, shown, *edit)
                missed = predicted - truth
                values[t, s, part] = missed.square().mean(-1)
            values[t, -1, part] = truth.square().mean(-1)
    units = tuple(range(n_units))
    axes = {"target": names, "source": sources, "unit": units}
    note = "one prompt of each unit, the same inputs for every degree; float32"
    return make_array(values, axes, note=note)


def _query(lab: Lab, prompts: Prompts, *edits: Intervention) -> Float[Tensor, "batch target"]:
    tokens = lab.tokens(prompts).to(lab.single.numbers)
    n_tokens = tokens.shape[1]
    at_query = range(n_tokens - 1, n_tokens)
    with torch.no_grad(), intervene(lab.single, *edits):
        predicted = lab.single(tokens, at_query)
    return predicted[:, 0].double().cpu()
