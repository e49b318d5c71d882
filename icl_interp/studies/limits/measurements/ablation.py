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

# Companions that lack a part this model has, or the reverse.
PARTNERS = ("MLP only", "attention only", "with MLP")
ALL = "all"
QUERY = "query"
REORDERED = "reordered"
BLIND = "without context"
NOTHING = "zero"


# ---- prompts and errors --------------------------------------------------------------------------


def sample(lab: Lab) -> Prompts:
    """Fresh units of two prompts: means measured on the lab's own prompts have not seen these.

    Each prompt is of a function of its own, where functions come in pairs: errors without a context
    differ by function far more than by context. Of a large model half of the lab's units, since
    every block is ablated.
    """
    n_units = max(2, lab.n_units // 2) if is_large(lab.model) else None
    return lab.units("layers/ablation", n_units=n_units)


def means(lab: Lab, kind: str | None = None) -> MeanOutputs:
    """Sublayers' means on in-distribution prompts, of all or of one kind.

    They are computed in the model's own float32.
    """
    return lab.sublayer_means.only(*sublayers(lab.model, kind))


def first_scored(lab: Lab) -> int:
    """The first point at which the model predicts and the function is determined."""
    task = lab.task
    _, points = lab.encoding.read_at(task.n_points, lab.model.cfg.attention_dir)
    return max(points.start, task.n_determining)


def squares(lab: Lab, arms: Mapping[str, MeanOutputs | None]) -> dict[str, list[np.ndarray]]:
    """Squared error of each group of `sample` for each arm: over scored points, and the last query.

    Args:
        lab: the model.
        arms: what is made its mean, at every position for the first and at the query's own token
            for the second.
    """
    prompts = sample(lab)
    first = first_scored(lab)
    model = lab.single
    read, points = lab.encoding.read_at(prompts.n_points, lab.model.cfg.attention_dir)
    start = first - points.start
    found: dict[str, list[Tensor]] = {name: [] for name in arms}
    for rows in lab.chunks(prompts):
        tokens = lab.tokens(prompts[rows]).to(model.numbers)
        ys = prompts.ys[rows]
        streams = lab.before_blocks(tokens)
        query = queries(lab, tokens, streams)
        for name, edit in arms.items():
            # Blocks before the first one with an edit need not run again.
            edits = [edit] if edit else []
            block = first_block(model, edits)
            with torch.no_grad(), intervene(model, *edits):
                if block < 0:
                    every = model(tokens, read)
                else:
                    every = model.resume(streams[block], block, read)
            out = every.double().cpu()
            last = query(edit) if edit else out[:, -1]
            over_points = (out[:, start:] - ys[:, first:]).square()
            at_query = (last - ys[:, -1]).square()
            columns = [over_points.mean((1, 2)), at_query.mean(-1)]
            found[name].append(torch.stack(columns, 1))
    by_arm = {}
    for name, parts in found.items():
        by_unit = lab.by_unit(torch.cat(parts), prompts)
        by_arm[name] = list(by_unit.T)
    return by_arm


def queries(
    lab: Lab,
    tokens: Float[Tensor, "batch token d_in"],
    streams: Sequence[Float[Tensor, "batch token d_model"]],
) -> Callable[[MeanOutputs], Float[Tensor, "batch target"]]:
    """Predictions for the last query with an ablation at its token only.

    A context that cannot change is the same for all of them: its keys and values follow from the
    stream before each block, `lab.before_blocks`.
    """
    model = lab.single
    cfg = model.cfg
    last = tokens.shape[1] - 1
    kept = cfg.query_is_unseen and first_block(model, ()) >= 0
    memory = []
    if kept and not cfg.mlp_only:
        with torch.no_grad():
            for block, stream in zip(model.blocks, streams, strict=True):
                memory.append(block.remember(stream[:, :-1]))

    def predict(mean: MeanOutputs) -> Tensor:
        with torch.no_grad():
            if kept:
                edit = mean.at_query()
                block = first_block(model, [edit])
                at_query = streams[block][:, -1:]
                with intervene(model, edit):
                    out = model.resume_after(memory, at_query, block)
            else:
                with intervene(model, At((last,), mean)):
                    out = model(tokens, range(last, last + 1))
        return out[:, 0].double().cpu()

    return predict


def _matrix(lab: Lab, rows: Mapping[str, Sequence[np.ndarray]]) -> DataArray:
    values = list(rows.values())
    n_units = len(values[0][0])
    groups = tuple(range(n_units))
    axes = {"arm": tuple(rows), "points": (ALL, QUERY), "group": groups}
    note = f"{n_units} units of two prompts; means from others; float32"
    return make_array(values, axes, note=note)


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
    # Beside the model: companions, and guesses that see no context.
    prompts = sample(lab)
    first = first_scored(lab)
    others = {}
    for kind in PARTNERS:
        partner = lab.companions.get(Role(kind))
        if partner is not None:
            others[kind] = partner.predict(prompts).double().cpu()
    others[BLIND] = lab.task.expected(prompts.xs)
    others[NOTHING] = torch.zeros_like(prompts.ys)
    for name, out in others.items():
        missed = (out - prompts.ys).square().mean(-1)
        scored = missed[:, first:].mean(1)
        at_query = missed[:, -1]
        rows[name] = [lab.by_unit(scored, prompts), lab.by_unit(at_query, prompts)]
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
    cfg = lab.model.cfg
    mean = means(lab)
    arms: dict[str, MeanOutputs | None] = {}
    if not (cfg.attn_only or cfg.mlp_only):
        arms["no MLP"] = mean.only(*sublayers(lab.model, "mlp"))
    for i in range(cfg.n_layers):
        arms[f"block {i}"] = mean.only(*sublayers(lab.model, layer=i))
    rows = squares(lab, arms)
    if not lab.task.autoregressive:
        prompts = reordered(lab)
        predicted = lab.last_predictions(prompts).double()
        missed = (predicted - prompts.ys[:, -1]).square()
        at_query = lab.by_unit(missed.mean(-1), prompts)
        rows[REORDERED] = [np.full_like(at_query, np.nan), at_query]
    return _matrix(lab, rows)


def reordered(lab: Lab) -> Prompts:
    """`sample` with the pairs of each context in another order, the query last as before."""
    draw = generator(lab.seed, "layers/order")
    return sample(lab).reordered(draw)


@measurement("layers/edit size")
def edit_size(lab: Lab) -> DataArray:
    """How much the last query's attention outputs change when made their mean, or when pairs move.

    "Move" means that the pairs of the context are reordered. Squared change, summed over layers,
    over the squared size; a mean over prompts.
    """
    names = sublayers(lab.model, "attn")
    samples = {"mean": sample(lab)}
    if not lab.task.autoregressive:
        samples[REORDERED] = reordered(lab)
    axes = {"edit": tuple(samples)}
    if not names:
        return make_array([np.nan] * len(samples), axes)
    activations = []
    for prompts in samples.values():
        seen = Activations(names)
        lab.last_predictions(prompts, [seen])
        outputs = [t[:, 0].double() for t in seen.recorded.values()]
        activations.append(torch.stack(outputs))
    intact, *moved = activations  # each (layer, prompt, d_model)
    size = intact.square().sum((0, 2)).mean()
    changes = []
    for other in (intact.mean(1, keepdim=True), *moved):
        square = (other - intact).square()
        change = square.sum((0, 2)).mean() / size
        changes.append(float(change))
    return make_array(changes, axes)
