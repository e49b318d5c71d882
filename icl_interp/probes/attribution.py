"""Direct attribution: how much of the prediction each head, each MLP and the read-in write."""

import itertools
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.hooks import edited
from icl_interp.models.layers import Norm
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.base import Hook, Positions, Probe, at_places
from icl_interp.reductions import Moments
from icl_interp.results import Result, make_array

# Units in the last place of the vectors that a sum is made of, up to which two sums are one.
ROUNDING = 100
Stream = Float[Tensor, "batch token d_model"]


def directions(model: HookedTransformer) -> Float[Tensor, "d_model d_out"]:
    """D with prediction = stream D / scale + a constant.

    It combines the final norm's centring and gain with the read-out.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0))
    >>> out, cache = model.run_with_cache(torch.linspace(-1, 1, 5)[None, :, None])
    >>> stream = cache["blocks.0.hook_resid_post"].double()
    >>> by_hand = stream @ directions(model) / cache["ln_final.hook_scale"]
    >>> # A fresh model has no biases, so the constant is 0.
    >>> bool((by_hand - out).abs().max() < 1e-5)
    True
    """
    out = model.unembed.W_U.detach().double()
    norm = getattr(model, "ln_final", None)
    if not isinstance(norm, Norm):
        return out
    if norm.w is not None:
        gain = norm.w.detach().double()
        out = gain[:, None] * out
    return out - out.mean(0) if norm.centred else out


class _Step(NamedTuple):
    """A place at which what was written so far is compared with what is there.

    Attributes:
        hook: its name.
        first, last: the parts that go into it, as a range of their numbers.
    """

    hook: str
    first: int
    last: int


