"""The glossary: one text for reports and for the documentation, in whole sentences."""

from pathlib import Path

from helpers import must_fail

from icl_interp.report import glossary

PAGE = Path(__file__).parents[2] / "docs" / "glossary.md"


def test_the_page_is_the_glossary():
    def check(text):
        assert text == glossary.markdown()

    check(PAGE.read_text("utf-8"))
    must_fail(check, PAGE.read_text("utf-8").replace("prompt", "Prompt", 1))


def test_every_meaning_is_made_of_sentences():
    for term, meaning in glossary.TERMS.items():
        assert meaning[0].isupper() or meaning[0].isdigit(), term
        assert meaning.endswith("."), term
