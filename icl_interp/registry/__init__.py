"""A registry of verdicts: many claims on many checkpoints, judged again, with their error rate."""

from icl_interp.registry.discoveries import adjusted, of_planted
from icl_interp.registry.entry import Entry, version_of
from icl_interp.registry.folder import Registry, add, read, state
from icl_interp.registry.from_report import entries_of
from icl_interp.registry.judging import judge
from icl_interp.registry.table import Table, differences

__all__ = [
    "Entry",
    "Registry",
    "Table",
    "add",
    "adjusted",
    "differences",
    "entries_of",
    "judge",
    "of_planted",
    "read",
    "state",
    "version_of",
]
