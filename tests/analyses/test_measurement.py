"""Results by measurement, and measurements that have a name each."""

import pytest
from made_up_facts import facts
from small_models import make

from icl_interp.analyses import registry
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import Condition, Criterion
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement, Results
from icl_interp.errors import InputError
from icl_interp.models.tokens import Interleaved
from icl_interp.results import make_table
from icl_interp.studies.limits.measurements import certificates, far


def table(value):
    return make_table({"r": [value]})


def test_a_measurement_or_its_name_finds_the_result():
    results = Results(
        {certificates.certificate.name: table(1.0), "twin/far/certificate": table(2.0)}
    )
    assert results[certificates.certificate] is results["far/certificate"]
    assert results.get(certificates.certificate) is results[certificates.certificate]
    assert results.control[certificates.certificate]["r"].item() == 2.0
    assert certificates.certificate in results
    assert certificates.certificate not in Results(results.control.control)
    assert results.get(far.ends) is None
    assert dict(results) == {name: results[name] for name in results}


def test_a_result_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"unknown result 'far/ends': .*known: far/certificate"):
        Results({"far/certificate": table(1.0)})[far.ends]


def test_it_is_a_mapping_like_any_other():
    results = Results({"far/certificate": table(1.0)})
    assert results.pop("far/ends", None) is None
    assert results.setdefault("far/ends", 3) == 3
    with pytest.raises(KeyError) as missing:
        Results()["far/ends"]
    assert str(missing.value) == "unknown result 'far/ends': (known: )"


@pytest.mark.usefixtures("registry")
def test_two_measurements_of_one_name_are_refused():
    """The second would get the result of the first."""
    words = {
        "kind": "architecture",
        "statement": "s",
        "criterion": Criterion((Condition("r", "", (0, 1), (2, 3)),), terms=""),
    }
    evidence = lambda results, known: Evidence({}, "")  # noqa: E731
    double = Measurement("far/certificate", lambda lab: table(0.0))
    for where in ({"measurements": (double,)}, {"measurements": (), "control": (double,)}):
        with pytest.raises(InputError, match="two measurements are called 'far/certificate'"):
            registry.register(Claim("mine.double", evidence=evidence, **words, **where))
    registry.register(
        Claim("mine.same", measurements=(certificates.certificate,), evidence=evidence, **words)
    )
    lab = Lab(make("pre"), facts().task.with_points(5), Interleaved(), n_units=2, n_contexts=2)
    lab.measure(certificates.certificate)
    with pytest.raises(InputError, match="two measurements are called 'far/certificate'"):
        lab.measure(double)
    assert lab.measure(Measurement("far/other", double.function))["r"].item() == 0.0
