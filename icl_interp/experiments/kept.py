"""Results in the package, from `icl-interp reproduce`: read without training or measuring."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icl_interp.errors import InputError
from icl_interp.experiments import base, settings, variants
from icl_interp.experiments.settings import Row
from icl_interp.provenance import read_json
from icl_interp.registers import View
from icl_interp.results import Result, from_dict
from icl_interp.structured import of_schema

SCHEMA = "icl_interp.experiment/1"
# By study.
FOLDERS: View[Path] = View(
    "folder of results",
    lambda study: {study.name: study.folder / "results"} if study.folder else {},
)


# What pages show of a record, which holds more.
SHOWN = {"id": str, "title": str, "source": str, "says": list[str], "missing": list[str]}


EARLIER = "an earlier version of this experiment: "  # begins the words of records of such a one


def scale_of(experiment: base.Experiment, scale: str) -> dict[str, Any]:
    """What a record says of the size of a run: ours, the work's, and what differs."""
    rows = experiment.settings_at(scale)
    return {
        "name": scale,
        "words": experiment.words(scale),
        "published": settings.given(rows),
        "different": settings.different(rows),
        "settings": list(map(Row.to_dict, rows)),
    }


def is_current(record: Mapping[str, Any], experiment: base.Experiment) -> bool:
    """Whether a record rests on the models that the experiment asks for now."""
    asked = set()
    for model in experiment.models_at(record["scale"]["name"]):
        asked.add(model.name)
    return asked == {*record["models"], *record["missing"]}


def place(name: str) -> Path | None:
    """Where the results of an experiment are kept; None where its study has no folder for them.

    Args:
        name: its id, for a variant the name of its folder, such as "limits.table1.post_ln".
    """
    study, _, rest = name.partition(".")
    return FOLDERS[study] / f"{rest}.json" if study in FOLDERS else None


def path(name: str) -> Path | None:
    """The file with the results of an experiment; None where its study keeps none of them."""
    file = place(name)
    return file if file and file.is_file() else None


def names() -> list[str]:
    """Experiments and variants whose results come with the package."""
    return [name for name in variants.every() if path(name)]


def record(name: str) -> dict[str, Any]:
    """All that was written about a run of an experiment.

    That is its scale, models, results, comparison, statements and provenance.

    Raises:
        InputError: an unknown id, or one without results in the package.
    """
    experiment = variants.in_folder(name)
    file = path(name)
    if file is None:
        have = ", ".join(names()) or "none"
        form = f" --variant {experiment.variant}" if experiment.variant else ""
        raise InputError(
            f"no results of {name} come with the package (there are: {have}): icl-interp reproduce "
            f"{experiment.id}{form}"
        )
    return checked(read_json(file), str(file))


def results(name: str) -> dict[str, Result]:
    """The results of an experiment by name, as they come with the package."""
    return {key: from_dict(value) for key, value in record(name)["results"].items()}


def checked(data: Any, where: str) -> dict[str, Any]:
    """The data, if this version reads its schema and what pages show of the data is there."""
    stored = of_schema(data, SCHEMA, where)
    stored.plain()
    for key, kind in SHOWN.items():
        stored[key].of(kind)
    for key in ("name", "words", "published"):
        stored["scale"][key].of(str)
    rows = stored["scale"].get("settings")
    for row in rows.items() if rows else ():  # records of earlier versions have none
        for key in ("name", "work", "place", "ours"):
            row[key].of(str)
    statements = stored.get("statements")
    for one in statements.items() if statements else ():  # records of earlier versions have none
        for key in ("sentence", "kind", "word"):
            one[key].of(str)
    for section in ("models", "results", "provenance"):
        stored[section].mapping()
    stored["provenance"]["seconds"].of(float)
    if stored.get("comparison"):
        from_dict(stored["comparison"].mapping(), f"{where}: comparison")
    return data
