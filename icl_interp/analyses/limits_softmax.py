"""The claims of `limits` about softmax: a hardmax far out, a uniform average over many tokens."""

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses import far, relevance
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.far import power
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.limits_layernorm import SCOPE
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.analyses.verdicts import Claim, Criterion, Estimate, Judgement, register
from icl_interp.interventions import SwapPattern, Temperature
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_array, make_curve

CONCENTRATED = 0.05  # delta up to which a pattern counts as its hardmax (total variation distance)
UNIFORM = 0.105  # entropy deficit up to which a pattern counts as uniform (N_eff / n >= 0.9)
TARGETS = ("itself", "the first token", "an x", "a y", "a pair")  # the first of several that fit names the target
FAR_CONDITIONS = (-1e5, -1e4, 1e4, 1e5)  # queries, in units of `Lab.x_unit`
BEYOND = (2, 5, 10, 40)  # resampled lengths, in trained lengths
INF = float("inf")


def deltas(pattern: torch.Tensor) -> torch.Tensor:
    """1 - mass on the arg-max set, ties merged: the distance of each row to its hardmax.

    A set of more than half of the keys is no maximum but evenness: its rows get delta 1.

    >>> deltas(torch.tensor([[0.5, 0.5, 0.0, 0.0, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]]))
    tensor([0., 1.])
    """
    top = pattern >= pattern.amax(-1, keepdim=True) * (1 - 1e-6)
    delta = (pattern * ~top).sum(-1)
    return torch.where(top.sum(-1) > pattern.shape[-1] / 2, torch.ones_like(delta), delta)


def deficits(pattern: torch.Tensor) -> torch.Tensor:
    """log n - H of each row: 0 for a uniform pattern.

    >>> bool(deficits(torch.full((1, 8), 0.125)).abs() < 1e-6)
    True
    """
    return np.log(pattern.shape[-1]) + torch.xlogy(pattern, pattern).sum(-1)


def _pattern_names(lab: Lab) -> list[str]:
    return [f"blocks.{i}.attn.hook_pattern" for i in range(lab.model.cfg.n_layers)]


@measurement("heads/concentration")
def concentration(lab: Lab) -> DataArray:
    """Share of contexts in which a head's pattern at the last query is concentrated, in distribution and far out."""
    names = _pattern_names(lab)
    near: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    out: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    lab.at_own_query(lambda name, p, rows: near[name].append(deltas(p)), names)
    queries = [lab.x_unit * x for x in FAR_CONDITIONS]
    lab.sweep(queries, watch=lambda name, p, rows: out[name].append(deltas(p)), names=names)
    values = []
    for name in names:
        both = torch.cat([torch.cat(near[name]), torch.cat(out[name])], -1)  # (batch, head, condition)
        values.append(lab.by_function((both <= CONCENTRATED).double()).transpose(1, 2, 0))
    axes = {
        "head": relevance.labels(lab), "condition": ("in distribution", *queries),
        "function": tuple(range(lab.n_functions)),
    }  # fmt: skip
    return make_array(np.concatenate(values), axes, note=f"delta <= {CONCENTRATED}")


@measurement("heads/delta")
def delta(lab: Lab) -> DataArray:
    """Mean delta of every head as the query grows, and what it attends to most."""
    names, xs = _pattern_names(lab), lab.x_unit * np.sort(far.DECADES)
    kinds = np.array(lab.encoding.kinds(lab.task.n_points))
    total = {name: torch.zeros(1 + len(TARGETS), lab.model.cfg.n_heads, len(xs)).double() for name in names}

    def look(name: str, pattern: torch.Tensor, rows: slice) -> None:
        best = pattern.argmax(-1).numpy()
        hits = [best == len(kinds) - 1, best == 0, *(kinds[best] == kind for kind in ("x", "y", "xy"))]
        hits[2] = hits[2] & ~hits[0]
        stacked = torch.stack([deltas(pattern), *(torch.from_numpy(h).double() for h in hits)])
        total[name] += stacked.sum(1)

    lab.sweep(xs, watch=look, names=names)
    values = torch.cat([total[name] for name in names], 1).numpy() / len(lab.prompts)
    return make_curve(values, {"statistic": ("delta", *TARGETS), "head": relevance.labels(lab), "x": tuple(xs)})


@measurement("heads/far swap")
def far_swap(lab: Lab) -> DataArray:
    """Squared change of f when every head's pattern at the query is swapped; "intact" holds f's own square."""
    xs = [*lab.inner, -1e4 * lab.x_unit, 1e4 * lab.x_unit]
    arms = {"one-hot": SwapPattern("hardmax"), "uniform": SwapPattern("uniform"), "flattened": Temperature(1e6)}
    f = lab.sweep(xs)
    values = [lab.by_function(f.square())]
    values += [lab.by_function((lab.sweep(xs, query=[edit]) - f).square()) for edit in arms.values()]
    axes = {"arm": ("intact", *arms), "function": tuple(range(lab.n_functions)), "x": tuple(xs)}
    return make_curve(values, axes, note="swapped at the query only; the context is read as it is")


