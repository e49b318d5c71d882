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
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, make_array, table_of_rows
from icl_interp.studies.autoregression.experiments import embeddings, models, text
from icl_interp.studies.autoregression.experiments.embeddings import Text

NEIGHBOURS = "from neighbours"
RANDOM = "random directions"
# Words at most, and columns.
SIZES = {"smoke": (5000, 16), "small": (100_000, 64), "paper": (1_000_000, 256)}
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
    rows = embeddings.random_rows(len(own.embedding), dim, setup.seed)
    other = Text(own.tokens, rows, says)
    return measure({NEIGHBOURS: own, RANDOM: other}, setup.seed)


def measure(texts: Mapping[str, Text], seed: int = 0) -> dict[str, Result]:
    """Tables of both measurements, and a histogram of residuals.

    Args:
        texts: by the name of their embedding.
        seed: of the random orders.

    Raises:
        InputError: a text that is too short.
    """
    sequences = []
    chunks = []
    quotients = []
    residuals = []
    for name, one in texts.items():
        # A W for each sequence.
        fits = text.sequence_fits(one.tokens, one.embedding, most=SEQUENCES, seed=seed)
        row: dict[str, Any] = {"embedding": name, "sequences": len(fits.text)}
        for order in ORDERS:
            inexact = getattr(fits, order) > text.EXACT
            row[order] = int(inexact.sum())
        row |= models.ends(fits.quotient)
        row["disagreeing"] = fits.disagreeing
        sequences.append(row)
        residuals.append([getattr(fits, order) for order in ORDERS])
        # One W, tested on the other half.
        fit = text.ar_fit(one.tokens, one.embedding, seed=seed)
        size = float(fit.mean.mean())
        tested = {"W, text": fit.text, "W, shuffled text": fit.shuffled, "0": fit.zero}
        for what, values in tested.items():
            error = bootstrap(lambda x: x, values / size, positive=True)
            chunks.append({"embedding": name, "what": what, **models.ends(error, "error")})
        row = {"embedding": name, "chunks": len(fit.text)}
        quotients.append({**row, **models.ends(fit.quotient)})
    where = next(iter(texts.values())).says
    counts, places = _histograms(residuals)
    axes = {"embedding": list(texts), "order": ORDERS, "residual": places}
    of_sequences = f"{where}; sequences of {text.LENGTH} tokens, a W for each"
    of_residuals = "number of sequences by mean square residual; exact fits left out"
    of_chunks = f"{where}; error over that of the first half's mean; chunks of {text.CHUNK}"
    of_quotients = "unseen half: W of the text over W of shuffled text; W is fixed"
    return {
        "sequences": table_of_rows(sequences, of_sequences),
        "residuals": make_array(counts, axes, note=of_residuals),
        "unseen": table_of_rows(chunks, of_chunks),
        "quotients": table_of_rows(quotients, of_quotients),
    }


def _histograms(residuals: list[list[np.ndarray]]) -> tuple[np.ndarray, list[float]]:
    """Counts of residuals that are not exact, (embedding, order, bin), and the middles of bins.

    All have the same bins.
    """
    ends = [text.EXACT]
    for pair in residuals:
        ends += [float(each.max()) for each in pair]
    edges = np.linspace(0, max(ends), N_BINS + 1)
    counts = []
    for pair in residuals:
        row = []
        for each in pair:
            inexact = each[each > text.EXACT]
            count, _ = np.histogram(inexact, edges)
            row.append(count)
        counts.append(row)
    middles = (edges[:-1] + edges[1:]) / 2
    return np.array(counts, dtype=float), middles.tolist()


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
    exceptions = [f"{row['disagreeing']} with embedding {row['embedding']}" for row in sequences]
    listed = ", ".join(exceptions)
    told = (
        f"for vectors in general position a sequence of {text.LENGTH} tokens has no exact W if "
        "and only if one of its tokens comes twice with different successors. The number of "
        f"sequences that are exceptions: {listed}. So the count says which tokens repeat, and "
        "hardly anything about the embedding."
    )
    lines = [statement(_fewer(first), FEWER, models.ratio_of(first))]
    for row in quotients:
        lines.append(_unseen(results, row))
    # Random directions are in general position.
    general = [row["disagreeing"] for row in sequences if row["embedding"] == RANDOM]
    if general:
        lines.append(statement(told, TOLD, *general, kind="formula"))
    else:
        lines.append(note(told))
    return tuple(lines)


def _fewer(row: Mapping[str, Any]) -> str:
    return (
        "a process of its own fits more sequences of the text than of shuffled text: no W fits "
        f"{row['text']:,} of {row['sequences']:,} sequences of {text.LENGTH} tokens of the text, "
        f"and {row['shuffled']:,} after the tokens are shuffled, a quotient of "
        f"{models.ratio_text(row)}."
    )


def _unseen(results: Results, row: Mapping[str, Any]) -> Statement:
    ends = {}
    for one in errors.rows_of(results, "unseen", embedding=row["embedding"]):
        ends[one["what"]] = one["error"]
    words = (
        f"one W fitted to the whole text (embedding {row['embedding']}) predicts unseen text "
        "better than one fitted to shuffled text predicts unseen shuffled text: the quotient of "
        f"errors is {models.ratio_text(row)}. Over the error of predicting the mean the two errors "
        f"are {ends['W, text']:.3g} and {ends['W, shuffled text']:.3g}, and that of predicting 0 "
        f"is {ends['0']:.3g}. The paper measures no error on unseen text."
    )
    return statement(words, BETTER, models.ratio_of(row))


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
    name = NEIGHBOURS if embedding is None else f"of {Path(embedding).name}"
    # A text that is too short is refused now, before anything is written.
    text.check_size(len(found.tokens), found.embedding.shape[1])

    def run_it(setup: Setup) -> dict[str, Result]:
        most, _ = SIZES[setup.preset.name]
        tokens = found.tokens[:most]
        n_words, dim = found.embedding.shape
        rows = embeddings.random_rows(n_words, dim, setup.seed)
        own = replace(found, tokens=tokens)
        other = Text(tokens, rows, found.says)
        return measure({name: own, RANDOM: other}, setup.seed)

    # The settings are those of the text at hand, but for the text and its embedding.
    words = {scale: f"{found.says}, {most:,} tokens at most" for scale, (most, _) in SIZES.items()}
    changed = {"text": words, "embedding": f"{name}, and random"}
    settings = []
    for one in WORK_AND_OURS:
        ours = changed.get(one.name, one.ours)
        settings.append(replace(one, ours=ours))
    options = f"--text {file}"
    if embedding:
        options += f" --embedding {embedding}"
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
