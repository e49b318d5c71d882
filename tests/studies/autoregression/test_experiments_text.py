"""Processes fitted to text: maps on unseen tokens, and a map for each sequence.

Embeddings from files and what is said are checked, too.
"""

import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers import must_fail
from safetensors.torch import save_file

from icl_interp.errors import InputError
from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, FAILS, HOLDS, OPEN
from icl_interp.figures import reproductions
from icl_interp.figures.style import safe
from icl_interp.reproduction import run
from icl_interp.results import table_of_rows
from icl_interp.studies.autoregression.experiments import embeddings, figure4, text

WORDS = (
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "saw",
    "dog",
    "run",
    "to",
    "it",
    "by",
    "old",
    "tree",
    "then",
)


def numbers(seed=0):
    return np.random.default_rng(seed)


def walk(n_words=200, dim=6):
    """An embedding whose rows are a random walk, and tokens that wander along it.

    Tokens move by steps of one.
    """
    draws = numbers()
    embedding = embeddings.unit_rows(np.cumsum(draws.normal(size=(n_words, dim)), 0))
    return np.cumsum(draws.choice([1, n_words - 1], 4000)) % n_words, embedding


# ---- one W ---------------------------------------------------------------------------------------


def test_a_random_walk_is_fitted_better_than_in_random_order():
    tokens, embedding = walk()

    def check(tokens):
        fit = text.ar_fit(tokens, embedding, length=20)
        assert fit.quotient.high < 0.5
        assert fit.text.mean() < 0.5 * min(fit.mean.mean(), fit.zero.mean())

    check(tokens)
    must_fail(check, numbers(1).integers(len(embedding), size=4000))  # independent tokens


def test_independent_tokens_are_fitted_no_better():
    embedding = walk()[1]
    fit = text.ar_fit(numbers(1).integers(len(embedding), size=4000), embedding, length=20)
    assert fit.quotient.low < 1 < fit.quotient.high


def test_errors_are_those_of_the_normal_equations():
    tokens, embedding = walk()
    fit = text.ar_fit(tokens, embedding, length=20)
    first, second = tokens.reshape(2, -1, 20)

    def check(first):
        pairs = [(embedding[a], embedding[b]) for chunk in first for a, b in pairwise(chunk)]
        W = sum(np.outer(y, x) for x, y in pairs) @ np.linalg.inv(
            sum(np.outer(x, x) for x, _ in pairs)
        )
        mean = np.mean([y for _, y in pairs], 0)
        for i, chunk in enumerate(second):
            x, y = embedding[chunk[:-1]], embedding[chunk[1:]]
            np.testing.assert_allclose(fit.text[i], ((y - x @ W.T) ** 2).mean(), rtol=1e-8)
            np.testing.assert_allclose(fit.mean[i], ((y - mean) ** 2).mean(), rtol=1e-8)
            np.testing.assert_allclose(fit.zero[i], (y**2).mean(), rtol=1e-8)

    check(first)
    must_fail(check, second)


# ---- a W for each sequence -----------------------------------------------------------------------


def test_no_map_fits_a_token_with_two_successors():
    embedding = embeddings.random_rows(8, 6)

    def check(sequence, bound):
        assert (text.misfits(np.array([sequence]), embedding)[0] > 1e-12) is np.bool_(bound)
        assert text.ambiguous(np.array([sequence]))[0] == bound

    check([1, 2, 3, 1, 2], False)
    check([1, 2, 3, 1, 4], True)
    check([1, 1, 1, 1, 1], False)
    check([1, 1, 2, 3, 4], True)
    must_fail(check, [1, 2, 3, 1, 4], False)


def test_the_residual_is_that_of_the_best_map():
    """Token 1 is followed by 2 and by 3: the best W maps it to their mean.

    The residual is half of the difference from each.
    """
    embedding = embeddings.random_rows(4, 5)
    found = text.misfits(np.array([[1, 2, 1, 3]]), embedding)[0]

    def check(share):
        assert found == pytest.approx(
            share * np.square(embedding[2] - embedding[3]).sum() / (3 * 5)
        )

    check(0.5)
    must_fail(check, 1.0)


