"""Whether a model is one function: all ways to run it agree.

A report runs a model in several ways. `forward` reads whole prompts; `after` reads many queries
behind one context; `resume` and `resume_after` take a pass up in the middle. Verdicts mix numbers
of all of them. A subclass whose `forward` clamps its output, or that adds noise in each pass, would
be two functions under one name.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.sweep import Sweep, run
from icl_interp.prompts import Prompts

AGREE = 1e-6  # of the largest prediction: a larger difference is none of rounding, in float64
N_PROMPTS = 8
SCALES = (
    1.0,
    3.0,
    1e3,
    1e6,
)  # multiples of a prompt's own query at which `forward` and `after` are compared
ROUNDING = 1e-13  # relative change of a query, about as large as what sums in another order come to
Way = tuple[str, Tensor, Tensor]  # what it is, what it predicts, and what whole prompts predict


def check(model: HookedTransformer, encoding: Encoding, prompts: Prompts) -> None:
    """Refuse a model whose ways to predict disagree on a few prompts.

    Args:
        model: in float64.
        encoding: how it reads prompts.
        prompts: in distribution; the first few are used, and their queries once more far out.

    Raises:
        InputError: two ways differ; the message names them, and by how much.

    >>> from icl_interp.analyses import Bench
    >>> bench = Bench.of("affine", n_prompts=256)
    >>> check(bench.model, bench.encoding, bench.prompts)
    """
    few = prompts[_spread(len(prompts))]
    with torch.no_grad():
        for way in (*_whole_prompts(model, encoding, few), *_behind_contexts(model, encoding, few)):
            _refuse_difference(*way)


def check_copy(
    copy: HookedTransformer, model: HookedTransformer, tokens: Float[Tensor, "batch token d_in"]
) -> None:
    """Refuse a model that was built anew from another one's weights and predicts something else.

    Args:
        copy: the model that was built.
        model: the one that it stands for, in the same precision.
        tokens: prompts, encoded.

    Raises:
        InputError: their predictions differ.
    """
    tokens = tokens[_spread(len(tokens))].to(model.unembed.W_U)
    with torch.no_grad():
        _refuse_difference(
            "a model built anew from its weights (its own class computes something else)",
            copy(tokens),
            model(tokens),
        )


def _spread(n: int) -> Tensor:
    """A few rows of n, far from one another: those of one function stand together."""
    return torch.linspace(0, n - 1, min(N_PROMPTS, n)).long().unique()


def _whole_prompts(model: HookedTransformer, encoding: Encoding, prompts: Prompts) -> Iterator[Way]:
    """The ways to run whole prompts, each beside a plain pass."""
    tokens = encoding.encode(prompts).to(model.unembed.W_U)
    whole = model(tokens)
    yield (
        "a second pass over the same prompts (noise, or a state that it keeps)",
        model(tokens),
        whole,
    )
    alone = torch.cat([model(row[None]) for row in tokens])
    yield "a pass over each prompt by itself (it depends on the others of a batch)", alone, whole
    read, _ = encoding.read_at(prompts.n_points, model.cfg.attention_dir)
    yield "`forward` at some positions", model(tokens, read), whole[:, list(read)]
    names = [f"blocks.{i}.hook_resid_pre" for i in range(model.cfg.n_layers)]
    out, cache = model.run_with_cache(tokens, names_filter=names)
    yield "`forward` with something attached", out, whole
    for block, name in enumerate(names):
        yield (
            f"`resume` from block {block}",
            model.resume(cache[name], block, read),
            whole[:, list(read)],
        )


def _behind_contexts(
    model: HookedTransformer, encoding: Encoding, prompts: Prompts
) -> Iterator[Way]:
    """The short ways behind a context, at each prompt's own query and far out, beside whole prompts."""
    last = prompts.n_points - 1
    places = torch.cat([scale * prompts.xs[:, last:] for scale in SCALES], 1)
    [short] = run(model, encoding, [Sweep(prompts, places, tuple(range(len(SCALES))))])
    queries = encoding.queries_after(prompts, places).to(model.unembed.W_U)
    context = encoding.encode(prompts).to(model.unembed.W_U)[:, :-1]
    for k, scale in enumerate(SCALES):
        where, query = f"for queries at {scale:g} times their place", queries[:, k : k + 1]
        whole = model(torch.cat([context, query], 1))[:, -1]
        # What rounding of the query does: far out a model may swing faster than numbers can tell
        # places apart.
        rounded = model(torch.cat([context, query * (1 + ROUNDING)], 1))[:, -1]
        if (rounded - whole).abs().amax() > AGREE * whole.abs().amax():
            continue
        yield f"`after` a context, {where},", short[:, k].to(whole), whole
        if not model.cfg.query_is_unseen or not context.shape[1]:
            continue
        memory = model.remember(context)
        for block, stream in enumerate(list(model.streams_after(memory, query, context.shape[1]))):
            again = model.resume_after(memory, stream, block)[:, 0]
            yield f"`resume_after` from block {block}, {where},", again, whole


def _refuse_difference(what: str, found: Tensor, expected: Tensor) -> None:
    if found.shape != expected.shape:
        raise InputError(
            f"the model is not one function: {what} gives predictions of shape "
            f"{tuple(found.shape)}, and `forward` {tuple(expected.shape)}"
        )
    finite = expected.isfinite()  # far out numbers may overflow, in either way
    difference = (
        float((found - expected)[finite].abs().nan_to_num(torch.inf).amax())
        if finite.any()
        else 0.0
    )
    size = float(expected[finite].abs().amax()) if finite.any() else 0.0
    if difference > AGREE * max(size, torch.finfo(torch.float32).tiny):
        raise InputError(
            f"the model is not one function: {what} differs from `forward` by {difference:.3g} of "
            f"{size:.3g}; a report needs all ways to run a model to agree (change what its layers "
            "compute, not one way alone)"
        )
