"""`icl_interp.probe`: run a model over prompts and measure it on the way."""

from collections.abc import Sequence

import torch

from icl_interp.errors import InputError
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.attention import AttentionEntropy
from icl_interp.probes.base import ModelWithEncoding, Probe, Source, batches, resolve, started
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.residual import ResidualStream
from icl_interp.results import Result


def probe(
    model: HookedTransformer | ModelWithEncoding,
    prompts: Source,
    probes: Sequence[Probe] | None = None,
    encoding: Encoding | None = None,
    batch_size: int = 256,
) -> dict[str, Result]:
    """Measure a model on prompts. Memory does not grow with the number of prompts.

    Args:
        model: a model, or a checkpoint, which brings its encoding.
        prompts: `Prompts`, tokens `(batch, token, d_in)`, or an iterable of either, read once and one item at a time.
            All must be equally long.
        probes: what to measure; by default every probe of this package that the model has something for.
        encoding: how prompts become tokens. By default the checkpoint's; for a bare model it is told from its `d_in`.
            Tokens without an encoding have the position kinds "token" and "query" (the last one).
        batch_size: prompts at once.

    Returns:
        Results by "probe.result", for example "residual_stream.norm". Position kinds are "x" and "y" (or "xy") for the
        context and "query" for the last token. Each probe's class says what it returns.

    Raises:
        InputError: no prompts, prompts of different lengths or longer than `n_ctx`, tokens that are not whole prompts,
            a probe that has nothing to measure in this model, two probes of one name.

    >>> from icl_interp import tasks
    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.provenance import generator
    >>> task = tasks.Polynomial(degrees=(1,), inputs=tasks.Uniform(-1, 1), coefficients=tasks.Normal(1), n_points=6)
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, n_ctx=12))
    >>> stream = (task.sample(32, generator(0, "doc", i)) for i in range(4))
    >>> results = probe(model, stream, [ResidualStream(), AttentionEntropy()])
    >>> results["attention_entropy.max_weight"].dims
    ('layer', 'head', 'position', 'statistic')
    """
    model, encoding = resolve(model, encoding)
    if probes is None:
        every = (ResidualStream(), LayerNormScale(), AttentionEntropy(), HeadOrthogonality())
        probes = [p for p in every if not p.refusal(model)]
    elif isinstance(probes, Probe) or not len(probes):
        raise InputError("probes must be a list or tuple with at least one probe, for example (ResidualStream(),)")
    hooks = None
    for tokens, positions in batches(model, prompts, encoding, batch_size):
        if hooks is None:
            hooks = started(model, probes, positions)
        # Attached for this batch only: a stream may run the model itself to make its next prompts.
        with torch.no_grad(), model.hooks(fwd_hooks=hooks):
            model(tokens)
    return {f"{p.name}.{name}": result for p in probes for name, result in p.results().items()}
