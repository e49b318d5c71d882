"""Reports that someone else wrote: loading says in one line what is wrong, or everything works.

No text is markup.
"""

import copy
import json
import random
import re

import pytest
from browsers import browser
from helpers import must_fail
from small_reports import drawn, report

from icl_interp.errors import InputError
from icl_interp.experiments import kept
from icl_interp.figures import files
from icl_interp.prompts import Prompts
from icl_interp.provenance import finite
from icl_interp.report import Report, page
from icl_interp.reproduction import page as reproduced
from icl_interp.results import make_table, to_dict

INJECTED = (
    "<img src=x onerror=window.hacked=1>'\"><a href='javascript:window.hacked=1'>x</a></script><!--"
)
VALUES = [None, [], "x", {}, 10**400, -1, 1.5, [[1], [2, 3]], True, INJECTED]


@pytest.fixture(scope="module")
def data() -> dict:
    return json.loads(json.dumps(finite(report().to_dict()), allow_nan=False))


def places(data, path=()):
    """Every key of nested data, and of each list the first place; of the findings all."""
    if path:
        yield path
    if isinstance(data, dict):
        for key in data:
            yield from places(data[key], (*path, key))
    elif isinstance(data, list):
        for i in range(len(data) if path == ("findings",) else min(1, len(data))):
            yield from places(data[i], (*path, i))


def changed(data, path, value):
    """A copy in which one value is another; without it where that is the word "drop"."""
    data, here = dict(data), data
    target = data
    for key in path[:-1]:  # copies along the path only
        target[key] = copy.copy(target[key])
        target = target[key]
    if value != "drop":
        target[path[-1]] = value
    elif isinstance(target, list):
        target.pop(path[-1])
    else:
        del target[path[-1]]
    assert here is not data
    return data


def one_line_or_works(folder, late):
    """Load, then judge, draw and show if possible: only an InputError of one line may come."""
    try:
        loaded = Report.load(folder)
        assert len(repr(loaded)) < 300
        for step in (
            (loaded.judge, lambda: loaded.to_html(folder / "r.html"), loaded._repr_html_)
            if late
            else ()
        ):
            step()
    except InputError as error:
        message = str(error)
    else:
        return True
    assert "\n" not in message
    assert len(message) < 700
    assert str(folder) in message
    return False