def _statuses(shares: np.ndarray) -> np.ndarray:
    """Whether each head turns into a hardmax: concentrated far out in all conditions, and not before.

    Args:
        shares: of concentrated contexts, `(draw, head, condition)`, in distribution first.
    """
    return (shares[..., 1:] >= 0.95).all(-1) & (shares[..., 0] < 0.5)


def _share(result: DataArray, counted: list[str]) -> Interval:
    rows = [result.indexes["head"].get_loc(name) for name in counted]
    per_function = np.moveaxis(result.values[rows], -1, 0)
    return bootstrap(lambda shares: _statuses(shares).mean(-1), per_function)


def judge_hardmax(results: Results, facts: Facts) -> Judgement:
    """Do the heads that matter put all their weight on one token when the query is far?"""
    result, counted = results[concentration], relevance.relevant(results, facts)
    near, out = (facts.x_unit * x for x in FAR_CONDITIONS[2:])
    scope = f"{SCOPE}|x| = {power(near)} and {power(out)}, heads that matter in distribution"
    if not counted:
        return Judgement(None, "no head matters for the in-distribution prediction.", "inconclusive", scope)
    share = _share(result, counted)
    curve = results[delta]
    details = tuple(_head_row(name, result, curve, name in counted) for name in result.indexes["head"])
    already = sum(row["in distribution"] >= 0.5 for row in details if row["relevant"])
    n = len(counted)
    reason = f"{round(share.value * n)} of {n} relevant heads turn into a hardmax far out"
    reason += f"; {already} are concentrated already in distribution" if already else ""
    changes = _far_changes(results[far_swap])
    idle = changes["uniform"] <= 0.02
    if idle:
        reason += "; far out no head is read at all (uniform patterns change f as little), so they cause nothing there"
    causal = {
        "intervention": "swap every head's pattern at the query for one-hot at its arg max",
        "effect": changes["one-hot"], "criterion": "changes far f by at most 2 %",
        "power: the same swap in distribution": changes["one-hot in distribution"],
        "uniform instead": changes["uniform"], "flattened by a temperature of 1e6": changes["flattened"],
        "heads idle far out": bool(idle),
    }  # fmt: skip
    twin = results.twin[concentration]
    return Judgement(
        Estimate.of("relevant heads that turn into a hardmax", share, "share"), reason + ".", scope=scope,
        causal=causal, details=details,
        twin=Estimate.of("heads that turn into a hardmax", _share(twin, list(twin.indexes["head"])), "share"),
    )  # fmt: skip


def _far_changes(swap: DataArray) -> dict[str, float]:
    """Root mean square change of f for each swap, relative to f far out or near: a plateau alone can be close to 0."""
    is_far = np.arange(len(swap["x"].values)) >= len(swap["x"].values) - 2  # behind the queries in distribution
    size = swap.sel(arm="intact").values.mean(0)
    out = {}
    for arm in ("one-hot", "uniform", "flattened"):
        change = swap.sel(arm=arm).values.mean(0)
        out[arm] = float(np.sqrt(change[is_far].mean() / max(size[is_far].mean(), size[~is_far].mean())))
        out[f"{arm} in distribution"] = float(np.sqrt(change[~is_far].mean() / size[~is_far].mean()))
    return out


def _head_row(name: str, result: DataArray, curve: DataArray, counted: bool) -> dict[str, object]:
    shares = result.sel(head=name).values.mean(-1)
    targets = {t: curve.sel(statistic=t, head=name).values[[0, -1]].mean() for t in TARGETS}
    return {
        "head": name, "relevant": counted, "in distribution": float(shares[0]), "far": float(shares[1:].min()),
        "hardmax": bool(_statuses(shares[None])[0]), "target": max(targets, key=targets.__getitem__),
    }  # fmt: skip


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
        "head": relevance.labels(lab), "n": tuple(lengths),
    }  # fmt: skip
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
        "n": ("trained", "10 x trained", "limit", "range"), "head": relevance.labels(lab),
        "function": tuple(range(lab.n_functions)),
    }  # fmt: skip
    return make_array(rows, axes)


def _direct(lab: Lab, queries: list[float], n_points: int) -> np.ndarray:
    """(statistic, head) at prompts of this length."""
    n_layers = lab.model.cfg.n_layers
    prompts = lab.few.first(n_points)
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


