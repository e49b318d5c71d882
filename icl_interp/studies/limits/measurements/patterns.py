"""Attention patterns of polynomials by their degree, and predictions with patterns exchanged.

Every degree meets the same inputs. Points are exchangeable, so a mean pattern by position would
average away whatever attention makes of their content: keys are therefore lined up by how near
their x is to the query's. Heads without which predictions do not move are left out, and so are
layers that have no others.
"""

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


# ---- prompts and patterns ------------------------------------------------------------------------


def degrees(lab: Lab) -> list[int]:
    """1 up to the largest degree trained on."""
    return list(range(1, polynomial_task(lab).max_degree + 1))


def others(lab: Lab, degree: int) -> Prompts:
    """The same inputs with other functions of the same degree: those of the sample's next unit."""
    prompts, per = polynomials(lab, degree), prompts_per_unit(lab)
    parameters = prompts.parameters.roll(-per, 0)
    return Prompts(
        prompts.xs,
        lab.task.targets(parameters, prompts.xs),
        parameters,
        prompts.function.roll(-per, 0),
    )


def some(lab: Lab, prompts: Prompts, n: int = N_PROMPTS) -> Prompts:
    """So many prompts of each unit: as many of either partner of a pair.

    One prompt is the first partner's.
    """
    per = prompts_per_unit(lab)
    return prompts[torch.arange(len(prompts)) % per % max(per // n, 1) == 0]


def by_nearness(lab: Lab, prompts: Prompts) -> Tensor:
    """The keys of each prompt's last query, (batch, key): pairs from the nearest x to the furthest.

    The query itself is last. An interleaved pair has two keys, first its x and then its y.
    """
    n = prompts.n_points
    order = (prompts.xs[:, :-1, 0] - prompts.xs[:, -1:, 0]).abs().argsort(stable=True, dim=-1)
    each = (lab.encoding.n_tokens(n) - 1) // (n - 1)
    keys = (each * order[..., None] + torch.arange(each)).flatten(1)
    return torch.cat([keys, torch.full((len(prompts), 1), each * (n - 1))], 1)


def last_patterns(lab: Lab, prompts: Prompts) -> Float[Tensor, "batch layer head key"]:
    """Attention of the last query, keys by position.

    It is computed in float32, as the model runs, and returned in float64.
    """
    seen = Activations([f"blocks.{i}.attn.hook_pattern" for i in range(lab.model.cfg.n_layers)])
    lab.last_predictions(prompts, [seen])
    return torch.stack([pattern[:, :, 0] for pattern in seen.recorded.values()], 1).double()


def variation(a: Tensor, b: Tensor) -> Tensor:
    """Total variation of two patterns: half the sum of |a - b| over keys, the weight that moves.

    It is the mean over heads.
    """
    return 0.5 * (a - b).abs().sum(-1).mean(-1)


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
    levels, n_layers = degrees(lab), lab.model.cfg.n_layers
    moving = relevance.that_move(effects)
    kept: dict[int, list[int]] = {i: [] for i in range(n_layers)}
    for (layer, head), moves in zip(lab.heads, moving, strict=True):
        kept[layer] += [head] if moves else []
    layers = [i for i in range(n_layers) if kept[i]]
    own = torch.stack([last_patterns(lab, some(lab, polynomials(lab, d))) for d in levels], 1)
    other = torch.stack([last_patterns(lab, some(lab, others(lab, d), 1)) for d in levels], 1)
    keys = by_nearness(lab, some(lab, polynomials(lab, levels[0])))
    near = own.gather(-1, keys[:, None, None, None].expand_as(own))
    permuted = torch.rand(
        lab.n_units, len(levels), generator=generator(lab.seed, "patterns/permutation")
    ).argsort(1)
    permuted = permuted.repeat_interleave(len(near) // lab.n_units, 0)  # units are permuted whole
    shuffled = near[torch.arange(len(near))[:, None], permuted]
    pairs = list(combinations(range(len(levels)), 2))
    values = np.full((len(pairs) + 1, n_layers + 1, 10), np.nan)
    draws, responses = [], []
    for layer in layers:
        heads = kept[layer]
        between, within = _draws(lab, near[:, :, layer, heads], pairs)
        ratio = between / np.maximum(within, RESPONDS)
        draws.append(ratio)
        responses.append(within)
        plain, noise = (
            _draws(lab, p[:, :, layer, heads], pairs, just_mean=True) for p in (own, shuffled)
        )
        values[:-1, layer, 0], values[:-1, layer, 1] = between[0], within[0]
        values[:-1, layer, 5] = (plain[0] / np.maximum(plain[1], RESPONDS))[0]
        values[:-1, layer, 6] = (noise[0] / np.maximum(noise[1], RESPONDS))[0]
        mine = own[:: len(own) // len(other), :, layer, heads]
        values[:-1, layer, 7] = _excess(mine, other[:, :, layer, heads], pairs)
    if layers:
        ratios = np.stack(draws, -1)  # (draw, pair, layer)
        ratios = np.concatenate([ratios, ratios.max(1, keepdims=True)], 1)
        ratios = np.concatenate([ratios, ratios.max(2, keepdims=True)], 2)
        at = [*layers, n_layers]
        low, high = np.quantile(ratios[1:], [0.025, 0.975], axis=0)
        # Noise only adds to distances, so draws lie above what was measured.
        values[:, at, 2], values[:, at, 3], values[:, at, 4] = (
            ratios[0],
            np.minimum(low, ratios[0]),
            high,
        )
        for column in (0, 1, 5, 6, 7):  # the largest of each, its smallest for the distance within
            most = np.min if column == 1 else np.max
            values[-1, layers, column] = most(values[:-1, layers, column], 0)
            values[:, -1, column] = most(values[:, layers, column], 1)
        response = np.mean(responses, (0, 2))  # by draw
        values[-1, -1, 8:] = np.quantile(response[1:], [0.025, 0.975])
    axes = {
        "pair": (*(f"{levels[a]} ~ {levels[b]}" for a, b in pairs), LARGEST),
        "layer": (*range(n_layers), LARGEST),
        "statistic": (*BY_LAYER, "response low", "response high"),
    }
    return make_array(
        values, axes, note=f"{len(own)} prompts a degree, the same inputs for all; float32"
    )


def _draws(
    lab: Lab,
    patterns: Float[Tensor, "batch degree head key"],
    pairs: list[tuple[int, int]],
    just_mean: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Distances of mean patterns, and of prompts of the two degrees: each (draw, pair).

    The first draw is not resampled.
    """
    per = len(patterns) // lab.n_units
    shifts = range(1, min(N_SHIFTS, lab.n_units - 1) + 1)
    within = torch.stack([variation(patterns, patterns.roll(per * s, 0)) for s in shifts]).mean(0)
    weights = np.full((1, lab.n_units), 1 / lab.n_units)
    if not just_mean:
        weights = np.concatenate([weights, draw_weights(lab.n_units)])
    profiles = np.tensordot(weights, lab.by_unit(patterns), axes=1)  # (draw, degree, head, key)
    one = weights @ lab.by_unit(within)
    between = [0.5 * np.abs(profiles[:, a] - profiles[:, b]).sum(-1).mean(-1) for a, b in pairs]
    return np.stack(between, 1), np.stack([(one[:, a] + one[:, b]) / 2 for a, b in pairs], 1)


def _excess(own: Tensor, other: Tensor, pairs: list[tuple[int, int]]) -> list[float]:
    """Distance between functions of two degrees over that of one degree, less 1.

    Both are taken at the same inputs.
    """
    same = [float(variation(own[:, a], other[:, a]).mean()) for a in range(own.shape[1])]
    out = []
    for a, b in pairs:
        # Functions of two degrees share their first coefficients where they have the same number:
        # take another.
        across = (variation(own[:, a], other[:, b]) + variation(other[:, a], own[:, b])).mean() / 2
        base = (same[a] + same[b]) / 2
        out.append(
            (float(across) - base) / max(base, 1e-12)
        )  # patterns that read inputs only: no excess
    return out


@measurement("patterns/swapped", version=2)
def swapped(lab: Lab) -> DataArray:
    """Squared error at the last query when the model attends as it would to another function.

    The other function has the same inputs.

    Sources: "own" (nothing replaced), "degree d" (all patterns, at every position, from another
    function of degree d; the target's own degree is the control), "uniform". Also the error of
    always saying 0. One prompt of each unit; the lowest degree and the highest.
    """
    levels = degrees(lab)[:: len(degrees(lab)) - 1]
    sources = ("own", *(f"degree {d}" for d in levels), "uniform", "zero")
    values = np.empty((len(levels), len(sources), lab.n_units))
    targets, givers = (
        [some(lab, draw(lab, d), 1) for d in levels] for draw in (polynomials, others)
    )
    for start in range(0, lab.n_units, CHUNK):
        part = slice(start, start + CHUNK)
        kept = [
            PutPatterns.measure(lab.single, lab.tokens(prompts[part]).float()) for prompts in givers
        ]
        for t, prompts in enumerate(targets):
            edits = ((), *((k,) for k in kept), (SwapPattern("uniform"),))
            for s, edit in enumerate(edits):
                values[t, s, part] = (
                    (_query(lab, prompts[part], *edit) - prompts.ys[part, -1]).square().mean(-1)
                )
            values[t, -1, part] = prompts.ys[part, -1].square().mean(-1)
    axes = {
        "target": tuple(f"degree {d}" for d in levels),
        "source": sources,
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(
        values, axes, note="one prompt of each unit, the same inputs for every degree; float32"
    )


def _query(lab: Lab, prompts: Prompts, *edits: Intervention) -> Float[Tensor, "batch target"]:
    tokens = lab.tokens(prompts).float()
    last = tokens.shape[1] - 1
    with torch.no_grad(), intervene(lab.single, *edits):
        return lab.single(tokens, range(last, last + 1))[:, 0].double().cpu()
