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
# # Which heads make the prediction, and how?
#
# A verdict says *what* a model does. This notebook asks *how*: it takes one small transformer
# apart. The model was trained on straight lines. Its prompt shows twenty points $x_i$, nineteen of
# them with their value $f(x_i)$, and it has to say what $f$ is at the last one, the *query*. We
# look for the heads that make the prediction, for what they look at, and for the heads that they
# need. The tools are those of TransformerLens, for prompts of numbers: a cache of activations,
# ablation, patching, and direct attribution.
#
# It takes about half a minute and trains nothing.

# %%
from dataclasses import replace
from itertools import pairwise

import plotly.graph_objects as go
import torch

import icl_interp
from icl_interp.figures import plot
from icl_interp.figures.style import BLUE, GREY, INK, ORANGE, TEMPLATE
from icl_interp.interventions import AblateHeads, patch
from icl_interp.probes import AttentionPattern, DirectAttribution
from icl_interp.results import make_array

checkpoint = icl_interp.load("affine")
model, task, encoding = checkpoint.model, checkpoint.task, checkpoint.encoding
print(f"{model.cfg.n_layers} layers of {model.cfg.n_heads} heads, width {model.cfg.d_model}")

# %% [markdown]
# ## One prompt
# *What does the model get to see?* Two tokens for each example, first $x_i$ and then $f(x_i)$, and
# one token for the query.

# %%
prompts = task.sample(256, torch.Generator().manual_seed(1))
tokens = encoding.encode(prompts)
xs, ys = prompts.xs[..., 0], prompts.ys[..., 0]
with torch.no_grad():
    predictions, cache = model.run_with_cache(tokens)
answers = predictions[:, -1, 0]

figure = go.Figure(layout={"template": TEMPLATE, "width": 620, "height": 320})
figure.add_scatter(
    x=xs[0, :-1], y=ys[0, :-1], mode="markers", marker={"color": BLUE, "size": 8}, name="examples"
)
star = {"color": ORANGE, "size": 13, "symbol": "star"}
figure.add_scatter(
    x=xs[0, -1:], y=answers[:1], mode="markers", marker=star, name="the model's answer"
)
figure.add_scatter(
    x=xs[0, -1:],
    y=ys[0, -1:],
    mode="markers",
    marker={"color": INK, "symbol": "x"},
    name="the truth",
)
figure.update_layout(xaxis_title="x", yaxis_title="f(x)", legend={"y": 1.02}, margin={"t": 50})

# %% [markdown]
# The answer lies on the line through the examples. Over all 256 prompts the squared error is a
# small part of what predicting 0 would cost:

# %%
LAST = [tokens.shape[1] - 1]


def error() -> float:
    """Squared error at the query, divided by that of predicting 0."""
    with torch.no_grad():
        out = model(tokens, positions=LAST)[:, 0, 0]
    return float((out - ys[:, -1]).square().mean() / ys[:, -1].square().mean())


print(f"error relative to predicting 0: {error():.5f}")

# %% [markdown]
# ## Who writes the prediction?
# *Which heads write into the read-out?* Every head, every MLP (the two-layer network of each block)
# and the read-in add a vector to the residual stream. The prediction is linear in that stream once
# the scale of the last LayerNorm is held at its value. So it is a sum of what these parts write.
# The share of a part is its covariance with the prediction over prompts, divided by the variance of
# the prediction. The shares add up to 1.

# %%
shares = icl_interp.probe(checkpoint, prompts, [DirectAttribution()])
print("MLPs:", shares["direct_attribution.mlp"].sel(position="query").values.ravel().round(2))
plot(
    shares["direct_attribution.head"].sel(position="query"),
    "Share of the prediction that each head writes",
)

# %% [markdown]
# *How to read it.* Each square is a head: its layer is the row. Two heads of the middle layer, 1.0
# and 1.2, write more than four fifths of the prediction. A share below 0 belongs to a head that
# writes against the others.
#
# ## What do these two heads look at?
# *Do they read the inputs or the values?* At the query a head spreads its attention, which adds up
# to 1, over all tokens. We add up what falls on the $x$ tokens and on the $f(x)$ tokens.

# %%
for layer, head in ((1, 0), (1, 2), (0, 2)):
    pattern = cache[f"blocks.{layer}.attn.hook_pattern"][
        :, head, -1
    ]  # (prompt, key): from the query's token
    on_x, on_y = float(pattern[:, 0:-1:2].sum(-1).mean()), float(pattern[:, 1::2].sum(-1).mean())
    print(f"head {layer}.{head}: {on_x:.3f} on tokens of x, {on_y:.3f} on tokens of f(x)")

# %% [markdown]
# Heads 1.0 and 1.2 read values and nothing else. *Which values?* First by place: the next figure
# shows the mean attention of the query on each token, over prompts. Tokens count from 0, so the
# value of example $i$ is token $2i - 1$.

# %%
pattern = icl_interp.probe(checkpoint, prompts, [AttentionPattern(last=True)])[
    "attention_pattern.weight"
]
plot(pattern.sel(layer=1), "What the query looks at: heads of layer 1")

