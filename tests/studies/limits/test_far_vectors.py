"""Far queries of models that predict vectors: what is measured of numbers, of their lengths."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from helpers import must_fail
from measured_claims import Measured
from small_models import TASK, make
from vector_tasks import PATHS

from icl_interp.analyses import registry
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.lab import Lab
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Augmented, States
from icl_interp.models.transformer import HookedTransformer
from icl_interp.resampling import Interval
from icl_interp.studies.limits.measurements import between, boundary, certificates, failure, far
from icl_interp.tasks import Polynomial

LIMITS = "limits."
NORMS = (
    *("layernorm_saturation", "layernorm_causes_saturation"),
    *("layernorm_causes_failure", "boundary_immediate"),
)
ALONG = torch.tensor([0.6, 0.8], dtype=torch.float64)  # a unit vector


@dataclass(frozen=True, kw_only=True)
class OnALine(Polynomial):
    """The values of a polynomial, along one direction of the plane."""

    @property
    def n_targets(self):
        return 2

    def value(self, parameters, xs):
        return super().value(parameters, xs)[..., None] * ALONG.to(xs)

    def closed_mean(self, xs):
        return super().closed_mean(xs)

    def features(self, xs):
        return None


def on_a_line(model: HookedTransformer) -> HookedTransformer:
    """The same function, read and written along `ALONG`: a value y is read in as before."""
    settings = {**vars(model.cfg), "d_in": 2, "d_out": 2}
    wide = HookedTransformer(HookedTransformerConfig(**settings), seed=0).double().eval()
    weights = model.state_dict()
    read_in = weights["embed.W_E"]
    # (x, 0) is read in as x e, and (.6 y, .8 y) as .6 y e + .8 y (e / 2) = y e.
    weights["embed.W_E"] = torch.cat([read_in, read_in / 2])
    weights["unembed.W_U"] = weights["unembed.W_U"] * ALONG
    weights["unembed.b_U"] = weights["unembed.b_U"] * ALONG
    wide.load_state_dict(weights)
    return wide


def found_by(measured, model: HookedTransformer, task) -> dict[str, dict[str, float]]:
    """The evidence of the claims on norms, by claim and quantity: value and both ends."""
    names = [LIMITS + name for name in NORMS]
    known: Measured = measured(model, *names, task=task, n_units=4, n_contexts=1)
    found: dict[str, dict[str, float]] = {}
    for name in names:
        evidence = registry.REGISTRY[name].evidence(known.results, known.facts)
        for quantity, one in evidence.items():
            # Facts, and what tells rounding by a mean that is over coordinates, too.
            if quantity in ("learned", "spread", "scale") and not isinstance(one, Interval):
                continue
            ends = {"": one}
            if isinstance(one, Interval | Estimate):
                ends = {"value": one.value, "low": one.low, "high": one.high}
            for end, value in ends.items():
                found.setdefault(name, {})[f"{quantity} {end}"] = float(value)
    return found


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_a_function_that_is_written_along_a_line_is_measured_as_its_number(kind, measured):
    """Distances are lengths, so a direction of the plane changes none of them."""
    model = make(kind)
    of_numbers = found_by(measured, model, TASK)
    task = OnALine(**{name: getattr(TASK, name) for name in vars(TASK)})

    def check():
        of_vectors = found_by(measured, on_a_line(model), task)
        assert of_vectors.keys() == of_numbers.keys()
        for name, quantities in of_numbers.items():
            assert of_vectors[name] == pytest.approx(quantities, rel=1e-6, abs=1e-8, nan_ok=True)

    check()
    if kind == "post":
        return
    for place in (far, between, boundary, failure, certificates):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, "squared_sizes", lambda v: v.norm(dim=-1))
            must_fail(check)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(far, "squares_of", lambda steps: np.square(steps.sel(target=0)).values)
        must_fail(check)


@pytest.mark.parametrize("encoding", [States(), Augmented()])
def test_plateaus_of_vectors_follow_from_weights_however_tokens_show_a_state(encoding):
    """A token may hold more than the state that moves: what it is read in by is its own rows."""
    n = PATHS.dim
    model = make("pre", d_in=encoding.d_in(n, n), d_out=n, n_ctx=16)
    lab = Lab(model, PATHS, encoding, n_units=4, n_contexts=1)

    def check():
        distance = lab.measure(certificates.plateaus)
        assert distance.shape == (4, 2)
        far_out = np.sqrt(distance.values)
        spread = lab.predict(lab.prompts).std()
        assert (far_out < 1e-4 * float(spread)).all()

    check()
    own = certificates._read_in(lab)
    first_rows = model.embed.W_E.detach()[:n]
    for other in (own.flip(0), first_rows):
        lab._begin()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(certificates, "_read_in", lambda lab, other=other: other)
            if not torch.equal(other, own):  # of states the first rows are right
                must_fail(check)


def test_certificates_hold_of_every_coordinate():
    model = make("pre", d_in=2, d_out=2)
    lab = Lab(model, PATHS, States(), n_units=4, n_contexts=2)
    c, r = certificates.certified(lab)

    def check(c, r):
        f = lab.sweep(lab.x_unit * far.DECADES)
        assert ((f - c).abs() <= r).all()

    check(c, r)
    must_fail(check, c, r / 10)
    must_fail(check, c.flip(0), r.flip(0) / 2)


def test_functions_of_paths_are_not_scaled_alone(measured):
    """Each value comes again as an input; queries are moved all the same."""
    model = make("pre", d_in=2, d_out=2)
    lab = Lab(model, PATHS, States(), n_units=4, n_contexts=2)
    errors = lab.measure(failure.failure)
    for place in failure.PLACES:
        missing = bool(errors.sel(place=place, arm="intact").isnull().all())
        assert missing == (place in failure.FUNCTIONS)
        assert errors.sel(place=place, arm="law mean").notnull().all()
    known = measured(model, "limits.layernorm_causes_failure", task=PATHS, n_units=4)
    finding = known.judge("limits.layernorm_causes_failure", r2=0.9)
    places = {row["place"] for row in finding.details}
    assert places == {*failure.QUERIES, *failure.DRAWN}
    assert "its length" in finding.scope
