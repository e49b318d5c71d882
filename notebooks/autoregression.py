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
# # How does linear attention learn the rule of a sequence?
#
# A model sees the first states of a path, $s_0, s_1, \dots, s_t$, and has to say the next one. Each
# state is the one before it times a matrix, $s_{t+1} = W s_t$. The matrix is new in every prompt,
# so the weights cannot hold it: it has to be estimated from the prompt. As in a language model, the
# only task is to predict the next token, at every token.
#
# Sander, Giryes, Suzuki, Blondel & Peyré (2024) find the best weights of one layer of *linear*
# attention (attention without the softmax) in closed form. This notebook looks at one path first,
# builds their layer by hand, lets gradient descent look for it, and then asks what trained
# transformers do. It runs in about a minute and trains no transformer.

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
from plotly.subplots import make_subplots

import icl_interp
from icl_interp.figures.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, TEMPLATE
from icl_interp.models.diagonal_unit import DiagonalAttention
from icl_interp.tasks.autoregressive import complex_states
from icl_interp.theory import autoregression as theory


def finish(
    figure: go.Figure, width: int = 900, height: int = 360, legend: bool = True
) -> go.Figure:
    return figure.update_layout(
        template=TEMPLATE, width=width, height=height, showlegend=legend, margin={"t": 60}
    )


# %% [markdown]
# ## One path
# *What does the model get to see?* Here $W$ rotates three planes, each by an angle of its own, so a
# state has six numbers: two for each plane. We draw each plane by itself.

# %%
checkpoint = icl_interp.load("autoregression_rotations")
task = checkpoint.task
prompt = task.sample(1, torch.Generator().manual_seed(2), dtype=torch.float64)
states, target = prompt.xs[0], prompt.ys[0, -1]

figure = make_subplots(1, 3, subplot_titles=[f"plane {k + 1}" for k in range(3)])
for k in range(3):
    x, y = states[:, 2 * k], states[:, 2 * k + 1]
    labels = [str(t) for t in range(len(x))]
    figure.add_scatter(
        x=x,
        y=y,
        text=labels,
        textposition="top center",
        mode="lines+markers+text",
        row=1,
        col=k + 1,
    )
    star = {"symbol": "star", "size": 14, "color": "gold", "line": {"color": INK, "width": 1}}
    figure.add_scatter(
        x=[target[2 * k]], y=[target[2 * k + 1]], mode="markers", marker=star, row=1, col=k + 1
    )
figure.update_traces(line={"color": BLUE, "width": 0.6}, selector={"mode": "lines+markers+text"})
figure.update_xaxes(range=[-1.35, 1.35])
figure.update_yaxes(range=[-1.35, 1.35])
finish(figure, 960, 380, legend=False)

# %% [markdown]
# The numbers count the states, and the star is the state that is asked for. In each plane every
# step turns by the same angle. So the last two states show all that one has to know: turn the last
# state once more by the angle between them.
#
# A plane with two coordinates can be read as a complex number $z$, and a rotation multiplies it by
# a number $\lambda$ of size 1. From two states in a row $\lambda = s_t \overline{s_{t-1}}$ (the bar
# is the complex conjugate, and all states have size 1). The next state is $\lambda s_t$.

# %%
path = complex_states(states)  # (point, plane)
guess = path[-1] * path[-2].conj() * path[-1]
print("next state by hand:", guess.numpy().round(3))
print("the true one:      ", complex_states(target).numpy().round(3))

# %% [markdown]
# ## The layer by hand
# *Can attention do this?* The layer of the paper predicts the state after $s_T$ as
#
# $$\sum_{h} \sum_{t \le T} P_{T t}\; \langle s_{T-1}, A_h s_t \rangle \; B_h s_t .$$
#
# It is attention: $\langle s_{T-1}, A_h s_t \rangle$ is the score of key $t$ for head $h$, with the
# state *before* the last as the query. $B_h s_t$ is the value. There is no softmax. Instead each
# score is multiplied by a number $P_{Tt}$ that depends on the positions alone. $A_h$ and $B_h$ are
# diagonal matrices.
#
# Proposition 3 says what the best weights are when there are as many heads as coordinates. All
# weight lies on the last state, $P_{TT} = 1$, and head $h$ has a single 1 in $A_h$ and $B_h$, at
# coordinate $h$. Then head $h$ computes $\overline{s_{T-1}}\, s_T\, s_T$ in its coordinate, which
# is the rule from above.

