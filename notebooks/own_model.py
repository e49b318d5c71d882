# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Bring your own model
#
# You have trained a model with your own code. Which published claims hold on your weights? This
# notebook trains a small one with plain PyTorch and brings its weights into a `HookedTransformer`,
# the package's own model. It checks that both compute the same, and has the model judged. It ends
# with what to do for files of other projects.
#
# It takes about a minute.

# %%
# Installs the package where it is missing: from a wheel beside this notebook, which `make dist`
# writes, or else from the clone that the notebook is in.
import importlib.util
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("icl_interp") is None:
    source = max(map(str, Path().glob("icl_interp-*.whl")), default="..")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", source], check=True)

# %%
import plotly.graph_objects as go
import torch

import icl_interp
from icl_interp.figures.style import INK, TEMPLATE
from icl_interp.prompts import Prompts
from icl_interp.tasks import LinearRegression

# %% [markdown]
# ## The task
# *What shall the model learn?* A prompt shows 20 inputs $x_i$ with two coordinates, each with its
# label $y_i = w^\top x_i$, and a query $x$ without a label. The weights $w$ are new in every
# prompt. A task of the package says this in one line. Verdicts are measured on the task, so it has
# to be the one that your model was trained on.

# %%
task = LinearRegression(n_dims=2, covariance=[0.5, 2.0], n_points=21)
prompts = task.sample(1000, torch.Generator().manual_seed(0))
prompts

# %%
inputs, labels = prompts.xs[0], prompts.ys[0, :, 0]
figure = go.Figure(layout={"template": TEMPLATE, "width": 460, "height": 360})
look = {
    "color": labels[:-1],
    "colorscale": "RdBu",
    "cmid": 0,
    "size": 11,
    "colorbar": {"title": "label"},
}
figure.add_scatter(x=inputs[:-1, 0], y=inputs[:-1, 1], mode="markers", marker=look, name="examples")
star = {"symbol": "star", "size": 15, "color": "gold", "line": {"color": INK, "width": 1}}
figure.add_scatter(x=inputs[-1:, 0], y=inputs[-1:, 1], mode="markers", marker=star, name="query")
figure.update_layout(
    xaxis_title="first coordinate", yaxis_title="second coordinate", legend={"y": 1.02}
)

# %% [markdown]
# ## Your model, in your code
# The model is one layer of attention without softmax, as Zhang, Frei & Bartlett (2023) study it.
# Each example is one token $(x_i, y_i)$, and the query is the token $(x, 0)$. The prediction is the
# last coordinate of $\frac{1}{n} \sum_i W_{PV} t_i \, (t_i^\top W_{KQ}\, t)$ over all tokens $t_i$,
# the query's own token $t$ among them. There are $n$ examples.


