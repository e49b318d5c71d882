"""What heads do: a score for each role with its null, composition between heads, and what OV does.

A role is a share of attention that goes to certain tokens, beyond what these get by chance: 0 where
attention is spread evenly over the visible tokens, 1 where all of it goes there. Intervals are over
functions, and p-values are adjusted for all heads and roles (Benjamini-Yekutieli).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.interventions.patching import hooks_of
from icl_interp.models.hooked import HookedModel
from icl_interp.models.hooks import FactoredMatrix
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer, model_in
from icl_interp.probes import maps
from icl_interp.probes.attention import scaled_to_one
from icl_interp.probes.attribution import directions
from icl_interp.probes.base import held, with_weights
from icl_interp.probes.record import Activations
from icl_interp.probes.runner import probe
from icl_interp.probes.units import mean_over_functions, p_above, rank_correlation
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import table_of_rows

N_PROMPTS = 64  # functions drawn where no prompts are given
N_RANDOM = 200  # random pairs of heads
EVEN = 1e-9  # of a pattern: it differs from even weights by rounding only
NOTE = (
    "Scores beyond chance: 0 by chance, 1 for all attention. p: not above chance, one-sided, "
    "Benjamini-Yekutieli over all rows."
)
Mask = Bool[Tensor, "batch query key"]


def roles(checkpoint: Any, prompts: Prompts | None = None, *, seed: int = 0) -> pd.DataFrame:
    """Scores of every head for each role.

    * "previous token": attention of each token to the one before it.
    * "pairs a value with its input": attention of a label's token to that of its input
      (interleaved prompts).
    * "labels": attention of the query to tokens that show a label.
    * "neighbours": minus the rank correlation of the query's weight on an example with its
      distance; an example's weight is that of its tokens together. By chance 0.
    * "duplicates": attention of the query to the tokens of an example with the same input, in
      prompts where it has the input of an example drawn at random.
    * "position only": the share of the pattern's deviation from even weights that is the same in
      all prompts. Its chance level is that of as many prompts whose deviations are independent,
      one in the number of prompts. Heads with even weights have no score.

    Args:
        checkpoint: a model with its encoding, or an adapted module whose patterns were named.
        prompts: by default 64 functions of its task.
        seed: of prompts and of duplicates.

    Returns:
        Rows layer, head, role, score with low and high (95 % over functions; none for "position
        only"), and p. Roles that an encoding has no tokens for are left out. Heads whose weights
        are no shares (negative ones, of linear attention) have NaN.

    Raises:
        InputError: no checkpoint, a model without attention, prompts of one function.

    Source: Elhage et al. (2021), "A mathematical framework for transformer circuits" (previous
    token, composition); Olsson et al. (2022), "In-context learning and induction heads".

    Assumes that weights say what a head takes: values of length 0 may lie where they are large.

    Without queries weights are even, and no score is above chance:

    >>> import icl_interp
    >>> loaded = icl_interp.load("affine_attn_only")
    >>> with torch.no_grad():
    ...     for block in loaded.model.blocks:
    ...         _ = block.attn.W_Q.zero_(), block.attn.b_Q.zero_()
    >>> table = roles(loaded).dropna(subset="score")
    >>> bool((table.loc[table["role"] != "neighbours", "score"].abs() < 1e-6).all())
    True
    """
    model, encoding = _held(checkpoint)
    if prompts is None:
        prompts = _drawn(checkpoint, seed)
    kinds = encoding.kinds(prompts.n_points)
    visible = _seen_by(model, len(kinds))
    patterns = _patterns(model, encoding, prompts)
    doubled, twins = _with_duplicates(prompts, seed)
    # In a path an input cannot be replaced without the value before it.
    at_twins = _patterns(model, encoding, doubled) if encoding.shows_values else {}
    rows = []
    for (layer, head), pattern in patterns.items():
        place = {"layer": layer, "head": head}
        mean = partial(mean_over_functions, prompts=prompts)
        scores = _by_tokens(pattern, kinds, visible)
        scores["neighbours"] = _nearness(pattern, kinds, prompts)
        if at_twins:
            masks = _example_mask(kinds, twins)
            scores["duplicates"] = _share(at_twins[layer, head][:, -1:], masks, visible[:, -1:])
        for role, values in scores.items():
            found = mean(values)
            row = {**place, "role": role, "score": found.value}
            rows.append(row | {"low": found.low, "high": found.high, "p": found.se})
        row = {**place, "role": "position only", "score": _by_position(pattern, visible)}
        rows.append(row | {"low": np.nan, "high": np.nan, "p": np.nan})
    table = table_of_rows(rows, NOTE)
    table["p"] = p_above(table["score"].to_numpy(), table["p"].to_numpy())
    return table


def composition(checkpoint: Any, *, seed: int = 0, n_random: int = N_RANDOM) -> pd.DataFrame:
    """How much of what a head writes a later head reads: Q-, K- and V-composition.

        |R W| / (|R| |W|)   (Frobenius norms)

    with W = W_V W_O of the writer and R of the reader: W_Q W_K^T as it reads queries, its transpose
    as it reads keys, W_V W_O as it reads values. Gains of norms are folded in, and the mean over
    the stream is taken off where norms take it off.

    The null keeps the singular values of both maps and turns their directions at random. Its root
    mean square is 1 / sqrt(D) in D dimensions; how it spreads depends on the spectra, so it is
    drawn.

    Source: Elhage et al. (2021), "A mathematical framework for transformer circuits", section on
    composition.

    Returns:
        Rows kind ("Q", "K", "V"), writer_layer, writer_head, reader_layer, reader_head, score,
        random (root mean square of the null) and p (the share of random pairs that are at least as
        large, the own one counted). With many pairs adjust them:
        `scipy.stats.false_discovery_control(table["p"], method="by")`.

    Raises:
        InputError: a model without attention or of one layer, or one whose heads do not write to
            the stream as they are (post-norm, norms on outputs).

    Assumes that directions matter as their length in the weights says, whatever the prompts.

    A head of one direction that reads what another of one direction writes has a score of 1:

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> cfg = HookedTransformerConfig(
    ...     n_layers=2, d_model=8, n_heads=1, d_head=1, normalization_type=None
    ... )
    >>> model = HookedTransformer(cfg)
    >>> with torch.no_grad():
    ...     _ = model.blocks[1].attn.W_V.copy_(model.blocks[0].attn.W_O.mT)
    >>> found = composition(model, n_random=9).set_index("kind")["score"]
    >>> float(found["V"].round(6))
    1.0
    """
    model = model_in(checkpoint)
    cfg = _of_sums(model)
    centred = cfg.normalization_type in maps.CENTRED
    n_dims = cfg.d_model - centred
    draw = generator(seed, "probes/roles/composition")
    # The same turns serve all pairs.
    turns = _random_turns(cfg.head_width, n_dims, n_random, draw).square()
    writers = []
    for layer in range(cfg.n_layers):
        writers.append([written.T for written in _written(model, layer)])
    readers = [_read(model, layer) for layer in range(cfg.n_layers)]
    rows = []
    for later in range(1, cfg.n_layers):
        for earlier in range(later):
            for kind, maps_of in readers[later].items():
                for reader, read in enumerate(maps_of):
                    for writer, written in enumerate(writers[earlier]):
                        row = {"kind": kind, "writer_layer": earlier, "writer_head": writer}
                        row |= {"reader_layer": later, "reader_head": reader}
                        null = _random_scores(read, written, turns)
                        rows.append(row | _against(_composed(read, written), null))
    return table_of_rows(rows, "of norms |R W| / (|R| |W|), beside random directions")


def ov_spectrum(checkpoint: Any) -> pd.DataFrame:
    """What each head's OV map does to what it reads.

    * size: its Frobenius norm, with gains folded in.
    * rank: (sum s^2)^2 / sum s^4 over singular values s: how many directions it uses.
    * copying: sum Re(l) / sum |l| over its eigenvalues l: 1 where it adds what it reads, -1 where
      it takes it off, about 0 by chance.
    * label: how much one unit of the label's channel, read in and written by this head alone at
      unit attention, moves the read-out, up to the positive scales of norms: its sign says whether
      labels count for or against. NaN where values are vectors.

    Assumes that what norms divide by is the same for all prompts, as all maps of weights do.

    Source: Elhage et al. (2021), "A mathematical framework for transformer circuits", for the
    eigenvalues.

    Raises:
        InputError: as for `composition`, but for a single layer.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2))
    >>> with torch.no_grad():  # a head that copies
    ...     _ = model.blocks[0].attn.W_O.copy_(model.blocks[0].attn.W_V.mT)
    >>> ov_spectrum(model)["copying"].round(6).tolist()
    [1.0, 1.0]
    """
    model = model_in(checkpoint)
    cfg = _of_sums(model, fewest=1)
    read_out = directions(model)
    channel = _label_channel(checkpoint, model)
    rows = []
    for layer in range(cfg.n_layers):
        for head, ov in enumerate(_written(model, layer)):
            # Singular values say how much, eigenvalues whether it adds what it reads.
            squares = ov.S.square()
            total = squares.sum()
            eigenvalues = ov.eigenvalues
            spread = float(eigenvalues.abs().sum())
            row = {"layer": layer, "head": head, "size": float(total.sqrt())}
            row["rank"] = float(total**2 / squares.square().sum())
            row["copying"] = float(eigenvalues.real.sum()) / spread if spread else np.nan
            row["label"] = np.nan
            if channel is not None and read_out.shape[1] == 1:
                row["label"] = float(channel @ ov.A @ ov.B @ read_out[:, 0])
            rows.append(row)
    return table_of_rows(rows)


# ---- scores of patterns --------------------------------------------------------------------------


def _by_tokens(pattern: Tensor, kinds: tuple[str, ...], visible: Tensor) -> dict[str, np.ndarray]:
    """Roles that the kinds of tokens define, a score for each prompt."""
    n_tokens = len(kinds)
    before = torch.eye(n_tokens, dtype=torch.bool)[None, :-1]  # row t - 1 is token t
    scores = {"previous token": _share(pattern[:, 1:], before, visible[:, 1:])}
    values = [place for place, kind in enumerate(kinds) if kind == "y"]
    if values:
        inputs = [place - 1 for place in values]
        own = torch.eye(n_tokens, dtype=torch.bool)[None, inputs]
        scores["pairs a value with its input"] = _share(pattern[:, values], own, visible[:, values])
        labels = torch.zeros(1, 1, n_tokens, dtype=torch.bool)
        labels[..., values] = True
        scores["labels"] = _share(pattern[:, -1:], labels, visible[:, -1:])
    return scores


def _share(pattern: Tensor, wanted: Tensor, visible: Tensor) -> np.ndarray:
    """The weight on wanted tokens beyond their share of the visible ones, a mean over queries.

    (weight - share) / (1 - share): 0 by chance, 1 where all weight is there.
    """
    wanted = wanted & visible
    weight = (pattern * wanted).sum(-1)
    share = wanted.sum(-1) / visible.sum(-1)
    room = 1 - share
    # A query that sees wanted tokens alone, or none, tells nothing.
    tells = (room > 0) & (share > 0)
    beyond = (weight - share) / room.where(tells, 1.0)
    score = beyond.where(tells, 0.0)
    n_telling = tells.sum(-1).expand(len(pattern))
    return (score.sum(-1) / n_telling).numpy()


def _seen_by(model: HookedModel, n_tokens: int) -> Mask:
    """The keys that each query may look at: (1, query, key)."""
    visible = torch.ones(1, n_tokens, n_tokens, dtype=torch.bool)
    if model.cfg.attention_dir == "causal":
        visible = visible.tril()
    if model.cfg.keys == "labelled":
        visible[..., -1] = False
    return visible


def _nearness(pattern: Tensor, kinds: tuple[str, ...], prompts: Prompts) -> np.ndarray:
    """Minus the rank correlation of the query's weights on examples with their distances."""
    weights = _by_example(pattern[:, -1], kinds)
    xs = prompts.xs.double().cpu()
    apart = xs[:, :-1] - xs[:, -1:]
    away = torch.linalg.vector_norm(apart, dim=-1)
    found = rank_correlation(weights.numpy(), away.numpy())
    unknown = torch.isnan(weights).any(-1)
    found[unknown.numpy()] = np.nan
    return -found


