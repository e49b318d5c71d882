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
# # How does a mechanism form in training?
#
# A trained model shows where its prediction is made (see the notebook `mechanism`). It does not
# show how that came about. This notebook trains a small transformer and keeps its weights at
# fourteen steps on the way. It measures each of them with the same probes: the error, what the
# heads look at, what they write, and which of them the prediction needs.
#
# It takes about a minute, half of it for training.

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
import tempfile
from pathlib import Path

import plotly.graph_objects as go
import torch

import icl_interp
from icl_interp.figures import plot
from icl_interp.figures.style import BLUE, GREEN, INK, ORANGE, TEMPLATE
from icl_interp.interventions import AblateHeads, intervene
from icl_interp.probes import AttentionPattern, DirectAttribution
from icl_interp.results import make_curve
from icl_interp.training import recipes

# %% [markdown]
# ## Training that remembers
# The model has two layers of two heads. Its prompts show ten points $(x_i, f(x_i))$ of a straight
# line and a query $x$. A recipe is a stored configuration, and `changes` overrides single settings.
# The recipe has a *curriculum*: prompts are short at first and grow during training. Here they have
# their full length from the first step on. `training.snapshots` lists the steps whose weights are
# kept (*snapshots*). They change nothing in training.

# %%
STEPS = [0, 25, 50, 75, 100, 150, 200, 250, 300, 400, 600, 800, 1200, 2000]
changes = [
    "model.n_layers=2",
    "model.n_heads=2",
    "model.d_head=16",
    "model.d_model=32",
    "task.n_points=11",
]
changes += ["training.curriculum.first_points=11", "training.curriculum.until=0"]
config = recipes.resolve(
    "affine", [*changes, f"training.steps={STEPS[-1]}", f"training.snapshots={STEPS}"]
)
checkpoint = icl_interp.train(config, Path(tempfile.mkdtemp()) / "run", progress=False)
models = checkpoint.snapshots()
print(f"{len(models)} models, from step {min(models)} to step {max(models)}")

# %% [markdown]
# All models read the same prompts, so that steps do not differ by their samples. The figure shows
# one prompt.

# %%
prompts = config.task.sample(512, torch.Generator().manual_seed(1))
tokens = checkpoint.encoding.encode(prompts)
xs, ys = prompts.xs[..., 0], prompts.ys[..., 0]
last = tokens.shape[1] - 1


def predicted(model: icl_interp.HookedTransformer) -> torch.Tensor:
    """The prediction at the query, one for each prompt."""
    with torch.no_grad():
        return model(tokens, positions=[last])[:, 0, 0]


def error(model: icl_interp.HookedTransformer) -> float:
    """Squared error at the query, divided by that of predicting 0."""
    return float((predicted(model) - ys[:, -1]).square().mean() / ys[:, -1].square().mean())


figure = go.Figure(layout={"template": TEMPLATE, "width": 620, "height": 320})
figure.add_scatter(
    x=xs[0, :-1], y=ys[0, :-1], mode="markers", marker={"color": INK, "size": 8}, name="examples"
)
for step, colour in ((50, ORANGE), (200, GREEN), (2000, BLUE)):
    star = {"color": colour, "size": 13, "symbol": "star"}
    answer = predicted(models[step])[:1]
    figure.add_scatter(
        x=xs[0, -1:], y=answer, mode="markers", marker=star, name=f"answer, step {step}"
    )
figure.update_layout(xaxis_title="x", yaxis_title="f(x)", legend={"y": 1.02}, margin={"t": 50})

# %% [markdown]
# ## When does the error fall?
# *Is there one moment at which the model learns?* The error is divided by that of predicting 0, so
# a model that knows nothing has 1. For comparison we print the error of always answering with the
# mean of the prompt's values.

# %%
errors = {step: error(model) for step, model in models.items()}
curve = make_curve(
    list(errors.values()), {"step": list(errors)}, note="error at the query / error of predicting 0"
)
level = float((ys[:, :-1].mean(1) - ys[:, -1]).square().mean() / ys[:, -1].square().mean())
print(f"the mean of the values: {level:.2f}")
plot(curve, "Error by training step")

# %% [markdown]
# *How to read it.* Within the first hundred steps the error comes down to a third, and for a moment
# it hardly falls. The mean of the values in the prompt gets a little further. This answer needs the
# height of the line, not its slope. Then the error falls a second time, by a factor of about ten
# until step 400.
#
# ## What do the heads look at?
# *Which ingredient comes when?* To copy $f(x_i)$ of a near $x_i$, a model needs two things. A token
# of a value has to know its input: some head must look one token back, from $f(x_i)$ to $x_i$. And
# the query has to look at tokens of values. We measure both for every head at every step: the mean
# attention from tokens of values to the token before, and the share of the query's attention on
# tokens of values. With $n$ tokens in view, even attention puts $1 / n$ on the token before (0.15
# on average here), and about half on tokens of values.

# %%
values_at = list(range(1, last, 2))
back, on_values = {}, {}
for step, model in models.items():
    pattern = icl_interp.probe(model, prompts, [AttentionPattern()], checkpoint.encoding)[
        "attention_pattern.weight"
    ]
    rows = [pattern.sel(query=at, key=at - 1) for at in values_at]
    back[step] = sum(row.values for row in rows) / len(rows)  # (layer, head)
    on_values[step] = pattern.sel(query=last, key=values_at).sum("key").values

