"""Checks that a study keeps the rules of the house, for tests here or in your own package."""

from icl_interp.testing.study import StudyError, check_study

__all__ = ["StudyError", "check_study"]
