"""What a model does, in two to four sentences, each with the number that it rests on.

The first says how well it learned, and which heads it needs. The others come from studies
(`Study.says`), which know what far queries and classical algorithms are.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from icl_interp.analyses import mechanism, relevance
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.errors import in_one_line, logger
from icl_interp.figures.text import number
from icl_interp.studies.base import STUDIES

log = logger(__name__)
MOST = 4  # sentences
MOST_HEADS = 4  # that a sentence names
CLEAR = 0.5  # the score from which on a role is said of a head: half of the way from chance to all
# What a role says of a head. "Position only" does not say where it looks.
LOOKS = {
    "labels": "the query looks at labels",
    "pairs a value with its input": "a value looks at its input",
    "previous token": "a token looks at the one before it",
    "duplicates": "the query looks at examples with its own input",
    "neighbours": "the query looks at the examples near it",
}


def summary(model: Mapping[str, Any], results: Results) -> list[str]:
    """Sentences on a model: what it learned, which parts carry it, what it computes, and far out.

    Args:
        model: facts about it, as a report holds them.
        results: what was measured; sentences whose numbers are missing are left out.

    Returns:
        At most `MOST` sentences.
    """
    # Not read from the facts: what may be damaged in a loaded report costs one sentence only.
    says = [lambda results, facts: learned(model), parts]
    for study in STUDIES.values():
        says += study.says
    found = []
    for say in says:
        try:
            found.append(say(results, Facts.from_dict(model)))
        except Exception as error:
            log.warning("a sentence of the summary cannot be made: %s", in_one_line(error))
    return list(filter(None, found))[:MOST]


def learned(model: Mapping[str, Any]) -> str:
    """How well the model learned its task, beside the best that is known of."""
    errors = model.get("in_distribution", {})
    r2 = model.get("r2")
    if r2 is None or "error" not in errors:
        return ""
    beside = f"mean squared error {number(float(errors['error']), 2)}"
    if best := errors.get("best_r2"):
        beside += f"; the best possible explains {_percent(float(best))}"
    return f"It explains {_percent(float(r2))} of the variance of its task ({beside})."


def _percent(share: float) -> str:
    """A share with two digits of what is missing.

    >>> _percent(0.99942), _percent(0.896), _percent(1.0)
    ('99.942 %', '90 %', '100 %')
    """
    missing = 100 * (1 - share)
    digits = max(0, 1 - math.floor(math.log10(missing))) if 0 < missing < 10 else 0
    return f"{100 * share:.{digits}f} %"


def parts(results: Results, facts: Facts) -> str:
    """The heads without which the error rises, or the prediction moves, the most.

    It also says what these look at, where a role is clear.
    """
    if relevance.relevance not in results:
        return ""
    effects = relevance.effects(results, facts)
    n = len(effects)
    # Heads that surely matter, those first without which the error rises, or f moves, the most.
    needed = [name for name, effect in effects.items() if effect.role == "yes"]
    if not needed:
        return "No head surely matters by itself."
    # How much: a factor on the error where the model has learned, else a move of its prediction.
    on_error = facts.has_learned
    each = relevance.without_each(results[relevance.relevance], on_error)
    largest = sorted(needed, key=lambda name: -each[name])[:MOST_HEADS]
    sizes = _listed([number(each[name]) for name in largest])
    what = f"the prediction moves by {sizes} standard deviations"
    if on_error:
        what = f"the error is {sizes} times as large"
    what += looks(results, largest)
    if n == 1:
        return f"Its one head matters: with it held at its mean, {what}."
    count = "All" if len(needed) == n else f"{len(needed)} of"
    verb = "matters" if len(needed) == 1 else "matter"
    most = "" if len(needed) <= MOST_HEADS else "most of all "
    return (
        f"{count} {n} heads {verb} (named layer.head), {most}{_listed(largest)}: with one of them "
        f"held at its mean, {what}."
    )


def looks(results: Results, heads: Sequence[str]) -> str:
    """What each of some heads looks at, with the lowest score of those that do the same."""
    if mechanism.roles not in results:
        return ""
    found = results[mechanism.roles]
    # Each head goes by the role it has most clearly, if any is beyond doubt.
    by_role: dict[str, dict[str, float]] = {}
    for head in heads:
        one = found.sel(head=head)
        clear: dict[str, float] = {}
        for role in one.indexes["role"]:
            if role in LOOKS and float(one.sel(statistic="low", role=role)) > CLEAR:
                clear[role] = float(one.sel(statistic="score", role=role))
        if clear:
            most = max(clear, key=lambda role: clear[role])
            by_role.setdefault(most, {})[head] = clear[most]
    said = []
    for role, scores in by_role.items():
        low = number(min(scores.values()), 2)
        size = f"score {low}" if len(scores) == 1 else f"scores from {low}"
        said.append(f"in {_listed(list(scores))} {LOOKS[role]} ({size}; 0 is chance, 1 the most)")
    return "".join(f"; {one}" for one in said)


def _listed(words: Sequence[str]) -> str:
    """Words in a row.

    >>> _listed(["0.2", "1.2", "1.0"])
    '0.2, 1.2 and 1.0'
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
