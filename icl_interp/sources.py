"""What the command line names: models, and predictors in Python files; imports wait inside."""

from pathlib import Path
from typing import Any

from icl_interp.checkpoints import bundled
from icl_interp.errors import InputError


def exists(checkpoint: str) -> bool:
    """Whether there is such a file, folder or bundled model."""
    try:
        path = checkpoint.rpartition(":")[0] if is_predictor(checkpoint) else checkpoint
        return bool(checkpoint) and (Path(path).exists() or checkpoint in bundled.names())
    except (OSError, ValueError):  # a name longer than the system's names, say
        return False


def is_predictor(text: str) -> bool:
    """Whether a text is `module.py:name`."""
    path, _, name = text.rpartition(":")
    return path.endswith(".py") and name.isidentifier()


def titles(names: list[str]) -> dict[str, str]:
    """The title of each model, which also names the folder of its report.

    It is the model's own name, with that of its folder where several models share a name.
    """
    places = {}
    for name in names:
        places[name] = Path(name.replace(".py:", ".")).absolute()
    short = [place.name for place in places.values()]
    found = {}
    for name, place in places.items():
        found[name] = place.name
        shared = short.count(place.name) > 1
        if shared and place.exists():
            found[name] = "/".join(place.parts[-2:])
    if len(set(found.values())) < len(names):
        raise InputError(
            f"each model to compare needs its own name, but got {', '.join(names)}: rename a folder"
        )
    return found


def all_opened(named: dict[str, str], said: dict[str, Any]) -> list[Any]:
    """The models of these sources: all of them, before minutes are spent on the first."""
    loaded = []
    own = set()
    for name in named:
        checkpoint = opened(name, said)
        loaded.append(checkpoint)
        own.add(checkpoint.name)
    if len(own) < len(loaded):
        for checkpoint, title in zip(loaded, named.values(), strict=True):
            if hasattr(checkpoint, "provenance"):
                checkpoint.provenance["name"] = title
            else:
                checkpoint.name = title
    return loaded


def opened(source: str, said: dict[str, Any]) -> Any:
    """A checkpoint, or the predictor that `module.py:name` names."""
    from icl_interp.checkpoints import store
    from icl_interp.predictors import files

    if not is_predictor(source):
        return store.load(source, **said)
    for name, value in said.items():
        if value and name != "task":
            option = {"settings": "--setting"}.get(name, f"--{name.replace('_', '-')}")
            raise InputError(f"{option} is for models, and {source} is a predictor")
    if said["task"] is None:
        raise InputError(f"{source} is a predictor, which brings no task: pass --task FILE.yaml")
    return files.from_file(source)
