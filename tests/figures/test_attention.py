"""The view of attention: its weights are the model's, a uniform row is seen, a browser draws it."""

import sys

import numpy as np
import pytest
import torch
from browsers import browser
from helpers import must_fail
from own_hooks import adapted
from small_models import TASK, encoding_of, make, tokens_for

from icl_interp.errors import InputError
from icl_interp.figures.attention import AttentionView, attention
from icl_interp.provenance import generator

PROMPTS = TASK.sample(3, generator(0, "test/attention"), dtype=torch.float64)


def view_of(model, **settings) -> AttentionView:
    return attention(model, PROMPTS, encoding_of(model), **settings)


def patterns_of(model) -> np.ndarray:
    """(prompt, layer, head, query, key) by the cache of the model itself."""
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens_for(model, PROMPTS))
    names = [f"blocks.{i}.attn.hook_pattern" for i in range(model.cfg.n_layers)]
    return np.stack([cache[name].double().numpy() for name in names], 1)


def test_the_weights_are_those_of_the_model():
    model = make("pre")
    data = view_of(model, n_prompts=2).data
    expected = patterns_of(model)
    n = len(data["tokens"])

    def is_pattern(found, each):
        shown = np.array(found).reshape(*each.shape[:2], n, n) * data["unit"]
        np.testing.assert_allclose(shown, each, atol=data["unit"] / 2 + 1e-12, rtol=0)

    mean, *singles = data["weights"]
    is_pattern(mean, expected.mean(0))
    for found, each in zip(singles, expected[:2], strict=True):
        is_pattern(found, each)
    must_fail(is_pattern, mean, expected[0])
    must_fail(is_pattern, singles[0], expected[1])
    assert data["prompts"] == ["mean of 3 prompts", "prompt 0", "prompt 1"]
    assert len(singles) == 2


@pytest.mark.parametrize("name", ["pre", "bidirectional"])
def test_hidden_tokens_have_no_weight(name):
    model = make(name)
    data = view_of(model).data
    sees = np.array([[mark == "1" for mark in row] for row in data["visible"]])
    largest = np.abs(patterns_of(model)).max((0, 1, 2))

    def hides(mask):
        assert (largest[~mask] == 0).all()
        assert (largest[mask] > 0).all()

    hides(sees)
    must_fail(hides, ~sees)


def test_tokens_are_named_after_what_they_show():
    data = view_of(make("pre")).data
    assert data["tokens"][:4] == ["x1", "y1", "x2", "y2"]
    assert data["tokens"][-1] == "query"
    assert data["values"][0] is None  # the mean shows no prompt
    first = PROMPTS.xs[0, 0, 0].item()
    assert f"{first:.3g}" in data["values"][1][0]


def test_what_has_no_attention_or_is_too_large_is_refused(monkeypatch):
    model = make("pre")
    with pytest.raises(InputError, match="this model has no attention to show"):
        attention(make("pre", mlp_only=True), PROMPTS)
    with pytest.raises(InputError, match="takes Prompts, at least one, but got"):
        attention(model, PROMPTS[:0])
    broken = make("pre")
    with torch.no_grad():
        broken.blocks[0].attn.W_K[0, 0, 0] = torch.nan
    with pytest.raises(InputError, match="attention weights must be finite"):
        attention(broken, PROMPTS)
    monkeypatch.setattr(sys.modules["icl_interp.figures.attention"], "MOST", 100)
    with pytest.raises(InputError, match="weights are too many for a page"):
        attention(model, PROMPTS, encoding_of(model))


def test_no_text_of_it_ends_the_script(tmp_path):
    view = view_of(make("pre"))
    hostile = AttentionView({**view.data, "tokens": ["</script><b>"] * len(view.data["tokens"])})
    text = hostile.save(tmp_path / "view.html").read_text("utf-8")
    assert "</script><b>" not in text
    assert text.count("</script>") == 1
    assert "\\u003c/script" in text
    frame = hostile._repr_html_()
    assert frame.startswith("<iframe")
    assert "<script" not in frame


@pytest.mark.slow
def test_a_browser_lets_one_choose(tmp_path):
    from playwright import sync_api as sync  # slow to import

    model = make("pre")
    view = view_of(model)
    (tmp_path / "notebook.html").write_text(view._repr_html_(), "utf-8")
    view.save(tmp_path / "view.html")
    n = len(view.data["tokens"])
    expected = patterns_of(model)
    said, asked = [], []
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        tab = chromium.new_context(offline=True).new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto((tmp_path / "view.html").as_uri())
        heads = tab.locator(".maps button")
        assert heads.count() == model.cfg.n_layers * model.cfg.n_heads
        # A prompt, a head of the last layer by its button, a query token.
        tab.locator("select.prompt").select_option(label="prompt 1")
        heads.last.click()
        tab.locator("select.query").select_option(label="y2")
        layer, head = model.cfg.n_layers - 1, model.cfg.n_heads - 1
        assert tab.locator("select.layer").input_value() == str(layer)
        row = expected[1, layer, head, 3]
        bars = tab.locator(".bars i")
        shown = [float(bars.nth(k).get_attribute("title").rpartition(": ")[2]) for k in range(n)]
        np.testing.assert_allclose(shown, row, atol=2e-4)
        assert view.data["tokens"][int(row.argmax())] in tab.locator(".said").inner_text()
        # A click on the last row of the large map chooses the query.
        box = tab.locator("canvas.map").bounding_box()
        tab.mouse.click(box["x"] + 5, box["y"] + box["height"] - 2)
        assert tab.locator("select.query").input_value() == str(n - 1)
        for width in (1400, 768, 480):
            tab.set_viewport_size({"width": width, "height": 900})
            page_of = "document.documentElement"
            assert tab.evaluate(f"{page_of}.scrollWidth <= {page_of}.clientWidth")
        # In the frame of a notebook the same is drawn.
        tab.goto((tmp_path / "notebook.html").as_uri())
        frame = tab.frame_locator("iframe")
        frame.locator(".bars i").first.wait_for(state="attached")
        assert frame.locator(".bars i").count() == n
        chromium.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "about:"))] == []


def test_an_adapted_module_is_shown_like_the_model():
    model = make("pre")
    tokens = tokens_for(model, PROMPTS)

    def same(module, prompts):
        assert attention(module, prompts).data == view_of(model).data

    module = adapted(model, tokens)
    same(module, PROMPTS)
    must_fail(same, module, PROMPTS[:2])
    with pytest.raises(InputError, match=r"no blocks\.0\.attn\.hook_pattern: .*; give patterns="):
        attention(adapted(model, tokens, without=("hook_pattern",)), PROMPTS)
