"""Studies of other packages: found by entry points when needed; a broken one is left out."""

import importlib
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import SURFACE

from icl_interp import plugins, registers
from icl_interp.errors import InputError
from icl_interp.studies import BUNDLED, STUDIES, load_plugins
from icl_interp.tasks import registry

EXAMPLE = Path(__file__).with_name("example_study")
# What a researcher does who installed the package and imports nothing of it.
SESSION = """
import sys
import icl_interp
from icl_interp import studies
assert "icl_interp_copying" not in sys.modules, "it is loaded when it is needed, not before"
print(*studies.STUDIES)
print(len(icl_interp.testing.check_study("copying")))
case = studies.STUDIES["copying"].constructions[0].draw(0)
claims = ["limits.layernorm_saturation", "copying.last_label"]
report = icl_interp.analyze(case.model.float(), case.task, claims=claims, n_prompts=256, progress=False)
print(*(finding.verdict for finding in report.findings), *report.figures)
report.save(sys.argv[1])
"""


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{Path(__file__).parents[1]}"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder with the example package, installed by pip."""
    source, site = (tmp_path_factory.mktemp(name) for name in ("source", "site"))
    shutil.copytree(EXAMPLE, source, dirs_exist_ok=True)
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([sys.executable, *pip, "--target", site, source], check=True)
    return site


@pytest.mark.slow
def test_an_installed_study_is_found_checked_analysed_and_drawn(site, tmp_path):
    found = run(site, "-c", SESSION, str(tmp_path / "report"))
    assert found.returncode == 0, found.stderr
    studies, n_rules, said = found.stdout.strip().split("\n")
    assert studies.split() == [*(study.name for study in BUNDLED), "copying"]
    assert int(n_rules) > 0
    assert said == "not_applicable supported claims last_label"
    # Its task is found too, by whoever reads a config that names it.
    read = "import icl_interp, sys; print(icl_interp.Report.load(sys.argv[1]).facts.task)"
    again = run(site, "-c", read, str(tmp_path / "report"))
    assert "Coins(" in again.stdout, again.stderr


@pytest.fixture
def packages(tmp_path, monkeypatch, caplog):
    """Gives a function that makes a package of one module installed, and forgets it afterwards."""

    def install(package: str, entry: str, module: str):
        (tmp_path / f"{package}.py").write_text(module)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{entry} = {package}:STUDY\n")
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(tmp_path)
    before = dict(registry.KINDS)
    log = logging.getLogger("icl_interp")
    log.removeHandler(SURFACE)
    with registers.as_before():
        monkeypatch.setattr(plugins, "_found", {})
        yield install
    log.addHandler(SURFACE)
    registry.KINDS.clear()
    registry.KINDS.update(before)


GOOD = "from icl_interp.studies import Study\nSTUDY = Study('good_one', 'me')\n"


@pytest.mark.parametrize(
    ("entry", "module", "says"),
    [
        ("bad_one", "import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("bad_one", "raise SystemExit(3)", "SystemExit: 3"),
        ("bad_one", "", "AttributeError"),
        ("bad_one", "STUDY = 3", "its entry point names 3, not an icl_interp.studies.Study"),
        ("limits", GOOD.replace("good_one", "limits"), "there is a study called 'limits' already"),
        (
            "bad_one",
            GOOD.replace("good_one", "other"),
            "its entry point is called 'bad_one', but the study 'other'",
        ),
    ],
)
def test_a_broken_one_is_left_out_with_a_warning_and_replaces_nothing(
    entry, module, says, packages, caplog
):
    bundled = dict(STUDIES)
    packages("broken_package", entry, module)
    packages("good_package", "good_one", GOOD)
    try:
        load_plugins()
    finally:
        sys.modules.pop("broken_package", None)
    (line,) = caplog.messages
    assert line.startswith(f"the study {entry!r} of broken_package 1.0 is left out: ")
    assert says in line
    assert list(STUDIES) == [*bundled, "good_one"]
    assert all(STUDIES[name] is study for name, study in bundled.items())


def test_a_config_asks_for_a_task_of_another_package(packages):
    task = (
        "from dataclasses import dataclass\nfrom icl_interp.tasks import Polynomial, register\n"
        "@register\n@dataclass(frozen=True, kw_only=True)\nclass Elsewhere(Polynomial): pass\n"
    )
    packages("task_package", "good_one", task + GOOD)
    registry.find("Polynomial")
    assert plugins._found == {}, "nothing is imported for a task that is known"
    registry.find("Elsewhere")
    assert "Elsewhere" in registry.KINDS


def test_a_register_refuses_a_second_thing_of_one_name(monkeypatch):
    monkeypatch.setattr(registers, "_views", [*registers._views])
    names = registers.View("experiment", lambda study: {})
    names.add("a", object())
    with pytest.raises(InputError, match="there is an experiment called 'a' already"):
        names.add("a", object())
    with pytest.raises(InputError, match="unknown experiment 'b'"):
        names.named("b")
    with registers.as_before():
        names["b"] = object()
        del names["a"]
    assert list(names) == ["a"]