def _by_example(row: Float[Tensor, "batch key"], kinds: tuple[str, ...]) -> Tensor:
    """Weights of the tokens of each example together."""
    per_example = 2 if "y" in kinds else 1
    without_query = row[:, :-1]
    parts = without_query.unflatten(1, (-1, per_example))
    return parts.sum(-1)


def _example_mask(kinds: tuple[str, ...], example: Tensor) -> Tensor:
    """The tokens of one example in each prompt: (batch, 1, key)."""
    per_example = 2 if "y" in kinds else 1
    of_token = torch.arange(len(kinds)) // per_example
    of_token[-1] = -1  # the query
    return (of_token == example[:, None])[:, None]


def _by_position(pattern: Tensor, visible: Tensor) -> float:
    """The share of the squared deviation from even weights that is the same in all prompts."""
    even = visible / visible.sum(-1, keepdim=True)
    deviation = pattern - even
    every = float(deviation.square().mean(0).sum())
    n_prompts, n_queries, _ = pattern.shape
    if not every > EVEN * n_queries:  # NaN, too
        return float("nan")
    same = float(deviation.mean(0).square().sum()) / every
    chance = 1 / n_prompts
    return (same - chance) / (1 - chance)


def _with_duplicates(prompts: Prompts, seed: int) -> tuple[Prompts, Tensor]:
    """The prompts, with the query at the input of a random example, and which example that is."""
    draw = generator(seed, "probes/roles/duplicates")
    n_prompts = len(prompts)
    example = torch.randint(prompts.n_points - 1, (n_prompts,), generator=draw)
    rows = torch.arange(n_prompts)
    xs = prompts.xs.clone()
    ys = prompts.ys.clone()
    xs[:, -1] = xs[rows, example]
    ys[:, -1] = ys[rows, example]
    return replace(prompts, xs=xs, ys=ys), example


