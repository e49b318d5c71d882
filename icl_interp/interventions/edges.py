"""Edges: what one part of a model writes, as another part reads it.

A *writer* is the read-in (tokens and positions), a head, or an MLP. A *reader* is the queries, keys
or values of a head, an MLP, or the read-out. What a reader reads is the sum of what all writers
before it wrote, and biases. So one term of that sum can be replaced for one reader only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, unknown
from icl_interp.interventions.base import Hook, Intervention, reference
from icl_interp.models.hooked import HookedModel
from icl_interp.models.parts import READ_OUT, Part, reading_parts, writing_parts
from icl_interp.models.transformer import HookedTransformer


def writers(model: HookedModel) -> dict[str, Part]:
    """What writes to the stream, by name, in its order.

    Raises:
        InputError: the stream of this model is no sum of what its parts write, or a hook point that
            was not named of an adapted module.

    >>> from icl_interp import HookedTransformer, HookedTransformerConfig
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2))
    >>> list(writers(model)), list(readers(model))[:2], list(readers(model))[-2:]
    (['read-in', 'head 0.0', 'head 0.1', 'MLP 0'], ['head 0.0 q', 'head 0.1 q'], \
['MLP 0', 'read-out'])
    """
    _check_sum(model)
    return writing_parts(model)


def readers(model: HookedModel) -> dict[str, Part]:
    """What reads the stream, by name, in its order.

    Raises:
        InputError: the stream of this model is no sum of what its parts write, or a hook point that
            was not named of an adapted module.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> config = HookedTransformerConfig(n_layers=1, d_model=4, n_heads=1, attn_only=True)
    >>> list(readers(HookedTransformer(config)))
    ['head 0.0 q', 'head 0.0 k', 'head 0.0 v', 'read-out']
    """
    _check_sum(model)
    return reading_parts(model)


def edges_of(model: HookedModel) -> list[tuple[str, str]]:
    """All pairs of a writer and a reader that reads it.

    Raises:
        InputError: the stream of this model is no sum of what its parts write, or a hook point that
            was not named of an adapted module.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> config = HookedTransformerConfig(n_layers=1, d_model=4, n_heads=1, attn_only=True)
    >>> [edge for edge in edges_of(HookedTransformer(config)) if edge[0] == "head 0.0"]
    [('head 0.0', 'read-out')]
    """
    sources = writers(model)
    targets = readers(model)
    for target in targets.values():
        model.check_hooks([target.hook])
    return [
        (writer, reader)
        for writer, source in sources.items()
        for reader, target in targets.items()
        if source.depth < target.depth
    ]


def part_in(name: str, parts: Mapping[str, Part], what: str) -> Part:
    """A part by its name.

    Raises:
        InputError: there is none of that name.
    """
    if name not in parts:
        raise unknown(what, name, parts)
    return parts[name]


def _check_sum(model: HookedModel) -> None:
    if not isinstance(model, HookedTransformer):
        # What is not read need not have been named, but whether a stream is a sum, all writers say.
        for part in [*writing_parts(model).values(), reading_parts(model)[READ_OUT]]:
            model.check_hooks([part.hook])
        if model.no_sum:
            raise InputError(
                "edges need a stream that is the sum of what parts write, but of this adapted "
                f"module {model.no_sum}: name other places, or patch whole activations "
                "(interventions.patch)"
            )
        return
    cfg = model.cfg
    if cfg.normalization_type and cfg.norm_position not in ("pre", "output"):
        raise InputError(
            f"edges need a stream that is the sum of what parts write, but a norm of this model "
            f"acts on the stream (norm_position={cfg.norm_position!r}): patch whole activations "
            "(interventions.patch)"
        )
    if not cfg.heads_write_to_stream:
        raise InputError(
            "edges need heads that write to the stream as they are, but this model normalises what "
            "each sublayer writes (norm_position='output'): patch whole activations "
            "(interventions.patch)"
        )
    if getattr(cfg, "residual_scale", 1.0) != 1.0:
        raise InputError(
            "edges need heads that write to the stream as they are, but this model multiplies what "
            "sublayers write (residual_scale): patch whole activations (interventions.patch)"
        )


@dataclass(frozen=True)
class PutEdges(Intervention):
    """Replace what some readers read of some writers; every other reader reads these as they are.

    The term that is taken out is what the writer writes in this very run. So several edges may be
    replaced at once, also where the writer of one comes after the reader of another.

    Assumes that prompt i of the run is to get row i of a value; a value of one row, such as a mean
    over prompts, goes to all.

    Source: Wang, Variengien, Conmy, Shlegeris & Steinhardt (2022), *Interpretability in the wild*;
    Goldowsky-Dill, MacLeod, Sato & Arora (2023), *Localizing model behavior with path patching*.

    Attributes:
        pairs: (writer, reader), as `edges_of` lists them.
        values: by writer, what is read in the place of what it writes: `(batch, token, d_model)`.

    Raises:
        InputError: no such writer or reader, a reader that comes before the writer, a model whose
            stream is no sum, or in a run of other prompts than the values are for.

    What a writer writes itself changes nothing:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> config = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens = torch.linspace(-1, 1, 10).reshape(2, 5, 1)
    >>> before, own = model(tokens), written(model, tokens)
    >>> with intervene(model, PutEdges((("head 0.1", "head 1.0 k"),), own)):
    ...     torch.allclose(model(tokens), before, atol=1e-5)
    True
    """

    pairs: Sequence[tuple[str, str]]
    values: Mapping[str, Float[Tensor, "batch token d_model"]]

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One at each writer, which remembers, and one at each reader."""
        # A writer is remembered before any reader of it runs.
        sources = writers(model)
        targets = readers(model)
        current: dict[str, Tensor] = {}
        # By hook: who reads there, and what of.
        by_hook: dict[str, list[tuple[Part, str]]] = {}
        for writer, reader in self.pairs:
            source = part_in(writer, sources, "writer")
            if part_in(reader, targets, "reader").depth <= source.depth:
                raise InputError(f"{reader} comes before {writer}, so it reads nothing of it")
            if writer not in self.values:
                raise unknown("writer with a value", writer, self.values)
            target = targets[reader]
            by_hook.setdefault(target.hook, []).append((target, writer))
        found: list[Hook] = []
        for writer in dict.fromkeys(writer for writer, _ in self.pairs):
            source = sources[writer]
            found.append((source.hook, _remember(writer, source, current)))
        for hook, read in by_hook.items():
            found.append((hook, self._edit(read, current)))
        return found

    def _edit(
        self, read: Sequence[tuple[Part, str]], current: Mapping[str, Tensor]
    ) -> Callable[..., Tensor]:
        """Of one hook, where all heads of a layer read, or one part alone."""
        names = list(dict.fromkeys(writer for _, writer in read))

        def edit(t: Tensor, hook: object) -> Tensor:
            by_head = t if read[0][0].head is not None else t[:, :, None]
            one = by_head[:, :, 0]
            moved = []
            for writer in names:
                moved.append(_fitting(self.values[writer], one) - current[writer])
            changes = torch.stack(moved, 2)
            # Which head reads the change of which writer.
            reads = changes.new_zeros(by_head.shape[2], len(names))
            for target, writer in read:
                reads[target.head or 0, names.index(writer)] = 1
            edited = by_head + reads @ changes
            return edited if by_head is t else edited[:, :, 0]

        return edit


