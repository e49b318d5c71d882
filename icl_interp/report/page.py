"""The report as one HTML page that opens offline, and as a fragment for notebooks. Numbers are rounded here only."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from icl_interp.analyses import multiplicity
from icl_interp.analyses.finding import Finding
from icl_interp.figures import catalogue, files
from icl_interp.figures.style import VERDICTS, Figure
from icl_interp.figures.text import joined, markup, number
from icl_interp.report.findings import anchor, article, cell, estimates, link, mapping, rows, scalar, verdict_mark

ROWS = 9  # of the board of verdicts
MODEL = ("config", "task", "encoding", "in_distribution")  # facts about the model that the foot of the page repeats
CSS = Markup("""
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
""")


def render(report: Mapping[str, Any], figures: Mapping[str, Figure]) -> str:
    """One self-contained page: the answer on the first screen, then figures, findings in full, and provenance.

    Args:
        report: as `Report.to_dict` gives it, also after a trip through JSON; of its "results" only the names are read.
        figures: by name; "claims" goes to the top.

    Returns:
        HTML that fetches nothing; the same bytes for the same input.
    """
    findings = [Finding.from_dict(finding) for finding in report["findings"]]
    divs = {name: files.to_div(figure, f"figure-{anchor(name)}") for name, figure in figures.items()}
    first, rest = divs.get("claims"), [name for name in divs if name != "claims"]
    parts = [
        markup("<header><div>{}</div></header><main>", _banner(report, findings)),
        markup('<div class="plot" id="claims">{}</div>', first) if first else "",
        markup('<h2 id="verdicts">Verdicts</h2><p class="quiet small">{}</p>', multiplicity.by_chance(findings)),
        markup('<div class="wide">{}</div>', _verdicts(findings)),
        markup('<h2 id="figures">Figures</h2>') if rest else "",
        *(_figure(name, divs[name], findings) for name in rest),
        markup('<h2 id="findings">Findings in full</h2>'),
        *(article(finding) for finding in findings),
        markup('<h2 id="provenance">Provenance</h2>{}</main>', _provenance(report)),
    ]
    body, name = joined((part for part in parts if part), "\n"), report["checkpoint"].get("name", "a model")
    return document(name, body, list(divs.values()), "the JSON report")


def document(title: str, body: Markup, figures: Sequence[Markup], source: str) -> str:
    """A whole page: it runs no script but plotly.js and those of its figures, and loads nothing.

    Args:
        title: of the page, plain text.
        body: what stands above the figures' scripts.
        figures: what stands in the body of `figures.files.to_div`.
        source: of the numbers, not rounded.
    """
    policy, plotly_js = files.scripts(figures)
    text = markup(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">{policy}'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>icl_interp: {title}</title>'
        '<link rel="icon" href="data:,"><style>{css}</style>\n{plotly_js}</head>\n<body>{body}\n'
        '<footer class="quiet small">Numbers are rounded for reading; {source} holds them in full.</footer>'
        "</body></html>\n",
        policy=policy,
        title=title,
        css=CSS,
        plotly_js=plotly_js,
        body=body,
        source=source,
    )
    return str(text)  # the methods of Markup escape what they are given, and a page is text to its callers


def summary(report: Mapping[str, Any]) -> str:
    """A light fragment for notebooks: the banner in a line and the table of verdicts, with inline styles."""
    findings = [Finding.from_dict(finding) for finding in report["findings"]]
    cell = markup('style="text-align:left;vertical-align:top;padding:4px 12px 4px 0"')
    rows = joined(
        markup(
            '<tr><td {cell}>{f.statement}<br><span style="color:#666">{f.id}</span></td>'
            "<td {cell}>{verdict}</td><td {cell}>{estimates}</td><td {cell}>{f.reason}</td></tr>",
            cell=cell,
            f=f,
            verdict=verdict_mark(f),
            estimates=estimates(f),
        )
        for f in findings
    )
    text = markup(
        '<div style="font-family:sans-serif;font-size:13px"><div><b style="font-size:15px">'
        '{name}</b> <span style="color:#666">{kind}</span></div><div>{facts}</div>'
        "<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>",
        name=report["checkpoint"].get("name", "a model"),
        kind=describe(report["model"]),
        facts=joined((f"{label} {value}" for value, label, _ in _tiles(report["model"])), " · "),
        head=joined(markup("<th {}>{}</th>", cell, title) for title in ("claim", "verdict", "estimate", "why")),
        rows=rows,
    )
    return str(text)


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


def _banner(report: Mapping[str, Any], findings: Sequence[Finding]) -> Markup:
    checkpoint, model = report["checkpoint"], report["model"]
    whole = isinstance(checkpoint.get("step"), int)
    return markup(
        '<h1>{name}{step}</h1><p class="quiet small">{kind}</p>'
        '<div class="tiles">{tiles}</div><div class="board">{board}</div>',
        name=checkpoint.get("name", "a model"),
        kind=describe(model),
        board=_board(findings),
        step=markup(" <small>step {:,}</small>", checkpoint["step"]) if whole else "",
        tiles=joined(markup("<div><b>{}</b><span>{}</span><span>{}</span></div>", *tile) for tile in _tiles(model)),
    )


def _board(findings: Sequence[Finding]) -> Markup:
    """All verdicts at a glance: how many of each, and which; each leads to its finding in full."""
    parts = []
    for verdict, look in VERDICTS.items():
        found = [f for f in findings if f.verdict == verdict]
        if not found:
            continue
        links = joined(
            markup('<li><a href="#{}" title="{}">{}</a></li>', anchor(f.id), f.statement, _short(f.id)) for f in found
        )
        parts.append(
            markup(
                '<div style="color:{look.ink}"><b>{look.sign} {n} {look.word}</b>'
                '<ul style="columns:{columns}">{links}</ul></div>',
                look=look,
                n=len(found),
                columns=-(-len(found) // ROWS),
                links=links,
            )
        )
    return joined(parts)


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
    for key, label, more in (
        ("least squares", "least squares", "on the same prompts"),
        ("zero", "predicting 0", "on the same prompts"),
    ):
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
        shown = _plural(n - 1, "state" if model.get("encoding") == "states" else "pair")
        tiles.append((f"{n} points", "trained length", f"{shown} and the query"))
    return tiles


def _law(law: Any) -> str:
    """A law of numbers, or another setting of a task, in short."""
    if isinstance(law, Mapping) and law.get("kind") == "Uniform":
        return f"U({_law(law['low'])}, {_law(law['high'])})"
    if isinstance(law, Mapping) and law.get("kind") == "Normal":
        return f"N({_law(law.get('mean', 0))}, {_law(law['std'])}²)"
    if isinstance(law, Mapping):
        rest = ", ".join(f"{key} {_law(value)}" for key, value in law.items() if key != "kind")
        return f"{law.get('kind', '')}({rest})"
    return ", ".join(map(_law, law)) if isinstance(law, (list, tuple)) else scalar(law)


def task_words(task: Mapping[str, Any]) -> str:
    """A task in a line: its functions, where the inputs lie, and the length of prompts.

    >>> task_words({"kind": "Polynomial", "degrees": [1, 3], "inputs": {"kind": "Uniform", "low": -1, "high": 1},
    ...     "coefficients": {"kind": "Normal", "std": 1}, "n_points": 20})
    'degree 1, 3; coefficients N(0, 1²); x ~ U(−1, 1); 20 points'
    >>> task_words({"kind": "Mine", "n_dims": 5, "query": None})
    'Mine; n dims 5'
    """
    inputs = f"x ~ {_law(task['inputs'])}" if "inputs" in task else ""
    points = f"{_law(task['n_points'])} points" if "n_points" in task else ""
    return "; ".join(part for part in (_functions(task), inputs, points) if part)


def _functions(task: Mapping[str, Any]) -> str:
    """The functions of a task in short; what is switched off is left out."""
    if task.get("kind") == "Polynomial":
        return f"degree {_law(task.get('degrees', ()))}; coefficients {_law(task.get('coefficients'))}"
    rest = {key: value for key, value in task.items() if key not in ("kind", "inputs", "n_points") and value}
    return "; ".join([str(task.get("kind", "")), *(f"{key.replace('_', ' ')} {_law(v)}" for key, v in rest.items())])


def _verdicts(findings: Iterable[Finding]) -> Markup:
    rows = joined(
        markup(
            "<tr><td>{f.statement}<br>{link}</td><td>{verdict}</td><td>{estimates}</td><td>{f.reason}</td></tr>",
            f=f,
            link=link(f),
            verdict=joined([verdict_mark(f), *([markup("<small>firm</small>")] if f.firm else [])], "<br>"),
            estimates=estimates(f),
        )
        for f in findings
    )
    return markup(
        '<table class="verdicts"><thead>'
        '<tr><th style="width:28%">claim</th><th style="width:14%">verdict</th>'
        '<th style="width:22%">estimate [95 % interval] unit</th><th>why</th></tr>'
        "</thead><tbody>{}</tbody></table>",
        rows,
    )


# ---- below ----------------------------------------------------------------------------------------------------------


def _figure(name: str, div: Markup, findings: Iterable[Finding]) -> Markup:
    claims = joined((link(f) for f in findings if name in f.figures and f.verdict != "not_applicable"), ", ")
    caption = catalogue.FIGURES[name].caption if name in catalogue.FIGURES else ""
    return markup(
        '<figure><div class="plot">{}</div><figcaption>{} {}</figcaption></figure>',
        div,
        caption,
        markup("Belongs to {}.", claims) if claims else "",
    )


def _provenance(report: Mapping[str, Any]) -> Markup:
    shown = {
        "checkpoint": mapping(report["checkpoint"]),
        "analysis": mapping(report["provenance"]),
        "model": mapping({key: report["model"][key] for key in MODEL if key in report["model"]}),
        "results stored": ", ".join(report["results"]),
        "schema": report["schema"],
    }
    if left_out := report["model"].get("companions_left_out"):
        shown["companions left out"] = cell(left_out)
    return markup('<div class="wide">{}</div>', rows(shown))
