"""An entry: the verdict on one claim about one checkpoint, with what it takes to judge it again."""

import base64
import functools
import hashlib
import json
import lzma
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from icl_interp import results
from icl_interp.analyses.claim import OPPOSITE, Claim
from icl_interp.analyses.criterion import Estimate, Verdict
from icl_interp.analyses.finding import Quote
from icl_interp.errors import InputError
from icl_interp.provenance import canonical, encode, finite, parse_json
from icl_interp.resampling import EXTREMES
from icl_interp.results import Result
from icl_interp.structured import Stored, of_schema

SCHEMA = "icl_interp.registry/1"
Status = Literal["current", "superseded", "disputed", "invalidated"]
# Characters of packed results that an entry may hold. Where a claim needs more, its numbers decide.
LARGEST_PACKED = 10_000
LARGEST_UNPACKED = 10**8  # bytes
# What may change in an entry after it was written, and so is no part of its name.
_AFTER = ("status", "why", "added", "fixed")


@dataclass(frozen=True)
class Entry:
    """The verdict on one claim about one checkpoint.

    Attributes:
        claim: its id.
        version: of the claim, as `version_of` gives it.
        sha256: of the checkpoint's weights; of a planted model, of weights, family and draw.
        name: of a bundled model or a planted one; "" for anybody else's.
        recipe: what seeds of one kind of training share; "" where nothing tells.
        expected: the verdict that a model of known truth must get; "" for other models.
        verdict: as judged when the entry was made.
        reason: of the verdict, in words.
        quote: the sentence under test.
        criterion: the rule, in words.
        fixed: the day on which this version of the claim first entered the registry.
        estimate: the effect size.
        decided_by: the number that decided, by its key.
        numbers: all that the criterion asks for, by key.
        controls: the same of each untrained control.
        p: chance of such a verdict by the draw of prompts, where the truth is another, at most
            (`discoveries.chance_of`); None where no number has a sampling error, or none decided.
        n_prompts: of the sample. seed: of the sample.
        analyzed: when. added: when the entry was made.
        code: versions of the packages, and a hash of the code that judged.
        measurements: versions of the measurements that were needed, by the names of their results.
        stored: facts about the model, and the results that the claim needs where they are small,
            packed (`pack`).
        status: "current", or why it does not count: "superseded" by a later entry, "disputed" by
            one of the opposite verdict, or "invalidated" by a person.
        why: the reason of a status other than "current".
    """

    claim: str
    version: str
    sha256: str
    name: str
    recipe: str
    expected: str
    verdict: Verdict
    reason: str
    quote: Quote | None
    criterion: str
    fixed: str
    estimate: Estimate | None
    decided_by: str
    numbers: dict[str, Estimate]
    controls: tuple[dict[str, Estimate], ...]
    p: float | None
    n_prompts: int
    seed: int
    analyzed: str
    added: str
    code: dict[str, str]
    measurements: dict[str, int]
    stored: str
    status: Status = "current"
    why: str = ""
    # Where it was read; no part of the entry itself.
    file: str = field(default="", compare=False)

    @property
    def cell(self) -> tuple[str, str]:
        """The claim and the checkpoint."""
        return self.claim, self.sha256

    @property
    def checkpoint(self) -> str:
        """The name of the checkpoint, or the beginning of its hash."""
        return self.name or self.sha256[:12]

    @property
    def place(self) -> str:
        """Its cell in words."""
        return f"{self.claim} of {self.checkpoint}"

    @property
    def decided(self) -> bool:
        """Whether the verdict is not an open one."""
        return self.verdict in OPPOSITE

    @property
    def planted(self) -> bool:
        """Whether its model is one of known truth."""
        return bool(self.expected)

    @property
    def path(self) -> str:
        """Its file in a registry. Another verdict or sample has another place."""
        content = {key: value for key, value in self.to_dict().items() if key not in _AFTER}
        digest = hashlib.sha256(canonical(content).encode()).hexdigest()
        return f"{self.sha256[:16]}/{self.claim}.{self.version}.{digest[:8]}.json"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        plain = asdict(self)
        del plain["file"]
        return finite({"schema": SCHEMA, **plain})

    def text(self) -> str:
        """The data as a file holds them: a line for each part, so that a change is seen."""
        lines = []
        for key, value in self.to_dict().items():
            shown = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            lines.append(f"{json.dumps(key)}: {shown}")
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_dict(cls, data: Any, where: str) -> "Entry":
        """The entry that `to_dict` gave, also after a trip through JSON.

        Args:
            data: what `to_dict` gave.
            where: names the file in messages.

        Raises:
            InputError: the data are no entry; the message names the file and the place in it.
        """
        stored = of_schema(data, SCHEMA, where)
        plain = {key: value for key, value in stored.mapping().items() if key != "schema"}
        entry: Entry = Stored({**plain, "file": where}, stored.where).of(cls)
        estimates = [*entry.numbers.values(), *([entry.estimate] if entry.estimate else [])]
        for its in entry.controls:
            estimates += its.values()
        if any(len(one.extremes) not in (0, len(EXTREMES)) for one in estimates):
            raise InputError(f"{where}: extremes must be a list of {len(EXTREMES)}: was it edited?")
        return entry

    def unpacked(self) -> tuple[dict[str, Any], dict[str, Result] | None]:
        """The facts about the model, and the results that the claim needs; None where left out.

        Raises:
            InputError: they cannot be read.
        """
        where = self.file or self.path
        data = Stored(unpack(self.stored, where), f"{where}: ")
        packed = data.get("results")
        if packed is None:
            return data["model"].facts(), None
        found = {}
        for name, one in packed.members().items():
            found[name] = results.from_dict(one.mapping(), one.where)
        return data["model"].facts(), found


