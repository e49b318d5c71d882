"""Figures of a page are drawn one after another, those in view first.

Drawn all at once, a dozen figures keep a browser busy for seconds before anything can be read.
"""

import re

# What plotly writes goes into `draw`. A queue belongs to the page; whoever finds it empty starts
# it. Between two figures the browser paints, and answers to its user. For print all are drawn.
TEMPLATE = """
(function () {
  const waiting = window.figuresToDraw = window.figuresToDraw || [];
  const place = document.getElementById("%s");
  const draw = function () {%s};
  waiting.push({place: place, draw: draw});
  if (waiting.length > 1) return;
  const inView = function (figure) {
    const box = figure.place.getBoundingClientRect();
    return box.width > 0 && box.bottom > 0 && box.top < window.innerHeight;
  };
  const next = function () {
    if (!waiting.length) return;
    const first = Math.max(waiting.findIndex(inView), 0);
    waiting.splice(first, 1)[0].draw();
    setTimeout(next);
  };
  // plotly.js may stand at the end of the page, so that its text is there first.
  if (document.readyState === "loading") {
    document.addEventListener("DOMContentLoaded", function () { setTimeout(next); });
  } else {
    setTimeout(next);
  }
  window.addEventListener("beforeprint", function () {
    while (waiting.length) waiting.shift().draw();
  });
})();
"""


def in_turn(div: str, div_id: str) -> str:
    """A figure as plotly writes it, which waits until it is its turn.

    Args:
        div: what `plotly.io.to_html` gives, with one script.
        div_id: the id of the element that it draws in.

    >>> waits = in_turn("<div><script>Plotly.newPlot('one')</script></div>", "one")
    >>> "Plotly.newPlot('one')};" in waits, waits.count("<script>")
    (True, 1)
    """

    def wrapped(script: re.Match[str]) -> str:
        return f"{script[1]}{TEMPLATE % (div_id, script[2])}</script>"

    return re.sub(r"(<script[^>]*>)(.*?)</script>", wrapped, div, count=1, flags=re.DOTALL)
