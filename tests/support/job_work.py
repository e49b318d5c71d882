"""What jobs of the tests do; engines find these functions by their names."""

import os
import signal
import time
from pathlib import Path


def counted(folder: Path, value: int = 0, seconds: float = 0.0) -> int:
    """Leave a line for each call, begun and ended, and return the value."""
    said(folder, "begun")
    time.sleep(seconds)
    said(folder, "ended")
    return value


def said(folder: Path, word: str) -> None:
    """Add a line to the file of a job."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "calls.txt", "a") as file:
        file.write(f"{word} {os.getpid()}\n")


def refused(folder: Path) -> None:
    """Fail."""
    said(folder, "begun")
    raise ValueError("no such thing\nas this")


def killed(folder: Path) -> None:
    """End the process that runs this as the system does when memory is out."""
    said(folder, "begun")
    os.kill(os.getpid(), signal.SIGKILL)


def words(folder: Path) -> list[str]:
    """What calls of a job have left."""
    path = folder / "calls.txt"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
