"""What is planted in a model, as data: parts, edges, examples, roles, places of the answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from jaxtyping import Float
from torch import Tensor

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.models import tokens
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.tasks.base import Task

Edge = tuple[str, str]
HatRow = Callable[[Prompts], Float[Tensor, "batch example"]]
Answer = Callable[[Prompts], Float[Tensor, " batch"]]
START = "blocks.0.hook_resid_pre"


@dataclass(frozen=True)
class Truth:
    """What is planted.

    Attributes:
        parts: heads ("head 0.2") and MLPs ("MLP 1") that the prediction needs; all others are idle.
        edges: (writer, reader) between these that the prediction needs, given their means.
        carried: by kind of contrast, the edges through which a change of the prompt goes.
        hat: weights of the examples in the prediction; None where it is not linear in the labels.
        roles: (head, role), of what heads attend to.
        open_roles: such pairs that the plan does not decide.
        readable: hooks of the stream where the answer stands in the query's token, linearly.
        used: those of them where later parts read it.
        undecided: hooks of the stream where it stands in part, or in what idle parts write.
        copies: idle heads that attend as a planted one does.
        formula: what the algorithm predicts at the query; None: the labels times their weights.
    """

    parts: frozenset[str]
    edges: frozenset[Edge]
    carried: Mapping[str, frozenset[Edge]]
    hat: HatRow | None
    roles: frozenset[tuple[str, str]] = frozenset()
    open_roles: frozenset[tuple[str, str]] = frozenset()
    readable: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    undecided: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()
    formula: Answer | None = None

    def renamed(self, name: Callable[[str], str]) -> "Truth":
        """The same truth where parts have other names.

        Args:
            name: of a part in the other model.
        """
        carried = {kind: _renamed(edges, name) for kind, edges in self.carried.items()}
        return replace(
            self,
            parts=frozenset(map(name, self.parts)),
            edges=_renamed(self.edges, name),
            carried=carried,
            roles=_of_others(self.roles, name),
            open_roles=_of_others(self.open_roles, name),
            copies=frozenset(map(name, self.copies)),
        )

    def answer(self, prompts: Prompts) -> Float[Tensor, " batch"]:
        """What the planted algorithm predicts at the query, in float64."""
        prompts = prompts.double()
        if self.formula is not None:
            return self.formula(prompts).double()
        assert self.hat is not None
        weights = self.hat(prompts).double()
        ys = prompts.ys[:, :-1, 0]
        return (weights * ys).sum(1)


@dataclass(frozen=True)
class Planted:
    """A model with its truth.

    Attributes:
        family: what is planted.
        decoy: what stands beside it to mislead, or "none".
        seed: of the draw.
        checkpoint: the model, with its task and how it reads prompts.
        truth: what is planted.
        decoys: heads that the decoy added.
    """

    family: str
    decoy: str
    seed: int
    checkpoint: Checkpoint
    truth: Truth
    decoys: frozenset[str] = field(default_factory=frozenset)


def checkpoint_of(model: HookedTransformer, task: Task, encoding: Encoding) -> Checkpoint:
    """A checkpoint of a planted model."""
    config = RunConfig(model.cfg, task, tokens.name_of(encoding))
    return Checkpoint(model, task, encoding, config)


def edges(*chains: str) -> frozenset[Edge]:
    """Edges written as "writer > reader".

    >>> sorted(edges("read-in > head 0.0 v", "head 0.0 > read-out"))
    [('head 0.0', 'read-out'), ('read-in', 'head 0.0 v')]
    """
    found = set()
    for chain in chains:
        writer, reader = chain.split(" > ")
        found.add((writer, reader))
    return frozenset(found)


def after(*layers: int) -> frozenset[str]:
    """Hooks of the stream after these layers.

    >>> sorted(after(0))
    ['blocks.0.hook_resid_post']
    """
    return frozenset(f"blocks.{layer}.hook_resid_post" for layer in layers)


def _renamed(given: frozenset[Edge], name: Callable[[str], str]) -> frozenset[Edge]:
    found = set()
    for writer, reader in given:
        found.add((part_renamed(writer, name), part_renamed(reader, name)))
    return frozenset(found)


def _of_others(
    given: frozenset[tuple[str, str]], name: Callable[[str], str]
) -> frozenset[tuple[str, str]]:
    """Roles of the heads that have other names now."""
    found = set()
    for head, role in given:
        found.add((name(head), role))
    return frozenset(found)


def part_renamed(reader: str, name: Callable[[str], str]) -> str:
    """A writer or reader whose part has another name.

    >>> part_renamed("head 0.0 q", lambda part: "head 1.2"), part_renamed("read-in", str.upper)
    ('head 1.2 q', 'read-in')
    """
    words = reader.split()
    if len(words) == 1:
        return reader
    part = " ".join(words[:2])
    return " ".join([name(part), *words[2:]])
