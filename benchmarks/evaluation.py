"""The evaluation of one model as in Naim & Asher (2025) against the forward passes it needs."""

import torch

from benchmarks import fresh
from benchmarks.measuring import MB, Goal, Options, Row, ratio_row, take_turns, timed
from benchmarks.sizes import ENCODING, SMALL, TINY, Size, affine, untrained
from icl_interp import evaluation
from icl_interp.checkpoints.store import predict
from icl_interp.prompts import Prompts

FUNCTIONS, CONTEXTS, TURNS = 100, 64, 5
GOAL = Goal(1.05)
BARE = "bare forward passes"


class Model:
    """An untrained model with a checkpoint's `predict`."""

    def __init__(self, size: Size) -> None:
        self.model = untrained(size)

    def predict(self, prompts: Prompts) -> torch.Tensor:
        return predict(self.model, ENCODING, prompts)


def evaluate(size: Size, n_functions: int, n_contexts: int, model: Model | None) -> None:
    """Errors of the references and, if given, the model; references are kept for the next call."""
    predictors = {"model": model} if model else {}
    evaluation.function_errors(
        predictors,
        affine(size),
        n_functions=n_functions,
        n_contexts=n_contexts,
        seed=0,
        references=True,
    )


def evaluate_small(quick: bool, n_functions: int, n_contexts: int) -> None:
    """The same in a process of its own."""
    size = TINY if quick else SMALL
    evaluate(size, n_functions, n_contexts, Model(size))


def run(options: Options) -> list[Row]:
    """The evaluation in forward passes, and how its memory grows with the number of functions."""
    size, n_functions, n_contexts = (TINY, 10, 2) if options.quick else (SMALL, FUNCTIONS, CONTEXTS)
    model = Model(size)
    read, _ = ENCODING.read_at(size.points, "causal")
    references = timed(
        lambda: evaluate(size, n_functions, n_contexts, None)
    )  # first, because they are kept
    # Encoded beforehand, in batches as large as those of the evaluation.
    tokens = [
        ENCODING.encode(prompts[i : i + evaluation.BATCH]).float()
        for prompts in evaluation.Sample(affine(size), n_functions, n_contexts, seed=0)
        for i in range(0, len(prompts), evaluation.BATCH)
    ]

    @torch.no_grad()
    def bare() -> None:
        for batch in tokens:
            model.model(batch, read)

    own = f"evaluation of {n_functions} functions x {n_contexts} contexts"
    times = take_turns(
        {BARE: bare, own: lambda: evaluate(size, n_functions, n_contexts, model)},
        options.turns_or(TURNS),
    )
    rows = [
        ratio_row(
            name, each, times[BARE], note=f"times the {BARE}", goal=GOAL if name == own else None
        )
        for name, each in times.items()
    ]
    rows.append(
        Row(
            what="references: least squares and zero",
            value=references.wall,
            unit="s",
            seconds=references,
            note="once for all models",
        )
    )
    for n in (n_functions // 10, n_functions):
        peak = fresh.call(
            evaluate_small,
            here=options.quick,
            threads=torch.get_num_threads(),
            quick=options.quick,
            n_functions=n,
            n_contexts=n_contexts,
        ).peak
        rows.append(
            Row(
                what=f"peak memory, {n} functions",
                value=peak / MB,
                unit="MB",
                note="of a fresh process, imports too",
            )
        )
    return rows
