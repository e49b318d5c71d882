"""Kinds of files and models that can be read: one file a format, and one list that is tried in order."""

from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.checkpoints.formats.registry import FORMATS, find

__all__ = ["FORMATS", "Format", "Given", "Parts", "Source", "find"]
