"""Experiments: whole procedures with a result that is known or published."""

from icl_interp.experiments import calibration

__all__ = ["calibration"]
