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
# # What does this small transformer really do?
#
# A transformer was trained to learn functions from examples. Its prompt is
# $x_1, f(x_1), x_2, f(x_2), \dots, x$, with a function $f$ that it has never seen, and it answers
# with a prediction $\hat y$ of $f(x)$. The last input $x$ is called the *query*. Naim & Asher
# (2025) make four claims about such models far from the data. LayerNorm makes the prediction level
# off. Softmax attention turns into a hardmax (all attention on one token). The prompt is forgotten.
# And LayerNorm is the reason why such models fail. Which of these claims hold on **these very
# weights**?
#
# The notebook takes about a minute and trains nothing.

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
from icl_interp.figures.style import BLUE, INK, ORANGE, TEMPLATE

checkpoint = icl_interp.load("affine")
model, task = checkpoint.model, checkpoint.task

# %% [markdown]
# ## One prompt
# *What does the model get to see?* Here is one prompt: nineteen examples of a straight line, and a
# query. All inputs in training lay between -1 and 1. We ask at many queries, also outside of that
# interval.

# %%
prompt = task.sample(1, torch.Generator().manual_seed(1))
queries = torch.linspace(-6, 6, 97)
asked = torch.cat([prompt.xs[:, :-1].expand(97, -1, -1), queries[:, None, None]], 1)
line = task.value(prompt.parameters.expand(97, -1), asked)
with torch.no_grad():
    answers = checkpoint.predict(
        type(prompt)(asked, line, prompt.parameters.expand(97, -1), torch.arange(97))
    )[:, -1]

figure = go.Figure(layout={"template": TEMPLATE, "width": 640, "height": 340})
figure.add_vrect(
    x0=-1, x1=1, fillcolor="#EFEFEF", line_width=0, layer="below", annotation_text="training data"
)
figure.add_scatter(
    x=queries, y=line[:, -1].ravel(), name="the function f", line={"color": INK, "dash": "dot"}
)
figure.add_scatter(x=queries, y=answers.ravel(), name="the model's answers", line={"color": ORANGE})
dots = {"color": BLUE, "size": 7}
figure.add_scatter(
    x=prompt.xs[0, :-1, 0], y=prompt.ys[0, :-1, 0], mode="markers", marker=dots, name="examples"
)
figure.update_layout(xaxis_title="query x", yaxis_title="value", legend={"y": 1.02})

# %% [markdown]
# *How to read it.* Inside the interval the answers lie on the line. Some way outside they leave it.
# What happens farther out, and why?
#
# ## One call judges all claims
# `analyze` measures the model and judges every claim that can apply to it.

# %%
report = icl_interp.analyze("affine", progress=False)
report

# %% [markdown]
# A *finding* is what came out for one claim. Its verdict rests on a number with a 95 % interval,
# and on a criterion that was fixed before anything was measured.

# %%
finding = report["limits.layernorm_saturation"]
print(finding.verdict, "-", finding.reason)
print("criterion:", finding.criterion.text)

# %% [markdown]
# ## Far from the data
# *Where do the predictions go?* The figure shows 32 prompts. The query runs over seven orders of
# magnitude in both directions, on an axis that is linear near 0 and logarithmic far out.

# %%
report.figures["far_query"]

# %% [markdown]
# *How to read it.* Dotted lines are the functions, thin lines the model's predictions. Far out all
# predictions come close to one value on each side (orange), which follows from the weights alone.
# There the prompt moves them only a few thousandths as much as near the data. The function can
# still be read off these small differences.
#
# *Is LayerNorm the cause?* LayerNorm divides each token's vector by its scale (the standard
# deviation of its entries), which grows with the query. We hold the scale of every norm, at the
# query only, at its value in distribution (for prompts drawn as in training). As a control we do
# the same at the tokens of the examples, where it should change nothing. The number is the exponent
# of growth: -1 where the prediction levels off like $1/|x|$, 1 where it grows like $|x|$.

# %%
causal = report["limits.layernorm_causes_saturation"].causal
named = {
    "intact": "unchanged",
    "frozen": "scales held at the query",
    "sham": "control: held in the context",
}
for key, name in named.items():
    print(f"{name:30} {causal[key]:+.3f}")
for norm, exponent in causal["each norm alone"].items():
    print(f"only {norm:25} {exponent:+.3f}")

# %% [markdown]
# So the last LayerNorm alone makes the plateau (the level at which the prediction stays).
#
# ## The cause of the plateau is not the cause of the failure
# The paper concludes that LayerNorm is why the model fails. *Does the failure go away when all
# scales are held?*

# %%
print(report["limits.layernorm_causes_failure"].reason)

# %% [markdown]
# A second model was trained without any norm.

