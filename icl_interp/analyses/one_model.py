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
# Multiples of a prompt's own query at which `forward` and `after` are compared.
SCALES = (1.0, 3.0, 1e3, 1e6)
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
    rows = _spread(len(prompts))
    few = prompts[rows]
    with torch.no_grad():
        ways = [*_whole_prompts(model, encoding, few), *_behind_contexts(model, encoding, few)]
    for way in ways:
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
    rows = _spread(len(tokens))
    few = tokens[rows].to(model.unembed.W_U)
    what = "a model built anew from its weights (its own class computes something else)"
    with torch.no_grad():
        again = copy(few)
        whole = model(few)
    _refuse_difference(what, again, whole)


def _spread(n: int) -> Tensor:
    """A few rows of n, far from one another: those of one function stand together."""
    n_rows = min(N_PROMPTS, n)
    rows = torch.linspace(0, n - 1, n_rows).long()
    return rows.unique()


def _whole_prompts(model: HookedTransformer, encoding: Encoding, prompts: Prompts) -> Iterator[Way]:
    """The ways to run whole prompts, each beside a plain pass."""
    tokens = encoding.encode(prompts).to(model.unembed.W_U)
    whole = model(tokens)
    # Passes that must agree with this one: again, prompt by prompt, at some positions, by hooks,
    # and from the stream before each block.
    what = "a second pass over the same prompts (noise, or a state that it keeps)"
    yield what, model(tokens), whole
    alone = torch.cat([model(row[None]) for row in tokens])
    yield "a pass over each prompt by itself (it depends on the others of a batch)", alone, whole
    read, _ = encoding.read_at(prompts.n_points, model.cfg.attention_dir)
    at_read = whole[:, list(read)]
    at_some = model(tokens, read)
    yield "`forward` at some positions", at_some, at_read
    names = [f"blocks.{i}.hook_resid_pre" for i in range(model.cfg.n_layers)]
    out, cache = model.run_with_cache(tokens, names_filter=names)
    yield "`forward` with something attached", out, whole
    for block, name in enumerate(names):
        stream = cache[name]
        resumed = model.resume(stream, block, read)
        yield f"`resume` from block {block}", resumed, at_read


def _behind_contexts(
    model: HookedTransformer, encoding: Encoding, prompts: Prompts
) -> Iterator[Way]:
    """The quick ways to run the model behind a context, beside whole prompts.

    Each is tried at every prompt's own query, and far out.
    """
    last = prompts.n_points - 1
    own = prompts.xs[:, last:]
    places = torch.cat([scale * own for scale in SCALES], 1)
    sweep = Sweep(prompts, places, tuple(range(len(SCALES))))
    [short] = run(model, encoding, [sweep])
    queries = encoding.queries_after(prompts, places).to(model.unembed.W_U)
    context = encoding.encode(prompts).to(model.unembed.W_U)[:, :-1]
    n_seen = context.shape[1]
    for k, scale in enumerate(SCALES):
        where = f"for queries at {scale:g} times their place"
        query = queries[:, k : k + 1]
        tokens = torch.cat([context, query], 1)
        whole = model(tokens)[:, -1]
        # What rounding of the query does: far out a model may swing faster than numbers can tell
        # places apart.
        nearly = torch.cat([context, query * (1 + ROUNDING)], 1)
        change = model(nearly)[:, -1] - whole
        if change.abs().amax() > AGREE * whole.abs().amax():
            continue
        yield f"`after` a context, {where},", short[:, k].to(whole), whole
        if not model.cfg.query_is_unseen or not n_seen:
            continue
        memory = model.remember(context)
        streams = list(model.streams_after(memory, query, n_seen))
        for block, stream in enumerate(streams):
            again = model.resume_after(memory, stream, block)
            yield f"`resume_after` from block {block}, {where},", again[:, 0], whole


def _refuse_difference(what: str, found: Tensor, expected: Tensor) -> None:
    if found.shape != expected.shape:
        raise InputError(
            f"the model is not one function: {what} gives predictions of shape "
            f"{tuple(found.shape)}, and `forward` {tuple(expected.shape)}"
        )
    difference = 0.0
    size = 0.0
    finite = expected.isfinite()  # far out numbers may overflow, in either way
    if finite.any():
        change = (found - expected)[finite]
        difference = float(change.abs().nan_to_num(torch.inf).amax())
        size = float(expected[finite].abs().amax())
    if difference > AGREE * max(size, torch.finfo(torch.float32).tiny):
        raise InputError(
            f"the model is not one function: {what} differs from `forward` by {difference:.3g} of "
            f"{size:.3g}; a report needs all ways to run a model to agree (change what its layers "
            "compute, not one way alone)"
        )