def judge_uniform(results: Results, facts: Facts) -> Judgement:
    """Do the heads that matter average uniformly when there are many tokens?"""
    curve, result, counted = results[dispersion], results[deficit], relevance.relevant(results, facts)
    scope = "these weights, this task, in-distribution queries, up to 10 trained lengths (resampled scores)"
    trained = curve["n"].values[-len(BEYOND) - 1]
    if trained < 10:
        return Judgement(None, f"prompts of {trained:.0f} tokens are too short to tell.", "inconclusive", scope)
    if not counted:
        return Judgement(None, "no head matters for the in-distribution prediction.", "inconclusive", scope)
    share = _uniform_share(result, counted)
    swaps = results[relevance.relevance].sel(intervention="uniform", statistic="rise").values.mean(-1)
    details = _dispersion_rows(curve, result, counted, swaps / max(facts.error, 1e-300))
    mine = [row for row in details if row["relevant"]]
    falling = [row["head"] for row in mine if row["at 10 trained lengths"] > UNIFORM >= row["limit"]]
    heaviest = max(row["max weight at 40 trained lengths"] for row in mine)
    n = len(counted)
    reason = (
        f"{round(share.value * n)} of {n} relevant heads are uniform (deficit <= {UNIFORM}) at ten trained lengths, "
        f"and {sum(row['limit'] <= UNIFORM for row in mine)} in the limit; dispersion is another matter: at forty "
        f"trained lengths no single key keeps more than {heaviest:.2g}"
    )
    verdict = None
    if share.value <= 0.5 and falling:
        verdict, reason = (
            "inconclusive",
            reason + f"; the deficit of {len(falling)} is still falling below the threshold",
        )
    rises = [row["uniform swap, relative rise of error"] for row in mine]
    causal = {
        "intervention": "make one head's pattern uniform", "criterion": "in-distribution error rises by at most 10 %",
        "effect": float(np.median(rises)), "relevant heads that can be made uniform": sum(r <= 0.1 for r in rises),
        "relevant heads": n,
    }  # fmt: skip
    twin = results.twin[deficit]
    return Judgement(
        Estimate.of("relevant heads that are uniform", share, "share"), reason + ".", verdict, scope, causal=causal,
        twin=Estimate.of("heads that are uniform", _uniform_share(twin, list(twin.indexes["head"])), "share"),
        details=details,
    )  # fmt: skip


def _uniform_share(result: DataArray, counted: list[str]) -> Interval:
    rows = [result.indexes["head"].get_loc(name) for name in counted]
    return bootstrap(lambda d: (d <= UNIFORM).mean(-1), result.sel(n="10 x trained").values[rows].T)


def _dispersion_rows(
    curve: DataArray, result: DataArray, counted: list[str], rises: np.ndarray
) -> tuple[dict[str, object], ...]:
    rows = []
    for i, name in enumerate(curve.indexes["head"]):
        at, widest = result.sel(head=name).values.mean(-1), curve.sel(head=name).values
        bound = min(at[3], at[3] ** 2 / 8)
        rows.append({
            "head": name, "relevant": name in counted, "at the trained length": float(at[0]),
            "at 10 trained lengths": float(at[1]), "limit": float(at[2]), "score range": float(at[3]),
            "bound min(R, R^2/8)": float(bound), "max weight at 40 trained lengths": float(widest[1, -1]),
            "within x": float(widest[2, -2]), "within y": float(widest[3, -2]),
            "variance from samples": float(widest[4, -len(BEYOND) - 1]),
            "uniform swap, relative rise of error": float(rises[i]),
        })  # fmt: skip
    return tuple(rows)


def needs_softmax(facts: Facts) -> str | None:
    """Why a claim about softmax cannot apply."""
    config = facts.config
    if config.mlp_only:
        return "the model has no attention"
    if config.score_fn != "softmax":
        return f"the model's score function is {config.score_fn}, not softmax"
    return None


register(
    Claim(
        id="limits.softmax_hardmax",
        kind="architecture",
        statement="Far from the data softmax attention acts as a hardmax: all weight on one token",
        source="Naim & Asher (2025), section 6 and appendix G.2 (Table 4)",
        criterion=Criterion(
            "share of relevant heads with delta <= 0.05 in >= 95 % of contexts at 1e4 and 1e5, both signs, and in "
            "< 50 % in distribution: >= 0.9 / <= 0.5",
            supported=(0.9, INF), contradicted=(-INF, 0.5),
        ),
        measurements=(relevance.relevance, concentration, delta, far_swap),
        twin=(concentration,),
        judge=judge_hardmax,
        excluded=needs_softmax,
        figures=("heads",),
    )
)  # fmt: skip

register(
    Claim(
        id="limits.softmax_uniform",
        kind="architecture",
        statement="Over many tokens softmax attention acts as a uniform average",
        source="Naim & Asher (2025), section 6 and appendix G.2",
        criterion=Criterion(
            f"share of relevant heads with log n - H <= {UNIFORM} (N_eff / n >= 0.9) at ten trained lengths: "
            ">= 0.9 / <= 0.5, and the rest above it in the limit too",
            supported=(0.9, INF), contradicted=(-INF, 0.5),
        ),
        measurements=(relevance.relevance, dispersion, deficit),
        twin=(deficit,),
        judge=judge_uniform,
        excluded=needs_softmax,
        figures=("dispersion",),
    )
)  # fmt: skip
