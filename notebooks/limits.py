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
# # The limits of in-context learning, on small models
#
# Naim & Asher (2025), *Analyzing limits for in-context learning*, train transformers on polynomials
# and ask where they fail, and why. This notebook walks through their study on the bundled models.
# What can they do in distribution (on prompts drawn as in training)? How do they fail outside, and
# what do LayerNorm and softmax have to do with it? Nothing is trained here. Numbers are measured as
# you run the cells, or come with the package (`icl-interp reproduce` measures these again).

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
from icl_interp import baselines, evaluation
from icl_interp.figures import reproductions
from icl_interp.results import from_dict

affine = icl_interp.load("affine")
without = icl_interp.load("affine_no_ln")


def kept(name: str) -> dict:
    """Figures of an experiment of the package; prints its outcome and its scale."""
    record, results = icl_interp.experiments.record(name), icl_interp.experiments.results(name)
    print(f"{name}, {record['scale']['words']}")
    for line in record["says"]:
        print("*", line)
    comparison = record["comparison"]
    return reproductions.draw(name, results, from_dict(comparison) if comparison else None)


# %% [markdown]
# ## In distribution (section 4)
# The functions are straight lines, and a prompt shows twenty points. The table compares the model
# with least squares, which is exact here, and with predicting 0. The *error rate* is the error
# divided by the gap between the errors of these two. It is 0 for least squares and 1 for
# predicting 0.

# %%
print(icl_interp.evaluate(affine))

# %% [markdown]
# Attention does it: the same network without attention learns nothing, and without MLPs it learns
# nearly as well.

# %%
for name in ("affine_mlp_only", "affine_attn_only", "affine"):
    error = icl_interp.load(name).provenance["in_distribution"]
    print(f"{name:18} error {error['error']:.2g}, R2 {error['r2']:.4f}")

# %% [markdown]
# ## Out of distribution (Table 1)
# Coefficients now come from $U(-\sigma, \sigma)$, uniform from $-\sigma$ to $\sigma$. Both models
# were trained at $\sigma = 1$. They see the same functions, so errors are compared function by
# function. Otherwise the sampling error would hide a gap of this size.

# %%
errors = evaluation.shifted(
    {"with LN": affine, "without LN": without}, affine.task, (1, 4, 10), n_contexts=16
)
for sigma in (1, 4, 10):
    with_ln, without_ln, zero = (
        errors.sel(predictor=p, sigma=sigma).values.mean()
        for p in ("with LN", "without LN", "zero")
    )
    ratio = evaluation.paired_ratio(errors, "without LN", "with LN", sigma)
    print(
        f"sigma {sigma:2}: with LN {with_ln:.3g}, without {without_ln:.3g}, predicting 0 "
        f"{zero:.3g}; without / with = {10**ratio.value:.2f} [{10**ratio.low:.2f}, "
        f"{10**ratio.high:.2f}]"
    )

# %% [markdown]
# The next figure has the whole table, with five runs of each model. Crosses are the paper's
# numbers, from which it concludes that a model without LayerNorm is better.

# %%
kept("limits.table1")["errors"]

# %% [markdown]
# *How to read it.* The gap between the models is small, and it stays open which is better. Both
# fail: as $\sigma$ grows, their errors come close to that of predicting 0.
#
# ## Degree by degree (Observation 1, Figure 3)
# One model was trained for each degree of polynomials. As $\sigma$ grows, the error rate climbs in
# the same way for every degree, as the paper says. In distribution the degrees differ.

# %%
kept("limits.figure3")["rates"]

# %% [markdown]
# ## Boundary values (section 5, Figure 4)
# Fix the examples of a prompt and let the query alone go far. With LayerNorm the prediction levels
# off. The weights alone give a band that holds every prediction, and the value at which it levels
# off.

# %%
report = icl_interp.analyze(
    "degrees_135", claims=("limits.layernorm_saturation", "limits.context_erased"), progress=False
)
for finding in report.findings:
    print(f"{finding.verdict}: {finding.reason}\n")
report.figures["far_query"]

