"""Rules of the architecture for `test_architecture.py`; each yields a line for every violation."""

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from density import nodes, parsed, too_dense

ROOT = Path(__file__).parents[2] / "icl_interp"

# Imports point to a lower layer, or stay within a file or package of this list.
LAYERS = {
    0: (
        *(
            "errors",
            "descriptions",
            "devices",
            "plain_yaml",
            "progress",
            "provenance",
            "prompts",
            "reductions",
            "results",
            "resampling",
            "stored",
            "structured",
            "tails",
        ),
        *("console", "registers", "plugins", "products", "renamed", "threads"),
    ),
    1: ("tasks", "models", "theory", "baselines", "jobs"),
    2: (
        *("adapters", "checkpoints", "encodings", "predictors", "training"),
        *("probes", "interventions", "evaluation", "contrasts"),
    ),
    3: ("analyses", "circuits"),
    4: ("experiments", "figures"),
    5: ("studies",),
    6: (
        *("algorithms", "batch", "options", "pipeline", "registry", "report"),
        *("reproduction", "sources", "sweep", "testing", "trajectories"),
    ),
    7: ("cli",),
    8: ("__main__",),
}
# The exceptions: these may import a neighbour in their own layer.
SIDEWAYS = {
    "analyses": {"circuits"},
    "batch": {"report", "reproduction"},
    "console": {"errors"},
    "devices": {"errors"},
    "plain_yaml": {"errors", "stored", "structured"},
    "provenance": {"errors", "stored"},
    "prompts": {"errors"},
    "reductions": {"errors", "products"},
    "results": {"errors", "provenance", "structured"},
    "resampling": {"errors", "tails"},
    "stored": {"errors"},
    "structured": {"descriptions", "errors"},
    "registers": {"errors"},
    "plugins": {"errors"},
    "training": {"checkpoints", "evaluation"},
    "probes": {"interventions"},
    "adapters": {"checkpoints"},
    "predictors": {"adapters", "checkpoints"},
    "evaluation": {"checkpoints", "predictors"},
    "pipeline": {"report"},
    "registry": {"report", "testing"},
    "reproduction": {"report"},
    "sweep": {"pipeline", "report"},
    "trajectories": {"pipeline"},
}
# What is compared with the rest shares nothing with it.
ALONE = {"theory"}
# Where a third-party package may be imported: one file, or one package of that name.
SITES = {
    "plotly": "figures",
    "transformer_lens": "models.hooks",
    "typer": "cli",
    "pydantic": "structured",
    "jinja2": "report.html",
    "ray": "jobs.on_ray",
    "submitit": "jobs.on_slurm",
    "wandb": "training.logs",
}
# ... and what may be imported anywhere, but by one file only.
ONCE = {"kaleido", "sklearn"}
PRINTS = {"cli"}
# Where templates of pages and of texts in figures are, and plotly's own HTML.
MARKUP = {"report/html.py", "figures/text.py", "figures/files.py"}
PAGES = ("report/", "reproduction/")
TAG = re.compile(r"</?[a-z][a-z0-9]*[ />]")
STUDIES = "icl_interp.studies"
# The rooms of a study: each imports from those before it and from its own.
ROOMS = (
    ("published", "hand_built", "measurements"),
    ("claims",),
    ("constructions", "experiments"),
    ("dials", "figures", "summary"),
    ("study",),
)
# Packages that others import by their name: they only put together what their modules hold.
FACES = {
    STUDIES,
    "icl_interp.theory.autoregression",
    "icl_interp.theory.linear_attention",
    "icl_interp.theory.lipschitz",
}
MAX_LINES = 600
# Verdicts come from criteria: these files decide, or hold what is expected of constructions of
# known truth.
VERDICTS = ("supported", "contradicted", "inconclusive", "not_applicable")
JUDGES = {
    *(f"analyses/{name}.py" for name in ("criterion", "claim", "finding")),
    *(f"experiments/{name}.py" for name in ("statements", "calibration")),
    *(f"studies/{name}/study.py" for name in ("limits", "linear_attention")),
}
# Entropies and read-outs of the stream are computed where their one definition is; the rest asks
# these.
DEFINED = {
    "xlogy": {"probes", "theory"},
    "entr": {"probes", "theory"},
    "unembed": {"probes", "models"},
}
# Studies read models with probes and edit them with interventions; these attach hooks themselves,
# and why.
HOOKS_BY_HAND = {
    "studies/linear_attention/measurements/algorithms.py": "gradients flow through what it keeps"
}
ATTACH = ("run_with_cache", "run_with_hooks", "add_hook")
# Tests of no module: of the whole package, of its documentation, or of the tests themselves.
WHOLE = {
    *(f"test_{name}.py" for name in ("architecture", "benchmarks", "contributing", "docs")),
    *(
        f"test_{name}.py"
        for name in ("coverage_page", "imports", "mutants", "notebooks", "other_tools")
    ),
    *(f"studies/test_{name}.py" for name in ("bundled", "constructions", "words")),
    "golden/test_findings.py",
}
# Words of a claim's id that tell nothing of its topic.
SMALL_WORDS = {"after", "at", "does", "no", "not", "on", "than"}
# Neither `import icl_interp` nor `icl-interp --help` loads any of these.
HEAVY = {"torch", "numpy", "plotly", "transformer_lens", "jaxtyping"}

