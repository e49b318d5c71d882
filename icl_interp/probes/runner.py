"""`icl_interp.probe`: run a model over prompts and measure it on the way."""

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch

from icl_interp.errors import InputError, shown
from icl_interp.interventions.base import Intervention, is_hooked
from icl_interp.models import tokens as encodings
from icl_interp.models.hooked import HookedModel
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import widest_bytes
from icl_interp.probes.attention import AttentionEntropy
from icl_interp.probes.base import (
    ModelWithEncoding,
    Probe,
    Source,
    batches,
    resolve,
    started,
    why_not,
)
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.residual import LogitLens, ResidualStream
from icl_interp.probes.sweep import Sweep, places, run
from icl_interp.products import fast
from icl_interp.prompts import Prompts
from icl_interp.results import Result

# Bytes of the widest activation on a CPU. Memory for larger ones is given back to the system after
# each step and asked for anew, which can take longer than the arithmetic.
WIDEST = 12 * 2**20


def probe(
    model: HookedModel | ModelWithEncoding,
    prompts: Source,
    probes: Sequence[Probe] | None = None,
    encoding: Encoding | str | None = None,
    batch_size: int = 64,
    *,
    queries: Sequence[float] | np.ndarray | None = None,
    context: Sequence[Intervention] = (),
    query: Sequence[Intervention] = (),
    dtype: torch.dtype | None = None,
) -> dict[str, Result]:
    """Measure a model on prompts. Memory does not grow with the number of prompts.

    These are the measurements that verdicts are made of: on the prompts of a report
    (`analyses.Bench.of`), in its float64, the numbers are those of the report. (Of a model of over
    two million parameters a report reads contexts in float32.)

    Args:
        model: a model, or a checkpoint, which brings its encoding.
        prompts: `Prompts`, tokens `(batch, token, d_in)`, or an iterable of either, read once and
            one item at a time. All must be equally long.
        probes: what to measure; by default every probe of this package that the model has something
            for (of heads the cosines; angles between their subspaces take longer:
            `HeadOrthogonality()`).
        encoding: how prompts become tokens. By default the checkpoint's; for a bare model it is
            told from its `d_in`, but for paths, which are as wide as interleaved prompts: pass
            `States()` for these. A name such as "stacked" does as well.
            Tokens without an encoding have the position kinds "token" and "query" (the last one).
        batch_size: prompts that are encoded at once. Of a large model fewer run at once, as many as
            is fastest.
        queries: inputs; the last query of every prompt is put at each of them (first coordinate,
            others 0), and the probes read there only. Causal models read each context once.
        context: with `queries`, interventions while the context is read. Whole prompts are probed
            inside `icl_interp.intervene(model, ...)` instead.
        query: with `queries`, interventions while the last query is read; what they keep by
            position, such as scales of norms, they put there as it was measured at the last
            position.
        dtype: of a copy of the model that is measured. Far out float32 has lost the context: use
            torch.float64 there.

    Returns:
        Results by "probe.result", for example "residual_stream.norm". Position kinds are "x" and
        "y" (or "xy") for the context and "query" for the last token; with `queries`, these. Each
        probe's class says what it returns.

    Raises:
        InputError: no prompts, prompts of different lengths or longer than `n_ctx`, tokens that are
            not whole prompts, a probe that has nothing to measure in this model, two probes of one
            name; with `queries`, a model to which something is attached, since that would take each
            query for a token of the context; without, `context` or `query`.

    >>> from icl_interp import tasks
    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> from icl_interp.provenance import generator
    >>> task = tasks.Polynomial(
    ...     degrees=(1,), inputs=tasks.Uniform(-1, 1), coefficients=tasks.Normal(1), n_points=6
    ... )
    >>> config = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, n_ctx=12)
    >>> model = HookedTransformer(config)
    >>> stream = (task.sample(32, generator(0, "doc", i)) for i in range(4))
    >>> results = probe(model, stream, [ResidualStream(), AttentionEntropy()])
    >>> results["attention_entropy.max_weight"].dims
    ('layer', 'head', 'position', 'statistic')
    >>> prompts = task.sample(32, generator(0, "doc"))
    >>> far = probe(model, prompts, [AttentionEntropy()], queries=[1.0, 1e3])
    >>> far["attention_entropy.max_weight"].indexes["position"].tolist()
    [1.0, 1000.0]

    Under interventions, here LayerNorms whose scales at the query stay what they are in
    distribution:

    >>> from icl_interp.interventions import FreezeNorms
    >>> prompts = task.sample(32, generator(0, "doc"))
    >>> frozen = FreezeNorms.measure(model, encodings.Interleaved().encode(prompts))
    >>> results = probe(model, prompts, [LayerNormScale()], queries=[1.0, 1e3], query=[frozen])
    >>> kept = results["layernorm_scale.scale"]
    >>> at_1, at_1000 = kept.sel(norm="ln_final", statistic="mean").values
    >>> bool(abs(at_1 - at_1000) < 1e-6 * at_1)
    True
    """
    model, encoding = resolve(model, encoding)
    if probes is None:
        probes = default_probes(model)
    elif isinstance(probes, Probe) or not len(probes):
        raise InputError(
            "probes must be a list or tuple with at least one probe, for example "
            "(ResidualStream(),)"
        )
    # Results are told apart by the probe's name.
    names = [p.name for p in probes if isinstance(p, Probe)]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two probes are called {name!r}, so their results would mix: run one after the "
                "other"
            )
    if dtype is not None:
        model = copy.deepcopy(model).to(dtype)
    if queries is not None:
        _sweep(model, prompts, probes, encoding, queries, context, query)
    elif context or query:
        raise InputError(
            "context= and query= are for queries=...; to probe whole prompts under interventions, "
            "call probe inside `with icl_interp.intervene(model, ...):`"
        )
    else:
        _read(model, prompts, probes, encoding, batch_size)
    found: dict[str, Result] = {}
    for one in probes:
        for name, result in one.results().items():
            found[f"{one.name}.{name}"] = result
    return found