# `most` mutants are judged and drawn too, which takes two seconds each.
@pytest.mark.slow
@pytest.mark.parametrize(("seed", "n", "most"), [(0, 12, 1), (0, 25, 1), (1, 150, 3)])
def test_a_changed_report_is_refused_in_one_line_or_works(
    seed, n, most, data, tmp_path, errors_are_caught
):
    # A result of each kind, and small ones: reading all of them many times would take minutes.
    kept = {
        min(
            (n for n in data["results"] if data["results"][n]["kind"] == kind),
            key=lambda n: len(str(data["results"][n])),
        )
        for kind in ("matrix", "curve", "table")
    }
    slim = data | {"results": {name: data["results"][name] for name in sorted(kept)}}
    mutants = [(path, value) for path in places(slim) for value in ("drop", *VALUES)]
    chosen = random.Random(seed).sample(mutants, n)
    path, late, works = tmp_path / "report.json", 0, 0
    for where, value in chosen:
        path.write_text(json.dumps(changed(slim, where, value)))
        if one_line_or_works(tmp_path, late=False):
            works += 1
            if late < most:
                late += 1
                path.write_text(json.dumps(changed(data, where, value)))
                one_line_or_works(tmp_path, late=True)
    assert 0 < works < len(chosen)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (
            ("findings", 0, "estimate", "low"),
            "x",
            r"findings\[0\]\.estimate\.low must be a number, but got 'x'",
        ),
        (
            ("findings", 1, "verdict"),
            "true",
            r"findings\[1\]\.verdict must be one of supported, .* but got 'true'",
        ),
        (
            ("findings", 0, "criterion", "conditions", 0, "supports"),
            [1],
            r"conditions\[0\]\.supports must be a list of 2",
        ),
        (
            ("findings", 0, "criterion", "conditions"),
            [],
            r"criterion\.conditions must be a list of at least one condition",
        ),
        (("findings", 0, "figures"), "growth", r"findings\[0\]\.figures must be a list"),
        (("findings", 0, "weight"), 1, r"unknown key in .*findings\[0\] 'weight'"),
        (("findings", 0, "details"), [3], r"findings\[0\]\.details\[0\] must be a mapping"),
        (("results", "far/intact", "values"), [[1], [2, 3]], r"results\['far/intact'\]\.values"),
        (("results", "far/intact", "values"), 10**400, "the number '1000.*' is too large"),
        (("results", "far/intact", "values"), 10**30, "values"),
        (
            ("results", "far/intact", "kind"),
            "cube",
            r"kind must be one of matrix, curve, table, but got 'cube'",
        ),
        (
            ("results", "far/intact", "axes", "x"),
            [1],
            r"results\['far/intact'\]: values have shape",
        ),
        (("results", "far/intact", "unit"), 3, r"unit must be text"),
        (("model", "r2"), "0.9", r"model\.r2 must be a number, but got '0\.9'"),
        (("model", "n_units"), 1.5, r"model\.n_units must be a whole number"),
        (
            ("model", "config"),
            10**200,
            r"model\.config must be a mapping, but got <a whole number of about 200 digits>",
        ),
        (("checkpoint", "name"), None, r"checkpoint\.name must be text, but got None"),
        (("provenance", "seed"), 10**200, r"provenance\.seed must be a whole number below 2\*\*63"),
        (("provenance",), "drop", r"report\.json lacks the key 'provenance'"),
    ],
)
def test_the_place_of_what_is_wrong_is_named(data, tmp_path, where, value, message):
    slim = data | {
        "results": {"far/intact": data["results"]["far/intact"]}
    }  # reading all of them takes seconds
    (tmp_path / "report.json").write_text(json.dumps(changed(slim, where, value)))
    with pytest.raises(InputError, match=message) as refused:
        Report.load(tmp_path)
    assert str(refused.value).count("report.json") == 1


@pytest.mark.slow
def test_two_findings_on_one_claim_are_refused(data, tmp_path):
    (tmp_path / "report.json").write_text(
        json.dumps(data | {"findings": [data["findings"][0]] * 2})
    )
    with pytest.raises(InputError, match="twice"):
        Report.load(tmp_path)


@pytest.mark.slow
def test_what_a_claim_does_not_find_costs_that_claim_only(data, tmp_path, errors_are_caught):
    """An edited report is judged as far as it goes: what a judge misses stands in its reason."""
    (tmp_path / "report.json").write_text(
        json.dumps(changed(data, ("results", "far/certificate"), "drop"))
    )
    again = {finding.id: finding for finding in Report.load(tmp_path).judge().findings}
    broken = again["limits.layernorm_saturation"]
    assert broken.verdict == "inconclusive"
    assert "unknown result 'far/certificate'" in broken.error
    assert again["limits.context_erased"].error is not None
    sound = {name for name, finding in again.items() if finding.error is None}
    assert "limits.degrees_alike" in sound


