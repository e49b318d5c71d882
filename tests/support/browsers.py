"""The Chrome or Chromium of the system, for tests that need one."""

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)


def browser() -> str:
    """Path of a browser from BROWSER_PATH or the system; without one, the test is skipped."""
    named = os.environ.get("BROWSER_PATH")
    if named:  # who names one, as .ci/run does, means these tests to run
        assert os.access(named, os.X_OK), f"BROWSER_PATH names {named}, which is no program"
        return named
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("needs Chrome or Chromium: install one, or let BROWSER_PATH name it")
    return path


# Figures are drawn one after another (`figures.in_turn`).
DRAWN = "window.figuresToDraw && !figuresToDraw.length && document.querySelector('.main-svg')"


def wait_until(tab: "Page", condition: str, seconds: float = 30) -> None:
    """Wait until the JavaScript expression ``condition`` is true in ``tab``.

    Playwright's ``wait_for_function`` asks for the second time by ``eval`` in the page. Our pages
    forbid that (their content security policy), so it would fail whenever the condition does not
    hold at once.
    """
    end = time.monotonic() + seconds
    while not tab.evaluate(condition):
        assert time.monotonic() < end, f"not true after {seconds} s: {condition}"
        time.sleep(0.05)
