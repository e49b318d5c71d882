"""One training step of our model against two obvious alternatives, at the usual size here."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

from benchmarks.measuring import Goal, Options, Row, ratio_row, take_turns
from benchmarks.sizes import TINY, Size, untrained
from icl_interp.products import fast

SIZE, BATCH, STEPS, TURNS = Size(layers=3, width=64, heads=4, points=20), 64, 10, 20
GOAL = Goal(1.8, "at least")
PEER = "GPT2Model"


class GPT2(nn.Module):
    """A GPT2Model that reads and predicts numbers."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        config = GPT2Config(
            vocab_size=1,
            n_positions=size.n_ctx,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            use_cache=False,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
        self.read_in, self.body, self.read_out = (
            nn.Linear(1, size.width),
            GPT2Model(config),
            nn.Linear(size.width, 1),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read_out(self.body(inputs_embeds=self.read_in(tokens)).last_hidden_state)


def variants(size: Size) -> dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]]:
    """Each model, and how to get its predictions at the positions that are read."""
    ours, fused, gpt2 = untrained(size).train(), untrained(size).train(), GPT2(size).train()
    for block in fused.blocks:
        block.attn.fused = True
    read = range(0, size.n_tokens, 2)
    return {
        "ours": (ours, lambda x: ours(x, read)),
        "all fused": (fused, lambda x: fused(x)[:, ::2]),
        PEER: (gpt2, lambda x: gpt2(x)[:, ::2]),
    }


def stepper(
    model: nn.Module, predict: Callable[[Tensor], Tensor], size: Size, batch: int
) -> Callable[[], None]:
    """One training step: forward, backward, clipping, Adam."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    tokens, targets = torch.randn(batch, size.n_tokens, 1), torch.randn(batch, size.points)

    def step() -> None:
        (predict(tokens)[..., 0] - targets).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def run(options: Options) -> list[Row]:
    """Seconds a step; how many times as fast as GPT2Model."""
    size, batch, steps = (TINY, 4, 1) if options.quick else (SIZE, BATCH, STEPS)
    runs = {name: stepper(*variant, size, batch) for name, variant in variants(size).items()}
    runs["ours"] = fast()(runs["ours"])  # as `icl_interp.train` runs it
    times = take_turns(runs, options.turns_or(TURNS), repeats=steps)
    return [
        ratio_row(
            name,
            times[PEER],
            own,
            of=own,
            note=f"times as fast as {PEER}; seconds of a step",
            goal=GOAL if name == "ours" else None,
        )
        for name, own in times.items()
    ]
