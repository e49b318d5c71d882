"""Values in channels of their own, and before their inputs: tokens, queries, what is read where."""

from dataclasses import replace

import pytest
import torch
from helpers import must_fail
from vector_tasks import LinearMap

import icl_interp
from icl_interp import HookedTransformerConfig, encodings
from icl_interp.checkpoints.config import RunConfig, TrainingConfig
from icl_interp.encodings import Separated, ValuesFirst
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression, Normal

pytestmark = pytest.mark.usefixtures("as_users_run_it")
TASK = LinearRegression(n_dims=2, n_points=4)
VECTORS = LinearMap(n_dims=2, outputs=3, weights=Normal(1.0), inputs=Normal(1.0), n_points=4)
BOTH = pytest.mark.parametrize("encoding", [Separated(), ValuesFirst()])


def separated(prompts):
    """(0, x_1), (y_1, 0), ..., (0, x_query), token by token."""
    no_x, no_y = torch.zeros_like(prompts.xs[:, 0]), torch.zeros_like(prompts.ys[:, 0])
    found = []
    for k in range(prompts.n_points):
        found.append(torch.cat([no_y, prompts.xs[:, k]], -1))
        found.append(torch.cat([prompts.ys[:, k], no_x], -1))
    return torch.stack(found[:-1], 1)


def values_first(prompts):
    """y_1, x_1, ..., x_query, token by token; the narrower of the two ends in zeros."""
    width = max(prompts.xs.shape[-1], prompts.n_targets)

    def wide(numbers):
        out = torch.zeros(len(numbers), width)
        out[:, : numbers.shape[-1]] = numbers
        return out

    found = []
    for k in range(prompts.n_points - 1):
        found += [wide(prompts.ys[:, k]), wide(prompts.xs[:, k])]
    return torch.stack([*found, wide(prompts.xs[:, -1])], 1)


BY_HAND = {Separated: separated, ValuesFirst: values_first}


@BOTH
@pytest.mark.parametrize("task", [TASK, VECTORS], ids=["numbers", "vectors"])
def test_tokens_are_those_by_hand(encoding, task):
    prompts = task.sample(5, generator(0, "labels"))
    found = encoding.encode(prompts)

    def check(wanted):
        assert torch.equal(found, wanted)

    check(BY_HAND[type(encoding)](prompts))
    must_fail(check, encodings.Interleaved().encode(prompts))
    assert found.shape[1] == encoding.n_tokens(4) == len(encoding.kinds(4)) == 7
    assert found.shape[2] == encoding.d_in(2, prompts.n_targets)
    assert encoding.n_points(encoding.n_tokens(4)) == 4
    query = encoding.encode_queries(prompts.xs[:, -1:], prompts.n_targets)
    assert torch.equal(query, found[:, -1:])
    assert encodings.named(encodings.name_of(encoding)) == encoding


@BOTH
def test_no_token_that_is_read_has_seen_the_value_that_it_predicts(encoding):
    """Another value of a point moves no prediction of that point or of an earlier one."""
    cfg = HookedTransformerConfig(
        n_layers=2, d_model=8, n_heads=2, n_ctx=8, d_in=encoding.d_in(2), init_std=0.5
    )
    checkpoint = icl_interp.load(HookedTransformer(cfg), TASK, encoding=encoding)
    prompts = TASK.sample(3, generator(0, "labels"))
    before = checkpoint.predict(prompts)
    read = encoding.read_at(4, "causal")[1]
    assert before[:, read.start :].isfinite().all()
    assert before[:, : read.start].isnan().all()

    def leaks_nothing(changed):
        ys = prompts.ys.clone()
        ys[:, changed] += 10
        after = checkpoint.predict(replace(prompts, ys=ys))
        assert torch.equal(after[:, -1], before[:, -1])

    leaks_nothing(3)
    must_fail(leaks_nothing, 1)


@BOTH
def test_it_is_trained_saved_loaded_and_swept_by_name(encoding, tmp_path):
    name = encodings.name_of(encoding)
    model = HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=8, d_in=encoding.d_in(2))
    training = TrainingConfig(steps=2, batch_size=4, warmup_steps=1)
    run = icl_interp.train(RunConfig(model, TASK, name, training), tmp_path / "run")
    assert icl_interp.load(tmp_path / "run").encoding == encoding
    # Other queries after one context are what whole prompts with them say.
    prompts = TASK.sample(3, generator(0, "labels"))
    with torch.no_grad():
        context = encoding.encode(prompts)[:, :-1]
        query = encoding.queries_after(prompts, prompts.xs[:, -1:] + 1)
        short = run.model.after(run.model.remember(context), query, context.shape[1])
        whole = run.model(torch.cat([context, query], 1))[:, -1:]
    torch.testing.assert_close(short, whole)
