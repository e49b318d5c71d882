"""The whole battery of a study: all trials of its models, and many draws of its constructions.

It takes hours. Each part is kept in a folder as soon as it is done, so a run that was stopped goes
on. What came out for the bundled studies comes with the package (`results/battery.json` of each).
`tools/renew_battery.py` makes some of its parts anew.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from pandas import DataFrame

from icl_interp.analyses.claim import Claim
from icl_interp.checkpoints import store
from icl_interp.errors import InputError
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import NO, YES
from icl_interp.jobs import engine as jobs
from icl_interp.jobs.engine import HERE, Engine, results
from icl_interp.jobs.job import Job, claim_folder, part
from icl_interp.jobs.job import kept as kept_part
from icl_interp.provenance import environment, read_json
from icl_interp.results import from_dict, make_table, table_of_rows, to_dict
from icl_interp.structured import Stored, of_schema
from icl_interp.studies.base import STUDIES, Study
from icl_interp.testing import job_cache, known_models, metamorphic

SCHEMA = "icl_interp.battery/1"
DRAWS = 200  # of each construction
AS_EXPECTED = 179  # of them at least: where 95 of 100 are right, fewer come with P = .0005
# So many of them at most decide otherwise than they must: where 1 of 40 does, more come with
# P = .00004.
WRONG = 15
COMMAND = "icl-interp selfcheck --full --out FOLDER"
# Trials, and the verdict that says what is at stake.
KINDS = {"edit": "before", "ignorant": "after", "draw": "before", "beside": "before"}
SAID = {
    "edit": "after edits that leave what the model computes",
    "ignorant": "on models that know nothing of the function in their prompt",
    "draw": "on other samples, or half of one",
    "beside": "on idle models, beside another that makes the prediction",
}
NUMBERS: tuple[str, ...] = ("verdicts", "decided", "wrong")
COUNTED = ("model", "claim", "trial", *NUMBERS)  # columns of `counts`
WIDTH = 98  # of what is printed: a terminal has 100 columns, and two are left at the margin
STANDARD = metamorphic.Sample()
Watch = Callable[[str], object]
Row = dict[Any, Any]
# Kinds of parts: of a model or a construction.
TRIALS = "trials"
KNOWN = "known"
DRAWN = "draws"
Name = tuple[str, str]  # of a part: its kind, and the model or construction


@dataclass(frozen=True)
class Battery:
    """What came out.

    Attributes:
        study: its name.
        counts: a row a model, claim and kind of trial ("edit", "ignorant", "draw", "beside"):
            "verdicts" that were compared, how many of them are "decided" (supported or
            contradicted) before the change, and how many did not survive it ("wrong": another
            verdict or estimate after an edit, support by a model that knows nothing, the opposite
            of a draw, an idle model's verdict beside another one). In an older file it is one row
            for all models, whose name is "".
        wrong: the rows of `metamorphic.run` and `known_models.run_known` whose verdict did not
            survive.
        draws: a row a construction and claim, as `draws` gives it.
        settings: what was run: models, edits, samples, draws, and a hash of the code ("sources");
            "made_by" has the hash for each part that was renewed by itself.
    """

    study: str
    counts: DataFrame
    wrong: DataFrame
    draws: DataFrame
    settings: dict[str, Any]

    @property
    def claims(self) -> DataFrame:
        """`counts` summed over models: a row a claim and kind of trial.

        Where an older file has a claim's counts for all models, these are shown.
        """
        every = self.settings.get("claims")
        kinds = list(KINDS)
        if every is None:  # an older file, which may lack a kind of trial
            every = dict.fromkeys(self.counts["claim"])
            tried = set(self.counts["trial"])
            kinds = [kind for kind in KINDS if kind in tried]
        counted_rows = self.counts.to_dict("records")
        rows = []
        for claim in every:
            of_claim = _where(counted_rows, "claim", claim)
            of_claim = _where(of_claim, "model", "") or of_claim
            for kind in kinds:
                sums = _sums(_where(of_claim, "trial", kind))
                rows.append({"claim": claim, "trial": kind, **sums})
        return _table(rows, COUNTED[1:])

    def renewed(self, other: "Battery", every: Collection[Name]) -> "Battery":
        """The same with the parts that another run made of the same study.

        Counts of an older file, which does not tell models apart, are shown until all trials have
        been made anew.

        Args:
            other: what the other run made.
            every: all parts that the study has, as `names` gives them.
        """
        settings = {**self.settings, "claims": other.settings["claims"]}
        made_by = dict(settings.get("made_by", {}))
        for part_name, code in other.settings["made_by"].items():
            # Those of the other run come last, so that the first are the oldest.
            made_by.pop(part_name, None)
            made_by[part_name] = code
        settings["made_by"] = made_by
        for name in ("models", "known", "left_out"):
            both = [*settings.get(name, ()), *other.settings[name]]
            settings[name] = list(dict.fromkeys(both))
        settings["variants"] = dict(settings["variants"])
        for kind, tried in other.settings["variants"].items():
            before = settings["variants"].get(kind, ())
            settings["variants"][kind] = sorted({*before, *tried})

        # Counts of an older file are dropped once no trial waits to be made anew.
        models = set(other.counts["model"])
        counts = _joined(self.counts, other.counts, "model", models)
        trials = [", ".join(one) for one in every if one[0] != DRAWN]
        if made_by.keys() >= set(trials):
            counts = _table(_of_models(counts), COUNTED)
        wrong = _joined(self.wrong, other.wrong, "model", models)
        drawn = set(other.draws["construction"])
        draws = _joined(self.draws, other.draws, "construction", drawn)
        return Battery(self.study, counts, wrong, draws, settings)

    def short(self) -> list[str]:
        """What falls short, a line each; none where every verdict withstands."""
        lines = []
        for row in self.wrong.to_dict("records"):
            trial = f"{row['trial']}, {row['variant']}"
            lines.append(f"{row['claim']} on {row['model']}, {trial}: {row['wrong']}")
        for row in self.draws.to_dict("records"):
            missed = falls_short(row)
            if missed:
                lines.append(f"{row['claim']} on {row['construction']}: {missed}")
        return lines

    def undecided(self, kind: str) -> list[str]:
        """Claims without any decided verdict in a kind of trial: "0 wrong" says nothing of them."""
        rows = _where(self.claims.to_dict("records"), "trial", kind)
        return [row["claim"] for row in rows if not row["decided"]]

    def summary(self) -> list[str]:
        """The battery in a few sentences.

        They also name claims without any decided verdict, of which "0 wrong" says nothing.
        """
        lines = []
        for kind, said in SAID.items():
            rows = _where(self.claims.to_dict("records"), "trial", kind)
            if not rows:  # kept by an older version, which had no such trial
                continue
            sums = _sums(rows)
            line = f"{sums['verdicts']} verdicts {said}: {sums['wrong']} wrong"
            line += f", {sums['decided']} decided"
            missing = [name.partition(".")[2] for name in self.undecided(kind)]
            if kind in ("edit", "beside") and missing:
                line += f"; none decided for {len(missing)} of {len(rows)} claims"
                line += f": {', '.join(missing)}"
            lines.append(line)
        n_left = len(self.settings.get("left_out", ()))
        if n_left:
            lines.append(f"edits left out, because they are not exact for a model: {n_left}")
        cells = self.draws.to_dict("records")
        n_short = len(list(filter(falls_short, cells)))
        n_draws = self.settings["draws"]
        lines.append(
            f"verdicts on constructions that are right in at least {AS_EXPECTED} of {DRAWS} draws: "
            f"{len(cells) - n_short} of {len(cells)} ({n_draws} draws each)"
        )
        # Of a battery that is made anew: draws among those above, and trials not yet there.
        families = set(self.draws["construction"])
        made_by = self.settings.get("made_by", {})
        drawn_anew = [name for name in families if f"{DRAWN}, {name}" in made_by]
        if len(drawn_anew) not in (0, len(families)):
            lines.append(f"drawn anew so far: {len(drawn_anew)} of {len(families)} families")
        new = _of_models(self.counts)
        if len(new) not in (0, len(self.counts)):
            n_models = len(set(map(itemgetter("model"), new)))
            sums = _sums(_where(new, "trial", "edit"))
            lines.append(
                f"made anew so far: trials of {n_models} models, with {sums['verdicts']} verdicts "
                f"after edits ({sums['wrong']} wrong)"
            )
        return lines

    def by_trial(self) -> list[str]:
        """A table for the terminal, at most `WIDTH` columns wide.

        Each claim has a row, with its trials beside each other.

        Of each kind of trial it has how many verdicts were decided, of how many, and how many of
        them are wrong.
        """
        kept = set(self.claims["trial"])
        there = [kind for kind in KINDS if kind in kept]
        counts = {(row["claim"], row["trial"]): row for row in self.claims.to_dict("records")}
        # Two lines of heads: the kind of trial, and what its numbers are.
        rows = [["", *there], ["claim", *["decided, wrong"] * len(there)]]
        for name in dict.fromkeys(self.claims["claim"]):
            cells = [name.partition(".")[2]]
            for kind in there:
                sums = counts[name, kind]
                cells.append(f"{sums['decided']} of {sums['verdicts']}, {sums['wrong']}")
            rows.append(cells)
        # Claims stand at the left of their column, numbers at the right of theirs.
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for claim, *numbers in rows:
            padded = map(str.rjust, numbers, sizes[1:])
            line = "  ".join([claim.ljust(sizes[0]), *padded])
            lines.append(line.rstrip())
        return lines

    def to_dict(self) -> dict[str, Any]:
        """As it is written to a file."""
        return {
            "schema": SCHEMA,
            "study": self.study,
            "command": COMMAND,
            "settings": self.settings,
            "counts": to_dict(self.counts),
            "wrong": to_dict(self.wrong),
            "draws": to_dict(self.draws),
            "environment": environment(),
        }

    @classmethod
    def read(cls, path: Path) -> "Battery":
        """Of a file that `to_dict` made."""
        stored = of_schema(read_json(path), SCHEMA, path)
        if "counts" in stored.mapping():
            counts = read_table(stored["counts"])
        else:
            counts = read_table(stored["claims"])
            counts.insert(0, "model", "")
        return cls(
            stored["study"].of(str),
            counts,
            read_table(stored["wrong"]),
            read_table(stored["draws"]),
            stored["settings"].facts(),
        )


def falls_short(row: dict[str, Any]) -> str:
    """What is wrong with a row of `draws`; empty where enough draws get the required verdict."""
    n = row["draws"]
    kept = row["as expected"]
    wrong = row["wrong"]
    if kept >= AS_EXPECTED / DRAWS * n and wrong <= WRONG / DRAWS * n:
        return ""
    return (
        f"{kept} of {n} draws are {row['expected']}, {wrong} decide otherwise "
        f"({row['other verdicts']})"
    )


def kept(study: Study) -> Battery | None:
    """What came out for a study, where it comes with the package."""
    if not study.folder:
        return None
    path = study.folder / "results" / "battery.json"
    return Battery.read(path) if path.is_file() else None


def draws(
    construction: str, n_draws: int = DRAWS, seed: int = 0, done: Path | None = None
) -> DataFrame:
    """`calibration.calibrate` of one construction.

    Args:
        construction: its name.
        n_draws: how many members are drawn.
        seed: of the first draw.
        done: a folder that keeps the table, for each number of draws; one that it holds already is
            not made again.
    """

    def made() -> dict[str, Any]:
        return to_dict(calibration.calibrate(n_draws, seed, [construction]))

    table = kept_part(done, f"{construction}, {n_draws}", made) if done else made()
    return read_table(Stored(table, f"{done}, {construction}: "))


def run(
    study: Study,
    done: Path,
    *,
    n_draws: int = DRAWS,
    seed: int = 0,
    sample: metamorphic.Sample = STANDARD,
    engine: Engine = HERE,
    watch: Watch | None = None,
    only: Collection[Name] | None = None,
) -> Battery:
    """The battery of a study that is registered, or some of its parts.

    Args:
        study: its models and constructions are tried.
        done: the folder that keeps each part.
        n_draws: of each construction.
        seed: of the first draw.
        sample: the prompts of each trial.
        engine: where trials are made: all of a model, or of a construction, as one job.
        watch: is told what is done.
        only: the parts that are made, of `names`; all by default.

    Raises:
        InputError: the folder keeps parts that other code made, or of another sample or seed.
    """
    made_by = stamp(study, done, sample, seed)
    chosen = names(study, seed)
    if only is not None:
        chosen = [one for one in chosen if one in only]
    # By kind: the folder of its jobs, what each does, and with what.
    kinds = {
        TRIALS: ("trials", _try_model, {"sample": sample}),
        KNOWN: ("known", _try_known, {"seed": seed}),
        DRAWN: (f"draws of {n_draws}", _draw, {"n_draws": n_draws, "seed": seed}),
    }
    work = []
    for kind, name in chosen:
        folder, function, settings = kinds[kind]
        arguments = {"study": study.name, "name": name, "done": done, **settings}
        work.append(Job(name, part(done / "jobs" / folder, name), function, arguments))
    # Each job gives a table: its rows, by the function that made them.
    made: dict[Any, list[Row]] = {_try_model: [], _try_known: [], _draw: []}
    for job, found in zip(work, results(jobs.run(work, engine, watch=watch)), strict=True):
        table = read_table(Stored(found, f"{job.folder}: "))
        made[job.work] += table.to_dict("records")
    tried = []
    left_out = set()
    for row in made[_try_model] + made[_try_known]:
        if row["trial"] == metamorphic.LEFT_OUT:
            left_out.add((row["model"], row["variant"]))
        if not excepted(row, study):
            tried.append(row)
    variants = {}
    for kind in KINDS:
        of_kind = map(itemgetter("variant"), _where(tried, "trial", kind))
        variants[kind] = sorted(set(of_kind))
    settings = {
        "claims": [claim.id for claim in study.claims],
        "models": _of_kind(chosen, TRIALS),
        "variants": variants,
        "known": _of_kind(chosen, KNOWN),
        "left_out": list(map(": ".join, sorted(left_out))),
        "draws": n_draws,
        **made_by,
    }
    if only is not None:
        settings["made_by"] = dict.fromkeys(map(", ".join, chosen), made_by["sources"])
    wrong = _table(list(filter(itemgetter("wrong"), tried)), metamorphic.COLUMNS)
    drawn = _table(made[_draw], calibration.COLUMNS)
    return Battery(study.name, counted(tried, study.claims), wrong, drawn, settings)


def names(study: Study, seed: int = 0) -> list[Name]:
    """All parts of a study's battery: trials of its models and of known ones, and draws."""
    found = []
    for name in study.models:
        found.append((TRIALS, name))
    for one in known_models.known(study.constructions, study.claims, seed):
        found.append((KNOWN, one.construction.name))
    for construction in study.constructions:
        found.append((DRAWN, construction.name))
    return found


def _of_kind(parts: Iterable[Name], kind: str) -> list[str]:
    """The models or constructions of the parts of a kind."""
    return [name for its_kind, name in parts if its_kind == kind]


def stamp(study: Study, done: Path, sample: metamorphic.Sample, seed: int) -> dict[str, Any]:
    """What the parts of a battery depend on.

    Its folder is refused where it keeps others (`claim_folder`).
    """
    made_by = {"sources": job_cache.sources(study), "sample": asdict(sample), "seed": seed}
    claim_folder(done, made_by)
    return made_by


def read_table(stored: Stored) -> DataFrame:
    """A table that `to_dict` made.

    Raises:
        InputError: it is something else.
    """
    table = from_dict(stored.mapping(), stored.where)
    if not isinstance(table, DataFrame):
        raise InputError(f"{stored.place} must be a table, but it is an array")
    return table


def _joined(old: DataFrame, new: DataFrame, column: str, names: set[str]) -> DataFrame:
    """Rows of both tables, without the old ones of these names."""
    rows = [row for row in old.to_dict("records") if row[column] not in names]
    rows += new.to_dict("records")
    return _table(rows, new.columns)


def _table(rows: Sequence[Row], columns: Iterable[str]) -> DataFrame:
    return make_table({name: list(map(itemgetter(name), rows)) for name in columns})


def _where(rows: Iterable[Row], column: str, value: str) -> list[Row]:
    return [row for row in rows if row[column] == value]


def _of_models(counts: DataFrame) -> list[Row]:
    """Rows of `counts` without those of an older file, which are for all models."""
    return [row for row in counts.to_dict("records") if row["model"]]


def _sums(rows: Iterable[Row]) -> dict[str, int]:
    """The numbers of some rows of `counts`, added up."""
    sums = dict.fromkeys(NUMBERS, 0)
    for row in rows:
        for name in NUMBERS:
            sums[name] += row[name]
    return sums


def subject(row: Row) -> str:
    """A row of `metamorphic.run`, as exceptions from the rule "models" of `check_study` name it."""
    return f"{row['claim']} on {row['model']}, {row['trial']}: {row['variant']}"


def excepted(row: Row, study: Study) -> bool:
    """Whether a study declares that a verdict need not withstand a trial.

    Under "ignorance" it names claims that may hold for all models of a kind that know nothing, and
    under "models" single verdicts in single trials.
    """
    if row["trial"] == "ignorant":
        kind = f"{row['claim']} of {row['variant']}"
        if ("ignorance", kind) in study.exceptions:
            return True
    return ("models", subject(row)) in study.exceptions


def counted(tried: Sequence[Row], claims: Iterable[Claim]) -> DataFrame:
    """`by_claim` of each model, without claims and trials that a model has no verdict in."""
    found = []
    for model in dict.fromkeys(map(itemgetter("model"), tried)):
        of_it = _where(tried, "model", model)
        for row in by_claim(of_it, claims).to_dict("records"):
            if row["verdicts"]:
                found.append({"model": model, **row})
    return _table(found, COUNTED)


def by_claim(tried: Sequence[Row], claims: Iterable[Claim]) -> DataFrame:
    """A row a claim and kind of trial of the rows of `metamorphic.run`.

    Verdicts that do not apply after the change are left out, unless they had to.
    """
    rows = []
    for claim in claims:
        of_claim = _where(tried, "claim", claim.id)
        for kind, compared in KINDS.items():
            sums = dict.fromkeys(NUMBERS, 0)
            for row in _where(of_claim, "trial", kind):
                if row["after"] == "not_applicable" and not row["wrong"]:
                    continue
                sums["verdicts"] += 1
                sums["decided"] += row[compared] in (YES, NO)
                sums["wrong"] += bool(row["wrong"])
            rows.append({"claim": claim.id, "trial": kind, **sums})
    return table_of_rows(rows)


def _try_model(study: str, name: str, done: Path, sample: metamorphic.Sample) -> dict[str, Any]:
    posed = {name: metamorphic.posed(store.load(name))}
    claims = STUDIES.named(study).claims
    return to_dict(metamorphic.run(posed, claims, sample=sample, done=done / "trials"))


def _try_known(study: str, name: str, done: Path, seed: int) -> dict[str, Any]:
    of_it = STUDIES.named(study)
    every = known_models.known(of_it.constructions, of_it.claims, seed)
    chosen = [one for one in every if one.construction.name == name]
    return to_dict(known_models.run_known(chosen, every, seed=seed, done=done / "known"))


def _draw(study: str, name: str, done: Path, n_draws: int, seed: int) -> dict[str, Any]:
    assert study in STUDIES  # reading the register has the studies of other packages loaded
    return to_dict(draws(name, n_draws, seed, done / "draws"))