def _patterns(
    model: HookedModel, encoding: Encoding, prompts: Prompts
) -> dict[tuple[int, int], Float[Tensor, "batch query key"]]:
    """The pattern of each head, scaled to shares."""
    names = hooks_of("pattern", model)
    reader = Activations(names)
    probe(model, prompts, [reader], encoding=encoding)
    found = {}
    for layer, name in enumerate(names):
        for head, pattern in enumerate(reader.recorded[name].unbind(1)):
            found[layer, head] = scaled_to_one(pattern.double())
    return found


# ---- maps of heads -------------------------------------------------------------------------------


def _written(model: HookedTransformer, layer: int) -> list[FactoredMatrix]:
    """W_V W_O of a layer's heads, as they read the stream and as it is read."""
    read = maps.read_in(model, layer, "W_V")
    write = maps.written(model, layer)
    return [FactoredMatrix(a, b) for a, b in zip(read, write, strict=True)]


def _read(model: HookedTransformer, layer: int) -> Mapping[str, list[FactoredMatrix]]:
    """What a layer's heads read of the stream, for queries, keys and values."""
    queries = maps.read_in(model, layer, "W_Q")
    keys = maps.read_in(model, layer, "W_K")
    pairs = list(zip(queries, keys, strict=True))
    of_queries = [FactoredMatrix(q, k.mT) for q, k in pairs]
    of_keys = [FactoredMatrix(k, q.mT) for q, k in pairs]
    return {"Q": of_queries, "K": of_keys, "V": _written(model, layer)}


