"""Edits that keep a model's function, so that verdicts about the function must stay the same."""

from icl_interp.testing.reparameterisations.base import Aspect, Edit, Family, differ
from icl_interp.testing.reparameterisations.named import EDITS
from icl_interp.testing.reparameterisations.targets import TARGET_EDITS, Posed, TargetEdit

__all__ = ["EDITS", "TARGET_EDITS", "Aspect", "Edit", "Family", "Posed", "TargetEdit", "differ"]
