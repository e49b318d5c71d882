"""Named streams of randomness, and configs as JSON."""

import itertools
import json
import math
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
import tiny_runs
import torch
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st

from icl_interp import provenance
from icl_interp.checkpoints.config import parse
from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import canonical, decode, encode, environment, generator, run_id
from icl_interp.tasks import Continuous, Normal, Polynomial, Uniform
from icl_interp.tasks.functions import KINDS

STREAMS = [
    (0, "train/prompts", 0, 0),
    (1, "train/prompts", 0, 0),
    (0, "train/prompts", 1, 0),
    (0, "train/prompts", 0, 1),
    (0, "evaluation", 0, 0),
    (0, "train/prompts/1", 0, 0),
    (0, "train/prompts", 10, 0),
    (10, "train/prompts", 0, 0),
]
N = 10_000


# ---- streams -------------------------------------------------------------------------------------


def check_deterministic(make):
    for stream in STREAMS:
        assert torch.equal(
            torch.rand(9, generator=make(*stream)), torch.rand(9, generator=make(*stream))
        )


def check_independent(make):
    """Every two streams are uncorrelated: within 4 standard errors, also when one of them is shifted by a draw."""
    draws = [torch.randn(N, generator=make(*stream)) for stream in STREAMS]
    for a, b in itertools.combinations(draws, 2):
        for shift in (0, 1):
            assert abs((a[shift:] * b[: N - shift]).mean()) < 4 / math.sqrt(N)


SHARED = torch.Generator().manual_seed(0)
MUTANTS = {
    "one generator for all": (check_deterministic, lambda *stream: SHARED),
    "no step": (check_independent, lambda seed, name, step, rank: generator(seed, name, 0, rank)),
    "no rank": (check_independent, lambda seed, name, step, rank: generator(seed, name, step)),
    "no name": (check_independent, lambda seed, name, step, rank: generator(seed, "", step, rank)),
    "no seed": (check_independent, lambda seed, name, step, rank: generator(0, name, step, rank)),
    "sum": (
        check_independent,
        lambda seed, name, step, rank: generator(seed + step, name, 0, rank),
    ),
}


def test_streams_are_deterministic_and_independent():
    check_deterministic(generator)
    check_independent(generator)


@pytest.mark.parametrize("name", MUTANTS)
def test_streams_that_are_not_are_noticed(name):
    must_fail(*MUTANTS[name])


def check_untouched(do):
    def states():
        _, keys, position, *gauss = np.random.get_state()  # noqa: NPY002
        return torch.get_rng_state().tolist(), keys.tolist(), position, gauss

    before = states()
    do()
    assert states() == before


def test_no_global_generator_is_touched():
    def everything():
        task = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Normal(1), n_points=4)
        task.sample(3, generator(0, "test"))
        HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=4, n_ctx=8))

    check_untouched(everything)
    must_fail(check_untouched, lambda: torch.rand(1))
    must_fail(check_untouched, lambda: np.random.rand(1))  # noqa: NPY002


# ---- configs -------------------------------------------------------------------------------------


NUMBERS = st.floats(-1e9, 1e9, allow_nan=False, allow_subnormal=False)
WIDTHS = st.floats(0.1, 1e9)
POINTS = st.integers(2, 50)


def laws(number, width):
    return Uniform(number, number + abs(number) + width), Normal(width, mean=number)


def check_round_trip(value, trip):
    back = trip(value)
    assert type(back) is type(value)
    assert back == value


def through_json(value):
    return decode(json.loads(json.dumps(encode(value))), KINDS)


@given(
    number=NUMBERS,
    width=WIDTHS,
    n_points=POINTS,
    degrees=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    function=st.sampled_from(["sin", "abs"]),  # exp refuses laws that reach as far as some of these
)
def test_what_is_encoded_decodes_to_the_same(number, width, n_points, degrees, function):
    a, b = laws(number, width)
    for task in (
        Polynomial(degrees=tuple(degrees), inputs=a, coefficients=b, n_points=n_points),
        Continuous(function=function, inputs=b, amplitude=a, n_points=n_points),
        Continuous(function=function, inputs=a, n_points=n_points),
    ):
        check_round_trip(task, through_json)


def test_a_lossy_encoding_is_noticed():
    task = Polynomial(degrees=(1,), inputs=Normal(1 / 3), coefficients=Normal(1), n_points=4)

    def rounding(value):
        return decode(
            json.loads(json.dumps(encode(value)), parse_float=lambda text: round(float(text), 6)),
            KINDS,
        )

    check_round_trip(task, through_json)
    must_fail(check_round_trip, task, rounding)
    must_fail(check_round_trip, task, lambda value: encode(value))


