"""What every input must end in: success, or one sentence that names its place and quotes no cell."""

from __future__ import annotations

import contextlib
import io
import json
import traceback
import warnings
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import daskpriv

CANARIES = ("CANARY", "77317731", "7731-07-31")
LONGEST_SENTENCE = 2000

_TAGS = {
    *("html", "head", "body", "meta", "title", "style", "main", "h1", "h2", "p", "small", "span", "b", "code"),
    *("table", "tr", "th", "td", "svg", "rect", "text", "polygon", "line", "g", "path"),
}
_ATTRIBUTES = {
    *("lang", "charset", "name", "content", "http-equiv", "class", "colspan", "xmlns", "viewbox", "role"),
    *("font-family", "font-size", "fill", "x", "y", "width", "height", "opacity", "points", "fill-opacity"),
    *("stroke", "stroke-width", "x1", "y1", "x2", "y2", "text-anchor", "transform", "shape-rendering", "d"),
}


class Failure(Exception):
    """An input that ended in something else than success or one good sentence."""


def no_cell(text: str, where: str) -> None:
    """Fail when a cell is quoted."""
    found = [c for c in CANARIES if c in text]
    if found:
        raise Failure(f"{where} quotes a cell ({found[0]}): {text[:300]}")


def sentence(text: str, secret: bool = True, *names: str) -> None:
    """Fail unless this is one line that ends in a full stop, and names one of `names` if there are any."""
    if len(text.splitlines()) != 1 or not text.isprintable():
        raise Failure(f"the message is not one printable line: {text[:300]!r}")
    if not text.endswith((".", "?")):
        raise Failure(f"the message does not end in a full stop: {text[:300]!r}")
    if len(text) > LONGEST_SENTENCE:
        raise Failure(f"the message has {len(text)} characters: {text[:100]!r}")
    if names and not any(name in text for name in names):
        raise Failure(f"the message names none of {names}: {text[:300]!r}")
    if secret:
        no_cell(text, "the message")


def attempt(work: Callable[[], Any], secret: bool = True, *names: str) -> Any:
    """The result of `work`, or None where it was refused in one good sentence; anything else is a `Failure`.

    `secret=False` is for inputs whose cells may have become names, such as a CSV without its header line.
    """
    shown = io.StringIO()
    try:
        with quiet(shown), warnings.catch_warnings():
            warnings.simplefilter("error")
            result = work()
    except daskpriv.InputError as error:
        sentence(str(error), secret, *names)
        if error.__cause__ is not None or not (error.__context__ is None or error.__suppress_context__):
            raise Failure(f"the error carries the one behind it: {error.__cause__ or error.__context__!r}") from error
        if secret:
            no_cell("".join(traceback.format_exception(error)), "the traceback")
        result = None
    said = shown.getvalue()
    if said:
        raise Failure(f"something was printed: {said[:500]}")
    return result


@contextlib.contextmanager
def quiet(shown: io.StringIO) -> Iterator[None]:
    """Collect what is printed."""
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        yield


class _Page(HTMLParser):
    """Notes every tag and attribute that the page template does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.odd: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.odd += [tag] * (tag not in _TAGS)
        self.odd += [f"{tag} {name}" for name, _ in attrs if name not in _ATTRIBUTES]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_comment(self, data: str) -> None:
        self.odd.append(f"comment {data[:50]}")

    def handle_pi(self, data: str) -> None:
        self.odd.append(f"instruction {data[:50]}")


def harmless(html: str) -> None:
    """Fail when the page holds a tag or an attribute that only a name or a text could have brought in."""
    reader = _Page()
    reader.feed(html)
    reader.close()
    if reader.odd:
        raise Failure(f"the page holds {reader.odd[:3]}")


def shareable(report: daskpriv.Report, secret: bool = True) -> dict[str, Any]:
    """Fail unless the report is strict JSON, a page and a summary without a cell; the parsed JSON."""
    text = report.to_json()
    whole: dict[str, Any] = json.loads(text, parse_constant=_not_json)
    page = report._repr_html_()
    harmless(page)
    if secret:
        for where, said in (("the JSON", text), ("the page", page), ("the summary", report.summary())):
            no_cell(said, where)
    for said in (*report.warnings, *(m.reading for m in report.metrics.values() if m.reading)):
        sentence(said, secret)
    return whole


def _not_json(word: str) -> None:
    raise Failure(f"report.json holds {word}")
