"""The design, guarded: who may import whom, where third-party packages enter, what a file may look like.

Every rule reads sources only, so each is also shown a small fake package that breaks it, and that it alone must refuse.
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest
from helpers import must_fail

ROOT = Path(__file__).parents[1] / "icl_interp"

# Imports point to a lower layer, or stay within a file or package of this list.
LAYERS = {
    0: ("errors", "devices", "provenance", "prompts", "reductions", "results", "resampling", "stored"),
    1: ("tasks", "models", "theory", "baselines"),
    2: ("checkpoints", "training", "probes", "interventions", "evaluation"),
    3: ("analyses",),
    4: ("experiments", "figures"),
    5: ("studies",),
    6: ("report", "pipeline", "reproduction"),
    7: ("cli",),
    8: ("__main__",),
}
# The exceptions: these may import a neighbour in their own layer.
SIDEWAYS = {
    "devices": {"errors"},
    "provenance": {"errors"},
    "prompts": {"errors"},
    "reductions": {"errors"},
    "results": {"errors", "provenance", "stored"},
    "resampling": {"errors"},
    "stored": {"errors"},
    "training": {"checkpoints", "evaluation"},
    "evaluation": {"checkpoints"},
    "pipeline": {"report"},
    "reproduction": {"report"},
}
# What is compared with the rest shares nothing with it.
ALONE = {"theory"}
# Where a third-party package may be imported: one file, or one package of that name.
SITES = {"plotly": "figures", "transformer_lens": "models.hooks", "typer": "cli", "ray": "training.launch"}
# ... and what may be imported anywhere, but by one file only.
ONCE = {"kaleido"}
PRINTS = {"cli"}
MARKUP = {"figures/text.py", "figures/files.py"}  # where `markup` is, and plotly's own HTML
STUDIES = "icl_interp.studies"
# Packages that others import by their name: they only put together what their modules hold.
FACES = {STUDIES, "icl_interp.theory.linear_attention"}
MAX_LINES = 400
# Verdicts come from criteria: these files decide, or hold what is expected of constructions of known truth.
VERDICTS = ("supported", "contradicted", "inconclusive", "not_applicable")
JUDGES = {
    *(f"analyses/{name}.py" for name in ("criterion", "claim", "finding")),
    *(f"experiments/{name}.py" for name in ("errors", "calibration")),
    *(f"studies/{name}/{file}.py" for name in ("limits", "linear_attention") for file in ("constructions", "study")),
}
# Neither `import icl_interp` nor `icl-interp --help` loads any of these.
HEAVY = {"torch", "numpy", "plotly", "transformer_lens", "jaxtyping"}

Sources = dict[str, str]  # path below icl_interp/ -> text


class Import(NamedTuple):
    target: str  # the dotted module that is loaded; for a package, its __init__
    line: int
    on_load: bool  # as the file is loaded, not later inside a function and not for type checkers only


def module(path: str) -> str:
    parts = PurePosixPath("icl_interp", path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit(name: str) -> str:
    """The file or package of LAYERS that a dotted module belongs to; empty for icl_interp itself."""
    return name.split(".")[1] if "." in name else ""


def imports(path: str, sources: Sources) -> Iterator[Import]:
    known = {module(p) for p in sources}
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
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
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

    yield from visit(ast.parse(sources[path]), True)


def ours(path: str, sources: Sources) -> Iterator[Import]:
    return (i for i in imports(path, sources) if i.target.split(".")[0] == "icl_interp")


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
                continue  # whoever imports a package of the engine by its name finds the bundled studies in it
            allowed = there == here or there in SIDEWAYS.get(here, ()) or layer.get(there, -1) < layer[here]
            if there and not allowed:
                yield f"{path}:{line}: {here} (layer {layer[here]}) imports {there} (layer {layer.get(there)})"


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
            drawn = SITES.get(name) == "figures" and PurePosixPath(path).match("studies/*/figures/*.py")
            if name in SITES and not drawn and not f"{module(path)}.".startswith(f"{site}."):
                yield f"{path}:{line}: imports {name}, which only {site} may"
    for name in sorted(ONCE):
        if len(files[name]) > 1:
            yield f"{name} is imported by {', '.join(sorted(files[name]))}"


def files_are_short(sources: Sources) -> Iterator[str]:
    for path, text in sources.items():
        if (lines := len(text.splitlines())) > MAX_LINES:
            yield f"{path}: {lines} lines, more than {MAX_LINES}"


def library_code_does_not_print(sources: Sources) -> Iterator[str]:
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(func=ast.Name(id="print")) if unit(module(path)) not in PRINTS:
                    yield f"{path}:{node.lineno}: prints"


def annotations_are_evaluated(sources: Sources) -> Iterator[str]:
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                yield f"{path}:{node.lineno}: from __future__ import annotations hides shapes from the run-time check"


def public_names_are_documented(sources: Sources) -> Iterator[str]:
    for path, text in sources.items():
        for node in ast.parse(text).body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    overload = any(ast.unparse(d).endswith("overload") for d in node.decorator_list)
                    if not (node.name.startswith("_") or overload or ast.get_docstring(node)):
                        yield f"{path}:{node.lineno}: {node.name} has no docstring"


def html_has_one_origin(sources: Sources) -> Iterator[str]:
    """Templates of HTML are written out, and `Markup`, which is never escaped, is made where nothing else would do."""
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(func=ast.Name(id="markup"), args=[ast.Constant(), *_]):
                    pass
                case ast.Call(func=ast.Name(id="markup")):
                    yield f"{path}:{node.lineno}: the template of markup is no text in the code"
                case ast.Call(func=ast.Name(id="Markup"), args=[ast.Constant()]):
                    pass
                case ast.Call(func=ast.Name(id="Markup")) if path not in MARKUP:
                    yield f"{path}:{node.lineno}: makes Markup of what is no text in the code"


def only_criteria_pass_verdicts(sources: Sources) -> Iterator[str]:
    """Measurements, evidence and experiments return numbers: none of their strings but docstrings names a verdict."""
    for path, text in sources.items():
        parts = PurePosixPath(path).parts
        asked = parts[0] in ("analyses", "experiments") or (parts[0] == "studies" and parts[2:3] != ("figures",))
        if not asked or path in JUDGES:
            continue
        tree = ast.parse(text)
        holders = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docs = {id(n.body[0].value) for n in ast.walk(tree) if isinstance(n, holders) and ast.get_docstring(n)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                for word in VERDICTS:
                    if word in node.value:
                        yield f"{path}:{node.lineno}: says {word!r}, which only a criterion decides"


RULES = (
    imports_point_down,
    theory_stands_alone,
    inner_code_imports_modules,
    imports_have_no_cycle,
    third_parties_enter_once,
    files_are_short,
    library_code_does_not_print,
    annotations_are_evaluated,
    public_names_are_documented,
    html_has_one_origin,
    only_criteria_pass_verdicts,
)


def holds(rule, sources):
    assert sources
    broken = list(rule(sources))
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("rule", RULES)
def test_package_keeps(rule):
    holds(rule, {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in ROOT.rglob("*.py")})


# A package that keeps every rule, close to each of their edges.
KEEPS = {
    "__init__.py": "from importlib import import_module\n\ndef __getattr__(name):\n    return import_module('.models')",
    "__main__.py": "from icl_interp.cli import main\n\nmain()",
    "errors.py": "class InputError(ValueError):\n    '''The one.'''",
    "provenance.py": "from icl_interp.errors import InputError\n\ndef _private():\n    pass",
    "models/__init__.py": "from icl_interp.models.transformer import HookedTransformer",
    "models/hooks.py": "import transformer_lens\nimport transformer_lens.hook_points",
    "models/transformer.py": "from icl_interp.models import hooks\nfrom . import weights\nfrom ..errors import unknown",
    "models/weights.py": "def load():\n    '''Late, so no cycle.'''\n    from icl_interp.models import transformer",
    "models/units.py": "from icl_interp.models.transformer import HookedTransformer",
    "tasks/__init__.py": "",
    "tasks/base.py": "from icl_interp import errors",
    "theory/__init__.py": "from icl_interp.theory import limits",
    "theory/limits.py": "import math",
    "checkpoints/__init__.py": "",
    "checkpoints/store.py": "from icl_interp.models.transformer import HookedTransformer",
    "training/__init__.py": "",
    "training/trainer.py": "from icl_interp.checkpoints.store import save",
    "probes.py": "import typing\nif typing.TYPE_CHECKING:\n    from icl_interp.models.hooks import HookPoint",
    "analyses/__init__.py": "",
    "analyses/limits.py": "from icl_interp.theory import limits\n" + "\n" * (MAX_LINES - 1),
    "analyses/criterion.py": "SUPPORTED = 'supported'",
    "figures/__init__.py": "",
    "figures/curves.py": "import plotly.graph_objects as go",
    "figures/export.py": "import kaleido",
    "report.py": "from icl_interp.figures import curves\nmarkup('<b>{}</b>', x)\nMarkup('<br>')",
    "figures/files.py": "Markup(plotly)",
    "cli.py": "import typer\n\ndef main():\n    '''Run.'''\n    print()",
}
BREAKS = [
    (imports_point_down, "tasks/base.py", "from icl_interp.models import transformer"),
    (imports_point_down, "tasks/base.py", "from ..models.transformer import HookedTransformer"),
    (imports_point_down, "tasks/base.py", "def late():\n    '''Late.'''\n    import icl_interp.models.transformer"),
    (imports_point_down, "provenance.py", "from icl_interp.tasks.base import Task"),
    (imports_point_down, "probes.py", "from icl_interp.training.trainer import train"),
    (imports_point_down, "analyses/limits.py", "import importlib\nimportlib.import_module('icl_interp.report')"),
    (imports_point_down, "analyses/limits.py", "from icl_interp import report"),
    (imports_point_down, "utils.py", ""),
    (theory_stands_alone, "theory/limits.py", "from icl_interp.errors import InputError"),
    (inner_code_imports_modules, "analyses/limits.py", "from icl_interp.models import HookedTransformer"),
    (inner_code_imports_modules, "analyses/limits.py", "import icl_interp.models"),
    (inner_code_imports_modules, "analyses/limits.py", "from icl_interp import models"),
    (inner_code_imports_modules, "models/units.py", "from . import HookedTransformer"),
    (inner_code_imports_modules, "cli.py", "import icl_interp"),
    (imports_have_no_cycle, "models/weights.py", "from icl_interp.models.transformer import HookedTransformer"),
    (imports_have_no_cycle, "models/weights.py", "try:\n    from . import transformer\nexcept ImportError:\n    pass"),
    (third_parties_enter_once, "report.py", "from plotly import graph_objects"),
    (third_parties_enter_once, "figures_more.py", "import plotly"),
    (third_parties_enter_once, "models/transformer.py", "import transformer_lens.patching"),
    (third_parties_enter_once, "models/transformer.py", "def late():\n    '''Late.'''\n    import transformer_lens"),
    (third_parties_enter_once, "__main__.py", "import typer"),
    (third_parties_enter_once, "report.py", "import kaleido"),
    (files_are_short, "probes.py", "\n" * (MAX_LINES + 1)),
    (library_code_does_not_print, "report.py", "def show():\n    '''Show.'''\n    print(1)"),
    (annotations_are_evaluated, "report.py", "from __future__ import annotations"),
    (public_names_are_documented, "report.py", "class Report:\n    pass"),
    (public_names_are_documented, "report.py", "def load(path):\n    return path"),
    (only_criteria_pass_verdicts, "analyses/limits.py", "VERDICT = 'supported'"),
    (only_criteria_pass_verdicts, "analyses/limits.py", "def _f(x):\n    return f'not {x} contradicted'"),
    (html_has_one_origin, "report.py", "markup(f'<b>{name}</b>')"),
    (html_has_one_origin, "report.py", "markup('<b>' + name)"),
    (html_has_one_origin, "report.py", "markup(template, name)"),
    (html_has_one_origin, "report.py", "Markup(name)"),
    (html_has_one_origin, "figures/files.py", "markup(name)"),
]


@pytest.mark.parametrize("rule", RULES)
def test_rule_accepts_what_keeps_it(rule):
    holds(rule, KEEPS)
    assert rule in {broken for broken, _, _ in BREAKS}, "a rule that nothing breaks guards nothing"


@pytest.mark.parametrize(("rule", "path", "text"), BREAKS)
def test_rule_alone_refuses_what_breaks_it(rule, path, text):
    broken = {**KEEPS, path: text}
    must_fail(holds, rule, broken)
    for other in RULES:
        if other is not rule and path in KEEPS:
            holds(other, broken)


def stays_light(*arguments):
    """Run Python and look at everything it imported on the way."""
    run = subprocess.run([sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, timeout=120)
    lines = run.stderr.splitlines()
    assert run.returncode == 0, "\n".join(line for line in lines if not line.startswith("import time:"))
    loaded = {line.split("|")[-1].strip().split(".")[0] for line in lines if line.startswith("import time:")}
    assert "icl_interp" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("arguments", [("-c", "import icl_interp"), ("-m", "icl_interp", "--help")])
def test_importing_and_asking_for_help_stay_light(arguments):
    stays_light(*arguments)


def test_a_heavy_import_is_noticed():
    must_fail(stays_light, "-c", "import icl_interp, numpy")