Sources = dict[str, str]  # path below icl_interp/ -> text


class Import(NamedTuple):
    target: str  # the dotted module that is loaded; for a package, its __init__
    line: int
    # As the file is loaded, not later inside a function and not for type checkers only.
    on_load: bool


@functools.cache
def module(path: str) -> str:
    parts = PurePosixPath("icl_interp", path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit(name: str) -> str:
    """The file or package of LAYERS that holds a dotted module; empty for icl_interp itself."""
    return name.split(".")[1] if "." in name else ""


def imports(path: str, sources: Sources) -> tuple[Import, ...]:
    return _imports(path, sources[path], frozenset(map(module, sources)))


@functools.cache  # six rules ask
def _imports(path: str, text: str, known: frozenset[str]) -> tuple[Import, ...]:
    package = module(path) if path.endswith("__init__.py") else module(path).rpartition(".")[0]

    def absolute(name: str, level: int) -> str:
        base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
        return ".".join([*base, name] if name else base)

    def visit(node: ast.AST, on_load: bool) -> Iterator[Import]:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(alias.name, node.lineno, on_load)
            case ast.ImportFrom(module=name, names=names, level=level):
                base = absolute(name or "", level)
                for alias in names:
                    inner = f"{base}.{alias.name}"
                    yield Import(inner if inner in known else base, node.lineno, on_load)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                level = len(name) - len(name.lstrip("."))
                yield Import(absolute(name.lstrip("."), level), node.lineno, on_load)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                on_load = False
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                on_load = False
        for child in ast.iter_child_nodes(node):
            yield from visit(child, on_load)

    return tuple(visit(parsed(text), True))


def ours(path: str, sources: Sources) -> Iterator[Import]:
    return (i for i in imports(path, sources) if i.target.split(".")[0] == "icl_interp")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The strings of a file but for its docstrings, each with its line."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = {
        id(n.body[0].value)
        for n in nodes(source)
        if isinstance(n, holders) and ast.get_docstring(n)
    }
    for node in nodes(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def imports_point_down(sources: Sources) -> Iterator[str]:
    layer = {name: number for number, names in LAYERS.items() for name in names}
    for path in sources:
        here = unit(module(path))
        if not here:
            continue  # icl_interp/__init__.py offers the public names of all layers
        if here not in layer:
            yield f"{path}: {here} stands in no layer"
            continue
        for target, line, _ in ours(path, sources):
            there = unit(target)
            if path.endswith("__init__.py") and target == STUDIES:
                # Whoever imports a package of the engine by its name finds the bundled studies in
                # it.
                continue
            allowed = (
                there == here
                or there in SIDEWAYS.get(here, ())
                or layer.get(there, -1) < layer[here]
            )
            if there and not allowed:
                yield (
                    f"{path}:{line}: {here} (layer {layer[here]}) imports {there} (layer "
                    f"{layer.get(there)})"
                )


def theory_stands_alone(sources: Sources) -> Iterator[str]:
    for path in sources:
        here = unit(module(path))
        for target, line, _ in ours(path, sources):
            if here in ALONE and unit(target) != here:
                yield f"{path}:{line}: {here} imports {target}"


def inner_code_imports_modules(sources: Sources) -> Iterator[str]:
    packages = {module(path) for path in sources if path.endswith("__init__.py")}
    for path in sources:
        if path.endswith("__init__.py"):
            continue
        for target, line, _ in ours(path, sources):
            if target in packages and target not in FACES:
                yield f"{path}:{line}: imports the package {target}; name the module inside it"


def imports_have_no_cycle(sources: Sources) -> Iterator[str]:
    graph = {module(path): {i.target for i in ours(path, sources) if i.on_load} for path in sources}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield " <- ".join(error.args[1])


def third_parties_enter_once(sources: Sources) -> Iterator[str]:
    files = defaultdict(set)
    for path in sources:
        for target, line, _ in imports(path, sources):
            name = target.split(".")[0]
            files[name].add(path)
            site = f"icl_interp.{SITES.get(name)}"
            in_study = any(
                PurePosixPath(path).match(f"studies/*/{folder}/*.py")
                for folder in ("figures", "claims")
            )
            drawn = SITES.get(name) == "figures" and in_study
            if name in SITES and not drawn and not f"{module(path)}.".startswith(f"{site}."):
                yield f"{path}:{line}: imports {name}, which only {site} may"
    for name in sorted(ONCE):
        if len(files[name]) > 1:
            yield f"{name} is imported by {', '.join(sorted(files[name]))}"


def files_are_short(sources: Sources) -> Iterator[str]:
    for path, text in sources.items():
        if (lines := len(text.splitlines())) > MAX_LINES:
            yield f"{path}: {lines} lines, more than {MAX_LINES}"


def files_are_plain(sources: Sources) -> Iterator[str]:
    for path, text in sources.items():
        for what in _too_dense(text):
            yield f"{path}: {what}"


@functools.cache
def _too_dense(text: str) -> tuple[str, ...]:
    return tuple(too_dense(text))


def library_code_does_not_print(sources: Sources) -> Iterator[str]:
    for path, text in sources.items():
        for node in nodes(text):
            match node:
                case ast.Call(func=ast.Name(id="print")) if unit(module(path)) not in PRINTS:
                    yield f"{path}:{node.lineno}: prints"


def annotations_are_evaluated(sources: Sources) -> Iterator[str]:
    for path, text in sources.items():
        for node in nodes(text):
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                yield (
                    f"{path}:{node.lineno}: from __future__ import annotations hides shapes from "
                    "the run-time check"
                )


def public_names_are_documented(sources: Sources) -> Iterator[str]:
    for path, text in sources.items():
        for node in parsed(text).body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    overload = any(ast.unparse(d).endswith("overload") for d in node.decorator_list)
                    if not (node.name.startswith("_") or overload or ast.get_docstring(node)):
                        yield f"{path}:{node.lineno}: {node.name} has no docstring"


def html_has_one_origin(sources: Sources) -> Iterator[str]:
    """Pages are made of templates, and unescaped `Markup` is made only where it is needed."""
    for path, text in sources.items():
        for node in nodes(text):
            match node:
                case ast.Call(func=ast.Name(id="markup"), args=[ast.Constant(), *_]):
                    pass
                case ast.Call(func=ast.Name(id="markup")):
                    yield f"{path}:{node.lineno}: the template of markup is no text in the code"
                case ast.Call(func=ast.Name(id="Markup"), args=[ast.Constant()]):
                    pass
                case ast.Call(func=ast.Name(id="Markup")) if path not in MARKUP:
                    yield f"{path}:{node.lineno}: makes Markup of what is no text in the code"
        for line, value in texts(text) if path.startswith(PAGES) else ():
            if TAG.search(value):
                yield f"{path}:{line}: has a tag, which belongs into a template: {value[:40]!r}"


def only_criteria_pass_verdicts(sources: Sources) -> Iterator[str]:
    """Measurements, evidence and experiments return numbers, not verdicts.

    None of their strings but docstrings names a verdict.
    """
    for path, text in sources.items():
        parts = PurePosixPath(path).parts
        asked = parts[0] in ("analyses", "experiments") or (
            parts[0] == "studies" and parts[2:3] != ("figures",)
        )
        if not asked or path in JUDGES or "constructions" in (*parts, PurePosixPath(path).stem):
            continue
        for line, value in texts(text):
            for word in VERDICTS:
                if word in value:
                    yield f"{path}:{line}: says {word!r}, which only a criterion decides"


def studies_stand_apart(sources: Sources) -> Iterator[str]:
    """No study imports another, and a room of a study imports only earlier rooms."""
    order = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
    for path in sources:
        here = module(path).split(".")[2:]
        for target, line, _ in ours(path, sources):
            there = target.split(".")[2:]
            if (
                not path.startswith("studies/")
                or not target.startswith(f"{STUDIES}.")
                or min(len(here), len(there)) < 2
            ):
                continue
            if here[0] != there[0]:
                yield f"{path}:{line}: the study {here[0]} imports the study {there[0]}"
            elif order[there[1]] > order[here[1]]:
                yield f"{path}:{line}: {here[1]} imports {there[1]}, which comes later in a study"


def engine_names_no_study(sources: Sources) -> Iterator[str]:
    """Outside the studies, no text but docstrings holds an id of their claims or figures.

    The same holds for ids of their experiments.
    """
    studies = {
        PurePosixPath(path).parts[1]
        for path in sources
        if PurePosixPath(path).match("studies/*/study.py")
    }
    ids = (
        re.compile(rf"\b({'|'.join(sorted(studies))})\.[a-z_0-9]+")
        if studies
        else re.compile(r"(?!)")
    )
    for path, text in sources.items():
        for line, value in () if path.startswith("studies/") else texts(text):
            if (found := ids.search(value)) and f"icl_interp.theory.{found[0]}" not in value:
                yield f"{path}:{line}: names {found[0]!r}, which only its study may"


def quantities_are_defined_once(sources: Sources) -> Iterator[str]:
    """What probes define is asked of them, not computed again (by the calls that give it away)."""
    for path, text in sources.items():
        for node in nodes(text):
            match node:
                case ast.Call(func=ast.Attribute(attr=str(name)) | ast.Name(id=str(name))) if (
                    name in DEFINED
                ):
                    if unit(module(path)) not in DEFINED[name]:
                        yield (
                            f"{path}:{node.lineno}: calls {name}, which only "
                            f"{sorted(DEFINED[name])} may"
                        )


def studies_attach_no_hooks(sources: Sources) -> Iterator[str]:
    """Probes read from a running model, and interventions change it; studies do neither."""
    for path, text in sources.items():
        if not path.startswith("studies/") or path in HOOKS_BY_HAND:
            continue
        for node in nodes(text):
            match node:
                case ast.Call(func=ast.Attribute(attr=str(name)), keywords=given):
                    if name in ATTACH or (
                        name == "hooks" and "fwd_hooks" in {keyword.arg for keyword in given}
                    ):
                        yield f"{path}:{node.lineno}: calls {name}; use a probe or an intervention"


def claims_in(sources: Sources) -> Iterator[tuple[str, int, str]]:
    """The file, line and id of each claim of the studies; the id is empty where it is no text."""
    for path, text in sources.items():
        if not path.startswith("studies/"):
            continue
        for node in nodes(text):
            match node:
                case ast.Call(func=ast.Name(id="Claim" | "replace" as made), keywords=given):
                    ids = (one.value for one in given if one.arg == "id")
                    id_ = next(ids, None)
                    # What is made from a claim by `replace`, with an id of its own, is one more.
                    if made == "Claim" or id_ is not None:
                        yield path, node.lineno, ast.literal_eval(id_) if _is_text(id_) else ""


def _is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def claims_stand_under_their_names(sources: Sources) -> Iterator[str]:
    """The name of a claim's file carries a word of the claim's id that tells what it is about."""
    for path, line, id_ in claims_in(sources):
        if not id_:
            yield f"{path}:{line}: the id of a claim is no text in the code"
            continue
        words = set(id_.partition(".")[2].split("_")) - SMALL_WORDS
        if not words & set(PurePosixPath(path).stem.split("_")):
            yield f"{path}:{line}: the file's name carries no word of {id_}"


def measurements_stand_together(sources: Sources) -> Iterator[str]:
    """What a study measures is in its folder `measurements`, not beside a claim or a figure."""
    for path, text in sources.items():
        if not path.startswith("studies/") or PurePosixPath(path).match("studies/*/measurements/*"):
            continue
        for node in nodes(text):
            match node:
                case ast.FunctionDef(name=name, decorator_list=[*marks]):
                    if any(_is_measurement(mark) for mark in marks):
                        yield f"{path}:{node.lineno}: measures {name} outside of `measurements`"


def _is_measurement(mark: ast.expr) -> bool:
    """Whether a decorator is `measurement(...)`, by itself or as a name of its module."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    if isinstance(called, ast.Attribute):
        return called.attr == "measurement"
    return isinstance(called, ast.Name) and called.id == "measurement"


def constructions_have_one_list(sources: Sources) -> Iterator[str]:
    """A study takes its models of known truth from `constructions.all` alone."""
    for path in sources:
        if not PurePosixPath(path).match("studies/*/study.py"):
            continue
        room = f"{module(path).rpartition('.')[0]}.constructions"
        for target, line, _ in ours(path, sources):
            if f"{target}.".startswith(f"{room}.") and target != f"{room}.all":
                yield f"{path}:{line}: imports {target} instead of {room}.all"


def named_after_its_module(tests: Sources, package: Sources) -> Iterator[str]:
    """A test stands in the room of its module, under the module's name and what it asks of it.

    The module may stand in a folder of the room, and a test of a helper is named after the helper.
    """
    helpers = {PurePosixPath(path).stem for path in tests if path.startswith("support/")}
    # Names of modules and folders by the room that they stand in, however deep.
    within = defaultdict(set)
    for file in map(PurePosixPath, package):
        for room in file.parents:
            inner = file.relative_to(room).with_suffix("").parts
            # At the root: files and the folders themselves, whose tests have folders too.
            within[room].update(inner if room.name else inner[:1])
    for path in tests:
        place = PurePosixPath(path)
        if not place.name.startswith("test_") or path in WHOLE:
            continue
        names = set(within[place.parent])
        if not place.parent.name:
            names |= helpers
        # `test_unit_claims` is of `unit`; a folder may be named by one thing that it holds.
        words = place.stem.removeprefix("test_")
        names |= {name.removesuffix("s") for name in names}
        if not any(f"{words}_".startswith(f"{name}_") for name in names):
            yield f"{path}: is named after no module of icl_interp/{place.parent}"


RULES = (
    imports_point_down,
    studies_stand_apart,
    engine_names_no_study,
    theory_stands_alone,
    inner_code_imports_modules,
    imports_have_no_cycle,
    third_parties_enter_once,
    files_are_short,
    files_are_plain,
    library_code_does_not_print,
    annotations_are_evaluated,
    public_names_are_documented,
    html_has_one_origin,
    only_criteria_pass_verdicts,
    quantities_are_defined_once,
    studies_attach_no_hooks,
    claims_stand_under_their_names,
    measurements_stand_together,
    constructions_have_one_list,
)
