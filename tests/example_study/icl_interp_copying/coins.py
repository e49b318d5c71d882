"""A task of the study's own: functions are +1 or -1 everywhere, so copying any label solves it."""

from dataclasses import dataclass

import torch

from icl_interp.tasks import Task, register


@register
@dataclass(frozen=True, kw_only=True)
class Coins(Task):
    """f(x) = c with c = +1 or -1, each with probability 1/2."""

    @property
    def n_determining(self):
        """One label tells c."""
        return 1

    def sample_parameters(self, n_functions, generator, dtype):
        """c, `(function, 1)`."""
        return torch.randint(0, 2, (n_functions, 1), generator=generator).to(dtype) * 2 - 1

    def value(self, parameters, xs):
        """c at every x."""
        return parameters.expand(xs.shape[:2])
