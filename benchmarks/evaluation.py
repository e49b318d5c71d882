"""Times the evaluation of one model at the protocol of Naim & Asher (2025) against the forward passes that it needs.

bare        the model on all tokens of the sample, encoded beforehand, in batches as large as those of the evaluation
evaluation  `evaluation.function_errors`: draws, encoding, forward passes, errors; its references are kept from before
references  least squares and zero on the same sample: paid once for all models
memory      the highest so far after a tenth of the functions, and what all of them add to it

The first two take turns. Seconds are those of the processor (of all threads together), which what else the machine
does lengthens less than those of the clock.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import torch

from icl_interp import evaluation
from icl_interp.checkpoints.store import predict
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial

SIZES = {"small": (3, 64, 4), "paper": (12, 256, 8)}  # layers, width, heads
POINTS = 41
ENCODING = Interleaved()


class Model:
    """An untrained model with a checkpoint's `predict`: weights make no difference to the time."""

    def __init__(self, size: str):
        layers, width, heads = SIZES[size]
        n_ctx = ENCODING.n_tokens(POINTS)
        self.model = HookedTransformer(
            HookedTransformerConfig(n_layers=layers, d_model=width, n_heads=heads, n_ctx=n_ctx)
        ).eval()

    def predict(self, prompts: Prompts) -> torch.Tensor:
        return predict(self.model, ENCODING, prompts)


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--degree", type=int, default=1)
    parser.add_argument("--functions", type=int, default=100)
    parser.add_argument("--contexts", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    law = Uniform(-1, 1)
    task = Polynomial(degrees=(options.degree,), inputs=law, coefficients=law, n_points=POINTS)
    model = Model(options.size)
    read, _ = ENCODING.read_at(POINTS, "causal")
    settings = {"n_contexts": options.contexts, "seed": 0}

    def evaluate(n_functions: int, **predictors: Model) -> object:
        return evaluation.function_errors(predictors, task, n_functions=n_functions, references=True, **settings)

    evaluate(max(1, options.functions // 10), model=model)
    before = peak_mib()
    references = seconds(lambda: evaluate(options.functions))
    evaluate(options.functions, model=model)
    grown = peak_mib() - before

    sample = evaluation.Sample(task, options.functions, **settings)
    tokens = [
        ENCODING.encode(prompts[i : i + evaluation.BATCH]).float()
        for prompts in sample
        for i in range(0, len(prompts), evaluation.BATCH)
    ]

    @torch.no_grad()
    def bare() -> None:
        for batch in tokens:
            model.model(batch, read)

    turns = [(seconds(bare), seconds(lambda: evaluate(options.functions, model=model))) for _ in range(options.turns)]
    ratio = statistics.median(whole / forward for forward, whole in turns)
    best, own = (min(times) for times in zip(*turns, strict=True))
    print(
        f"{options.size} model, degree {options.degree}: {options.functions} functions x {options.contexts} contexts x "
        f"{POINTS} points, {options.threads} threads, {options.turns} turns"
    )
    print(f"bare        {best:8.2f} s  (best)")
    print(f"evaluation  {own:8.2f} s  (best)  {ratio:.2f} x bare (median of turns)")
    print(f"references  {references:8.2f} s, once for all models")
    print(f"memory      {before:8.0f} MiB after a tenth of the functions, {grown:+.0f} MiB with all of them")


if __name__ == "__main__":
    main()
