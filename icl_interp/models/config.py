"""The shape of a model: TransformerLens' words, plus what numeric prompts need."""

import copy
import math
from dataclasses import dataclass, field, fields
from typing import Literal, Self, get_args

from icl_interp.errors import InputError, unknown
from icl_interp.models.positions import IN_SCORES, PositionName

ActivationName = Literal["gelu", "gelu_new", "relu"]
ScoreName = Literal[
    "softmax", "scaled_softmax", "sigmoid", "relu", "entmax", "hardmax", "linear", "constant"
]
UnitName = Literal["M", "KQV", "diagonal"]
NormPlace = Literal["pre", "post", "both", "output"]
# Score functions whose weights over the keys a query sees add up to 1.
DISTRIBUTIONS = ("softmax", "scaled_softmax", "entmax", "hardmax")
# Of a field that came later: configs from before, which lack it, keep their names.
LATER = {"later": True}


@dataclass(frozen=True)
class HookedTransformerConfig:
    """Hyperparameters of a `HookedTransformer`.

    Attributes:
        n_layers: blocks.
        d_model: width of the residual stream.
        n_heads: attention heads of a block.
        d_head: width of a head; `d_model // n_heads` unless given.
        d_mlp: hidden width of the MLP; `4 * d_model` unless given.
        n_ctx: longest sequence, in tokens (`2 * n_points` when interleaved).
        d_in: numbers in a token.
        d_out: numbers predicted at a token.
        act_fn: "gelu" (erf), "gelu_new" (tanh) or "relu".
        normalization_type: "LN", "LNPre" (no affine part), "RMS" (gain only), "Tanh" (no
            statistics: tanh(alpha x) with a learned alpha a norm, gain and bias) or None.
        norm_position: "pre" (x += f(norm(x)), a final norm), "post" (x = norm(x + f(x)), no final
            norm), "both" (x = ln2(x + f(ln1(x))), no final norm, of blocks of attention alone) or
            "output" (x += norm(f(x)), no final norm).
        final_norm: whether a norm stands before the read-out. None: where `norm_position` says so.
        residual_scale: what f writes is multiplied by this factor before it is added. Nothing
            trains it.
        no_bias: which linear maps have none: their biases are 0 and never trained. "qkv": queries,
            keys and values; "attention": what heads write, too; "linear": every linear map, also
            read-in, MLP and read-out. None: all have one. Norms keep theirs.
        attn_only: no MLP. mlp_only: no attention.
        read_in: "learned" (token W_E + b_E) or "token": the stream starts as the token itself, so
            that W_E is the identity, b_E is 0, and neither is trained.
        positional_embedding_type: "standard" (a learned vector for each position, added to its
            token), "none", or one that acts on scores: "rotary" (queries and keys are turned by
            their positions), "alibi" (a fixed factor of each head times the distance is taken off)
            or "relative" (a learned number for each distance is added, `W_R` of each layer,
            (head, distance)); see `models.positions`.
        use_attn_scale: divide scores by sqrt(d_head).
        attention_dir: "causal" or "bidirectional".
        score_fn: what turns scores into a pattern: "softmax", "scaled_softmax" (of scores times log
            n, with n visible keys), "entmax" (of order 1.5: exact zeros), "sigmoid" (of scores
            minus log n), "relu" (divided by n), "hardmax" (one-hot at the arg max), "linear", or
            "constant" (1 for each visible key, whatever its score); see `models.scores`.
        score_norm: what linear scores are divided by: "visible" keys, "labelled" examples (the
            visible keys but the query's own column; for stacked prompts), or None.
        keys: None: every token that a query sees is a key. "labelled": all but the last token,
            which is the query, so that labelled examples alone are keys; for stacked prompts.
        queries: None: the query of a token is made of the token itself. "previous": of the token
            before it, so that the first has a query of zeros. An attention layer can then compare a
            state with its successor (Sander et al. (2024), equation (6), read the output of the
            second to last token, which may see the last one: the same).
        position_weights: None: the pattern is what the score function makes of the scores. "free":
            each weight is multiplied by an entry of a learned matrix, `W_P` of each layer, (query
            position, key position), which all its heads share. "softmax": by the softmax over the
            visible keys of that entry. "similarity": by the softmax over the visible keys of how
            alike two positions are, `W_Q_pos W_K_pos^T` with learned matrices (n_ctx, n_ctx), a
            row for each position (Sander et al. (2024), section 6, non-augmented setting).
        unit: None: every weight is learned. "M" and "KQV": one head of attention on the tokens
            themselves, of which only M, or only W_K, W_Q and W_V, are learned; see
            `models.softmax_unit`. "diagonal": linear attention of complex heads with diagonal A_h
            and B_h and free weights of positions, which alone are learned (Sander et al. (2024),
            equation (6) and Assumption 3); two real heads for each, see `models.complex_heads`.
        embed_bound: tokens are read in as v b / sqrt(b^2 + |v|^2) with v = token W_E + b_E and this
            b, so that no vector is longer than b; None reads v itself.
        eps: added to the variance under the norm's root.
        init_std: standard deviation of fresh weight matrices; biases start at 0.
    """

    n_layers: int
    d_model: int
    n_heads: int = 1
    d_head: int | None = None
    d_mlp: int | None = None
    n_ctx: int = 40
    d_in: int = 1
    d_out: int = 1
    act_fn: ActivationName = "gelu"
    normalization_type: Literal["LN", "LNPre", "RMS", "Tanh"] | None = "LN"
    norm_position: NormPlace = "pre"
    final_norm: bool | None = field(default=None, metadata=LATER)
    residual_scale: float = field(default=1.0, metadata=LATER)
    no_bias: Literal["qkv", "attention", "linear"] | None = field(default=None, metadata=LATER)
    attn_only: bool = False
    mlp_only: bool = False
    read_in: Literal["learned", "token"] = field(default="learned", metadata=LATER)
    positional_embedding_type: PositionName = "standard"
    use_attn_scale: bool = True
    attention_dir: Literal["causal", "bidirectional"] = "causal"
    score_fn: ScoreName = "softmax"
    score_norm: Literal["visible", "labelled"] | None = None
    keys: Literal["labelled"] | None = None
    queries: Literal["previous"] | None = None
    position_weights: Literal["free", "softmax", "similarity"] | None = None
    unit: UnitName | None = None
    embed_bound: float | None = None
    eps: float = 1e-5
    init_std: float = 0.02

    def __post_init__(self) -> None:
        self._fill_in_widths()
        for one in fields(self):
            self._check_field(one.name, one.type)
        self._check_combinations()

    def _fill_in_widths(self) -> None:
        """Make the widths that are not given, and refuse numbers that are none."""
        for name in ("n_layers", "d_model", "n_heads", "n_ctx", "d_in", "d_out"):
            self._check_whole_number(name)
        if self.d_head is None:
            if self.d_model % self.n_heads:
                raise InputError(
                    f"d_model={self.d_model} is not a multiple of n_heads={self.n_heads}: choose "
                    "another number, or give d_head as well"
                )
            object.__setattr__(self, "d_head", self.d_model // self.n_heads)
        if self.d_mlp is None:
            object.__setattr__(self, "d_mlp", 4 * self.d_model)
        for name in ("d_head", "d_mlp"):
            self._check_whole_number(name)

    def _check_field(self, name: str, annotation: object) -> None:
        """Refuse what is no value of the field's own type."""
        value, choices = getattr(self, name), _choices(annotation)
        if choices and value not in choices:
            raise unknown(name, value, map(str, choices))
        if annotation is bool and not isinstance(value, bool):
            raise InputError(f"{name} must be true or false, but got {value!r}")
        # YAML reads 1e-5 as text.
        if annotation is float and not (isinstance(value, (int, float)) and 0 <= value < math.inf):
            raise InputError(
                f"{name} must be a number from 0 up (1.0e-5 in YAML), but got {value!r}"
            )

    def _check_combinations(self) -> None:
        """Refuse settings that exclude each other, and a bound that is no length."""
        # Settings of attention, where there is attention, and no two that contradict each other.
        if self.attn_only and self.mlp_only:
            raise InputError(
                "attn_only and mlp_only exclude each other: a block would have nothing left"
            )
        if self.mlp_only and self.score_fn not in ("softmax", "hardmax", "linear"):
            raise InputError(
                f"score_fn={self.score_fn!r} needs attention, but mlp_only leaves none"
            )
        if self.score_norm and self.score_fn != "linear":
            why = "weights add up to 1" if self.weights_add_up else "brings its own"
            raise InputError(
                f"score_norm={self.score_norm!r} is for score_fn='linear'; {self.score_fn} {why}"
            )
        if self.keys and self.mlp_only:
            raise InputError(f"keys={self.keys!r} needs attention, but mlp_only leaves none")
        if self.keys and self.score_norm == "labelled":
            raise InputError(
                "with keys='labelled' the visible keys are the labelled examples: use "
                "score_norm='visible', which divides by their number"
            )
        if self.mlp_only and (self.queries or self.position_weights):
            name = "queries" if self.queries else "position_weights"
            raise InputError(
                f"{name}={getattr(self, name)!r} needs attention, but mlp_only leaves none"
            )
        if self.keys and (self.queries or self.position_weights):
            name = "queries" if self.queries else "position_weights"
            raise InputError(
                f"{name}={getattr(self, name)!r} and keys={self.keys!r} exclude each other: choose "
                "one"
            )
        self._check_bound()
        self._check_unit()
        self._check_norms()
        self._check_positions()
        if self.read_in == "token" and self.d_model != self.d_in:
            raise InputError(
                "read_in='token' makes the stream of the token itself: it needs "
                f"d_model={self.d_in} (d_in), but got d_model={self.d_model}"
            )

    def _check_norms(self) -> None:
        """Refuse places of norms, and factors on what is added, that make no model."""
        place = self.norm_position
        if self.final_norm not in (None, True, False):
            raise InputError(f"final_norm must be true, false or null, but got {self.final_norm!r}")
        if self.normalization_type is None and (place != "pre" or self.final_norm):
            word = "final_norm=True" if self.final_norm else f"norm_position={place!r}"
            raise InputError(f"{word} needs a normalization_type; without a norm use 'pre'")
        if place == "both" and not self.attn_only:
            raise InputError(
                "norm_position='both' is for blocks of attention alone, whose ln1 stands before "
                "and whose ln2 after it: set attn_only=True, or choose another norm_position"
            )
        if self.residual_scale == 0:
            raise InputError("residual_scale=0 would add nothing to the stream: give a factor")
        if self.residual_scale != 1 and place == "output":
            raise InputError(
                f"residual_scale={self.residual_scale:g} has no meaning with norm_position="
                "'output': the norm takes the size off what it is multiplied by, and its own gain "
                "is such a factor"
            )

    def _check_positions(self) -> None:
        kind = self.positional_embedding_type
        if not self.positions_in_scores:
            return
        if self.mlp_only:
            raise InputError(
                f"positional_embedding_type={kind!r} acts on attention scores, but mlp_only leaves "
                "none"
            )
        if self.score_fn == "constant":
            raise InputError(
                f"positional_embedding_type={kind!r} acts on scores, which score_fn='constant' "
                "does not read"
            )
        if kind == "rotary" and self.head_width % 2:
            raise InputError(
                "positional_embedding_type='rotary' turns pairs of coordinates: d_head must be "
                f"even, but got {self.head_width}"
            )

    def _check_unit(self) -> None:
        if self.unit is None:
            return
        if self.unit == "diagonal":
            self._check_diagonal()
            return
        wanted = {
            "n_layers": 1,
            "n_heads": 1,
            "d_model": self.d_in,
            "d_head": self.d_in,
            "d_out": 1,
            "normalization_type": None,
            "attn_only": True,
            "positional_embedding_type": "none",
            "use_attn_scale": False,
            "keys": "labelled",
            "queries": None,
            "position_weights": None,
            "embed_bound": None,
            "residual_scale": 1.0,
        }
        wrong = [name for name, value in wanted.items() if getattr(self, name) != value]
        if wrong or self.d_in < 2:
            needed = ", ".join(f"{name}={wanted[name]!r}" for name in wrong) or "d_in of 2 at least"
            got = ", ".join(f"{name}={getattr(self, name)!r}" for name in wrong or ("d_in",))
            raise InputError(
                f"unit={self.unit!r} is one head of attention on tokens (x; y) as they are, "
                f"without anything else: it needs {needed}, but got {got}"
            )

    def _check_diagonal(self) -> None:
        wanted = {
            "n_layers": 1,
            "d_model": 2 * self.d_in,
            "d_head": self.d_in,
            "d_out": self.d_in,
            "normalization_type": None,
            "attn_only": True,
            "read_in": "learned",
            "positional_embedding_type": "none",
            "use_attn_scale": False,
            "attention_dir": "causal",
            "score_fn": "linear",
            "score_norm": None,
            "queries": "previous",
            "position_weights": "free",
            "embed_bound": None,
            "residual_scale": 1.0,
        }
        wrong = [name for name, value in wanted.items() if getattr(self, name) != value]
        if wrong:
            needed = ", ".join(f"{name}={wanted[name]!r}" for name in wrong)
            got = ", ".join(f"{name}={getattr(self, name)!r}" for name in wrong)
            raise InputError(
                f"unit='diagonal' is equation (6) with complex diagonals: it needs {needed}, but "
                f"got {got}"
            )
        if self.d_in % 2 or self.n_heads % 2:
            raise InputError(
                "unit='diagonal' has complex coordinates and heads, a pair of real ones each: "
                f"d_in and n_heads must be even, but got {self.d_in} and {self.n_heads}"
            )

    def _check_bound(self) -> None:
        bound = self.embed_bound
        if bound is not None and (
            not isinstance(bound, (int, float))
            or isinstance(bound, bool)
            or not 0 < bound < math.inf
        ):
            raise InputError(
                f"embed_bound must be a positive number, or null for none, but got {bound!r}: give "
                "the longest vector that a token may be read in as"
            )

    def _check_whole_number(self, name: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be a whole number from 1 up, but got {value!r}")

    @property
    def head_width(self) -> int:
        """`d_head` as a number; where it is not given, it follows from `d_model`."""
        assert self.d_head is not None
        return self.d_head

    @property
    def mlp_width(self) -> int:
        """`d_mlp`, which is a number in every config: where it is not given, `d_model` gives it."""
        assert self.d_mlp is not None
        return self.d_mlp

    @property
    def weights_add_up(self) -> bool:
        """Whether a query's attention weights are a distribution over the keys it sees."""
        return self.score_fn in DISTRIBUTIONS and self.position_weights is None

    @property
    def positions_in_scores(self) -> bool:
        """Whether positions act on attention scores rather than as vectors on tokens."""
        return self.positional_embedding_type in IN_SCORES

    @property
    def query_is_unseen(self) -> bool:
        """Whether no other token sees the query, which is the last token.

        Then what a model computes from a context is the same for every query.
        """
        return self.attention_dir == "causal" or self.keys == "labelled"

    @property
    def stream_is_a_sum(self) -> bool:
        """Whether the residual stream is the sum of what its parts write: no norm acts on it."""
        return self.norm_position not in ("post", "both")

    @property
    def sublayers_read_normed(self) -> bool:
        """Whether attention and MLP read what a norm makes of the stream."""
        return self.normalization_type is not None and self.norm_position in ("pre", "both")

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm of its own (`ln_final`) stands before the read-out."""
        if self.normalization_type is None:
            return False
        return self.norm_position == "pre" if self.final_norm is None else self.final_norm

    @property
    def output_is_normed(self) -> bool:
        """Whether the read-out reads a norm: a final one, or the last of those in the stream."""
        return self.has_final_norm or not self.stream_is_a_sum

    @property
    def heads_write_to_stream(self) -> bool:
        """Whether what each head writes is added to the stream as it is.

        A norm on the sum of heads (`norm_position="output"`) makes of them what none wrote alone.
        """
        return self.norm_position != "output"

    @property
    def no_scale(self) -> str | None:
        """Why this model divides by no scale; None where it does."""
        if self.normalization_type == "Tanh":
            return "this model's Tanh norms squash each coordinate by itself and divide by no scale"
        return None if self.normalization_type else "this model has no normalisation"

    @property
    def device(self) -> str:
        """Where the model's weights are, and TransformerLens' helpers put what they make.

        `model.cfg` keeps it true.
        """
        return self.__dict__.get("_device", "cpu")

    def on(self, device: str) -> Self:
        """The same config on another device; both are equal, as a device is no hyperparameter."""
        placed = copy.copy(self)
        object.__setattr__(placed, "_device", device)
        return placed

    @property
    def n_key_value_heads(self) -> None:
        """TransformerLens' word for grouped-query attention, which these models do not have."""
        return None

    @property
    def n_params(self) -> int:
        """Weights and biases of everything but the norms, embeddings and read-out."""
        attention = 0 if self.mlp_only else 4 * self.d_model * self.head_width * self.n_heads
        mlp = 0 if self.attn_only else 2 * self.d_model * self.mlp_width
        return self.n_layers * (attention + mlp)


def _choices(annotation: object) -> tuple[object, ...]:
    """The values a Literal (or Literal | None) admits; nothing for other types."""
    members = get_args(annotation)
    if not members:
        return ()
    if all(isinstance(m, str) for m in members):
        return members
    literals = [choice for m in members for choice in get_args(m)]
    return (*literals, None) if literals else ()
