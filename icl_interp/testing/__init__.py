"""Checks that a study keeps the rules of the house, for tests here or in your own package."""

import icl_interp.studies  # noqa: F401  (the bundled ones are then registered)
from icl_interp.testing.study import StudyError, check_study

__all__ = ["StudyError", "check_study"]
