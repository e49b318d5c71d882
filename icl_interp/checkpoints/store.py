"""Checkpoints: a trained model and all that its analysis needs, loaded and saved.

They are loaded from files of several formats and saved as a run folder.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl_interp.checkpoints import assumptions, bundled
from icl_interp.checkpoints.assumptions import Assumption
from icl_interp.checkpoints.config import SCHEMA, RunConfig, check_round_trip
from icl_interp.checkpoints.formats import modules, ours, registry
from icl_interp.checkpoints.formats.base import Given, Parts
from icl_interp.checkpoints.formats.ours import CONFIG, MODEL, PROVENANCE, read_provenance
from icl_interp.descriptions import as_table, model_words, number, task_words
from icl_interp.errors import InputError, logger, shown
from icl_interp.models import tokens, weights
from icl_interp.models.hooked import HookedModel
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer, chunks
from icl_interp.models.weights import Wanted
from icl_interp.products import fast
from icl_interp.prompts import Prompts
from icl_interp.provenance import encode, environment, run_id, write_atomically, write_json
from icl_interp.tasks.base import Task
from icl_interp.theory import limits

__all__ = ["Checkpoint", "load", "predict", "read_provenance", "read_snapshots", "write_snapshots"]

SNAPSHOTS = "snapshots.safetensors"
_ERRORS = {"error": "mean squared error", "zero": "of predicting 0", "r2": "R²"}
log = logger(__name__)


@dataclass
class Checkpoint:
    """A model, the task it was trained on, how it reads prompts, and where it came from."""

    model: HookedTransformer
    task: Task
    encoding: Encoding
    config: RunConfig
    step: int = 0
    provenance: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """A short name for titles: the bundled name or folder name, else the run id."""
        return self.provenance.get("name") or run_id(self.config)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What the file did not tell and its reader filled in, each with how to set it."""
        return assumptions.recorded(self.provenance)

    def __repr__(self) -> str:
        kind = model_words(encode(self.config.model))
        return f"Checkpoint({shown(self.name)}, step {self.step}, {kind})"

    def _repr_html_(self) -> str:
        found = self.provenance.get("in_distribution") or {}
        told = []
        for key, name in _ERRORS.items():
            if key in found:
                told.append(f"{name} {number(found[key])}")
        rows = {
            "model": model_words(encode(self.config.model)),
            "task": task_words(encode(self.task)),
            "encoding": tokens.name_of(self.encoding),
            "step": self.step,
            "in distribution": ", ".join(told),
            "assumed": "; ".join(map(str, self.assumptions)),
        }
        return as_table(self.name, rows)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The prediction of each point from the points before it; NaN where there is none."""
        return predict(self.model, self.encoding, prompts)

    def snapshots(self) -> dict[int, HookedTransformer]:
        """The models at the steps that the run kept, in float32; empty if none were kept."""
        models = {}
        if self.folder:
            for step, tensors in read_snapshots(self.folder, self.config).items():
                models[step] = HookedTransformer(self.config.model).eval()
                weights.load_tensors(models[step], tensors, self.folder / SNAPSHOTS)
        return models

    def save(self, folder: str | Path) -> Path:
        """Write `config.json`, `model.safetensors` and `provenance.json`.

        Each file is replaced whole or not at all.

        Snapshots come along where the run kept any.
        """
        check_round_trip(self.config)
        folder = Path(folder)
        kept = read_snapshots(self.folder, self.config) if self.folder else {}
        if kept:
            write_snapshots(folder, kept)
        weights.write(folder / MODEL, self.model.state_dict())
        # The id is that of the config that is written beside it.
        own = {"run_id": run_id(self.config), "step": self.step}
        write_json(folder / PROVENANCE, {"environment": environment(), **self.provenance, **own})
        # Last: a folder with a config is a checkpoint.
        write_json(folder / CONFIG, {"schema": SCHEMA, **encode(self.config)})
        return folder

    def save_pretrained(self, folder: str | Path, card: str | None = None) -> Path:
        """Like `save`, with a model card beside the weights where one is given.

        `report.to_markdown()` writes such a card.

        Args:
            folder: where the files go.
            card: Markdown for the folder's `README.md`; one that is there already stays where none
                is given.
        """
        folder = self.save(folder)
        if card is not None:
            write_atomically(folder / "README.md", card)
        return folder

    @classmethod
    def from_pretrained(cls, source: str | Path) -> Self:
        """Load a folder that `save` or `save_pretrained` wrote, or any other source of `load`."""
        found = load(source)
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})


def write_snapshots(folder: Path, kept: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Write weights of several steps as one file: each tensor with the steps as its first axis."""
    steps = sorted(kept)
    stacked = {"step": torch.tensor(steps)}
    for name in kept[steps[0]]:
        stacked[name] = torch.stack([kept[step][name] for step in steps])
    weights.write(folder / SNAPSHOTS, stacked)


