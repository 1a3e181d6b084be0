"""Text that is safe and fits: lines of styled fragments, wrapped between words, never cut.

Names, versions and log lines come from other programs. What of them would steer a terminal or is
no character of XML is shown as an escape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from textwrap import TextWrapper

Line = tuple[tuple[str, str], ...]
"""Fragments of one line: text and style (a style of rich, or nothing)."""

LABEL_COLUMNS = 11
WIDTH_MIN, WIDTH_MAX = 40, 100

# C0 without tab and newline, DEL, C1, surrogates, the noncharacters of XML 1.0 §2.2, and the
# controls that turn the direction of what is read (UAX 9).
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def visible(text: str) -> str:
    """The text with every unsafe character as `\\x1b` or `\\u202e`; tabs and newlines stay."""
    return UNSAFE.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    """The text safe and on one line."""
    return " ".join(visible(text).split())


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> Iterator[str]:
    """Lines of at most `width` columns (40 to 100), broken between words: a longer one stays whole.

    `first` stands before the first line, `rest` before the others. Newlines of the text are kept.
    """
    wrapper = TextWrapper(
        width=min(max(width, WIDTH_MIN), WIDTH_MAX),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for part in visible(text).splitlines() or [""]:
        yield from wrapper.wrap(part) or [wrapper.initial_indent.rstrip()]
        wrapper.initial_indent = rest


def labelled(label: str, text: str, width: int, indent: int = 2) -> Iterator[Line]:
    """`label      text`, wrapped below the text's first column; nothing where there is no text."""
    if not text.strip():
        return
    first = " " * indent + label.ljust(LABEL_COLUMNS)
    for number, line in enumerate(wrapped(text, width, first=first, rest=" " * len(first))):
        if number == 0:
            yield ((first, "dim"), (line[len(first) :], ""))
        else:
            yield ((line, ""),)


def whole(label: str, text: str, width: int, indent: int = 2) -> Iterator[Line]:
    """Like `labelled`, for what is to be copied: never broken, on a line of its own if too long."""
    text = one_line(text)
    if not text:
        return
    first = " " * indent + label.ljust(LABEL_COLUMNS)
    if len(first) + len(text) <= width:
        yield ((first, "dim"), (text, ""))
        return
    yield styled(first.rstrip(), "dim")
    yield styled(" " * (indent + 2) + text)


def plain(lines: Iterable[Line]) -> str:
    """The lines without their styles."""
    return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)


def styled(text: str, style: str = "") -> Line:
    """One line of one style."""
    return ((text, style),)


BLANK: Line = ()


def counted(count: int, noun: str) -> str:
    """`1 scenario`, `2 scenarios`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