# %% [markdown]
# *How to read it.* Each thin line is a prompt. The predictions stay in the band (green) and end at
# the values that the weights give (orange).
#
# ## Where is the prediction formed? (appendix F, Figure 8)
# The *logit lens* applies the model's own read-out after each block, as if the later blocks did not
# exist. The paper finds that the last block forms the prediction.

# %%
kept("limits.figure8")["layers"]

# %% [markdown]
# *How to read it.* The right panel has R² over many functions. The lens reads almost the whole
# prediction before the last block (after block 1).
#
# ## Is it a known algorithm? (section 6)
# How far are the model's predictions from those of classical algorithms, in distribution? Distances
# are relative to the mean square of the truth.

# %%
import torch

prompts = affine.task.sample(256, torch.Generator().manual_seed(0), dtype=torch.float64)
own = affine.predict(prompts)[:, 2:]
size = prompts.ys[:, 2:].square().mean()
for name, algorithm in baselines.classical(affine.task).items():
    distance = (algorithm.predict(prompts)[:, 2:] - own).square().mean() / size
    print(f"{name:30} {distance:.2g}")

# %% [markdown]
# *How to read it.* The model predicts nearly what least squares does. (Bayes over degrees is the
# best guess if the degree is unknown.)
#
# ## What theory says (appendix G.1)
# Take one attention layer whose tokens are single numbers. The score of the query $x$ with a token
# $x_j$ is $\alpha\, x\, x_j$, with a number $\alpha$ (alpha) for each head. Far out a head with
# $\alpha > 0$ attends to the query itself, with $\alpha < 0$ to the extreme token on the other
# side, and with $\alpha = 0$ to all alike. Two of the three limits that the paper prints are not
# what its formula gives. Here they are tested on the first layer of the model without LayerNorm:

# %%
kept("limits.appendix_g")["gaps"]

# %% [markdown]
# *How to read it.* Lines are distances from a limit, so a right one falls or lies at the bottom.
# The exact limits (blue) do so in each panel, those of the paper (orange) only in the first.
#
# ## Does anything help? (section 6)
# The paper closes with advice: constrain embeddings, revise the scoring function (how scores become
# attention weights). A baseline and seven models that each differ from it in one such respect were
# trained and measured alike:

# %%
kept("limits.remedies")["side_by_side"]

# %% [markdown]
# *How to read it.* A row is a model, and the dotted line is the baseline. Some changes help
# somewhere. None helps far out: with the query at $10^4$ all models err as much as predicting 0.
#
# ## Everything at once
# `icl_interp.analyze("affine")` judges all registered claims, these and more. Each of the following
# is reproduced by `icl-interp reproduce ID`:

# %%
for name in icl_interp.experiments.names():
    if name.startswith("limits."):
        print(f"{name:18} {icl_interp.experiments.get(name).title}")

# %% [markdown]
# ## Exercise
# Take coefficients from $U(-4, 4)$ instead of $U(-1, 1)$. What is the error of `affine`, relative
# to that of predicting 0? Guess first: R² in distribution is above 0.99. Then measure it and put
# the ratio into `answer`.
#
# <details><summary>Hint</summary>
#
# `evaluation.shifted` above has the errors at sigma = 4, also of `zero`.
#
# </details>

# %%
answer = None  # a number, in place of None


# %%
def check(answer: float) -> None:
    """Other functions than yours, 4,000 of them."""
    import torch

    judge = icl_interp.load("affine")
    drawn = judge.task.sample(4000, torch.Generator().manual_seed(99))
    a, x = 4 * drawn.parameters, drawn.xs  # coefficients four times as large
    values = judge.task.value(a, x)
    shown = type(drawn)(x, values, a, drawn.function)
    missed = judge.predict(shown)[:, -1, 0] - shown.ys[:, -1, 0]
    truth = float(missed.square().mean() / shown.ys[:, -1].square().mean())
    assert abs(answer - truth) < 0.05, "other functions give another ratio"


if answer is not None:
    check(answer)
    print("right")

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# errors = evaluation.shifted({"model": affine}, affine.task, (4,), n_contexts=64)
# mine, zero = (errors.sel(predictor=p, sigma=4).values.mean() for p in ("model", "zero"))
# answer = float(mine / zero)
# ```
#
# In distribution the ratio is below 0.01. Functions that are only four times as steep make it many
# times as large.
#
# </details>
