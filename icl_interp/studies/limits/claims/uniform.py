"""The claim of `limits` that attention averages uniformly over many tokens."""

from typing import Any

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.provenance import generator
from icl_interp.resampling import bootstrap
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.softmax import RELEVANT, needs_softmax

UNIFORM = 0.105  # entropy deficit up to which a pattern counts as uniform (N_eff / n >= 0.9)
SHORTEST = 10.0  # tokens of a prompt from which an average over many of them can be spoken of
BEYOND = (2, 5, 10, 40)  # resampled lengths, in trained lengths


def deficits(pattern: torch.Tensor) -> torch.Tensor:
    """log n - H of each row: 0 for a uniform pattern.

    >>> bool(deficits(torch.full((1, 8), 0.125)).abs() < 1e-6)
    True
    """
    return np.log(pattern.shape[-1]) + torch.xlogy(pattern, pattern).sum(-1)


@measurement("heads/dispersion")
def dispersion(lab: Lab) -> DataArray:
    """Entropy deficit log n - H and more, of every head at an in-distribution query, as the prompt grows.

    Directly for prompts of 3 points up to the trained length; beyond it by resampling the scores of that query at
    trained positions (exact in layer 0, where a key's score depends on its own token only; a counterfactual deeper).

    Statistics: deficit; max weight; deficit within x tokens and within y tokens; and the share of the head output's
    variance that is due to the samples, not the function (direct lengths only).
    """
    queries = lab.inner
    n_points = sorted({int(k) for k in np.geomspace(min(3, lab.task.n_points), lab.task.n_points, 7).round()})
    lengths = [lab.encoding.n_tokens(k) for k in n_points]
    columns = [_direct(lab, queries, k) for k in n_points]
    pool = _scores(lab, queries)
    columns += [_resampled(lab, pool, factor * lengths[-1]).mean(-1) for factor in BEYOND]
    lengths += [factor * lengths[-1] for factor in BEYOND]
    axes = {
        "statistic": ("deficit", "max weight", "deficit in x", "deficit in y", "variance from samples"),
        "head": relevance.labels(lab),
        "n": tuple(lengths),
    }
    note = f"direct up to n = {lengths[len(n_points) - 1]} tokens, resampled scores beyond"
    return make_curve(np.stack(columns, -1), axes, note=note)


@measurement("heads/deficit")
def deficit(lab: Lab) -> DataArray:
    """Entropy deficit of every head and function: at the trained length, at ten of them, and in the limit.

    Resampled from all keys that prompts of the function show to the same query. The limit is exact for that law: with n
    keys drawn from a pool of N, log n - H tends to sum_i p_i log(p_i N), p the softmax over the pool. range is that of
    the scores: the deficit is at most min(range, range^2 / 8).
    """
    pool = _scores(lab, lab.inner)
    trained = lab.encoding.n_tokens(lab.task.n_points)
    limit = deficits(pool[..., :-1].permute(0, 2, 3, 1, 4).flatten(-2).softmax(-1)).mean(-1)
    extent = (pool.amax(-1) - pool.amin(-1)).mean((1, 3))
    rows = [deficits(pool.softmax(-1)).mean((1, 3)).T.numpy(), _resampled(lab, pool, 10 * trained)[0]]
    rows += [limit.T.numpy(), extent.T.numpy()]
    axes = {
        "n": ("trained", "10 x trained", "limit", "range"),
        "head": relevance.labels(lab),
        "function": tuple(range(lab.n_functions)),
    }
    return make_array(rows, axes)


