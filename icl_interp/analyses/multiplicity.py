"""How many verdicts of a report may be wrong by the draw of its prompts: each is made at 95 %, and there are many."""

from collections.abc import Iterable

from icl_interp.analyses.claim import OPPOSITE
from icl_interp.analyses.criterion import FIRM
from icl_interp.analyses.finding import Finding
from icl_interp.resampling import LEVEL

WRONG = (1 - LEVEL) / 2  # the chance at most that one verdict lies beyond its interval on the side that decides


def by_chance(findings: Iterable[Finding]) -> str:
    """How many verdicts are firm, and how many of the others are expected to be wrong; nothing where none is decided.

    A verdict asks that a 95 % interval lies inside a region. So where the truth lies outside, it comes with a chance of
    at most 2.5 %. It is firm where the estimate lies at least 3.2 standard errors inside the region, which happens by
    chance to any of 35 claims together with at most 5 % (Bonferroni).
    """
    decided = [f for f in findings if f.verdict in OPPOSITE]
    if not decided:
        return ""
    firm = sum(f.firm is True for f in decided)
    others = len(decided) - firm
    text = (
        f"{firm} of {len(decided)} verdicts are firm: they lie at least {FIRM} standard errors inside their region, so "
        "the draw of the prompts makes any of them wrong with a chance of at most 5 %."
    )
    if others:
        text += (
            f" Of the other {others}, at most {WRONG * others:.2g} are expected to be wrong by the draw of the prompts."
        )
    return text
