"""A predictor in a Python file that the user names: `module.py:predictor`."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from icl_interp.errors import InputError, unknown
from icl_interp.predictors.adapters import Outside, recognised


def from_file(text: str) -> Outside:
    """The predictor that `module.py:predictor` names. The file is run, as Python runs any module.

    Args:
        text: a path and the name of an object, function or estimator in it.

    Raises:
        InputError: no such file or name, an error while the file runs, or nothing that predicts.
    """
    path, _, name = text.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise InputError(f"there is no file {path}: name a predictor as module.py:predictor")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Beside the file stand the modules that it imports.
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"{path} failed while it ran: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    finally:
        sys.path.remove(folder)
    found: Any = vars(module).get(name)
    if found is None:
        own = [one for one in vars(module) if not one.startswith("_")]
        raise unknown(f"name in {path}", name, own)
    predictor = recognised(found)
    if predictor is None:
        raise InputError(
            f"{text} is a {type(found).__name__}, which predicts nothing: expected an object with "
            "predict(prompts), a function (xs, ys, x_query) -> y_query, or an estimator of "
            "scikit-learn"
        )
    return predictor
