"""Text as vectors: tokens of a text file, and embeddings from a model on disk.

There is text that every installation has, too.

An embedding is a matrix with a row for each token of the vocabulary. It comes from a file of a
model (GPT-2, Llama and their kin as Hugging Face keeps them, or TransformerLens) or of numpy;
without one it is made from the text itself.
"""

import hashlib
import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int

from icl_interp.checkpoints.formats import files
from icl_interp.errors import InputError, whole
from icl_interp.provenance import generator
from icl_interp.stored import LARGEST_WEIGHTS, check_file, read_bytes

# GPT-2, TransformerLens, Llama, BERT.
ENDS = ("wte.weight", "embed.W_E", "embed_tokens.weight", "word_embeddings.weight")
TOKENIZER = "tokenizer.json"
LARGEST_TEXT = 10**8  # bytes of a text, and of a tokenizer
_ENDINGS = tuple(f".{end}" for end in ENDS)
WINDOW = 5  # words to either side that count as neighbours
PROSE = 0.9  # share of letters and spaces in a paragraph of prose; code and tables have less
SHORTEST = 80  # characters of such a paragraph

Embedding = Float[np.ndarray, "word dim"]
Tokens = Int[np.ndarray, " token"]


@dataclass(frozen=True)
class Text:
    """A text as tokens, with an embedding of these.

    Attributes:
        tokens: rows of the embedding, in the order of the text.
        embedding: rows of length 1 (or 0), as the authors take them.
        says: where both come from, in words.
    """

    tokens: Tokens
    embedding: Embedding
    says: str


# ---- from files ----------------------------------------------------------------------------------


def of_text(
    path: Path, embedding: Path | None = None, tokenizer: Path | None = None, dim: int = 64
) -> Text:
    """A text file with an embedding.

    The embedding is of a model on disk, or made from the text itself.

    Args:
        path: plain text in UTF-8.
        embedding: a .npy matrix, a file of weights (safetensors or PyTorch), or a folder with one.
            Without, `built`.
        tokenizer: a tokenizer.json; by default the one beside the embedding. Where there is none,
            words are hashed into rows, which no trained embedding was trained for; `says` tells
            which.
        dim: columns of an embedding that is made.

    Raises:
        InputError: a file that cannot be read, without an embedding in it, or of a tokenizer for
            another vocabulary.
    """
    name = Path(path).name
    written = read_bytes(Path(path), LARGEST_TEXT)
    try:
        text = written.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path} as text in UTF-8: {error}") from error
    if embedding is None:
        return built(text, dim, says=f"the words of {name}")
    matrix = read_embedding(embedding)
    # Without the package `tokenizers` a file that was not asked for is left out.
    insist = tokenizer is not None
    tokens, how = tokenised(text, len(matrix), tokenizer or _beside(embedding), insist)
    says = f"{name}: {how}; embedding of {Path(embedding).name}"
    return Text(tokens, unit_rows(matrix), says)


def read_embedding(path: Path) -> Embedding:
    """The token embedding in a file or folder; nothing in it can run code.

    Raises:
        InputError: no such file, no matrix of finite numbers, or no tensor (or several) named like
            an embedding.
    """
    path = Path(path)
    if path.suffix == ".npy":
        check_file(path, LARGEST_WEIGHTS)
        try:
            # Mapped: its header may ask for more than the file holds. `open_memmap` takes no
            # archive.
            matrix = np.lib.format.open_memmap(path, mode="r")
        except (OSError, ValueError, TypeError, OverflowError) as error:
            raise InputError(f"cannot read {path} as a matrix of numpy: {error}") from error
    else:
        tensors = files.read(path).tensors
        named = [name for name in tensors if f".{name}".endswith(_ENDINGS)]
        if len(named) != 1:
            held = ", ".join(named) or "none"
            raise InputError(
                f"{path} must hold one tensor named ...{' or ...'.join(ENDS)}, but holds {held}"
            )
        found = tensors[named[0]]
        matrix = found.detach().double().numpy()
    if not _holds_numbers(matrix):
        raise InputError(
            f"{path}: an embedding is a matrix of finite numbers, a row a token; got {matrix.shape}"
        )
    return matrix.astype(np.float64)


