"""What the first screen of a page says: the model in words and numbers, and warnings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from icl_interp.analyses.claim import EXPLAINS, NOT_LEARNED
from icl_interp.analyses.finding import Finding
from icl_interp.baselines.reference import BEST_UNDER_NOISE
from icl_interp.descriptions import OUTSIDE, function_words, law_words, number, value_words


def warnings(model: Mapping[str, Any], findings: Sequence[Finding]) -> Iterator[str]:
    """What limits a report: an untrained model, unreadable models, claims that failed."""
    if n := sum(NOT_LEARNED.lower() in f.reason.lower() for f in findings):
        claims = (
            "1 claim about what training made is"
            if n == 1
            else f"{n} claims about what training made are"
        )
        yield f"{NOT_LEARNED}: {claims} therefore inconclusive."
    explains = EXPLAINS.partition("{")[0]
    if short := [f.reason for f in findings if f.reason.startswith(explains)]:
        said = short[0].partition(")")[0]
        claims = "1 claim asks" if len(short) == 1 else f"{len(short)} claims ask"
        yield f"{said}): {claims} for more, so nothing is decided there."
    for one in model.get("checks", ()):
        if one.get("outcome") == "warning":
            yield f"Check of the predictor, {one.get('name')}: {one.get('says')}."
    for one in model.get("companions_left_out", ()):
        yield f"The matched model {one.get('name')} is left out: {one.get('reason')}"
    if failed := [f.id for f in findings if f.error]:
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
    words = [
        _plural(config.get("n_layers"), "layer"),
        f"width {config['d_model']}" if "d_model" in config else "",
    ]
    if config.get("mlp_only"):
        words.append("MLP only")
    else:
        words.append(f"{_plural(config.get('n_heads'), 'head')} a layer")
        words.append(f"{config['score_fn']} scores" if "score_fn" in config else "")
        mlp = f"MLP {config['d_mlp']}" if "d_mlp" in config else ""
        words.append("attention only" if config.get("attn_only") else mlp)
    kind = config.get("normalization_type")
    words.append(
        f"{config.get('norm_position', '')}-{kind}".lstrip("-") if kind else "no normalisation"
    )
    bound = config.get("embed_bound")
    words.append(f"read-in bounded by {bound:g}" if bound is not None else "")
    positions = config.get("positional_embedding_type", "standard")
    words.append("" if positions == "standard" else f"{positions} positions".replace("none", "no"))
    words.append(f"{model['n_parameters']:,} parameters" if "n_parameters" in model else "")
    words.append(f"{model['encoding']} prompts" if "encoding" in model else "")
    return " · ".join(word for word in words if word)


def _plural(n: Any, word: str) -> str:
    return f"{n} {word}" + ("" if n == 1 else "s")


def tiles(model: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(value, label, more) of what one has to know before reading any verdict."""
    error = model.get("in_distribution", {})
    tiles = []
    if "error" in error:
        value, low, high = (float(error.get(key, "nan")) for key in ("error", "low", "high"))
        more = f"mean squared, [{number(low, 2)}, {number(high, 2)}]"
        tiles.append((number(value, 2), "in-distribution error", more))
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
    if values := value_words(model.get("config", {})):
        tiles.append((values, "values", "errors are means over coordinates"))
    task = model.get("task", {})
    known = "asked" if model.get("outside") else "trained"  # nothing tells how a predictor was made
    if "inputs" in task:
        law = law_words(task["inputs"])
        tiles.append((f"x ~ {law}", f"{known} range", function_words(task)))
    if "n_points" in model:
        n = int(model["n_points"])
        shown = _plural(
            n - 1, "state" if model.get("encoding") in ("states", "augmented", "driven") else "pair"
        )
        tiles.append((f"{n} points", f"{known} length", f"{shown} and the query"))
    return tiles


def is_whole(value: object) -> bool:
    """Whether a value is a whole number."""
    return isinstance(value, int)
