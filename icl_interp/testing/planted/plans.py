"""Plans that models are trained to follow: small algorithms, each variable at a place of the model.

A plan is a sum of terms. A term is the mean of the labels with weights that the query and the
inputs give, and one head computes it. Its queries read the query's input, its keys the inputs and
its values the labels. An MLP may bend the sum. So every edge of the plan carries one variable, and
the plan says what the model must predict where that variable comes from another prompt.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.models.config import HookedTransformerConfig as Config
from icl_interp.models.parts import READ_IN, READ_OUT
from icl_interp.prompts import Prompts
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial
from icl_interp.tasks.regression import LinearRegression
from icl_interp.testing.planted.base import Edge, Truth, after

Kernel = Callable[
    [Float[Tensor, "batch token dim"], Float[Tensor, "batch example dim"]],
    Float[Tensor, "batch token example"],
]
ROLES = ("previous token", "pairs a value with its input", "labels", "neighbours", "duplicates")
NOWHERE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Term:
    """A multiple of a weighted mean of the labels, by one head.

    Attributes:
        head: "head 0.1".
        share: the factor.
        kernel: weights of the examples, of each token's input and theirs; None: all alike.
        less: a head of an earlier layer, whose term is taken off the labels first.
    """

    head: str
    share: float = 1.0
    kernel: Kernel | None = None
    less: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The readers of the head that have a variable: queries, keys and values, or values."""
        letters = "v" if self.kernel is None else "qkv"
        return tuple(f"{self.head} {letter}" for letter in letters)

    @property
    def composed(self) -> Edge | None:
        """The edge by which it reads another head."""
        return None if self.less is None else (self.less, f"{self.head} v")

    def weights(self, queries: Prompts, keys: Prompts) -> Float[Tensor, "batch token example"]:
        """What each token's term makes of the labels that the head reads."""
        xs = queries.xs
        inputs = keys.xs[:, :-1]
        if self.kernel is None:
            n_prompts, n_examples, _ = inputs.shape
            return xs.new_full((n_prompts, xs.shape[1], n_examples), self.share / n_examples)
        return self.share * self.kernel(xs, inputs)


