"""A recipe with other settings, as a model of an experiment."""

import re
from dataclasses import dataclass

from icl_interp.experiments.base import Model


@dataclass(frozen=True)
class VariedModel(Model):
    """A recipe with other settings; each study has a function that makes them.

    Attributes:
        label: what differs, in words: it tells the models of one recipe apart, and so do their
            folders.
    """

    label: str = ""

    @property
    def name(self) -> str:
        """Its name in results."""
        words = f"{self.recipe}, {self.label}" if self.label else self.recipe
        return words if self.seed == 0 else f"{words}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """The name of its run folder."""
        return re.sub(r"[^a-z0-9.]+", "_", self.name.lower())
