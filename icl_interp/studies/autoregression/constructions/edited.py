"""Models of known truth whose verdicts are tried with edits: made of weights where others are predictors."""

from dataclasses import replace

import torch

from icl_interp.experiments.calibration import YES, Case, Construction, between
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.autoregression.constructions.maps import SOFTMAX, unit
from icl_interp.tasks.autoregressive import AutoregressiveProcess
from icl_interp.theory import autoregression as theory


def softmax_of(model: HookedTransformer, small: float) -> HookedTransformer:
    """A layer of linear attention with softmax in its place: two heads for each, with opposite small scores.

    Over n visible keys the patterns of the two differ by 2 s' / n with s' the score less its mean over these keys, up
    to the third order. What the mean takes off is what the layer misses.

    Args:
        model: one layer of linear attention with weights of positions.
        small: by what scores are multiplied.
    """
    cfg = replace(model.cfg, score_fn="softmax", n_heads=2 * model.cfg.n_heads)
    own, found = model.state_dict(), HookedTransformer(cfg).double()
    weights = {name: weight.clone() for name, weight in own.items()}
    part = "blocks.0.attn."
    for letter in "QKV":
        for name in (f"{part}W_{letter}", f"{part}b_{letter}"):
            opposite = -1 if letter == "Q" else 1
            scale = small if letter == "Q" else 1
            weights[name] = scale * torch.cat([own[name], opposite * own[name]])
    weights[part + "W_O"] = torch.cat([own[part + "W_O"], -own[part + "W_O"]]) / (2 * small)
    visible = torch.arange(1, 1 + len(own[part + "W_P"]), dtype=torch.float64)
    weights[part + "W_P"] = own[part + "W_P"] * visible[:, None]
    found.load_state_dict(weights)
    return found


def softmax_in_place(g: torch.Generator) -> Case:
    """The unit of Proposition 3 with softmax attention."""
    task = AutoregressiveProcess(n_dims=3, matrices="unitary", n_points=8)
    linear = unit(theory.unitary_minimiser(3, 8))
    return Case(softmax_of(linear, between(g, 0.01, 0.03)), task)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "unit at a minimiser, with softmax in its place",
        "pairs of heads make the scores less their mean over the visible keys, and that mean is missed",
        softmax_in_place,
        {SOFTMAX: YES},
    ),
)
