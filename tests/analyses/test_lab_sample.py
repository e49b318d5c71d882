"""The lab's sample: whose functions are shared, what is read off it, and its largest length.

Nothing goes past the trained length.
"""

import numpy as np
import pytest
import torch
from helpers import must_fail
from pandas import DataFrame
from small_labs import SIZES, XS, bench, same
from small_models import OTHERS, TASK, make

from icl_interp.analyses import facts as facts_module
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement
from icl_interp.analyses.registry import select
from icl_interp.errors import InputError
from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.interventions.base import intervene
from icl_interp.models.tokens import Interleaved
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import LogitLens
from icl_interp.probes.runner import probe as run_probes
from icl_interp.probes.sweep import n_read
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_table
from icl_interp.tasks.functions import Polynomial

pytestmark = pytest.mark.usefixtures("several_chunks")


# ---- the sample ----------------------------------------------------------------------------------


def check_sample(lab: Lab):
    """Contexts of a function stand together, share its parameters and nothing else.

    The same is true of the two functions of a pair.
    """
    prompts = lab.prompts
    shared = prompts.parameters.view(lab.n_units, 2, lab.n_contexts, -1)
    assert (shared == shared[:, :, :1]).all()
    assert len(shared[:, :, 0].flatten(0, 1).unique(dim=0)) == 2 * lab.n_units
    assert torch.equal(shared[:, 0], -shared[:, 1])  # the law of coefficients is centred
    xs = prompts.xs[:, :, 0].view(lab.n_units, 2, lab.n_contexts, -1)
    assert torch.equal(xs[:, 0], xs[:, 1])
    assert len(xs[:, 0].flatten(0, 1).unique(dim=0)) == lab.n_units * lab.n_contexts
    assert prompts.function.tolist() == [
        f for f in range(2 * lab.n_units) for _ in range(lab.n_contexts)
    ]
    assert prompts.xs.dtype == torch.float64


def test_contexts_of_a_function_share_its_parameters():
    lab = bench(n_units=4, n_contexts=5)
    check_sample(lab)
    lab.prompts = lab.prompts[torch.randperm(40, generator=generator(0, "test/shuffle"))]
    must_fail(check_sample, lab)


def test_without_symmetry_a_unit_is_a_function():
    """Functions of a law that is not symmetric about its mean: one each, in twice the contexts."""

    class OneSided(Polynomial):
        paired = False

    task = OneSided(degrees=(1,), inputs=TASK.inputs, coefficients=TASK.coefficients, n_points=7)
    lab = Lab(make("pre"), task, Interleaved(), n_units=4, n_contexts=3)
    assert lab.prompts.function.tolist() == [f for f in range(4) for _ in range(6)]
    assert len(lab.prompts.xs[:, :, 0].unique(dim=0)) == 24
    assert (lab.units_in(lab.prompts), lab.units_in(lab.one_each), lab.unit_size) == (4, 4, 6)
    assert lab.few.function.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert torch.equal(lab.few.xs, lab.prompts.xs[[0, 1, 6, 7, 12, 13, 18, 19]])


def test_fresh_units():
    lab = bench(n_units=4, n_contexts=5)
    fresh = lab.units("test/fresh", n_contexts=2)
    assert len(fresh) == 16
    assert lab.units_in(fresh) == 4
    assert torch.equal(fresh.ys, lab.units("test/fresh", n_contexts=2).ys)
    assert not torch.equal(fresh.ys, lab.units("test/other", n_contexts=2).ys)
    assert len(lab.units("test/fresh", n_units=7)) == 14


def test_controls_and_the_matched_model_meet_the_same_functions():
    lab = Lab(make("pre"), TASK, Interleaved(), **SIZES, matched=make("no norm"))
    for control in lab.controls:
        assert torch.equal(control.prompts.parameters, lab.few.parameters)
    assert torch.equal(lab.matched.prompts.xs, lab.prompts.xs)
    assert bench().matched is None
    assert not same(lab.control.sweep(XS), lab.sweep(XS, prompts=lab.few))
    assert lab.control.model.cfg == lab.model.cfg


def test_weights_of_controls_do_not_depend_on_the_sample():
    def weights(**settings) -> list[torch.Tensor]:
        lab = Lab(make("pre"), TASK, Interleaved(), **SIZES, **settings)
        return [control.model.unembed.W_U.flatten() for control in lab.controls]

    first, other = torch.stack(weights()), torch.stack(weights(seed=5))
    assert torch.equal(first, other)
    assert len(first.unique(dim=0)) == 3
    wider = make("pre", d_model=24).cfg
    assert weights(control_config=wider)[0].numel() == 2 * first.shape[1]


def test_smaller_samples_keep_whole_units():
    lab = bench(n_units=3, n_contexts=5)
    assert torch.equal(lab.one_each.xs, lab.prompts.xs[[0, 10, 20]])
    assert lab.few.function.tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.equal(lab.few.xs, lab.prompts.xs[[0, 5, 10, 15, 20, 25]])