# %%
A, B, _ = theory.unitary_heads(3, n_tokens=10)
unit = DiagonalAttention(
    A.to(torch.complex128), B.to(torch.complex128), torch.eye(10, dtype=torch.float64)
)
with torch.no_grad():
    predicted = unit(path[None])[0]
error = (predicted[1:-1] - path[2:]).abs().max()
print(f"largest error at any state but the first two: {float(error):.1e}")

# %% [markdown]
# The package's transformer contains this layer. One complex head becomes two real ones.

# %%
model = unit.to_transformer()
with torch.no_grad():
    real = model(states[None])[0]
print(
    f"{model.cfg.n_heads} real heads; largest difference: "
    f"{float((complex_states(real) - predicted).abs().max()):.1e}"
)

# %% [markdown]
# ## Does gradient descent find it?
# *These weights are the best. Does training from small random weights end there?* The loss of this
# layer is known exactly: it is a polynomial in $C = B^\top A$ and in the last row $p$ of $P$. (Row
# $h$ of $A$ is the diagonal of $A_h$, and likewise for $B$.) So we can follow gradient flow
# (gradient descent with steps that tend to 0) without any sampling. A loss of 1 is that of
# predicting 0.

# %%
d, n_tokens = 3, 8
times = torch.linspace(0, 40, 81, dtype=torch.float64)
figure = go.Figure()
for seed in range(5):
    numbers = torch.Generator().manual_seed(seed)
    a, b = (0.2 * torch.randn(d, d, generator=numbers, dtype=torch.float64) for _ in "AB")
    flow = theory.gradient_flow(
        a,
        b,
        0.2 * torch.randn(n_tokens, generator=numbers, dtype=torch.float64),
        times,
        paired=False,
    )
    figure.add_scatter(x=times, y=flow.loss / d, mode="lines", line={"color": BLUE, "width": 1.2})
figure.update_xaxes(title="time")
figure.update_yaxes(title="loss over that of predicting 0", type="log", exponentformat="power")
finish(figure, 620, 340, legend=False)

# %% [markdown]
# All five runs reach 0. Where do they end? Proposition 3 says $p_T\, C = I$, the identity matrix,
# and $p_t = 0$ for all other positions. The figure shows the last run.

# %%
C, p = flow.values[-1].T @ flow.queries[-1], flow.positions[-1]
figure = make_subplots(1, 2, subplot_titles=("p<sub>T</sub> C", "p, position by position"))
figure.add_heatmap(z=p[-1] * C, zmin=-1, zmax=1, colorscale="RdBu", showscale=False, row=1, col=1)
figure.add_bar(x=list(range(n_tokens)), y=p, marker={"color": BLUE}, row=1, col=2)
figure.update_yaxes(autorange="reversed", row=1, col=1)
figure.update_xaxes(title="key", row=1, col=2)
finish(figure, 760, 340, legend=False)

# %% [markdown]
# It ends where the proposition says. Single heads are not fixed by this, since only the product $C$
# of all heads counts. But from $p_T\, B^\top A = I$ follows $p_T\, A B^\top = I$: the diagonals
# $a_h$ and $b_{h'}$ of *different* heads are orthogonal, as the paper says.

# %%
products = theory.head_products(flow.queries[-1], flow.values[-1]).products
print("p_T a_h . b_h', row h:\n", (p[-1] * products).numpy().round(3))

# %% [markdown]
# ## Fewer heads
# *Are as many heads as coordinates needed?* In general yes. But eigenvalues of a real rotation come
# in pairs $\lambda$ and $\overline\lambda$. Then $d / 2$ heads suffice for $d$ coordinates, if they
# also look at the state before the last. Lemma 3 uses that for a rotation $R$ by $\theta$
#
# $$R^2 = 2 \cos(\theta)\, R - I .$$

# %%
layer = theory.orthogonal_heads(4, n_tokens=6)
C = layer.values.T @ layer.queries
print(
    f"loss with 2 heads for 4 coordinates: {float(theory.orthogonal_loss(C, layer.positions)):.1e}"
)
print(f"p, the weights of positions: {layer.positions.numpy()}")

# %% [markdown]
# *Does training find these weights as well?* We follow gradient flow from ten random starts for
# each number of heads.

