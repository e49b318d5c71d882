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
        self._runs += _finished(bundled.folder(name) for name in bundled.names())
        self._runs += _finished(
            sorted((bundled.ZOO / "seeds").glob("*/"))
        )  # further seeds of some recipes

    def find(self, wanted: RunConfig) -> Path | None:
        """The folder of a finished run of exactly this config."""
        return next((path for found, path in self._runs if found == wanted), None)

    @staticmethod
    def holds(folder: Path, wanted: RunConfig) -> bool:
        """Whether a folder holds a finished run of exactly this config."""
        return any(found == wanted for found, _ in _finished([folder]))


def _finished(folders: Iterable[Path]) -> Iterator[tuple[RunConfig, Path]]:
    for folder in folders:
        paths = [folder / name for name in ("config.json", "provenance.json", "model.safetensors")]
        if not all(path.is_file() for path in paths):
            continue
        origin = read_json(paths[1])
        if isinstance(origin, dict) and origin.get("finished"):
            try:
                yield parse(read_json(paths[0]), str(paths[0])), folder
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
        wanted, own = config_of(model, scale), out / model.folder
        folder = shelf.find(wanted) or (own if Shelf.holds(own, wanted) else None)
        if folder is None and train:
            if progress and wanted.training:
                log.warning(
                    "training %s (%s steps) into %s", model.name, wanted.training.steps, own
                )
            trainer.train(wanted, own, progress=progress, device=device)
            folder = own
        if folder is not None:
            found[model.name] = store.load(folder)
            found[model.name].model.to(device or "cpu")
    return found