def check_read_once(lab: Lab):
    """Where the smaller sample is the whole one it is the same object, read once by sweeps."""
    assert n_read([lab.ask(XS), lab.ask(XS, prompts=lab.few)]) == len(lab.prompts)


def test_whole_samples_are_read_once():
    check_read_once(bench(n_units=3, n_contexts=1))
    must_fail(check_read_once, bench(n_units=3, n_contexts=2))


def test_means_over_units():
    lab = bench()
    values = torch.arange(24.0).double().view(12, 2)
    expected = [
        [np.mean([values[4 * u + c, k].item() for c in range(4)]) for k in range(2)]
        for u in range(3)
    ]
    assert np.allclose(lab.by_unit(values), expected, rtol=1e-12)
    assert lab.by_unit(torch.arange(6.0).double()).tolist() == [0.5, 2.5, 4.5]  # two prompts each
    assert lab.by_unit(torch.arange(4.0).double(), lab.few[:4]).tolist() == [
        0.5,
        2.5,
    ]  # of two units


def test_own_queries_and_truth():
    for name in ("causal interleaved", "bidirectional stacked"):
        lab = bench(name)
        with torch.no_grad():
            expected = lab.model(lab.encoding.encode(lab.prompts))[:, -1:]
        assert same(lab.sweep(), expected)
        assert same(lab.sweep(prompts=lab.few), expected[[0, 2, 4, 6, 8, 10]])
        assert not same(lab.sweep(prompts=lab.few), expected[:6])
    a, b = lab.prompts.parameters.T
    assert same(
        as_numbers(lab.truth(XS)), a[:, None] + b[:, None] * torch.tensor(XS, dtype=torch.float64)
    )


def check_last_predictions(lab: Lab):
    """In float32, at the query of any prompts; probes read there only, and change nothing."""
    probes = [Activations(["blocks.1.hook_resid_post"]), LogitLens(per_prompt=True)]
    for prompts in (lab.prompts, lab.few, OTHERS.double().first(4)):
        with torch.no_grad():
            out, cache = lab.single.run_with_cache(lab.encoding.encode(prompts).float())
        found = lab.last_predictions(prompts)
        assert found.dtype == torch.float32
        assert found.shape == (len(prompts), 1)
        assert torch.allclose(found, out[:, -1], rtol=1e-5, atol=1e-5)
        assert torch.allclose(lab.last_predictions(prompts, probes), found, rtol=1e-5, atol=1e-5)
        (stream,) = probes[0].recorded.values()
        assert torch.allclose(
            stream, cache["blocks.1.hook_resid_post"][:, -1:], rtol=1e-5, atol=1e-5
        )
        seen = probes[1].results()["prediction"].sel(depth=2, position="query", target=0).values
        assert np.allclose(seen, out[:, -1, 0], rtol=1e-5, atol=1e-5)
    assert not any(hook.has_hooks() for hook in lab.single.hook_dict.values())


@pytest.mark.parametrize(
    "name", ["causal interleaved", "causal stacked", "bidirectional stacked", "post-norm"]
)
def test_predictions_of_whole_prompts(name):
    check_last_predictions(bench(name))


def test_predictions_at_another_point_are_noticed():
    class OnePointEarlier(Lab):
        def last_predictions(self, prompts, probes=()):
            return super().last_predictions(prompts.first(prompts.n_points - 1), probes)

    must_fail(check_last_predictions, bench(lab_class=OnePointEarlier))


def check_read(lab: Lab, read):
    """Probes of whole prompts see the float64 model, at every kind of position."""
    p = LayerNormScale(per_prompt=True)
    read(lab.few, [p])
    with torch.no_grad():
        _, cache = lab.model.run_with_cache(lab.encoding.encode(lab.few))
    found, scale = p.results()["scale"].sel(norm="ln_final"), cache["ln_final.hook_scale"][..., 0]
    assert np.allclose(found.sel(position="query").values, scale[:, -1], rtol=1e-12)
    assert np.allclose(found.sel(position="y").values, scale[:, 1::2].mean(1), rtol=1e-12)


def test_probes_read_whole_prompts_in_float64():
    lab = bench()
    check_read(lab, lab.read)
    must_fail(
        check_read,
        lab,
        lambda prompts, probes: run_probes(lab.single, prompts, probes, lab.encoding),
    )


def test_predictions_are_the_models_own():
    """In float32, at every point from the one that the function is determined by."""
    for name in ("causal interleaved", "causal stacked", "bidirectional stacked"):
        lab = bench(name)
        out, truth = lab.predictions()
        read, points = lab.encoding.read_at(7, lab.model.cfg.attention_dir)
        with torch.no_grad():
            expected = lab.model(lab.encoding.encode(lab.few))[:, list(read)]
        first = max(2, points.start)
        assert out.shape == truth.shape
        assert torch.allclose(out, expected[:, first - points.start :], atol=1e-4)
        assert torch.equal(truth, lab.few.ys[:, first:])
        edited, _ = lab.predictions(SwapPattern("uniform"))
        assert not torch.allclose(out, edited, atol=1e-3)


