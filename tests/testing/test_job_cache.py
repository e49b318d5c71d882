"""The folder of a battery keeps parts of one state of the code, and a file for each of them."""

import ast

import pytest
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.experiments.calibration import CONSTRUCTIONS
from icl_interp.studies import STUDIES
from icl_interp.studies.base import Study
from icl_interp.testing import job_cache


def check_one_file_each(file_of, folder):
    names = list(CONSTRUCTIONS)
    assert len({file_of(folder, name).name.lower() for name in names}) == len(names) > 80
    assert all(file_of(folder, name).parent == folder for name in (*names, "a/b", "../up", "c: d"))


def test_two_parts_never_share_a_file(tmp_path):
    check_one_file_each(job_cache.file_of, tmp_path)
    must_fail(
        check_one_file_each,
        lambda folder, name: folder / "".join(c for c in name if c.isalnum()),
        tmp_path,
    )


def test_a_folder_is_refused_to_parts_made_otherwise(tmp_path):
    job_cache.claim(tmp_path / "new", {"sources": "a", "seed": 0})
    job_cache.claim(tmp_path / "new", {"sources": "a", "seed": 0})
    with pytest.raises(
        InputError,
        match="new keeps parts of a run with other sources and seed: name another folder",
    ):
        job_cache.claim(tmp_path / "new", {"sources": "b", "seed": 1})


def check_what_shows_is_not_asked(files):
    """Nothing of the package imports what shows verdicts, but what hands it to users, and lists of what a study has."""
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
    """Modules that a source imports where it is loaded; what a function imports for itself is its own affair."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


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
    assert not changed(package / "cli.py")
    assert changed(package / "models" / "cli.py")
    assert not changed(outside / "claim.py")
    study = Study("plugin", "a work", folder=outside)
    assert changed(outside / "claim.py", "x = 3")
    assert not changed(one / "claims" / "claim.py", "x = 3")
    assert job_cache.sources(STUDIES.named("heads")) != job_cache.sources(study)
