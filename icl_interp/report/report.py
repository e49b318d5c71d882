"""`Report`: findings, the results they rest on, and figures.

It is saved, loaded, judged and drawn without the model.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame

from icl_interp import results
from icl_interp.analyses import registry
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import CONTROLS, Results
from icl_interp.errors import InputError, logger, shown, unknown, unreadable
from icl_interp.figures import catalogue, files, stored_attention
from icl_interp.figures.attention import AttentionView
from icl_interp.figures.letters import Style
from icl_interp.figures.paper import TALLEST, for_paper
from icl_interp.figures.style import Figure
from icl_interp.provenance import read_json, write_atomically, write_json
from icl_interp.report import card, page
from icl_interp.report.summary import summary
from icl_interp.results import make_table
from icl_interp.structured import Stored, of_schema

SCHEMA = "icl_interp.report/1"
FORMATS = ("html", "json", "md", "png", "svg", "pdf")
LARGEST = 10**8  # bytes of report.json; one of a bundled model has some 5 million
log = logger(__name__)


@dataclass
class Report:
    """What an analysis found.

    Attributes:
        checkpoint: the name, step and origin of the model.
        model: facts about it: config, task, in-distribution error.
        findings: one for each claim asked for, in the order of registration.
        results: what was measured, by name or by measurement.
        provenance: settings, versions and time of the analysis.
        file: what it was loaded from; None for one that was measured here. What the page can't read
            in a loaded report is an `InputError`: the file was edited, or another version wrote it.
    """

    checkpoint: dict[str, Any]
    model: dict[str, Any]
    findings: list[Finding]
    results: Results
    provenance: dict[str, Any] = field(default_factory=dict)
    file: Path | None = field(default=None, compare=False)

    def __getitem__(self, claim: str) -> Finding:
        """The finding on a claim."""
        for finding in self.findings:
            if finding.id == claim:
                return finding
        ids = [finding.id for finding in self.findings]
        raise unknown("claim in this report", claim, ids)

    def __repr__(self) -> str:
        counts = Counter(finding.verdict for finding in self.findings)
        parts = []
        for verdict, n in sorted(counts.items()):
            parts.append(f"{n} {verdict}")
        found = ", ".join(parts) or "no findings"
        return f"Report({shown(self.checkpoint.get('name'))}: {found})"

    @property
    def summary(self) -> list[str]:
        """What the model does, in at most four sentences, each with the number that it rests on."""
        return summary(self.model, Results(self.results))

    @property
    def figures(self) -> dict[str, Any]:
        """Plotly figures that the stored results allow, by name; drawn anew at each access."""
        return catalogue.draw(self.results, self.findings, self.facts, self.file)

    @property
    def attention(self) -> AttentionView | None:
        """Attention weights to look through: the mean, and a few prompts.

        None where none are stored: the model has no attention, or only some claims were asked for.
        """
        stored = Results(self.results)
        return catalogue.tried(
            "attention", self.file, lambda: stored_attention.view(stored, self.facts)
        )

    def figure(
        self,
        name: str,
        width: str | float = "column",
        panel: int | str | None = None,
        style: str | Style = "sans",
        height: float = TALLEST,
    ) -> Figure:
        """A figure in its size for print, without its title: see `icl_interp.figures.for_paper`.

        `figures.export({"boundary": report.figure("boundary", width="page")}, ".", ["pdf"])` writes
        `boundary.pdf` for a paper.

        Args:
            name: one of `figures`.
            width: "column" (85 mm), "page" (175 mm), or a number of millimetres.
            panel: only this panel: its number in reading order, from 1, or how its heading begins.
            style: "sans" (Helvetica, 7 pt), "serif" (Times, 8 pt), or a `figures.Style`.
            height: millimetres that it should not be higher than, as `figures.for_paper` takes it.

        Raises:
            InputError: no such figure, width, height, panel or style, or no room at this width.
        """
        if name not in catalogue.FIGURES:
            raise unknown("figure", name, catalogue.FIGURES)
        drawn = catalogue.draw_one(name, self.results, self.findings, self.facts, self.file)
        if drawn is None:
            raise InputError(
                f"this report has no figure {shown(name)}, since nothing that it shows was "
                f"measured; it has {', '.join(self.figures)}"
            )
        return for_paper(drawn, width, panel, style, height)

    @property
    def facts(self) -> Facts:
        """What claims and figures know of the model."""
        return Facts.from_dict(self.model)

    def judge(self) -> "Report":
        """The same results judged by the claims as they are registered now. Takes milliseconds."""
        facts = self.facts
        findings = []
        for finding in self.findings:
            findings.append(self._again(finding, facts))
        return replace(self, findings=findings)

    def _again(self, finding: Finding, facts: Facts) -> Finding:
        """A finding judged again, or as it is.

        It stays where its claim is not registered, or where it rests on measurements of another
        version.
        """
        claim = registry.REGISTRY.get(finding.id)
        if claim is None:
            return finding
        versions = self.provenance.get("measurements")
        stored = versions if isinstance(versions, Mapping) else {}
        # What was never measured has no version: the claim does not apply, the measurement failed,
        # or other controls did.
        other = []
        for name, measurement in claim.needs.items() if claim.applies(facts) else ():
            spared = name.startswith(CONTROLS[1:]) and name not in self.results
            version = stored.get(name, 1)
            if not spared and name not in facts.failed and version != measurement.version:
                other.append(f"{name} is of version {version}, not {measurement.version}")
        if not other:
            return claim.finding(self.results, facts, self.file)
        kept = f"The stored verdict is kept: {', '.join(other)}. Analyse the model again."
        return replace(finding, kept=kept)

    def compare(self, other: "Report") -> DataFrame:
        """Verdicts and estimates of two reports side by side, for the claims that both hold."""
        held = {finding.id for finding in other.findings}
        shared = [finding.id for finding in self.findings if finding.id in held]
        sides = {self.checkpoint["name"]: self, other.checkpoint["name"] + " (other)": other}
        columns: dict[str, list[Any]] = {"claim": shared}
        for name, report in sides.items():
            verdicts = []
            estimates = []
            for claim in shared:
                finding = report[claim]
                verdicts.append(finding.verdict)
                estimates.append(finding.estimate.value if finding.estimate else float("nan"))
            columns[f"{name}: verdict"] = verdicts
            columns[f"{name}: estimate"] = estimates
        return make_table(columns)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, schema `icl_interp.report/1`."""
        return self._data({name: results.to_dict(result) for name, result in self.results.items()})

    def _data(self, measured: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "checkpoint": self.checkpoint,
            "model": self.model,
            "summary": self.summary,
            "findings": [finding.to_dict() for finding in self.findings],
            "results": measured,
            "provenance": self.provenance,
        }

    def to_json(self, path: str | Path) -> Path:
        """Write `to_dict` as JSON, unrounded."""
        write_json(Path(path), self.to_dict())
        return Path(path)

    def to_html(self, path: str | Path) -> Path:
        """Write one self-contained page: it opens offline and fetches nothing."""
        figures = self.figures
        attention = self.attention
        with self.reads("the page"):
            # Of results it reads no more than the names.
            text = page.render(self._data(self.results), figures, attention)
        write_atomically(Path(path), text)
        return Path(path)

    def to_markdown(self) -> str:
        """A model card in Markdown: the answer, tables of verdicts, how to load the model.

        It also says where the model comes from.
        """
        with self.reads("the model card"):
            return card.markdown(
                self.checkpoint, self.model, self.findings, self.provenance, self.summary
            )

    def save(self, folder: str | Path, formats: Sequence[str] = ("html", "json")) -> Path:
        """Write `report.html`, `report.json`, `model_card.md` ("md"), and figures under `figures/`.

        Where static figures need a browser that is not there, the rest is written and a warning
        says how to get it.
        """
        folder = Path(folder)
        for name in formats:
            if name not in FORMATS:
                raise unknown("format", name, FORMATS)
        # What is measured comes first: where a page cannot be made, it is there.
        if "json" in formats:
            self.to_json(folder / "report.json")
        if "html" in formats:
            self.to_html(folder / "report.html")
        if "md" in formats:
            write_atomically(folder / "model_card.md", self.to_markdown())
        static = [name for name in formats if name in ("png", "svg", "pdf")]
        if static:
            missing = files.export(self.figures, folder / "figures", static)
            if missing:
                log.warning(missing)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "Report":
        """A saved report, from its folder or its `report.json`."""
        path = Path(folder)
        if path.is_dir():
            path = path / "report.json"
        data = read_json(path, LARGEST)
        try:
            return cls._from_data(data, path)
        except InputError as error:
            if str(path) in str(error):
                raise
            # What a class says of its own values names no file.
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def _from_data(cls, data: Any, path: Path) -> "Report":
        stored = of_schema(data, SCHEMA, path)
        findings = []
        for one in stored["findings"].items():
            findings.append(Finding.from_dict(one.mapping(), one.where))
        for name, n in Counter(finding.id for finding in findings).items():
            if n > 1:
                raise InputError(
                    f"{path}: each finding must have its own id, but got {shown(name)} twice"
                )
        measured = {}
        for name, one in stored["results"].members().items():
            measured[name] = results.from_dict(one.mapping(), one.where)
        stored["checkpoint"]["name"].of(str)
        return cls(
            stored["checkpoint"].facts(),
            _model(stored["model"]),
            findings,
            Results(measured),
            stored["provenance"].facts(),
            path,
        )

    @contextmanager
    def reads(self, reader: str) -> Iterator[None]:
        """Turn an error from a stored report that lacks data into an error of one line.

        Args:
            reader: who reads it, for example "the page".

        Raises:
            InputError: what went wrong, and in which file. An error about a report that was
                measured here stays.
        """
        try:
            yield
        except Exception as error:
            if self.file is None:
                raise
            raise InputError(unreadable(self.file, reader, error)) from error

    def _repr_html_(self) -> str:
        with self.reads("the summary"):
            return page.summary(self._data(self.results))


def _model(stored: Stored) -> dict[str, Any]:
    """The facts about the model, where they are what they should be."""
    known = Facts.from_dict(stored.mapping(), stored.where)
    # Numbers that are not finite stand as text in a file.
    return {
        **stored.facts(),
        "r2": stored["r2"].of(float),
        "in_distribution": dict(known.in_distribution),
    }
