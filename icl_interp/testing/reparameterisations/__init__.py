"""Edits that leave what a model computes: a verdict about its function must be the same after each of them."""

from icl_interp.testing.reparameterisations.base import Aspect, Edit, Family, differ
from icl_interp.testing.reparameterisations.named import EDITS
from icl_interp.testing.reparameterisations.targets import TARGET_EDITS, Posed, TargetEdit

__all__ = ["EDITS", "TARGET_EDITS", "Aspect", "Edit", "Family", "Posed", "TargetEdit", "differ"]
