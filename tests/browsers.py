"""The Chrome or Chromium of the system, for tests that need one."""

import os
import shutil

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def browser() -> str:
    """Path of a browser; where there is none, the test is skipped."""
    found = (os.environ.get("BROWSER_PATH"), *map(shutil.which, NAMES))
    path = next((path for path in found if path and os.access(path, os.X_OK)), None)
    if path is None:
        pytest.skip("needs Chrome or Chromium")
    return path
