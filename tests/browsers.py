"""The Chrome or Chromium of the system, for tests that need one."""

import os
import shutil

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def browser() -> str:
    """Path of a browser: what BROWSER_PATH names, else the system's; where there is none, the test is skipped."""
    named = os.environ.get("BROWSER_PATH")
    if named:  # who names one, as .ci/run does, means these tests to run
        assert os.access(named, os.X_OK), f"BROWSER_PATH names {named}, which is no program"
        return named
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("needs Chrome or Chromium: install one, or let BROWSER_PATH name it")
    return path
