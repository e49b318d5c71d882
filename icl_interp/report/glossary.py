"""The words of reports and documentation: one term for one thing, each with what it means."""

from collections.abc import Mapping

from icl_interp.analyses.criterion import FAMILY

TERMS: Mapping[str, str] = {
    "prompt, context, query": "A prompt holds pairs (x, f(x)) of inputs and values of one function "
    "f, its context, and a last input, the query. The model predicts f at the query.",
    "target, prediction": "The target f is the function of a prompt. The prediction, ŷ, is the "
    "model's answer at the query.",
    "in distribution": "Prompts drawn as in training.",
    "ICL1, ICL2": "Two meanings of learning a class of functions in context. ICL1: for functions "
    "and inputs drawn as in training the error at a query is small, and about the same whichever "
    "context of the function was drawn. ICL2: this holds for every distribution of functions and "
    "of inputs.",
    "distribution": "The law from which functions and inputs of prompts are drawn, for example "
    "U(-1, 1), uniform between -1 and 1, or N(0, 1), normal with mean 0 and variance 1.",
    "u": "The standard deviation of the prediction in distribution, and the unit in which "
    "predictions are measured. For vectors it is the root of the sum of their coordinates' "
    "variances, and changes are measured by their length.",
    "normalised error": "A mean squared error divided by that of a named reference. If the "
    "reference predicts 0, a model that predicts 0 has 1. If it is the best guess without the "
    "prompt, a model that ignores the prompt has 1 or more.",
    "R²": "1 minus the mean squared error over the variance of the target in distribution.",
    "unit of the sample": "What a bootstrap resamples: a function and its mirror image about the "
    "mean of their distribution, each in several contexts.",
    "95 % interval": "The range in which the true value lies with 95 % confidence. It comes from a "
    "bootstrap over units, or from exact permutations over training runs.",
    "supported, contradicted, inconclusive": "A claim is supported where the whole interval lies "
    "in the zone that was fixed for it, contradicted where it lies in the opposite zone, and "
    "inconclusive (open) otherwise.",
    "firm": "The interval lies inside its zone at a much stricter level, too: the probability that "
    f"any firm verdict of all registered claims is wrong by chance is at most {100 * FAMILY:g} %.",
    "by algebra": "The verdict follows from the design of the model or from sizes alone, so it is "
    "true of every network of this kind. It is no evidence of what training made.",
    "architecture claim, learning claim": "An architecture claim follows from the design of the "
    "model and must hold without training. A learning claim is about what training made.",
    "randomly initialised control": "A model of the same architecture with fresh random weights. "
    "What holds for it was not made by training.",
    "control intervention": "An intervention of the same kind at a place where it should change "
    "nothing. It shows what the intervention itself disturbs.",
    "matched model": "A trained model that differs from this one in one respect, such as its norm "
    "or its training range. Options call it a companion.",
    "test condition": "One way of changing prompts: a query far away, functions scaled, all inputs "
    "scaled.",
    "far from the data": "Queries whose |x| is many times the largest one of training, up to a "
    "million times.",
    "plateau, onset": "The plateau is the level that the prediction tends to far from the data. "
    "Its onset is the |x| from which on the prediction stays near it.",
    "bound on the output": "LayerNorm bounds its output, so the weights alone bound the "
    "prediction. The half-width of this bound is half the distance between the least and the "
    "largest possible prediction.",
    "head that matters": "An attention head whose removal at least doubles the error in "
    "distribution.",
    "ablation": "A part of the model is replaced by its mean over prompts, and the error is "
    "measured again.",
    "attention pattern": "The weights with which a head averages what it reads: one row for each "
    "token, over the tokens that it sees.",
    "direct attribution": "The prediction is a sum of what heads, MLPs and the read-in write, once "
    "the scale of the last norm is held. The share of a part is its covariance with the prediction "
    "over the prediction's variance.",
    "stream": "The vector of each token, to which heads and MLPs add. The read-in makes it, and "
    "the read-out predicts from it.",
    "lens": "The prediction that a read-out makes from the stream between two layers: with the "
    "model's own read-out (logit lens), or with the best affine one.",
    "hand-built model": "A model whose weights were written down, so that it is known which claims "
    "are true of it.",
    "power curve": "The share of models with each verdict, for each value of a number (a dial) "
    "that takes hand-built models from where the claim is false to where it is true.",
    "preset": "A size of an experiment: smoke only shows that it runs, small is what the "
    "repository holds, paper is the size of the paper.",
}


def markdown() -> str:
    """The glossary as a page of the documentation."""
    parts = ["# Glossary", "The words of reports, of the command line and of these pages."]
    return (
        "\n\n".join([*parts, *(f"**{term}**: {meaning}" for term, meaning in TERMS.items())]) + "\n"
    )