def default_probes(model: HookedModel) -> list[Probe]:
    """The probes that `probe` uses where none is named: all here that apply to the model."""
    every = (
        ResidualStream(),
        LogitLens(),
        LayerNormScale(),
        AttentionEntropy(),
        HeadOrthogonality(angles=False),
    )
    return [p for p in every if _applies(p, model)]


def _applies(probe: Probe, model: HookedModel) -> bool:
    """Whether the model has what a probe reads."""
    if why_not(probe, model):
        return False
    try:  # of an adapted module some hook points are named, and others not
        hooks = probe.hooks(model, {"query": [0]})
        model.check_hooks([name for name, _ in hooks])
    except InputError:
        return False
    return True


def _read(
    model: HookedModel,
    prompts: Source,
    probes: Sequence[Probe],
    encoding: Encoding | None,
    batch_size: int,
) -> None:
    """Whole prompts as they are."""
    hooks = None
    for tokens, positions in batches(model, prompts, encoding, batch_size):
        if hooks is None:
            hooks = started(model, probes, positions)
        widest = WIDEST if tokens.device.type == "cpu" else math.inf
        n_parts = math.ceil(len(tokens) * widest_bytes(model, tokens.shape[1]) / widest)
        # Attached for this batch only: a stream may run the model itself to make its next prompts.
        with torch.no_grad(), fast(), model.hooks(fwd_hooks=hooks):
            for part in tokens.tensor_split(max(1, min(n_parts, len(tokens)))):
                model(part)


def _sweep(
    model: HookedModel,
    prompts: Source,
    probes: Sequence[Probe],
    encoding: Encoding | None,
    queries: Sequence[float] | np.ndarray,
    context: Sequence[Intervention],
    query: Sequence[Intervention],
) -> None:
    """Alternative last tokens."""
    if is_hooked(model):
        raise InputError(
            "with queries= the context and each query are read apart, so what is attached to the "
            "model would take a query for a token of the context: leave `intervene`, and pass the "
            "interventions as context=[...] and query=[...]"
        )
    if not isinstance(prompts, Prompts):
        raise InputError(f"queries change the inputs of Prompts, but got {type(prompts).__name__}")
    if not len(prompts) or not len(queries):
        raise InputError(
            f"there is nothing to probe: {len(prompts)} prompts and {len(queries)} queries"
        )
    try:
        xs = list(map(float, queries))
    except (TypeError, ValueError):
        raise InputError(
            "queries must be numbers (the last input's first coordinate; the others are 0), but "
            f"got {shown(queries)}; other inputs go into the prompts themselves"
        ) from None
    # Each query is the name of its results, so no two may be alike.
    for x in xs:
        if not math.isfinite(x):
            raise InputError(f"queries must be finite, but got {x}")
        if xs.count(x) > 1:
            raise InputError(
                f"queries must differ, but got {x:g} twice: each names its own results"
            )
    encoding = encoding or encodings.infer_from(prompts, model.cfg.d_in)
    at = places(xs, prompts.xs.shape[-1])
    sweep = Sweep(prompts, at, xs, context=tuple(context), query=tuple(query), probes=tuple(probes))
    run(model, encoding, [sweep])
