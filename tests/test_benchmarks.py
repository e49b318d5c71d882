"""`python -m benchmarks`: its command line, how it compares and judges, how it measures memory.

No time is asserted.
"""

import contextlib
import importlib
import io
import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from helpers import must_fail
from tqdm import tqdm

import icl_interp
from benchmarks import __main__ as command
from benchmarks import busy, fresh, large, output
from benchmarks.measuring import Goal, Options, Row, Seconds, judged, ratio_row, take_turns
from benchmarks.sizes import PAPER, TINY, untrained
from icl_interp.analyses import facts
from icl_interp.errors import InputError

ROOT = Path(__file__).parents[1]
CASES = [
    (1.5, Goal(1.5), "met"),
    (1.51, Goal(1.5), "missed"),
    (1.8, Goal(1.8, "at least"), "met"),
    (1.79, Goal(1.8, "at least"), "missed"),
    (1.3, Goal(1.5, aim=1.25), "met"),
    (1.25, Goal(1.5, aim=1.25), "met, and the aim"),
    (1.6, Goal(1.5, aim=1.25), "missed"),
    (2.5, Goal(1.8, "at least", aim=2.0), "met, and the aim"),
    (math.nan, Goal(1.5), "not measured"),
    (math.nan, Goal(1.8, "at least"), "not measured"),
]


def judges_all(judge):
    for value, goal, expected in CASES:
        assert judge(value, goal) == expected


def test_goals_are_compared_with_values():
    judges_all(judged)


@pytest.mark.parametrize(
    "mutant",
    [
        lambda value, goal: judged(value, Goal(goal.limit, "at most", goal.aim)),
        lambda value, goal: judged(value, Goal(goal.limit, goal.kind)),
        lambda value, goal: judged(-value, goal),
        lambda value, goal: judged(value * (1 + 1e-9), goal),
        lambda value, goal: judged(0.0 if math.isnan(value) else value, goal),
    ],
    ids=["one side", "no aim", "other side", "limit left out", "NaN as a number"],
)
def test_a_wrong_comparison_is_noticed(mutant):
    must_fail(judges_all, mutant)


def compares_turn_by_turn(over, under):
    row = ratio_row("ours", over, under, note="times as long")
    assert [row.value, row.low, row.high] == pytest.approx([2.0, 1.5, 4.0])
    assert row.processor == pytest.approx(3.0)
    assert row.turns == 3


def test_ratios_are_taken_turn_by_turn():
    # The last turn is ten times as slow for both; the ratio of the medians would be 3 / 2.
    under = [Seconds(1.0, 1.0), Seconds(2.0, 1.0), Seconds(20.0, 10.0)]
    over = [Seconds(4.0, 2.0), Seconds(3.0, 3.0), Seconds(40.0, 50.0)]
    compares_turn_by_turn(over, under)
    must_fail(compares_turn_by_turn, over[::-1], under)
    must_fail(compares_turn_by_turn, under, over)


def test_a_clock_that_saw_no_time_pass_gives_no_number():
    nothing = [Seconds(0.0, 0.0)]
    assert math.isnan(ratio_row("ours", nothing, nothing, note="").value)


def runs_in_turns(warm_up, order):
    seen = []
    variants = {name: partial(seen.append, name) for name in "ab"}
    times = take_turns(variants, 2, repeats=2, warm_up=warm_up)
    assert "".join(seen) == order
    assert {name: len(each) for name, each in times.items()} == {"a": 2, "b": 2}


def test_variants_take_turns():
    runs_in_turns(True, "ab" + "aabb" + "bbaa")
    runs_in_turns(False, "aabb" + "bbaa")
    must_fail(runs_in_turns, False, "aabb" + "aabb")


def test_list_names_every_benchmark(capsys):
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "product",
        "train_step",
        "together",
        "paper",
        "evaluation",
        "probes",
        "tools",
        "report",
        "jobs",
        "busy",
        "large",
    ]
    for name in command.ABOUT:
        assert callable(importlib.import_module(f"benchmarks.{name}").run)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train_stepp"], "did you mean 'train_step'?"),
        (["--list", "nothing"], "unknown benchmark 'nothing'"),
        (["--turns", "0"], "from 1 up, but got '0'"),
        (["--threads", "many"], "from 1 up, but got 'many'"),
        (["--fast"], "unrecognized arguments: --fast"),
        (["--model", "affine"], "python -m benchmarks large --model MODEL"),
        (["large", "report", "--model", "affine"], "python -m benchmarks large --model MODEL"),
    ],
)
def test_wrong_input_gets_one_line(capsys, arguments, says):
    assert command.main(arguments) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert err.count("\n") == 1
    assert not out


