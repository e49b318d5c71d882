"""The claim of `limits` that attention patterns are alike whatever degree the context shows.

The degree is that of a polynomial. Every degree meets the same inputs. Points are exchangeable, so
a mean pattern by position would average away whatever attention makes of their content: keys are
therefore lined up by how near their x is to the query's. Heads without which predictions do not
move are left out, and so are layers that have no others.
"""

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.analyses.natural import plain
from icl_interp.interventions.attention import PutPatterns, SwapPattern
from icl_interp.interventions.base import Intervention, intervene
from icl_interp.probes.record import Activations
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap, draw_weights
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements.classes import (
    needs_polynomials,
    polynomial_in,
    polynomial_task,
    polynomials,
    prompts_per_unit,
)

# A small effect: the mean patterns of two degrees, in units of the distance between two prompts.
ALIKE = 0.2
UNLIKE = 0.5  # a medium one
# Distance between prompts, in weight moved, below which patterns do not depend on the prompt.
RESPONDS = 0.05
CHUNK = 64  # prompts at once where whole patterns are kept
# Prompts of each unit, and one where two functions meet the same inputs: a report must stay quick.
N_PROMPTS = 2
N_SHIFTS = 4  # other prompts that each one is compared with
LARGEST = "largest"
BY_LAYER = ("between", "within", "ratio", "low", "high", "by position", "shuffled", "excess")
SCOPE = (
    "these weights, this task, the last query in distribution, polynomials of degree 1 to the "
    "largest trained on"
)


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


# ---- the evidence --------------------------------------------------------------------------------

CRITERION = Criterion(
    (
        Condition(
            "ratio",
            "distance of two degrees' mean patterns over that of two prompts",
            at_most(ALIKE),
            at_least(UNLIKE),
        ),
        Condition(
            "response",
            "distance of two prompts of one degree, in attention weight moved",
            at_least(RESPONDS),
            unit="share",
        ),
    ),
    terms="A distance is the attention weight that moves (total variation), keys lined up by "
    "nearness to the query. Two prompts are of one degree. The first number is the largest over "
    "pairs of degrees and over layers. Patterns that hardly depend on the prompt are no evidence.",
)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The largest ratio, and how far prompts of one degree are apart.

    The latter is a mean over layers and pairs of degrees.
    """
    result = results[distances]
    ratio, low, high = (_largest(result, name) for name in ("ratio", "low", "high"))
    within = result.sel(statistic="within").values[:-1, :-1]
    known = within[np.isfinite(within)]
    response = float(known.mean()) if known.size else float("nan")
    least = min(_largest(result, "response low"), response)
    most = max(_largest(result, "response high"), response)
    return {"ratio": Interval(ratio, low, high), "response": Interval(response, least, most)}


def _largest(result: DataArray, statistic: str) -> float:
    return _cell(result, LARGEST, statistic)


def _cell(result: DataArray, layer: int | str, statistic: str) -> float:
    """A statistic of a layer, the largest over pairs of degrees."""
    return float(result.sel(pair=LARGEST, layer=layer, statistic=statistic).values)


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Where patterns are furthest apart, what noise alone makes, and every layer."""
    result = results[distances]
    table = result.sel(statistic="ratio").values[:-1, :-1]
    pair, layer = np.unravel_index(np.nan_to_num(table, nan=-1.0).argmax(), table.shape)
    first, second = str(result.indexes["pair"][pair]).split(" ~ ")
    rows = []
    for i in result.indexes["layer"]:
        if i != LARGEST and np.isfinite(_cell(result, i, "within")):
            rows.append({"layer": i, **{name: _cell(result, i, name) for name in BY_LAYER}})
    return Remarks(
        scope=SCOPE,
        caveat=f"Furthest apart are degrees {first} and {second} in layer {layer}; with degrees "
        f"shuffled (noise alone) it is {plain(_largest(result, 'shuffled'))}.",
        causal=_causal(results[swapped]),
        details=tuple(rows),
    )


def _causal(patched: DataArray) -> dict[str, Any]:
    """What attending as to another degree costs; the control attends as to one of the same."""
    targets = patched.indexes["target"]

    def rate(pick: Callable[[str], list[str]]) -> float:
        error, zero = [], []
        for target in targets:
            for source in pick(target):
                error.append(patched.sel(target=target, source=source).values)
                zero.append(patched.sel(target=target, source="zero").values)
        return bootstrap(
            lambda e, z: e / np.maximum(z, np.finfo(float).tiny),
            np.mean(error, 0),
            np.mean(zero, 0),
        ).value

    return {
        "intervention": "attend as the model would to another function at the same inputs, all "
        "layers and positions",
        "effect": rate(lambda target: [t for t in targets if t != target]),
        "sham: the other function has the same degree": rate(lambda target: [target]),
        "intact": rate(lambda target: ["own"]),
        "uniform patterns": rate(lambda target: ["uniform"]),
        "unit": "squared error at the last query / that of predicting 0",
    }


def _one_degree(facts: Facts) -> str | None:
    reason = needs_polynomials(facts)
    config = facts.config
    if config.mlp_only:
        return "The claim is about attention; this model has none."
    if not config.weights_add_up:
        return "The claim is about attention weights that add up to 1; this model's do not."
    if reason:
        return reason
    if polynomial_in(facts).max_degree < 2:
        return (
            "The claim compares two degrees from 1 up; this model was trained on degree 1 at most."
        )
    return None


PATTERNS_ALIKE_CLAIM = Claim(
    id="limits.patterns_alike",
    question="attention",
    statement="Attention patterns are alike for polynomials of every degree.",
    denied="Attention patterns differ between polynomials of different degrees.",
    quote=Quote(
        "Moreover, an analysis of the attention weights at all 12 layers in our best models showed "
        "remarkably similar patterns, regardless of the complexity of the polynomial being "
        "computed ...",
        "Naim & Asher (2025), section 4.1, before Proposition 1 (repeated in section 6)",
        "The paper does not say how patterns were compared. We compare the mean patterns of two "
        "degrees with the usual distance between two prompts of one degree, at the last query.",
    ),
    kind="learning",
    criterion=CRITERION,
    measurements=(distances, swapped),
    control=(distances,),
    aspects=("depth", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=_one_degree,
    figures=("layers",),
)