@dataclass(frozen=True)
class Plan:
    """An algorithm, and where in a model its variables stand.

    Attributes:
        about: what is planted, in a few words.
        cfg: of the model.
        task: of its prompts, which are stacked.
        terms: of the algorithm.
        bend: what MLP 0 makes of their sum; None where no MLP has a part.
        decoy: what stands beside the plan to mislead, or "none".
        copies: by idle head, the head that it attends as.
        shortcut: an idle head of layer 0 that writes the answer where nobody reads it.
        cancel: heads whose terms cancel, so that the answer does not need them.
    """

    about: str
    cfg: Config
    task: Task
    terms: tuple[Term, ...]
    bend: Callable[[Tensor], Tensor] | None = None
    decoy: str = "none"
    copies: Mapping[str, str] = field(default_factory=dict)
    shortcut: str | None = None
    cancel: frozenset[str] = NOWHERE

    @property
    def mlp(self) -> str | None:
        """The MLP that has a part."""
        return None if self.bend is None else "MLP 0"

    @property
    def needed(self) -> frozenset[str]:
        """Heads and MLPs that the answer needs."""
        found = self.heads - self.cancel
        if self.mlp is not None:
            found |= {self.mlp}
        return found

    @property
    def heads(self) -> frozenset[str]:
        """Heads that compute a term."""
        return frozenset(term.head for term in self.terms)

    @property
    def places(self) -> tuple[frozenset[str], ...]:
        """Places whose swap the plan answers: parts, readers, edges, and heads that cancel."""
        names: list[str] = []
        for term in self.terms:
            names += term.reads
            names.append(term.head)
            if term.composed is not None:
                names.append(named(term.composed))
        if self.mlp is not None:
            names.append(self.mlp)
        found = [frozenset({name}) for name in names]
        if self.cancel:
            found.append(self.cancel)
        return tuple(found)

    def edges(self, heads: Collection[str], letters: str = "qkv") -> frozenset[Edge]:
        """Edges of the plan through some heads, from the read-in on.

        Args:
            heads: through which.
            letters: of the readers that count.
        """
        found: set[Edge] = set()
        end = self.mlp or READ_OUT
        for term in self.terms:
            if term.head not in heads:
                continue
            for name in term.reads:
                if name[-1] in letters:
                    found.add((READ_IN, name))
                    found.add((term.head, end))
            if term.composed is not None and "v" in letters:
                found.add(term.composed)
        if self.mlp is not None and found:
            found.add((self.mlp, READ_OUT))
        return frozenset(found)

    def every_edge(self) -> frozenset[Edge]:
        """Edges of all terms, also of those that cancel."""
        return self.edges(self.heads)

    def hat(self, prompts: Prompts) -> Float[Tensor, "batch example"]:
        """Weights of the labels in the sum of the terms, in float64."""
        prompts = prompts.double()
        rows: dict[str, Tensor] = {}
        for term in self.terms:
            row = term.weights(prompts, prompts)
            if term.less is not None:
                row = row - row @ rows[term.less][:, :-1]
            rows[term.head] = row
        return _sum(rows)

    def answer(
        self, prompts: Prompts, others: Prompts | None = None, place: frozenset[str] = NOWHERE
    ) -> Float[Tensor, " batch"]:
        """What the algorithm predicts at the query.

        Args:
            prompts: what it reads.
            others: as many prompts, that some variables are of.
            place: where these variables stand: parts ("head 0.0"), readers ("head 0.0 q"), or edges
                ("head 0.0 > head 1.0 v").
        """
        if others is None:
            written = self._written(prompts, prompts, NOWHERE, {})
        else:
            theirs = self._written(others, others, NOWHERE, {})
            written = self._written(prompts, others, place, theirs)
            if self.mlp in place:
                written = theirs
        total = _sum(written)
        total = total[:, 0]
        if self.bend is None:
            return total
        return self.bend(total)

    def _written(
        self, own: Prompts, others: Prompts, place: frozenset[str], theirs: Mapping[str, Tensor]
    ) -> dict[str, Float[Tensor, "batch token 1"]]:
        """What each head writes at each token; `theirs` is what it writes on the other prompts."""
        written: dict[str, Tensor] = {}
        for term in self.terms:
            head = term.head
            if head in place:
                written[head] = theirs[head]
                continue
            # Each variable is of the one prompt or of the other.
            queries = others if f"{head} q" in place else own
            keys = others if f"{head} k" in place else own
            values = others if f"{head} v" in place else own
            labels = values.ys[:, :-1]
            if term.composed is not None:
                source = theirs if named(term.composed) in place else written
                labels = labels - source[term.composed[0]][:, :-1]
            weights = term.weights(queries, keys)
            written[head] = weights @ labels
        return written

    def truth(self) -> Truth:
        """What is planted in a model that follows the plan.

        Which roles its heads have by their attention is left open.
        """
        parts = self.needed
        carried = {}
        for kind, letter in (("labels", "v"), ("query", "q")):
            through = self.edges(parts, letter)
            if through:
                carried[kind] = through
        roles = frozenset(product(self.heads - self.cancel, ROLES))
        # Where the answer stands: after the last layer, and in part or by a shortcut before.
        last = self.cfg.n_layers - 1
        readable = after(last)
        undecided = after(*range(last))
        if self.shortcut is not None:
            readable |= undecided
            undecided = NOWHERE
        return Truth(
            parts=parts,
            edges=self.edges(parts),
            carried=carried,
            hat=self.hat if self.bend is None else None,
            formula=self.answer,
            open_roles=roles,
            readable=readable,
            used=after(last),
            undecided=undecided,
            copies=frozenset(self.copies),
        )

    @property
    def decoys(self) -> frozenset[str]:
        """Heads that are there to mislead."""
        found = self.cancel | set(self.copies)
        if self.shortcut is not None:
            found |= {self.shortcut}
        return found