def test_sequences_of_tokens_that_avoid_repeats():
    """In a text that runs through all words each word has one successor.

    In random order some have several.
    """
    tokens = np.arange(4000) % 12

    def check(tokens):
        fits = text.sequence_fits(tokens, embeddings.random_rows(12, 8))
        assert (fits.text <= text.EXACT).all()
        assert (fits.shuffled > text.EXACT).mean() > 0.2
        assert fits.disagreeing == 0

    check(tokens)
    must_fail(check, numbers().integers(12, size=4000))
    fits = text.sequence_fits(numbers().integers(12, size=4000), embeddings.random_rows(12, 8))
    assert fits.quotient.low < 1 < fits.quotient.high


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: text.ar_fit(np.arange(100), np.eye(100)), "longer text"),
        (lambda: text.ar_fit(np.arange(100), np.eye(50)), "rows 0 to 49"),
        (lambda: text.sequence_fits(np.zeros(100, int), np.ones((1, 3))), "4 transitions"),
        (lambda: text.sequence_fits(np.zeros(20, int), np.ones((1, 9))), "longer text"),
    ],
)
def test_what_cannot_be_fitted_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()


# ---- embeddings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["transformer.wte.weight", "model.embed_tokens.weight", "embed.W_E"]
)
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_embeddings_are_read_from_models(name, kind, tmp_path):
    matrix, path = torch.randn(7, 3), tmp_path / f"model.{kind}"
    tensors = {name: matrix, "lm_head.weight": torch.zeros(7, 3)}
    save_file(tensors, path) if kind == "safetensors" else torch.save(tensors, path)

    def check(expected):
        np.testing.assert_allclose(embeddings.read_embedding(path), expected.numpy())
        np.testing.assert_allclose(embeddings.read_embedding(tmp_path), expected.numpy())

    check(matrix)
    must_fail(check, torch.zeros(7, 3))


def test_files_without_an_embedding_are_refused(tmp_path):
    save_file({"lm_head.weight": torch.zeros(7, 3)}, tmp_path / "no.safetensors")
    (tmp_path / "no.npy").write_bytes(b"no")
    np.save(tmp_path / "flat.npy", np.ones(3))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    wrong = {
        "no.safetensors": "one tensor",
        "no.npy": "numpy",
        "flat.npy": "matrix",
        "objects.npy": "numpy",
    }
    for name, words in wrong.items():
        with pytest.raises(InputError, match=words):
            embeddings.read_embedding(tmp_path / name)
    with pytest.raises(InputError, match="cannot read"):
        embeddings.of_text(tmp_path / "none.txt")


def test_a_text_file_with_a_matrix(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("The cat sat. The cat ran.")
    np.save(tmp_path / "e.npy", 3 * np.eye(50))
    found = embeddings.of_text(tmp_path / "a.txt", tmp_path / "e.npy")
    assert list(found.tokens[:2]) == list(found.tokens[3:5])
    assert found.tokens[2] != found.tokens[5]
    np.testing.assert_allclose(found.embedding, np.eye(50))
    assert "hashed into rows" in found.says
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "tokenizer.json").write_text("{}")
    again = embeddings.of_text(tmp_path / "a.txt", tmp_path / "e.npy")
    assert list(again.tokens) == list(found.tokens)
    assert "needs the package tokenizers" in again.says
    with pytest.raises(InputError, match="pip install tokenizers"):
        embeddings.of_text(tmp_path / "a.txt", tmp_path / "e.npy", tmp_path / "tokenizer.json")


def test_a_tokenizer_on_disk(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"cat": 0, "sat": 1, "?": 2}, unk_token="?")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("cat sat dog sat")
    np.save(tmp_path / "e.npy", np.eye(3))
    found = embeddings.of_text(tmp_path / "a.txt", tmp_path / "e.npy")
    assert found.tokens.tolist() == [0, 1, 2, 1]
    assert "tokens of tokenizer.json" in found.says
    np.save(tmp_path / "e.npy", np.eye(2))
    with pytest.raises(InputError, match="2 rows"):
        embeddings.of_text(tmp_path / "a.txt", tmp_path / "e.npy")


def test_an_embedding_of_neighbours():
    """Two kinds of words that never stand together have unlike rows.

    Rows of the same kind are alike.
    """
    draws = numbers()
    tokens = np.concatenate([draws.integers(6, size=1500), 6 + draws.integers(6, size=1500)])

    def check(tokens):
        rows = embeddings.cooccurrences(tokens, 13, 4)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
        alike = rows @ rows.T
        assert alike[:6, :6].mean() > 0.5 > abs(alike[:6, 6:12]).mean()

    check(tokens)
    must_fail(check, draws.permutation(tokens))
    with pytest.raises(InputError, match="different words"):
        embeddings.cooccurrences(tokens, 13, 12)