def _remember(writer: str, source: Part, current: dict[str, Tensor]) -> Callable[..., None]:
    def look(t: Tensor, hook: object) -> None:
        current[writer] = source.of(t)

    return look


def _fitting(value: Tensor, like: Tensor) -> Tensor:
    """A value for every prompt of a run."""
    if len(value) == 1:
        return reference(value[0], like)
    if value.shape != like.shape:
        raise InputError(
            f"values of shape {tuple(value.shape)} (batch, token, d_model) do not fit a run of "
            f"shape {tuple(like.shape)}: give one row, or one for each prompt"
        )
    return value.to(like)


@torch.no_grad()
def written(
    model: HookedModel,
    tokens: Float[Tensor, "batch token d_in"],
    names: Sequence[str] | None = None,
) -> dict[str, Float[Tensor, "batch token d_model"]]:
    """What parts write on some prompts, by the writer's name: all of them, or those named.

    Raises:
        InputError: no such writer, or a model whose stream is no sum.

    With biases of attention it adds up to the stream:

    >>> from icl_interp import HookedTransformer, HookedTransformerConfig
    >>> config = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, init_std=1.0)
    >>> model, tokens = HookedTransformer(config), torch.linspace(-1, 1, 5)[None, :, None]
    >>> _, cache = model.run_with_cache(tokens)
    >>> total = sum(written(model, tokens).values())
    >>> torch.allclose(total, cache["blocks.1.hook_resid_post"], atol=1e-5)
    True
    """
    parts = writers(model)
    chosen = list(parts) if names is None else list(names)
    wanted = [part_in(name, parts, "writer").hook for name in chosen]
    _, cache = model.run_with_cache(tokens, names_filter=wanted)
    return {name: parts[name].of(cache[parts[name].hook]) for name in chosen}