def _holds_numbers(matrix: np.ndarray) -> bool:
    """Whether it is a matrix of finite numbers that is not empty."""
    if matrix.ndim != 2 or not matrix.size:
        return False
    return matrix.dtype.kind in "fiu" and bool(np.isfinite(matrix).all())


def tokenised(
    text: str, n_words: int, tokenizer: Path | None = None, insist: bool = True
) -> tuple[Tokens, str]:
    """Tokens of a text, and how they were made.

    Args:
        text: any.
        n_words: rows of the embedding.
        tokenizer: a tokenizer.json, which the package `tokenizers` reads. Without one, words
            between white space are hashed into rows: the same word is the same row everywhere, and
            different words may share one.
        insist: whether to refuse where `tokenizers` is missing, instead of hashing.

    Raises:
        InputError: the tokenizer cannot be read, or has more tokens than the embedding has rows.
    """
    if tokenizer is not None:
        try:
            import tokenizers  # only here: it is no dependency
        except ImportError:
            if insist:
                raise InputError(
                    f"{tokenizer} is read by the package tokenizers: pip install tokenizers"
                ) from None
            how = f"words hashed into rows, as {TOKENIZER} needs the package tokenizers"
            return _hashed(text, n_words), how
        check_file(Path(tokenizer), LARGEST_TEXT)
        try:
            reader = tokenizers.Tokenizer.from_file(str(tokenizer))
            tokens = np.array(reader.encode(text).ids, dtype=np.int64)
        except Exception as error:  # the package raises no class of its own
            raise InputError(
                f"{tokenizer} is no tokenizer that the package tokenizers reads: {error}"
            ) from None
        if len(tokens) and tokens.max() >= n_words:
            raise InputError(
                f"{tokenizer} has token {tokens.max()}, but the embedding only {n_words} rows: "
                "name its own"
            )
        return tokens, f"tokens of {Path(tokenizer).name}"
    return _hashed(text, n_words), "words between white space, hashed into rows"


def _hashed(text: str, n_words: int) -> Tokens:
    words = text.split()
    rows = {}
    for word in set(words):
        digest = hashlib.sha256(word.encode()).digest()
        number = int.from_bytes(digest[:8], "big")
        rows[word] = number % n_words
    return np.array([rows[word] for word in words], dtype=np.int64)


def _beside(embedding: Path) -> Path | None:
    path = Path(embedding)
    folder = path if path.is_dir() else path.parent
    found = folder / TOKENIZER
    return found if found.is_file() else None


