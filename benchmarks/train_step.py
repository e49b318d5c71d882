"""Times one training step of our model against the two obvious alternatives, at the size this package trains most.

ours       HookedTransformer with nobody listening, asked for the positions that are read
all fused  the same model with torch's fused attention, computing every position
GPT2Model  transformers' GPT2Model between a linear read-in and read-out

The same optimiser, batch and loss for all. Variants take turns, so that whatever else the machine does slows all alike.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

os.environ["HF_HUB_OFFLINE"] = "1"  # everything here is made from scratch

from transformers import GPT2Config, GPT2Model

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer

LAYERS, WIDTH, HEADS, PAIRS, BATCH = 3, 64, 4, 20, 64
TOKENS = 2 * PAIRS - 1  # interleaved; the query's label is never shown
READ = range(0, TOKENS, 2)


class GPT2(nn.Module):
    """A GPT2Model that reads and predicts numbers."""

    def __init__(self) -> None:
        super().__init__()
        config = GPT2Config(
            vocab_size=1,
            n_positions=TOKENS,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            use_cache=False,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
        self.read_in, self.body, self.read_out = nn.Linear(1, WIDTH), GPT2Model(config), nn.Linear(WIDTH, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read_out(self.body(inputs_embeds=self.read_in(tokens)).last_hidden_state)


def variants() -> dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]]:
    """Each model, and how to get its predictions at the positions that are read."""
    cfg = HookedTransformerConfig(n_layers=LAYERS, d_model=WIDTH, n_heads=HEADS, n_ctx=TOKENS)
    ours, fused, gpt2 = HookedTransformer(cfg), HookedTransformer(cfg), GPT2()
    for block in fused.blocks:
        block.attn.fused = True
    return {
        "ours": (ours, lambda x: ours(x, READ)),
        "all fused": (fused, lambda x: fused(x)[:, READ.start : READ.stop : READ.step]),
        "GPT2Model": (gpt2, lambda x: gpt2(x)[:, READ.start : READ.stop : READ.step]),
    }


def stepper(model: nn.Module, predict: Callable[[Tensor], Tensor]) -> Callable[[], None]:
    """One training step: forward, backward, clipping, Adam."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    tokens, targets = torch.randn(BATCH, TOKENS, 1), torch.randn(BATCH, len(READ))

    def step() -> None:
        (predict(tokens)[..., 0] - targets).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=20, help="turns of each variant")
    parser.add_argument("--steps", type=int, default=10, help="steps a turn")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    steps = {name: stepper(*variant) for name, variant in variants().items()}
    turns: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(options.repeats + 1):  # the first one warms up
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(options.steps):
                step()
            if turn:
                turns[name].append((time.perf_counter() - start) / options.steps * 1e3)
    print(f"{options.threads} threads, {options.repeats} turns of {options.steps} steps; milliseconds a step")
    print(f"{'':10}  {'min':>6}  {'median':>6}  {'of GPT2Model':>12}")
    for name, times in turns.items():
        # Turn by turn, because what else runs on the machine changes from one to the next.
        share = statistics.median(t / g for t, g in zip(times, turns["GPT2Model"], strict=True))
        print(f"{name:10}  {min(times):6.1f}  {statistics.median(times):6.1f}  {share:12.2f}")


if __name__ == "__main__":
    main()
