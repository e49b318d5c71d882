"""Reproductions: experiments run, written down and shown."""

from icl_interp.reproduction.run import Reproduction, reproduce

__all__ = ["Reproduction", "reproduce"]
