"""What is known of a model's algorithm: a table, a sentence, a figure."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame
from xarray import DataArray

from icl_interp.algorithms import designs, figure
from icl_interp.errors import InputError, counted
from icl_interp.figures.drawing import Drawing
from icl_interp.figures.render import render
from icl_interp.provenance import write_json
from icl_interp.results import table_of_rows, text, to_dict

# At most so far is called near, and further than the second certainly not: of the variance.
NEAR, FAR = 0.05, 0.10
LARGE = 10.0  # a distance beyond this is told as that
SHOWN = 12  # rivals in the printed table
SCHEMA = "icl_interp.algorithm/1"


@dataclass(frozen=True, eq=False)
class AlgorithmReport:
    """Which algorithm a model runs, as far as a sample can tell.

    Attributes:
        name: of the model.
        table: a row for each rival, the nearest first: "D" with its ends "low" and "high"; "further
            by", how much further it is than the nearest, and the lower end of that; "excluded";
            what was "tuned"; "hat" with its ends, the distance of hat rows, where there are any.
        by_length: D (examples, rival, statistic).
        by_layer: D (depth, rival, statistic) of a linear read-out; None without layers.
        designs: for rivals that the sample cannot tell from the nearest one, the prompts that can,
            and what the model does there.
        error: the model's squared error over that of predicting 0.
        notes: what was left out, and why.
        seconds: that it took.
        separate: called with the names of two rivals it gives a row of `designs` for them.
    """

    name: str
    table: DataFrame
    by_length: DataArray
    by_layer: DataArray | None
    designs: tuple[dict[str, Any], ...]
    error: float
    notes: tuple[str, ...]
    seconds: float
    separate: Callable[[str, str], dict[str, Any]] = field(repr=False)

    @property
    def nearest(self) -> str:
        """The rival with the smallest distance."""
        return str(self.table["rival"].iloc[0])

    @property
    def distance(self) -> dict[str, float]:
        """D by rival, the nearest first."""
        return dict(zip(self.table["rival"], self.table["D"], strict=True))

    @property
    def excluded(self) -> list[str]:
        """Rivals that are further from the model than the nearest one, beyond chance."""
        return list(self.table.loc[self.table["excluded"], "rival"])

    @property
    def tied(self) -> list[str]:
        """Rivals that the sample cannot tell from the nearest one, which is not listed."""
        rest = self.table[~self.table["excluded"]]["rival"]
        return [name for name in rest if name != self.nearest]

    def separated(self, first: str, second: str) -> "AlgorithmReport":
        """The report with prompts that tell two rivals apart, and what the model does there."""
        row = self.separate(first, second)
        return replace(self, designs=(row, *self.designs))

    def sentences(self) -> list[str]:
        """What was found, in words."""
        first = self.table.iloc[0]
        place = f"{first['D']:.3g} [{first['low']:.3g}, {first['high']:.3g}]"
        found = [f"The nearest rival is {self.nearest}: D = {place} of the variance."]
        found.append(self._how_near(float(first["low"]), float(first["high"])))
        found.append(
            f"{len(self.excluded)} of {len(self.table)} rivals are farther away, beyond chance."
        )
        if self.tied:
            found.append(f"This sample cannot tell it from: {'; '.join(self.tied)}.")
        if self.error >= 1:
            found.append(
                f"Its error is {self.error:.2f} times that of predicting 0: it does not learn from "
                "these prompts."
            )
        return [*found, *map(_designed, self.designs), *(f"Note: {note}." for note in self.notes)]

    def _how_near(self, low: float, high: float) -> str:
        if high <= NEAR:
            return f"It is near: at most {NEAR:g}. The model predicts what this algorithm does."
        if low > FAR:
            return f"It is not near: more than {FAR:g}. None of the rivals is what the model runs."
        return f"Whether it is near (at most {NEAR:g}) is open."

    def __str__(self) -> str:
        shown = self.table.drop(columns=["tuned", "further, low"]).head(SHOWN)
        hidden = len(self.table) - len(shown)
        more = f"... and {hidden} rivals that are further\n" if hidden > 0 else ""
        shown.attrs = self.table.attrs
        words = "\n".join(self.sentences())
        return f"{text(shown)}\n{more}{self.table.attrs['note']}\n\n{words}"

    def drawing(self) -> Drawing:
        """Distance against layer and against length, a line a rival, as data."""
        return figure.draw(self.name, self.table, self.by_layer, self.by_length)

    def figure(self) -> Any:
        """The drawing, rendered: a plotly figure."""
        return render(self.drawing())

    def to_dict(self) -> dict[str, Any]:
        """All numbers, for JSON."""
        designs = table_of_rows(self.designs) if self.designs else None
        return {
            "schema": SCHEMA,
            "name": self.name,
            "nearest": self.nearest,
            "excluded": self.excluded,
            "tied": self.tied,
            "sentences": self.sentences(),
            "error": self.error,
            "table": to_dict(self.table),
            "by_length": to_dict(self.by_length),
            "by_layer": None if self.by_layer is None else to_dict(self.by_layer),
            "designs": None if designs is None else to_dict(designs),
            "notes": list(self.notes),
            "seconds": self.seconds,
        }

    def save(self, folder: str | Path) -> Path:
        """Write `algorithm.json` and `algorithm.html`, the figure, into a folder.

        Raises:
            InputError: the folder is a file.
        """
        folder = Path(folder)
        if folder.is_file():
            raise InputError(f"cannot write to {folder}, which is a file: choose a folder")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "algorithm.json", self.to_dict())
        self.figure().write_html(folder / "algorithm.html", include_plotlyjs=True)
        return folder


def _designed(row: dict[str, Any]) -> str:
    """A design and its outcome, in words."""
    pair = f"{row['rival']} from {row['other']}"
    if row["nearer"] == designs.SAME:
        return f"No prompts that are known here tell {pair} apart: as tuned, they predict the same."
    length = counted(row["examples"], "example")
    asked = (
        f"Prompts that tell {pair} apart: {row['design']}, {length} (the two are "
        f"{_number(row['apart'])} apart there). There the model is at "
        f"{_number(row['D to rival'])} and {_number(row['D to other'])}"
    )
    if row["nearer"] == designs.NEITHER:
        return f"{asked}, nearer to neither beyond chance."
    return f"{asked}, nearer to {row['nearer']}."


def _number(distance: float) -> str:
    """A distance in few digits; of a large one, that it is."""
    return f"{distance:.2g}" if distance <= LARGE else f"more than {LARGE:g}"