def _direct(lab: Lab, queries: list[float], n_points: int) -> np.ndarray:
    """(statistic, head) at prompts of this length."""
    n_layers = lab.model.cfg.n_layers
    prompts = lab.small_sample.first(n_points)
    kinds = np.array(lab.encoding.kinds(n_points))
    rows: dict[str, list[torch.Tensor]] = {}

    def look(name: str, t: torch.Tensor, _: slice) -> None:
        if name.endswith("hook_z"):
            rows.setdefault(name, []).append(t.transpose(1, 2))  # (batch, head, query, d_head)
            return
        parts = [_within(t, kinds == kind) for kind in ("x", "y")]
        rows.setdefault(name, []).append(torch.stack([deficits(t), t.amax(-1), *parts]).mean(-1).transpose(0, 1))

    names = [f"blocks.{i}.attn.hook_{what}" for i in range(n_layers) for what in ("pattern", "z")]
    lab.sweep(queries, watch=look, names=names, prompts=prompts)
    out = []
    for i in range(n_layers):
        pattern = torch.cat(rows[f"blocks.{i}.attn.hook_pattern"]).mean(0)  # (statistic, head)
        z = torch.cat(rows[f"blocks.{i}.attn.hook_z"])
        z = z.view(lab.n_functions, -1, *z.shape[1:])
        within = z.var(1, unbiased=True).mean((0, 2, 3))
        total = z.flatten(0, 1).var(0).mean((1, 2))
        out.append(torch.cat([pattern, (within / total.clamp(min=1e-300))[None]]))
    return torch.cat(out, 1).numpy()


def _within(pattern: torch.Tensor, keep: np.ndarray) -> torch.Tensor:
    """Deficit of the pattern restricted to some keys; NaN where there are none."""
    part = pattern[..., torch.from_numpy(keep)]
    if part.shape[-1] == 0:
        return torch.full(pattern.shape[:-1], torch.nan, dtype=pattern.dtype)
    return deficits(part / part.sum(-1, keepdim=True).clamp(min=1e-300))


def _scores(lab: Lab, queries: list[float]) -> torch.Tensor:
    """Scores of all trained keys at the in-distribution queries: (function, context, head, query, key)."""
    names = [f"blocks.{i}.attn.hook_attn_scores" for i in range(lab.model.cfg.n_layers)]
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    lab.sweep(queries, watch=lambda name, s, _: rows[name].append(s), names=names)
    scores = torch.cat([torch.cat(rows[name]) for name in names], 1)
    return scores.view(lab.n_functions, -1, *scores.shape[1:])


def _resampled(lab: Lab, scores: torch.Tensor, n: int) -> np.ndarray:
    """(statistic, head, function) for n keys: the query's own, the rest drawn from trained ones of the function."""
    kinds = np.array(lab.encoding.kinds(lab.task.n_points))
    draw = generator(lab.seed, "heads/resampled", n)
    own = scores[:, 0, :, :, -1:]
    pool = scores[..., :-1].permute(0, 2, 3, 1, 4)  # (function, head, query, context, key)
    parts, kind_of = [own], ["own"]
    for kind, size in _split(kinds[:-1], n - 1).items():
        keys = torch.from_numpy(np.flatnonzero(kinds[:-1] == kind))
        flat = pool[..., keys].flatten(-2)
        parts.append(flat[..., torch.randint(flat.shape[-1], (size,), generator=draw)])
        kind_of += [kind] * size
    pattern = torch.cat(parts, -1).softmax(-1)
    within = [_within(pattern, np.array(kind_of) == kind) for kind in ("x", "y")]
    blank = torch.full(pattern.shape[:-1], torch.nan, dtype=pattern.dtype)
    stacked = torch.stack([deficits(pattern), pattern.amax(-1), *within, blank])
    return stacked.mean(-1).permute(0, 2, 1).numpy()


def _split(kinds: np.ndarray, n: int) -> dict[str, int]:
    """n keys over the kinds of token, in the proportion in which prompts show them."""
    names, counts = np.unique(kinds, return_counts=True)
    sizes = (n * counts / counts.sum()).astype(int)
    sizes[0] += n - sizes.sum()
    return dict(zip(names.tolist(), sizes.tolist(), strict=True))


