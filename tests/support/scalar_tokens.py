"""One attention layer on scalar tokens, written out: weights, contexts, outputs at any query."""

import math

import torch
from exact_prompts import vector

EMBED, CONTEXT = vector(1, -2, 0.5, 3), vector(0.5, -1, 2)
ALPHAS, ZETAS = vector(0.5, -0.5), torch.stack([vector(0.2, 0.1, -0.3, 0.4), vector(1, 0, -1, 2)])
ONE, ZERO = torch.ones(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)


def mixture(x, context, alpha):
    """The softmax mixture at one x, from the paper's weights, shifted so that none overflows."""
    tokens = [*context.tolist(), float(x)]
    top = max(alpha * x * token for token in tokens)
    weights = [math.exp(alpha * x * token - top) for token in tokens]
    return sum(w * token for w, token in zip(weights, tokens, strict=True)) / sum(weights)


def attention_layer(x, embed, alphas, zetas, context):
    """The stream at the query: x embed + sum_h mixture_h(x) zeta_h."""
    return x * embed + sum(
        mixture(x, context, float(alpha)) * zeta for alpha, zeta in zip(alphas, zetas, strict=True)
    )
