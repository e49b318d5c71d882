"""`reproduce`: experiments from models to files.

Each gets a folder with its results, comparison and figures.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame

from icl_interp.checkpoints.store import Checkpoint
from icl_interp.devices import checked_device
from icl_interp.errors import InputError, logger, shown, whole
from icl_interp.experiments import kept, obtain, presets, variants
from icl_interp.experiments.base import Experiment, get, names, on_text
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, note
from icl_interp.figures import files, reproductions
from icl_interp.figures.style import Figure
from icl_interp.jobs.job import Job, part
from icl_interp.provenance import (
    encode,
    environment,
    read_json,
    run_id,
    write_atomically,
    write_json,
)
from icl_interp.reproduction.layout import markdown
from icl_interp.reproduction.page import index, index_markdown, page
from icl_interp.results import Result, from_dict, to_dict
from icl_interp.training import trainer

log = logger(__name__)


@dataclass(frozen=True)
class Reproduction:
    """One experiment, run.

    Attributes:
        record: everything about it as JSON data; `kept.SCHEMA` names its form.
    """

    experiment: Experiment
    record: Mapping[str, Any]

    @property
    def results(self) -> dict[str, Result]:
        """Results by name."""
        return {name: from_dict(data) for name, data in self.record["results"].items()}

    @property
    def comparison(self) -> DataFrame | None:
        """The published numbers beside ours, where there are any."""
        return self.experiment.compare(self.results)

    @property
    def says(self) -> tuple[str, ...]:
        """What came out, a sentence each."""
        return tuple(self.record["says"])

    @property
    def setting(self) -> tuple[str, ...]:
        """Ours, the work's and what differs, a line each."""
        scale = self.record["scale"]
        ours = f"Ours: {scale['words']}."
        if not scale.get("settings"):
            return (ours,)
        return (ours, f"The work's: {scale['published']}.", f"Different: {scale['different']}.")

    @property
    def figures(self) -> dict[str, Figure]:
        """Its figures by name."""
        return reproductions.draw(self.experiment.id, self.results, self.comparison)


def reproduce(
    ids: Sequence[str] = (),
    out: str | Path = "icl-interp-out",
    *,
    scale: str = "small",
    models: Sequence[str | Path] = (),
    train: bool = True,
    seed: int = 0,
    variant: str | None = None,
    formats: Sequence[str] = ("png",),
    device: str | None = None,
    progress: bool = True,
    text: str | Path | None = None,
    embedding: str | Path | None = None,
) -> list[Reproduction]:
    """Run experiments and write them down, one folder each, and a page that leads to all.

    Models that are bundled, or finished in one of the folders `models` or in `out/models`, are
    taken from there; others are trained into `out/models`. Trainings and measurements that were cut
    off go on when the same is asked for again.

    Args:
        ids: experiments; all by default.
        out: folder of everything that is written.
        scale: "smoke", "small" or "paper".
        models: folders of run folders to take finished models from.
        train: train what is missing; otherwise experiments do with what is there and say what is
            not.
        seed: of every sample.
        variant: a form of the models (`Experiment.variants`); without ids, all experiments that
            have it are run.
        formats: static formats of the figures, beside HTML, where a browser is there.
        device: where to train and to predict.
        progress: show progress bars on a terminal.
        text: a file for experiments that read a text, instead of theirs; without ids these alone
            are run.
        embedding: of its tokens: a file of weights, a folder of a model or a .npy matrix. Without,
            it is made from the text.

    Raises:
        InputError: an unknown experiment, scale or device, a text or embedding that cannot be read,
            or a text for an experiment that reads none.
    """
    # What is asked for. An experiment on a file of the user's stands in for the one of its id.
    own = files_of(ids, text, embedding)
    chosen = []
    for experiment in asked(ids or tuple(own), variant):
        chosen.append(own.get(experiment.id, experiment))
    size = presets.named(scale)
    out = Path(out)
    seed = whole(seed, "seed", 0)
    device = None if device is None else str(checked_device(device))
    shelf = obtain.Shelf(map(Path, models))

    # Each experiment is written as soon as it is done, and so is the page of all.
    done = []
    for experiment in chosen:
        wanted = experiment.models_at(scale)
        found = obtain.obtain(
            wanted, scale, out / "models", shelf, train=train, progress=progress, device=device
        )
        missing = [model.name for model in wanted if model.name not in found]
        setup = Setup(
            found,
            size,
            missing=missing,
            seed=seed,
            cache=out / "measurements",
            progress=progress,
            title=experiment.id,
        )
        started = time.perf_counter()
        with setup:
            results = experiment.run(setup)
        # What was kept counts with the time that it took.
        seconds = time.perf_counter() - started + setup.seconds
        result = Reproduction(experiment, _record(experiment, setup, results, seconds))
        note = save(result, out, formats)
        if note:
            log.warning("%s", note)
            formats = ()  # no further experiment could have them
        done.append(result)
        write_index(out)
    return done


def trainings(
    ids: Sequence[str], out: Path, scale: str, models: Sequence[str | Path], device: str | None
) -> list[Job]:
    """The trainings that experiments wait for, each once, as jobs; `reproduce` then finds them."""
    shelf = obtain.Shelf(map(Path, models))
    found: dict[str, Job] = {}
    for name in ids:
        for model in get(name).models_at(scale):
            wanted = obtain.config_of(model, scale)
            folder = out / "models" / model.folder
            if shelf.find(wanted) or obtain.Shelf.holds(folder, wanted):
                continue
            arguments = {"config": encode(wanted), "out": folder, "device": device}
            job_folder = part(out / "jobs", model.folder)
            found[str(folder)] = Job(model.name, job_folder, _train, arguments)
    return list(found.values())