def softmax_uniform(results: Results, facts: Facts) -> Evidence:
    """Do the heads that matter average uniformly when there are many tokens?"""
    curve, result, counted = results[dispersion], results[deficit], relevance.relevant(results, facts)
    scope = "these weights, this task, in-distribution queries, up to 10 trained lengths (resampled scores)"
    trained = curve["n"].values[-len(BEYOND) - 1]
    quantities = {"relevant heads": Estimate.exactly("relevant heads", len(counted))}
    quantities["trained length"] = Estimate.exactly("trained length", trained, "tokens")
    if trained < SHORTEST or not counted:
        return Evidence(quantities, "", scope=scope)
    share = _uniform_share("relevant heads that are uniform", result, counted)
    swaps = results[relevance.relevance].sel(intervention="uniform", statistic="rise").values.mean(-1)
    details = _dispersion_rows(curve, result, counted, swaps / max(facts.error, 1e-300))
    mine = [row for row in details if row["relevant"]]
    falling = sum(row["at 10 trained lengths"] > UNIFORM >= row["limit"] for row in mine)
    heaviest = max(row["max weight at 40 trained lengths"] for row in mine)
    n = len(counted)
    says = (
        f"{round(share.value * n)} of {n} relevant heads are uniform (deficit <= {UNIFORM}) at ten trained lengths, "
        f"and {sum(row['limit'] <= UNIFORM for row in mine)} in the limit; dispersion is another matter: at forty "
        f"trained lengths no single key keeps more than {heaviest:.2g}"
    )
    says += f"; the deficit of {falling} is still falling below the threshold" if falling else ""
    rises = [row["uniform swap, relative rise of error"] for row in mine]
    causal = {
        "intervention": "make one head's pattern uniform",
        "criterion": "in-distribution error rises by at most 10 %",
        "effect": float(np.median(rises)),
        "relevant heads that can be made uniform": sum(r <= 0.1 for r in rises),
        "relevant heads": n,
    }
    fresh = results.twin[deficit]
    twin = {"share": _uniform_share("heads that are uniform", fresh, list(fresh.indexes["head"]))}
    return Evidence(quantities | {"share": share}, says + ".", None, scope, causal, twin, details)


def _uniform_share(name: str, result: DataArray, counted: list[str]) -> Estimate:
    """Share of heads uniform at ten trained lengths; its interval reaches up to that of heads uniform then or later."""
    rows = [result.indexes["head"].get_loc(head) for head in counted]
    at, limit = (result.sel(n=n).values[rows].T for n in ("10 x trained", "limit"))
    later = bootstrap(lambda d, end: ((d <= UNIFORM) | (end <= UNIFORM)).mean(-1), at, limit)
    return Estimate.spanning(name, [bootstrap(lambda d: (d <= UNIFORM).mean(-1), at), later], "share")


def _dispersion_rows(
    curve: DataArray, result: DataArray, counted: list[str], rises: np.ndarray
) -> tuple[dict[str, Any], ...]:
    rows = []
    for i, name in enumerate(curve.indexes["head"]):
        at, widest = result.sel(head=name).values.mean(-1), curve.sel(head=name).values
        bound = min(at[3], at[3] ** 2 / 8)
        rows.append(
            {
                "head": name,
                "relevant": name in counted,
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


LONG = Precondition("trained length", (SHORTEST, INF), "Prompts of {value:.0f} tokens are too short to tell.")

SOFTMAX_UNIFORM_CLAIM = Claim(
    id="limits.softmax_uniform",
    question="attention",
    short="Over many tokens softmax attention becomes a uniform average.",
    quote=Quote(
        "Second, when dealing with long sequences where the input values are both numerous and similar in"
        " magnitude, softmax tends to a uniform distribution.",
        "Naim & Asher (2025), section 6, after Proposition 4 (also appendix G.2)",
        "The paper gives no measurement, and appendix G.2 drops the condition of similar values. We "
        "measure how far each head that matters is from uniform at ten times the trained number of "
        "tokens; beyond the trained length its scores are drawn from those at trained positions.",
    ),
    kind="architecture",
    statement="Over many tokens softmax attention acts as a uniform average",
    source="Naim & Asher (2025), section 6 and appendix G.2",
    criterion=Criterion(
        f"share of relevant heads with log n - H <= {UNIFORM} (N_eff / n >= 0.9) at ten trained lengths: "
        ">= 0.9 / <= 0.5 together with those that are uniform in the limit only",
        (Condition("share", (0.9, INF), (-INF, 0.5)),),
        (LONG, RELEVANT),
    ),
    measurements=(relevance.relevance, dispersion, deficit),
    twin=(deficit,),
    evidence=softmax_uniform,
    excluded=needs_softmax,
    figures=("dispersion",),
)