def _composed(read: FactoredMatrix, written: FactoredMatrix) -> float:
    """|R W| / (|R| |W|), from the singular vectors of each map, which serve all its pairs.

    W comes transposed, so that both maps have the singular vectors that meet as their left ones.
    """
    size = read.S.norm() * written.S.norm()
    if not size:
        return np.nan
    between = written.U.mT @ read.U
    product = written.S[:, None] * between * read.S
    return float(product.norm() / size)


def _random_turns(width: int, n_dims: int, n: int, draw: torch.Generator) -> Tensor:
    """Corners of random orthogonal matrices (Haar) in as many dimensions as the stream has."""
    rank = min(width, n_dims)
    noise = torch.randn(n, n_dims, rank, generator=draw, dtype=torch.float64)
    return torch.linalg.qr(noise).Q[:, :rank]


def _random_scores(read: FactoredMatrix, written: FactoredMatrix, turns: Tensor) -> np.ndarray:
    """The score of maps with the same singular values whose directions are turned at random.

    The product's norm is that of S_r Q S_w, with Q the corner of a random orthogonal matrix. The
    turns hold the squares of its entries.
    """
    rank = turns.shape[1]
    left = written.S[:rank]
    right = read.S[:rank]
    size = left.norm() * right.norm()
    if not size:
        return np.full(len(turns), np.nan)
    by_row = turns @ left.square()
    squares = by_row @ right.square()
    return (squares.sqrt() / size).numpy()


