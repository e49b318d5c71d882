"""`Report`: findings, the results they rest on, and figures; saved, loaded, judged and drawn without the model."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from icl_interp import page, results
from icl_interp.analyses import verdicts
from icl_interp.analyses.verdicts import Finding
from icl_interp.errors import InputError, unknown
from icl_interp.figures import catalogue, files
from icl_interp.provenance import read_json, write_atomically, write_json
from icl_interp.results import Result, Table

SCHEMA = "icl_interp.report/1"
FORMATS = ("html", "json", "png", "svg", "pdf")
log = logging.getLogger(__name__)


@dataclass
class Report:
    """What an analysis found.

    Attributes:
        checkpoint: the name, step and origin of the model.
        model: facts about it: config, task, in-distribution error.
        findings: one for each claim asked for, in the order of registration.
        results: what was measured, by name.
        provenance: settings, versions and time of the analysis.
    """

    checkpoint: dict[str, Any]
    model: dict[str, Any]
    findings: list[Finding]
    results: dict[str, Result]
    provenance: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, claim: str) -> Finding:
        """The finding on a claim."""
        for finding in self.findings:
            if finding.id == claim:
                return finding
        raise unknown("claim in this report", claim, [f.id for f in self.findings])

    @property
    def figures(self) -> dict[str, Any]:
        """Plotly figures that the stored results allow, by name; drawn anew at each access."""
        return catalogue.draw(self.results, self.findings, self.model)

    def judge(self) -> "Report":
        """The same results judged by the claims as they are registered now. Takes milliseconds."""
        registered = verdicts.REGISTRY
        again = [
            registered[f.id].finding(self.results, self.model) if f.id in registered else f for f in self.findings
        ]
        return replace(self, findings=again)

    def compare(self, other: "Report") -> Table:
        """Verdicts and estimates of two reports side by side, for the claims that both hold."""
        shared = [f for f in self.findings if any(g.id == f.id for g in other.findings)]
        sides = {self.checkpoint["name"]: self, other.checkpoint["name"] + " (other)": other}
        columns: dict[str, list[Any]] = {"claim": [f.id for f in shared]}
        for name, report in sides.items():
            found = [report[f.id] for f in shared]
            columns[f"{name}: verdict"] = [f.verdict for f in found]
            columns[f"{name}: estimate"] = [f.estimate.value if f.estimate else float("nan") for f in found]
        return Table(columns)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, schema `icl_interp.report/1`."""
        return {
            "schema": SCHEMA,
            "checkpoint": self.checkpoint,
            "model": self.model,
            "findings": [finding.to_dict() for finding in self.findings],
            "results": {name: result.to_dict() for name, result in self.results.items()},
            "provenance": self.provenance,
        }

    def to_json(self, path: str | Path) -> Path:
        """Write `to_dict` as JSON, unrounded."""
        write_json(Path(path), self.to_dict())
        return Path(path)

    def to_html(self, path: str | Path) -> Path:
        """Write one self-contained page: it opens offline and fetches nothing."""
        write_atomically(Path(path), page.render(self.to_dict(), self.figures))
        return Path(path)

    def save(self, folder: str | Path, formats: Sequence[str] = ("html", "json")) -> Path:
        """Write `report.html`, `report.json` and, for "png", "svg" and "pdf", a file a figure under `figures/`.

        Where static figures need a browser that is not there, the rest is written and a warning says how to get it.
        """
        folder = Path(folder)
        for name in formats:
            if name not in FORMATS:
                raise unknown("format", name, FORMATS)
        if "json" in formats:
            self.to_json(folder / "report.json")
        if "html" in formats:
            self.to_html(folder / "report.html")
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
        path = path / "report.json" if path.is_dir() else path
        data = read_json(path)
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else None
            raise InputError(f"{path} has schema {found!r}, but a report has {SCHEMA!r}")
        return cls(
            data["checkpoint"],
            data["model"],
            [Finding.from_dict(finding) for finding in data["findings"]],
            {name: results.from_dict(result) for name, result in data["results"].items()},
            data["provenance"],
        )

    def _repr_html_(self) -> str:
        return page.summary(self.to_dict())
