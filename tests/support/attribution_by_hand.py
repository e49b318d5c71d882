"""Direct attribution by hand, and the probe's shares in the same order: what its tests compare."""

import numpy as np
import torch

from icl_interp.probes.attribution import DirectAttribution
from icl_interp.probes.runner import probe


def by_hand(model, tokens):
    """What each part writes into the prediction at the last token, and the prediction.

    The first result is (prompt, part, target).

    The read-in is the first part.
    """
    out, cache = model.run_with_cache(tokens)
    scale = (
        cache["ln_final.hook_scale"][:, -1]
        if "ln_final.hook_scale" in cache
        else torch.ones(len(tokens), 1)
    )

    def read(vectors):
        if hasattr(model, "ln_final"):
            vectors = (
                vectors - vectors.mean(-1, keepdim=True) if model.ln_final.centred else vectors
            )
            vectors = vectors / scale * (1.0 if model.ln_final.w is None else model.ln_final.w)
        return vectors @ model.W_U

    parts = [read(cache["blocks.0.hook_resid_pre"][:, -1])]
    for i in range(model.cfg.n_layers):
        if not model.cfg.mlp_only:
            written = cache[f"blocks.{i}.attn.hook_result"][:, -1]
            parts += [read(written[:, h]) for h in range(model.cfg.n_heads)]
        if not model.cfg.attn_only:
            parts.append(read(cache[f"blocks.{i}.hook_mlp_out"][:, -1]))
    return torch.stack(parts, 1), out[:, -1]


def shares_of(model, tokens):
    """The probe's shares in that order, and the rest."""
    return listed(model, probe(model, tokens, [DirectAttribution()]))


def listed(model, found, position="query"):
    at = {
        name.partition(".")[2]: result.sel(position=position).values
        for name, result in found.items()
    }
    rows = [at["read_in"][None]]
    for i in range(model.cfg.n_layers):
        rows += [at["head"][i]] if "head" in at else []
        rows += [at["mlp"][i][None]] if "mlp" in at else []
    return np.concatenate([*rows, at["rest"][None]])


def covariances(parts, whole):
    parts, whole = parts - parts.mean(0), whole - whole.mean(0)
    return ((parts * whole[:, None]).mean(0) / whole.square().mean(0)).numpy()