def test_whole_runs_round_trip():
    run = tiny_runs.config(
        training={
            "curriculum": {"first_points": 2, "until": 4, "degrees": [[0, [0]], [3, [0, 1]]]}
        },
        model={"eps": 1e-7},
    )
    check_round_trip(run, lambda value: parse(json.loads(json.dumps(encode(value)))))
    assert run.training.curriculum.degrees == ((0, (0,)), (3, (0, 1)))


LAW = {"kind": "Uniform", "low": -1, "high": 1}


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (
            {"kind": "Unifrom", "low": 0, "high": 1},
            "unknown kind in config 'Unifrom': did you mean 'Uniform'",
        ),
        ({"kind": ["Uniform"]}, r"unknown kind in config \['Uniform'\]"),
        ({**LAW, "hihg": 1}, "unknown key in config 'hihg': did you mean 'high'"),
        ({"kind": "Uniform", "low": 0}, "config lacks the key 'high' that Uniform needs"),
        (
            {"kind": "Uniform", "low": 0, "high": "1e-3"},
            "config.high must be a number, but got '1e-3'.*write 1.0e-3",
        ),
        ({"kind": "Uniform", "low": 0, "high": True}, "config.high must be a number, but got True"),
        ({"kind": "Uniform", "low": 0, "high": None}, "config.high must be a number, but got None"),
        ({"kind": "Uniform", "low": 1, "high": 0}, "lower first"),
        (
            {"kind": "Polynomial", "inputs": {**LAW, "lo": 1}},
            "unknown key in config.inputs 'lo': did you mean 'low'",
        ),
        (
            {
                "kind": "Polynomial",
                "inputs": LAW,
                "coefficients": LAW,
                "degrees": [1],
                "n_points": 4.0,
            },
            "config.n_points must be a whole number, but got 4.0",
        ),
    ],
)
def test_what_can_not_be_decoded_is_refused_by_name(data, match):
    with pytest.raises(InputError, match=match) as refused:
        decode(data, KINDS)
    assert "\n" not in str(refused.value)


@dataclass(frozen=True)
class Settings:
    name: str
    scale: float = 1.0
    limit: int | None = None
    exact: bool = False


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"name": "a", "scale": 2, "limit": None, "exact": True}, None),
        ({"name": 3}, "here.name must be text, but got 3"),
        ({"name": "a", "exact": 1}, "here.exact must be true or false, but got 1"),
        ({"name": "a", "limit": "3"}, "here.limit must be a whole number, but got '3'"),
        ({"name": "a", "limit": 1.5}, "here.limit must be a whole number, but got 1.5"),
        ({"name": "a", "scale": "fast"}, "here.scale must be a number, but got 'fast'"),
        (
            {"name": "a", "scale": 10**400},
            "here.scale must be a finite number of at most 1.8e308, but got <a whole",
        ),
        (
            {"name": "a", "scale": -(10**5000)},
            "here.scale must be a finite number of .* but got <a whole",
        ),
        (
            {"name": "a", "scale": math.nan},
            "here.scale must be a finite number of at most 1.8e308, but got nan",
        ),
        (
            {"name": "a", "scale": -math.inf},
            "here.scale must be a finite number of at most 1.8e308, but got -inf",
        ),
        ({"name": "a", "scale": 10**308, "limit": 2**63 - 1}, None),
        (
            {"name": "a", "limit": 2**63},
            "here.limit must be a whole number of at most 64 bits, but got 922337203685",
        ),
    ],
)
def test_scalars_are_of_the_kind_the_field_names(values, match):
    if match is None:
        assert provenance.build(Settings, values, "here") == Settings(**values)
        return
    with pytest.raises(InputError, match=match):
        provenance.build(Settings, values, "here")


def test_run_ids_name_configs():
    a = tiny_runs.config()
    assert run_id(a) == run_id(tiny_runs.config())
    assert run_id(a) != run_id(replace(a, training=replace(a.training, seed=1)))
    assert re.fullmatch("[0-9a-f]{12}", run_id(a))
    assert (
        canonical({"b": (1, 2), "a": 0.1})
        == canonical({"a": 0.1, "b": [1, 2]})
        == '{"a":0.1,"b":[1,2]}'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"a": math.nan})


def test_the_environment_names_versions_and_nobody():
    assert set(environment()) == {
        "python",
        "system",
        "machine",
        "icl-interp",
        "torch",
        "transformer-lens",
        "numpy",
    }
    assert environment()["torch"].split("+")[0] == torch.__version__.split("+")[0]
