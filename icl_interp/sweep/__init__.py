"""Sweeps: many runs of a recipe, trained and analysed as jobs, and what came out side by side."""

from icl_interp.sweep.outcome import Outcome, run
from icl_interp.sweep.plan import Plan, read

__all__ = ["Outcome", "Plan", "read", "run"]
