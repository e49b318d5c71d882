"""All models of known truth, with the verdict that each must get, and what they leave out."""

from icl_interp.studies.autoregression.constructions import maps, units

CONSTRUCTIONS = (*units.CONSTRUCTIONS, *maps.CONSTRUCTIONS)
EXCEPTIONS = {
    **units.EXCEPTIONS,
    **maps.EXCEPTIONS,
    (
        "edits",
        "autoregression.head_identity after a copy of a head and its negative (large)",
    ): "It is about layers of as many heads as coordinates. A head and its negative write nothing "
    "together, and take the head that they copy with them, so too few are left.",
}
