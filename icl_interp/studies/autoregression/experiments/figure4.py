"""Figure 4: processes x_{t+1} = W x_t fit a text better than the same tokens in random order.

The text is what every installation has: descriptions and licences of installed packages. Its first
half makes an embedding for the second, and random directions are another, which knows nothing of
the text. `icl-interp reproduce autoregression.figure4 --text FILE --embedding MODEL` does the same
for any text and the embedding of a model on disk, as the paper does with Moby Dick and GPT-2.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from icl_interp.errors import InputError
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.settings import Setting
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, none_of, note, statement
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_array, table_of_rows
from icl_interp.studies.autoregression.experiments import embeddings, models, text
from icl_interp.studies.autoregression.experiments.embeddings import Text

NEIGHBOURS, RANDOM = "from neighbours", "random directions"
SIZES = {
    "smoke": (5000, 16),
    "small": (100_000, 64),
    "paper": (1_000_000, 256),
}  # words at most, columns
SEQUENCES = 10_000  # at most, as in the authors' code
N_BINS = 100  # of the histogram, of one width from 0 to the largest residual
ORDERS = ("text", "shuffled")

FEWER = at_most("sequences of the text that no W fits / of shuffled text", 0.8, 1.0)
BETTER = at_most("error of one W on unseen text / on unseen shuffled text", 0.95, 1.0)
TOLD = none_of("exceptions with random directions")


def run(setup: Setup) -> dict[str, Result]:
    """Both measurements of the text at hand, with two embeddings."""
    most, dim = SIZES[setup.preset.name]
    found, packages = embeddings.installed_text()
    says = f"prose of {packages} installed packages"
    try:
        own = embeddings.built(found, dim, most=most, says=says, seed=setup.seed)
    except InputError:  # hardly any package says more than its name
        return {}
    other = embeddings.random_rows(len(own.embedding), dim, setup.seed)
    return measure({NEIGHBOURS: own, RANDOM: Text(own.tokens, other, says)}, setup.seed)


def measure(texts: Mapping[str, Text], seed: int = 0) -> dict[str, Result]:
    """Tables of both measurements, and a histogram of residuals.

    Args:
        texts: by the name of their embedding.
        seed: of the random orders.

    Raises:
        InputError: a text that is too short.
    """
    sequences, chunks, quotients, residuals = [], [], [], []
    for name, one in texts.items():
        fits = text.sequence_fits(one.tokens, one.embedding, most=SEQUENCES, seed=seed)
        counted = {order: int((getattr(fits, order) > text.EXACT).sum()) for order in ORDERS}
        row = {"embedding": name, "sequences": len(fits.text), **counted, **_ends(fits.quotient)}
        sequences.append({**row, "disagreeing": fits.disagreeing})
        residuals.append([getattr(fits, order) for order in ORDERS])
        fit = text.ar_fit(one.tokens, one.embedding, seed=seed)
        size = float(fit.mean.mean())
        for what, values in (
            ("W, text", fit.text),
            ("W, shuffled text", fit.shuffled),
            ("0", fit.zero),
        ):
            i = bootstrap(lambda x: x, values / size, positive=True)
            chunks.append(
                {"embedding": name, "what": what, "error": i.value, "low": i.low, "high": i.high}
            )
        quotients.append({"embedding": name, "chunks": len(fit.text), **_ends(fit.quotient)})
    where = next(iter(texts.values())).says
    counts, places = _histograms(residuals)
    axes = {"embedding": list(texts), "order": ORDERS, "residual": places}
    return {
        "sequences": table_of_rows(
            sequences, f"{where}; sequences of {text.LENGTH} tokens, a W for each"
        ),
        "residuals": make_array(
            counts, axes, note="number of sequences by mean square residual; exact fits left out"
        ),
        "unseen": table_of_rows(
            chunks, f"{where}; error over that of the first half's mean; chunks of {text.CHUNK}"
        ),
        "quotients": table_of_rows(
            quotients, "unseen half: W of the text over W of shuffled text; W is fixed"
        ),
    }


def _ends(i: Interval) -> dict[str, float]:
    return {"ratio": i.value, "low": i.low, "high": i.high}


def _histograms(residuals: list[list[np.ndarray]]) -> tuple[np.ndarray, list[float]]:
    """Counts of residuals that are not exact, (embedding, order, bin), and the middles of bins.

    All have the same bins.
    """
    largest = max(float(each.max()) for pair in residuals for each in pair)
    bins = np.linspace(0, max(largest, text.EXACT), N_BINS + 1)
    counts = []
    for pair in residuals:
        counts.append([np.histogram(each[each > text.EXACT], bins)[0] for each in pair])
    return np.array(counts, dtype=float), ((bins[:-1] + bins[1:]) / 2).tolist()


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Whether the text is fitted better than in random order.

    It is fitted sequence by sequence, and by one W on unseen text.
    """
    sequences = errors.rows_of(results, "sequences")
    if not sequences:
        return (note("No text is at hand, so nothing is measured."),)
    first = sequences[0]
    quotients = errors.rows_of(results, "quotients")
    listed = ", ".join(
        f"{row['disagreeing']} with embedding {row['embedding']}" for row in sequences
    )
    told = (
        f"for vectors in general position a sequence of {text.LENGTH} tokens has no exact W if "
        "and only if one of its tokens comes twice with different successors. The number of "
        f"sequences that are exceptions: {listed}. So the count says which tokens repeat, and "
        "hardly anything about the embedding."
    )
    general = [row["disagreeing"] for row in sequences if row["embedding"] == RANDOM]
    algebra = (statement(told, TOLD, *general, kind="formula"),) if general else (note(told),)
    return (
        statement(_fewer(first), FEWER, errors.interval_of(first, "ratio")),
        *(_unseen(results, row) for row in quotients),
        *algebra,
    )