@pytest.mark.slow
def test_numbers_that_are_not_finite_come_back(data, tmp_path):
    changed_data = changed(
        changed(data, ("findings", 0, "estimate", "low"), "nan"), ("model", "r2"), "-inf"
    )
    (tmp_path / "report.json").write_text(json.dumps(changed_data))
    loaded = Report.load(tmp_path)
    assert loaded.findings[0].estimate.low != loaded.findings[0].estimate.low


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe{}",
        b"[" * 10**5,
        b"[" * 400 + b"]" * 400,
        b'{"a": ' + b"9" * 10**5 + b"}",
        b"[]",
        b"null",
    ],
)
def test_a_file_that_is_no_report_is_one_line(tmp_path, content):
    (tmp_path / "report.json").write_bytes(content)
    with pytest.raises(InputError) as refused:
        Report.load(tmp_path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_files_without_end_are_not_read(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="only regular files are read"):
        Report.load("/dev/zero")
    monkeypatch.setattr("icl_interp.report.report.LARGEST", 10)
    (tmp_path / "report.json").write_text("{" + " " * 20 + "}")
    with pytest.raises(InputError, match="22 bytes, but at most 10 are read"):
        Report.load(tmp_path)


# ---- text is text --------------------------------------------------------------------------------


def tampered(data, keep=("kind", "verdict", "schema", "scale")) -> dict:
    """Every text that may be any text, replaced by one that would be a script."""

    def inject(value, key=""):
        if isinstance(value, dict):
            return {k: inject(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [inject(v, key) for v in value]
        return (
            INJECTED
            if isinstance(value, str) and value not in ("nan", "inf", "-inf") and key not in keep
            else value
        )

    findings = [inject(f) | {"id": f"{INJECTED}{i}"} for i, f in enumerate(data["findings"])]
    # A config and a task that are known are refused unless all their values are possible: these
    # stand for others.
    model = inject(data["model"]) | {
        "config": data["model"]["config"],
        "roles": data["model"]["roles"],
    }
    model["task"] = {"kind": INJECTED, "degrees": [INJECTED], INJECTED: INJECTED}
    marked = {
        f"{INJECTED}": {
            "kind": "table",
            "columns": {INJECTED: [INJECTED]},
            "units": {},
            "note": INJECTED,
        }
    }
    # The figure of classes computes with degrees, and so would refuse these.
    results = {name: result for name, result in data["results"].items() if "classes/" not in name}
    return data | {
        "findings": findings,
        "model": model,
        "results": results | marked,
        "checkpoint": inject(data["checkpoint"]) | {INJECTED: INJECTED},
        "provenance": inject(data["provenance"]) | {INJECTED: {INJECTED: [INJECTED]}},
    }


def without_scripts(text):
    return re.sub(
        r"<script[^>]*>.*?</script>", "", text.replace(files.plotly_js(), ""), flags=re.DOTALL
    )


def runs_nothing(text):
    shown = without_scripts(text)
    assert "<img" not in shown
    assert not re.search("""href=["']?javascript:""", shown)
    assert "<script" not in shown
    assert "<!--" not in shown
    assert "&lt;img src=x" in shown


@pytest.mark.slow
def test_a_tampered_report_runs_no_script(data, tmp_path):
    (tmp_path / "report.json").write_text(json.dumps(tampered(data)))
    loaded = Report.load(tmp_path)
    text = loaded.to_html(tmp_path / "r.html").read_text()
    runs_nothing(text)
    runs_nothing(loaded._repr_html_())
    must_fail(runs_nothing, text.replace("&lt;", "<"))
    for figure in loaded.figures.values():
        assert "<img" not in json.dumps(figure.to_plotly_json(), default=str)
        assert "<a " not in json.dumps(figure.to_plotly_json(), default=str)


@pytest.mark.slow
def test_the_page_allows_its_own_scripts_only():
    r = report()
    text = page.render(r.to_dict(), r.figures)
    scripts = re.findall(
        r"<script[^>]*>(.*?)</script>", text.replace(files.plotly_js(), ""), re.DOTALL
    )
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert text.index("Content-Security-Policy") < text.index("<script")
    assert policy.startswith("default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; ")
    assert policy.count("'sha256-") == len(scripts)
    assert "script-src 'unsafe" not in policy
    empty = page.render({**r.to_dict(), "findings": []}, {})
    assert "script-src 'none'" in empty


@pytest.mark.slow
def test_a_browser_runs_nothing_of_a_tampered_report(data, tmp_path):
    from playwright import sync_api as sync  # slow to import

    (tmp_path / "report.json").write_text(json.dumps(tampered(data)))
    text = Report.load(tmp_path).to_html(tmp_path / "r.html").read_text()
    (tmp_path / "open.html").write_text(
        without_scripts(text).replace("&lt;", "<").replace("&gt;", ">")
    )
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser(), args=["--no-sandbox"])

        def hacked(path):
            tab, said = chromium.new_context(offline=True).new_page(), []
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.goto(path.as_uri())
            tab.wait_for_timeout(1500)
            return tab.evaluate("window.hacked"), said

        assert hacked(tmp_path / "r.html") == (None, [])
        # Were the text not escaped, the policy would still stop it; without the policy it runs.
        value, said = hacked(tmp_path / "open.html")
        assert value is None
        assert any("Content Security Policy" in line for line in said)
        bare = (tmp_path / "open.html").read_text()
        (tmp_path / "bare.html").write_text(re.sub(r"<meta http-equiv[^>]*>", "", bare))
        assert hacked(tmp_path / "bare.html")[0] == 1
        chromium.close()


def test_markup_of_figures_is_the_figures_own():
    assert "<b>" in drawn(report(), "claims").layout.title.text


# ---- reprs ---------------------------------------------------------------------------------------


def check_short(value, *words):
    assert len(repr(value)) < 300
    for word in words:
        assert word in repr(value)


def test_reprs_are_short_and_say_what_it_is():
    r = report()
    check_short(r, repr(r.checkpoint["name"]), r.findings[0].verdict)
    must_fail(check_short, r.to_dict())
    for finding in r.findings:
        check_short(finding, finding.id, finding.verdict)
    import torch

    prompts = Prompts(
        torch.zeros(6, 5, 2),
        torch.zeros(6, 5),
        torch.zeros(6, 3),
        torch.zeros(6, dtype=torch.int64),
    )
    check_short(prompts, "6 prompts of 5 points in 2 dimensions")


# ---- reproductions -------------------------------------------------------------------------------


def tampered_record() -> dict:
    record = kept.record("limits.table4")
    scale = dict.fromkeys(record["scale"], INJECTED)
    scale["settings"] = [dict.fromkeys(("name", "work", "place", "ours", INJECTED), INJECTED)]
    texts = dict.fromkeys(("id", "title", "source"), INJECTED)
    models = {
        INJECTED: {
            "steps": INJECTED,
            "run_id": INJECTED,
            "training_seconds": 1.0,
            "in_distribution": None,
        }
    }
    comparison = to_dict(make_table({INJECTED: [INJECTED]}, note=INJECTED))
    return {
        **record,
        **texts,
        "scale": scale,
        "says": [INJECTED],
        "missing": [INJECTED],
        "models": models,
        "comparison": comparison,
        "provenance": {**record["provenance"], "command": INJECTED},
    }


def test_pages_of_tampered_reproductions_run_no_script():
    record = tampered_record()
    shown = reproduced.page(record, {}, make_table({INJECTED: [INJECTED]}, note=INJECTED))
    for text in (
        shown,
        reproduced.index([record, {**record, "id": "javascript:window.hacked=1//"}]),
    ):
        runs_nothing(text)
        assert "script-src 'none'" in text
        assert 'href="javascript:' not in text
        must_fail(runs_nothing, text.replace("&lt;", "<"))


@pytest.mark.parametrize(
    "key", ["id", "title", "says", "missing", "scale", "models", "results", "provenance"]
)
def test_a_record_that_lacks_what_pages_show_is_refused(key):
    record = kept.record("limits.table4")
    assert kept.checked(record, "results.json") is record
    for value in (None, 3, [[1]], INJECTED if key not in ("id", "title") else {}):
        with pytest.raises(InputError, match=rf"results.json: .*{key}"):
            kept.checked({**record, key: value}, "results.json")
