"""Other starts s_0, and heads that are rescaled for them.

W is diagonal in complex coordinates, so that the path from s_0 is s_0 times the path from 1, entry
by entry. A head's product <u, a * v> then has |s_0i|^2 in its i-th term. It is as it was where keys
are divided by |s_0|^2: that is a change of a_h alone.
"""

from dataclasses import replace

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import intervene
from icl_interp.interventions.put import PutActivations
from icl_interp.models.diagonal_unit import pairs
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.measurements.unit import (
    by_arm,
    errors,
    is_paired,
    n_complex,
    outputs,
    process_of,
)
from icl_interp.tasks.autoregressive import AutoregressiveProcess, complex_states

N_STARTS = 8
# |s_0| in each coordinate lies between these, uniform on a logarithmic scale.
LEAST = 0.5
MOST = 2.0
USUAL = "s_0 of the task"
RESCALED = "other s_0, heads rescaled"
PLAIN = "other s_0, heads as they are"
KEYS = "blocks.0.attn.hook_k"  # of the only layer
Start = Complex[Tensor, " dim"]


def other_starts(task: AutoregressiveProcess, seed: int) -> Complex[Tensor, "start dim"]:
    """What s_0 is multiplied by: sizes from 1/2 to 2 and any phases.

    The factors of conjugate coordinates are conjugate.

    In each coordinate one size is drawn from each part of their range, so that few starts do not
    lie together.

    Source: McKay, Beckman & Conover (1979), A comparison of three methods for selecting values of
    input variables.
    """
    draw = generator(seed, "autoregression/starts")
    dim = n_complex(task)
    within, phase = torch.rand(2, N_STARTS, dim, generator=draw, dtype=torch.float64)
    parts = torch.stack([torch.randperm(N_STARTS, generator=draw) for _ in range(dim)], 1)
    place = (parts + within) / N_STARTS
    size = LEAST * (MOST / LEAST) ** place
    factors = torch.polar(size, 2 * torch.pi * phase)
    if is_paired(task):
        factors[:, 1::2] = factors[:, ::2].conj()
    return factors


def multiplied(prompts: Prompts, factor: Start) -> Prompts:
    """The same matrices W from s_0 times a factor; copies of a state (`tiles`) alike."""
    copies = prompts.xs.shape[-1] // (2 * len(factor))

    in_token = factor.repeat(copies)

    def times(states: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point dim"]:
        moved = complex_states(states) * in_token
        return pairs(moved)

    xs = times(prompts.xs)
    ys = times(prompts.ys)
    return replace(prompts, xs=xs, ys=ys)


@measurement("autoregression/starts", version=2)
def starts(lab: Lab) -> DataArray:
    """Normalised errors from the task's own s_0, and from others with and without rescaled heads.

    The axes are (unit, point, arm). Errors from other starts are means over `N_STARTS` of them,
    drawn with the sample's seed, each the same in all prompts.
    """
    usual = _missed(lab, lab.few)
    rescaled = torch.zeros_like(usual)
    plain = torch.zeros_like(usual)
    for factor in other_starts(process_of(lab), lab.seed):
        prompts = multiplied(lab.few, factor)
        plain += _missed(lab, prompts) / N_STARTS
        # Keys are those of states that are divided by |s_0|^2; queries and values stay.
        squares = factor.abs().square().to(factor)
        shrunk = multiplied(prompts, 1 / squares)
        for rows in lab.chunks(prompts):
            tokens = lab.tokens(shrunk[rows])
            put = PutActivations.measure(lab.model, tokens, [KEYS])
            with intervene(lab.model, put):
                missed = _missed(lab, prompts[rows])
            rescaled[rows] += missed / N_STARTS
    return by_arm(lab, (USUAL, RESCALED, PLAIN), [usual, rescaled, plain])


def _missed(lab: Lab, prompts: Prompts) -> Float[Tensor, "batch scored"]:
    """Normalised errors of the model on some prompts."""
    predicted = outputs(lab.model, lab, prompts)
    return errors(predicted, lab, prompts)
