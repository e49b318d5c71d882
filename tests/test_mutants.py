"""Thousands of spoiled files and words end in one line or work normally.

There is no traceback, no escape sequence, no hang, and no growth of memory.

Each family has a fixed seed and a fixed number of mutants. What fails is printed with both: the
same mutant comes again on every run.
"""

import json
import logging
import shutil
import signal
import sys
import time
import zipfile
from contextlib import contextmanager

import mutants
import pytest
import tiny_runs
import torch
import yaml
from foreign_files import TheirTransformer, config, run_folder
from test_console import steers_nothing

from icl_interp import cli
from icl_interp.errors import InputError
from icl_interp.provenance import finite
from icl_interp.training import trainer

resource = pytest.importorskip("resource")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_users_run_it", "errors_are_caught")]

SEED = 20
SECONDS = 30  # for one mutant; most take a hundredth
GROWTH = 2 * 10**9  # bytes that the process may grow by in a family
FEW = ("--functions", "2", "--contexts", "2")


@contextmanager
def at_most(seconds):
    """Fail where the body takes longer; a call that waits is interrupted."""

    def late(*_):
        raise AssertionError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ends_well(monkeypatch, capsys, *arguments):
    """The command works, or says one line and ends with status 2."""
    monkeypatch.setattr(sys, "argv", ["icl-interp", *map(str, arguments)])
    with at_most(SECONDS), pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    steers_nothing(out + err)
    assert "Traceback" not in out + err
    assert stop.value.code in (0, 2), err
    lines = [line for line in err.splitlines() if line.strip()]
    assert stop.value.code == 0 or lines, "it says nothing"
    return stop.value.code


class Family:
    """Runs mutants of a family, and says which one failed."""

    def __init__(self, name, monkeypatch, capsys):
        self.name, self.monkeypatch, self.capsys = name, monkeypatch, capsys

    def __call__(self, n, mutate):
        """`mutate` gets the randomness and a number, and returns the arguments of a command."""
        before, codes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
        for number in range(n):
            arguments = mutate(mutants.draw(self.name, SEED, number), number)
            try:
                codes.append(ends_well(self.monkeypatch, self.capsys, *arguments))
            except BaseException as error:
                words = [ascii(str(a))[:200] for a in arguments]
                raise AssertionError(
                    f"{self.name}, seed {SEED}, mutant {number}: {words}: {error!r}"
                ) from error
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        assert grown < GROWTH, f"{self.name}: the process has grown by {grown:,} bytes"
        assert codes.count(2) > len(codes) / 10, "hardly anything is refused: are these mutants?"
        return codes


@pytest.fixture
def family(request, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    handler = logging.lastResort  # writes warnings to standard error as it is at that time
    assert handler is not None
    logging.getLogger("icl_interp").addHandler(handler)
    yield Family(request.node.name, monkeypatch, capsys)
    logging.getLogger("icl_interp").removeHandler(handler)
    assert not list(tmp_path.rglob("*hacked*")), "code was run, or something written elsewhere"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("mutants") / "run"
    trainer.train(
        tiny_runs.data(training={**tiny_runs.data()["training"], "snapshots": [3]}),
        out,
        progress=False,
    )
    return out


def test_run_folders(family, finished, tmp_path):
    names = [path.name for path in finished.iterdir() if not path.name.startswith(".")]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        yaml.dump(tiny_runs.data(training={**tiny_runs.data()["training"], "snapshots": [3]}))
    )

    def mutate(rng, number):
        folder = tmp_path / f"run{number}"
        shutil.rmtree(tmp_path / f"run{number - 1}", ignore_errors=True)
        shutil.copytree(finished, folder)
        mutants.in_folder(folder, rng, names)
        return (
            ("train", recipe, "--out", folder) if rng.random() < 0.5 else ("evaluate", folder, *FEW)
        )

    family(300, mutate)


def test_foreign_folders_and_pickles(family, tmp_path):
    theirs = run_folder(tmp_path / "theirs", TheirTransformer(), config())
    with zipfile.ZipFile(theirs / "state.pt") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}

    def mutate(rng, number):
        folder = tmp_path / f"theirs{number}"
        shutil.rmtree(tmp_path / f"theirs{number - 1}", ignore_errors=True)
        shutil.copytree(theirs, folder)
        if rng.random() < 0.3:
            mutants.in_folder(folder, rng, ["state.pt", "config.yaml"])
        else:
            (folder / "state.pt").write_bytes(mutants.hostile(content, rng))
        return "evaluate", folder, *FEW

    family(300, mutate)