def read_snapshots(folder: Path, config: RunConfig) -> dict[int, dict[str, Tensor]]:
    """Weights by step, as `write_snapshots` left them; empty where there is no such file.

    Raises:
        InputError: a tensor is missing, unexpected, of another shape or type, or holds NaN or
            infinite numbers, or the steps do not increase from 0 to the run's last.
    """
    path = folder / SNAPSHOTS
    if not path.exists():
        return {}
    # Each tensor of the model, with an axis of steps in front.
    found = weights.header(path)
    n_steps = found["step"].shape[:1] if "step" in found else ()
    asked_for = weights.asked_for(HookedTransformer, config.model)
    of_steps = Wanted("step", n_steps or (1,), ("int64",))
    of_model = (Wanted(name, (*n_steps, *shape)) for name, shape in asked_for)
    weights.check_kinds(found, itertools.chain([of_steps], of_model), path)
    stacked = weights.read(path)

    # Steps of this run, in order.
    steps = stacked.pop("step").tolist()
    if config.training:
        last = config.training.steps
    else:  # made by other means, whose number of steps stands in the provenance alone
        last = int(read_provenance(folder, config).get("step", 0))
    increase = all(before < step for before, step in itertools.pairwise(steps))
    if not steps or not increase or not 0 <= steps[0] <= steps[-1] <= last:
        raise InputError(
            f"{path}: steps must increase from 0 to at most {last}, but are {shown(steps)}"
        )
    weights.check_finite(stacked, path)
    by_step = {}
    for i, step in enumerate(steps):
        by_step[step] = {name: tensor[i] for name, tensor in stacked.items()}
    return by_step


def predict(
    model: HookedModel, encoding: Encoding, prompts: Prompts
) -> Float[Tensor, "batch point target"]:
    """A model's prediction of every point from the points before it; NaN where it makes none.

    Raises:
        InputError: what should be prompts is something else, such as tokens.
    """
    if not isinstance(prompts, Prompts):
        raise InputError(
            "predict takes Prompts, as task.sample draws them, but got a "
            f"{type(prompts).__name__} (tokens go to checkpoint.model)"
        )
    read, points = encoding.read_at(prompts.n_points, model.cfg.attention_dir)
    weight = model.numbers
    tokens_in = encoding.encode(prompts).to(weight)
    parts = []
    with torch.no_grad(), fast(), model.fixed_weights():
        # Without prompts the model gives no rows, of the right shape.
        for rows in chunks(model, len(prompts), tokens_in.shape[1]) or [slice(0)]:
            parts.append(model(tokens_in[rows], read))
    out = torch.cat(parts)
    if len(points) == prompts.n_points:
        return out
    whole = torch.full_like(prompts.ys, torch.nan).to(weight)
    whole[:, points.start : points.stop] = out
    return whole


