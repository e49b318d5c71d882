"""Figures of a page wait until it is their turn: those in view come first, and print gets all."""

import pytest
from browsers import browser, wait_until
from helpers import must_fail

from icl_interp.figures import in_turn

NAMES = ("far", "near", "farther")
# A figure is a word in a list; the first and the last stand below the edge of the screen.
PLACES = "".join(
    f'<div id="{name}" style="position:absolute;top:{top}px;width:9px;height:9px"></div>'
    for name, top in zip(NAMES, (5000, 10, 9000), strict=True)
)


def page(template):
    """A page whose figures, as they are drawn, put their names into a list."""
    drawn = []
    for name in NAMES:
        drawn.append(template % (name, f"window.drawn.push('{name}');"))
    return f"{PLACES}<script>window.drawn = [];{''.join(drawn)}</script>"


def check_order(tab, text):
    tab.set_content(text)
    wait_until(tab, "window.drawn.length === 3")
    assert tab.evaluate("window.drawn") == ["near", "far", "farther"]


def check_print(tab, text):
    tab.set_content(
        text + "<script>window.dispatchEvent(new Event('beforeprint'));"
        "window.printed = window.drawn.length;</script>"
    )
    wait_until(tab, "window.printed !== undefined")
    assert tab.evaluate("window.printed") == 3


@pytest.mark.slow
def test_what_is_in_view_comes_first_and_print_gets_all():
    from playwright import sync_api as sync  # slow to import

    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        tab = chromium.new_page(viewport={"width": 800, "height": 600})
        check_order(tab, page(in_turn.TEMPLATE))
        as_they_come = in_turn.TEMPLATE.replace("box.bottom > 0", "true").replace(
            "box.top < window.innerHeight", "true"
        )
        must_fail(check_order, tab, page(as_they_come))
        check_print(tab, page(in_turn.TEMPLATE))
        deaf = in_turn.TEMPLATE.replace("beforeprint", "another")
        must_fail(check_print, tab, page(deaf))
        chromium.close()
