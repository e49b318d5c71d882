"""Kinds of files and models that can be read: a file for each format, tried in a fixed order."""

from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.checkpoints.formats.registry import FORMATS, find

__all__ = ["FORMATS", "Format", "Given", "Parts", "Source", "find"]
