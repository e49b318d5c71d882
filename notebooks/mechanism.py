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
# look for the examples and the heads that make the prediction, and for the paths between heads.
# Each question is one call. Scores have 95 % intervals over functions.
#
# It takes about a minute and trains nothing.

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
import icl_interp
from icl_interp import contrasts, figures, probes
from icl_interp.circuits import attribute_edges, patch_activations, patch_paths
from icl_interp.provenance import generator

checkpoint = icl_interp.load("affine")
model, task = checkpoint.model, checkpoint.task
prompts = task.sample(64, generator(1, "notebook"))
print(f"{model.cfg.n_layers} layers of {model.cfg.n_heads} heads, width {model.cfg.d_model}")

# %% [markdown]
# ## Which examples count?
# The *weight* of an example is the derivative of the prediction with respect to its value. On the
# left is one prompt, with its examples coloured by weight. On the right is the mean weight by
# distance to the query.

# %%
influence = probes.ExampleInfluence.measure(checkpoint, prompts, inputs=False)
figures.influence(influence)

# %% [markdown]
# In the table, the sum of the weights is close to 1. "distance" is the rank correlation between
# weight and distance, so it is below 0 where near examples count more.

# %%
influence.summary()

# %% [markdown]
# ## What do heads look at?
# The score of a *role* is the share of attention that goes to certain tokens, beyond chance. It is
# 0 by chance, and 1 where all attention goes there.

# %%
roles = probes.roles(checkpoint, prompts)
figures.head_roles(roles)

# %% [markdown]
# *How to read it.* Head 0.2 (layer 0, head 2) pairs a value with its input more than any other head
# (score 0.4): the token of $f(x_i)$ attends to the token of its own $x_i$. At the query, heads 1.0,
# 1.2 and 1.3 attend to labels, the tokens of values (0.99 and more). They need to know which $x$ a
# value belongs to, but the token of a value shows the value alone. So head 0.2 may serve them.
# Attention does not show that. The weights say how strongly these heads read what head 0.2 writes.
# In the next figure 1 is the strength for random directions.

# %%
figures.composition(probes.composition(checkpoint))

# %% [markdown]
# Heads 1.0, 1.2 and 1.3 read for their keys what head 0.2 writes, about 3 times as much as chance.
# Whether the prediction uses it, only *patching* can tell (activations of one run are put into
# another).
#
# ## Which heads carry the function?
# Take pairs of prompts with the same inputs and values of two functions. Run the model on the
# second, and put in what one head writes on the first. The *share* says how much of the way from
# the second prediction to the first comes back. `q` is a p-value, adjusted for all heads.

# %%
pairs = contrasts.labels(task, n_functions=64)
figures.recovered(patch_activations(checkpoint, pairs, "z", by=("head",)))

# %% [markdown]
# ## By which paths?
# Attribution estimates every *edge* (from a part that writes to a part that reads) with gradients.
# Some edges are patched exactly, and the right panel shows the difference. The table below the
# figure is exact.

# %%
edges = attribute_edges(checkpoint, pairs, n_checked=6)
figures.render(figures.edge_matrix(edges))

# %%
inputs = contrasts.one_input(task, n_functions=64)
patch_paths(checkpoint, inputs, [("head 0.2", "MLP 0"), ("head 0.2", "head 1.0 k")])

# %% [markdown]
# In these pairs one input differs, not the function. Most of what it changes goes from head 0.2 to
# MLP 0. The share that goes directly from head 0.2 to the keys of head 1.0 has a wide interval,
# which contains 0.

# %% [markdown]
# ## The smallest set that suffices
# `circuit` keeps as few heads and MLPs as it can and replaces everything else by its mean. The
# error may rise by no more than the tolerance (in units of the error of predicting 0). Gradients
# propose parts, exact ablation (replacement by the mean) decides, and fresh prompts judge.

# %%
circuit = icl_interp.circuit(checkpoint, 0.05, with_edges=False, n_functions=64, n_random=20)
print(circuit.parts)
circuit.summary

# %% [markdown]
# Heads 0.2, 1.0, 1.2 and 1.3 are in it, as the roles suggested. So is MLP 0, which reads head 0.2.
#
# ## What can be read off the stream?
# Heads and MLPs add to the *stream* (the vector of each token). A linear probe (a fitted linear
# map) asks where the slope and the intercept of the line can be read. Its controls (shuffled
# targets, random features, an untrained model) say what such a probe finds anyway.

# %%
places = ["blocks.0.hook_resid_pre", "blocks.1.hook_resid_post"]
figures.readable(probes.fit(checkpoint, "coefficients", at=places).table)

# %% [markdown]
# *How to read it.* At the query nothing can be read before the first block. After two blocks the
# slope (coordinate 1) can be read, and its controls give hardly any of it. The intercept
# (coordinate 0) can be read, too. But random features of the same tokens and an untrained model
# give it almost as well, so that says little.
#
# ## When did it form?
# A run that keeps snapshots (its weights at some steps) can be asked along its training. `affine`
# kept none, so this is another one: one layer of linear attention on linear regression.

# %%
along = icl_interp.trajectory("lsa_flow", claims=(), steps=(0, 20, 100, 500, 4000))
along.figure()

# %% [markdown]
# ## Exercise
# Patch inputs instead of functions, with `inputs` from above. Which head carries most of the way?
# Put its layer and its number into `answer`, such as `(2, 3)`.
#
# <details><summary>Hint</summary>
#
# `patch_activations` takes the pairs as its second argument; sort the table by `share`.
#
# </details>

# %%
answer = None  # (layer, head), in place of None

# %%
from icl_interp.interventions import AblateHeads


def check(answer: tuple[int, int]) -> None:
    """By another route: without which head is the error largest?"""
    judge = icl_interp.load("affine")
    shown = judge.task.sample(256, generator(7, "exercise"))
    errors = {}
    for layer in range(judge.model.cfg.n_layers):
        for head in range(judge.model.cfg.n_heads):
            with icl_interp.intervene(judge.model, AblateHeads.zero((layer, head))):
                missed = judge.predict(shown)[:, -1] - shown.ys[:, -1]
            errors[layer, head] = float(missed.square().mean())
    largest = max(errors, key=lambda one: errors[one])
    assert tuple(answer) == largest, "the model misses another head more"


if answer is not None:
    check(answer)
    print("right")

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# inputs = contrasts.one_input(task, n_functions=64)
# table = patch_activations(checkpoint, inputs, "z", by=("head",))
# best = table.sort_values("share", ascending=False).iloc[0]
# answer = (int(best["layer"]), int(best["head"]))
# ```
#
# Head 0.2 carries each input to the token of its value. So a changed input reaches the prediction
# by this head.
#
# </details>

# %% [markdown]
# ## More to try
# How well can a kernel (weights that depend on the inputs alone) replace each head?
# `icl_interp.analyze("affine", claims=("lipschitz.kernel_smoother",))` puts one in its place and
# measures what is lost. Which heads does it replace?
