"""What the verdicts of a study depend on is its code, and nothing that shows them."""

import ast

import pytest
from helpers import must_fail

from icl_interp.studies import STUDIES
from icl_interp.studies.base import Study
from icl_interp.testing import job_cache


def check_what_shows_is_not_asked(files):
    """Only code that hands verdicts to users, and lists of a study's parts, imports figures.

    The same holds for all other modules that show verdicts.
    """
    hand = ("pipeline.py", "__init__.py", "__main__.py")
    shown = tuple(f"icl_interp.{name.removesuffix('.py')}" for name in job_cache.SHOWING)
    for path, text in files.items():
        inside = path.relative_to(job_cache.PACKAGE).parts
        lists = inside[-1] == "study.py" or inside == ("studies", "base.py")
        if set(inside) & set(job_cache.SHOWING) or inside[-1] in hand or lists:
            continue
        for name in imported(text):
            assert not name.startswith(shown), f"{path} imports {name}"
            assert ".figures" not in name, f"{path} imports {name}"


def imported(text):
    """Modules that a source imports when it is loaded; imports inside functions do not count."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.slow
def test_verdicts_do_not_depend_on_what_shows_them():
    files = {path: path.read_text() for path in job_cache.PACKAGE.rglob("*.py")}
    check_what_shows_is_not_asked(files)
    bad = {job_cache.PACKAGE / "analyses" / "claim.py": "from icl_interp.figures.style import BLUE"}
    must_fail(check_what_shows_is_not_asked, bad)


def test_sources_are_the_package_and_the_study_s_own(tmp_path, monkeypatch):
    package, outside = tmp_path / "package", tmp_path / "plugin"
    one, other = package / "studies" / "one", package / "studies" / "other"
    for folder in (
        one / "claims",
        one / "figures",
        package / "report",
        package / "cli",
        package / "models",
        other,
        outside,
    ):
        folder.mkdir(parents=True)
    monkeypatch.setattr(job_cache, "PACKAGE", package)
    monkeypatch.setattr(job_cache, "STUDIES", package / "studies")
    study = Study("one", "a work", folder=one)

    def changed(path, text="x = 1"):
        before = job_cache.sources(study)
        path.write_text(text)
        return job_cache.sources(study) != before

    assert changed(package / "engine.py")
    assert changed(package / "engine.py", "x = 2")
    assert changed(one / "claims" / "claim.py")
    assert changed(package / "studies" / "base.py")
    assert changed(package / "model.safetensors")
    assert not changed(other / "claim.py")
    assert not changed(one / "README.md")
    assert not changed(one / "figures" / "figure.py")
    assert not changed(package / "report" / "page.py")
    assert not changed(package / "cli" / "zoo.py")
    assert changed(package / "models" / "cli.py")
    assert not changed(outside / "claim.py")
    study = Study("plugin", "a work", folder=outside)
    assert changed(outside / "claim.py", "x = 3")
    assert not changed(one / "claims" / "claim.py", "x = 3")
    assert job_cache.sources(STUDIES.named("heads")) != job_cache.sources(study)