def test_references_come_from_the_lab_and_not_from_elsewhere():
    lab = bench()
    with torch.no_grad():
        _, cache = lab.model.run_with_cache(lab.encoding.encode(lab.few))
        _, other = lab.model.run_with_cache(Interleaved().encode(OTHERS).double())
    expected = cache["ln_final.hook_scale"].mean(0)
    assert same(lab.frozen.scales["ln_final"], expected)
    assert not same(lab.frozen.scales["ln_final"], other["ln_final.hook_scale"].mean(0))
    assert same(lab.head_means.means[1], cache["blocks.1.attn.hook_z"].mean(0))


def test_the_model_given_stays_as_it_was():
    model = make("pre").float()
    lab = Lab(model, TASK, Interleaved(), **SIZES)
    lab.sweep(XS, query=[lab.frozen.at_query()])
    lab.predictions(SwapPattern("uniform"))
    assert next(model.parameters()).dtype == torch.float32
    assert all(p.requires_grad for p in model.parameters())
    assert not any(hook.has_hooks() for hook in model.hook_dict.values())
    assert not any(hook.has_hooks() for hook in lab.model.hook_dict.values())


def test_a_sample_needs_two_of_each():
    for sizes in ({"n_units": 1}, {"n_contexts": 0}):
        with pytest.raises(InputError, match="at least 2 units and 1 context"):
            bench(**sizes)


# ---- lengths -------------------------------------------------------------------------------------


def check_length(lab_class: type[Lab], *claims: str):
    """n_ctx = 16 lies: 13 tokens were trained.

    What W_pos holds beyond these tokens must never be read.
    """
    results = {}
    for poison in (0.0, 1e3):
        model = make("pre")
        with torch.no_grad():
            model.pos_embed.W_pos[13:] = poison
        lab = lab_class(model, TASK, Interleaved(), **SIZES)
        known = Facts.of(model, TASK, "interleaved", {"error": 0.0, "r2": 1.0})
        wanted = {
            m.name: m
            for c in select(claims or None)
            if not c.exclusion(known)
            for m in c.measurements
        }
        for error in lab.measure_all(list(wanted.values())).values():
            raise error
        results[poison] = {name: lab.results[name] for name in wanted}
    clean, poisoned = results.values()
    for name, result in clean.items():
        if isinstance(result, DataFrame):
            assert str(result.columns) == str(poisoned[name].columns), name
        else:
            assert np.array_equal(result.values, poisoned[name].values, equal_nan=True), name


@pytest.mark.slow
def test_no_measurement_goes_past_the_trained_length(monkeypatch):
    check_length(Lab)

    class OnePointMore(Lab):
        def __init__(self, model, task, *args, **kwargs):
            super().__init__(model, task.with_points(task.n_points + 1), *args, **kwargs)

    for claim in (
        "limits.softmax_uniform",
        "limits.context_erased",
        "limits.layernorm_causes_failure",
    ):
        must_fail(check_length, OnePointMore, claim)


def test_a_measurement_is_taken_once():
    calls = []

    def count(lab):
        calls.append(lab)
        return make_table({"n": [len(calls)]})

    lab, counted = bench(), Measurement("test/count", count)
    assert [lab.measure(counted)["n"].tolist() for _ in range(2)] == [[1], [1]]
    assert list(lab.results) == ["test/count"]
    assert lab.control.measure(counted)["n"].tolist() == [2]
    assert set(lab.results) == {"test/count", "twin/test/count"}
    assert calls == [lab, lab.control]


def test_looking_at_results_makes_no_control():
    lab = bench()
    assert lab.results == {}
    assert "control" not in vars(lab)


def check_reader(reader_dtype):
    lab = bench()
    assert lab.reader.unembed.W_U.dtype == reader_dtype
    f = lab.sweep((0.3, 1e4, 1e6))
    assert f.dtype == torch.float64
    return f


def test_contexts_of_a_large_model_are_read_in_float32(monkeypatch):
    plain = check_reader(torch.float64)
    monkeypatch.setattr(facts_module, "LARGE", 10)
    mixed = check_reader(torch.float32)
    assert not torch.equal(mixed, plain)
    assert torch.allclose(mixed, plain, rtol=1e-5, atol=1e-5)
    must_fail(check_reader, torch.float64)


def test_interventions_on_the_model_of_a_lab_reach_the_contexts_of_a_large_one(monkeypatch):
    monkeypatch.setattr(facts_module, "LARGE", 10)
    lab = bench()
    intact = lab.sweep((0.3,))
    with intervene(lab.model, Temperature(3.0)):
        edited = lab.sweep((0.3,))
    whole = lab.sweep((0.3,), context=(Temperature(3.0),), query=(Temperature(3.0),))
    assert not torch.allclose(edited, intact, rtol=1e-3)
    assert torch.allclose(edited, whole, rtol=1e-5)