def unit_rows(matrix: Embedding) -> Embedding:
    """Rows of length 1, as the authors take them; a row of zeros stays.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    sizes = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(sizes > 0, sizes, 1.0)


# ---- made from the text --------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """Words in small letters, and marks of punctuation.

    >>> words_of("It's one; TWO 3!")
    ["it's", 'one', ';', 'two', '!']
    """
    return re.findall(r"[a-z']*[a-z][a-z']*|[.,;:!?()]", text.lower())


def built(
    text: str, dim: int = 64, *, most: int | None = None, says: str = "words", seed: int = 0
) -> Text:
    """The second half of a text, with an embedding that is made from the first.

    Neighbours in the first half are counted, and their counts have an SVD.

    So the vectors of the tokens know nothing of the order in which these come. Words that the first
    half lacks have random directions.

    Args:
        text: any.
        dim: columns of the embedding.
        most: words that are read at most.
        says: what the text is.
        seed: of the random directions.

    Raises:
        InputError: fewer different words in the first half than columns and one more.
    """
    words = words_of(text)[:most]
    index = {word: i for i, word in enumerate(dict.fromkeys(words))}
    tokens = np.array([index[word] for word in words], dtype=np.int64)
    half = len(tokens) // 2
    matrix = cooccurrences(tokens[:half], len(index), whole(dim, "dim", 1), seed)
    how = f"{says}: {len(tokens):,} words, {len(index):,} different ones"
    where = (
        "vectors for the second half, made by SVD from the neighbours of words in the first, "
        f"{dim} columns"
    )
    return Text(tokens[half:], matrix, f"{how}; {where}")


def cooccurrences(tokens: Tokens, n_words: int, dim: int, seed: int = 0) -> Embedding:
    """Singular vectors of log(1 + x), as rows of length 1.

    x is the count of neighbours over what independent words would have.

    Neighbours stand up to 5 words before or after: nothing in it tells the order of two words.

    Source: in the manner of Levy & Goldberg (2014), Neural word embedding as implicit matrix
    factorization.

    Args:
        tokens: are counted.
        n_words: rows; those of tokens that do not occur are random directions.
        dim: columns.
        seed: of the SVD's start and of random directions.

    Raises:
        InputError: too few different tokens for so many columns.
    """
    from scipy import sparse  # only here: it loads slowly
    from scipy.sparse.linalg import svds

    seen = np.unique(tokens)
    if len(seen) <= dim + 1:
        raise InputError(
            f"an embedding of {dim} columns needs more than {dim + 1} different words, got "
            f"{len(seen)}"
        )
    counts = sparse.csr_matrix((n_words, n_words))
    for apart in range(1, WINDOW + 1):
        ones = np.ones(len(tokens) - apart)
        places = (tokens[:-apart], tokens[apart:])
        counts = counts + sparse.csr_matrix((ones, places), (n_words, n_words))
    # Neighbours to both sides, over what independent words would have.
    counts = sparse.coo_matrix(counts + counts.T)
    totals = np.asarray(counts.sum(1)).ravel()
    products = totals[counts.row] * totals[counts.col]
    lifted = np.log1p(counts.data * totals.sum() / products)
    matrix = sparse.csr_matrix((lifted, (counts.row, counts.col)), (n_words, n_words))
    numbers = generator(seed, "autoregression/words")
    start = torch.randn(n_words, generator=numbers, dtype=torch.float64)
    left, sizes, _ = svds(matrix, dim, v0=start.numpy())
    found = left * np.sqrt(sizes)
    # Words that the first half lacks.
    unseen = np.setdiff1d(np.arange(n_words), seen)
    drawn = torch.randn(len(unseen), dim, generator=numbers, dtype=torch.float64)
    found[unseen] = drawn.numpy()
    return unit_rows(found)


def random_rows(n_words: int, dim: int, seed: int = 0) -> Embedding:
    """Independent directions, uniform on the sphere.

    Such an embedding knows nothing of any text.
    """
    numbers = generator(seed, "autoregression/random rows")
    drawn = torch.randn(n_words, dim, generator=numbers, dtype=torch.float64)
    return unit_rows(drawn.numpy())


# ---- text at hand --------------------------------------------------------------------------------


def installed_text() -> tuple[str, int]:
    """Prose of the descriptions and licences of all installed packages, by name.

    The number of packages that have some comes with it.

    A paragraph that several packages have comes once: otherwise licences would stand in both halves
    of the text.
    """
    found = {}
    for package in importlib.metadata.distributions():
        name = str(package.metadata["Name"])
        found[name.lower()] = package
    seen: set[str] = set()
    kept = []
    packages = 0
    for name in sorted(found):
        own = []
        for text in _texts(found[name]):
            own += _paragraphs(text)
        # A paragraph that a package has twice, in capitals or not, stands where it comes first.
        first = {part.lower(): part for part in reversed(own)}
        new = [part for key, part in reversed(first.items()) if key not in seen]
        seen.update(first)
        kept += new
        packages += bool(new)
    return "\n\n".join(kept), packages


def _texts(package: importlib.metadata.Distribution) -> Iterator[str]:
    yield str(package.metadata.json.get("description", ""))
    for file in sorted(package.files or [], key=str):
        named = re.match(r"(licen[cs]e|copying|notice)", file.name, re.IGNORECASE)
        if named and ".dist-info" in str(file) and file.suffix in ("", ".txt", ".md", ".rst"):
            try:
                yield Path(str(file.locate())).read_text("utf-8")
            except (OSError, UnicodeDecodeError):
                continue  # listed, but not there


def _paragraphs(text: str) -> Iterator[str]:
    for part in re.split(r"\n\s*\n", text):
        line = " ".join(part.split())
        n_letters = sum(c.isalpha() or c == " " for c in line)
        if len(line) >= SHORTEST and n_letters >= PROSE * len(line):
            yield line