def test_a_file_that_cannot_be_written_stops_it_before_anything_runs(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert (
        command.main(["train_step", "--quick", "--out", str(tmp_path / "file" / "out.json")]) == 2
    )
    out, err = capsys.readouterr()
    assert err.startswith("cannot write")
    assert err.count("\n") == 1
    assert not out


def test_it_is_a_command():
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2
    assert run.stderr.startswith("unknown benchmark 'nothing'")
    assert run.stderr.count("\n") == 1


@pytest.mark.slow
def test_quick_tools_add_up(capsys, tmp_path):
    out = tmp_path / "out.json"
    assert command.main(["tools", "--quick", "--out", str(out)]) == 0
    (benchmark,) = json.loads(out.read_text("utf-8"))["benchmarks"]
    seconds = {row["what"]: row["value"] for row in benchmark["rows"] if row["unit"] == "s"}
    total = seconds.pop("all of them, affine")
    assert len(seconds) == 2
    assert total == pytest.approx(sum(seconds.values()))


def test_quick_training_step_gives_a_table_and_json(capsys, tmp_path):
    out = tmp_path / "out.json"
    assert command.main(["train_step", "--quick", "--turns", "3", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    found = json.loads(out.read_text("utf-8"))
    assert found["quick"] is True
    assert {"processor", "cores", "threads", "torch", "date", "commit", "load"} <= set(
        found["environment"]
    )
    (benchmark,) = found["benchmarks"]
    assert benchmark["name"] == "train_step"
    assert [row["what"] for row in benchmark["rows"]] == ["ours", "all fused", "GPT2Model"]
    for row in benchmark["rows"]:
        assert row["what"] in shown
        assert row["turns"] == 3
        assert row["wall_seconds"] > 0
        assert row["range"][0] <= row["value"] <= row["range"][1]
        assert row["judgement"] is None, "the numbers of a trial mean nothing"
    ours, _, peer = benchmark["rows"]
    assert ours["goal"] == {"limit": 1.8, "kind": "at least", "aim": None}
    assert peer["value"] == pytest.approx(1.0)
    assert "at least 1.8 x" in shown
    assert "missed" not in shown


def shows_judgement(judge, expected):
    row = Row(
        what="ours",
        value=2.0,
        unit="x",
        goal=Goal(1.5, aim=1.25),
        parts={"far/[red]": Seconds(0.5, 0.25)},
    )
    to = io.StringIO()
    with contextlib.redirect_stdout(to):
        output.show(output.console(), "title", [row], judge)
    assert ("missed" in to.getvalue()) == expected
    assert row.to_dict(judge)["parts"] == {"far/[red]": {"wall": 0.5, "processor": 0.25}}
    assert row.to_dict(judge)["judgement"] == ("missed" if expected else None)
    assert "at most 1.5 x (aim 1.25)" in to.getvalue()
    assert "far/[red]" in to.getvalue(), "names are no markup"


def test_goals_are_judged_except_in_a_trial():
    shows_judgement(True, True)
    shows_judgement(False, False)
    must_fail(shows_judgement, True, False)


def test_numbers_have_three_digits_or_all_before_the_point():
    assert [output.number(x) for x in (1234.4, 12.345, 0.0012345)] == ["1234", "12.3", "0.00123"]


def test_the_processor_is_named(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: a b\n")
    assert output.processor_name(info) == "Some CPU @ 2 GHz"
    assert output.processor_name(tmp_path / "none")


def peak_is_its_own(here):
    assert fresh.call(fresh.peak_bytes, here=here).result < 100e6


@pytest.mark.skipif(
    not fresh.STATUS.exists(),
    reason="only Linux tells the peak of a process without what came before",
)
def test_peak_memory_of_a_fresh_process_leaves_out_this_one():
    held = bytearray(200 * 10**6)
    held[::4096] = b"1" * len(held[::4096])  # pages count when they are written to
    peak_is_its_own(here=False)
    must_fail(peak_is_its_own, here=True)
    assert fresh.peak_bytes() > len(held)


def test_a_failure_in_a_fresh_process_says_why():
    with pytest.raises(
        RuntimeError, match=r"peak_bytes failed in a fresh process:(?s:.*)unexpected keyword"
    ):
        fresh.call(fresh.peak_bytes, some=1)


def keeps_phases(screen):
    from benchmarks.report import FIRST, Phases

    phases = Phases()
    with contextlib.redirect_stderr(screen or phases):
        print("a warning", file=sys.stderr)
        with tqdm(desc="measuring", leave=False, disable=None) as bar:
            for i, name in enumerate(["far/ends", "7 sweeps over 32 contexts"]):
                bar.total, bar.n = 2, i
                bar.set_description(name)
    phases.end()
    assert list(phases.seconds) == [FIRST, "measuring", "far/ends", "7 sweeps over 32 contexts"]
    assert all(part.wall >= 0 and part.processor >= 0 for part in phases.seconds.values())


def test_the_progress_bar_tells_the_phases(capsys):
    keeps_phases(None)
    assert capsys.readouterr().err == "a warning\n"
    must_fail(keeps_phases, io.StringIO())


# ---- what smaller samples cost -------------------------------------------------------------------


def check_ratios(of):
    """Large over plain, of those with a width on the plain sample, in order."""
    plain, wide = (
        {"a": 1.0, "b": 4.0, "c": 0.0, "d": math.inf, "e": 2.0},
        {"a": 3.0, "b": 6.0, "c": 1.0, "d": 2.0},
    )
    assert of(plain, wide) == [1.5, 3.0]


def test_widths_are_compared_by_name():
    check_ratios(large.ratios)
    must_fail(check_ratios, lambda plain, wide: large.ratios(wide, plain))
    must_fail(check_ratios, lambda plain, wide: large.ratios(plain, wide)[::-1])


def test_a_model_is_analysed_as_if_small_and_as_if_large(monkeypatch):
    seen, usual = [], facts.LARGE

    def analyze(model, **options):
        seen.append((model, facts.is_large(untrained(TINY)), facts.is_large(untrained(PAPER))))
        raise InputError("seen")

    monkeypatch.setattr(icl_interp, "analyze", analyze)
    for wide in (False, True):
        with pytest.raises(InputError, match="seen"):
            large.judge("mine", wide, quick=True)
    assert seen == [("mine", False, False), ("mine", True, True)]
    assert usual == facts.LARGE  # put back, also after an error


def test_the_models_asked_for_are_compared(monkeypatch):
    asked = []

    def judge(model, large, quick):
        asked.append((model, large))
        return {
            "verdicts": {"claim": "inconclusive" if large else "supported"},
            "widths": {},
            "heads": {},
        }

    monkeypatch.setattr(large, "judge", judge)
    rows = large.run(Options(quick=True, models=("affine_seed1", "lsa_trap")))
    assert asked == [
        ("affine_seed1", False),
        ("affine_seed1", True),
        ("lsa_trap", False),
        ("lsa_trap", True),
    ]
    assert [row.what for row in rows][:2] == [
        "affine_seed1: claim is supported, then inconclusive",
        "lsa_trap: claim is supported, then inconclusive",
    ]
    with pytest.raises(InputError, match="no such path or bundled model: 'nothing'"):
        large.run(Options(models=("lsa_trap", "nothing")))
    assert len(asked) == 4  # nothing runs before all are found


@pytest.mark.parametrize(
    ("plain", "other", "kind"),
    [
        ("supported", "contradicted", "reversed"),
        ("supported", "inconclusive", "decided, then open"),
        ("contradicted", None, "decided, then open"),
        ("inconclusive", "supported", "open, then decided"),
    ],
)
def test_changes_of_verdicts_are_told_apart(plain, other, kind):
    assert large.change(plain, other) == kind


def test_a_busy_machine_is_measured_in_turns():
    rows = busy.run(Options(quick=True))
    assert [row.turns for row in rows] == [2, 2, 2]
    assert all(row.low <= row.value <= row.high for row in rows)
    assert rows[1].goal is not None
    before = os.environ.get(busy.POLICY)
    with busy.waiting("ACTIVE"):
        assert os.environ[busy.POLICY] == "ACTIVE"
    assert os.environ.get(busy.POLICY) == before


@pytest.mark.parametrize("name", ["together", "paper"])
def test_steps_of_training_are_measured(name):
    (row,) = importlib.import_module(f"benchmarks.{name}").run(Options(quick=True))
    assert row.turns == 2
    assert 0 < row.low <= row.value <= row.high < math.inf
