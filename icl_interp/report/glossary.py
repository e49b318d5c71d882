"""The words of reports and documentation: one term for one thing, each with what it means."""

from collections.abc import Mapping

from icl_interp.analyses.criterion import FAMILY

TERMS: Mapping[str, str] = {
    "prompt, context, query": "A prompt holds pairs (x, f(x)) of inputs and values of one function "
    "f, its context, and a last input, the query. The model predicts f at the query.",
    "target, prediction": "The target f is the function of a prompt. The prediction, ŷ, is what "
    "the model says.",
    "in distribution": "Prompts drawn as in training.",
    "ICL1, ICL2": "Two senses of learning a class of functions in context. ICL1: for functions and "
    "inputs drawn as in training the error at a query is small, and about the same whichever "
    "context of the function was drawn. ICL2: this holds for every distribution of functions and "
    "of inputs.",
    "distribution": "From what the functions and inputs of prompts are drawn, for example U(-1, "
    "1), uniform between -1 and 1, or N(0, 1), normal with mean 0 and variance 1.",
    "u": "The standard deviation of the prediction in distribution. It is the unit in which "
    "predictions are measured. Of vectors it is the root of the sum of their coordinates' "
    "variances, and changes are measured by their length.",
    "normalised error": "A mean squared error over that of a named reference. Over that of "
    "predicting 0 it is 1 for whoever predicts 0. Over that of the best guess without the prompt "
    "it is 1 for whoever ignores the prompt.",
    "R²": "1 minus the mean squared error over the variance of the target in distribution.",
    "95 % interval": "Where the true value lies, as far as the sample tells. It comes from a "
    "bootstrap over pairs of functions, or from exact permutations over training runs.",
    "supported, contradicted, inconclusive": "A claim is supported where the whole interval lies "
    "in the zone that was fixed for it, contradicted where it lies in the opposite zone, and "
    "inconclusive otherwise.",
    "firm": "The interval lies inside its zone at a much stricter level, too. The level is such "
    "that any firm verdict of all registered claims is wrong by chance with a probability of at "
    f"most {100 * FAMILY:g} %.",
    "by algebra": "The verdict follows from the design of the model or from sizes alone, so it is "
    "true of every network of this kind. It is no evidence of what training made.",
    "architecture claim, learning claim": "An architecture claim follows from the design of the "
    "model and must hold without training. A learning claim is about what training made.",
    "randomly initialised control": "A model of the same architecture with fresh random weights. "
    "What holds for it was not made by training.",
    "control intervention": "An intervention of the same kind at a place where it should change "
    "nothing. It shows what the intervention itself disturbs.",
    "matched model": "A trained model that differs from this one in one respect: its norm, say, or "
    "its training range. Options call it a companion.",
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
    "attention pattern": "The weights with which a head averages what it reads: a row for each "
    "token that looks, over the tokens that it sees.",
    "direct attribution": "The prediction is a sum of what heads, MLPs and the read-in write, once "
    "the scale of the last norm is held. The share of a part is its covariance with the prediction "
    "over the prediction's variance.",
    "lens": "The prediction that a read-out makes from the stream between two layers: with the "
    "model's own read-out (logit lens), or with the best affine one.",
    "hand-built model": "A model whose weights were written down, so that it is known which claims "
    "are true of it.",
    "power curve": "How a claim is judged on hand-built models that one number, a dial, takes from "
    "where the claim is false to where it is true: for each value of the number, the share of "
    "models with each verdict.",
    "preset": "A size of an experiment: smoke shows that it runs, small is what the repository "
    "holds, paper is the size of the paper.",
}


def markdown() -> str:
    """The glossary as a page of the documentation."""
    parts = ["# Glossary", "The words of reports, of the command line and of these pages."]
    return (
        "\n\n".join([*parts, *(f"**{term}**: {meaning}" for term, meaning in TERMS.items())]) + "\n"
    )
