"""How many verdicts of a report may be wrong by the draw of its prompts: each is made at 95 %."""

from collections.abc import Iterable

from icl_interp.analyses.claim import OPPOSITE
from icl_interp.analyses.criterion import FAMILY
from icl_interp.analyses.finding import Finding
from icl_interp.resampling import LEVEL, UNSEEN

WRONG = (
    1 - LEVEL
) / 2  # the chance at most that one verdict lies beyond its interval on the side that decides


def by_chance(findings: Iterable[Finding], n_prompts: object = 0) -> str:
    """How many verdicts are firm, and how many of the others are expected to be wrong.

    The sentence is empty where no verdict is decided. A verdict asks that a 95 % interval lies
    inside a region. So where the truth lies outside, it comes with a chance of at most 2.5 %. It is
    firm where the interval lies inside at a level so strict that the chance of a wrong firm verdict
    among all registered claims is at most 5 % (Bonferroni, `criterion.firm_chance`).

    Args:
        findings: of a report.
        n_prompts: of its sample: what happens in 3 of n prompts is missing from n of them with a
            chance of 5 %.
    """
    decided = [f for f in findings if f.verdict in OPPOSITE]
    if not decided:
        return ""
    firm = sum(f.firm is True for f in decided)
    others = len(decided) - firm
    text = (
        f"{firm} of {len(decided)} verdicts are firm: they hold at a stricter level, at which the "
        "chance that the draw of prompts makes any firm verdict wrong, among all registered "
        f"claims, is at most {100 * FAMILY:g} %."
    )
    if others:
        text += (
            f" Of the other {others}, at most {WRONG * others:.2g} are expected to be wrong by the "
            "draw of the prompts."
        )
    if isinstance(n_prompts, int) and n_prompts > 0:  # a stored report may hold anything
        text += (
            " No verdict is about prompts that are rarer than one in "
            f"{max(1, n_prompts // UNSEEN):,}."
        )
    return text
