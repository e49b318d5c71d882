"""The one progress bar of a command: from 0 to 100 %, with the name of what is under way."""

import importlib.util
import sys
from typing import Any

COLUMNS = 80
NAMED = 34  # characters of the part that is under way
# Of the measurements that are taken together: asking, reading contexts, and reducing what was read.
ASKING = 0.1
READING = 0.8  # with the asking
OWN = 0.6  # the share of the model itself; its untrained controls share the rest
_open: list["Whole"] = []
_quiet: list[bool] = []


def show(whether: bool) -> None:
    """Show bars from now on, or none."""
    _quiet[:] = [] if whether else [True]


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel."""
    return "ipykernel" in sys.modules


def drawn(**settings: Any) -> Any:
    """A bar of tqdm for where this runs.

    It is text on a terminal, and in a notebook text where ipywidgets are missing. There is none
    where standard error is a file, and none after `show(False)`.

    Args:
        settings: those of `tqdm.tqdm`; `disable=True` for none.
    """
    from tqdm import tqdm
    from tqdm.notebook import tqdm as widget

    hidden = settings.pop("disable", None) or bool(_quiet)
    if hidden or not in_notebook():
        return tqdm(**settings, disable=hidden or None)
    if importlib.util.find_spec("ipywidgets"):
        return widget(**settings)
    # Standard error of a notebook is no terminal, but it shows text.
    return tqdm(**settings, disable=False, mininterval=1)


class Whole:
    """The bar of a command that has several parts of equal share, such as models.

    Args:
        parts: how many.
        shown: whether there is a bar at all.
    """

    def __init__(self, parts: int = 1, shown: bool = True) -> None:
        self._parts = parts
        self._part = 0
        self._share = 0.0
        self._bar = drawn(
            total=100,
            leave=False,
            ncols=COLUMNS,
            bar_format="{desc}{percentage:3.0f} % |{bar}| {elapsed}",
            disable=None if shown else True,
        )

    def __enter__(self) -> "Whole":
        _open.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _open.remove(self)
        self._bar.close()

    def next(self) -> None:
        """Begin the next part."""
        self._part += 1

    def at(self, share: float, name: str) -> None:
        """So much of the present part is done; the bar never goes back."""
        done = (min(self._part, self._parts - 1) + share) / self._parts
        self._share = max(self._share, done)
        self._bar.n = 100 * self._share
        self._bar.set_description_str(name[:NAMED].ljust(NAMED + 1), refresh=False)
        self._bar.refresh()


class Measuring:
    """The share of an analysis that is done, told by who takes the measurements.

    It fills the part of the bar that is open, or makes a bar of its own.

    Args:
        controls: how many untrained models may be measured after the model itself.
        shown: whether there is a bar at all.
    """

    def __init__(self, controls: int, shown: bool = True) -> None:
        self._whole = _open[-1] if _open else None
        self._shown = shown
        self._controls = controls
        self._own: Whole | None = None
        self._total = 1
        self.stage(0)

    def __enter__(self) -> "Measuring":
        if self._whole is None:
            self._whole = Whole(1, self._shown).__enter__()
            self._own = self._whole
        return self

    def __exit__(self, *error: object) -> None:
        if self._whole:
            self._whole.at(1.0, "done")
        if self._own:
            self._own.__exit__(*error)

    def stage(self, number: int) -> None:
        """Begin with the model itself (0), or with one of its controls (from 1)."""
        self._model = number
        self._seen: set[str] = set()
        # Measurements that are done, that have asked, and whether contexts were read since.
        self._done = 0
        self._asked = 0
        self._read = False

    def watch(self, what: str, done: int, total: int) -> None:
        """Told by `icl_interp.analyses.plan.take` what is under way."""
        if what not in self._seen and "sweeps over" not in what:
            # The next of those that ask.
            self._seen.add(what)
            if self._read:
                self._done = done
                self._read = False
            self._asked = done + 1
            self._total = total
            self._tell(what, ASKING * (done - self._done))
            return
        together = self._asked - self._done
        self._read = True
        if "sweeps over" in what:
            self._tell("reading contexts", together * (ASKING + (READING - ASKING) * done / total))
        else:
            self._tell(what, together * READING + (1 - READING) * (done - self._done))

    def _tell(self, what: str, beyond: float) -> None:
        """So many measurements are done beyond those of earlier levels."""
        taken = min((self._done + beyond) / self._total, 1.0)
        if self._model == 0:
            share = OWN * taken
        else:
            each = (1 - OWN) / self._controls
            share = OWN + each * (self._model - 1 + taken)
        name = f"untrained {self._model}: {what}" if self._model else what
        if self._whole:
            self._whole.at(share, name)