def test_the_second_half_has_no_part_in_its_embedding():
    first, second = (" ".join(numbers(i).choice(WORDS, 300)) for i in (0, 1))
    other = " ".join(reversed(second.split()))
    a, b = (embeddings.built(f"{first} {later}", 4) for later in (second, other))
    assert a.tokens.tolist() == b.tokens.tolist()[::-1]
    np.testing.assert_allclose(a.embedding, b.embedding)
    changed = embeddings.built(f"{second} {first}", 4)
    must_fail(np.testing.assert_allclose, a.embedding, changed.embedding)


def test_paragraphs_come_once(monkeypatch):
    prose = (
        "This is a licence that says what everybody may do with the software and what nobody may "
        "do with it"
    )
    monkeypatch.setattr(
        embeddings, "_texts", lambda package: [f"{prose}\n\nx = {{1: 2}}", prose.upper()]
    )
    found, packages = embeddings.installed_text()
    assert (found, packages) == (prose, 1)


# ---- the experiment ------------------------------------------------------------------------------


def rows4(fewer=0.5, better=0.5, disagreeing=0):
    ends = {"low": 0.98, "high": 1.01}
    of = lambda ratio: {"ratio": ratio, **{key: ratio * end for key, end in ends.items()}}  # noqa: E731
    names = (figure4.NEIGHBOURS, figure4.RANDOM)
    sequences = [
        {
            "embedding": n,
            "sequences": 100,
            "text": 5,
            "shuffled": 10,
            **of(fewer),
            "disagreeing": disagreeing,
        }
        for n in names
    ]
    whats = ("W, text", "W, shuffled text", "0")
    unseen = [
        {"embedding": n, "what": what, "error": 1.0, "low": 0.9, "high": 1.1}
        for n in names
        for what in whats
    ]
    quotients = [{"embedding": n, "chunks": 10, **of(better)} for n in names]
    tables = {"sequences": sequences, "unseen": unseen, "quotients": quotients}
    return {name: table_of_rows(rows) for name, rows in tables.items()}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, [AGREES, AGREES, AGREES, HOLDS]),
        ({"fewer": 1.2, "better": 1.1, "disagreeing": 1}, [DIFFERS, DIFFERS, DIFFERS, FAILS]),
        ({"fewer": 0.9, "better": 0.97}, [OPEN, OPEN, OPEN, HOLDS]),
    ],
)
def test_what_is_said_of_text(changes, words):
    assert [s.word for s in figure4.states(rows4(**changes))] == words


def three_successors(n_words=3000):
    """A small text in which each word has one of three successors."""
    at = 0
    said = []
    for step in numbers().integers(1, 4, size=n_words):
        at = (at + step) % len(WORDS)
        said.append(WORDS[at])
    return " ".join(said)


def test_it_runs_and_is_drawn(monkeypatch):
    monkeypatch.setattr(embeddings, "installed_text", lambda: (three_successors(), 1))
    monkeypatch.setattr(figure4, "SIZES", {"smoke": (3000, 6)})
    results = figure4.run(Setup({}, PRESETS["smoke"]))
    words = [s.word for s in figure4.states(results)]
    assert words[0] == words[2] == AGREES
    assert len(words) == 4
    assert figure4.compare(results) is results["sequences"]
    figure = safe(reproductions.draw("autoregression.figure4", results)["figure4"])
    shown = results["residuals"].isel(embedding=0)
    counts = results["sequences"].to_dict("records")[0]
    for i, order in enumerate(figure4.ORDERS):
        # Each count is a step: it stands at both ends of its bin.
        steps = np.asarray(figure.data[i].y)
        np.testing.assert_allclose(steps[::2], shown.sel(order=order).values)
        np.testing.assert_array_equal(steps[::2], steps[1::2])
        assert sum(steps[::2]) == counts[order]


def test_bins_have_one_width_and_hold_every_residual():
    """100 of them from 0 to the largest of all, without the exact fits."""
    residuals = [[np.array([0.0, 1e-13, 0.5, 1.0]), np.array([2.0, 0.0])], [np.ones(3), np.ones(1)]]
    counts, places = figure4._histograms(residuals)
    assert counts.shape == (2, 2, 100)
    np.testing.assert_allclose(np.diff(places), 0.02)
    np.testing.assert_array_equal(counts.sum(-1), [[2, 1], [3, 1]])

    def check(place):
        assert counts[0, 0, int(place / 0.02)] == 1

    check(0.505)
    must_fail(check, 0.01)  # the exact ones