def _fewer(row: Mapping[str, Any]) -> str:
    return (
        "a process of its own fits more sequences of the text than of shuffled text: no W fits "
        f"{row['text']:,} of {row['sequences']:,} sequences of {text.LENGTH} tokens of the text, "
        f"and {row['shuffled']:,} after the tokens are shuffled, a quotient of {_interval(row)}."
    )


def _unseen(results: Results, row: Mapping[str, Any]) -> Statement:
    ends = {
        one["what"]: one["error"]
        for one in errors.rows_of(results, "unseen", embedding=row["embedding"])
    }
    words = (
        f"one W fitted to the whole text (embedding {row['embedding']}) predicts unseen text "
        "better than one fitted to shuffled text predicts unseen shuffled text: the quotient of "
        f"errors is {_interval(row)}. Over the error of predicting the mean the two errors are "
        f"{ends['W, text']:.3g} and {ends['W, shuffled text']:.3g}, and that of predicting 0 is "
        f"{ends['0']:.3g}. The paper measures no error on unseen text."
    )
    return statement(words, BETTER, errors.interval_of(row, "ratio"))


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['ratio']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"


def compare(results: Results) -> DataFrame | None:
    """Sequences that no W fits, by embedding.

    The paper's text, Moby Dick with GPT-2's embedding, is another.
    """
    found = results.get("sequences")
    return found if isinstance(found, DataFrame) else None


CODE = "the authors' code, validation_token_encoding.py"
WORK_AND_OURS = (
    Setting(
        "text",
        "Moby Dick, Project Gutenberg's, from nltk",
        "section 6, validation of the token encoding",
        {
            scale: f"descriptions and licences of installed packages, {words:,} words at most"
            for scale, (words, _) in SIZES.items()
        },
    ),
    Setting(
        "embedding",
        "of GPT-2 with its tokenizer",
        "section 6; gpt2-large in the code",
        {
            scale: f"made from neighbours in half of the text, and random, {dim} columns"
            for scale, (_, dim) in SIZES.items()
        },
    ),
    Setting("sequences", "10,000 at most", CODE, f"{SEQUENCES:,} at most"),
    Setting("tokens of a sequence", "5", CODE, str(text.LENGTH)),
    Setting("exact up to", "1e-12", CODE, f"{text.EXACT:g}"),
    Setting("histogram", "100 bins of the error", CODE, f"{N_BINS} bins of the error"),
)


# ---- other texts ---------------------------------------------------------------------------------


def reading(file: Path, embedding: Path | None) -> Experiment:
    """The experiment on a text file, with the embedding of a model or one made from the text.

    Random directions stand beside it, as for the text at hand. A preset bounds the tokens that are
    read.

    Raises:
        InputError: what `embeddings.of_text` and `measure` refuse.
    """
    found = embeddings.of_text(file, embedding, dim=SIZES["small"][1])
    name = "from neighbours" if embedding is None else f"of {Path(embedding).name}"
    # A text that is too short is refused now, before anything is written.
    text.check_size(len(found.tokens), found.embedding.shape[1])

    def run_it(setup: Setup) -> dict[str, Result]:
        most, _ = SIZES[setup.preset.name]
        tokens = found.tokens[:most]
        n_words, dim = found.embedding.shape
        other = embeddings.random_rows(n_words, dim, setup.seed)
        own = replace(found, tokens=tokens)
        return measure({name: own, RANDOM: Text(tokens, other, found.says)}, setup.seed)

    words = {scale: f"{found.says}, {most:,} tokens at most" for scale, (most, _) in SIZES.items()}
    settings = []
    for one in WORK_AND_OURS:
        own = {"text": words, "embedding": f"{name}, and random"}.get(one.name, one.ours)
        settings.append(replace(one, ours=own))
    options = f"--text {file}" + (f" --embedding {embedding}" if embedding else "")
    return replace(
        FIGURE4_EXPERIMENT, run=run_it, sample=found.says, settings=tuple(settings), options=options
    )


FIGURE4_EXPERIMENT = Experiment(
    "autoregression.figure4",
    "Processes fitted to text and to shuffled text",
    f"{models.WORK}: Figure 4 and section 6, validation of the token encoding",
    (),
    run,
    states,
    compare,
    sample="descriptions and licences of installed packages: 5,000, 100,000 or 1,000,000 words at "
    "most",
    settings=WORK_AND_OURS,
    reading=reading,
)