def test_pickles_of_the_old_format(family, tmp_path):
    torch.save(
        TheirTransformer().state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False
    )
    whole = (tmp_path / "old.pt").read_bytes()

    def mutate(rng, number):
        at = rng.randrange(137, 3000)  # after the first three pickles
        spoiled = whole[:at] + rng.choice(mutants.SNIPPETS) + whole[at:]
        (tmp_path / "x.pt").write_bytes(
            spoiled if rng.random() < 0.6 else mutants.damaged(whole, rng)
        )
        return "evaluate", tmp_path / "x.pt", "--n-heads", "2", *FEW

    family(150, mutate)


def test_reports(family, tmp_path, small):
    whole = json.loads(json.dumps(finite(small.to_dict()), allow_nan=False))
    slim = {**whole, "results": {}}
    ids = [finding["id"] for finding in slim["findings"]]

    def mutate(rng, number):
        text = json.dumps(mutants.spoiled(slim, rng))
        data = text.encode() if rng.random() < 0.8 else mutants.damaged(text.encode(), rng)
        (tmp_path / "report.json").write_bytes(data)
        return "explain", rng.choice(ids), tmp_path / "report.json"

    family(300, mutate)


def test_recipes(family, tmp_path, monkeypatch):
    def no_steps(self):
        raise InputError("this one would be trained")

    monkeypatch.setattr(trainer.Run, "_advance", no_steps)

    def mutate(rng, number):
        data = mutants.spoiled(
            tiny_runs.data(training={**tiny_runs.data()["training"], "curriculum": {"until": 3}}),
            rng,
        )
        text = yaml.dump(data, allow_unicode=False).encode()
        (tmp_path / "recipe.yaml").write_bytes(
            text if rng.random() < 0.8 else mutants.damaged(text, rng)
        )
        return "train", tmp_path / "recipe.yaml", "--out", tmp_path / f"out{number}"

    family(300, mutate)


TASKS = [
    {
        "kind": "Polynomial",
        "degrees": [1],
        "inputs": tiny_runs.UNIFORM,
        "coefficients": tiny_runs.UNIFORM,
        "n_points": 5,
    },
    {"kind": "LinearRegression", "n_dims": 1, "n_points": 5, "covariance": [1.0], "noise_std": 0.1},
    {"kind": "ReLUNetwork", "n_dims": 1, "hidden": 3, "n_points": 5},
    {"kind": "Continuous", "function": "sin", "inputs": tiny_runs.UNIFORM, "n_points": 5},
    {
        "kind": "RidgeFunction",
        "link": "affine",
        "inputs": {"kind": "Sphere", "dim": 1},
        "n_points": 5,
        "sigma": [1.0],
    },
]


def test_tasks(family, tmp_path):
    def mutate(rng, number):
        data = mutants.spoiled({"task": rng.choice(TASKS)}, rng)
        text = yaml.dump(data, allow_unicode=False).encode()
        (tmp_path / "task.yaml").write_bytes(
            text if rng.random() < 0.8 else mutants.damaged(text, rng)
        )
        return "evaluate", "affine", "--task", tmp_path / "task.yaml", *FEW

    family(200, mutate)


def test_settings_and_overrides(family, tmp_path, monkeypatch):
    torch.save(TheirTransformer().state_dict(), tmp_path / "w.pt")
    (tmp_path / "task.yaml").write_text(yaml.dump({"task": TASKS[1]}))
    monkeypatch.setattr(
        trainer,
        "train",
        lambda *args, **settings: (_ for _ in ()).throw(InputError("it would train")),
    )
    settings = ["act_fn", "eps", "n_heads", "d_model", "normalization_type", "score_fn", "x"]
    changes = [
        "training.steps",
        "model.d_model",
        "task.n_points",
        "task.inputs.low",
        "encoding",
        "training",
        "model.x.y",
    ]

    def mutate(rng, number):
        if rng.random() < 0.5:
            return (
                "train",
                "affine",
                *(mutants.word(rng, changes) for _ in range(rng.choice((1, 2)))),
            )
        return (
            "evaluate",
            tmp_path / "w.pt",
            "--task",
            tmp_path / "task.yaml",
            f"--setting={mutants.word(rng, settings)}",
        )

    family(200, mutate)


# ---- that these tests can fail -------------------------------------------------------------------


def test_what_goes_wrong_is_noticed_and_named(family, monkeypatch):
    for command, words in (
        (lambda: print("\x1b[31m"), "seed 20, mutant 0: .*0x1b"),
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: time.sleep(3), "it took more than"),
        (lambda: sys.exit(1), "mutant 0"),
    ):

        def main(command=command):
            command()
            sys.exit(2)

        monkeypatch.setattr(cli, "main", main)
        monkeypatch.setattr(sys.modules[__name__], "SECONDS", 0.3)
        with pytest.raises(AssertionError, match=words):
            family(1, lambda rng, number: ("x",))


def test_a_mutant_comes_again():
    first, again, other = (mutants.draw("a", *key).random() for key in ((1, 2), (1, 2), (1, 3)))
    assert first == again != other
