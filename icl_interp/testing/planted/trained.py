"""Models that were trained to follow a plan, and the training.

Training asks for three things at once: the plan's answer; where one of its variables comes from
another prompt, the answer to that; and where any other edges do, the answer to the prompt itself.
"""

import math
from pathlib import Path

import torch
from torch import Tensor

from icl_interp.models import weights
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import environment, generator, read_json, write_json
from icl_interp.structured import of_schema
from icl_interp.tasks.base import Task
from icl_interp.testing.planted.base import Truth
from icl_interp.testing.planted.interchange import (
    ENCODING,
    Clean,
    Passed,
    clean,
    edges_at,
    judged,
    passed,
    unplanned,
    with_edges,
)
from icl_interp.testing.planted.plans import PLANS, Plan

SCHEMA = "icl_interp.trained/1"
KEPT = Path(__file__).parent / "weights"
N_TRAINED = 2  # models of a plan that come with the package
MOST = 4  # seeds of a plan that may be tried
STEPS = 1500
BATCH = 128
ATTENTION = 10.0  # weight of the attention of copies in the loss
LONGEST = 1.0  # gradient of the weights
RATE = 5e-3  # at first; it falls to 0 as a half cosine


# ---- models that come with the package -----------------------------------------------------------


def drawn(family: str, seed: int) -> tuple[HookedTransformer, Task, Encoding, Truth]:
    """A trained model with its truth, as families that are set by hand give theirs.

    Args:
        family: a name of `PLANS`.
        seed: counts the models that come with the package, round and round.
    """
    plan = PLANS[family]
    seeds = kept(family)
    path = place(family, seeds[seed % len(seeds)])
    model = weights.load_model(HookedTransformer, plan.cfg, path)
    return model.double().eval(), plan.task, ENCODING, plan.truth()


def kept(family: str, folder: Path = KEPT) -> list[int]:
    """Seeds whose models passed.

    >>> kept("trained step")
    [0, 1]
    """
    found = []
    for seed in range(MOST):
        if place(family, seed, folder).with_suffix(".json").is_file():
            found.append(seed)
    return found


def place(family: str, seed: int, folder: Path = KEPT) -> Path:
    """The file of weights; the numbers of the tests stand in the `.json` beside it."""
    return folder / f"{family.replace(' ', '_')}_{seed}.safetensors"


def numbers(family: str, seed: int, folder: Path = KEPT) -> Passed:
    """What a model that comes with the package came to in the tests."""
    path = place(family, seed, folder).with_suffix(".json")
    return Passed(**of_schema(read_json(path), SCHEMA, path)["passed"].facts())


def keep(
    family: str, seed: int, folder: Path = KEPT, *, steps: int = STEPS
) -> tuple[Passed, list[str]]:
    """Train a model, and write its weights and numbers where it passes all tests.

    Returns:
        What it came to, and in what it fell short; nothing is written where there is anything.
    """
    plan = PLANS[family]
    model = train(plan, seed, steps)
    # What is judged are the weights as they are stored.
    stored = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = passed(judged(model, plan, seed=seed))
    faults = found.faults(plan)
    if not faults:
        path = place(family, seed, folder)
        weights.write(path, stored)
        told = {"plan": family, "seed": seed, "steps": steps, "environment": environment()}
        write_json(path.with_suffix(".json"), {"schema": SCHEMA, **told, "passed": found._asdict()})
    return found, faults


# ---- training ------------------------------------------------------------------------------------


def train(
    plan: Plan, seed: int, steps: int = STEPS, *, interchange: bool = True
) -> HookedTransformer:
    """A model that is trained to follow a plan, in float32.

    Args:
        plan: what it is to follow.
        seed: of fresh weights and of prompts.
        steps: of Adam.
        interchange: whether swaps are trained; else its predictions alone are.
    """
    model = HookedTransformer(plan.cfg, seed=seed)
    # A direction along which a shortcut writes the answer.
    reader = torch.nn.Parameter(torch.zeros(plan.cfg.d_model))
    optimiser = torch.optim.Adam([*model.parameters(), reader], lr=RATE)
    many = plan.task.sample(4096, generator(seed, "planted/size"))
    size = plan.answer(many).var()
    for step in range(steps):
        cosine = math.cos(math.pi * step / steps)
        for group in optimiser.param_groups:
            group["lr"] = RATE * (1 + cosine) / 2
        draw = generator(seed, "planted/train", step)
        prompts = plan.task.sample(BATCH, draw)
        run = clean(model, ENCODING.encode(prompts))
        answer = plan.answer(prompts)
        loss = (run.out - answer).square().mean()
        if interchange:
            loss = loss + _swaps(model, plan, prompts, run, draw)
        loss = loss / size + _decoys(plan, run, reader, answer / size.sqrt())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), LONGEST)
        optimiser.step()
    return model.eval()


def _swaps(
    model: HookedTransformer, plan: Plan, prompts: Prompts, run: Clean, draw: torch.Generator
) -> Tensor:
    """Squared errors after a swap at a place of the plan, and after one at random other edges.

    The other prompt of each is the one before it.
    """
    tokens = ENCODING.encode(prompts)
    others = prompts[torch.arange(len(prompts)).roll(1)]
    values = {}
    for writer, value in run.written.items():
        values[writer] = value.roll(1, 0)
    # A place of the plan.
    places = plan.places
    number = int(torch.randint(len(places), (), generator=draw))
    place = places[number]
    edges = edges_at(model, place)
    out = with_edges(model, tokens, edges, values)
    wanted = plan.answer(prompts, others, place)
    loss = (out - wanted).square().mean()
    # Few or many of the other edges.
    edges = unplanned(model, plan)
    share = torch.rand((), generator=draw)
    taken = torch.rand(len(edges), generator=draw) <= share
    some = [edge for edge, take in zip(edges, taken.tolist(), strict=True) if take]
    if not some:
        return loss
    out = with_edges(model, tokens, some, values)
    wanted = plan.answer(prompts)
    return loss + (out - wanted).square().mean()


def _decoys(plan: Plan, run: Clean, reader: Tensor, answer: Tensor) -> Tensor:
    """How far copies attend from their originals, and how ill a shortcut's answer can be read.

    Args:
        plan: with the decoys.
        run: on prompts.
        reader: a direction of the stream.
        answer: with variance 1.
    """
    loss = torch.zeros(())
    for copy, original in plan.copies.items():
        gap = _row(run, copy) - _row(run, original)
        loss = loss + ATTENTION * gap.square().sum(-1).mean()
    if plan.shortcut is not None:
        gap = run.streams[0] @ reader - answer
        loss = loss + gap.square().mean()
    return loss


def _row(run: Clean, head: str) -> Tensor:
    """The query's attention."""
    layer, place = map(int, head.split()[1].split("."))
    return run.patterns[layer][:, place]
