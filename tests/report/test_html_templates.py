"""Templates of pages: whatever they are given is text, and none of them says otherwise."""

import re
from pathlib import Path

import pytest
from helpers import must_fail
from jinja2 import UndefinedError
from markupsafe import Markup

import icl_interp.report
from icl_interp.report.html import rendered

FOLDER = Path(icl_interp.report.__file__).parent / "templates"
TEMPLATES = {path.name: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.html"))}
HOSTILE = "<script>alert('\"&\"')</script>"


def trusts_nothing(text: str):
    """No filter or block takes the escapes out."""
    assert not re.search(r"\|\s*(safe|forceescape|xmlattr|tojson)\b|autoescape|Markup", text)


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_trust_nothing(name):
    trusts_nothing(TEMPLATES[name])
    must_fail(trusts_nothing, TEMPLATES[name] + "{{ x | safe }}")
    must_fail(trusts_nothing, TEMPLATES[name] + "{% autoescape false %}{{ x }}{% endautoescape %}")


@pytest.mark.parametrize("name", TEMPLATES)
def test_values_stand_where_quotes_end_them(name):
    """In an attribute a value is escaped only if quotes surround it; a script has none."""
    tags = re.findall(r"<[a-z][^<>]*>", re.sub(r"\{%.*?%\}", "", TEMPLATES[name]))
    for tag in tags:
        bare = re.sub(r'"[^"]*"', '""', tag)
        assert "{{" not in bare.replace("<td {{ cell }}>", "").replace("<th {{ cell }}>", ""), tag
    assert "<script" not in TEMPLATES[name]
    assert not re.search(r'\son\w+="', TEMPLATES[name])


def test_text_is_escaped_and_made_printable_but_not_html():
    def shows(text, made):
        found = rendered("table.html", note=text, names=[made], rows=[{"x": text}])
        assert "<script" not in found
        assert "\x1b" not in found
        assert "\u202e" not in found
        assert "<b>1</b>" in found
        assert found.count("&lt;script&gt;") == 2

    shows(f"{HOSTILE}\x1b\u202e", Markup("<b>1</b>"))
    must_fail(shows, Markup(HOSTILE), Markup("<b>1</b>"))
    must_fail(shows, HOSTILE, "<b>1</b>")


def test_what_a_template_needs_is_not_left_out_silently():
    with pytest.raises(UndefinedError, match="rows"):
        rendered("table.html", note="", names=[])
