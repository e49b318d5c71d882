"""How threads wait is set for processes of the command line, before torch, and for no others."""

import os
import subprocess
import sys

import pytest
from helpers import must_fail

from icl_interp import threads


@pytest.fixture
def unset(monkeypatch):
    """An environment without the setting; what a test sets in it is taken back."""
    monkeypatch.setenv(threads.POLICY, "any")
    monkeypatch.delenv(threads.POLICY)


def waits(policy):
    assert os.environ.get(threads.POLICY) == policy


def test_it_is_set_before_torch_is_there(monkeypatch, unset):
    threads.wait_passively()
    waits(None)  # torch is imported here, and a notebook's process is left as it is
    monkeypatch.delitem(sys.modules, "torch")
    threads.wait_passively()
    waits(threads.PASSIVE)
    must_fail(waits, None)


def test_a_choice_that_was_made_stands(monkeypatch, unset):
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv(threads.POLICY, "ACTIVE")
    threads.wait_passively()
    waits("ACTIVE")


def test_the_module_is_light():
    """It cannot be made before torch by a module that imports torch."""
    asks = "import sys, icl_interp.threads; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asks], check=False).returncode == 0
