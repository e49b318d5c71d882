"""In a browser: where each text of a figure stands, and whether it lies over another."""

import html
import json
import re
import subprocess

from browsers import browser

from icl_interp.figures import files

MEASURE = """
const out = {};
for (const holder of document.querySelectorAll('div')) {
  const svg = holder.querySelector('svg'), sheet = svg.getBoundingClientRect(), bad = [];
  const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim());
  const boxes = texts.map(t => [t.textContent, t.getBoundingClientRect()])
    .filter(b => b[1].width >= 1);
  for (const [text, box] of boxes)
    if (box.left < sheet.left - 1 || box.right > sheet.right + 1 || box.top < sheet.top - 1 ||
        box.bottom > sheet.bottom + 1) bad.push(text + ' leaves the sheet');
  boxes.forEach(([text, a], i) => { for (const [other, b] of boxes.slice(i + 1)) {
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (width > 1 && height > 2.5) bad.push(text + ' lies over ' + other);
  }});
  out[holder.id] = [boxes.length, bad];
}
document.body.innerHTML = '<pre></pre>';
document.querySelector('pre').textContent = JSON.stringify(out);
"""


def measured(figures, folder):
    """How many texts each figure has, and those that overlap or leave it."""
    assert files.export(figures, folder, ["svg"]) is None
    pages = [f'<div id="{name}">{(folder / f"{name}.svg").read_text()}</div>' for name in figures]
    (folder / "all.html").write_text(
        f"<meta charset=utf-8>{''.join(pages)}<script>{MEASURE}</script>"
    )
    dump = (
        "--dump-dom",
        "--no-sandbox",
        "--virtual-time-budget=5000",
        (folder / "all.html").as_uri(),
    )
    run = subprocess.run(
        [browser(), *dump], capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(html.unescape(re.search(r"<pre>(.*?)</pre>", run.stdout, re.DOTALL)[1]))


def check_texts(figures, folder):
    """Assert that no text of any figure overlaps another one or leaves its figure."""
    found = measured(figures, folder)
    assert set(found) == set(figures)
    assert all(n > 5 for n, _ in found.values())
    bad_ones = {name: bad for name, (_, bad) in found.items() if bad}
    assert bad_ones == {}, str(bad_ones)
