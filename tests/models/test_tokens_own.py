"""An encoding of one's own works wherever the bundled ones do, as an object and by its name."""

import pytest
import torch
from helpers import must_fail
from torch.nn.functional import pad

import icl_interp
from icl_interp import encodings
from icl_interp.checkpoints.config import RunConfig, TrainingConfig
from icl_interp.errors import InputError
from icl_interp.models import tokens
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it")
TASK = LinearRegression(n_dims=2, n_points=5)
MODEL = icl_interp.HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=10, d_in=3)


class LabelChannel(encodings.Interleaved):
    """(0, x), (y, 0), ...: as in Raventos et al. (2023)."""

    def encode(self, prompts):
        n, n_points, dim = prompts.xs.shape
        out = prompts.xs.new_zeros(n, 2 * n_points, dim + 1)
        out[:, 0::2, 1:] = prompts.xs
        out[:, 1::2, :1] = prompts.ys
        return out[:, :-1]

    def encode_queries(self, xs, n_targets=1):
        return pad(xs, (n_targets, 0))

    def d_in(self, dim, n_targets=1):
        return dim + n_targets


@pytest.fixture
def registered():
    encodings.register(LabelChannel)
    yield LabelChannel
    del tokens.ENCODINGS["LabelChannel"]


@pytest.fixture
def run(registered, tmp_path):
    training = TrainingConfig(steps=3, batch_size=4, warmup_steps=1)
    return icl_interp.train(RunConfig(MODEL, TASK, "LabelChannel", training), tmp_path / "run")


def test_it_is_trained_saved_and_loaded(run, tmp_path):
    assert run.encoding == LabelChannel()
    assert icl_interp.load(tmp_path / "run").encoding == LabelChannel()
    again = icl_interp.load(run.save(tmp_path / "again"))
    prompts = TASK.sample(4, generator(0, "own"))
    torch.testing.assert_close(again.predict(prompts), run.predict(prompts))
    del tokens.ENCODINGS["LabelChannel"]
    with pytest.raises(InputError, match="unknown encoding 'LabelChannel'"):
        icl_interp.load(tmp_path / "run")
    encodings.register(LabelChannel)


@pytest.mark.slow
@pytest.mark.parametrize("named", [LabelChannel(), "LabelChannel"])
def test_it_is_evaluated_probed_and_analysed(run, named):
    icl_interp.load(run.model, TASK, encoding=named)
    table = icl_interp.evaluate(run.model, TASK, encoding=named, n_functions=4, n_contexts=2)
    assert len(table)
    prompts = TASK.sample(4, generator(0, "own"))
    read = icl_interp.probe(run.model, prompts, encoding=named)
    again = icl_interp.probe(run, prompts)
    assert read.keys() == again.keys()
    report = icl_interp.analyze(
        run.model,
        task=TASK,
        encoding=named,
        claims=("limits.layernorm_saturation",),
        n_prompts=16,
        progress=False,
    )
    assert report.model["encoding"] == "LabelChannel"
    assert not report.findings[0].error


def test_one_that_is_not_registered_is_refused_in_a_line():
    model = icl_interp.HookedTransformer(MODEL)

    def ask():
        with pytest.raises(InputError, match=r"call icl_interp\.encodings\.register\(LabelCh"):
            icl_interp.load(model, TASK, encoding=LabelChannel())

    ask()
    encodings.register(LabelChannel)
    must_fail(ask)
    del tokens.ENCODINGS["LabelChannel"]


class Partial(encodings.Encoding):
    """Lacks all."""


class Needs(encodings.Interleaved):
    def __init__(self, more):
        super().__init__()


def other():
    return type("LabelChannel", (encodings.Stacked,), {"__module__": "elsewhere"})


@pytest.mark.parametrize(
    ("cls", "match"),
    [
        (LabelChannel(), "takes a class below"),
        (int, "takes a class below"),
        (Partial, "lacks what every encoding needs: d_in, encode,"),
        (Needs, "must be made without arguments"),
        (other(), "another encoding is called 'LabelChannel' already"),
    ],
)
def test_what_is_no_encoding_is_refused(registered, cls, match):
    with pytest.raises(InputError, match=match):
        encodings.register(cls)
    encodings.register(LabelChannel)  # once more, from the same place
