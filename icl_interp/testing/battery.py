"""The whole battery of a study: all trials of its models, and many draws of its constructions.

It takes hours. Each part is kept in a folder as soon as it is done, so a run that was stopped goes
on. What came out for the bundled studies comes with the package (`results/battery.json` of each).
`tools/renew_battery.py` makes some of its parts anew.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
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
COUNTED = ("model", "claim", "trial", "verdicts", "decided", "wrong")  # columns of `counts`
WIDTH = 98  # of what is printed: a terminal has 100 columns, and two are left at the margin
STANDARD = metamorphic.Sample()
Watch = Callable[[str], object]
Row = dict[Any, Any]
TRIALS, KNOWN, DRAWN = "trials", "known", "draws"  # kinds of parts: of a model or a construction
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
        numbers = ["verdicts", "decided", "wrong"]
        every = self.settings.get("claims")
        kinds = list(KINDS)
        if every is None:  # an older file, which may lack a kind of trial
            every = dict.fromkeys(self.counts["claim"])
            kinds = [kind for kind in KINDS if kind in set(self.counts["trial"])]
        counted_rows = self.counts.to_dict("records")
        rows = []
        for claim in every:
            of_claim = [row for row in counted_rows if row["claim"] == claim]
            of_claim = [row for row in of_claim if not row["model"]] or of_claim
            for kind in kinds:
                of_it = [row for row in of_claim if row["trial"] == kind]
                sums = {name: sum(row[name] for row in of_it) for name in numbers}
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
        # Those of the other run come last, so that the first are the oldest.
        renewed = other.settings["made_by"]
        made_by = settings.get("made_by", {})
        kept_by = {name: code for name, code in made_by.items() if name not in renewed}
        settings["made_by"] = kept_by | renewed
        for name in ("models", "known", "left_out"):
            both = [*settings.get(name, ()), *other.settings[name]]
            settings[name] = list(dict.fromkeys(both))
        settings["variants"] = dict(settings["variants"])
        for kind, tried in other.settings["variants"].items():
            before = settings["variants"].get(kind, ())
            settings["variants"][kind] = sorted({*before, *tried})

        models = set(other.counts["model"])
        counts = _joined(self.counts, other.counts, "model", models)
        trials = [", ".join(part) for part in every if part[0] != DRAWN]
        if settings["made_by"].keys() >= set(trials):
            counts = _table([row for row in counts.to_dict("records") if row["model"]], COUNTED)
        drawn = set(other.draws["construction"])
        return Battery(
            self.study,
            counts,
            _joined(self.wrong, other.wrong, "model", models),
            _joined(self.draws, other.draws, "construction", drawn),
            settings,
        )

    def short(self) -> list[str]:
        """What falls short, a line each; none where every verdict withstands."""
        lines = [
            f"{row['claim']} on {row['model']}, {row['trial']}, {row['variant']}: {row['wrong']}"
            for row in self.wrong.to_dict("records")
        ]
        return lines + [
            f"{row['claim']} on {row['construction']}: {missed}"
            for row in self.draws.to_dict("records")
            if (missed := falls_short(row))
        ]

    def undecided(self, kind: str) -> list[str]:
        """Claims without any decided verdict in a kind of trial: "0 wrong" says nothing of them."""
        rows = [row for row in self.claims.to_dict("records") if row["trial"] == kind]
        return [row["claim"] for row in rows if not row["decided"]]

    def summary(self) -> list[str]:
        """The battery in a few sentences.

        Where none is wrong, they name the claims of which that says nothing.
        """
        lines = []
        for kind, said in (
            ("edit", "after edits that leave what the model computes"),
            ("ignorant", "on models that know nothing of the function in their prompt"),
            ("draw", "on other samples, or half of one"),
            ("beside", "on idle models, beside another that makes the prediction"),
        ):
            rows = [row for row in self.claims.to_dict("records") if row["trial"] == kind]
            if not rows:  # kept by an older version, which had no such trial
                continue
            counts = {
                name: sum(row[name] for row in rows) for name in ("verdicts", "decided", "wrong")
            }
            line = (
                f"{counts['verdicts']} verdicts {said}: {counts['wrong']} wrong, "
                f"{counts['decided']} decided"
            )
            missing = [name.partition(".")[2] for name in self.undecided(kind)]
            if kind in ("edit", "beside") and missing:
                line += (
                    f"; none decided for {len(missing)} of {len(rows)} claims: {', '.join(missing)}"
                )
            lines.append(line)
        if n_left := len(self.settings.get("left_out", ())):
            lines.append(f"edits left out, because they are not exact for a model: {n_left}")
        cells = self.draws.to_dict("records")
        short = sum(bool(falls_short(row)) for row in cells)
        n = self.settings["draws"]
        lines.append(
            f"verdicts on constructions that are right in at least {AS_EXPECTED} of {DRAWS} draws: "
            f"{len(cells) - short} of {len(cells)} ({n} draws each)"
        )
        # Of a battery that is made anew: trials that do not stand above yet.
        new = [row for row in self.counts.to_dict("records") if row["model"]]
        if len(new) not in (0, len(self.counts)):
            models = {row["model"] for row in new}
            edits = [row for row in new if row["trial"] == "edit"]
            verdicts, wrong = (sum(row[n] for row in edits) for n in ("verdicts", "wrong"))
            lines.append(
                f"made anew so far: trials of {len(models)} models, with {verdicts} verdicts after "
                f"edits ({wrong} wrong)"
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
        names = list(dict.fromkeys(self.claims["claim"]))
        # Two lines of heads: the kind of trial, and what its numbers are.
        rows = [["", *there], ["claim", *["decided, wrong"] * len(there)]]
        for name in names:
            found = [counts[name, kind] for kind in there]
            cells = [f"{one['decided']} of {one['verdicts']}, {one['wrong']}" for one in found]
            rows.append([name.partition(".")[2], *cells])
        sizes = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return [
            "  ".join([row[0].ljust(sizes[0]), *map(str.rjust, row[1:], sizes[1:])]).rstrip()
            for row in rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """As it is written to a file."""
        tables = {name: to_dict(getattr(self, name)) for name in ("counts", "wrong", "draws")}
        return {
            "schema": SCHEMA,
            "study": self.study,
            "command": COMMAND,
            "settings": self.settings,
            **tables,
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
    n, kept, wrong = row["draws"], row["as expected"], row["wrong"]
    if kept < AS_EXPECTED / DRAWS * n or wrong > WRONG / DRAWS * n:
        return (
            f"{kept} of {n} draws are {row['expected']}, {wrong} decide otherwise "
            f"({row['other verdicts']})"
        )
    return ""


def kept(study: Study) -> Battery | None:
    """What came out for a study, where it comes with the package."""
    path = study.folder / "results" / "battery.json" if study.folder else None
    return Battery.read(path) if path and path.is_file() else None


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
    chosen = [one for one in names(study, seed) if only is None or one in only]
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
    made: dict[Any, list[Row]] = {function: [] for _, function, _ in kinds.values()}
    for job, found in zip(work, results(jobs.run(work, engine, watch=watch)), strict=True):
        table = read_table(Stored(found, f"{job.folder}: "))
        made[job.work] += table.to_dict("records")
    rows = made[_try_model] + made[_try_known]
    left_out = sorted(
        {(row["model"], row["variant"]) for row in rows if row["trial"] == metamorphic.LEFT_OUT}
    )
    tried = [row for row in rows if not excepted(row, study)]
    settings = {
        "claims": [claim.id for claim in study.claims],
        "models": [name for kind, name in chosen if kind == TRIALS],
        "variants": {
            kind: sorted({row["variant"] for row in tried if row["trial"] == kind})
            for kind in KINDS
        },
        "known": [name for kind, name in chosen if kind == KNOWN],
        "left_out": [f"{model}: {variant}" for model, variant in left_out],
        "draws": n_draws,
        **made_by,
    }
    if only is not None:
        settings["made_by"] = {f"{kind}, {name}": made_by["sources"] for kind, name in chosen}
    return Battery(
        study.name,
        counted(tried, study.claims),
        _table([row for row in tried if row["wrong"]], metamorphic.COLUMNS),
        _table(made[_draw], calibration.COLUMNS),
        settings,
    )


def names(study: Study, seed: int = 0) -> list[Name]:
    """All parts of a study's battery: trials of its models and of known ones, and draws."""
    every = known_models.known(study.constructions, study.claims, seed)
    found = [(TRIALS, name) for name in study.models]
    found += [(KNOWN, one.construction.name) for one in every]
    return found + [(DRAWN, one.name) for one in study.constructions]


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
    return _table([*rows, *new.to_dict("records")], new.columns)


