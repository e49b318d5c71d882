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
# A transformer was trained to learn functions from examples: its prompt is $x_1, f(x_1), x_2, f(x_2), \dots, x$, and it
# answers with $f(x)$ for a function it has never seen. Naim & Asher (2025) make claims about such models: LayerNorm
# makes their output level off far from the data, softmax turns into a hardmax, the context is forgotten, and LayerNorm
# is *why* they fail there. Which of these hold on **these very weights**?

# %%
import icl_interp

report = icl_interp.analyze("affine", progress=False)
report

# %% [markdown]
# One call measured everything and judged every registered claim. A finding holds the number the verdict rests on, its
# interval, the criterion that was fixed beforehand, and the causal check.

# %%
finding = report["limits.layernorm_saturation"]
print(finding.verdict, "-", finding.reason)
print(finding.criterion.text)

# %% [markdown]
# ## Far from the data
# 32 contexts, the query swept over seven orders of magnitude in both directions. The truth (dotted) goes on; the model
# arrives at the value that its weights alone predict.

# %%
report.figures["far_query"]

# %% [markdown]
# Is LayerNorm the cause? Freeze every norm's scale at its in-distribution value, at the query only, and the output
# grows again. The sham - the same at the context positions - does nothing.

# %%
causal = report["limits.layernorm_causes_saturation"].causal
{name: causal[name] for name in ("intact", "frozen", "sham", "each norm alone")}

# %% [markdown]
# ## The cause of the plateau is not the cause of the failure
# The paper concludes that LayerNorm is why the model fails. The same model trained **without** any normalisation has no
# plateau. Is it any better far out?

# %%
print(report["limits.layernorm_causes_failure"].reason)

# %%
claims = ("limits.linear_asymptote", "limits.context_erased", "limits.softmax_hardmax")
without = icl_interp.analyze("affine_no_ln", claims=claims, progress=False)
for finding in without.findings:
    print(f"{finding.id}: {finding.verdict}\n    {finding.reason}\n")

# %% [markdown]
# Without the norm the output becomes one line in each direction - with a slope that the weights fix, not the prompt.
# The failure has changed its face.

# %%
without.figures["far_query"]

# %% [markdown]
# ## Look inside yourself
# The models are TransformerLens citizens: same hook names, same weight names, an `ActivationCache`.

# %%
checkpoint = icl_interp.load("affine")
model = checkpoint.model
model.cfg

# %%
import torch

prompts = checkpoint.task.sample(256, torch.Generator().manual_seed(0))
tokens = checkpoint.encoding.encode(prompts)
with torch.no_grad():
    predictions, cache = model.run_with_cache(tokens)
cache["blocks.2.attn.hook_pattern"].shape

# %% [markdown]
# Interventions compose and undo themselves. What does uniform attention in layer 0 cost in distribution?

# %%
from icl_interp.interventions import SwapPattern


def error():
    with torch.no_grad():
        return (checkpoint.predict(prompts) - prompts.ys)[:, 2:].square().mean().item()


print("intact          ", error())
with icl_interp.intervene(model, SwapPattern("uniform", heads=((0, 0), (0, 1), (0, 2), (0, 3)))):
    print("layer 0 uniform ", error())
print("after           ", error())

# %% [markdown]
# Probes read many prompts at constant memory.

# %%
statistics = icl_interp.probe(checkpoint, prompts)
sorted(statistics)

# %% [markdown]
# ## Keep it
# One HTML page that opens offline, and JSON with every number. A saved report is judged and drawn again without the
# model.

# %%
import tempfile

with tempfile.TemporaryDirectory() as folder:
    report.save(folder)
    again = icl_interp.Report.load(folder).judge()
[(finding.id, finding.verdict) for finding in again.findings]
