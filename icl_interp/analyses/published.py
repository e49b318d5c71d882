"""The published claims. Importing this registers them, in the order in which reports list them."""

from icl_interp.analyses import limits_layernorm  # isort: skip
from icl_interp.analyses import limits_context  # isort: skip
from icl_interp.analyses import limits_softmax  # isort: skip
from icl_interp.analyses import limits_uniform  # isort: skip
from icl_interp.analyses import limits_classes  # isort: skip
from icl_interp.analyses import limits_continuous  # isort: skip
from icl_interp.analyses import limits_algorithms  # isort: skip
from icl_interp.analyses import limits_boundary  # isort: skip
from icl_interp.analyses import limits_shift  # isort: skip
from icl_interp.analyses import limits_intervals  # isort: skip
from icl_interp.analyses import limits_attention  # isort: skip
from icl_interp.analyses import limits_layers  # isort: skip
from icl_interp.analyses import limits_patterns  # isort: skip
from icl_interp.analyses import linear_attention_weights  # isort: skip
from icl_interp.analyses import linear_attention_risk  # isort: skip
from icl_interp.analyses import linear_attention_algorithm  # isort: skip
from icl_interp.analyses import heads  # isort: skip

__all__ = [
    "heads",
    "limits_algorithms",
    "limits_attention",
    "limits_boundary",
    "limits_classes",
    "limits_context",
    "limits_continuous",
    "limits_intervals",
    "limits_layernorm",
    "limits_layers",
    "limits_patterns",
    "limits_shift",
    "limits_softmax",
    "limits_uniform",
    "linear_attention_algorithm",
    "linear_attention_risk",
    "linear_attention_weights",
]
