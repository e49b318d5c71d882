"""What a model loses without attention, MLPs or a block: their outputs made their mean.

A sublayer's output at its mean (over prompts, position by position) keeps what it writes whatever
the prompt, and tells nothing about the prompt any more. With all heads at their mean no token
learns of another: what is left is a function of the query alone, whatever the weights are.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import is_large
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.checkpoints.companions import Role
from icl_interp.interventions.base import At, first_block, intervene
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.probes.record import Activations
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array

PARTNERS = (
    "MLP only",
    "attention only",
    "with MLP",
)  # companions that lack a part this model has, or the reverse
ALL, QUERY = "all", "query"
REORDERED = "reordered"
BLIND, NOTHING = "without context", "zero"


# ---- prompts and errors --------------------------------------------------------------------------


def sample(lab: Lab) -> Prompts:
    """Fresh units of two prompts: means measured on the lab's own prompts have not seen these.

    Each prompt is of a function of its own, where functions come in pairs: errors without a context
    differ by function far more than by context. Of a large model half of the lab's units, since
    every block is ablated.
    """
    return lab.units(
        "layers/ablation", n_units=max(2, lab.n_units // 2) if is_large(lab.model) else None
    )


def means(lab: Lab, kind: str | None = None) -> MeanOutputs:
    """Sublayers' means on in-distribution prompts, of all or of one kind.

    They are computed in the model's own float32.
    """
    return lab.sublayer_means.only(*sublayers(lab.model, kind))


def first_scored(lab: Lab) -> int:
    """The first point at which the model predicts and the function is determined."""
    points = lab.encoding.read_at(lab.task.n_points, lab.model.cfg.attention_dir)[1]
    return max(points.start, lab.task.n_determining)


def squares(lab: Lab, arms: Mapping[str, MeanOutputs | None]) -> dict[str, list[np.ndarray]]:
    """Squared error of each group of `sample` for each arm: over scored points, and the last query.

    Args:
        lab: the model.
        arms: what is made its mean, at every position for the first and at the query's own token
            for the second.
    """
    prompts, first = sample(lab), first_scored(lab)
    read, points = lab.encoding.read_at(prompts.n_points, lab.model.cfg.attention_dir)
    found: dict[str, list[Tensor]] = {name: [] for name in arms}
    for rows in lab.chunks(prompts):
        tokens, ys = lab.tokens(prompts[rows]).float(), prompts.ys[rows]
        streams = lab.before_blocks(tokens)
        query = queries(lab, tokens, streams)
        for name, edit in arms.items():
            edits = [edit] if edit else []
            block = first_block(lab.single, edits)
            with torch.no_grad(), intervene(lab.single, *edits):
                every = (
                    lab.single(tokens, read)
                    if block < 0
                    else lab.single.resume(streams[block], block, read)
                )
                out = every.double().cpu()
            last = query(edit) if edit else out[:, -1]
            missed = (out[:, first - points.start :] - ys[:, first:]).square().mean((1, 2))
            found[name].append(torch.stack([missed, (last - ys[:, -1]).square().mean(-1)], 1))
    return {name: list(lab.by_unit(torch.cat(parts), prompts).T) for name, parts in found.items()}


def queries(
    lab: Lab,
    tokens: Float[Tensor, "batch token d_in"],
    streams: Sequence[Float[Tensor, "batch token d_model"]],
) -> Callable[[MeanOutputs], Float[Tensor, "batch target"]]:
    """Predictions for the last query with an ablation at its token only.

    A context that cannot change is the same for all of them: its keys and values follow from the
    stream before each block, `lab.before_blocks`.
    """
    model, last = lab.single, tokens.shape[1] - 1
    kept = model.cfg.query_is_unseen and first_block(model, ()) >= 0
    layers = zip(model.blocks, streams, strict=True) if kept and not model.cfg.mlp_only else ()
    with torch.no_grad():
        memory = [block.remember(stream[:, :-1]) for block, stream in layers]

    def predict(mean: MeanOutputs) -> Tensor:
        with torch.no_grad():
            if kept:
                edit = mean.at_query()
                block = first_block(model, [edit])
                with intervene(model, edit):
                    out = model.resume_after(memory, streams[block][:, -1:], block)
            else:
                with intervene(model, At((last,), mean)):
                    out = model(tokens, range(last, last + 1))
        return out[:, 0].double().cpu()

    return predict


def _matrix(lab: Lab, rows: Mapping[str, Sequence[np.ndarray]]) -> DataArray:
    n_units = len(next(iter(rows.values()))[0])
    axes = {"arm": tuple(rows), "points": (ALL, QUERY), "group": tuple(range(n_units))}
    note = f"{n_units} units of two prompts; means from others; float32"
    return make_array(list(rows.values()), axes, note=note)


# ---- measurements --------------------------------------------------------------------------------


@measurement("layers/without attention", version=2)
def without_attention(lab: Lab) -> DataArray:
    """Squared error intact and with all attention outputs at their mean, by group of functions.

    Beside these errors stand those of companions that are MLP only, attention only or with MLP, of
    the mean of the law of functions at each input, which is the best guess without a context, and
    of zero. Points "all": the edit is made at every position and all scored points count. "query":
    made at the last query's own token only, and scored there.
    """
    arms: dict[str, MeanOutputs | None] = {"intact": None}
    if not lab.model.cfg.mlp_only:
        arms["no attention"] = means(lab, "attn")
    rows = squares(lab, arms)
    prompts, first = sample(lab), first_scored(lab)
    partners = {kind: lab.companions.get(Role(kind)) for kind in PARTNERS}
    others = {
        kind: other.predict(prompts).double().cpu()
        for kind, other in partners.items()
        if other is not None
    }
    for name, out in {
        **others,
        BLIND: lab.task.expected(prompts.xs),
        NOTHING: torch.zeros_like(prompts.ys),
    }.items():
        missed = (out - prompts.ys).square().mean(-1)
        rows[name] = [
            lab.by_unit(part, prompts) for part in (missed[:, first:].mean(1), missed[:, -1])
        ]
    return _matrix(lab, rows)


@measurement("layers/ablated")
def ablated(lab: Lab) -> DataArray:
    """Squared error by group of functions: MLPs or a block at their mean; a control intervention.

    A block is its attention and its MLP. The control intervention leaves everything and shows the
    pairs of the context in another order: attention at the query says something else, as much as
    `layers/edit size` tells, and should say it about the same function. Points as in
    `layers/without attention`; for the control intervention only the query is the same. A path has
    no other order, and so no control intervention.
    """
    cfg, mean = lab.model.cfg, means(lab)
    arms: dict[str, MeanOutputs | None] = {}
    if not (cfg.attn_only or cfg.mlp_only):
        arms["no MLP"] = mean.only(*sublayers(lab.model, "mlp"))
    for i in range(cfg.n_layers):
        arms[f"block {i}"] = mean.only(*sublayers(lab.model, layer=i))
    rows = squares(lab, arms)
    if not lab.task.autoregressive:
        prompts = reordered(lab)
        missed = (lab.last_predictions(prompts).double() - prompts.ys[:, -1]).square().mean(-1)
        missed = lab.by_unit(missed, prompts)
        rows[REORDERED] = [np.full_like(missed, np.nan), missed]
    return _matrix(lab, rows)


def reordered(lab: Lab) -> Prompts:
    """`sample` with the pairs of each context in another order, the query last as before."""
    return sample(lab).reordered(generator(lab.seed, "layers/order"))


@measurement("layers/edit size")
def edit_size(lab: Lab) -> DataArray:
    """How much the last query's attention outputs change when made their mean, or when pairs move.

    "Move" means that the pairs of the context are reordered. Squared change, summed over layers,
    over the squared size; a mean over prompts.
    """
    names = sublayers(lab.model, "attn")
    samples = {"mean": sample(lab)} | (
        {} if lab.task.autoregressive else {REORDERED: reordered(lab)}
    )
    if not names:
        return make_array([np.nan] * len(samples), {"edit": tuple(samples)})
    activations = []
    for prompts in samples.values():
        seen = Activations(names)
        lab.last_predictions(prompts, [seen])
        activations.append(torch.stack([t[:, 0].double() for t in seen.recorded.values()]))
    size = activations[0].square().sum((0, 2)).mean()
    changes = [
        (other - activations[0]).square().sum((0, 2)).mean() / size
        for other in (activations[0].mean(1, keepdim=True), *activations[1:])
    ]
    return make_array([float(c) for c in changes], {"edit": tuple(samples)})