def _against(score: float, null: np.ndarray) -> dict[str, float]:
    as_large = int((null >= score).sum())
    chance = float(np.sqrt((null**2).mean()))
    return {"score": score, "random": chance, "p": (1 + as_large) / (1 + len(null))}


def _label_channel(checkpoint: Any, model: HookedTransformer) -> Tensor | None:
    """What one unit of a label adds to the stream; None where labels are not shown."""
    encoding = getattr(checkpoint, "encoding", None)
    if encoding is None or not encoding.shows_values:
        return None
    together = encoding.kinds(2)[0] == "xy"
    row = model.W_E.detach().double()[-1 if together else 0]
    centred = model.cfg.normalization_type in maps.CENTRED
    return row - row.mean() if centred else row


# ---- what is refused -----------------------------------------------------------------------------


def _held(checkpoint: Any) -> tuple[HookedModel, Encoding]:
    """A model with attention, and how it reads prompts."""
    model, encoding = held(checkpoint, "probes.roles")
    if model.cfg.mlp_only:
        raise InputError("this model has no attention heads (mlp_only)")
    return model, encoding


def _of_sums(model: Any, fewest: int = 2) -> Any:
    cfg = with_weights(model, "a map of heads").cfg
    if cfg.mlp_only:
        raise InputError("this model has no attention heads (mlp_only)")
    if not (cfg.stream_is_a_sum and cfg.heads_write_to_stream):
        raise InputError(
            "maps of heads meet in a stream that is the sum of what they write, but norms stand in "
            f"between in this model (norm_position={cfg.norm_position!r})"
        )
    if cfg.n_layers < fewest:
        raise InputError("heads compose with those of later layers, but this model has one layer")
    return cfg


def _drawn(checkpoint: Any, seed: int) -> Prompts:
    task = getattr(checkpoint, "task", None)
    if task is None:
        raise InputError("no task came with the model: pass prompts, of task.sample(64, generator)")
    return task.sample(N_PROMPTS, generator(seed, "probes/roles/prompts"))
