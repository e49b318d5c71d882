"""The report as one HTML page that opens offline, and as a fragment for notebooks. Numbers are rounded here only."""

import html
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from icl_interp.analyses.verdicts import Estimate, Finding
from icl_interp.figures import catalogue, files
from icl_interp.figures.style import VERDICTS, Figure
from icl_interp.figures.text import MINUS, interval, name_of, number

ROWS = 9  # of the board of verdicts
OPEN = 8  # rows of a table of details that are shown unasked
MODEL = ("config", "task", "encoding", "in_distribution")  # facts about the model that the foot of the page repeats
CSS = """
:root { --ink: #222; --grey: #666; --line: #e2e2e2; --wash: #f7f8f9; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; font: 15px/1.45 Helvetica, Arial, "Liberation Sans",
  "DejaVu Sans", sans-serif; }
main, header > div, footer { max-width: 1128px; margin: 0 auto; padding: 0 24px; }
header { background: var(--wash); border-bottom: 1px solid var(--line); }
header > div { padding-top: 14px; padding-bottom: 12px; }
h1 { font-size: 22px; margin: 0; } h1 small { font-weight: normal; font-size: 14px; color: var(--grey); }
h2 { font-size: 19px; margin: 40px 0 8px; } h3 { font-size: 16px; margin: 0 0 4px; }
p { margin: 6px 0; } a { color: #005a8c; }
code { font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.quiet { color: var(--grey); } .small { font-size: 13px; }
.tiles { display: flex; flex-wrap: wrap; gap: 4px 30px; margin: 10px 0 8px; }
.tiles div { min-width: 96px; } .tiles b { display: block; font-size: 18px; line-height: 1.3; }
.tiles span { display: block; font-size: 12px; color: var(--grey); }
.board { display: flex; flex-wrap: wrap; gap: 6px 26px; margin: 8px 0 0; font-size: 12.5px; line-height: 1.4; }
.board ul { list-style: none; margin: 2px 0 0; padding: 0; column-gap: 18px; } .board a { color: inherit;
  text-decoration: none; } .board a:hover { text-decoration: underline; } .board b { font-size: 15px; }
details > summary { cursor: pointer; color: #005a8c; margin: 6px 0; }
.verdict { font-weight: bold; white-space: nowrap; }
table { border-collapse: collapse; font-size: 13.5px; } th { text-align: left; font-weight: 600; color: var(--grey); }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.wide { overflow-x: auto; } .wide > table { min-width: 100%; } .verdicts { table-layout: fixed; }
.wide > .verdicts { min-width: 760px; } td > a > code { overflow-wrap: anywhere; }
.number { font-variant-numeric: tabular-nums; }
.plot { overflow-x: auto; margin: 10px 0 2px; } .plot > div { min-width: 940px; }
figure { margin: 26px 0 34px; } figcaption { font-size: 13.5px; color: #444; max-width: 900px; }
article { border-top: 2px solid var(--line); padding: 16px 0 10px; margin-top: 20px; }
article table { margin: 6px 0 10px; } article > .wide > table > tbody > tr > th { width: 124px; }
footer { margin: 36px auto 30px; }
@media print { body { font-size: 12px; } .plot { overflow: visible; } .plot > div { zoom: 0.68; }
  header { background: none; } figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .modebar-container { display: none; } table, figcaption, code { font-size: 10.5px; }
  .wide > .verdicts { min-width: 0; } }
"""


def render(report: Mapping[str, Any], figures: Mapping[str, Figure]) -> str:
    """One self-contained page: the answer on the first screen, then figures, findings in full, and provenance.

    Args:
        report: as `Report.to_dict` gives it, also after a trip through JSON.
        figures: by name; "claims" goes to the top.

    Returns:
        HTML that fetches nothing; the same bytes for the same input.
    """
    findings = [Finding.from_dict(finding) for finding in report["findings"]]
    first, *rest = ([figures["claims"]] if "claims" in figures else [None]), *(n for n in figures if n != "claims")
    parts = [
        f"<header><div>{_banner(report, findings)}</div></header><main>",
        f'<div class="plot" id="claims">{files.to_div(first[0], "figure-claims")}</div>' if first[0] else "",
        f'<h2 id="verdicts">Verdicts</h2><div class="wide">{_verdicts(findings)}</div>',
        '<h2 id="figures">Figures</h2>' if rest else "",
        *(_figure(name, figures[name], findings) for name in rest),
        '<h2 id="findings">Findings in full</h2>',
        *(_finding(finding) for finding in findings),
        f'<h2 id="provenance">Provenance</h2>{_provenance(report)}</main>',
    ]
    name = _text(report["checkpoint"].get("name", "a model"))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>icl_interp: {name}</title>'
        f'<link rel="icon" href="data:,"><style>{CSS}</style>\n'
        f"<script>{files.plotly_js()}</script></head>\n<body>" + "\n".join(part for part in parts if part) + "\n"
        '<footer class="quiet small">Numbers are rounded for reading; the JSON report holds them in full.</footer>'
        "</body></html>\n"
    )


