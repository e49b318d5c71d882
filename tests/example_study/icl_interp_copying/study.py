"""The study's table of contents: what the entry point in pyproject.toml names."""

from icl_interp.studies import Study
from icl_interp_copying.constructions import CONSTRUCTIONS, DIALS
from icl_interp_copying.last_label import FIGURE, LAST_LABEL_CLAIM

STUDY = Study(
    "copying",
    "CONTRIBUTING.md, the worked example",
    claims=(LAST_LABEL_CLAIM,),
    figures={"last_label": FIGURE},
    constructions=CONSTRUCTIONS,
    dials=DIALS,
)
