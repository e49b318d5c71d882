"""Rules of the design: imports, entry points of third-party packages, and the look of a file.

Every rule reads sources only, so each is also shown a small fake package that breaks it, and that
it alone must refuse.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from density import measure
from helpers import must_fail
from layout_rules import (
    HEAVY,
    MAX_LINES,
    ROOT,
    RULES,
    WHOLE,
    annotations_are_evaluated,
    claims_stand_under_their_names,
    constructions_have_one_list,
    engine_names_no_study,
    files_are_plain,
    files_are_short,
    html_has_one_origin,
    imports_have_no_cycle,
    imports_point_down,
    inner_code_imports_modules,
    library_code_does_not_print,
    measurements_stand_together,
    named_after_its_module,
    only_criteria_pass_verdicts,
    public_names_are_documented,
    quantities_are_defined_once,
    studies_attach_no_hooks,
    studies_stand_apart,
    theory_stands_alone,
    third_parties_enter_once,
)


def holds(rule, sources):
    assert sources
    broken = list(rule(sources))
    assert not broken, "\n".join(broken)


def sources_of(root):
    return {
        path.relative_to(root).as_posix(): path.read_text("utf-8") for path in root.rglob("*.py")
    }


@pytest.mark.parametrize("rule", RULES)
def test_package_keeps(rule):
    holds(rule, sources_of(ROOT))


def test_tests_are_short_too():
    tests = sources_of(Path(__file__).parent)
    holds(files_are_short, tests)
    must_fail(holds, files_are_short, {**tests, "test_long.py": "\n" * (MAX_LINES + 1)})


def named_after(tests, package):
    broken = list(named_after_its_module(tests, package))
    assert not broken, "\n".join(broken)


def test_tests_are_named_after_modules():
    tests, package = sources_of(Path(__file__).parent), sources_of(ROOT)
    named_after(tests, package)
    assert set(tests) >= WHOLE
    must_fail(named_after, {**tests, "probes/test_gone.py": ""}, package)
    must_fail(named_after, {**tests, "tasks/test_residual.py": ""}, package)


PLAIN = """
def area(width, height):
    # A comment.
    found = width * height
    return found
"""
PACKED = """
def area(width, height):
    (a, b), c = (width, height), [x for x in range(3) if x]
    return a * b
