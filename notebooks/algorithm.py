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
# # Which algorithm did my model learn?
#
# A small transformer is trained to predict linear functions from examples in its prompt. It learns
# to do so well. *How* does it do it: by gradient descent, by least squares, by something else? This
# notebook trains a model with one layer and reads one step of gradient descent off its weights.
# Then it asks the same of a model with three layers and softmax.
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
import tempfile

import torch

import icl_interp
from icl_interp.models.constructed import descent
from icl_interp.models.single_layers import read_layer
from icl_interp.theory import linear_attention as theory
from icl_interp.training import recipes

# %% [markdown]
# ## A task with many answers
# A prompt shows ten inputs $x_i$ with three coordinates, each with its label $y_i = w^\top x_i$,
# and a query $x$. The weights $w$ are drawn anew for every prompt. One can predict the label of the
# query in several ways:
#
# * **One step of gradient descent.** Start at $\hat w = 0$ and take one step of size $\eta$ down
#   half the mean squared error of the examples: $\hat w = \frac{\eta}{10} \sum_i y_i x_i$.
# * **More steps** of the same kind.
# * **Least squares.** The $\hat w$ with the least error on the examples. Labels have no noise and
#   there are more examples than coordinates, so this is exact.
#
# ## Train one layer
# The model is one layer of attention without softmax. The recipe `lsa_fixed` (a stored
# configuration) has it, and `changes` sets single settings anew.

# %%
changes = [
    "task.n_dims=3",
    "task.covariance=null",
    "task.n_points=11",
    "model.d_in=4",
    "model.d_model=8",
    "model.d_head=8",
    "model.n_ctx=81",
    "training.curriculum.first_points=11",
    "training.steps=3000",
    "training.snapshots=[]",
]
config = recipes.resolve("lsa_fixed", changes)
with tempfile.TemporaryDirectory() as folder:
    trained = icl_interp.train(config, f"{folder}/run", progress=False)
task = trained.task
task

# %% [markdown]
# ## Ask which algorithm it is
# `icl_interp.algorithm` compares the model with some thirty algorithms, its **rivals**. Some have
# free numbers, such as the size of a step. On half of the functions these are fitted to the model's
# predictions. The distance on the other half is
#
# $$D(f, g) = \frac{E\,(f - g)^2}{\mathrm{Var}\, f},$$
#
# where $f$ is the model's prediction for the query and $g$ the rival's. It is 0 where both always
# say the same. A rival at most .05 away is called near.

# %%
report = icl_interp.algorithm(trained)
print("\n".join(report.sentences()))

# %% [markdown]
# *How to read it.* Four rivals are left, and all are one step of descent. They differ in what is
# free. *Descent* has one size, *preconditioned, diagonal* a size for each coordinate, and
# *preconditioned, matrix* a whole matrix. *GD++* also changes the inputs after each step, which
# makes no difference after the only one. As fitted they predict the same, so no prompt can tell
# them apart. Everything else is excluded.

# %%
for name in ("descent, 1 step", "descent, 2 steps", "least squares"):
    print(f"{name:17} D = {float(report.distance[name]):.5f}")

# %% [markdown]
# ## See the step in its weights
# A near prediction is no proof of a mechanism. Here the weights can be read. All that the
# prediction of this layer depends on is one matrix $P$:
#
# $$\hat y(x) = \frac{1}{10} \sum_i y_i\, x_i^\top P\, x .$$
#
# This is one step of descent of size $\eta$ exactly if $P = \eta I$.

# %%
P = read_layer(trained.model).product
print(P.numpy().round(3))
size = float(P.diagonal().mean())
print(f"step size: {size:.3f}")

# %% [markdown]
# $P$ is a multiple of the identity, up to a few thousandths, so the layer does one step. *Why this
# size, and not 1?* Ten examples say only roughly how inputs are spread. A step that trusts them
# less is better on average. Theorem 4.1 of Zhang, Frei & Bartlett (2023) gives the matrix with the
# least expected error, $\Gamma^{-1}$. For inputs like these it is a number times the identity. With
# $d = 3$ coordinates and $n = 10$ examples the number is
#
# $$\eta = \frac{1}{1 + (d + 1) / n} = 0.714 .$$

# %%
best = theory.landscape(torch.eye(3), 10).product
print(f"the theorem's step size: {float(best[0, 0]):.3f}")
assert abs(size - float(best[0, 0])) < 0.02

# %% [markdown]
# ## What if the answer were two steps?
# A tool that always says "one step" would have been right so far. So we ask it about a transformer
# whose weights are set by hand: two layers that carry out two steps of descent.

