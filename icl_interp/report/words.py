"""The words of a report: answers, numbers with units, and what claims need.

A terminal, a table and a model card use them.
"""

from collections.abc import Iterator, Sequence

from icl_interp.analyses import natural
from icl_interp.analyses.claim import QUESTIONS
from icl_interp.analyses.criterion import Condition, Estimate
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.natural import in_a_sentence, opposite, region
from icl_interp.analyses.reasons import END
from icl_interp.baselines.reference import BEST_UNDER_NOISE
from icl_interp.resampling import Interval

MARKS = {
    "supported": ("✔", "green"),
    "contradicted": ("✘", "red"),
    "inconclusive": ("?", "yellow"),
    "not_applicable": ("–", "bright_black"),
}
WORDS = {
    "supported": "supported",
    "contradicted": "contradicted",
    "inconclusive": "open",
    "not_applicable": "not applicable",
}
REFERENCES = {  # beside the error: in words, as stored
    "zero predictor": "zero",
    "mean of the law": "law mean",  # where that is not 0
    "mean value": "mean value",
    "least squares": "least squares",
    BEST_UNDER_NOISE: BEST_UNDER_NOISE,
}
OPEN = "It is open whether"  # how the reason of a claim begins whose number does not decide
SMALL = 3  # letters of words that tell nothing
ALIKE = 0.7  # share of the words of the shorter sentence
MOST = 3  # claims that a sentence of the answer names


def answer(findings: Sequence[Finding]) -> str:
    """Two sentences: which claims the model supports, and which it contradicts.

    Firm verdicts, and findings of different questions, are preferred.

    >>> answer([])
    'No claim was decided.'
    """
    said = {"supported": [], "contradicted": []}
    for f in answered(findings):
        said[f.verdict].append(sentence(f).rstrip("."))
    sentences = []
    for verdict, claims in said.items():
        if claims:
            sentences.append(f"{verdict.capitalize()}: {'; '.join(claims)}.")
    return " ".join(sentences) or "No claim was decided."


def answered(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that the answer names: at most three supported and three contradicted ones.

    Supported ones come first. What holds by algebra says nothing of these weights: such findings
    are named where there are no others.
    """
    named = []
    for verdict in ("supported", "contradicted"):
        found = [f for f in findings if f.verdict == verdict]
        found.sort(key=lambda f: (f.vacuous, f.firm is not True))
        found = _unlike(found)
        # The first finding of each question come first, then the others.
        first = {f.question: f for f in reversed(found)}
        chosen = [first[question] for question in sorted(first, key=_place)]
        chosen += [f for f in found if f not in chosen]
        named += sorted(chosen[:MOST], key=lambda f: _place(f.question))
    return named


def _unlike(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those that say nearly what an earlier one says."""
    kept: list[Finding] = []
    for f in findings:
        if not any(_alike(sentence(f), sentence(other)) for other in kept):
            kept.append(f)
    return kept


def _alike(one: str, other: str) -> bool:
    """Whether most words of the shorter sentence stand in the other; short words do not count.

    >>> _alike("LayerNorm makes the prediction level off.", "LayerNorm causes the prediction to "
    ...     "level off.")
    True
    >>> _alike("Errors grow with the range.", "LayerNorm makes the prediction level off.")
    False
    """
    words = _long_words(one)
    others = _long_words(other)
    fewest = min(len(words), len(others))
    return fewest > 1 and len(words & others) >= ALIKE * fewest


def _long_words(text: str) -> set[str]:
    found = set()
    for word in text.split():
        bare = word.strip(".,;:()").lower()
        if len(bare) > SMALL:
            found.add(bare)
    return found


def by_question(findings: Sequence[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    """Findings by the question that they answer, in the order of the questions.

    Findings of no question come last.
    """
    groups: dict[str, list[Finding]] = {}
    for question in (*QUESTIONS, ""):
        groups[question] = []
    for f in findings:
        groups[f.question if f.question in QUESTIONS else ""].append(f)
    for question, of_it in groups.items():
        if of_it:
            yield question or "other claims", of_it


def _place(question: str) -> int:
    return QUESTIONS.index(question) if question in QUESTIONS else len(QUESTIONS)


def needed(condition: Condition, unit: str = "") -> str:
    """Where a quantity must lie for support, and where for the opposite, in natural units.

    >>> needed(Condition("share", "share of heads", (0.9, 1.0), (0.0, 0.5)))
    'at least 0.9; contradicted: at most 0.5'
    """
    against = condition.contradicts
    contradicted = f"; contradicted: {region(against, unit)}" if against else ""
    return region(condition.supports, unit) + contradicted


def thresholds(condition: Condition, unit: str = "") -> str:
    """Where a quantity must lie to support a claim, and to contradict it, in natural units.

    >>> thresholds(Condition("share", "share of heads", (0.9, 1.0), (0.0, 0.5)))
    'supported: at least 0.9, contradicted: at most 0.5'
    """
    supported = f"supported: {region(condition.supports, unit)}"
    against = condition.contradicts
    if against is None:
        return supported
    return f"{supported}, contradicted: {opposite(condition.supports, against, unit)}"


def what_decides(f: Finding) -> str:
    """What is measured, and where it must lie; empty where no number decides."""
    if not f.test:
        return ""
    return f"{f.test.name}: {thresholds(f.decided_by, f.test.unit)}"


def why_open(f: Finding) -> str:
    """Why a claim is open, in half a sentence; empty where it is not.

    Something came before the number (a measurement failed, a precondition does not hold, a control
    forbids the verdict), or its interval does not lie within one zone.
    """
    if f.verdict != "inconclusive":
        return ""
    sentences = END.split(f.reason.strip())
    if f.error or not f.reason.startswith(OPEN):
        return in_a_sentence(sentences[0])
    number, rule = f.test, f.decided_by
    # A claim may say itself why; else the number follows at once.
    if len(sentences) > 1 and not sentences[1].lower().startswith(rule.name.lower()):
        return in_a_sentence(sentences[1])
    if number is None or not number.known:
        return "the number is not known"
    return _beside(number, rule)


def _beside(number: Estimate, rule: Condition) -> str:
    """How an interval lies that no zone holds."""
    if rule.outcome(number) != "inconclusive":
        return "its zone holds the interval, but other conditions are open"
    n_touched = 0
    for zone in (rule.supports, rule.contradicts):
        if zone is not None:
            low, high = zone
            n_touched += low <= number.high and number.low <= high
    if n_touched == 0:
        return "it lies between the thresholds"
    if n_touched == 2:
        return "its interval reaches from one threshold to the other"
    return "its interval lies across a threshold"


def measured(e: Estimate) -> str:
    """A number with its interval and unit; of a logarithm the factor.

    >>> measured(Estimate("error, far / near", 1.0, 0.0, 2.0, "log10"))
    'x10 [x1, x100]'
    """
    return natural.measured(Interval(e.value, e.low, e.high), e.unit)


def sentence(f: Finding) -> str:
    """What a claim says, in few words where it has them."""
    return f.short or f.statement