# ---- the text of a user --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A small GPT-2 as Hugging Face keeps it on disk, with a tokenizer of whole words."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("gpt2")
    config = transformers.GPT2Config(vocab_size=40, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    vocabulary = {word: i + 3 for i, word in enumerate(WORDS)} | {"[UNK]": 0}
    words = tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder, transformers.GPT2LMHeadModel.from_pretrained(folder)


def test_a_text_with_the_embedding_of_a_model_on_disk(gpt2, tmp_path):
    """As the paper does it with GPT-2: the numbers are those of the model's own rows."""
    folder, model = gpt2
    (tmp_path / "book.txt").write_text(three_successors())
    (done,) = run.reproduce(
        ["autoregression.figure4"],
        tmp_path / "out",
        scale="small",
        formats=(),
        progress=False,
        text=tmp_path / "book.txt",
        embedding=folder,
    )
    sequences = done.results["sequences"].to_dict("records")
    assert [row["embedding"] for row in sequences] == [f"of {folder.name}", figure4.RANDOM]
    rows = model.transformer.wte.weight.detach().double().numpy()

    def check(rows):
        tokens = np.array([WORDS.index(word) + 3 for word in three_successors().split()])
        own = text.sequence_fits(tokens, embeddings.unit_rows(rows), most=figure4.SEQUENCES)
        fit = text.ar_fit(tokens, embeddings.unit_rows(rows))
        assert sequences[0]["text"] == int((own.text > text.EXACT).sum())
        found = done.results["quotients"].to_dict("records")[0]["ratio"]
        assert found == pytest.approx(fit.quotient.value)

    check(rows)
    must_fail(check, rows[::-1])
    # What was read is said: on the page, in the settings and in the command.
    assert "book.txt" in done.setting[0]
    assert "packages" not in " ".join(done.setting)
    command = done.record["provenance"]["command"]
    assert command.endswith(f"--text {tmp_path / 'book.txt'} --embedding {folder}")


def test_a_text_alone_makes_its_embedding(tmp_path):
    (tmp_path / "book.txt").write_text(three_successors())
    with pytest.raises(InputError, match="needs more than 65 different words, got 16"):
        figure4.reading(tmp_path / "book.txt", None)
    letters = "abcdefghijklmnopqrstuvwxyz"
    said = [letters[i % 26] + letters[i // 26] for i in numbers().integers(90, size=4000)]
    (tmp_path / "book.txt").write_text(" ".join(said))
    own = figure4.reading(tmp_path / "book.txt", None)
    results = own.run(Setup({}, PRESETS["smoke"]))
    assert list(results["residuals"]["embedding"].values) == [figure4.NEIGHBOURS, figure4.RANDOM]


@pytest.mark.parametrize(
    ("ids", "files", "words"),
    [
        (["autoregression.figure5"], {"text": "book.txt"}, "figure5 reads no text, so leave out"),
        (["autoregression.figure4"], {"embedding": "e.npy"}, "give --text FILE as well"),
        (["autoregression.figure4"], {"text": "none.txt"}, "none.txt"),
        (["autoregression.figure4"], {"text": "latin.txt"}, "as text in UTF-8"),
        (["autoregression.figure4"], {"text": "book.txt", "embedding": "none"}, "none"),
        (
            ["autoregression.figure4"],
            {"text": "book.txt", "embedding": "bad.npy"},
            "matrix of nump",
        ),
        (["autoregression.figure4"], {"text": "short.txt", "embedding": "e.npy"}, "a longer text"),
        ([], {"text": "none.txt"}, "none.txt"),
    ],
)
def test_bad_files_are_refused_before_anything_is_written(ids, files, words, tmp_path):
    (tmp_path / "book.txt").write_text(three_successors())
    (tmp_path / "short.txt").write_text("a few words")
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    (tmp_path / "bad.npy").write_bytes(b"no matrix")
    np.save(tmp_path / "e.npy", numbers().normal(size=(40, 8)))
    named = {name: tmp_path / file for name, file in files.items()}
    with pytest.raises(InputError, match=words) as refused:
        run.reproduce(ids, tmp_path / "out", scale="smoke", formats=(), progress=False, **named)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_without_text_nothing_is_said(monkeypatch):
    monkeypatch.setattr(embeddings, "installed_text", lambda: ("a few words", 1))
    assert figure4.run(Setup({}, PRESETS["smoke"])) == {}
    assert figure4.FIGURE4_EXPERIMENT.says({}) == ("No text is at hand, so nothing is measured.",)
    assert figure4.compare({}) is None
    assert reproductions.draw("autoregression.figure4", {}) == {}


@pytest.mark.slow
def test_the_text_at_hand():
    results = figure4.run(Setup({}, PRESETS["smoke"]))
    assert len(figure4.FIGURE4_EXPERIMENT.says(results)) == 4
