"""A large model beside busy processes, and alone: whether threads that wait are in the way."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import fresh
from benchmarks.measuring import Goal, Options, Row
from icl_interp.threads import PASSIVE, POLICY

N_BUSY = 2  # processes beside it
TURNS = 5
PASSES = 12  # forward passes of a run
QUIET, BUSY = Goal(1.05), Goal(2.5)
SPIN = "while True: pass"
POLICIES = {"passively": PASSIVE, "as OpenMP does by itself": None}


def passes(n_layers: int, width: int, batch: int, n_passes: int) -> float:
    """Seconds that forward passes of a model take."""
    import torch

    from icl_interp.models.config import HookedTransformerConfig
    from icl_interp.models.transformer import HookedTransformer

    config = HookedTransformerConfig(
        n_layers=n_layers, d_model=width, n_heads=width // 32, d_mlp=4 * width, n_ctx=82
    )
    model = HookedTransformer(config).eval()
    tokens = torch.randn(batch, 82, 1)
    with torch.no_grad():
        model(tokens)
        begun = time.perf_counter()
        for _ in range(n_passes):
            model(tokens)
    return time.perf_counter() - begun


def run(options: Options) -> list[Row]:
    """How long a run takes alone, and beside busy processes, for each way to wait."""
    sizes = {"n_layers": 12, "width": 256, "batch": 32, "n_passes": PASSES}
    if options.quick:
        sizes = {"n_layers": 1, "width": 32, "batch": 4, "n_passes": 1}
    taken: dict[tuple[str, int], list[float]] = {}
    # Turn by turn, so that what else the machine does is shared by all.
    for _ in range(options.turns_or(TURNS)):
        for way, policy in POLICIES.items():
            for n_busy in (0, N_BUSY):
                with waiting(policy), busy(n_busy):
                    one = fresh.call(passes, here=options.quick, **sizes)
                taken.setdefault((way, n_busy), []).append(float(one.result))
    mine, usual = POLICIES
    return [
        ratio("alone: waiting passively, over spinning", taken, (mine, 0), (usual, 0), QUIET),
        ratio(f"beside {N_BUSY}, over alone: passively", taken, (mine, N_BUSY), (mine, 0), BUSY),
        ratio(f"beside {N_BUSY}, over alone: spinning", taken, (usual, N_BUSY), (usual, 0), None),
    ]


def ratio(
    what: str,
    taken: dict[tuple[str, int], list[float]],
    top: tuple[str, int],
    bottom: tuple[str, int],
    goal: Goal | None,
) -> Row:
    """The median over turns of a ratio of seconds."""
    ratios = [a / b for a, b in zip(taken[top], taken[bottom], strict=True)]
    return Row(
        what=what,
        value=statistics.median(ratios),
        unit="x",
        low=min(ratios),
        high=max(ratios),
        turns=len(ratios),
        note="of the run that the row names",
        goal=goal,
    )


@contextmanager
def waiting(policy: str | None) -> Iterator[None]:
    """Processes that are started in here have this policy, or none."""
    before = os.environ.pop(POLICY, None)
    if policy is not None:
        os.environ[POLICY] = policy
    try:
        yield
    finally:
        os.environ.pop(POLICY, None)
        if before is not None:
            os.environ[POLICY] = before


@contextmanager
def busy(n: int) -> Iterator[None]:
    """So many processes that do nothing but count on, each with a core if there is one."""
    started = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(n)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()