# %%
claims = ("limits.linear_asymptote", "limits.context_erased", "limits.softmax_hardmax")
without = icl_interp.analyze("affine_no_ln", claims=claims, progress=False)
for finding in without.findings:
    print(f"{finding.id}: {finding.verdict}\n    {finding.reason}\n")

# %%
without.figures["far_query"]

# %% [markdown]
# Without a norm the prediction becomes a straight line in each direction. The weights alone fix its
# slope, and the prompt still moves its height. So this model fails far out as well, in another way.
#
# ## Look inside
# The models have the hooks (places where activations can be read), the names of weights and the
# cache of TransformerLens.

# %%
prompts = task.sample(256, torch.Generator().manual_seed(0))
with torch.no_grad():
    predictions, cache = model.run_with_cache(checkpoint.encoding.encode(prompts))
cache["blocks.2.attn.hook_pattern"].shape  # (prompt, head, query token, key token)

# %% [markdown]
# *What does the model lose if layer 0 attends to every token alike?* Interventions change
# activations inside a `with` block. They leave the model as it was.

# %%
from icl_interp.interventions import SwapPattern


def error() -> float:
    """Mean squared error of the predictions from the third point on."""
    with torch.no_grad():
        return (checkpoint.predict(prompts) - prompts.ys)[:, 2:].square().mean().item()


print("unchanged      ", error())
with icl_interp.intervene(model, SwapPattern("uniform", heads=((0, 0), (0, 1), (0, 2), (0, 3)))):
    print("layer 0 uniform", error())
print("afterwards     ", error())

# %% [markdown]
# Probes read activations of many prompts in constant memory, and `plot` draws what they return.
# *How does the scale of each norm grow with the query?*

# %%
far = icl_interp.probe(
    checkpoint, prompts, queries=[0.1, 1.0, 10.0, 100.0, 1e3, 1e4], dtype=torch.float64
)
icl_interp.figures.plot(far["layernorm_scale.scale"], "Scale of each norm at the query")

# %% [markdown]
# *How to read it.* Both axes are logarithmic. Beyond 100 every scale grows in proportion to the
# query.
#
# *Are these the scales that the report judges by?* On the report's own prompts (`Bench.of`) they
# are, to rounding.

# %%
from icl_interp.probes import LayerNormScale

bench, shown = icl_interp.analyses.Bench.of("affine"), report.results["far/norm scales"]
probes = [LayerNormScale(per_prompt=True)]
same = icl_interp.probe(
    bench.model, bench.prompts, probes, bench.encoding, queries=shown["x"].values
)
logarithms = (
    torch.from_numpy(same["layernorm_scale.scale"].values).log().mean(-1)
)  # a mean over prompts
print("largest difference", (logarithms - torch.from_numpy(shown.values)).abs().max().item())

# %% [markdown]
# ## Keep it
# A report is one HTML page that opens offline, and JSON with every number. A saved report is judged
# and drawn again without the model. `report.figure("far_query", width="column")` gives a figure the
# width and the letters of a paper's column.

# %%
import tempfile

with tempfile.TemporaryDirectory() as folder:
    report.save(folder)
    again = icl_interp.Report.load(folder).judge()
print(again)

# %% [markdown]
# ## Exercise
# For inputs far below the training interval every prediction of `affine` ends near one value.
# Which? Read it off the figure first, then compute it for one prompt of yours with the query at
# $x = -10^6$. Put the number into `answer`.
#
# <details><summary>Hint</summary>
#
# Draw a prompt with `task.sample`, set `prompt.xs[:, -1]` to -1e6, and ask `checkpoint.predict`.
#
# </details>

# %%
answer = None  # a number, in place of None


# %%
def check(answer: float) -> None:
    """Other prompts than yours, as far out as yours: the prompt must not matter."""
    judge = icl_interp.load("affine")
    others = judge.task.sample(16, torch.Generator().manual_seed(99))
    others.xs[:, -1] = -1e6
    with torch.no_grad():
        level = judge.predict(others)[:, -1, 0]
    assert abs(answer - float(level.mean())) < 0.01, "predictions end at another value"


if answer is not None:
    check(answer)
    print("right")

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# prompt = task.sample(1, torch.Generator().manual_seed(5))
# prompt.xs[:, -1] = -1e6
# with torch.no_grad():
#     answer = float(checkpoint.predict(prompt)[0, -1, 0])
# ```
#
# One prompt is enough, since so far out the prompt hardly moves the prediction. That is what the
# claim `limits.context_erased` says.
#
# </details>

# %% [markdown]
# ## More to try
# Analyse `affine_post_ln`, which normalises after each sum instead of before each block. Is one
# norm enough to make its plateau? (`report["limits.layernorm_causes_saturation"].causal["each norm
# alone"]`.) The notebook `mechanism` asks next which heads make the predictions.