def _sum(terms: Mapping[str, Tensor]) -> Tensor:
    """The sum of terms at the query."""
    last = [term[:, -1] for term in terms.values()]
    return torch.stack(last).sum(0)


def named(edge: Edge) -> str:
    """An edge in one word.

    >>> named(("head 0.0", "head 1.0 v"))
    'head 0.0 > head 1.0 v'
    """
    return " > ".join(edge)


# ---- the plans -----------------------------------------------------------------------------------


def _products(queries: Tensor, inputs: Tensor) -> Float[Tensor, "batch token example"]:
    """<x, x_j> over the number of examples."""
    return queries @ inputs.mT / inputs.shape[1]


def _tilted(queries: Tensor, inputs: Tensor) -> Float[Tensor, "batch token example"]:
    """exp(3 x x_j), over their sum."""
    scores = TILT * queries @ inputs.mT
    return scores.softmax(-1)


def _saturated(mean: Tensor) -> Tensor:
    return torch.tanh(2 * mean)


def _config(n_layers: int, n_heads: int, **change: object) -> Config:
    """Small, without norm and positions; the query is no key."""
    usual = {"d_in": 2, "score_fn": "softmax"}
    return Config(
        n_layers=n_layers,
        d_model=16,
        n_heads=n_heads,
        d_head=8,
        d_mlp=16,
        n_ctx=N_POINTS,
        normalization_type=None,
        positional_embedding_type="none",
        attention_dir="bidirectional",
        keys="labelled",
        init_std=0.2,
        **(usual | change),  # pyright: ignore[reportArgumentType]
    )


TILT = 3.0
N_POINTS = 10  # of a prompt
LAW = Uniform(-1, 1)
LINES = Polynomial(degrees=(1,), inputs=LAW, coefficients=LAW, n_points=N_POINTS)
REGRESSION = LinearRegression(
    n_dims=2, inputs=Uniform(-1.5, 1.5), weights=Uniform(-1.5, 1.5), n_points=N_POINTS
)
LINEAR = {"d_in": 3, "score_fn": "linear", "score_norm": "visible"}

PLANS: dict[str, Plan] = {
    "trained step": Plan(
        "head 0.0 takes a step of descent, head 0.1 and the MLP are idle",
        _config(1, 2, **LINEAR),
        REGRESSION,
        (Term("head 0.0", 0.8, _products),),
    ),
    "trained steps": Plan(
        "two steps of descent: a head of layer 1 reads residuals of one in layer 0",
        _config(2, 2, **LINEAR),
        REGRESSION,
        (Term("head 0.1", 0.8, _products), Term("head 1.0", 0.8, _products, "head 0.1")),
    ),
    "trained sum": Plan(
        "a head of layer 0 writes half the mean label, one of layer 1 adds half of a smoother",
        _config(2, 2),
        LINES,
        (Term("head 0.0", 0.5), Term("head 1.1", 0.5, _tilted)),
    ),
    "trained bend": Plan(
        "a head averages the labels, and the MLP makes tanh of twice the mean",
        _config(1, 2),
        LINES,
        (Term("head 0.1"),),
        bend=_saturated,
    ),
    "trained copy": Plan(
        "one head of four smooths labels, and the others attend as it does without effect",
        _config(1, 4),
        LINES,
        (Term("head 0.2", kernel=_tilted),),
        decoy="idle copy",
        copies={"head 0.0": "head 0.2", "head 0.1": "head 0.2", "head 0.3": "head 0.2"},
    ),
    "trained early": Plan(
        "a head of layer 1 smooths labels; one of layer 0 writes the same where nobody reads it",
        _config(2, 2),
        LINES,
        (Term("head 1.0", kernel=_tilted),),
        decoy="early shortcut",
        shortcut="head 0.1",
    ),
    "trained pair": Plan(
        "a head smooths labels; two others write the mean label with opposite signs",
        _config(1, 4),
        LINES,
        (Term("head 0.0", kernel=_tilted), Term("head 0.1", 0.5), Term("head 0.3", -0.5)),
        decoy="cancelling pair",
        cancel=frozenset({"head 0.1", "head 0.3"}),
    ),
}