figure = go.Figure(layout={"template": TEMPLATE, "width": 760, "height": 340})
for layer, colour in ((0, BLUE), (1, ORANGE)):
    for head, dash in ((0, "solid"), (1, "dash")):
        line = {"color": colour, "dash": dash}
        for found, symbol, what in (
            (back, "circle", "x of the value"),
            (on_values, "x", "query to values"),
        ):
            heights = [found[step][layer, head] for step in models]
            name = f"{layer}.{head}: {what}"
            shown = (layer == 0) == (found is back)  # the layer in which that ingredient can serve
            mark = {"symbol": symbol, "size": 7}
            if shown:
                figure.add_scatter(
                    x=STEPS, y=heights, line=line, marker=mark, mode="lines+markers", name=name
                )
figure.update_layout(
    xaxis_title="training step",
    yaxis_title="attention",
    legend={"orientation": "v", "x": 1.02, "y": 1},
)

# %% [markdown]
# *How to read it.* Orange lines are heads of the second layer, from the query to tokens of values.
# Blue lines are heads of the first layer, from tokens of values back to their inputs. During the
# first hundred steps all attention stays even. Then both heads of the second layer turn to values,
# and one head of the first layer begins to look back. Its neighbour does not. In these three
# hundred steps the error falls the second time.
#
# ## Who writes the prediction?
# *When does the second layer take over?* The share of a part is its covariance with the prediction
# over prompts, divided by the variance of the prediction. Shares add up to 1, so a share above 1 is
# balanced by negative ones.

# %%
shares = {}
for step, model in models.items():
    found = icl_interp.probe(model, prompts, [DirectAttribution()], checkpoint.encoding)
    heads = found["direct_attribution.head"].sel(position="query").values.ravel()
    mlps = found["direct_attribution.mlp"].sel(position="query").values.ravel()
    shares[step] = [*heads, *mlps]
parts = ["head 0.0", "head 0.1", "head 1.0", "head 1.1", "MLP 0", "MLP 1"]
later = STEPS[1:]  # before training the prediction is noise
rows = [[shares[step][i] for step in later] for i in range(len(parts))]
plot(
    make_curve(rows, {"part": parts, "step": later}, note="share of the prediction's variance"),
    "Who writes the prediction",
)

# %% [markdown]
# *How to read it.* In the first hundred steps the MLPs write most of the prediction: attention is
# even, and a mean of what the prompt shows is all that they get. Then the heads of the second layer
# take over, one first, the other a hundred steps later. Together they write more than the whole.
# Head 0.0 and the second MLP write against them.
#
# ## Which heads does the prediction need?
# *Does head 0.0, which looks back, matter from the moment it does so?* What it writes into the
# prediction itself is small, so attribution does not show its use. Mean ablation does: it replaces
# what a head writes by its mean over prompts.

# %%
factors = []
for model in models.values():
    row = []
    for layer in range(2):
        for head in range(2):
            with intervene(model, AblateHeads.measure(model, tokens, (layer, head))):
                row.append(error(model))
    factors.append([one / error(model) for one in row])
names = ["0.0", "0.1", "1.0", "1.1"]
by_head = [[row[i] for row in factors] for i in range(4)]
plot(
    make_curve(
        by_head, {"head": names, "step": STEPS}, note="error without the head / error with it"
    ),
    "Error without each head",
)

# %% [markdown]
# *How to read it.* A factor of 1 says that the model does not miss the head. The first head to
# matter is one of the second layer, which reads values. The head of the first layer that looks back
# comes next. In the end the model needs it as much as any: without it the values have lost their
# inputs.
#
# One run is one observation. The seed decides which head specialises, and perhaps also the order.
# The claims of this package about kinds of training therefore ask for several seeds (see
# `icl-interp explain limits.no_norm_better`).

# %% [markdown]
# ## Exercise
# The bundled run `lsa_flow` kept its weights at several steps, too. At which of them has its error
# at the query first fallen below half of what predicting 0 costs? Put the step into `answer`.
#
# <details><summary>Hint</summary>
#
# `icl_interp.load("lsa_flow").snapshots()` has a model for each step, in order.
#
# </details>

# %%
answer = None  # a step, in place of None


# %%
def check(answer: int) -> None:
    """The error at this step and at the kept step before, on prompts of the judge's own."""
    run = icl_interp.load("lsa_flow")
    kept = run.snapshots()
    assert answer in kept, f"no such step was kept; there are {sorted(kept)}"
    shown = run.task.sample(2000, torch.Generator().manual_seed(99))
    encoded, truth = run.encoding.encode(shown), shown.ys[:, -1, 0]

    def share(model: icl_interp.HookedTransformer) -> float:
        with torch.no_grad():
            missed = model(encoded)[:, -1, 0] - truth
        return float(missed.square().mean() / truth.square().mean())

    earlier = [step for step in kept if step < answer]
    assert share(kept[answer]) < 0.5, "the error is still above a half"
    assert not earlier or share(kept[max(earlier)]) >= 0.5, "an earlier step was there before"


if answer is not None:
    check(answer)
    print("right")

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# run = icl_interp.load("lsa_flow")
# shown = run.task.sample(1000, torch.Generator().manual_seed(0))
# encoded, truth = run.encoding.encode(shown), shown.ys[:, -1, 0]
# for step, model in sorted(run.snapshots().items()):
#     with torch.no_grad():
#         missed = model(encoded)[:, -1, 0] - truth
#     if missed.square().mean() < 0.5 * truth.square().mean():
#         answer = step
#         break
# ```
#
# All models read the same prompts, so the steps differ by the weights alone.
#
# </details>

# %% [markdown]
# ## More to try
# Train with another seed (`"training.seed=1"` among the changes). Do the same two ingredients form,
# in the same heads, at the same time? Then leave out the two changes that switch the curriculum
# off, and train for 4,000 steps. Prompts then begin with three points and grow. Does the small
# model learn faster or more slowly?