def version_of(claim: Claim) -> str:
    """Twelve hexadecimal digits that name what decides a claim.

    These are the regions of its conditions and preconditions, its kind, how controls count, and the
    names and versions of its measurements. Words do not count, and neither does the code that makes
    numbers of results: what that changes is found by judging again.
    """
    conditions = []
    for c in claim.criterion.conditions:
        conditions.append([c.quantity, c.supports, c.contradicts, c.unit, c.optional])
    preconditions = []
    for p in claim.criterion.preconditions:
        preconditions.append([p.quantity, p.holds, p.optional])
    measured = {name: m.version for name, m in claim.needs.items()}
    decides = {
        "id": claim.id,
        "kind": claim.kind,
        "conditions": conditions,
        "preconditions": preconditions,
        "controls agree": claim.controls_agree,
        "of control": claim.of_control,
        "reads": claim.reads,
        "measurements": measured,
    }
    return hashlib.sha256(canonical(finite(encode(decides))).encode()).hexdigest()[:12]


def pack(model: Mapping[str, Any], needed: Mapping[str, Result]) -> str:
    """Facts about a model, and results where they are small, as text.

    It is JSON, compressed by xz and written in base 85. Numbers are not rounded.
    """
    facts = {"model": finite(encode(dict(model)))}
    measured = {}
    for name, result in needed.items():
        measured[name] = results.to_dict(result)
    packed = _packed({**facts, "results": measured})
    return packed if len(packed) <= LARGEST_PACKED else _packed(facts)


def _packed(data: Any) -> str:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b85encode(lzma.compress(text.encode("utf-8", "backslashreplace"))).decode()


@functools.lru_cache(maxsize=8)  # claims of one model share what they were packed with
def unpack(text: str, where: str) -> Any:
    """The inverse of `pack`, as plain data.

    Raises:
        InputError: the text is damaged, or holds too much.
    """
    reader = lzma.LZMADecompressor()
    try:
        data = reader.decompress(base64.b85decode(text), LARGEST_UNPACKED)
    except (ValueError, lzma.LZMAError) as error:
        raise InputError(f"{where}: stored is damaged ({error}): add its report again") from error
    if not reader.eof:
        raise InputError(f"{where}: stored is cut off or too large: add its report again")
    return parse_json(data, where)