# %%
known = descent(n_points=11, steps=(0.6, 0.6), dim=3)
check_known = icl_interp.algorithm(known, task, encoding="stacked")
print("\n".join(check_known.sentences()[:3]))

# %% [markdown]
# ## Three layers and softmax
# The bundled model `softmax_fixed_20` is of the usual kind: three layers, four heads each, softmax,
# an MLP, LayerNorm. It was trained on the same kind of prompt, with four coordinates and 20
# examples.

# %%
usual = icl_interp.algorithm("softmax_fixed_20")
print("\n".join(usual.sentences()))

# %%
usual.figure()

# %% [markdown]
# *How to read it.* The left panel shows the distance after every layer. A linear map, fitted on
# other functions, reads $f(x)$ off the stream (the query's vector, to which all layers add). The
# right panel shows the distance of the model's predictions by the number of examples in the prompt.
#
# If every layer took one step of descent, then the first block (depth 1 in the table) would end
# near to one step and the second near to two.

# %%
shown = ["zero", "descent, 1 step", "descent, 2 steps", "descent, 3 steps", "least squares"]
usual.by_layer.sel(statistic="value", rival=shown).to_pandas().T.round(2)

# %% [markdown]
# The layers do not take one step each. After one block the stream still says nearly 0 (the rival
# *zero*), far from one step. After two blocks the stream is as near to least squares as to two
# steps.
#
# Is it least squares, then? Two predictors can agree on the prompts of training and still differ in
# how they use the examples. The **hat row** of a prompt holds the derivative of the prediction with
# respect to each label. Least squares is linear in the labels, so its hat row says everything about
# it.

# %%
row = usual.table.set_index("rival").loc["least squares"]
print(f"predictions: D = {row['D']:.4f} [{row['low']:.4f}, {row['high']:.4f}]")
print(f"hat rows:    D = {row['hat']:.2f} [{row['hat, low']:.2f}, {row['hat, high']:.2f}]")

# %% [markdown]
# The predictions agree to a fraction of a percent. The hat rows do not agree. When a *single* label
# changes, the labels are no longer a linear function of the inputs, as they are in training. There
# the model does something else than least squares. So "it does least squares" is true of its
# predictions in distribution (on prompts drawn as in training), and of no more than that.
#
# One can also ask for prompts that tell two given rivals apart. The rivals alone choose the
# prompts, and then the model is asked. Newton's inverse is least squares with a matrix that is
# inverted step by step.

# %%
rival = "Newton's inverse, 6 iterations"
asked = usual.separate("least squares", rival)
print(f"prompts: {asked['design']}; examples: {asked['examples']}")
print(f"from least squares: D = {asked['D to rival']:.3f}")
print(f"from {rival}: D = {asked['D to other']:.3f}")
print(f"nearer to: {asked['nearer']}")

# %% [markdown]
# With four noisy labels least squares fits the noise, and the model does not. Such prompts are new
# to the model, so this is an answer about them, not about the prompts of training.
#
# ## Published claims
# `icl_interp.analyze` judges what papers say of such models, by rules that were fixed beforehand.
# Two of the claims fit here. `gradient_descent.steps` says that a model of $L$ layers does $L$
# steps of descent (von Oswald et al., 2023, and Ahn et al., 2023). `linear_attention.algorithm`
# says that the model does one preconditioned step (its size is a matrix).

# %%
claims = ["gradient_descent.steps", "linear_attention.algorithm"]
for model in (trained, icl_interp.load("softmax_fixed_20")):
    for finding in icl_interp.analyze(model, claims=claims, progress=False).findings:
        print(f"{model.name}, {finding.id}: {finding.verdict}\n    {finding.reason}\n")

# %% [markdown]
# ## Exercise
# Train the first model on longer prompts, of 40 examples. Which size of its step do you expect? Put
# the number into `answer`.
#
# <details><summary>Hint</summary>
#
# The more examples there are, the better they say how inputs are spread. Theorem 4.1 is above.
#
# </details>

# %%
answer = None  # a number, in place of None

# %%


def check(answer: float) -> None:
    """By the theorem, to two digits."""
    right = float(theory.landscape(torch.eye(3), 40).product[0, 0])
    assert abs(answer - right) < 0.01, "that is not the size with the least expected error"


if answer is not None:
    check(answer)
    print("right")

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# answer = 1 / (1 + (3 + 1) / 40)
# ```
#
# That is 0.909. With very long prompts the size goes to 1. One step of size 1 is then least
# squares, because the mean of $x_i x_i^\top$ is the identity.
#
# </details>

# %% [markdown]
# ## More to try
# `icl_interp.algorithm("lsa_fixed")` asks a model of five coordinates with unequal variances. Which
# of the three kinds of one step is left, and why?
