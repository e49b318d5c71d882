"""Where the models of an experiment come from: bundled, trained before, or trained now."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from icl_interp.checkpoints import bundled, store
from icl_interp.checkpoints.config import RunConfig, parse
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError, logger
from icl_interp.experiments.base import Model
from icl_interp.provenance import read_json
from icl_interp.training import trainer

log = logger(__name__)


def config_of(model: Model, scale: str) -> RunConfig:
    """The whole run of a model at a scale."""
    return model.config(scale)


class Shelf:
    """Finished runs, found by their configs: a run with another number of steps is another model.

    Args:
        folders: each holds run folders; one that does not exist is refused.
    """

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._runs: list[tuple[RunConfig, Path]] = []
        for folder in folders:
            if not Path(folder).is_dir():
                raise InputError(
                    f"{folder} is no folder of run folders: give one that holds finished runs"
                )
            self._runs += _finished(sorted(Path(folder).iterdir()))
        self._runs += _finished(map(bundled.folder, bundled.names()))
        # Further seeds of some recipes.
        seeds = bundled.ZOO / "seeds"
        self._runs += _finished(sorted(seeds.glob("*/")))

    def find(self, wanted: RunConfig) -> Path | None:
        """The folder of a finished run of exactly this config."""
        for found, path in self._runs:
            if found == wanted:
                return path
        return None

    @staticmethod
    def holds(folder: Path, wanted: RunConfig) -> bool:
        """Whether a folder holds a finished run of exactly this config."""
        return any(found == wanted for found, _ in _finished([folder]))


def _finished(folders: Iterable[Path]) -> Iterator[tuple[RunConfig, Path]]:
    for folder in folders:
        config = folder / "config.json"
        provenance = folder / "provenance.json"
        weights = folder / "model.safetensors"
        if not (config.is_file() and provenance.is_file() and weights.is_file()):
            continue
        origin = read_json(provenance)
        if isinstance(origin, dict) and origin.get("finished"):
            try:
                yield parse(read_json(config), str(config)), folder
            except InputError as error:
                log.info("%s is passed over: %s", folder, error)


def obtain(
    models: Sequence[Model],
    scale: str,
    out: Path,
    shelf: Shelf,
    *,
    train: bool = True,
    progress: bool = True,
    device: str | None = None,
) -> dict[str, Checkpoint]:
    """Checkpoints by name; those that are not found are trained into `out`.

    Where `train` is false they are left out. A training that is cut off goes on where it was when
    it is asked for again.
    """
    found = {}
    for model in models:
        wanted = config_of(model, scale)
        own = out / model.folder
        # What is finished anywhere is not trained again.
        folder = shelf.find(wanted)
        if folder is None and Shelf.holds(own, wanted):
            folder = own
        if folder is None and train:
            if progress and wanted.training:
                steps = wanted.training.steps
                log.warning("training %s (%s steps) into %s", model.name, steps, own)
            trainer.train(wanted, own, progress=progress, device=device)
            folder = own
        if folder is not None:
            checkpoint = store.load(folder)
            checkpoint.model.to(device or "cpu")
            found[model.name] = checkpoint
    return found