def _table(rows: Sequence[Row], columns: Iterable[str]) -> DataFrame:
    return make_table({name: [row[name] for row in rows] for name in columns})


def subject(row: Row) -> str:
    """A row of `metamorphic.run`, as exceptions from the rule "models" of `check_study` name it."""
    return f"{row['claim']} on {row['model']}, {row['trial']}: {row['variant']}"


def excepted(row: Row, study: Study) -> bool:
    """Whether a study declares that a verdict need not withstand a trial.

    For models that know nothing: of a claim that may hold for all of a kind ("ignorance"), or for
    one ("models").
    """
    whole = (
        row["trial"] == "ignorant"
        and ("ignorance", f"{row['claim']} of {row['variant']}") in study.exceptions
    )
    return whole or ("models", subject(row)) in study.exceptions


def counted(tried: Sequence[Row], claims: Iterable[Claim]) -> DataFrame:
    """`by_claim` of each model, without claims and trials that a model has no verdict in."""
    found = []
    for model in dict.fromkeys(row["model"] for row in tried):
        of_it = [row for row in tried if row["model"] == model]
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
        for kind, compared in KINDS.items():
            of_it = [
                r
                for r in tried
                if (r["claim"], r["trial"]) == (claim.id, kind)
                and (r["after"] != "not_applicable" or r["wrong"])
            ]
            decided = sum(r[compared] in (YES, NO) for r in of_it)
            turned = sum(bool(r["wrong"]) for r in of_it)
            rows.append(
                {
                    "claim": claim.id,
                    "trial": kind,
                    "verdicts": len(of_it),
                    "decided": decided,
                    "wrong": turned,
                }
            )
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
