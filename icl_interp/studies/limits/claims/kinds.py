"""What the claims about a kind of training share: groups of seeds, and what to compare them needs.

An arm is all runs at hand that are alike but for their seed. Each gives one number on one sample
that all arms share, and the exact permutation interval of the difference of mean logarithms says
how much the kinds differ.

How far two kinds must differ was fixed before the arms were compared, from the spread within them:
in distribution the errors of five kinds with five seeds each have a standard deviation of 0.10
decades within a kind. The difference of two arms of five then has a standard error of 0.063
decades, at half the sample 0.089. Two of these are a factor of 1.5, which lies between a fifth less
(0.8) and a fifth more (1.2). So neither region ends at "no difference".

A run counts once, a copy of it not again (`measurements.seeds`). A run whose numbers are not at
hand is left out and named. One that was measured and has an error of 0, of NaN or of infinity is
not left out, since that would choose runs by what is compared: then nothing is compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from pandas import DataFrame

from icl_interp.analyses.claim import LEARNED_R2, Remarks
from icl_interp.analyses.criterion import INF, Found, Precondition, at_least
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.permutation import ratio
from icl_interp.resampling import Interval
from icl_interp.results import rows_in
from icl_interp.studies.limits.measurements.seeds import LEAST, NOWHERE, TRAINED, UNTRAINED
from icl_interp.studies.limits.measurements.shift import RATE

SEEDS = 5  # of each kind that a claim asks for, so that more than one order of the runs decides
# Times: a fifth less, and a fifth more.
SMALLER = 0.8
LARGER = 1.2
# Times the median: up to this error rates count as those of runs that were trained equally well.
ALIKE = 2.0
SCOPE = "these kinds of training, this task"
HOW_TO_TRAIN = "`icl-interp complete RUN --out FOLDER` trains what is missing."
Row = dict[str, Any]
TIMES = "times"


@dataclass(frozen=True)
class Arm:
    """The runs of one kind that count, and what was left out.

    Attributes:
        name: of the arm in the table; `OWN` is the model's.
        recipe: of a kind that comes with the package, else "".
        runs: those that count. fresh: untrained models of the same config.
        out: runs that have not learned the task, and why.
        unmeasured: runs whose numbers are not at hand.
        known: whether it is known how they were trained.
    """

    name: str
    recipe: str
    runs: tuple[Row, ...]
    fresh: tuple[Row, ...]
    out: tuple[str, ...]
    unmeasured: tuple[str, ...]
    known: bool

    @classmethod
    def of(cls, table: DataFrame, name: str, learned: bool = True) -> "Arm":
        """One arm of a table of runs.

        Args:
            table: a measurement of `measurements.seeds`.
            name: of the arm.
            learned: leave out runs that have not learned their task.
        """
        mine = [row for row in rows_in(table) if row["arm"] == name]
        every = []
        fresh = []
        for row in mine:
            if row["weights are"] == TRAINED:
                every.append(row)
            elif row["weights are"] == UNTRAINED:
                fresh.append(row)
        # Where nothing is measured, because nothing could be decided, all runs are only counted.
        measured = any(row["numbers"] != NOWHERE for row in every)
        runs = []
        short = []
        absent = []
        for row in every:
            if learned and row[RATE] >= 1 - LEARNED_R2:
                short.append(f"{row['run']} (R2 {1 - row[RATE]:.2g})")
            elif measured and row["numbers"] == NOWHERE:
                absent.append(str(row["run"]))
            else:
                runs.append(row)
        return cls(
            name=name,
            recipe=mine[0]["recipe"] if mine else "",
            runs=tuple(runs),
            fresh=tuple(fresh),
            out=tuple(short),
            unmeasured=tuple(absent),
            known=bool(mine and mine[0]["training"]),
        )

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def a(self) -> float:
        """The half-width of the interval that it was trained on."""
        return float(self.runs[0]["a"])

    def tested(self, column: str) -> bool:
        """Whether runs were measured so."""
        return any(np.isfinite(row.get(column, np.nan)) for row in self.runs)

    def numbers(self, column: str, fresh: bool = False) -> Float[np.ndarray, " run"]:
        """The numbers of all runs, or of the untrained ones."""
        rows = self.fresh if fresh else self.runs
        return np.array([float(row.get(column, np.nan)) for row in rows])

    def without_logarithm(self, columns: Sequence[str]) -> int:
        """How many runs have a number, in any of these columns, of which there is no logarithm."""
        without = 0
        for row in self.runs:
            without += not _has_logarithm(row, columns)
        return without


def _has_logarithm(row: Row, columns: Sequence[str]) -> bool:
    """Whether all of these numbers are there, positive and finite."""
    return all(0 < row.get(column, np.nan) < INF for column in columns)


def times(top: Arm, bottom: Arm, column: str, fresh: bool = False) -> Interval:
    """How many times the numbers of one arm are those of another: geometric means, exact intervals.

    The intervals are those of permutations.
    """
    return ratio(top.numbers(column, fresh), bottom.numbers(column, fresh))


def untrained(arms: Sequence[Arm], columns: Sequence[str]) -> list[Arm] | None:
    """The same arms with untrained models whose numbers have logarithms; None if one has none."""
    fit = []
    for arm in arms:
        fresh = tuple(row for row in arm.fresh if _has_logarithm(row, columns))
        if not fresh:
            return None
        fit.append(replace(arm, fresh=fresh))
    return fit


def fewest(arms: Sequence[Arm]) -> int:
    """Seeds of the smallest arm."""
    return min(map(len, arms))


def seeds_needed(least: int = LEAST) -> Precondition:
    """Seeds enough in every arm; three against three, say, have p >= 0.10 whatever they show."""
    otherwise = (
        f"Nothing was compared: the smaller group has {{value:.0f}} of at least {least} seeds "
        "needed."
    )
    return Precondition("seeds", at_least(least), otherwise)


# Runs are never left out by the very error that a claim compares, so one that fell behind makes it
# inconclusive.
TRAINED_EQUALLY = Precondition(
    "equally well",
    (0.0, ALIKE),
    "The runs were not trained equally well: one's error is {value:.2g} times off the median (at "
    f"most {ALIKE:g}).",
    optional=True,
)
TRAINED_ALIKE = Precondition(
    "trainings",
    (1, 1),
    "The groups were trained in {value:.0f} different ways (steps, batches, learning rates or "
    "curricula), but must be trained in one.",
    optional=True,
)
TRAINING_KNOWN = Precondition(
    "training unknown",
    (0, 0),
    "For {value:.0f} of the groups nothing says how they were trained (in a run folder "
    "config.json does), and the claim is about kinds of training.",
)
COMPARABLE = Precondition(
    "no number",
    (0, 0),
    "Nothing was compared: {value:.0f} of the runs have an error that is 0, NaN or infinite.",
    optional=True,
)


def preconditions(least: int = LEAST) -> tuple[Precondition, ...]:
    """What every claim about a kind of training asks first; an arm needs so many seeds."""
    return TRAINING_KNOWN, seeds_needed(least), COMPARABLE, TRAINED_ALIKE, TRAINED_EQUALLY


PRECONDITIONS = preconditions()


def prepared(
    arms: Sequence[Arm], columns: Sequence[str], apart: bool = False, least: int = LEAST
) -> dict[str, Found]:
    """The quantities of the preconditions.

    Args:
        arms: those that are compared.
        columns: the numbers that are compared.
        apart: each arm has a median of its own, for claims about the error in distribution itself:
            a common one would bound the very difference that is asked about.
        least: seeds that an arm needs.
    """
    unknown = sum(not arm.known for arm in arms if arm.runs)
    n_seeds = fewest(arms)
    found: dict[str, Found] = {"training unknown": unknown, "seeds": n_seeds}
    if unknown or n_seeds < least:
        return found
    blank = 0
    for arm in arms:
        blank += arm.without_logarithm((RATE, *columns))
    found["no number"] = blank
    if blank:
        return found
    # How far the run that is farthest off lies from its median.
    groups = [np.log(arm.numbers(RATE)) for arm in arms]
    if not apart:
        groups = [np.concatenate(groups)]
    distances = []
    for group in groups:
        from_median = np.abs(group - np.median(group))
        distances.append(float(from_median.max()))
    found["equally well"] = np.exp(max(distances))
    trainings = set()
    for arm in arms:
        trainings.update(row["training"] for row in arm.runs)
    found["trainings"] = len(trainings)
    return found


def comparable(quantities: Mapping[str, Found]) -> bool:
    """Whether `prepared` found every arm fit to be compared, as far as its numbers go."""
    return "trainings" in quantities


def counted(arms: Sequence[Arm]) -> str:
    """How many seeds there are, and how many were left out."""
    sizes = []
    n_out = 0
    for arm in arms:
        sizes.append(len(arm))
        n_out += len(arm.out) + len(arm.unmeasured)
    said = f"{' and '.join(map(str, sizes))} seeds"
    if len(set(sizes)) == 1:
        said = f"{sizes[0]} seeds each"
    if n_out:
        said += f", {n_out} left out"
    return said


def compared(arms: Sequence[Arm]) -> str:
    """How many seeds were compared, as a sentence."""
    return f"The groups have {counted(arms)}."


def left_out(arms: Sequence[Arm], names: Sequence[str]) -> tuple[Row, ...]:
    """A row for each run that has not learned its task, or whose numbers are not at hand.

    The rows are details of a finding.
    """
    rows: list[Row] = []
    for arm, name in zip(arms, names, strict=True):
        for run in arm.out:
            rows.append({"kind": name, "left out, not learned": run})
        for run in arm.unmeasured:
            rows.append({"kind": name, "left out, not measured": run})
    return tuple(rows)


def too_few(arms: Sequence[Arm], names: Sequence[str]) -> Remarks:
    """What stands beside groups that cannot be compared: the seeds that are missing, if any are."""
    counts = []
    small = []
    for arm, name in zip(arms, names, strict=True):
        if len(arm) < LEAST:
            counts.append(f"{name}: {len(arm)} of {LEAST}")
            small.append(arm)
    needed = f"Seeds at hand: {', '.join(counts)}. {HOW_TO_TRAIN}" if small else ""
    return Remarks(scope=SCOPE, open_because=needed, details=left_out(arms, names))


def details(
    arms: Sequence[Arm], names: Sequence[str], columns: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """A row a run: whose numbers these are, and the numbers."""
    rows = []
    for arm, name in zip(arms, names, strict=True):
        for run in arm.runs:
            row = {"kind": name}
            for key in ("run", "seed", "weights", "numbers", RATE):
                row[key] = run[key]
            for column in columns:
                if column in run:
                    row[column] = run[column]
            rows.append(row)
    return (*rows, *left_out(arms, names))


def scalable(facts: Facts) -> str | None:
    """Why functions and inputs of the task cannot be scaled here."""
    kind = facts.task_kind
    if kind == "Polynomial":
        return None
    return (
        f"The claim is about polynomials that are scaled; this model's task is {kind}, which is "
        "not scaled here."
    )