def _train(config: dict[str, Any], out: Path, device: str | None) -> str:
    """The work of a job: train a model; its run id."""
    trained = trainer.train(config, out, progress=False, device=device)
    return run_id(trained.config)


def written(out: Path, ids: Sequence[str]) -> list[Reproduction]:
    """What experiments of a folder have written, and the page of all."""
    write_index(out)
    done = []
    for name in ids:
        path = out / name / "results.json"
        record = kept.checked(read_json(path), str(path))
        done.append(Reproduction(get(name), record))
    return done


def asked(ids: Sequence[str], variant: str | None = None) -> list[Experiment]:
    """The experiments of these ids, all by default, in the form of a variant where one is named.

    Raises:
        InputError: an unknown id, or an experiment without that variant.
    """
    each = list(dict.fromkeys(ids))
    if not variant:
        return list(map(get, each or names()))
    if not each:
        # All experiments that have it.
        for name in names():
            if any(one.name == variant for one in get(name).variants):
                each.append(name)
        if not each:
            raise InputError(f"no experiment has a variant {shown(variant)}")
    return [variants.of(get(name), variant) for name in each]


def files_of(
    ids: Sequence[str], text: str | Path | None, embedding: str | Path | None
) -> dict[str, Experiment]:
    """Experiments on the user's files, by id; none where no file is given.

    Raises:
        InputError: an embedding without a text, and what `base.on_text` refuses.
    """
    if text is None:
        if embedding is not None:
            raise InputError(
                f"--embedding {embedding} is for the tokens of a text: give --text FILE as well"
            )
        return {}
    matrix = None if embedding is None else Path(embedding)
    return on_text(ids, Path(text), matrix)


def save(result: Reproduction, out: Path, formats: Sequence[str] = ()) -> str | None:
    """Write one experiment's folder.

    Returns a line about what is missing where static figures cannot be made, else None.
    """
    folder = out / result.experiment.folder
    figures = result.figures
    comparison = result.comparison
    write_json(folder / "results.json", result.record)
    if comparison is not None:
        write_json(folder / "comparison.json", to_dict(comparison))
        write_atomically(folder / "comparison.md", _markdown(result, comparison))
    write_atomically(folder / "figure.html", page(result.record, figures, comparison))
    if not figures or not formats:
        return None
    return files.export(figures, folder, formats)


def _record(
    experiment: Experiment, setup: Setup, results: Mapping[str, Result], seconds: float
) -> dict[str, Any]:
    scale = setup.preset.name
    comparison = experiment.compare(results)
    found = said(experiment, results, scale)
    provenance = {
        "command": _command(experiment, setup),
        "seed": setup.seed,
        "seconds": round(seconds, 1),
        "measured": setup.measured,
        "kept from before": setup.reused,
        "environment": environment(),
        "written": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
    }
    models = {}
    for name, checkpoint in setup.models.items():
        models[name] = _model(checkpoint)
    stored = {}
    for name, result in results.items():
        stored[name] = to_dict(result)
    return {
        "schema": kept.SCHEMA,
        "id": experiment.id,
        "title": title(experiment),
        "source": experiment.source,
        "variant": experiment.variant,
        "scale": kept.scale_of(experiment, scale),
        "models": models,
        "missing": list(setup.missing),
        "says": [statement.sentence for statement in found],
        "statements": [statement.to_dict() for statement in found],
        "comparison": to_dict(comparison) if comparison is not None else None,
        "results": stored,
        "provenance": provenance,
    }


def _command(experiment: Experiment, setup: Setup) -> str:
    """What a reader types to get the same."""
    command = f"icl-interp reproduce {experiment.id} --scale {setup.preset.name}"
    if setup.seed:
        command += f" --seed {setup.seed}"
    if experiment.variant:
        command += f" --variant {experiment.variant}"
    if experiment.options:
        command += f" {experiment.options}"
    return command


def title(experiment: Experiment) -> str:
    """The title, and the variant that it is in."""
    if not experiment.variant:
        return experiment.title
    return f"{experiment.title} (variant {experiment.variant})"


def said(
    experiment: Experiment, results: Mapping[str, Result], scale: str
) -> tuple[Statement, ...]:
    """The experiment's statements; at scale smoke, none agrees or disagrees with a paper.

    There no model has learned anything.
    """
    found = experiment.statements(results)
    if experiment.variant:
        found = (note(variants.changes(experiment, scale)), *found)
    if scale != "smoke" or not experiment.models:
        return found
    first = note(
        "Scale smoke shows that the experiment runs: its models have learned next to nothing."
    )
    return (first, *(replace(statement, trained=False) for statement in found))


def _model(checkpoint: Checkpoint) -> dict[str, Any]:
    facts: dict[str, Any] = {"run_id": run_id(checkpoint.config), "steps": checkpoint.step}
    for key in ("training_seconds", "in_distribution"):
        facts[key] = checkpoint.provenance.get(key)
    return facts


def _markdown(result: Reproduction, comparison: DataFrame) -> str:
    record = result.record
    says = "\n".join(f"* {line}" for line in record["says"])
    return (
        f"# {record['id']}: {record['title']}\n\n{record['source']}\n\nOurs: "
        f"{record['scale']['words']}.  \n"
        f"The work's: {record['scale']['published']}.  \n"
        f"Different: {record['scale']['different']}.\n\n{says}\n\n"
        f"{comparison.attrs['note']}\n\n{markdown(comparison)}\n"
    )


def write_index(out: Path) -> None:
    """The page and README of all that stands in the folder, from earlier calls too."""
    records = []
    for folder in variants.every():
        path = out / folder / "results.json"
        if path.is_file():
            records.append(kept.checked(read_json(path), str(path)))
    write_atomically(out / "index.html", index(records))
    write_atomically(out / "README.md", index_markdown(records))