# %%
late = torch.tensor([0.0, 300.0], dtype=torch.float64)
figure = go.Figure()
for heads in (2, 3, 4):
    ends = []
    for seed in range(10):
        numbers = torch.Generator().manual_seed(100 + seed)
        a, b = (0.2 * torch.randn(heads, 4, generator=numbers, dtype=torch.float64) for _ in "AB")
        start = 0.2 * torch.randn(6, generator=numbers, dtype=torch.float64)
        ends.append(
            float(theory.gradient_flow(a, b, start, late, paired=True, tolerance=1e-7).loss[-1]) / 4
        )
    reached = sum(end < 1e-3 for end in ends)
    print(f"{heads} heads: {reached} of 10 starts end with a loss below 0.001")
    figure.add_scatter(
        x=[heads] * 10,
        y=[max(end, 1e-12) for end in ends],
        mode="markers",
        marker={"color": BLUE, "size": 8, "opacity": 0.5},
    )
figure.update_xaxes(title="heads, for 4 coordinates", tickvals=[2, 3, 4])
figure.update_yaxes(
    title="loss at the end, over that of predicting 0", type="log", exponentformat="power"
)
finish(figure, 560, 360, legend=False)

# %% [markdown]
# *How to read it.* Each dot is a start. Weights that work exist for two heads, but few starts find
# them. So it takes more heads to *learn* the rule than to *represent* it.

# %% [markdown]
# ## What a trained transformer does
# *Does a transformer that is trained on samples find the same?* `autoregression_rotations` has six
# real heads of linear attention on these rotations, and its matrices need not be diagonal. It
# predicts almost without error:

# %%
error = checkpoint.provenance["in_distribution"]
print(f"mean squared error {error['error']:.1e}; predicting 0 has {error['zero']:.2f}")

# %% [markdown]
# Before you look: on which diagonal of the matrix $P$ do you expect its weight?

# %%
P = checkpoint.model.blocks[0].attn.W_P.detach()
figure = go.Figure(go.Heatmap(z=P, colorscale="RdBu", zmid=0, colorbar={"title": "weight"}))
figure.update_xaxes(title="key")
figure.update_yaxes(title="query", autorange="reversed")
finish(figure, 460, 400)

# %%
report = icl_interp.analyze(
    checkpoint,
    claims=(
        "autoregression.past_token",
        "autoregression.same_on_diagonals",
        "autoregression.implicit_map",
    ),
    progress=False,
)
for finding in report.findings:
    print(f"{finding.verdict:>14}  {finding.short}\n{'':>16}{finding.reason}\n")

# %% [markdown]
# The model predicts as well as the paper's layer and does not do what that layer does. Look at the
# heat map again (entries above the diagonal are never used). Every query after the first puts its
# weight on one key, the *second* state $s_1$. All paths of this task start at $s_0 = 1$ (in complex
# coordinates), so $s_1 = W s_0$ shows the eigenvalues themselves. No ratio of two states is needed:
# the model multiplies the last state by $s_1$.

# %%
share = P.tril().square() / P.tril().square().sum(1, keepdim=True)
print(
    f"share of each row's squared weight on the second state: {float(share[1:, 1].min()):.3f} at "
    "least"
)

# %% [markdown]
# The paper asks for diagonal $A_h$ and $B_h$. For these, the best weights are what Proposition 3
# says. A transformer with free matrices has more ways, and training took another one. The first
# verdict above shows it by an intervention: the last state is replaced by that of another path,
# unlike in any training prompt. A model that turns the last state by the ratio of the last two
# would follow it. This one does not.

# %% [markdown]
# ## With softmax
# *Does softmax do as well?* `autoregression_rotations_softmax` is the same model, trained in the
# same way, with softmax in the place of the linear scores.

# %%
sample = task.sample(256, torch.Generator().manual_seed(5))
figure = go.Figure()
for name, colour in (
    ("autoregression_rotations", BLUE),
    ("autoregression_rotations_softmax", ORANGE),
):
    each = (icl_interp.load(name).predict(sample) - sample.ys).square().mean((0, 2))
    figure.add_scatter(
        x=list(range(1, 11)), y=each, name=name, mode="lines+markers", line={"color": colour}
    )
figure.update_xaxes(title="states seen")
figure.update_yaxes(title="mean squared error", type="log", exponentformat="power")
finish(figure, 720, 380)

