"""Which heads matter: every verdict over heads counts these only.

A head matters by the size of its effect, not by its significance: with enough prompts every effect
is significant. Where the sample cannot tell, the head counts both ways: a share of heads is an
interval from the lowest to the highest.

Heads of a layer that attend alike in every prompt are one head of several parts: together they
write the same mixture of tokens, read by the sum of their matrices. So they are ablated together
and count once.

Two heads whose outputs cancel count as one, too: together they do nothing, though either alone
would be missed. They may be copies of one head, or have different layers or patterns. Two heads
cancel where the prediction changes without the one as it does without the other, with the opposite
sign.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.interventions.attention import SwapPattern
from icl_interp.resampling import EXTREMES, simultaneous
from icl_interp.results import make_array

# Factors on the error from which a head matters, and up to which it does not.
MATTERS = 2.0
IDLE = 1.25
# The same where the error says nothing: root mean square change of the prediction, in u. What
# doubles the error of a model with an R2 of .999 moves its prediction by .03 u.
MOVES = 0.03
STILL = 0.015
SMALLEST = 1e-24  # mean square change, in u^2, up to which nothing moved
# Share of a pattern's square that another's multiple leaves, up to which they are one pattern.
SAME = 1e-10
# Share of a change's square that is left of it and an opposite one, up to which two heads take each
# other off. Heads that training made oppose one another in part; what is left of two that cancel is
# rounding, and what norms between them make of it.
OPPOSITE = 1e-4
N_SEEN = 16  # prompts on which patterns are compared
FIRST = "first alike"
# A share of heads rests on two families of intervals: which heads matter, and what these do. Both
# hold together at 95 %; those of the second level as often as the rarest of `EXTREMES` asks, which
# firm verdicts rest on.
USUAL = 1 - 0.05 / 2
STRICT = 1 - 2 * EXTREMES[-1] / 2

Role = Literal["yes", "no", "unclear"]
Outcome = Literal["yes", "no", "out"]
OUT: frozenset[Outcome] = frozenset({"out"})


def labels(lab: Lab) -> tuple[str, ...]:
    """Names of the heads, "layer.head"."""
    return tuple(f"{layer}.{head}" for layer, head in lab.heads)


def first_alike(lab: Lab) -> list[int]:
    """For each head the place of the first head of its layer with the same pattern.

    It is the head's own place where the head is the first. Patterns are the same where one is a
    multiple of the other at every query of some prompts, up to rounding.
    """
    names = []
    if lab.heads:
        for layer in range(lab.model.cfg.n_layers):
            names.append(f"blocks.{layer}.attn.hook_pattern")
    tokens = lab.tokens(lab.one_each[:N_SEEN])
    with torch.no_grad():
        _, cache = lab.model.run_with_cache(tokens, names_filter=names)
    found: list[int] = []
    for name in names:
        by_head = cache[name].double().transpose(0, 1)
        patterns = by_head.flatten(1)  # (head, prompt x query x key)
        products = (patterns @ patterns.T).cpu()
        squares = products.diagonal()
        start = len(found)
        for head in range(len(patterns)):
            # Two patterns are one where the inequality of Cauchy and Schwarz is an equality.
            sizes = squares[head] * squares[:head]
            alike = products[head, :head] ** 2 >= (1 - SAME) * sizes
            first = (alike & (sizes > 0)).nonzero()
            its_first = int(first[0]) if len(first) else head
            found.append(start + its_first)
    return found


def joined(
    firsts: Sequence[int], changes: Mapping[int, Float[torch.Tensor, "batch point target"]]
) -> list[int]:
    """`first_alike` where heads that take each other off are one as well.

    Args:
        firsts: what `first_alike` gives.
        changes: of the prediction without each head that is the first of its kind.
    """
    sizes = {}
    names = {}
    for first, change in changes.items():
        sizes[first] = float(change.square().sum())
        names[first] = first
    left = sorted(changes)
    # Each is paired with one other at most: where one takes two others off, one of these is left.
    while left:
        one = left.pop(0)
        for other in left:
            rest = float((changes[one] + changes[other]).square().sum())
            if rest <= OPPOSITE * max(sizes[one], sizes[other]) and rest < sizes[one]:
                names[other] = one
                left.remove(other)
                break
    return [names[first] for first in firsts]


@measurement("heads/relevance", version=4, needs=(output_unit.own,))
def relevance(lab: Lab, own: DataArray) -> DataArray:
    """What happens in distribution when a head is edited.

    Its pattern is made uniform, and its output is made its mean.

    rise: of the squared error over scored points; movement: squared change of the prediction, in
    u^2 (for models that learned nothing, whose error says nothing); intact: the squared error
    itself; first alike: `joined`. Heads that attend alike, or take each other off, are ablated
    together. Of vectors errors are means over coordinates, and changes are squared lengths, as u^2
    is the sum of their variances.
    """
    unit = float(own.sel(statistic="u"))
    base, truth = lab.predictions()
    intact = (base - truth).square().mean((1, 2))
    alike = first_alike(lab)
    of_first = {}
    with lab.single.fixed_weights():
        # Heads with one pattern are ablated together; then it shows which take each other off.
        without = {}
        for first in sorted(set(alike)):
            heads = _members(lab, alike, first)
            without[first], _ = lab.predictions(lab.head_means.only(*heads))
        firsts = joined(alike, {first: out - base for first, out in without.items()})
        for first in sorted(set(firsts)):
            heads = _members(lab, firsts, first)
            uniform, _ = lab.predictions(SwapPattern("uniform", heads))
            ablated = without[first]
            if heads != _members(lab, alike, first):
                ablated, _ = lab.predictions(lab.head_means.only(*heads))
            place = torch.full_like(intact, first)
            rows = []
            for out in (uniform, ablated):
                missed = (out - truth).square().mean((1, 2))
                # A mean over points, a sum over coordinates.
                moved = (out - base).square().sum(2).mean(1)
                movement = moved / unit**2 if unit else moved * 0
                parts = (missed - intact, movement, intact, place)
                rows.append([lab.by_unit(part, lab.head_sample) for part in parts])
            of_first[first] = rows
    axes = {
        "head": labels(lab),
        "intervention": ("uniform", "mean ablation"),
        "statistic": ("rise", "movement", "intact", FIRST),
        "unit": tuple(range(lab.units_in(lab.head_sample))),
    }
    values = [of_first[first] for first in firsts]
    return make_array(values, axes, note=f"{len(lab.head_sample)} prompts, all scored points")


def _members(lab: Lab, firsts: Sequence[int], first: int) -> tuple[tuple[int, int], ...]:
    """The heads that count with one."""
    return tuple(head for head, its in zip(lab.heads, firsts, strict=True) if its == first)


def copies(results: Results) -> frozenset[str]:
    """Heads that attend like one before them, or take it off: they count with that one alone."""
    result = results[relevance]
    if FIRST not in result.indexes["statistic"]:  # of an older version
        return frozenset()
    firsts = result.sel(statistic=FIRST).values[:, 0, 0]
    return frozenset(name for i, name in enumerate(result.indexes["head"]) if firsts[i] != i)


def that_move(result: DataArray) -> list[bool]:
    """For each head whether predictions move without it, by `STILL` u at least.

    Copies do not count.

    This serves what is measured over heads, where nothing is known of how well the model has
    learned. It is by the mean over the sample, without an interval.

    Args:
        result: of `relevance`.
    """
    movement = result.sel(statistic="movement").values
    most = movement.mean(-1).max(-1)
    left_out = copies(Results({relevance.name: result}))
    found = []
    for size, name in zip(most, result.indexes["head"], strict=True):
        moves = bool(size >= STILL**2)
        found.append(moves and name not in left_out)
    return found


@dataclass(frozen=True)
class Effect:
    """What a head's ablation does: its largest effect.

    It is the largest of two interventions (a uniform pattern, the mean output), on the mean and on
    a typical unit.

    Attributes:
        value: factor on the error, or root mean square change of the prediction in u. low, high: of
            its interval.
        on_error: which of the two it is.
    """

    value: float
    low: float
    high: float
    on_error: bool

    @property
    def matters(self) -> bool:
        """Whether the value itself is that of a head that matters."""
        return self.value >= (MATTERS if self.on_error else MOVES)

    @property
    def role(self) -> Role:
        """Whether the head matters, as far as the interval tells."""
        most = MATTERS if self.on_error else MOVES
        least = IDLE if self.on_error else STILL
        if self.low >= most:
            return "yes"
        return "no" if self.high <= least else "unclear"


def effects(results: Results, facts: Facts, level: float = USUAL) -> dict[str, Effect]:
    """What ablating each head does.

    Intervals hold for all heads at once, and are made on the logarithm.

    In a model that learned its task the effect is the factor on the error. An error of one that did
    not means nothing: there the effect is the change of the prediction in u. Either is asked of the
    mean error and of that of a typical unit (the geometric mean); a head matters if one of them
    says so, and does not if both say so.
    """
    result = results[relevance]
    on_error = facts.has_learned
    n_heads, _, _, n_units = result.shape

    def by_unit(statistic: str) -> np.ndarray:
        """(unit, head and intervention)."""
        return result.sel(statistic=statistic).values.reshape(-1, n_units).T

    # The error of the mean unit and that of a typical one: a few functions can make nearly all of
    # the mean error, and then no sample tells by what factor it rises.
    each = 1 - (1 - level) / 2
    if on_error:
        intact = by_unit("intact")
        ablated = by_unit("rise") + intact
        mean = simultaneous(
            lambda after, before: np.log(after / before), ablated, intact, level=each
        )
        tiny = np.finfo(float).tiny
        sizes = np.log(np.maximum(ablated, tiny) / np.maximum(intact, tiny))
    else:
        movement = by_unit("movement")
        mean = simultaneous(
            lambda moved: np.log(np.maximum(moved, SMALLEST)) / 2, movement, level=each
        )
        sizes = np.log(np.maximum(movement, SMALLEST)) / 2
    typical = simultaneous(lambda size: size, sizes, level=each)
    # The largest counts: a uniform head matters though its pattern cannot be made uniform.
    found = []
    for of_mean, of_typical in zip(mean, typical, strict=True):
        ways = [of_mean.reshape(n_heads, -1), of_typical.reshape(n_heads, -1)]
        largest = np.concatenate(ways, 1).max(1)
        found.append(np.exp(largest).tolist())
    effect_of = {}
    for name, value, low, high in zip(result.indexes["head"], *found, strict=True):
        effect_of[name] = Effect(value, low, high, on_error)
    return effect_of


def without_each(found: DataArray, on_error: bool) -> dict[str, float]:
    """What the mean ablation of each head does to the mean prompt, by the head's name.

    It is the number that texts and figures show of a head. Which heads matter, `effects` decides.

    Args:
        found: of `relevance`.
        on_error: whether it is the factor on the mean squared error; else it is the root mean
            square change of the prediction, in u.
    """
    means = found.sel(intervention="mean ablation").mean("unit")
    if on_error:
        intact = means.sel(statistic="intact")
        values = (means.sel(statistic="rise") + intact) / intact
    else:
        values = means.sel(statistic="movement") ** 0.5
    return dict(zip(found.indexes["head"], values.values.tolist(), strict=True))


def roles(results: Results, facts: Facts) -> dict[str, Role]:
    """Whether each head matters.

    A head matters where its ablation multiplies the error by at least 2, and does not matter where
    it multiplies the error by at most 1.25.
    """
    return {name: effect.role for name, effect in effects(results, facts).items()}


def relevant(results: Results, facts: Facts) -> list[str]:
    """The heads that are sure to matter."""
    return [name for name, role in roles(results, facts).items() if role == "yes"]


# ---- shares of heads -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """How a head counts: as one that does what is claimed, as one that does not, or not ("out").

    Attributes:
        value: how it counts by its value. possible: all ways that its intervals leave open.
    """

    value: Outcome
    possible: frozenset[Outcome]

    def among(self, effect: Effect) -> "Standing":
        """The same for a head that counts only if it matters."""
        if effect.role == "yes":
            return self
        if effect.role == "no":
            return Standing("out", OUT)
        return Standing(self.value if effect.matters else "out", self.possible | OUT)


@dataclass(frozen=True)
class Mattering:
    """The heads of a model by what ablating them does, at both levels of confidence.

    A family of claims asks for them.

    Attributes:
        by_level: what ablating each head does.
        copies: heads that attend like one before them, which do not count.
    """

    by_level: Mapping[float, Mapping[str, Effect]]
    copies: frozenset[str] = frozenset()

    @classmethod
    def of(cls, results: Results, facts: Facts) -> "Mattering":
        """From stored results."""
        by_level = {level: effects(results, facts, level) for level in (USUAL, STRICT)}
        return cls(by_level, copies(results))

    @property
    def roles(self) -> dict[str, Role]:
        """Whether each head matters."""
        return {name: effect.role for name, effect in self.by_level[USUAL].items()}

    @property
    def counted(self) -> Estimate:
        """How many heads matter."""
        does = Standing("yes", frozenset({"yes"}))
        every = dict.fromkeys(self.by_level[USUAL], does)
        return counted("heads that matter", self.among(USUAL, every))

    def among(self, level: float, heads: "Mapping[str, Standing]") -> "dict[str, Standing]":
        """The standings of heads where those that do not matter do not count, nor do copies."""
        found = {}
        for name, head in heads.items():
            if name in self.copies:
                found[name] = Standing("out", OUT)
            else:
                found[name] = head.among(self.by_level[level][name])
        return found


def counted(name: str, heads: Mapping[str, Standing]) -> Estimate:
    """How many heads count: from those that are sure to, to those that may."""
    value = sure = most = 0
    for head in heads.values():
        value += head.value != "out"
        sure += "out" not in head.possible
        most += head.possible != {"out"}
    return Estimate(name, float(value), float(sure), float(most), "heads")


def share_of_heads(name: str, heads: Callable[[float], Mapping[str, Standing]]) -> Estimate:
    """The share of heads that do what is claimed, over all that their standings leave open.

    Its interval goes from the lowest of these shares to the highest.

    Args:
        name: what the share is of.
        heads: the standings by head, from intervals of a level of confidence.
    """
    usual = heads(USUAL)
    values = [head.value for head in usual.values()]
    low = _extreme(usual, "no", "yes")
    high = _extreme(usual, "yes", "no")
    n_yes = values.count("yes")
    n = n_yes + values.count("no")
    value = n_yes / n if n else (low + high) / 2
    low = min(low, value)
    high = max(high, value)
    strict = heads(STRICT)
    far_low = min(_extreme(strict, "no", "yes"), value)
    far_high = max(_extreme(strict, "yes", "no"), value)
    extremes = ((far_low, far_high),) * len(EXTREMES)
    return Estimate(name, value, low, high, "share", extremes=extremes)


def _extreme(heads: Mapping[str, Standing], towards: Outcome, last: Outcome) -> float:
    """The share of "yes" where each head counts `towards`, if it may.

    A head that may not is left out if it may be, and counts as `last` otherwise.
    """
    ways = (towards, "out", last)
    counts = []
    for head in heads.values():
        counts.append(next(way for way in ways if way in head.possible))
    n_yes = counts.count("yes")
    n = n_yes + counts.count("no")
    if n:
        return n_yes / n
    # No head is sure to count: one does, or none.
    if any(last in head.possible for head in heads.values()):
        return float(last == "yes")
    return float("nan")


def proportions(
    shares: Float[np.ndarray, "unit *member"],
    n_prompts: int,
    level: float = USUAL,
    n_decisions: int | None = None,
) -> tuple[Float[np.ndarray, "*member"], Float[np.ndarray, "*member"]]:
    """Intervals of shares of prompts, all members at once (Bonferroni).

    They are the intervals of Clopper and Pearson for a smaller number of prompts. Prompts of a unit
    are alike, so there are fewer independent ones: p (1 - p) / variance of the mean over units. A
    share of 0 or 1 has no such variance, and intervals with a width all the same.

    Source: Korn & Graubard (1998), Confidence intervals for proportions with small expected number
    of positive counts estimated from survey data.

    Args:
        shares: of the prompts of each unit.
        n_prompts: of a unit.
        level: of confidence, that all decisions together are right.
        n_decisions: how many are made, each on one end of an interval; all ends by default.

    >>> low, high = proportions(np.ones((128, 1)), 8, level=0.95)
    >>> bool(high == 1), round(float(1 - low[0]), 5), round(1 - 0.025 ** (1 / 1024), 5)
    (True, 0.0036, 0.0036)
    """
    from scipy.special import betaincinv  # only here: it loads slowly

    n_units = len(shares)
    n_all = n_units * n_prompts
    p = shares.mean(0)
    variance = shares.var(0, ddof=1) / n_units
    varies = variance > 0
    n_independent = p * (1 - p) / np.where(varies, variance, 1.0)
    n = np.where(varies, np.minimum(n_independent, n_all), n_all)
    tail = (1 - level) / (n_decisions or 2 * max(1, p.size))
    yes = p * n
    no = (1 - p) * n
    # The functions below have no value at 0, which is not used.
    some_yes = np.maximum(yes, 1e-9)
    some_no = np.maximum(no, 1e-9)
    low = np.where(yes > 0, betaincinv(some_yes, no + 1, tail), 0.0)
    high = np.where(no > 0, betaincinv(yes + 1, some_no, 1 - tail), 1.0)
    return low, high