def load(
    source: Any,
    task: Task | None = None,
    *,
    encoding: Encoding | str | None = None,
    n_heads: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Load a checkpoint.

    The source is a run folder (or a file in it), a bundled model's name, files of another program,
    or a model.

    Formats are told by what is in a file (`icl_interp.checkpoints.formats`). The folders of Garg et
    al. (2022) bring their task; most other files of weights do not.

    Args:
        source: a path, the name of a bundled model, a `Checkpoint`, or a model in memory that one
            of the formats knows.
        task: what the model is asked about. It replaces the source's own.
        encoding: a name of `icl_interp.encodings`, such as "stacked". It replaces the source's own.
            What neither tells, the task's default and the model's width tell.
        n_heads: attention heads of a block, where weights do not tell.
        settings: further settings of the model that its weights do not tell, in the words of
            `HookedTransformerConfig`, for example {"act_fn": "relu"}.

    Raises:
        InputError: no such path or name, nothing that is known here, weights that do not fit or
            hold NaN, something that neither the source nor the caller tells, or a setting that
            contradicts the source.
    """
    given = Given.of(task, encoding, n_heads, settings)
    if isinstance(source, Checkpoint):
        given.check(vars(source.model.cfg), "the checkpoint")
        return _replaced(source, given)
    if isinstance(source, (str, Path)):
        source = _located(source)
    source = modules.unwrapped(source)
    format = registry.find(source)
    parts = format.read(source, given)
    about = {} if format is ours.FORMAT else {"format": format.name}
    name = _name(source)
    filled_in = assumptions.as_data(parts.assumptions, parts.notes)
    # What is said once more on screen and in reports, whoever asked for the file.
    for line in assumptions.lines(filled_in):
        log.warning("%s: %s", name, line)
    own = assumptions.without_task(parts.provenance) if given.task else parts.provenance
    try:
        origin = {**about, **own, **filled_in, **_erased(parts.model, name), "name": name}
        return _whole(parts, given, origin)
    except InputError as error:  # a task that does not fit the model: say which model
        where = f"{source}: " if isinstance(source, Path) else ""
        raise InputError(f"{where}{error}") from error


def _replaced(found: Checkpoint, given: Given) -> Checkpoint:
    """The checkpoint with the task and encoding that were given; itself where they are its own."""
    task = given.task or found.task
    encoding = given.encoding or found.encoding
    if task == found.task and encoding == found.encoding:
        return found
    posed = given.task or found.config.task
    config = RunConfig(found.model.cfg, posed, tokens.name_of(encoding), found.config.training)
    same = task == found.task
    provenance = found.provenance if same else assumptions.without_task(found.provenance)
    return Checkpoint(found.model, task, encoding, config, found.step, provenance, found.folder)


def _whole(parts: Parts, given: Given, provenance: dict[str, Any]) -> Checkpoint:
    """A checkpoint of what was read and what was given."""
    task = given.task or parts.task
    if task is None:
        raise InputError(
            "a bare model brings no task: pass task=, for example "
            "icl_interp.tasks.Polynomial(degrees=(1,), inputs=icl_interp.tasks.Uniform(-1, 1), "
            "coefficients=icl_interp.tasks.Uniform(-1, 1), n_points=20)"
        )
    encoding = given.encoding or parts.encoding or tokens.infer_for(task, parts.model.cfg.d_in)
    config = RunConfig(parts.model.cfg, task, tokens.name_of(encoding), parts.training)
    # A run whose prompts never grew to full length is asked about the length that they reached.
    if given.task is None and provenance.get("finished"):
        task = config.reached
    return Checkpoint(parts.model, task, encoding, config, parts.step, provenance, parts.folder)


def _erased(model: HookedTransformer, name: str) -> dict[str, str]:
    """A note for a model that is a constant by its width: a number less its own mean is 0.

    The certificate beside it comes from the weights alone (`theory.limits.output_certificate`).
    """
    cfg = model.cfg
    beside = not cfg.output_is_normed  # the stream goes past its norms
    if cfg.d_model > 1 or beside or cfg.normalization_type not in ("LN", "LNPre"):
        return {}
    with torch.no_grad():
        values = model(torch.zeros(1, 1, cfg.d_in).to(model.unembed.W_U))[0, 0].tolist()
    output = _listed(values)
    note = (
        f"constant output: a LayerNorm of width 1 erases its input, so the output is {output} for "
        "every prompt"
    )
    if cfg.normalization_type == "LN" and cfg.has_final_norm:
        weight = model.state_dict()
        gamma = weight["ln_final.w"]
        beta = weight["ln_final.b"]
        centres = []
        radii = []
        for column, bias in zip(weight["unembed.W_U"].T, weight["unembed.b_U"], strict=True):
            centre, radius = limits.output_certificate(column, gamma, beta, bias)
            centres.append(float(centre))
            radii.append(float(radius))
        ends = f"c = {_listed(centres)}, r = {_listed(radii)}"
        note += f" (certificate: |output - c| <= r with {ends})"
    log.warning("%s: %s", name, note)
    return {"note": note}


def _listed(values: list[float]) -> str:
    """A number, or a vector."""
    text = ", ".join(f"{value:.6g}" for value in values)
    return text if len(values) == 1 else f"({text})"


def _name(source: Path | nn.Module) -> str:
    """A folder's name; a file's with that of its folder, because many runs call a file the same."""
    if isinstance(source, nn.Module):
        return "bare model"
    path = source.resolve()
    if path.is_dir() or path.name in (CONFIG, MODEL):
        return path.name if path.is_dir() else path.parent.name
    return f"{path.parent.name}/{path.name}"


def _located(source: str | Path) -> Path:
    """The path that is meant: one that exists, or that of a bundled model."""
    path = Path(source)
    try:
        exists = path.exists()
    except OSError as error:  # a folder on the way that can't be read, a name that is too long
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if exists:
        return path
    if str(source) in bundled.names():
        return bundled.folder(str(source))
    raise bundled.not_found(str(source))