class DirectAttribution(Probe):
    """Shares of the prediction's variance that parts of the model write directly to the read-out.

    The parts are heads, MLPs and the read-in.

    With the final norm's scale held at what it is, the prediction is a sum: of what each head
    writes, each MLP, the read-in with the positions, and a rest. The share of a part is its
    covariance with the model's prediction, divided by the prediction's variance, over prompts:
    shares add up to 1. A share below 0 or above 1 belongs to parts that cancel. What a part does
    through later layers counts as theirs: to see it, ablate (`AblateHeads`).

    The rest is what the stream holds and no part has written: the bias b_O of each attention layer,
    and what an intervention puts there. It must be alike in all prompts. (It varies with the final
    norm's scale only, so without such a norm its share is 0.) Where an intervention puts a constant
    in the place of what parts have written, these parts have no share. Where it makes anything else
    of it, the prediction is no sum of parts.

    Source: Elhage et al. (2021), "A mathematical framework for transformer circuits": direct logit
    attribution, here with a number as the output.

    Results, without units; NaN where the prediction does not vary by more than rounding makes it:
        head: Matrix (layer, head, position, target); none in a model without attention.
        mlp: Matrix (layer, position, target); none in a model without MLPs.
        read_in: Matrix (position, target).
        rest: Matrix (position, target).

    Raises:
        InputError: a model whose prediction is no sum of parts: a post-norm one, or one with tanh
            for norms (raised by `probe` and `observe`); or one that is edited so that it is none
            (raised by `results`).

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.probes.runner import probe
    >>> config = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, init_std=1.0)
    >>> model = HookedTransformer(config)
    >>> results = probe(model, torch.randn(32, 6, 1), [DirectAttribution()])
    >>> round(sum(float(share.sel(position="query").sum()) for share in results.values()), 6)
    1.0
    """

    name: ClassVar[str] = "direct_attribution"
    weights: ClassVar[str | None] = "what each part writes, and the read-out"

    def refusal(self, model: HookedTransformer) -> str | None:
        """Why the model cannot be attributed, or None.

        The stream must be a sum, the read-out linear in it, and nothing after the last hook may
        edit it.
        """
        if not model.cfg.stream_is_a_sum:
            place = model.cfg.norm_position
            return f"a {place}-norm model's stream is no sum of what its parts write"
        if not model.cfg.heads_write_to_stream:
            return (
                "a norm on what each layer's attention writes (norm_position='output') makes it no "
                "sum of what heads write"
            )
        if model.cfg.normalization_type == "Tanh":
            return "a tanh is not linear in the stream, so the prediction is no sum of parts"
        if type(model).forward is not HookedTransformer.forward:
            return (
                f"a {type(model).__name__} has a forward pass of its own, which may add what no "
                "part writes"
            )
        behind = {
            "model": model,
            "model.unembed": model.unembed,
            "model.ln_final": getattr(model, "ln_final", None),
        }
        for name, module in behind.items():
            if module is not None and edited(module):
                return (
                    f"a torch hook on {name} may edit the prediction after all hook points: remove "
                    "it"
                )
        return None

    def hooks(self, model: HookedTransformer, positions: Positions) -> list[Hook]:
        """Hooks at all parts' outputs, the stream at every place, and the final norm.

        At the final norm its scale and its output are read.
        """
        cfg = model.cfg
        n_heads = 0 if cfg.mlp_only else cfg.n_heads
        n_mlps = 0 if cfg.attn_only else 1
        self._positions = positions
        self._read_out = directions(model)
        self._last = model.unembed.W_U.detach().double()
        self._places = sorted(set(itertools.chain(*positions.values())))
        self._shape = (cfg.n_layers, n_heads, n_mlps, cfg.d_out)
        self._shares = _Covariances()
        self._added = Moments()
        self._found = Moments()
        self._sizes = Moments()
        self._steps: list[_Step] = []
        self._written: list[Tensor] = []
        self._checked: list[Tensor] = []
        hooks: list[Hook] = []
        n_parts = 1  # the read-in
        for i in range(cfg.n_layers):
            block = f"blocks.{i}."
            before = f"{block}hook_resid_pre"
            if i == 0:
                hooks.append((before, self._start))
            else:
                hooks.append((before, self._see_stream))
                self._steps.append(_Step(before, 0, n_parts))
            if n_heads:
                added = f"{block}hook_attn_out"
                hooks.append((f"{block}attn.hook_result", self._write))
                hooks.append((added, self._see_heads))
                self._steps.append(_Step(added, n_parts, n_parts + n_heads))
                n_parts += n_heads
            between = f"{block}hook_resid_mid"
            hooks.append((between, self._see_stream))
            self._steps.append(_Step(between, 0, n_parts))
            if n_mlps:
                hooks.append((f"{block}hook_mlp_out", self._write))
                n_parts += 1
            after = f"{block}hook_resid_post"
            hooks.append((after, self._see_stream))
            self._steps.append(_Step(after, 0, n_parts))
        # The read-out, behind the final norm where there is one.
        if hasattr(model, "ln_final"):
            hooks.append(("ln_final.hook_scale", self._divide))
            hooks.append(("ln_final.hook_out", self._finish))
            self._steps.append(_Step("ln_final.hook_out", 0, n_parts))
        else:
            last, _ = hooks.pop()
            hooks.append((last, self._finish_without_norm))
        return hooks

    def _start(self, t: Stream, hook: object) -> None:
        """The read-in: the first part, and the stream so far."""
        # What a run left that ended in an error is forgotten.
        self._written = []
        self._checked = []
        self._set_stream(*self._projected(t))
        self._written.append(self._stream[:, :, None])

    def _set_stream(
        self, stream: Float[Tensor, "batch token target"], size: Float[Tensor, "batch token"]
    ) -> None:
        """The stream so far, and that nothing was added to it since."""
        self._stream = stream
        self._size = size
        self._since = torch.zeros_like(stream)
        self._size_since = torch.zeros_like(size)

    def _write(self, t: Float[Tensor, "batch token *part d_model"], hook: object) -> None:
        """What one part writes, or each head of a layer."""
        parts, size = self._projected(t)
        if parts.ndim == 4:
            size = size.sum(2)
        else:
            parts = parts[:, :, None]
        self._written.append(parts)
        self._since = self._since + parts.sum(2)
        self._size_since = self._size_since + size

    def _see_heads(self, t: Stream, hook: object) -> None:
        """What attention adds to the stream: beside what its heads have written."""
        added, size = self._projected(t)
        self._compare(added - self._since, added, self._size_since + size)
        self._since = added
        self._size_since = size

    def _see_stream(self, t: Stream, hook: object) -> None:
        """The stream: beside what it was and what was added to it since."""
        stream, size = self._projected(t)
        added = stream - self._stream - self._since
        self._compare(added, stream, self._size + self._size_since + size)
        self._set_stream(stream, size)

    def _divide(self, scale: Float[Tensor, "batch token 1"], hook: object) -> None:
        """The scale by which the final norm divides the stream."""
        self._scale = scale.double()

    def _finish(self, t: Stream, hook: object) -> None:
        """Compare the final norm's output with the stream over the scale.

        The output gives the prediction up to b_U.
        """
        prediction = t.double() @ self._last
        expected = self._stream / self._scale
        size = self._size / self._scale[..., 0].abs()
        size = size + self._norm(t, self._last)
        self._compare(prediction - expected, prediction, size)
        self._close(prediction, self._scale)

    def _finish_without_norm(self, t: Stream, hook: object) -> None:
        """Without a final norm, the last stream is what is read out."""
        self._see_stream(t, hook)
        one = torch.ones_like(self._stream[..., :1])
        self._close(self._stream, one)

    def _projected(
        self, t: Float[Tensor, "batch token *part d_model"]
    ) -> tuple[Float[Tensor, "batch token *part target"], Float[Tensor, "batch token *part"]]:
        """Vectors in the read-out, and how large rounding makes their numbers there."""
        return t.double() @ self._read_out, self._norm(t, self._read_out)

    @staticmethod
    def _norm(
        t: Float[Tensor, "batch token *part d_model"], through: Float[Tensor, "d_model d_out"]
    ) -> Float[Tensor, "batch token *part"]:
        lengths = torch.linalg.vector_norm(t, dim=-1, dtype=torch.float64)
        return torch.finfo(t.dtype).eps * lengths * torch.linalg.matrix_norm(through)

    def _compare(
        self,
        added: Float[Tensor, "batch token target"],
        found: Float[Tensor, "batch token target"],
        size: Float[Tensor, "batch token"],
    ) -> None:
        """Record the size of a step, how much of it no part has written, and its rounding error."""
        rounding = size[..., None].expand_as(found)
        self._checked.append(torch.stack([added, found, rounding]))

    def _close(
        self, prediction: Float[Tensor, "batch token target"], scale: Float[Tensor, "batch token 1"]
    ) -> None:
        """A run is over: add its prompts."""
        parts = [part / scale[:, :, None] for part in self._written]
        parts.append(prediction[:, :, None])
        self._shares.update(at_places(torch.cat(parts, 2), self._places))
        steps = torch.stack(self._checked, 3).movedim(0, 2)
        added, found, sizes = at_places(steps, self._places).unbind(2)
        self._added.update(added)
        self._found.update(found)
        self._sizes.update(sizes.square())
        self._written = []
        self._checked = []

    def results(self) -> dict[str, Result]:
        """The shares."""
        n_layers, n_heads, n_mlps, d_out = self._shape
        of_kinds = [self._of_kind(kind) for kind in self._positions]
        shares = torch.stack(of_kinds, 1).cpu()  # (part, position, target)
        by_layer = shares[1:-1]
        if n_layers:
            by_layer = by_layer.unflatten(0, (n_layers, n_heads + n_mlps))
        axes = {"position": tuple(self._positions), "target": tuple(range(d_out))}
        note = (
            "share of the prediction's variance, over prompts; the final norm's scale is held; "
            "shares add up to 1"
        )
        found: dict[str, Result] = {
            "read_in": make_array(shares[0].numpy(), axes, "", note),
            "rest": make_array(shares[-1].numpy(), axes, "", note),
        }
        layers: dict[str, Sequence[int]] = {"layer": range(n_layers)}
        if n_heads:
            of_heads = {**layers, "head": range(n_heads), **axes}
            found["head"] = make_array(by_layer[:, :n_heads].numpy(), of_heads, "", note)
        if n_mlps:
            of_mlps = {**layers, **axes}
            found["mlp"] = make_array(by_layer[:, n_heads].numpy(), of_mlps, "", note)
        return found

    def _of_kind(self, kind: str | float) -> Float[Tensor, "part target"]:
        """The shares of all parts and, last, of the rest, at the places of one kind together."""
        places = self._positions[kind]  # pyright: ignore[reportArgumentType]
        rows = list(map(self._places.index, places))
        covariances = self._shares.sums[rows] * self._kept(rows)  # (place, part, target)
        together = covariances.sum(0)
        # The last step is the prediction: what varies as rounding does has no shares.
        rounding = ROUNDING**2 * self._sizes.mean[rows, -1].sum(0) * self._shares.count
        whole = together[-1:]
        shares = together[:-1] / whole.where(whole > rounding, torch.nan)
        rest = 1 - shares.sum(0, keepdim=True)
        return torch.cat([shares, rest])

    def _kept(self, rows: list[int]) -> Bool[Tensor, "place part target"]:
        """Which parts are still in the prediction, whose own entry is the last one.

        Raises:
            InputError: at some place what is there is no sum of what was written, and is no
                constant either.
        """
        kept = torch.ones_like(self._shares.sums[rows], dtype=torch.bool)
        limit = ROUNDING**2 * self._sizes.mean[rows]  # (place, step, target)
        moves = self._added.variance[rows] > limit
        varies = self._found.variance[rows] > limit
        for i, step in enumerate(self._steps):
            if (moves[:, i] & varies[:, i]).any():
                raise InputError(
                    f"probe {self.name}: at {step.hook} there is something else than the sum of "
                    "what heads, MLPs and the read-in have written, and it differs between "
                    "prompts, so the prediction is no sum of these: edit what the parts write "
                    "(hook_z, hook_result, hook_mlp_out), or ask without that edit"
                )
            # Replaced by a constant: what was written before is gone.
            replaced = moves[:, i] & ~varies[:, i]
            kept[:, step.first : step.last] &= ~replaced[:, None]
        return kept


class _Covariances:
    """Sums over prompts of products of deviations, each part's with the last part's.

    They are merged as in `Moments`.

    Attributes:
        sums: `(place, part, target)`.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros((), dtype=torch.float64)
        self.sums = torch.zeros((), dtype=torch.float64)

    def update(self, parts: Float[Tensor, "batch place part target"]) -> None:
        """Add prompts."""
        n = len(parts)
        if not n:
            return
        mean = parts.mean(0)
        deviations = parts - mean
        sums = (deviations * deviations[:, :, -1:]).sum(0)
        count = self.count + n
        if self.count:
            delta = mean - self.mean
            between = delta * delta[:, -1:] * (self.count * n / count)
            sums = sums + self.sums + between
            mean = self.mean + delta * (n / count)
        self.count = count
        self.mean = mean
        self.sums = sums
