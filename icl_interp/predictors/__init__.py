"""Whatever predicts, without weights: objects, functions and estimators, and the checks of them.

`icl_interp.analyze`, `evaluate` and `compare` take each of them as it is. What they read off it
are its outputs alone.
"""

from icl_interp.predictors.adapters import (
    Outside,
    from_estimator,
    from_function,
    from_object,
    recognised,
)
from icl_interp.predictors.checks import Check, check_no_leak, checked
from icl_interp.predictors.files import from_file

__all__ = [
    "Check",
    "Outside",
    "check_no_leak",
    "checked",
    "from_estimator",
    "from_file",
    "from_function",
    "from_object",
    "recognised",
]
