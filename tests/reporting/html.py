"""Reading a page as a browser would."""

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "hr"}
LOADING = {"src", "href", "srcset", "action", "data", "poster", "background", "xlink:href"}


class Reader(HTMLParser):
    """Collects elements, addresses and text; `unclosed` is empty for a whole page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.unclosed: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.unclosed.append(tag)

    def handle_endtag(self, tag):
        assert self.unclosed.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    @property
    def addresses(self) -> list[str]:
        """Everything that an element may load or lead to."""
        return [str(v) for _, attrs in self.tags for k, v in attrs.items() if k in LOADING]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def check_alone(page: str) -> Reader:
    """Check that a page needs nothing else, runs nothing and is whole; returns what it holds."""
    read = Reader(page)
    assert not read.unclosed
    inside = ("data:image/jpeg;base64,", "data:image/png;base64,", "#")
    assert all(each.startswith(inside) or each == "data:," for each in read.addresses)
    names = {name for name, _ in read.tags}
    assert not names & {"script", "iframe", "object", "embed", "base", "form", "video", "audio"}
    assert not [key for _, attrs in read.tags for key in attrs if key.startswith("on")]
    styles = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in styles and "@import" not in styles
    (policy,) = (
        m["content"] for m in read.all("meta")
        if m.get("http-equiv") == "Content-Security-Policy"
    )  # fmt: skip
    assert "default-src 'none'" in str(policy)
    ids = [attrs["id"] for _, attrs in read.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    assert {each[1:] for each in read.addresses if each.startswith("#")} <= set(ids)
    return read
