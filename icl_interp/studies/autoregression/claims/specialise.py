"""The claim that heads specialise to coordinates.

States stand in each token more than once.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.studies.autoregression.claims.heads_orthogonal import UPPER, not_learned
from icl_interp.studies.autoregression.measurements.head_coordinates import (
    FOLDED,
    TILED,
    coordinates,
    division,
    needs_tiled_heads,
)
from icl_interp.studies.autoregression.measurements.maps import TINY
from icl_interp.studies.autoregression.measurements.ties import heads_tie, tied_everywhere
from icl_interp.studies.autoregression.measurements.unit import PAPER

MORE = 1.5  # division over the largest that chance gives in 97.5 of 100 draws
NO_MORE = 1.0
OWN = -1  # the "draw" that is the model
QUANTILE = f"{100 * UPPER:g} % quantile"
HIGHEST = f"{QUANTILE} of random heads"

DIVISION = Condition(
    "division",
    "division of coordinates among heads over that of random heads",
    at_least(MORE),
    at_most(NO_MORE, least=0.0),
    unit="times",
    scale="log",
)

CRITERION = Criterion(
    (DIVISION,),
    TIED,
    terms="The division is the mutual information of head and coordinate in |W_Q W_K^T|^2, with "
    "copies of a state added up. It is 0 if all heads attend alike, and 1 if each attends to "
    "coordinates of its own. For random heads, which have the same singular values, the "
    f"{QUANTILE} is taken.",
)


def numbers(result: DataArray, which: str) -> tuple[float, float]:
    """The division of coordinates, and the upper end of chance."""
    found = result.sel(coordinates=which)
    own = float(found.sel(draw=OWN))
    by_chance = found.values[1:]
    return own, float(np.quantile(by_chance, UPPER))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """A ratio of weights, which has no sampling error."""
    result = results[division]
    own, highest = numbers(result, FOLDED)
    ratio = own / max(highest, TINY)
    return {"division": ratio, **tied_everywhere(results[heads_tie])}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The division itself, and that of the coordinates of tokens."""
    result = results[division]
    own, highest = numbers(result, FOLDED)
    of_tokens, by_chance = numbers(result, TILED)
    rows = _by_head(results[coordinates])
    rows.append({"number": f"division, {HIGHEST}", "value": highest})
    rows.append(
        {"number": "division of the coordinates of tokens, copies apart", "value": of_tokens}
    )
    rows.append({"number": f"the same, {HIGHEST}", "value": by_chance})
    return Remarks(
        scope="these weights: no sampling error; the query's and the key's side together",
        caveat=f"The division itself is {own:.3g}; with copies apart it is {of_tokens:.3g} (random "
        f"heads: below {by_chance:.3g}).",
        estimate=Estimate.exactly("division of coordinates among heads", own),
        details=tuple(rows),
    )


def _by_head(shares: DataArray) -> list[dict[str, Any]]:
    """A row for each head: the coordinate that it attends to most."""
    rows = []
    for head in shares.indexes["head"]:
        values = shares.sel(head=head).values
        most = int(np.argmax(values))  # of a head that is 0 all are NaN, and it is the first
        part = float(values[most])
        rows.append({"head": head, "coordinate": most, "part": part})
    return rows


SPECIALISE_CLAIM = Claim(
    id="autoregression.heads_specialise",
    question="attention",
    statement="Heads divide the coordinates of states among themselves more than random heads do.",
    denied="Heads divide the coordinates of states among themselves no more than random heads do.",
    quote=Quote(
        "In addition, as we are duplicating the tokens across dimensions, we can see that heads "
        "become specialized in attending to some coordinates across tokens.",
        f"{PAPER}, section 6, Figure 8",
        "The paper shows a picture. We measure how far heads divide coordinates among themselves, "
        "and compare with random heads. Copies are added up, since no prediction shows how a head "
        "spreads its weight over them. For W drawn by Haar measure the loss does not change when "
        "states are turned about s_0, so it prefers no coordinates. There only the start of "
        "training and its steps can prefer some.",
    ),
    kind="learning",
    reads="weights of the heads",
    criterion=CRITERION,
    measurements=(coordinates, division, heads_tie),
    control=(division,),
    of_control=("division",),
    about_weights=True,
    aspects=("overlap of heads", "shares of heads", "single layer", "depth"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_tiled_heads,
    learned=not_learned,
)
