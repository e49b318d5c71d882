"""What a page of HTML holds: its tags, ids, addresses and visible text."""

from html.parser import HTMLParser

from icl_interp.figures import files

VOID = {"meta", "link", "br", "img", "input", "hr"}
HOSTILE = "</script><script>alert('<b>&amp;\"x\"')</script>"


class Outline(HTMLParser):
    """Tags, ids, addresses and visible text of a page; complains about tags that don't match."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.ids, self.addresses, self.words, self._open = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._open += [] if tag in VOID else [tag]
        for name, value in attrs:
            self.ids += [value] if name == "id" else []
            self.addresses += [value] if name in ("src", "href", "action", "data", "poster") else []

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def is_self_contained(text: str):
    assert text.count(files.plotly_js()) == ('class="plotly-graph-div"' in text)
    outline = Outline(text.replace(files.plotly_js(), ""))
    assert len(outline.ids) == len(set(outline.ids))
    for address in outline.addresses:
        assert address == "data:," or (address[0] == "#" and address[1:] in outline.ids), address
    assert "@import" not in text.replace(files.plotly_js(), "")
