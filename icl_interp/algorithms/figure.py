"""The picture: how far each rival is from what a layer says, and from the model at each length."""

from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import COLOURS, GREY
from icl_interp.figures.drawing import Axis, Drawing, Line, Panel

LINES = 6  # rivals that get a line, as many as there are colours
LEAST = 1e-5  # smaller distances are drawn here


def draw(name: str, table: DataFrame, by_layer: DataArray | None, by_length: DataArray) -> Drawing:
    """Distance against layer and against length, a line a rival.

    The nearest rival of each kind gets a line ("descent" with its best number of steps, say), the
    nearest kinds first.
    """
    shown = chosen(table)
    panels = []
    if by_layer is not None:
        panels.append(
            _panel("By layer: what its stream says of f(x)", "blocks passed", by_layer, shown)
        )
    panels.append(_panel("By length: what the model predicts", "examples", by_length, shown))
    below = (
        "Squared distance to each rival over the variance of predictions, with simultaneous 95 % "
        "intervals. A rival that the model runs lies at the bottom after the last block; "
        "distances below 10⁻⁵ are drawn at 10⁻⁵."
    )
    return Drawing(f"Which algorithm does {name} run?", below, panels, height=360)


def chosen(table: DataFrame) -> list[str]:
    """The nearest rival of each kind, the nearest kinds first.

    >>> chosen(DataFrame({"rival": ["descent, 2 steps", "descent, 1 step", "zero"]}))
    ['descent, 2 steps', 'zero']
    """
    found: dict[str, str] = {}
    for name in table["rival"]:
        kind = name.partition(",")[0]
        found.setdefault(kind, name)
    return list(found.values())[:LINES]


def _panel(title: str, words: str, array: DataArray, shown: list[str]) -> Panel:
    axis = array.dims[0]
    places = array[axis].values
    marks = []
    for i, name in enumerate(shown):
        one = array.sel(rival=name)
        line = Line(
            places,
            one.sel(statistic="value").values,
            one.sel(statistic="low").values,
            one.sel(statistic="high").values,
            name=name,
            colour=COLOURS[i] if i < len(COLOURS) else GREY,
            symbol="circle",
        )
        marks.append(line)
    x = Axis(words, whole=True)
    y = Axis("distance (of the variance)", log=True, least=LEAST)
    return Panel(title, x=x, y=y, marks=marks)
