"""Direct attribution: how much of the prediction each head, each MLP and the read-in write."""

from collections.abc import Sequence
from functools import partial
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
    if isinstance(norm, Norm):
        out = out if norm.w is None else norm.w.detach().double()[:, None] * out
        out = out - out.mean(0) if norm.centred else out
    return out


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
        cfg, self._positions = model.cfg, positions
        self._read_out, self._last = directions(model), model.unembed.W_U.detach().double()
        self._places = sorted({place for places in positions.values() for place in places})
        self._shape = (
            cfg.n_layers,
            0 if cfg.mlp_only else cfg.n_heads,
            0 if cfg.attn_only else 1,
            cfg.d_out,
        )
        self._shares = _Covariances()
        self._added, self._found, self._sizes = Moments(), Moments(), Moments()
        self._steps: list[_Step] = []
        self._written: list[Tensor] = []
        self._checked: list[Tensor] = []
        hooks: list[Hook] = []
        n_parts = 1  # the read-in
        for i in range(cfg.n_layers):
            block = f"blocks.{i}."
            hooks.append((f"{block}hook_resid_pre", self._start if i == 0 else self._see_stream))
            if i > 0:
                self._steps.append(_Step(hooks[-1][0], 0, n_parts))
            if not cfg.mlp_only:
                hooks += [
                    (f"{block}attn.hook_result", self._write),
                    (f"{block}hook_attn_out", self._see_heads),
                ]
                self._steps.append(_Step(hooks[-1][0], n_parts, n_parts + cfg.n_heads))
                n_parts += cfg.n_heads
            hooks.append((f"{block}hook_resid_mid", self._see_stream))
            self._steps.append(_Step(hooks[-1][0], 0, n_parts))
            if not cfg.attn_only:
                hooks.append((f"{block}hook_mlp_out", self._write))
                n_parts += 1
            hooks.append((f"{block}hook_resid_post", self._see_stream))
            self._steps.append(_Step(hooks[-1][0], 0, n_parts))
        if not hasattr(model, "ln_final"):
            name, last = hooks.pop()
            return [*hooks, (name, partial(self._finish_without_norm, last))]
        self._steps.append(_Step("ln_final.hook_out", 0, n_parts))
        return [*hooks, ("ln_final.hook_scale", self._divide), ("ln_final.hook_out", self._finish)]

    def _start(self, t: Float[Tensor, "batch token d_model"], hook: object) -> None:
        """The read-in: the first part, and the stream so far."""
        # What a run left that ended in an error is forgotten.
        self._written, self._checked = [], []
        self._stream, self._size = self._projected(t)
        self._since, self._size_since = torch.zeros_like(self._stream), torch.zeros_like(self._size)
        self._written.append(self._stream[:, :, None])

    def _write(self, t: Float[Tensor, "batch token *part d_model"], hook: object) -> None:
        """What one part writes, or each head of a layer."""
        said, size = self._projected(t)
        parts = said if said.ndim == 4 else said[:, :, None]
        self._written.append(parts)
        self._since = self._since + parts.sum(2)
        self._size_since = self._size_since + (size.sum(2) if size.ndim == 3 else size)

    def _see_heads(self, t: Float[Tensor, "batch token d_model"], hook: object) -> None:
        """What attention adds to the stream: beside what its heads have written."""
        added, size = self._projected(t)
        self._compare(added - self._since, added, self._size_since + size)
        self._since, self._size_since = added, size

    def _see_stream(self, t: Float[Tensor, "batch token d_model"], hook: object) -> None:
        """The stream: beside what it was and what was added to it since."""
        stream, size = self._projected(t)
        self._compare(
            stream - self._stream - self._since, stream, self._size + self._size_since + size
        )
        self._stream, self._size = stream, size
        self._since, self._size_since = torch.zeros_like(stream), torch.zeros_like(size)

    def _divide(self, scale: Float[Tensor, "batch token 1"], hook: object) -> None:
        """The scale by which the final norm divides the stream."""
        self._scale = scale.double()

    def _finish(self, t: Float[Tensor, "batch token d_model"], hook: object) -> None:
        """Compare the final norm's output with the stream over the scale.

        The output gives the prediction up to b_U.
        """
        prediction = t.double() @ self._last
        size = self._size / self._scale[..., 0].abs() + self._norm(t, self._last)
        self._compare(prediction - self._stream / self._scale, prediction, size)
        self._close(prediction, self._scale)

    def _finish_without_norm(
        self, last: object, t: Float[Tensor, "batch token d_model"], hook: object
    ) -> None:
        """Without a final norm, the last stream is what is read out."""
        self._see_stream(t, hook)
        self._close(self._stream, torch.ones_like(self._stream[..., :1]))

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
        self._checked.append(torch.stack([added, found, size[..., None].expand_as(found)]))

    def _close(
        self, prediction: Float[Tensor, "batch token target"], scale: Float[Tensor, "batch token 1"]
    ) -> None:
        """A run is over: add its prompts."""
        parts = torch.cat(
            [*(part / scale[:, :, None] for part in self._written), prediction[:, :, None]], 2
        )
        self._shares.update(at_places(parts, self._places))
        added, found, sizes = at_places(
            torch.stack(self._checked, 3).movedim(0, 2), self._places
        ).unbind(2)
        self._added.update(added)
        self._found.update(found)
        self._sizes.update(sizes.square())
        self._written, self._checked = [], []

    def results(self) -> dict[str, Result]:
        """The shares."""
        n_layers, n_heads, n_mlps, d_out = self._shape
        shares = torch.stack(
            [self._of_kind(kind) for kind in self._positions], 1
        ).cpu()  # (part, position, target)
        by_layer = (
            shares[1:-1].unflatten(0, (n_layers, n_heads + n_mlps)) if n_layers else shares[1:-1]
        )
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
            heads = {**layers, "head": range(n_heads), **axes}
            found["head"] = make_array(by_layer[:, :n_heads].numpy(), heads, "", note)
        if n_mlps:
            found["mlp"] = make_array(by_layer[:, n_heads].numpy(), {**layers, **axes}, "", note)
        return found

    def _of_kind(self, kind: str | float) -> Float[Tensor, "part target"]:
        """The shares of all parts and, last, of the rest, at the places of one kind together."""
        index = {place: i for i, place in enumerate(self._places)}
        rows = [index[place] for place in self._positions[kind]]  # pyright: ignore[reportArgumentType]
        covariances = self._shares.sums[rows] * self._kept(rows)  # (place, part, target)
        together = covariances.sum(0)
        # The last step is the prediction: what varies as rounding does has no shares.
        rounding = ROUNDING**2 * self._sizes.mean[rows, -1].sum(0) * self._shares.count
        shares = together[:-1] / together[-1:].where(together[-1:] > rounding, torch.nan)
        return torch.cat([shares, 1 - shares.sum(0, keepdim=True)])

    def _kept(self, rows: list[int]) -> Bool[Tensor, "place part target"]:
        """Which parts are still in the prediction, whose own entry is the last one.

        Raises:
            InputError: at some place what is there is no sum of what was written, and is no
                constant either.
        """
        kept = torch.ones_like(self._shares.sums[rows], dtype=torch.bool)
        limit = ROUNDING**2 * self._sizes.mean[rows]  # (place, step, target)
        moves, varies = (seen.variance[rows] > limit for seen in (self._added, self._found))
        for i, step in enumerate(self._steps):
            if (moves[:, i] & varies[:, i]).any():
                raise InputError(
                    f"probe {self.name}: at {step.hook} there is something else than the sum of "
                    "what heads, MLPs and the read-in have written, and it differs between "
                    "prompts, so the prediction is no sum of these: edit what the parts write "
                    "(hook_z, hook_result, hook_mlp_out), or ask without that edit"
                )
            replaced = moves[:, i] & ~varies[:, i]  # by a constant: what was written before is gone
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
        self.mean = self.sums = torch.zeros((), dtype=torch.float64)

    def update(self, parts: Float[Tensor, "batch place part target"]) -> None:
        """Add prompts."""
        n = len(parts)
        if not n:
            return
        mean = parts.mean(0)
        deviations = parts - mean
        sums = (deviations * deviations[:, :, -1:]).sum(0)
        if self.count:
            delta = mean - self.mean
            sums = sums + self.sums + delta * delta[:, -1:] * (self.count * n / (self.count + n))
            mean = self.mean + delta * (n / (self.count + n))
        self.count, self.mean, self.sums = self.count + n, mean, sums