# %%
class MyAttention(torch.nn.Module):
    """Linear attention with two matrices of your own making."""

    def __init__(self, width: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.key_query = torch.nn.Parameter(0.1 * torch.randn(width, width, generator=generator))
        self.value = torch.nn.Parameter(0.1 * torch.randn(width, width, generator=generator))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Predictions, one for each prompt."""
        scores = torch.einsum("btc,cd,bd->bt", tokens, self.key_query, tokens[:, -1])
        return torch.einsum("bt,btc,c->b", scores, tokens, self.value[-1]) / (tokens.shape[1] - 1)


def as_tokens(prompts: Prompts) -> torch.Tensor:
    """(x, y) for the examples and (x, 0) for the query."""
    tokens = torch.cat([prompts.xs, prompts.ys], -1)
    tokens[:, -1, -1] = 0
    return tokens


mine = MyAttention(width=3)
optimizer = torch.optim.Adam(mine.parameters(), lr=3e-3)
data = torch.Generator().manual_seed(1)
losses = []
for _ in range(3000):
    batch = task.sample(256, data)
    loss = (mine(as_tokens(batch)) - batch.ys[:, -1, 0]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
baseline = float(prompts.ys.square().mean())
print(f"loss {losses[0]:.2f} -> {sum(losses[-100:]) / 100:.3f}; predicting 0 costs {baseline:.2f}")

# %% [markdown]
# ## The same model, with hooks
# *How do your matrices become those of a `HookedTransformer`?* Its configuration says what kind of
# model it is: one layer with one head, no MLP, no norm, no positions. Scores are used as they are
# and divided by the number of examples. Then your weights are copied. Weights have TransformerLens'
# names and shapes: the stream (a token's vector in the model) is a row vector, so a map is
# multiplied from the right.

# %%
config = icl_interp.HookedTransformerConfig(
    n_layers=1,
    d_model=3,
    n_heads=1,
    d_head=3,
    d_in=3,
    n_ctx=200,
    attn_only=True,
    normalization_type=None,
    positional_embedding_type="none",
    attention_dir="bidirectional",
    score_fn="linear",
    score_norm="labelled",
    use_attn_scale=False,
)
model = icl_interp.HookedTransformer(config)
head, identity = model.blocks[0].attn, torch.eye(3)
with torch.no_grad():
    model.embed.W_E.copy_(identity)  # the stream is the token
    head.W_Q[0] = identity
    head.W_K[0] = mine.key_query  # score of a key: t_i K (t)^T
    head.W_V[0] = mine.value.T
    head.W_O[0] = identity
    model.unembed.W_U.copy_(identity[:, 2:])  # the prediction is the last coordinate

# %% [markdown]
# *Do both compute the same?* Always ask this before anything else. The query's token has label 0.
# So what the stream holds before attention adds nothing to the prediction.

# %%
with torch.no_grad():
    difference = (model(as_tokens(prompts))[:, -1, 0] - mine(as_tokens(prompts))).abs().max()
print(f"largest difference: {float(difference):.1e}")
assert difference < 1e-4

# %% [markdown]
# ## Have it judged
# A bare model brings no task, so we give one to `analyze`. How a prompt becomes tokens follows from
# the widths: tokens are one number wider than inputs, so each holds an input and its label. Where
# that is not enough, `encoding=` says it.

# %%
report = icl_interp.analyze(model, task=task, progress=False)
report

# %% [markdown]
# These claims are decided, for or against:

# %%
for finding in report.findings:
    if finding.verdict in ("supported", "contradicted"):
        print(f"{finding.id}: {finding.verdict}\n    {finding.reason}\n")

# %%
report.figures["linear_attention"]

# %% [markdown]
# *How to read it.* The left panel compares the error at several lengths of the prompt with what
# theory says of the optimal layer. The right panel compares the predictions with those of known
# algorithms. The nearest is one preconditioned step of gradient descent (its size is a matrix).
#
# ## Keep it
# A checkpoint holds the model, its task and its encoding (how prompts become tokens). Every command
# reads the folder: `icl-interp analyze FOLDER`.

# %%
import tempfile

with tempfile.TemporaryDirectory() as folder:
    icl_interp.load(model, task=task).save(folder)
    again = icl_interp.load(folder)
    with torch.no_grad():
        same = torch.equal(again.model(as_tokens(prompts)), model(as_tokens(prompts)))
print("the loaded model predicts the same:", same)

# %% [markdown]
# ## Files of other projects
# `icl_interp.load` reads some formats as they are: checkpoints of Garg et al. (2022), models of
# `transformers.GPT2Model`, and weights of TransformerLens. What the weights do not tell is given
# beside them, such as `icl_interp.load("state.pt", task=task, n_heads=8)`. A file that does not fit
# is refused with a line that says what was expected.

# %% [markdown]
# ## Exercise
# Two sets of weights can compute one function. Write a function `rescale(model)` that changes `W_Q`
# and `W_K` of every layer without any change of predictions. Put the function into `answer`.
#
# <details><summary>Hint</summary>
#
# A score is the product of a query and a key. What is made larger in one can be made smaller in the
# other.
#
# </details>

# %%
answer = None  # a function of a model that edits it in place, in place of None

# %%
from collections.abc import Callable


def check(answer: Callable[[icl_interp.HookedTransformer], None]) -> None:
    """On a bundled model: other weights, same predictions."""
    judge = icl_interp.load("lsa_fixed")
    shown = judge.encoding.encode(judge.task.sample(64, torch.Generator().manual_seed(99)))
    weights = judge.model.blocks[0].attn
    with torch.no_grad():
        before = judge.model(shown)
        queries, keys = weights.W_Q.clone(), weights.W_K.clone()
        answer(judge.model)
        after = judge.model(shown)
    assert not torch.allclose(weights.W_Q, queries), "W_Q is what it was"
    assert not torch.allclose(weights.W_K, keys), "W_K is what it was"
    assert torch.allclose(before, after, rtol=1e-3, atol=1e-4), "predictions have changed"


if answer is not None:
    check(answer)
    print("right")

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def rescale(model):
#     with torch.no_grad():
#         for block in model.blocks:
#             block.attn.W_Q *= 2
#             block.attn.b_Q *= 2
#             block.attn.W_K /= 2
#             block.attn.b_K /= 2
#
#
# answer = rescale
# ```
#
# The biases belong to queries and keys, so they are scaled, too. Claims are about what a model
# computes, so no verdict may change by such an edit: `icl_interp.testing.check_study` tries it.
#
# </details>

# %% [markdown]
# ## More to try
# Train the model again on `covariance=[1.0, 1.0]`, and judge these weights with the first task.
# Which verdicts change, and which sentence in their reasons tells you why?