# %% [markdown]
# *How to read it.* Heads 1.0 and 1.2 look at the values of the first seven examples. The other
# twelve get next to nothing: what these heads say of a line rests on seven points. Two points fix a
# line, so seven can be enough.
#
# *And among these seven?* Each point of the next figure is one of the seven examples of one prompt:
# how far its $x_i$ lies from the query, and how much attention its value gets.

# %%
FIRST = 7
distance = (xs[:, :FIRST] - xs[:, -1:]).abs()
edges = torch.linspace(0, 2, 11)
centres = (edges[:-1] + edges[1:]) / 2
some = slice(0, 40)
figure = go.Figure(layout={"template": TEMPLATE, "width": 620, "height": 340})
for head, colour in ((0, BLUE), (2, ORANGE)):
    weights = cache["blocks.1.attn.hook_pattern"][:, head, -1, 1::2][:, :FIRST]
    dots = {"color": colour, "size": 3, "opacity": 0.35}
    flat = {"x": distance[some].ravel(), "y": weights[some].ravel()}
    figure.add_scatter(
        **flat, mode="markers", marker=dots, name=f"head 1.{head}", legendgroup=str(head)
    )
    inside = [(distance >= a) & (distance < b) for a, b in pairwise(edges)]
    means = [float(weights[here].mean()) for here in inside]
    figure.add_scatter(
        x=centres, y=means, mode="lines", line={"color": colour, "width": 3}, showlegend=False
    )
figure.add_hline(
    y=1 / distance.shape[1],
    line={"color": GREY, "dash": "dot"},
    annotation_text="each of the seven alike",
)
names = {
    "xaxis_title": "distance of the example from the query, |x_i - x|",
    "yaxis_title": "attention to its value",
}
figure.update_layout(**names, legend={"y": 1.02}, margin={"t": 50})

# %% [markdown]
# *How to read it.* On average (the lines) the value of an example next to the query gets a fifth of
# the attention, and that of an example more than 1.5 away gets less than a hundredth: among the
# seven, the heads look at neighbours. But the points scatter: the weights depend on more than the
# distance, and on the other examples, with which a value shares the attention. So these heads are
# not simply a kernel smoother, an average whose weights are a function of the distance. Either way
# a head must know, at the token of a value, which $x$ the value belongs to. The token of $f(x_i)$
# shows the value alone.
#
# ## Which heads does the prediction need?
# *What happens without a head?* Mean ablation replaces what a head writes by its mean over prompts.
# What the head says about *this* prompt is gone. We do it to each head in turn and measure the
# error.

# %%
errors = []
for layer in range(model.cfg.n_layers):
    for head in range(model.cfg.n_heads):
        with icl_interp.intervene(model, AblateHeads.measure(model, tokens, (layer, head))):
            errors.append(error())
heads = {"layer": range(model.cfg.n_layers), "head": range(model.cfg.n_heads)}
without = torch.tensor(errors).view(model.cfg.n_layers, -1).numpy()
plot(
    make_array(without, heads, note="error at the query / error of predicting 0"),
    "Error without each head",
)

# %% [markdown]
# The most important head is 0.2, which writes next to nothing into the prediction. So it works
# through others. *What does it do at the tokens of values?*

# %%
values_at = torch.arange(1, tokens.shape[1] - 1, 2)
for head in range(model.cfg.n_heads):
    pattern = cache["blocks.0.attn.hook_pattern"][:, head]
    own = float(pattern[:, values_at, values_at - 1].mean())
    print(
        f"head 0.{head}: the token of f(x_i) gives {own:.2f} of its attention to the token of its "
        "own x_i"
    )

# %% [markdown]
# Head 0.2 carries each $x_i$ to the token of its value. There heads 1.0 and 1.2 can find it as a
# key.
#
# ## A causal check: patching
# *Is that chain right?* Take two sets of prompts with the same inputs and different functions. Run
# the model on the second set, and put in what one head writes on the first set, for every head in
# turn. If a head carries the function, the answer moves from the second function to the first. We
# measure which share of the way it goes.

# %%
other = task.sample(256, torch.Generator().manual_seed(2))
corrupted = encoding.encode(
    replace(other, xs=prompts.xs, ys=task.value(other.parameters, prompts.xs))
)
with torch.no_grad():
    start = model(corrupted, positions=LAST)[:, 0, 0]
way = answers - start


def moved(out: torch.Tensor) -> float:
    """Share of the way from the answers on the second functions to those on the first."""
    return float(((out[:, -1, 0] - start) * way).mean() / way.square().mean())


with torch.no_grad():
    patched = patch(model, tokens, corrupted, moved, "z", by=("head",))
plot(patched, "Share of the way, one head patched")

# %% [markdown]
# *How to read it.* Heads 1.0 and 1.2 carry most of the function: about a third and a half of the
# way. That is what they write into the prediction, too. The inputs are the same in both sets, so
# the part of head 0.2 that carries inputs moves nothing. It still moves a fifth of the way: at the
# query it attends to tokens of values, as the numbers of its attention above say. A head can do two
# things at two places.
#
# ## Exercise
# Patch inputs instead of functions: keep the functions, and let the second set have other $x_i$ in
# the context. Which head do you expect to matter now? Then ask how far a kernel of the distance can
# replace each head: `icl_interp.analyze("affine", claims=("lipschitz.kernel_smoother",))` puts one
# in its place and measures what is lost.