# %% [markdown]
# *How to read it.* After one state nothing can be known about $W$. From the second on the linear
# model has almost no error, and the softmax model stays orders of magnitude above it. The rule
# multiplies three states, $\overline{s_{T-1}} s_T s_T$. Linear attention multiplies three states as
# well (query, key, value). Softmax attention averages states.

# %% [markdown]
# ## Many layers against gradient descent
# *What if matrices do not commute, as the rotations above do?* For general orthogonal matrices one
# ratio is not enough: the prompt has to determine a whole matrix. The classical way is gradient
# descent on the errors of the prompt, $\frac12 \sum_t |s_t - W s_{t-1}|^2$. How many steps of it is
# a layer worth? We compare a transformer of two layers with gradient descent from $W = 0$. The
# transformer has softmax, MLPs, norms, and tokens that hold $s_t$ and $s_{t-1}$. Each number of
# steps has the step size that is best for it.

# %%
deep = icl_interp.load("autoregression_full_2")
sample = deep.task.sample(256, torch.Generator().manual_seed(7), dtype=torch.float64)
own = (deep.predict(sample) - sample.ys).square().mean((0, 2))
n = sample.n_points


def descended(steps: int, size: float, upto: int) -> float:
    """The error at one point of gradient descent on the states up to it.

    The step is `size` over the number of these states.
    """
    seen = sample.xs[:, : upto + 1]
    W = theory.gradient_descent(seen, size / upto, steps)
    return float(((W @ seen[:, -1:].mT)[..., 0] - sample.ys[:, upto]).square().mean())


figure = go.Figure()
places = list(range(1, n, 3))
for steps, colour in ((1, GREY), (2, GREEN), (4, PURPLE), (8, INK)):
    best = min(
        (0.5, 1.0, 1.5, 2.0, 2.5, 3.0), key=lambda size, steps=steps: descended(steps, size, n - 1)
    )
    curve = [descended(steps, best, t) for t in places]
    figure.add_scatter(
        x=[t + 1 for t in places],
        y=curve,
        name=f"{steps} steps",
        mode="lines",
        line={"color": colour, "dash": "dot"},
    )
figure.add_scatter(
    x=list(range(1, n + 1)), y=own, name="2 layers", mode="lines+markers", line={"color": BLUE}
)
figure.update_xaxes(title="states seen")
figure.update_yaxes(title="mean squared error", type="log", exponentformat="power")
finish(figure, 760, 400)

# %% [markdown]
# *How to read it.* From four states on the two layers err less than eight steps of gradient
# descent.
#
# ## Exercise
# The rule $\overline{s_{T-1}}\, s_T\, s_T$ holds where every step keeps the size of a state. Let
# $|\lambda|$ be other than 1, so that a path $z_{t+1} = \lambda z_t$ shrinks or grows. Write the
# rule that still gives the next state from the last two. Put a function of a path, a complex tensor
# (point, plane), into `answer`.
#
# <details><summary>Hint</summary>
#
# $\lambda$ is the quotient of two states in a row. Where was it allowed to multiply by the complex
# conjugate instead?
#
# </details>

# %%
answer = None  # a function of a path that returns its next state, in place of None

# %%
from collections.abc import Callable


def check(answer: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """On paths that shrink and grow."""
    numbers = torch.Generator().manual_seed(99)
    size, angle, start = (torch.rand(8, generator=numbers, dtype=torch.float64) for _ in range(3))
    factor = torch.polar(0.5 + size, 6 * angle)
    path = torch.polar(0.5 + start, angle) * factor ** torch.arange(6)[:, None]  # (point, plane)
    found = answer(path[:-1])
    assert torch.allclose(found, path[-1]), "not the next state"


if answer is not None:
    check(answer)
    print("right")

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def next_state(path):
#     return path[-1] * path[-1] / path[-2]
#
#
# answer = next_state
# ```
#
# Dividing by a number is multiplying by its conjugate and dividing by the square of its size. For
# the states above this size is 1. A layer of linear attention multiplies but does not divide, so it
# can follow the rule for rotations only.
#
# </details>

# %% [markdown]
# ## More to try
# `autoregression_states` sees plain states and has to build the pairs $(s_t, s_{t-1})$ itself, with
# heads that look at the position before (Lemma 1). Analyse it with the claim
# `autoregression.augmented_tokens`. Which head looks back? Then switch that head off with
# `icl_interp.interventions.AblateHeads.zero` and plot the error against the number of states seen.
