"""The trial of the tools: every method on every family of planted models, kept with the package."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from icl_interp.errors import unknown, whole
from icl_interp.jobs import engine as jobs
from icl_interp.jobs.engine import HERE, Engine, results
from icl_interp.jobs.job import Job, claim_folder, part
from icl_interp.provenance import environment, read_json
from icl_interp.results import rows_in, table_of_rows, to_dict
from icl_interp.structured import of_schema
from icl_interp.testing.battery import Watch, read_table
from icl_interp.testing.planted.draw import DECOYS, EVERY, N_SEEDS, NONE, planted, seeds_of
from icl_interp.testing.planted.families import FAMILIES
from icl_interp.testing.planted.plans import PLANS
from icl_interp.testing.planted.score import METHODS, NOTHING, Score, scored
from icl_interp.testing.planted.trained import KEPT as KEPT_WEIGHTS

SCHEMA = "icl_interp.tools/1"
COMMAND = "icl-interp selfcheck --tools --out FOLDER"
KEPT = Path(__file__).parent / "results" / "tools.json"
TRAINED = "trained"
KEYS = ("family", "decoy", "method")
COUNTS = ("planted", "found", "others", "named", "intervals", "covered")
EXACT = 0.9  # of models, whose circuit is the planted one
FALSE = 0.05  # of what is not planted, that is named
COVER = 0.92  # of intervals at 95 %
LEGEND = "found / named: percent of planted things found, and of others named; -: nothing to find"


@dataclass(frozen=True)
class Tools:
    """What came out.

    Attributes:
        table: a row a family, decoy and method: how many "models", how many of them were "exact"
            (all that is planted is named, and nothing else), and the counts of `Score`.
        settings: what was run: seeds of each family, the first, and a hash of the code ("sources").
            Where trained families were tried apart, "trained" holds the settings of that.
    """

    table: pd.DataFrame
    settings: dict[str, Any]

    def score(
        self,
        method: str,
        *,
        families: Collection[str] = EVERY,
        decoys: Collection[str] = (NONE, *DECOYS),
    ) -> Score:
        """Of a method, over some families and decoys."""
        total = NOTHING
        for row in self._rows(method, families, decoys):
            counts = {name: row[name] for name in COUNTS}
            total += Score(**counts)
        return total

    def exact(self, method: str, decoys: Collection[str] = (NONE, *DECOYS)) -> tuple[int, int]:
        """Models on which a method named what is planted and nothing else, and all of them."""
        right = 0
        models = 0
        for row in self._rows(method, EVERY, decoys):
            if row["planted"] + row["others"]:
                right += row["exact"]
                models += row["models"]
        return right, models

    def _rows(
        self, method: str, families: Collection[str], decoys: Collection[str]
    ) -> Iterator[dict[str, Any]]:
        if method not in METHODS:
            raise unknown("method", method, METHODS)
        for row in rows_in(self.table):
            if row["method"] == method and row["family"] in families and row["decoy"] in decoys:
                yield row

    def lines(self) -> list[str]:
        """Tables for the terminal and a line for each target, at most 100 columns wide."""
        # Families that are set by hand, those that were trained, and decoys of all.
        tables = [*self._by_family("method", FAMILIES), *self._by_family(TRAINED, PLANS)]
        by_decoy: dict[str, dict[str, Any]] = {}
        for name in dict.fromkeys(self.table["decoy"]):
            by_decoy["no decoy" if name == NONE else name] = {"decoys": (name,)}
        by_decoy["all"] = {}
        second = [["method", *by_decoy, "exact", "cover"]]
        for method in METHODS:
            exact, models = self.exact(method)
            score = self.score(method)
            ends = [f"{exact}/{models}", f"{score.covered}/{score.intervals}"]
            second.append(
                [method, *(_cell(self.score(method, **one)) for one in by_decoy.values()), *ends]
            )
        return [*tables, *_aligned(second), "", LEGEND, "", *self.targets()]

    def _by_family(self, title: str, families: Iterable[str]) -> list[str]:
        """A table with a row a method and a column a family that was tried."""
        there = set(self.table["family"])
        tried = [name for name in families if name in there]
        if not tried:
            return []
        rows = [[title]]
        rows += [[method] for method in METHODS]
        for name in tried:
            rows[0].append(name.removeprefix(f"{TRAINED} "))
            for row in rows[1:]:
                row.append(_cell(self.score(row[0], families=(name,))))
        return [*_aligned(rows), ""]

    def targets(self) -> list[str]:
        """Each target and what came of it."""
        exact, models = self.exact("circuit")
        plain, without = self.exact("circuit", (NONE,))
        total = NOTHING
        for method in METHODS:
            total += self.score(method)
        alone = NOTHING
        for method in METHODS:
            alone += self.score(method, decoys=(NONE,))
        shares = (
            ("circuits found exactly", exact, models, EXACT, True),
            ("  without decoys", plain, without, EXACT, True),
            ("other things named", total.named, total.others, FALSE, False),
            ("  without decoys", alone.named, alone.others, FALSE, False),
            ("intervals that cover", total.covered, total.intervals, COVER, True),
        )
        return [_target(*one) for one in shares]

    def short(self) -> list[str]:
        """The targets that are missed."""
        return [line for line in self.targets() if line.endswith("missed")]

    def joined(self, trained: "Tools") -> "Tools":
        """With rows of trained families from another trial, in the place of its own."""
        rows = []
        for source, wanted in ((self, FAMILIES), (trained, PLANS)):
            for row in rows_in(source.table):
                if row["family"] in wanted:
                    rows.append(row)
        settings = {**self.settings, TRAINED: trained.settings}
        return Tools(table_of_rows(rows), settings)

    def to_dict(self) -> dict[str, Any]:
        """As it is written to a file."""
        return {
            "schema": SCHEMA,
            "command": COMMAND,
            "settings": self.settings,
            "table": to_dict(self.table),
            "environment": environment(),
        }

    @classmethod
    def read(cls, path: Path) -> "Tools":
        """Of a file that `to_dict` made."""
        stored = of_schema(read_json(path), SCHEMA, path)
        return cls(read_table(stored["table"]), stored["settings"].facts())


def kept() -> Tools | None:
    """What came out when it was last run, where it comes with the package."""
    return Tools.read(KEPT) if KEPT.is_file() else None


def run(
    done: Path,
    *,
    families: Sequence[str] = EVERY,
    n_seeds: int = N_SEEDS,
    seed: int = 0,
    engine: Engine = HERE,
    watch: Watch | None = None,
) -> Tools:
    """Every method on models of every family.

    Args:
        done: the folder that keeps what each model came to.
        families: names of `EVERY`.
        n_seeds: models of each; of a trained family at most as many as there are.
        seed: of the first.
        engine: where models are tried, each as a job.
        watch: is told what is done.

    Raises:
        InputError: the folder keeps what other code made, or of other seeds.
    """
    whole(n_seeds, "draws", 1, 10**4)
    whole(seed, "seed", 0)
    made_by = {"sources": sources(), "draws": n_seeds, "seed": seed}
    claim_folder(done, made_by)
    work = []
    # Seeds first, so that what is there of a run that was stopped is of all families.
    for each in range(seed, seed + n_seeds):
        for family in families:
            if each not in seeds_of(family, n_seeds, seed):
                continue
            arguments = {"family": family, "seed": each}
            name = f"{family} {each}"
            work.append(Job(name, part(done, name), tried, arguments))
    every: list[dict[str, Any]] = []
    for found in results(jobs.run(work, engine, watch=watch)):
        every += found
    return Tools(table_of_rows(added_up(every)), made_by)


def tried(family: str, seed: int) -> list[dict[str, Any]]:
    """Rows of one model, a row a method."""
    one = planted(family, seed)
    rows = []
    for method, score in scored(one).items():
        row: dict[str, Any] = {"family": family, "decoy": one.decoy, "method": method}
        asked = bool(score.planted + score.others)
        rows.append(row | {"models": 1, "exact": int(score.exact and asked), **vars(score)})
    return rows


def added_up(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of many models, a row a family, decoy and method, in the order of their first ones.

    >>> one = {"family": "a", "decoy": "none", "method": "b", "models": 1, "exact": 0}
    >>> added_up([one, one | {"exact": 1}])
    [{'family': 'a', 'decoy': 'none', 'method': 'b', 'models': 2, 'exact': 1}]
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["family"], row["decoy"], row["method"])
        if key not in found:
            found[key] = dict(row)
            continue
        for name in row.keys() - set(KEYS):
            found[key][name] += row[name]
    return list(found.values())


def sources() -> str:
    """A hash of the code that draws the models and keeps the scores."""
    found = hashlib.sha256()
    for name in ("base", "draw", "families", "plans", "score"):
        path = Path(__file__).with_name(f"{name}.py")
        found.update(path.read_bytes())
    for path in sorted(KEPT_WEIGHTS.glob("*.safetensors")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _cell(score: Score) -> str:
    """Percent found and named."""
    if not score.planted:
        return "-"
    return f"{_percent(score.found, score.planted)}/{_percent(score.named, score.others)}"


def _percent(some: int, every: int) -> str:
    return f"{100 * some / every:.0f}" if every else "-"


def _target(what: str, some: int, every: int, bound: float, at_least: bool) -> str:
    share = some / every if every else float("nan")
    met = share >= bound if at_least else share <= bound
    sign = ">=" if at_least else "<="
    outcome = "met" if met else "missed"
    return f"{what}: {some} of {every}, {share:.1%} (target {sign} {bound:.0%}): {outcome}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells, the first left and the others right."""
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(sizes[0])]
        for cell, size in zip(rest, sizes[1:], strict=True):
            cells.append(cell.rjust(size))
        lines.append("  ".join(cells).rstrip())
    return lines
