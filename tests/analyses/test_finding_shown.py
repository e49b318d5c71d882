"""How a finding shows itself in a notebook."""

from dataclasses import replace

from helpers import must_fail
from small_reports import report


def tells(table, finding):
    """The claim, its verdict, why, and the rule; a caption with its id."""
    assert f"<caption>{finding.id}</caption>" in table
    plain = table.replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'")
    for told in (finding.statement, finding.verdict.replace("_", " "), finding.reason):
        assert told in plain
    assert finding.criterion.text in plain


def test_a_finding_is_a_table_in_a_notebook():
    finding = next(f for f in report().findings if f.verdict == "supported")
    tells(finding._repr_html_(), finding)
    must_fail(tells, finding._repr_html_(), replace(finding, statement="Another sentence."))
    must_fail(tells, finding._repr_html_(), replace(finding, id="another.claim"))
    hostile = replace(finding, reason="<script>alert(1)</script>")
    assert "<script" not in hostile._repr_html_()
