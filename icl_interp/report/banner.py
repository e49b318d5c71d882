"""What the first screen of a page says: the model in words and numbers, and warnings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from icl_interp.analyses.claim import EXPLAINS, NOT_LEARNED
from icl_interp.analyses.finding import Finding
from icl_interp.baselines.reference import BEST_UNDER_NOISE
from icl_interp.descriptions import (
    OUTSIDE,
    function_words,
    law_words,
    number,
    value_words,
    what_all_have,
)


def warnings(model: Mapping[str, Any], findings: Sequence[Finding]) -> Iterator[str]:
    """What limits a report: an untrained model, unreadable models, claims that failed."""
    # A model that has not learned, or explains too little.
    n = sum(NOT_LEARNED.lower() in f.reason.lower() for f in findings)
    if n:
        claims = f"{n} claims about what training made are"
        if n == 1:
            claims = "1 claim about what training made is"
        yield f"{NOT_LEARNED}: {claims} therefore inconclusive."
    explains, _, _ = EXPLAINS.partition("{")
    short = [f.reason for f in findings if f.reason.startswith(explains)]
    if short:
        said, _, _ = short[0].partition(")")
        claims = "1 claim asks" if len(short) == 1 else f"{len(short)} claims ask"
        yield f"{said}): {claims} for more, so nothing is decided there."

    # A predictor or companions that are not what they should be, and measurements that failed.
    for one in model.get("checks", ()):
        if one.get("outcome") == "warning":
            yield f"Check of the predictor, {one.get('name')}: {one.get('says')}."
    for one in model.get("companions_left_out", ()):
        yield f"The matched model {one.get('name')} is left out: {one.get('reason')}"
    failed = [f.id for f in findings if f.error]
    if failed:
        yield f"Measuring failed for {', '.join(failed)}; each of them gives the reason."


def checks(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(sign and name, line) of what was tried on a predictor before anything was judged."""
    found = []
    for one in model.get("checks", ()):
        sign = SIGNS.get(one.get("outcome"), "·")
        found.append((f"{sign} {one.get('name')}", str(one.get("says"))))
    return found


SIGNS = {"passed": "✔", "warning": "!", "failed": "✘", "said": "·"}


def describe(model: Mapping[str, Any]) -> str:
    """What a model is, in a line.

    >>> config = {"n_layers": 3, "d_model": 64, "n_heads": 4, "normalization_type": None}
    >>> describe({"config": config})
    '3 layers · width 64 · 4 heads a layer · no normalisation'
    """
    if model.get("outside"):
        return f"a predictor without weights · {OUTSIDE}"
    config = model.get("config", {})
    # Layers. Facts of earlier versions may lack a setting.
    words = [_plural(config.get("n_layers"), "layer")]
    if "d_model" in config:
        words.append(f"width {config['d_model']}")
    if config.get("mlp_only"):
        words.append("MLP only")
    else:
        words.append(f"{_plural(config.get('n_heads'), 'head')} a layer")
        if "score_fn" in config:
            words.append(f"{config['score_fn']} scores")
        if config.get("attn_only"):
            words.append("attention only")
        elif "d_mlp" in config:
            words.append(f"MLP {config['d_mlp']}")
    words += _around_layers(config)

    # What it reads, and how many numbers it has.
    if "n_parameters" in model:
        words.append(f"{model['n_parameters']:,} parameters")
    if "encoding" in model:
        words.append(f"{model['encoding']} prompts")
    return " · ".join(words)


def _around_layers(config: Mapping[str, Any]) -> Iterator[str]:
    """The norm, the bound of the read-in, and positions; the usual ones are not mentioned."""
    kind = config.get("normalization_type")
    if kind:
        place = config.get("norm_position", "")
        yield f"{place}-{kind}".lstrip("-")
    else:
        yield "no normalisation"
    bound = config.get("embed_bound")
    if bound is not None:
        yield f"read-in bounded by {bound:g}"
    positions = config.get("positional_embedding_type", "standard")
    if positions != "standard":
        yield f"{positions} positions".replace("none", "no")


def _plural(n: Any, word: str) -> str:
    if n == 1:
        return f"{n} {word}"
    return f"{n} {word}s"


def tiles(model: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(value, label, more) of what one has to know before reading any verdict."""
    # Errors: of the model, and of what it is compared with.
    error = model.get("in_distribution", {})
    tiles = []
    if "error" in error:
        low = float(error.get("low", "nan"))
        high = float(error.get("high", "nan"))
        more = f"mean squared, [{number(low, 2)}, {number(high, 2)}]"
        tiles.append((number(float(error["error"]), 2), "in-distribution error", more))
    for key, label, more in (
        ("least squares", "least squares", "on the same prompts"),
        (BEST_UNDER_NOISE, BEST_UNDER_NOISE, "which suits the noise; on the same prompts"),
        ("zero", "predicting 0", "on the same prompts"),
        ("law mean", "mean of the law", "which is not 0; on the same prompts"),
        ("mean value", "mean value", "of the one function, on the same prompts"),
    ):
        if key in error:
            tiles.append((number(float(error[key]), 2), label, more))
    if "r2" in model:
        tiles.append((number(float(model["r2"]), 4), "R²", "in distribution"))
    values = value_words(model.get("config", {}))
    if values:
        tiles.append((values, "values", "errors are means over coordinates"))

    # The task.
    task = model.get("task", {})
    known = "asked" if model.get("outside") else "trained"  # nothing tells how a predictor was made
    inputs = what_all_have(task, "inputs")
    if inputs is not None:
        law = law_words(inputs)
        tiles.append((f"x ~ {law}", f"{known} range", function_words(task)))
    if "n_points" in model:
        n = int(model["n_points"])
        of_states = model.get("encoding") in ("states", "augmented", "driven")
        shown = _plural(n - 1, "state" if of_states else "pair")
        tiles.append((f"{n} points", f"{known} length", f"{shown} and the query"))
    return tiles


def is_whole(value: object) -> bool:
    """Whether a value is a whole number."""
    return isinstance(value, int)
