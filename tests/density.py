"""How densely code is written: what a statement holds, and how much of a file is explained.

    python tests/density.py            # a row a room of the package
    python tests/density.py PATH ...   # a row a file or folder, also of other packages

All files of the package keep to what well-read packages of the field have (`WITHIN`):
`test_architecture.py` holds them to it.
"""

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1] / "icl_interp"
COLUMNS = 100
STEPS = 15  # statements of a body; a longer one says in comments what its steps are for
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BODIES = (ast.FunctionDef, ast.AsyncFunctionDef)


class Density(NamedTuple):
    """Of some files.

    Attributes:
        statements: how many there are, docstrings and imports left out.
        median: nodes of the syntax tree in a statement; in a compound one, of its first line.
        high: the 90 % quantile of these.
        comprehensions: of all kinds, in a hundred statements.
        packed: assignments of several values to several names (`a, b = x, y`), in a hundred
            statements.
        comments: lines of comments, in a hundred lines of code.
        wide: lines over 100 columns, in a hundred lines.
    """

    statements: int
    median: float
    high: float
    comprehensions: float
    packed: float
    comments: float
    wide: float


# What packages hold that the field likes to read, measured by this file: penzai, curvlinops, nanodo
# and SAELens have medians of 6 to 7, 90 % quantiles of 15 to 17, 1.4 to 6.2 comprehensions and at
# most 1.7 packed assignments.
WITHIN = {"median": 8.0, "high": 18.0, "comprehensions": 6.2, "packed": 1.7, "wide": 0.0}
FEW = 20  # statements below which a file says nothing about its density


@cache  # every rule asks, and none changes a tree
def parsed(source: str) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(source)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree, in no particular order."""
    return tuple(ast.walk(parsed(source)))


def statements(among: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """All statements but docstrings and imports."""
    for node in among:
        if not isinstance(node, ast.stmt) or isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        yield node


def size(statement: ast.stmt) -> int:
    """Nodes of a statement, less those of the statements inside it and marks of load and store."""
    count = 0
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        count += not isinstance(node, ast.expr_context)
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]
    return count


def is_packed(statement: ast.stmt) -> bool:
    """Whether several values are assigned to several names at once."""
    if not isinstance(statement, ast.Assign):
        return False
    (first, *_), value = statement.targets, statement.value
    return isinstance(first, ast.Tuple) and isinstance(value, ast.Tuple)


@cache
def comment_lines(source: str) -> set[int]:
    """Lines that hold a comment, rulers and marks for tools left out."""
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        words = token.string.lstrip("# ")
        if token.type == tokenize.COMMENT and not words.startswith(
            ("---", "noqa", "type:", "pyright")
        ):
            found.add(token.start[0])
    return found


def code_lines(source: str) -> int:
    """Lines that are neither blank nor part of a docstring."""
    inside: set[int] = set()
    for node in nodes(source):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(line.strip()) for number, line in lines if number not in inside)


def measure(*sources: str) -> Density:
    """The density of some files together."""
    sizes: list[int] = []
    loops = packed = comments = code = wide = lines = 0
    for source in sources:
        here = list(statements(nodes(source)))
        sizes += [size(one) for one in here]
        packed += sum(is_packed(one) for one in here)
        loops += sum(isinstance(node, COMPREHENSIONS) for node in nodes(source))
        comments += len(comment_lines(source))
        code += code_lines(source)
        wide += sum(len(line) > COLUMNS for line in source.splitlines())
        lines += len(source.splitlines())
    n = max(len(sizes), 1)
    median, high = np.quantile(sizes, (0.5, 0.9)) if sizes else (0.0, 0.0)
    return Density(
        statements=len(sizes),
        median=float(median),
        high=float(high),
        comprehensions=100 * loops / n,
        packed=100 * packed / n,
        comments=100 * comments / max(code, 1),
        wide=100 * wide / max(lines, 1),
    )


def unexplained(source: str) -> list[str]:
    """Functions whose body has more than `STEPS` statements of its own and no comment."""
    explained = comment_lines(source)
    found = []
    for node in nodes(source):
        if not isinstance(node, BODIES):
            continue
        lines = range(node.lineno, (node.end_lineno or 0) + 1)
        if len(lines) <= STEPS or not explained.isdisjoint(lines):
            continue
        inner = [one for one in ast.walk(node) if isinstance(one, BODIES) and one is not node]
        held = {id(one) for other in inner for one in statements(ast.walk(other))}
        own = [one for one in statements(ast.walk(node)) if id(one) not in held and one is not node]
        if len(own) > STEPS:
            found.append(node.name)
    return found


@cache
def too_dense(source: str) -> list[str]:
    """What a file exceeds, in words; nothing for one that is short or as plain as it should be."""
    found = measure(source)
    said = [f"{name}() has a long body and no comment" for name in unexplained(source)]
    for name, most in WITHIN.items():
        value = getattr(found, name)
        telling = name == "wide" or found.statements >= FEW
        if telling and value > most:
            said.append(f"{name} {value:.1f}, more than {most:g}")
    return said


def room(path: Path) -> str:
    """The folder of the package that a file is in; of a study, its room."""
    parts = path.relative_to(ROOT).parts
    if len(parts) == 1:
        return "(root)"
    if parts[0] == "studies" and len(parts) > 3:
        return f"studies/*/{parts[2]}"
    return parts[0]


def main(names: list[str]) -> None:
    """Print a table."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        inside = sorted(Path(name).rglob("*.py")) if Path(name).is_dir() else [Path(name)]
        groups[name] = [path.read_text("utf-8") for path in inside]
    if not names:
        for path in sorted(ROOT.rglob("*.py")):
            groups[room(path)].append(path.read_text("utf-8"))
        groups["all"] = [source for of_room in groups.values() for source in of_room]
    heads = ("files", "lines", *Density._fields)
    print(f"{'':34}" + "".join(f"{head:>15}" for head in heads))
    for group, sources in groups.items():
        lines = sum(len(source.splitlines()) for source in sources)
        found = (len(sources), lines, *measure(*sources))
        print(f"{group:34}" + "".join(f"{value:15.4g}" for value in found))


if __name__ == "__main__":
    main(sys.argv[1:])
