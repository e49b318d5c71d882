"""The claim that heads specialise to coordinates.

States stand in each token more than once.
"""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
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
from icl_interp.studies.autoregression.measurements.unit import PAPER, SOURCE

MORE, NO_MORE = (
    1.5,
    1.0,
)  # division of coordinates among heads, over the largest that chance gives in 97.5 of 100 draws
OWN = -1  # the "draw" that is the model

SPECIALISE = Criterion(
    (Condition("division", "", (MORE, INF), (0.0, NO_MORE), scale="log"),),
    TIED,
    terms=(
        "how far different heads divide the coordinates of states among themselves (mutual information "
        "of head and coordinate in |W_Q W_K^T|^2, copies of a state added up), over the "
        f"{100 * UPPER:g} % quantile of random heads with the same singular values: >= {MORE:g} / <= "
        f"{NO_MORE:g}"
    ),
)


def numbers(result: DataArray, which: str = FOLDED) -> tuple[float, float]:
    """The division of coordinates, and the upper end of chance."""
    found = result.sel(coordinates=which)
    return float(found.sel(draw=OWN)), float(np.quantile(found.values[1:], UPPER))


def quantities(result: DataArray) -> dict[str, Estimate]:
    """What the criterion asks for: a ratio of weights, which has no sampling error."""
    own, highest = numbers(result)
    ratio = own / max(highest, TINY)
    return {
        "division": Estimate.exactly(
            f"division of coordinates among heads / the {100 * UPPER:g} % quantile of random heads",
            ratio,
        )
    }


def evidence(results: Results, facts: Facts) -> Evidence:
    """Do heads divide the coordinates of tokens among themselves more than random ones?"""
    result = results[division]
    (own, highest), (of_tokens, by_chance) = numbers(result), numbers(result, TILED)
    asked = {**quantities(result), **tied_everywhere(results[heads_tie])}
    says = answer(
        SPECIALISE,
        asked,
        "Heads divide the coordinates of states among themselves.",
        "Heads divide the coordinates of states no more than random heads do.",
        "heads divide the coordinates of states among themselves",
    )
    threshold = bound(
        SPECIALISE, asked, "division", f"at least {MORE:g} times", f"at most {NO_MORE:g} times"
    )
    says += (
        f" Their division is {own:.3g} (0: all attend alike, 1: each to its own), "
        f"{asked['division'].value:.3g} times the upper end for random heads ({threshold})."
    )
    caveat = (
        f"The coordinates of tokens, copies apart, are divided by {of_tokens:.3g} (random heads: "
        "below "
    )
    caveat += f"{by_chance:.3g})."
    return Evidence(
        asked,
        says,
        estimate=Estimate.exactly("division of coordinates among heads", own),
        scope="these weights: no sampling error; the query's and the key's side together",
        control=quantities(results.control[division]),
        details=(
            *details(results[coordinates]),
            {"number": f"division, {100 * UPPER:g} % quantile of random heads", "value": highest},
            {"number": "division of the coordinates of tokens, copies apart", "value": of_tokens},
            {"number": f"the same, {100 * UPPER:g} % quantile of random heads", "value": by_chance},
        ),
        caveat=caveat,
    )


def details(parts: DataArray) -> tuple[dict[str, Any], ...]:
    """A row for each head: the coordinate that it attends to most."""
    rows = []
    for head in parts.indexes["head"]:
        values = parts.sel(head=head).values
        most = int(np.argmax(values))  # of a head that is 0 all are NaN, and it is the first
        rows.append({"head": head, "coordinate": most, "part": float(values[most])})
    return tuple(rows)


SPECIALISE_CLAIM = Claim(
    id="autoregression.heads_specialise",
    question="attention",
    short="With tiled states heads specialise to coordinates.",
    quote=Quote(
        "In addition, as we are duplicating the tokens across dimensions, we can see that heads "
        "become specialized in attending to some coordinates across tokens.",
        f"{PAPER}, section 6, Figure 8",
        "The paper shows a picture. We measure how far heads divide coordinates among themselves, "
        "beside random heads. Copies are added up, since no prediction shows how a head spreads "
        "its weight over them. For W drawn by Haar measure the loss does not change when states "
        "are turned about s_0, so that it names no coordinates: what singles them out there is "
        "where training starts, and how it steps.",
    ),
    kind="learning",
    statement="Where states stand in each token more than once, heads divide the coordinates of "
    "states among themselves",
    source=f"{SOURCE}, section 6, Figure 8",
    criterion=SPECIALISE,
    measurements=(coordinates, division, heads_tie),
    control=(division,),
    about_weights=True,
    aspects=("overlap of heads", "shares of heads", "single layer", "depth"),
    evidence=evidence,
    excluded=needs_tiled_heads,
    learned=not_learned,
)