"""


def test_density_is_counted():
    found, packed = measure(PLAIN), measure(PACKED)
    # Nodes: the function, its arguments and two names; a target, a product of two names and its
    # sign; a return.
    assert (found.statements, found.median) == (3, 4.0)
    assert found.comments == pytest.approx(100 / 4)
    assert (found.comprehensions, found.packed) == (0, 0)
    assert packed.comprehensions == pytest.approx(100 / 3)
    assert packed.packed == pytest.approx(100 / 3)
    assert measure("x = 1  # " + "w" * 100).wide == 100


# A package that keeps every rule, close to each of their edges.
KEEPS = {
    "__init__.py": "from importlib import import_module\n\ndef __getattr__(name):\n    return "
    "import_module('.models')",
    "__main__.py": "from icl_interp.cli import main\n\nmain()",
    "errors.py": "class InputError(ValueError):\n    '''The one.'''",
    "provenance.py": "from icl_interp.errors import InputError\n\ndef _private():\n    pass",
    "models/__init__.py": "from icl_interp.models.transformer import HookedTransformer",
    "models/hooks.py": "import transformer_lens\nimport transformer_lens.hook_points",
    "models/transformer.py": "from icl_interp.models import hooks\nfrom . import weights\nfrom "
    "..errors import unknown",
    "models/reading.py": "def _read(model, stream):\n    return model.unembed(stream)",
    "models/weights.py": "def load():\n    '''Late, so no cycle.'''\n    from icl_interp.models "
    "import transformer",
    "models/single_layers.py": "from icl_interp.models.transformer import HookedTransformer",
    "tasks/__init__.py": "",
    "tasks/base.py": "from icl_interp import errors",
    "theory/__init__.py": "from icl_interp.theory import limits",
    "theory/limits.py": "import math\nxlogy(p, p)",
    "checkpoints/__init__.py": "",
    "checkpoints/store.py": "from icl_interp.models.transformer import HookedTransformer",
    "training/__init__.py": "",
    "training/trainer.py": "from icl_interp.checkpoints.store import save",
    "probes.py": "import typing\nif typing.TYPE_CHECKING:\n    from icl_interp.models.hooks import "
    "HookPoint",
    "analyses/__init__.py": "",
    "analyses/limits.py": "from icl_interp.theory import limits\n" + "\n" * (MAX_LINES - 1),
    "analyses/criterion.py": "SUPPORTED = 'supported'",
    "figures/__init__.py": "",
    "figures/curves.py": "import plotly.graph_objects as go",
    "figures/export.py": "import kaleido",
    "studies/__init__.py": "from icl_interp.studies.limits.study import STUDY",
    "studies/limits/study.py": "from icl_interp.studies.limits.claims import far\nfrom "
    "icl_interp.studies.limits.constructions.all import CONSTRUCTIONS\nNAME = 'limits.far'",
    "studies/limits/claims/far.py": "from icl_interp.studies.limits.measurements import far\n"
    "Claim(id='limits.far_from_data')",
    "studies/limits/measurements/far.py": "from icl_interp.theory import limits\nedit.hooks(model)"
    "\n@measurement('far/own')\ndef far(lab):\n    '''Far.'''",
    "studies/limits/constructions/all.py": "CONSTRUCTIONS = ()",
    "studies/heads/study.py": "",
    "report.py": "from icl_interp.figures import curves\nmarkup('<b>{}</b>', x)\nMarkup('')",
    "reproduction/page.py": "'''Of a '<b>'.'''\nrendered('page.html', note='1 < 2')",
    "figures/files.py": "Markup(plotly)",
    "cli.py": "import typer\n\ndef main():\n    '''Run.'''\n    print()",
}
BREAKS = [
    (imports_point_down, "tasks/base.py", "from icl_interp.models import transformer"),
    (imports_point_down, "tasks/base.py", "from ..models.transformer import HookedTransformer"),
    (
        imports_point_down,
        "tasks/base.py",
        "def late():\n    '''Late.'''\n    import icl_interp.models.transformer",
    ),
    (imports_point_down, "provenance.py", "from icl_interp.tasks.base import Task"),
    (imports_point_down, "probes.py", "from icl_interp.training.trainer import train"),
    (
        imports_point_down,
        "analyses/limits.py",
        "import importlib\nimportlib.import_module('icl_interp.report')",
    ),
    (imports_point_down, "analyses/limits.py", "from icl_interp import report"),
    (imports_point_down, "utils.py", ""),
    (
        studies_stand_apart,
        "studies/heads/study.py",
        "from icl_interp.studies.limits.claims import far",
    ),
    (
        studies_stand_apart,
        "studies/limits/measurements/near.py",
        "from icl_interp.studies.limits.claims import far",
    ),
    (engine_names_no_study, "figures/curves.py", "ORDER = ('limits.far',)"),
    (engine_names_no_study, "cli.py", "def main():\n    '''Main.'''\n    f'{1} of heads.width'"),
    (theory_stands_alone, "theory/limits.py", "from icl_interp.errors import InputError"),
    (
        inner_code_imports_modules,
        "analyses/limits.py",
        "from icl_interp.models import HookedTransformer",
    ),
    (inner_code_imports_modules, "analyses/limits.py", "import icl_interp.models"),
    (inner_code_imports_modules, "analyses/limits.py", "from icl_interp import models"),
    (inner_code_imports_modules, "models/single_layers.py", "from . import HookedTransformer"),
    (inner_code_imports_modules, "cli.py", "import icl_interp"),
    (
        imports_have_no_cycle,
        "models/weights.py",
        "from icl_interp.models.transformer import HookedTransformer",
    ),
    (
        imports_have_no_cycle,
        "models/weights.py",
        "try:\n    from . import transformer\nexcept ImportError:\n    pass",
    ),
    (third_parties_enter_once, "report.py", "from plotly import graph_objects"),
    (third_parties_enter_once, "figures_more.py", "import plotly"),
    (third_parties_enter_once, "models/transformer.py", "import transformer_lens.patching"),
    (
        third_parties_enter_once,
        "models/transformer.py",
        "def late():\n    '''Late.'''\n    import transformer_lens",
    ),
    (third_parties_enter_once, "__main__.py", "import typer"),
    (third_parties_enter_once, "report.py", "import kaleido"),
    (
        quantities_are_defined_once,
        "analyses/limits.py",
        "def _f(p):\n    return torch.xlogy(p, p).sum(-1)",
    ),
    (quantities_are_defined_once, "figures/curves.py", "from torch.special import entr\nentr(p)"),
    (
        quantities_are_defined_once,
        "cli.py",
        "def main():\n    '''Main.'''\n    lab.model.unembed(stream)",
    ),
    (
        studies_attach_no_hooks,
        "studies/limits/claims/far.py",
        "_, cache = lab.model.run_with_cache(tokens)",
    ),
    (
        studies_attach_no_hooks,
        "studies/limits/measurements/far.py",
        "with model.hooks(fwd_hooks=keep):\n    model(t)",
    ),
    (files_are_short, "probes.py", "\n" * (MAX_LINES + 1)),
    (files_are_plain, "analyses/limits.py", "# " + "w" * 99),
    (files_are_plain, "analyses/limits.py", "a, b = c, d\n" * 30),
    (files_are_plain, "analyses/limits.py", "a = [b for c in d]\n" * 30),
    (files_are_plain, "analyses/limits.py", "a(b(c(d(e(f(g(h(i(j)))))))))\n" * 30),
    (files_are_plain, "analyses/limits.py", "def _f():\n" + "    x = 1\n" * 16),
    (library_code_does_not_print, "report.py", "def show():\n    '''Show.'''\n    print(1)"),
    (annotations_are_evaluated, "report.py", "from __future__ import annotations"),
    (public_names_are_documented, "report.py", "class Report:\n    pass"),
    (public_names_are_documented, "report.py", "def load(path):\n    return path"),
    (only_criteria_pass_verdicts, "analyses/limits.py", "VERDICT = 'supported'"),
    (
        only_criteria_pass_verdicts,
        "analyses/limits.py",
        "def _f(x):\n    return f'not {x} contradicted'",
    ),
    (html_has_one_origin, "report.py", "markup(f'<b>{name}</b>')"),
    (html_has_one_origin, "report.py", "markup(template, name)"),
    (html_has_one_origin, "report.py", "Markup(name)"),
    (html_has_one_origin, "reproduction/page.py", "name = f'<b>{name}</b>'"),
    (html_has_one_origin, "reproduction/page.py", "name = '</td>'"),
    (claims_stand_under_their_names, "studies/limits/claims/far.py", "Claim(id='limits.near_by')"),
    (claims_stand_under_their_names, "studies/limits/claims/far.py", "Claim(id='far.near_by')"),
    (claims_stand_under_their_names, "studies/limits/claims/far.py", "Claim(id=FAR)"),
    (claims_stand_under_their_names, "studies/limits/study.py", "Claim(id='limits.far_away')"),
    (
        claims_stand_under_their_names,
        "studies/limits/claims/no_limit.py",
        "Claim(id='limits.no_norm')",
    ),
    (
        constructions_have_one_list,
        "studies/limits/study.py",
        "from icl_interp.studies.limits.constructions.layers import CONSTRUCTIONS",
    ),
    (
        measurements_stand_together,
        "studies/limits/claims/far.py",
        "@measurement('far/own')\ndef far(lab):\n    '''Far.'''",
    ),
    (
        measurements_stand_together,
        "studies/limits/figures/far.py",
        "@measuring.measurement('far/own', version=2)\ndef far(lab):\n    '''Far.'''",
    ),
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
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = run.stderr.splitlines()
    assert run.returncode == 0, "\n".join(
        line for line in lines if not line.startswith("import time:")
    )
    loaded = {
        line.split("|")[-1].strip().split(".")[0]
        for line in lines
        if line.startswith("import time:")
    }
    assert "icl_interp" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [("-c", "import icl_interp"), ("-m", "icl_interp", "--help"), ("-m", "icl_interp", "zoo")],
)
def test_importing_help_and_the_zoo_stay_light(arguments):
    stays_light(*arguments)


def test_a_heavy_import_is_noticed():
    must_fail(stays_light, "-c", "import icl_interp, numpy")
