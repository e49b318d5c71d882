"""Encodings, which turn prompts into tokens, and `register` for one of your own."""

from icl_interp.models.tokens import (
    ENCODINGS,
    Augmented,
    Driven,
    Encoding,
    Interleaved,
    Separated,
    Stacked,
    States,
    ValuesFirst,
    name_of,
    named,
    register,
)

__all__ = [
    "ENCODINGS",
    "Augmented",
    "Driven",
    "Encoding",
    "Interleaved",
    "Separated",
    "Stacked",
    "States",
    "ValuesFirst",
    "name_of",
    "named",
    "register",
]
