"""Whether what was named of an adapted module adds up to its stream, so that it has edges."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from icl_interp.models.hooked import HookedModel
from icl_interp.models.parts import READ_OUT, Part, reading_parts, writing_parts
from icl_interp.provenance import generator

SAME = 1e-4  # of the largest number that goes into a sum
Values = dict[str, Tensor]


def why_no_sum(model: HookedModel, tokens: Tensor) -> str | None:
    """Why edges between parts that were named would be no edges; None where a trial shows nothing.

    It is tried that

    * the last stream is what was written, and nothing else that differs between prompts,
    * each reader reads just what was written before it,
    * an edit of what one part writes reaches the stream as it is, and
    * an edit of what one part reads reaches the stream by what this part writes alone.

    Where the hook point of a writer or of the last stream was not named, there is nothing to try.
    Those of readers are tried that were named.

    Args:
        model: an adapted module, whose sizes are known.
        tokens: of any prompts.
    """
    writers = writing_parts(model)
    readers = reading_parts(model)
    kept = dict(readers)
    for name, part in readers.items():
        if part.hook not in model.hook_dict:
            del kept[name]
    hooks = set(map(_hook, writers.values()))
    if READ_OUT not in kept or not hooks <= set(model.hook_dict):
        return None
    trial = _Trial(model, tokens, writers, kept)
    for name in kept:
        if trial.gap_moves(trial.before, name):
            return _unlike(name, readers[name])
    return _by_edits(trial)


def _by_edits(trial: "_Trial") -> str | None:
    """What an edit of each part shows. What reaches no output cannot be edited, and says so."""
    for part in trial.writers.values():
        if trial.is_used(part) and trial.gap_moves(trial.edited(part), READ_OUT):
            return f"an edit at {part.hook} reaches the stream otherwise than as it is"
    for name, part in trial.readers.items():
        if name == READ_OUT or not trial.is_used(part):
            continue
        found = trial.edited(part)
        if trial.gap_moves(found, READ_OUT) or trial.others_move(found, name):
            return f"an edit at {part.hook} reaches more than what {name} reads"
    return None


def _hook(part: Part) -> str:
    return part.hook


def _unlike(name: str, part: Part) -> str:
    return (
        f"at {part.hook} there is something else than the sum of blocks.0.hook_resid_pre and of "
        f"what the parts that were named write before {name}"
    )


class _Trial:
    """Runs of a module on a few tokens, as they are and with one part edited."""

    def __init__(
        self, model: Any, tokens: Tensor, writers: dict[str, Part], readers: dict[str, Part]
    ) -> None:
        self.model = model
        # Others are run beside them, so that prompts differ.
        self.tokens = [tokens, -tokens - 1]
        self.writers = writers
        self.readers = readers
        parts = [*writers.values(), *readers.values()]
        self.hooks = set(map(_hook, parts))
        self.before = self._run([])

    def is_used(self, part: Part) -> bool:
        """Whether an edit of a part can be made."""
        for spot in self.model.spots:
            if spot.name == part.hook:
                return spot.used
        return False

    def edited(self, part: Part) -> Values:
        """What hook points hold when random numbers are added to one part."""
        return self._run([(part.hook, self._adding(part))])

    def _run(self, edits: list[tuple[str, Any]]) -> Values:
        found: Values = {}

        def keep(t: Tensor, hook: Any) -> None:
            now = t.detach().double()
            before = found.get(hook.name)
            found[hook.name] = now if before is None else torch.cat([before, now])

        # What an edit leaves is kept: it comes first.
        hooks = list(edits)
        for name in self.hooks:
            hooks.append((name, keep))
        with torch.no_grad(), self.model.hooks(fwd_hooks=hooks):
            for tokens in self.tokens:
                self.model(tokens)
        return found

    def _adding(self, part: Part) -> Callable[..., Tensor]:
        def add(t: Tensor, hook: Any) -> Tensor:
            own = part.of(t)
            noise = torch.randn(own.shape, generator=generator(0, "adapters/sums")).to(t)
            change = noise * (float(own.abs().max()) or 1.0)
            if part.head is None:
                return t + change
            edited = t.clone()
            edited[:, :, part.head] += change
            return edited

        return add

    def gap_moves(self, found: Values, reader: str) -> bool:
        """Whether what is read, less what is written before, differs between prompts."""
        part = self.readers[reader]
        read = part.of(found[part.hook])
        gap = read.clone()
        size = float(read.abs().max())
        for writer in self.writers.values():
            if writer.depth >= part.depth:
                continue
            written = writer.of(found[writer.hook])
            if written.shape != read.shape:
                return True
            gap -= written
            size = max(size, float(written.abs().max()))
        return not float((gap - gap[:1]).abs().max()) <= SAME * size

    def others_move(self, found: Values, reader: str) -> bool:
        """Whether an edit of one reader moves what others beside it read or write."""
        edited = self.readers[reader]
        own = [edited]
        for part in self.writers.values():
            if part.head == edited.head:
                own.append(part)
        for part in [*self.readers.values(), *self.writers.values()]:
            if part.depth != edited.depth or part in own:
                continue
            was = part.of(self.before[part.hook])
            now = part.of(found[part.hook])
            if not float((now - was).abs().max()) <= SAME * float(was.abs().max()):
                return True
        return False
