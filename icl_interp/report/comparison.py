"""`Comparison`: reports of several models side by side, and seeds of one recipe pooled."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from pandas import DataFrame
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.console import Fitted
from icl_interp.errors import InputError, counted, logger, shown, unknown, unreadable
from icl_interp.figures import catalogue
from icl_interp.figures.drawing import Drawing
from icl_interp.figures.overlay import overlay, overlay_panels
from icl_interp.figures.style import Figure
from icl_interp.provenance import write_atomically, write_json
from icl_interp.report import comparison_page
from icl_interp.report.report import Report
from icl_interp.report.words import MARKS, WORDS, measured, sentence, what_decides
from icl_interp.results import make_table

log = logger(__name__)
# Columns of the table of pooled seeds.
COUNTED = ("supported", "contradicted", "inconclusive")
SPREAD = ("mean", "sd", "min", "max")


@dataclass(frozen=True)
class Comparison:
    """Reports of several models, by name.

    Attributes:
        reports: two or more, on the same claims, each of a model of another name.
    """

    reports: tuple[Report, ...]

    def __post_init__(self) -> None:
        if len(self.reports) < 2:
            raise InputError(
                f"a comparison needs two reports at least, but got {len(self.reports)}"
            )
        for name in sorted(self.names):
            if self.names.count(name) > 1:
                raise InputError(
                    f"each model to compare needs its own name, but got {shown(name)} twice: "
                    "rename a folder"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the models."""
        return tuple(str(report.checkpoint["name"]) for report in self.reports)

    @property
    def claims(self) -> tuple[str, ...]:
        """Ids of the claims that every report holds, in the order of the first."""
        first, *others = map(_ids, self.reports)
        common = set(first).intersection(*others)
        return tuple(claim for claim in first if claim in common)

    @property
    def recipes(self) -> dict[str, tuple[str, ...]]:
        """Names of models by recipe, which is all of a run but its seed."""
        found: dict[str, tuple[str, ...]] = {}
        for name, report in self._named():
            recipe = _recipe(report)
            found[recipe] = (*found.get(recipe, ()), name)
        return found

    @property
    def table(self) -> DataFrame:
        """A table with a row for each claim and model.

        It holds the verdict, the deciding quantity with its interval and unit, and whether the
        verdict is firm.
        """
        columns = ("claim", "model", "recipe", "verdict", "value", "low", "high", "unit", "firm")
        rows: list[dict[str, Any]] = []
        for claim in self.claims:
            for name, report in self._named():
                f = report[claim]
                row = {"claim": f.id, "model": name, "recipe": _recipe(report)}
                row |= {"verdict": f.verdict, "firm": f.firm is True}
                e = f.test or f.estimate
                if e:
                    row |= {"value": e.value, "low": e.low, "high": e.high, "unit": e.unit}
                else:
                    row |= {"value": math.nan, "low": math.nan, "high": math.nan, "unit": ""}
                rows.append(row)
        return _table(rows, columns)

    @property
    def pooled(self) -> DataFrame:
        """A table with a row for each claim and each recipe of several seeds.

        It holds the number of seeds with each verdict, and mean and spread of the value.

        "sd" is the standard deviation between seeds, with n - 1; seeds for which a claim does not
        apply, or has no number, are left out. The intervals of single models say nothing about
        seeds.
        """
        rows: list[dict[str, Any]] = []
        for recipe, names in self.recipes.items():
            if len(names) < 2:
                continue
            for claim in self.claims:
                found = [report[claim] for name, report in self._named() if name in names]
                applying = list(filter(_applies, found))
                if applying:
                    row = {"claim": claim, "recipe": recipe, "seeds": len(applying)}
                    rows.append(row | _counts(applying) | _spread(applying))
        return _table(rows, ("claim", "recipe", "seeds", *COUNTED, *SPREAD))

    def to_markdown(self) -> str:
        """A table in Markdown: a column a model, a row a claim.

        The number is what the criterion reads.
        """
        rows = {"": [f"`{name}`" for name in self.names]}
        rows["in-distribution error"] = list(map(_error, self.reports))
        for claim in self.claims:
            rows[f"`{claim}`"] = list(map(_cell, self._of(claim)))
        lines = []
        for head, cells in rows.items():
            lines.append(f"| {head}{' ' if head else ''}| {' | '.join(cells)} |")
        lines.insert(1, "|---|" + "---|" * len(self.reports))
        return "\n".join(lines)

    def figure(self, name: str, panel: int | str = 1, lines: Sequence[str] | None = None) -> Figure:
        """One panel of a figure with the lines of all models, in a colour for each model.

        `comparison.figure("context")` shows how far each model's predictions differ between
        contexts.

        Args:
            name: of a figure, as in `report.figures`.
            panel: its number in reading order, from 1, or how its heading begins.
            lines: those to draw, as the legend calls them; all by default.

        Raises:
            InputError: no such figure, panel or line, fewer than two reports that have it, or what
                `icl_interp.figures.overlay` refuses.
        """
        if name not in catalogue.FIGURES:
            raise unknown("figure", name, catalogue.FIGURES)
        drawn = {}
        without = []
        for model, report in self._named():
            figure = catalogue.draw_one(
                name, report.results, report.findings, report.facts, report.file
            )
            if figure is None:
                without.append(model)
            else:
                drawn[model] = figure
        if len(drawn) < 2:
            raise InputError(
                f"two reports at least must have the figure {shown(name)}, but it is missing for "
                f"{', '.join(without)}"
            )
        return overlay(drawn, panel, lines)

    def curves(self, models: Sequence[str] | None = None) -> dict[str, Figure]:
        """Figures by name, each with every panel in which several models have lines.

        Args:
            models: names of those to draw, at most as many as there are colours; all by default.

        Raises:
            InputError: more models than lines can be told apart of.
        """
        chosen = self.names if models is None else tuple(models)
        found = {}
        for name in catalogue.FIGURES:
            drawings = {}
            for model, report in self._named():
                drawing = _drawing(name, report) if model in chosen else None
                if drawing is not None:
                    drawings[model] = drawing
            figure = overlay_panels(drawings) if len(drawings) > 1 else None
            if figure is not None:
                found[name] = figure
        return found

    def to_dict(self) -> dict[str, Any]:
        """Both tables as plain data, without the reports."""
        return {"table": self.table.to_dict("records"), "pooled": self.pooled.to_dict("records")}

    def to_html(self, path: str | Path, folders: Sequence[str | Path] = ()) -> Path:
        """Write one self-contained page: it opens offline and fetches nothing.

        Args:
            path: of the file.
            folders: where the pages of the single reports are, for links to them; none by default.

        Raises:
            InputError: a stored report does not hold what the page needs.
        """
        path = Path(path)
        addresses = [_address(folder, path.parent) for folder in folders]
        links = dict(zip(self.names, addresses, strict=True)) if addresses else {}
        with self._readable("the page of the comparison"):
            text = comparison_page.render(self, links)
        write_atomically(path, text)
        return path

    def save(self, folder: str | Path, folders: Sequence[str | Path] = ()) -> Path:
        """Write `comparison.json` and the page `comparison.html`.

        The tables come first: where the page cannot be made, they are there, and the log says why
        it is not.

        Args:
            folder: of both files.
            folders: as for `to_html`.
        """
        folder = Path(folder)
        write_json(folder / "comparison.json", self.to_dict())
        try:
            self.to_html(folder / "comparison.html", folders)
        except InputError as error:  # a file is at fault, not the code: a line says so
            log.warning("the page of the comparison is left out: %s", error)
        except Exception:
            log.warning("the page of the comparison could not be made", exc_info=True)
        return folder

    @contextmanager
    def _readable(self, reader: str) -> Iterator[None]:
        """Turn an error from stored reports that lack data into an error of one line."""
        try:
            yield
        except Exception as error:
            stored = [str(report.file) for report in self.reports if report.file]
            if not stored:
                raise
            files = f"one of {', '.join(stored)}"
            raise InputError(unreadable(files, reader, error)) from error

    def _repr_html_(self) -> str:
        with self._readable("the comparison"):
            return comparison_page.summary(self)

    def screen(self) -> Group:
        """For a terminal: a line a claim that applies to one model at least, a column a model.

        Where columns would be wider than the screen, each model has a line below its claim.
        """
        applying = [claim for claim in self.claims if any(map(_applies, self._of(claim)))]
        parts: list[Any] = [Text(""), Fitted(self._columns(applying), self._blocks(applying))]
        legend = []
        for verdict, word in WORDS.items():
            mark, _ = MARKS[verdict]
            legend.append(f"{mark} {word}")
        parts.append(Text(f"\n{', '.join(legend)}", style="bright_black"))
        left_out = len(self.claims) - len(applying)
        if left_out:
            claims = counted(left_out, "claim")
            verb = "applies" if left_out == 1 else "apply"
            parts.append(Text(f"– {claims} {verb} to none of these models", style="bright_black"))
        return Group(*parts, *self._pooled_lines())

    def _columns(self, claims: Sequence[str]) -> Table:
        """A line a claim, a column a model."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("", *self.names):
            table.add_column(Text(title), justify="left")
        for claim in claims:
            found = self._of(claim)
            table.add_row(Text(sentence(found[0])), *map(_text, found))
        return table

    def _blocks(self, claims: Sequence[str]) -> Group:
        """A line a claim, with what decides; below it a line a model."""
        longest = max(map(len, self.names))
        parts: list[Any] = []
        for claim in claims:
            rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
            rows.add_column(no_wrap=True, max_width=longest)
            rows.add_column()
            for name, report in self._named():
                rows.add_row(Text(name), _text(report[claim]))
            found = self._of(claim)
            parts.append(Text(sentence(found[0]), style="bold"))
            rules = list(filter(None, map(what_decides, found)))
            if rules:
                parts.append(Text(f"  {rules[0]}", style="bright_black"))
            parts.append(Padding(rows, (0, 0, 0, 2)))
        return Group(*parts)

    def _pooled_lines(self) -> Iterator[Text]:
        pooled = self.pooled.to_dict("records")
        for recipe, names in self.recipes.items():
            if len(names) > 1:
                listed = ", ".join(names)
                yield Text(f"\n{recipe}: {len(names)} seeds of one recipe ({listed})", style="bold")
                for row in pooled:
                    if row["recipe"] == recipe:
                        yield Text("  " + _in_words(row))

    def _named(self) -> Iterator[tuple[str, Report]]:
        return zip(self.names, self.reports, strict=True)

    def _of(self, claim: str) -> list[Finding]:
        """What each report finds of a claim."""
        return [report[claim] for report in self.reports]


def _table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> DataFrame:
    """These columns of some rows; without rows they are empty."""
    columns: dict[str, list[Any]] = {}
    for name in names:
        columns[name] = [row[name] for row in rows]
    return make_table(columns)


def _ids(report: Report) -> list[str]:
    return [f.id for f in report.findings]


def _recipe(report: Report) -> str:
    """What makes seeds of one recipe alike; a model without a known run is alone."""
    return str(report.checkpoint.get("kind_of_training") or report.checkpoint["name"])


def _drawing(name: str, report: Report) -> Drawing | None:
    """A figure of a report as data; None where there is none, or where it is no drawing."""
    draw = catalogue.FIGURES[name].draw
    results = Results(report.results)
    drawn = catalogue.tried(name, report.file, lambda: draw(results, report.findings, report.facts))
    return drawn if isinstance(drawn, Drawing) else None


def _address(folder: str | Path, base: Path) -> str:
    """Of the page of a report, as a link from a page in another folder."""
    page = Path(folder) / "report.html"
    return quote(Path(os.path.relpath(page, base)).as_posix())


def _counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many findings have each verdict."""
    verdicts = [f.verdict for f in findings]
    return {verdict: verdicts.count(verdict) for verdict in COUNTED}


