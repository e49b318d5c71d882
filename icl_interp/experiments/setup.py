"""What an experiment runs with: its models, one sample for all, and what was measured before."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from xarray import DataArray

from icl_interp import evaluation
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.experiments.presets import Preset
from icl_interp.progress import drawn
from icl_interp.provenance import canonical, encode, read_json, run_id, write_json
from icl_interp.results import Result, described, from_dict, make_array, to_dict
from icl_interp.tasks.base import Task

REFERENCES = ("least squares", "zero")


class Setup:
    """Models by name and the protocol of a preset.

    What takes long is kept on disk as soon as it is measured, under a name made of everything that
    it depends on: an experiment that was cut off goes on there, and two experiments that need the
    same numbers share them.

    Attributes:
        models: checkpoints by name; those that were not to be had are missing.
        missing: names of these.
        preset: sizes of the sample.
        seed: of every sample.
        measured, reused: how many results were computed, and how many were kept from before.
        seconds: that measuring what was kept took then.
    """

    def __init__(
        self,
        models: Mapping[str, Checkpoint],
        preset: Preset,
        *,
        missing: Sequence[str] = (),
        seed: int = 0,
        cache: Path | None = None,
        progress: bool = False,
        title: str = "",
    ) -> None:
        self.models = dict(models)
        self.missing = tuple(missing)
        self.preset = preset
        self.seed = seed
        self._cache = cache
        self.measured = self.reused = 0
        self.seconds = 0.0
        self._digests: dict[str, str] = {}
        self._bar = drawn(desc=title, unit="measurement", disable=None if progress else True)

    def __enter__(self) -> "Setup":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def has(self, *names: str) -> bool:
        """Whether all of these models are here."""
        return all(name in self.models for name in names)

    def among(self, names: Sequence[str]) -> list[str]:
        """Those of these models that are here, in their order."""
        return [name for name in names if name in self.models]

    def digest(self, name: str) -> str:
        """What a model is, to the bit: its config and its weights."""
        if name not in self._digests:
            model = self.models[name]
            hashed = hashlib.sha256(run_id(model.config).encode())
            for key, tensor in sorted(model.model.state_dict().items()):
                numbers = tensor.detach().cpu().contiguous().numpy()
                hashed.update(key.encode() + numbers.tobytes())
            self._digests[name] = hashed.hexdigest()[:16]
        return self._digests[name]

    def keep(
        self, what: str, names: Sequence[str], compute: Callable[[], Result], **settings: Any
    ) -> Result:
        """A result from the cache, or computed and kept.

        Args:
            what: says what is measured and how; change it when the measurement changes.
            names: the models it depends on.
            compute: measures; called where nothing is kept.
            settings: everything else that the result depends on.
        """
        path = self._path(what, names, settings)
        kept = self._read(path)
        if kept is not None:
            return kept
        started = time.perf_counter()
        result = compute()
        self._write(path, result, time.perf_counter() - started)
        return result

    def measure(self, name: str, of: Measurement[DataArray]) -> DataArray:
        """What a measurement gives of a model, on the sample that a claim is judged on."""

        def compute() -> DataArray:
            model = self.models[name]
            return Lab(model.model, model.task, model.encoding, seed=self.seed).measure(of)

        found = self.keep(of.name, [name], compute, version=of.version)
        assert isinstance(found, DataArray)
        return found

    def errors(
        self,
        names: Sequence[str],
        task: Task,
        sigmas: Sequence[float],
        arm: Literal["functions", "inputs", "both"] = "functions",
    ) -> DataArray:
        """Squared error by predictor, sigma and function, on the same prompts for all models.

        See section 3.3 of the paper.

        Args:
            names: models; those that are missing are left out. Least squares and zero come last.
            task: at sigma 1.
            sigmas: factors of what `arm` names.
            arm: what sigma scales.
        """
        # The rows that are kept.
        settings = {"task": encode(task), "sigmas": list(map(float, sigmas)), "arm": arm}
        shown = (*self.among(names), *REFERENCES)
        paths: dict[str, Path | None] = {}
        rows: dict[str, DataArray] = {}
        for name in shown:
            what = f"errors of {name}" if name in REFERENCES else "errors"
            paths[name] = self._path(what, [name], settings)
            kept = self._read(paths[name])
            if isinstance(kept, DataArray):
                rows[name] = kept

        # The others. Each model draws the same prompts, so only these have to be asked.
        todo = [name for name in shown if name not in rows]
        if todo:
            started = time.perf_counter()
            models = {name: self.models[name] for name in self.among(todo)}
            result = evaluation.shifted(
                models,
                task,
                sigmas,
                arm=arm,
                n_functions=self.preset.n_functions,
                n_contexts=self.preset.n_contexts,
                seed=self.seed,
            )
            each = (time.perf_counter() - started) / len(todo)
            for name in todo:
                axes = {**result.indexes, "predictor": (name,)}
                row = result.sel(predictor=name).values[None]
                rows[name] = make_array(row, axes, **described(result))
                self._write(paths[name], rows[name], each)

        # All of them, in the order of the names.
        first = rows[shown[0]]
        axes = {**first.indexes, "predictor": shown}
        values = np.concatenate([np.asarray(rows[name].values) for name in shown])
        return make_array(values, axes, **described(first))

    def _path(self, what: str, names: Sequence[str], settings: Mapping[str, Any]) -> Path | None:
        if self._cache is None:
            return None
        models = list(map(self.digest, self.among(names)))
        key = {
            "what": what,
            "models": models,
            "seed": self.seed,
            "scale": encode(self.preset),
            "settings": settings,
        }
        digest = hashlib.sha256(canonical(key).encode()).hexdigest()
        return self._cache / f"{digest[:20]}.json"

    def _write(self, path: Path | None, result: Result, seconds: float) -> None:
        if path is not None:
            write_json(path, {"seconds": round(seconds, 6), "result": to_dict(result)})
        self.measured += 1
        self._bar.update()

    def _read(self, path: Path | None) -> Result | None:
        if path is None or not path.is_file():
            return None
        try:
            stored = read_json(path)
            result = from_dict(stored["result"])
            seconds = float(stored["seconds"])
        except (InputError, KeyError, TypeError, ValueError):
            return None  # what was edited or cut off is measured again
        self.reused += 1
        self.seconds += seconds
        return result
