"""Roles of heads whose patterns are planted, and maps whose composition is known."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import must_fail
from own_hooks import adapted
from small_models import PROMPTS, TASK, make

from icl_interp.errors import InputError
from icl_interp.figures import head_roles
from icl_interp.interventions.base import Intervention, intervene
from icl_interp.models.blank import blank
from icl_interp.models.tokens import Interleaved
from icl_interp.probes import composition, map_orthogonality, ov_spectrum, roles

PREVIOUS, PAIRS, LABELS, NEAR, EVEN, ANYWHERE = range(6)


class Planted(Intervention):
    """Patterns of six heads in each layer; the fourth looks at x, which the stream holds."""

    def hooks(self, model):
        return [
            ("hook_embed", self._keep),
            *((f"blocks.{i}.attn.hook_pattern", self._put) for i in range(model.cfg.n_layers)),
        ]

    def _keep(self, t, hook):
        self.tokens = t[..., 0]

    def _put(self, t, hook):
        n = t.shape[-1]
        out = torch.zeros_like(t)
        seen = torch.ones(n, n, dtype=torch.bool).tril()
        even = seen / seen.sum(-1, keepdim=True)
        eye = torch.eye(n, dtype=t.dtype)
        before = torch.cat([eye[:1], eye[:-1]])
        out[:, PREVIOUS] = before
        labels = torch.zeros(n, dtype=torch.bool)
        labels[1::2] = True
        out[:, PAIRS] = torch.where(labels[:, None], before, even)
        out[:, LABELS] = torch.where(labels & seen, 1.0, 1e-9).tril()
        out[:, LABELS] /= out[:, LABELS].sum(-1, keepdim=True)
        away = (self.tokens[:, :, None] - self.tokens[:, None]).abs()
        hidden = ~seen | labels | torch.eye(n, dtype=torch.bool)
        hidden[0, 0] = False
        out[:, NEAR] = (-20 * away).masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num(0)
        out[:, EVEN] = even
        draw = torch.rand(t.shape[0], n, n, generator=torch.Generator().manual_seed(1))
        out[:, ANYWHERE] = (6 * draw).masked_fill(~seen, -torch.inf).softmax(-1)
        return out


@pytest.fixture(scope="module")
def table():
    model = make("pre", n_heads=6, d_head=2)
    with torch.no_grad():
        model.embed.W_E[0, 0] = 1
        model.embed.b_E.zero_()
        with intervene(model, Planted()):
            held = SimpleNamespace(model=model, encoding=Interleaved(), task=TASK)
            return roles(held, PROMPTS)


def check_role(table, role, heads, least):
    """Those heads have the role, and no other head scores half as much."""
    scores = table[(table["role"] == role) & (table["layer"] == 1)].set_index("head")["score"]
    assert (scores[heads] >= least).all()
    others = scores.drop(heads).dropna()
    assert (others < least / 2).all()


@pytest.mark.parametrize(
    ("role", "heads", "least"),
    [
        ("previous token", [PREVIOUS], 0.999),
        ("pairs a value with its input", [PREVIOUS, PAIRS], 0.999),
        ("labels", [PREVIOUS, LABELS], 0.999),
        ("neighbours", [NEAR], 0.8),
        ("duplicates", [NEAR], 0.3),
    ],
)
def test_planted_roles_are_found(table, role, heads, least):
    if role == "previous token":  # half of the tokens are labels, so this is no other role
        table = table[table["head"] != PAIRS]
    check_role(table, role, heads, least)
    must_fail(check_role, table, role, [ANYWHERE], least)


def test_what_is_the_same_in_all_prompts_is_by_position(table):
    scores = table[(table["role"] == "position only") & (table["layer"] == 0)]
    scores = scores.set_index("head")["score"]
    assert (scores[[PREVIOUS, PAIRS, LABELS]] > 0.999).all()
    assert abs(scores[ANYWHERE]) < 0.1
    assert np.isnan(scores[EVEN])


def test_p_values_tell_roles_from_chance(table):
    by = table.set_index(["layer", "head", "role"])
    assert by.loc[(1, NEAR, "neighbours"), "p"] < 1e-6
    assert by.loc[(1, ANYWHERE, "neighbours"), "p"] > 0.05
    assert by.loc[(1, ANYWHERE, "previous token"), "p"] > 0.05
    drawn = head_roles(table)
    assert len(drawn.data[0].y) == 12
    # Names of roles are broken, so that they do not lie over each other in a column.
    assert "pairs a<br>value with<br>its input" in drawn.data[0].x


# ---- maps ----------------------------------------------------------------------------------------


def dense_scores(model, kind):
    """By dense maps of a model without norms: (writer, reader)."""
    written = (model.W_V @ model.W_O)[0]
    by_kind = {
        "Q": model.W_Q[1] @ model.W_K[1].mT,
        "K": model.W_K[1] @ model.W_Q[1].mT,
        "V": model.W_V[1] @ model.W_O[1],
    }
    products = written[:, None] @ by_kind[kind]
    sizes = written.norm(dim=(1, 2))[:, None] * by_kind[kind].norm(dim=(1, 2))
    return products.norm(dim=(2, 3)) / sizes


def check_scores(table, kind, expected):
    own = table[table["kind"] == kind].sort_values(["writer_head", "reader_head"])
    scores = own["score"].to_numpy().reshape(expected.shape)
    np.testing.assert_allclose(scores, expected.detach().numpy(), rtol=1e-9)


def test_composition_is_that_of_dense_maps():
    model = make("no norm")
    table = composition(model, n_random=400)
    for kind in ("Q", "K", "V"):
        check_scores(table, kind, dense_scores(model, kind))
    must_fail(check_scores, table, "Q", dense_scores(model, "K"))
    # Of random heads the mean square is 1 / D exactly.
    np.testing.assert_allclose(table["random"], 12**-0.5, rtol=0.1)
    assert ((table["p"] > 0.01) & (table["p"] <= 1)).mean() > 0.8


def test_a_head_that_reads_what_another_writes_stands_out():
    model = blank(16, n_layers=2, n_heads=2, d_head=2, n_ctx=5)
    first, second = (block.attn for block in model.blocks)
    with torch.no_grad():
        for head in range(2):
            first.W_V[head] = torch.eye(16)[:, 2 * head : 2 * head + 2]
            first.W_O[head] = torch.eye(16)[4 + 2 * head : 6 + 2 * head]
            second.W_V[head] = torch.eye(16)[:, 4:6]  # both read the first head
            second.W_O[head] = torch.eye(16)[8 + 2 * head : 10 + 2 * head]
    table = composition(model, n_random=99)
    table = table[table["kind"] == "V"].set_index(["writer_head", "reader_head"])
    np.testing.assert_allclose(table.loc[0, "score"], 2**-0.5)
    np.testing.assert_allclose(table.loc[0, "p"], 0.01)
    np.testing.assert_allclose(table.loc[1, "score"], 0, atol=1e-12)


def test_what_ov_does():
    model = make("no norm")
    table = ov_spectrum(SimpleNamespace(model=model, encoding=Interleaved()))
    dense = (model.W_V @ model.W_O).flatten(0, 1)
    eigenvalues = torch.linalg.eigvals(dense)
    copying = eigenvalues.real.sum(-1) / eigenvalues.abs().sum(-1)
    np.testing.assert_allclose(table["copying"], copying.detach().numpy(), rtol=1e-8)
    np.testing.assert_allclose(table["size"], dense.norm(dim=(1, 2)).detach().numpy())
    label = (model.W_E[0] @ dense @ model.W_U)[:, 0]
    np.testing.assert_allclose(table["label"], label.detach().numpy())
    must_fail(np.testing.assert_allclose, table["label"], -label.detach().numpy())


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: roles("affine"), "probes.roles needs a checkpoint"),
        (lambda: composition("affine"), "a HookedTransformer or a Checkpoint is needed"),
        (lambda: composition(make("post")), "norms stand in between"),
        (lambda: ov_spectrum(make("norm on outputs")), "norms stand in between"),
        (lambda: composition(make("mlp only")), "no attention heads"),
        (lambda: composition(blank(4, n_ctx=5)), "has one layer"),
    ],
)
def test_refusals(ask, message):
    with pytest.raises(InputError, match=message):
        ask()


def broken():
    """One weight of the second layer is NaN."""
    model = make()
    with torch.no_grad():
        model.blocks[1].attn.W_V[0, 0, 0] = torch.nan
    return SimpleNamespace(model=model, encoding=Interleaved(), task=TASK)


@pytest.mark.parametrize("ask", [roles, composition, ov_spectrum])
def test_weights_that_are_not_finite_are_named(ask):
    with pytest.raises(InputError, match=r"blocks\.1\.attn\.W_V holds NaN"):
        ask(broken())


def test_one_function_has_no_interval():
    held = SimpleNamespace(model=make(), encoding=Interleaved(), task=TASK)
    with pytest.raises(InputError, match="over functions needs at least 2"):
        roles(held, PROMPTS[:1])


@pytest.mark.slow
def test_roles_in_an_adapted_module_are_those_in_the_model():
    model = make()
    tokens = Interleaved().encode(PROMPTS[:2]).to(model.numbers)

    def same(module, by=1.0):
        held = SimpleNamespace(model=model, encoding=Interleaved(), task=TASK)
        expected = roles(held, PROMPTS)
        expected["score"] *= by
        pd.testing.assert_frame_equal(roles(module, PROMPTS), expected)

    module = adapted(model, tokens)
    same(module)
    must_fail(same, module, 1.001)
    drawn = adapted(model, tokens, task=TASK)
    assert len(roles(drawn)) == len(roles(module, PROMPTS))
    with pytest.raises(InputError, match="no task came with the model"):
        roles(module)


def test_an_adapted_module_says_what_maps_and_roles_lack():
    module = adapted(make(), torch.randn(2, 5, 1), without=("hook_pattern",))
    with pytest.raises(InputError, match=r"no blocks\.0\.attn\.hook_pattern.*; give patterns="):
        roles(module, PROMPTS)
    for ask in (composition, ov_spectrum, map_orthogonality):
        with pytest.raises(InputError, match="needs the weights of a HookedTransformer"):
            ask(module)