def summary(report: Mapping[str, Any]) -> str:
    """A light fragment for notebooks: the banner in a line and the table of verdicts, with inline styles."""
    findings = [Finding.from_dict(finding) for finding in report["findings"]]
    grey, cell = "color:#666", 'style="text-align:left;vertical-align:top;padding:4px 12px 4px 0"'
    rows = "".join(
        f"<tr><td {cell}>{_text(f.statement)}<br><span style=\"{grey}\">{_text(f.id)}</span></td>"
        f"<td {cell}>{_verdict(f)}</td><td {cell}>{_estimates(f)}</td><td {cell}>{_text(f.reason)}</td></tr>"
        for f in findings
    )  # fmt: skip
    facts = " · ".join(f"{label} {value}" for value, label, _ in _tiles(report["model"]))
    name, kind = _text(report["checkpoint"].get("name", "a model")), _text(describe(report["model"]))
    head = "".join(f"<th {cell}>{title}</th>" for title in ("claim", "verdict", "estimate", "why"))
    return (
        f'<div style="font-family:sans-serif;font-size:13px"><div><b style="font-size:15px">'
        f'{name}</b> <span style="{grey}">{kind}</span></div><div>{facts}</div>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


# ---- the first screen -----------------------------------------------------------------------------------------------


def describe(model: Mapping[str, Any]) -> str:
    """What a model is, in a line.

    >>> describe({"config": {"n_layers": 3, "d_model": 64, "n_heads": 4, "normalization_type": None}})
    '3 layers · width 64 · 4 heads a layer · no normalisation'
    """
    config = model.get("config", {})
    words = [_plural(config.get("n_layers"), "layer"), f"width {config['d_model']}" if "d_model" in config else ""]
    if config.get("mlp_only"):
        words.append("MLP only")
    else:
        words.append(f"{_plural(config.get('n_heads'), 'head')} a layer")
        words.append(f"{config['score_fn']} scores" if "score_fn" in config else "")
        mlp = f"MLP {config['d_mlp']}" if "d_mlp" in config else ""
        words.append("attention only" if config.get("attn_only") else mlp)
    kind = config.get("normalization_type")
    words.append(f"{config.get('norm_position', '')}-{kind}".lstrip("-") if kind else "no normalisation")
    bound = config.get("embed_bound")
    words.append(f"read-in bounded by {bound:g}" if bound is not None else "")
    words.append("no positions" if config.get("positional_embedding_type") == "none" else "")
    words.append(f"{model['n_parameters']:,} parameters" if "n_parameters" in model else "")
    words.append(f"{model['encoding']} prompts" if "encoding" in model else "")
    return " · ".join(word for word in words if word)


def _plural(n: Any, word: str) -> str:
    return f"{n} {word}" + ("" if n == 1 else "s")


def _banner(report: Mapping[str, Any], findings: Sequence[Finding]) -> str:
    checkpoint, model = report["checkpoint"], report["model"]
    step = f" <small>step {checkpoint['step']:,}</small>" if isinstance(checkpoint.get("step"), int) else ""
    tiles = "".join(
        f"<div><b>{value}</b><span>{label}</span><span>{more}</span></div>" for value, label, more in _tiles(model)
    )
    return (
        f"<h1>{_text(checkpoint.get('name', 'a model'))}{step}</h1>"
        f'<p class="quiet small">{_text(describe(model))}</p>'
        f'<div class="tiles">{tiles}</div><div class="board">{_board(findings)}</div>'
    )


def _board(findings: Sequence[Finding]) -> str:
    """All verdicts at a glance: how many of each, and which; each leads to its finding in full."""
    parts = []
    for verdict, look in VERDICTS.items():
        found = [f for f in findings if f.verdict == verdict]
        if not found:
            continue
        links = "".join(
            f'<li><a href="#{_anchor(f.id)}" title="{_text(f.statement)}">{_text(_short(f.id))}</a></li>' for f in found
        )
        columns = -(-len(found) // ROWS)
        parts.append(
            f'<div style="color:{look.ink}"><b>{look.sign} {len(found)} {look.word}</b>'
            f'<ul style="columns:{columns}">{links}</ul></div>'
        )
    return "".join(parts)


def _short(claim: str) -> str:
    """A claim's id as words, without its study.

    >>> _short("limits.softmax_hardmax")
    'softmax hardmax'
    """
    return claim.partition(".")[2].replace("_", " ") or claim


def _tiles(model: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(value, label, more) of what one has to know before reading any verdict."""
    error = model.get("in_distribution", {})
    tiles = []
    if "error" in error:
        value, low, high = (float(error.get(key, "nan")) for key in ("error", "low", "high"))
        more = f"mean squared, [{number(low, 2)}, {number(high, 2)}]"
        tiles.append((number(value, 2), "in-distribution error", more))
    for key, label, more in (("least squares", "least squares", "on the same prompts"),
                             ("zero", "predicting 0", "on the same prompts")):  # fmt: skip
        if key in error:
            tiles.append((number(float(error[key]), 2), label, more))
    if "r2" in model:
        tiles.append((number(float(model["r2"]), 4), "R²", "in distribution"))
    task = model.get("task", {})
    if "inputs" in task:
        law = _law(task["inputs"])
        tiles.append((f"x ~ {law}", "trained range", _functions(task)))
    if "n_points" in model:
        n = int(model["n_points"])
        tiles.append((f"{n} points", "trained length", f"{_plural(n - 1, 'pair')} and the query"))
    return tiles


def _law(law: Any) -> str:
    """A law of numbers in short."""
    if isinstance(law, Mapping) and law.get("kind") == "Uniform":
        return f"U({_cell(law['low'])}, {_cell(law['high'])})"
    if isinstance(law, Mapping) and law.get("kind") == "Normal":
        return f"N({_cell(law.get('mean', 0))}, {_cell(law['std'])}²)"
    return _cell(law)


def _functions(task: Mapping[str, Any]) -> str:
    """The functions of a task in short."""
    if task.get("kind") == "Polynomial":
        degrees = ", ".join(map(str, task.get("degrees", ())))
        return f"degree {degrees}; coefficients {_law(task.get('coefficients'))}"
    rest = {key: value for key, value in task.items() if key not in ("kind", "inputs", "n_points")}
    return "; ".join([_text(task.get("kind", "")), *(f"{_text(k)} {_law(v)}" for k, v in rest.items())])


def _verdict(finding: Finding) -> str:
    look = VERDICTS[finding.verdict]
    return f'<span class="verdict" style="color:{look.ink};font-weight:bold">{look.sign} {look.word}</span>'


def _estimates(finding: Finding) -> str:
    """The estimate, and what the criterion reads where that is something else."""
    parts = [_estimate(finding.estimate)] if finding.estimate else []
    if finding.test and finding.test != finding.estimate:
        parts.append(f'<span style="color:#666">judged by:</span> {_estimate(finding.test)}')
    return "<br>".join(parts) or "–"


def _estimate(estimate: Estimate) -> str:
    name = f'<small style="color:#666">{_text(name_of(estimate))}</small>'
    return f'<span class="number">{_text(interval(estimate))}</span><br>{name}'


def _verdicts(findings: Iterable[Finding]) -> str:
    rows = "".join(
        f'<tr><td>{_text(f.statement)}<br><a href="#{_anchor(f.id)}"><code>{_text(f.id)}</code></a></td>'
        f"<td>{_verdict(f)}</td><td>{_estimates(f)}</td><td>{_text(f.reason)}</td></tr>"
        for f in findings
    )  # fmt: skip
    head = (
        '<tr><th style="width:28%">claim</th><th style="width:14%">verdict</th>'
        '<th style="width:22%">estimate [95 % interval] unit</th><th>why</th></tr>'
    )
    return f'<table class="verdicts"><thead>{head}</thead><tbody>{rows}</tbody></table>'


# ---- below ----------------------------------------------------------------------------------------------------------


def _figure(name: str, figure: Figure, findings: Iterable[Finding]) -> str:
    claims = ", ".join(
        f'<a href="#{_anchor(f.id)}"><code>{_text(f.id)}</code></a>'
        for f in findings
        if name in f.figures and f.verdict != "not_applicable"
    )
    belongs = f"Belongs to {claims}." if claims else ""
    caption = f"{_text(catalogue.CAPTIONS.get(name, ''))} {belongs}"
    div = files.to_div(figure, f"figure-{_anchor(name)}")
    return f'<figure><div class="plot">{div}</div><figcaption>{caption}</figcaption></figure>'


def _finding(f: Finding) -> str:
    pairs: dict[str, str] = {"verdict": f"{_verdict(f)}: {_text(f.reason)}"}
    if f.estimate:
        pairs["estimate"] = _estimates(f)
    pairs["criterion"] = f'{_text(f.criterion.text)} <span class="quiet">({_zones(f)})</span>'
    if f.scope:
        pairs["scope"] = _text(f.scope)
    if f.twin:
        pairs["untrained twin"] = _estimate(f.twin)
    if f.causal:
        pairs["causal test"] = _mapping(f.causal)
    if f.details:
        pairs["details"] = _details(f.details)
    origin = f"<code>{_text(f.id)}</code> · a claim about {_text(f.kind)} · source: {_text(f.source)}"
    return (
        f'<article id="{_anchor(f.id)}"><h3>{_text(f.statement)}</h3><p class="quiet small">{origin}</p>'
        f'<div class="wide">{_rows(pairs)}</div></article>'
    )  # fmt: skip


def _zones(f: Finding) -> str:
    regions = {"supported": f.criterion.supported, "contradicted": f.criterion.contradicted}
    return "; ".join(f"{name} in [{number(low)}, {number(high)}]" for name, (low, high) in regions.items())


def _rows(pairs: Mapping[str, str]) -> str:
    """A table of names and values; values are HTML."""
    rows = "".join(f"<tr><th>{_text(key)}</th><td>{value}</td></tr>" for key, value in pairs.items())
    return f"<table><tbody>{rows}</tbody></table>"


def _mapping(values: Mapping[str, Any]) -> str:
    """Numbers by name, a row each; what is nested in a row goes on one line."""
    return _rows({key: _cell(value) for key, value in values.items()})


def _details(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same columns share a table; a long one opens when asked."""
    tables = []
    for columns, group in itertools.groupby(rows, key=lambda row: tuple(row)):
        head = "".join(f"<th>{_text(column)}</th>" for column in columns)
        body = "".join(
            "<tr>" + "".join(f'<td class="number">{_cell(value)}</td>' for value in row.values()) + "</tr>"
            for row in group
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        n_rows = body.count("<tr>")
        asked = f"<details><summary>{n_rows} rows</summary>{table}</details>"
        tables.append(asked if n_rows > OPEN else table)
    return "".join(tables)


def _provenance(report: Mapping[str, Any]) -> str:
    shown = {
        "checkpoint": _mapping(report["checkpoint"]), "analysis": _mapping(report["provenance"]),
        "model": _mapping({key: report["model"][key] for key in MODEL if key in report["model"]}),
        "results stored": _text(", ".join(report["results"])), "schema": _text(report["schema"]),
    }  # fmt: skip
    return f'<div class="wide">{_rows(shown)}</div>'


def _cell(value: Any) -> str:
    """One value, rounded and escaped."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if value in ("nan", "inf", "-inf"):  # what JSON makes of them
        value = float(value)
    if isinstance(value, float):
        return number(value, 4)
    if isinstance(value, int):
        return str(value).replace("-", MINUS)
    if isinstance(value, Mapping):
        nested = {key: f"({_cell(v)})" if isinstance(v, Mapping) else _cell(v) for key, v in value.items()}
        return " · ".join(f'<span class="quiet">{_text(key)}</span> {text}' for key, text in nested.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value))
    return _text(value)


def _anchor(text: str) -> str:
    """An id for a part of the page."""
    return html.escape("-".join(str(text).split()))


def _text(value: object) -> str:
    return html.escape(str(value))