def _spread(findings: Sequence[Finding]) -> dict[str, float]:
    """Of the finite numbers that findings rest on."""
    values = []
    for f in findings:
        e = f.test or f.estimate
        if e and math.isfinite(e.value):
            values.append(e.value)
    if not values:
        return dict.fromkeys(SPREAD, math.nan)
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return {"mean": float(np.mean(values)), "sd": sd, "min": min(values), "max": max(values)}


def _in_words(row: dict[str, Any]) -> str:
    verdicts = []
    for verdict in MARKS:
        if row.get(verdict):
            verdicts.append(f"{row[verdict]} {verdict}")
    spread = f"{row['mean']:.3g} +- {row['sd']:.2g} ({row['min']:.3g} to {row['max']:.3g})"
    return f"{row['claim']}: {', '.join(verdicts)}; {spread}"


def _error(report: Report) -> str:
    return f"{report.model['in_distribution']['error']:.1e}"


def _cell(finding: Finding) -> str:
    number = f" {finding.test.value:.2g}" if finding.test else ""
    return MARKS[finding.verdict][0] + number


def _applies(finding: Finding) -> bool:
    return finding.verdict != "not_applicable"


def _text(finding: Finding) -> Text:
    mark, style = MARKS[finding.verdict]
    e = finding.test or finding.estimate
    number = f" {measured(e)}" if e and finding.verdict != "not_applicable" else ""
    return Text.assemble((mark, style), number)
