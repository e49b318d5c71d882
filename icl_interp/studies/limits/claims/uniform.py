"""The claim of `limits` that attention averages uniformly over many tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses import output_unit, relevance
from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.analyses.relevance import Outcome, Standing
from icl_interp.models.scores import softmax
from icl_interp.probes.attention import AttentionEntropy, among, entropy_deficit, resampled_scores
from icl_interp.probes.record import Activations
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.resampling import simultaneous
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.softmax import HALF, MATTERS, MOST, RELEVANT, needs_softmax

UNIFORM = 0.105  # entropy deficit up to which a pattern counts as uniform (N_eff / n >= 0.9)
# The same as a share: of the tokens, e to the entropy of a pattern.
EVENLY = float(np.exp(-UNIFORM))
SHORTEST = 10.0  # tokens of a prompt from which an average over many of them can be spoken of
BEYOND = (2, 5, 10, 40)  # resampled lengths, in trained lengths
FEW_UNITS = 32  # for the curve of means over many keys, which take memory


def _lengths(lab: Lab) -> list[int]:
    """Points of the prompts that are shown: from 3 to the trained length."""
    n = lab.task.n_points
    return sorted({int(k) for k in np.geomspace(min(3, n), n, 7).round()})


def _two_contexts(lab: Lab) -> Prompts:
    """Two contexts of one function in each unit, so that what is due to the samples can be told."""
    return lab.prompts[
        (torch.arange(lab.n_units)[:, None] * lab.unit_size + torch.arange(2)).flatten()
    ]


def _direct(lab: Lab) -> list[Sweep]:
    """Patterns and outputs of heads at prompts of each length."""
    shown = _two_contexts(lab)
    names = [f"blocks.{i}.attn.hook_z" for i in range(lab.model.cfg.n_layers)]
    found = []
    for n_points in _lengths(lab):
        among = [None, *(keys for keys in _keys_by_kind(lab, n_points) if keys)]
        probes = [*(AttentionEntropy(keys=keys) for keys in among), Activations(names)]
        found.append(lab.ask(lab.inner, prompts=shown, n_points=n_points, probes=probes))
    return found


def _keys_by_kind(lab: Lab, n_points: int) -> list[list[int]]:
    """The tokens that show x, and those that show y; empty where no token is of this kind."""
    kinds = np.array(lab.encoding.kinds(n_points))
    return [np.flatnonzero(kinds == kind).tolist() for kind in ("x", "y")]


def _directly(lab: Lab, swept: Swept) -> np.ndarray:
    """(statistic, head), at prompts of one length."""
    *patterns, _ = swept.sweep.probes
    found = [one.results() for one in patterns]
    none = np.full(len(lab.heads), np.nan)

    def means(result: Mapping[str, Any], statistic: str) -> np.ndarray:
        return result[statistic].sel(statistic="mean").values.mean(-1).flatten()

    # Among all keys, then among those of each kind.
    rows = [means(found[0], "deficit"), means(found[0], "max_weight")]
    of_kinds = iter(found[1:])
    for keys in _keys_by_kind(lab, swept.sweep.n_points or lab.task.n_points):
        rows.append(means(next(of_kinds), "deficit") if keys else none)

    # Two contexts of a function stand together, where the sample has them.
    function = swept.prompts.function
    one_function = bool((function[::2] == function[1::2]).all())
    shares = []
    for z in swept.probe(Activations).recorded.values():
        z = z.transpose(1, 2).unflatten(0, (-1, 2))  # (function, context, head, query, d_head)
        within = z.var(1, unbiased=True).mean((0, 2, 3))
        total = z.flatten(0, 1).var(0).mean((1, 2))
        share = within / total.clamp(min=1e-300)
        shares.append(share if one_function else torch.full_like(total, torch.nan))
    return np.stack([*rows, torch.cat(shares).numpy()])


def _scores(lab: Lab) -> Sweep:
    """The scores of every head at in-distribution queries."""
    names = [f"blocks.{i}.attn.hook_attn_scores" for i in range(lab.model.cfg.n_layers)]
    return lab.ask(lab.inner, probes=[Activations(names)])


@measurement("heads/dispersion", version=2, asks=lambda lab: [*_direct(lab), _scores(lab)])
def dispersion(lab: Lab, swept: Sequence[Swept]) -> DataArray:
    """Entropy deficit log n - H and more, of every head at a query, as the prompt grows.

    The length is that of the prompt, in tokens. Measured directly for prompts of 3 points up to the
    trained length; beyond it by resampling the scores of that query at trained positions (exact in
    layer 0, where a key's score depends on its own token only; a counterfactual deeper).

    Statistics: deficit; max weight; deficit within x tokens and within y tokens; and the share of
    the head output's variance that is due to the samples, not the function (direct lengths only).
    The last one compares two contexts of one function, the first of each pair; it is NaN where the
    sample has one context of each function.
    """
    *direct, scores = swept
    n_points = _lengths(lab)
    lengths = [lab.encoding.n_tokens(k) for k in n_points]
    columns = [_directly(lab, one) for one in direct]
    seen = scores.probe(Activations)
    columns += [
        _resampled(lab, seen, factor * lengths[-1], FEW_UNITS).mean(-1) for factor in BEYOND
    ]
    lengths += [factor * lengths[-1] for factor in BEYOND]
    axes = {
        "statistic": (
            "deficit",
            "max weight",
            "deficit in x",
            "deficit in y",
            "variance from samples",
        ),
        "head": relevance.labels(lab),
        "n": tuple(lengths),
    }
    note = f"direct up to n = {lengths[len(n_points) - 1]} tokens, resampled scores beyond"
    return make_curve(np.stack(columns, -1), axes, note=note)


@measurement("heads/deficit", version=2, asks=_scores)
def deficit(lab: Lab, swept: Swept) -> DataArray:
    """Entropy deficit of heads by unit: at the trained length, at ten of them, in the limit.

    It is given at the trained length, at ten of them, and in the limit. Resampled from all keys
    that prompts of one function show to the same query; the functions of a pair are not mixed. The
    limit is exact for that law: with n keys drawn from a pool of N, log n - H tends to sum_i p_i
    log(p_i N), p the softmax over the pool. range is that of the scores: the deficit is at most
    min(range, range^2 / 8).
    """
    seen = swept.probe(Activations)
    trained, layers = lab.encoding.n_tokens(lab.task.n_points), []
    for scores in seen.recorded.values():
        pool = by_context(lab, scores)
        # No prompt shows the pooled scores, so no probe sees their pattern: the claim's softmax
        # (`needs_softmax`) does.
        now, limit = _deficit(pool).mean((2, 3)), _deficit(pool[..., :-1].flatten(-2)).mean(-1)
        lowest = pool.where(pool > -torch.inf, torch.inf).amin(-1)
        layers.append(torch.stack([now, limit, (pool.amax(-1) - lowest).mean((2, 3))]))
    parts = [
        *torch.cat(layers, -1).numpy(),
        _resampled(lab, seen, 10 * trained)[0].T,
    ]  # each (function, head)
    now, limit, extent, later = (
        part.reshape(lab.n_units, -1, part.shape[-1]).mean(1).T for part in parts
    )
    rows = [now, later, limit, extent]
    axes = {
        "n": ("trained", "10 x trained", "limit", "range"),
        "head": relevance.labels(lab),
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(rows, axes)


def by_context(lab: Lab, scores: torch.Tensor) -> torch.Tensor:
    """Scores (batch, head, query, key) as (function, head, query, context, key)."""
    return scores.unflatten(0, (len(lab.prompts.function.unique()), -1)).permute(0, 2, 3, 1, 4)


def _resampled(lab: Lab, seen: Activations, n: int, n_units: int | None = None) -> np.ndarray:
    """(statistic, head, function) for n keys: the query's own, the rest drawn from trained ones.

    Trained ones are those that prompts of the same function show. Of the first units only, where
    their number is given.
    """
    per_unit = len(lab.prompts.function.unique()) // lab.n_units
    layers, most = [], None if n_units is None else n_units * per_unit
    for (
        scores
    ) in seen.recorded.values():  # layer by layer, with the same draws: many keys take memory
        draw = generator(lab.seed, "heads/resampled", n)
        more, kinds = resampled_scores(
            by_context(lab, scores)[:most], lab.encoding.kinds(lab.task.n_points), n, draw
        )
        pattern = softmax(more)
        within = [
            _deficit(more, pattern, np.flatnonzero(np.array(kinds) == kind).tolist())
            for kind in ("x", "y")
        ]
        blank = torch.full(pattern.shape[:-1], torch.nan, dtype=pattern.dtype)
        layers.append(
            torch.stack([_deficit(more, pattern), pattern.amax(-1), *within, blank]).mean(-1)
        )
    return torch.cat(layers, -1).permute(0, 2, 1).numpy()


def _deficit(
    scores: Tensor, pattern: Tensor | None = None, keys: list[int] | None = None
) -> Tensor:
    """Entropy deficit of the pattern of some scores among the keys seen, or some of these.

    It is NaN where no key is seen.
    """
    visible = scores > -torch.inf  # counted first: scores of many keys take memory
    seen = (visible if keys is None else visible[..., keys]).sum(-1)
    pattern = softmax(scores) if pattern is None else pattern
    if not seen.numel() or int(seen.min()) == 0:
        return torch.full(pattern.shape[:-1], torch.nan, dtype=pattern.dtype)
    return entropy_deficit(
        pattern if keys is None else among(pattern, keys), seen.to(pattern.dtype)
    )


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Whether heads that matter average uniformly when there are many tokens."""
    mattering = relevance.Mattering.of(results, facts)
    trained = _trained_length(results[dispersion])
    found: dict[str, Found] = {
        "relevant heads": mattering.counted,
        "trained length": Estimate.exactly("trained length", trained, "tokens"),
    }
    if trained < SHORTEST:
        return found

    def counting(level: float) -> dict[str, Standing]:
        return mattering.among(level, _standings(results[deficit], level))

    return {**found, "share": relevance.share_of_heads("share", counting)}


def untrained(results: Results, facts: Facts) -> dict[str, Estimate]:
    """The share among all heads of an untrained control: none of them matters."""
    result = results.control[deficit]
    return {"share": relevance.share_of_heads("share", lambda level: _standings(result, level))}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """How many heads are uniform and where, each head, and what a uniform head costs."""
    scope = (
        "these weights, this task, in-distribution queries, up to 10 trained lengths (resampled "
        "scores)"
    )
    if "share" not in found:
        return Remarks(scope=scope)
    mattering = relevance.Mattering.of(results, facts)
    heads = mattering.among(relevance.USUAL, _standings(results[deficit], relevance.USUAL))
    swaps = results[relevance.relevance].sel(intervention="uniform", statistic="rise").values
    rises = swaps.mean(-1) / max(facts.error, 1e-300)
    rows = _dispersion_rows(results[dispersion], results[deficit], mattering.roles, rises)
    mine = [row for row in rows if heads[row["head"]].value != "out"]
    told = Remarks(scope=scope, causal=_causal(mine), details=rows)
    if not mine:
        return told
    counts = _counts(heads, mine)
    return replace(
        told,
        caveat=f"At ten trained lengths {counts['uniform at 10 trained lengths']} of {len(mine)} "
        f"are uniform, and in the limit of many tokens {counts['uniform in the limit']}.",
        details=(*rows, counts),
    )


def _trained_length(curve: DataArray) -> float:
    """Tokens of a prompt in training; the lengths behind it are resampled."""
    return float(curve["n"].values[-len(BEYOND) - 1])


def _causal(mine: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What it costs to make the attention of one head uniform."""
    rises = [row["uniform swap, relative rise of error"] for row in mine]
    return {
        "intervention": "make the attention of one head uniform",
        "criterion": "the error in distribution rises by at most 10 %",
        "effect": float(np.median(rises)) if rises else float("nan"),
        "relevant heads that can be made uniform": sum(r <= 0.1 for r in rises),
        "relevant heads": len(mine),
    }


def _counts(heads: Mapping[str, Standing], mine: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many of the heads that matter are uniform, and where."""
    return {
        "heads that matter": len(mine),
        "uniform at 10 trained lengths": sum(head.value == "yes" for head in heads.values()),
        "uniform in the limit": sum(row["limit"] <= UNIFORM for row in mine),
        "not yet at 10 trained lengths, but in the limit": sum(
            row["at 10 trained lengths"] > UNIFORM >= row["limit"] for row in mine
        ),
        "uniform among x tokens": sum(row["within x"] <= UNIFORM for row in mine),
        "uniform among y tokens": sum(row["within y"] <= UNIFORM for row in mine),
        "largest weight at 40 trained lengths": max(
            row["max weight at 40 trained lengths"] for row in mine
        ),
    }


def _standings(result: DataArray, level: float) -> dict[str, Standing]:
    """How each head counts: uniform at ten trained lengths, or not.

    A head that is uniform in the limit only, or is unclear, counts both ways.
    """
    at, limit = (result.sel(n=n).values.T for n in ("10 x trained", "limit"))  # (unit, head)
    _, low, high = simultaneous(
        lambda now, end: np.concatenate([now, end], -1), at, limit, level=level
    )
    n = at.shape[1]
    found = {}
    for i, name in enumerate(result.indexes["head"]):
        uniform, never = high[i] <= UNIFORM, min(low[i], low[n + i]) > UNIFORM
        possible: set[Outcome] = {"yes"} if uniform else {"no"} if never else {"yes", "no"}
        found[name] = Standing("yes" if at[:, i].mean() <= UNIFORM else "no", frozenset(possible))
    return found


def _dispersion_rows(
    curve: DataArray, result: DataArray, roles: Mapping[str, str], rises: np.ndarray
) -> tuple[dict[str, Any], ...]:
    rows = []
    for i, name in enumerate(curve.indexes["head"]):
        at, widest = result.sel(head=name).values.mean(-1), curve.sel(head=name).values
        bound = min(at[3], at[3] ** 2 / 8)
        rows.append(
            {
                "head": name,
                "relevant": roles[name],
                "at the trained length": float(at[0]),
                "at 10 trained lengths": float(at[1]),
                "limit": float(at[2]),
                "score range": float(at[3]),
                "bound min(R, R^2/8)": float(bound),
                "max weight at 40 trained lengths": float(widest[1, -1]),
                "within x": float(widest[2, -2]),
                "within y": float(widest[3, -2]),
                "variance from samples": float(widest[4, -len(BEYOND) - 1]),
                "uniform swap, relative rise of error": float(rises[i]),
            }
        )
    return tuple(rows)


LONG = Precondition(
    "trained length",
    at_least(SHORTEST),
    "Prompts of {value:.0f} tokens are too short to tell what attention does over many.",
)

CRITERION = Criterion(
    (
        Condition(
            "share",
            "share of the heads that matter that average uniformly",
            at_least(MOST),
            at_most(HALF),
            unit="share",
        ),
    ),
    (LONG, RELEVANT),
    terms=f"{MATTERS} It averages uniformly where its attention, at ten trained lengths, is spread "
    f"as evenly as over {EVENLY:.0%} of the n tokens (log n less the entropy of the attention is "
    f"at most {UNIFORM}). Heads in between, and those that are uniform in the limit of many tokens "
    "only, count both ways.",
)

SOFTMAX_UNIFORM_CLAIM = Claim(
    id="limits.softmax_uniform",
    question="attention",
    statement="Over many tokens nearly all heads that matter average uniformly.",
    denied="Even over many tokens at least half of the heads that matter do not average uniformly.",
    quote=Quote(
        "Second, when dealing with long sequences where the input values are both numerous and "
        "similar in"
        " magnitude, softmax tends to a uniform distribution.",
        "Naim & Asher (2025), section 6, after Proposition 4 (also appendix G.2)",
        "The paper gives no measurement, and appendix G.2 drops the condition of similar values. "
        "We measure how far each head that matters is from uniform at ten times the trained number "
        "of tokens; beyond the trained length its scores are drawn from those at trained "
        "positions.",
    ),
    kind="architecture",
    criterion=CRITERION,
    measurements=(output_unit.own, relevance.relevance, dispersion, deficit),
    control=(deficit,),
    aspects=("shares of heads",),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    excluded=needs_softmax,
    figures=("dispersion",),
)
