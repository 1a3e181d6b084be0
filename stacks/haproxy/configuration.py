"""A HAProxy configuration as text: its statements, and what is in force for a stream."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SECTIONS = frozenset(
    (
        "global", "defaults", "frontend", "backend", "listen", "peers", "resolvers", "mailers",
        "userlist", "cache", "program", "ring", "http-errors", "log-forward", "fcgi-app",
        "crt-store", "traces",
    )
)  # fmt: skip
# A blank ends a word unless it is quoted or escaped; a bare # ends the line (manual §2.2).
WORD = re.compile(r"""(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^\s\\"'#])+|(?P<comment>\#)""")
PART = re.compile(r"""'(?P<strong>[^']*)'|"(?P<weak>(?:\\.|[^"\\])*)"|\\(?P<escaped>.)""")
DEFAULTS, FRONTEND, BACKEND, GLOBAL = "defaults", "frontend", "backend", "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A line of a section: its words without quotes, its number, the section's keyword."""

    words: tuple[str, ...]
    line: int
    section: str

    def begins(self, *words: str) -> bool:
        """Whether these are its first words."""
        return self.words[: len(words)] == words

    def says(self, *words: str) -> bool:
        """Whether one of these is among its words."""
        return any(word in self.words for word in words)


def _unquoted(part: re.Match[str]) -> str:
    # Only within double quotes does a backslash still mean something.
    if part["weak"] is not None:
        return re.sub(r"\\(.)", r"\1", part["weak"])
    return part["strong"] or part["escaped"] or ""


def words_of(line: str) -> tuple[str, ...]:
    """The words of a line, unquoted, without its comment."""
    found: list[str] = []
    for match in WORD.finditer(line):
        if match["comment"]:
            break
        found.append(PART.sub(_unquoted, match.group()))
    return tuple(found)


def statements(text: str) -> Iterator[Statement]:
    """All lines with words, in order; the head of a section belongs to it."""
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        words = words_of(line)
        if words:
            section = words[0] if words[0] in SECTIONS else section
            yield Statement(words=words, line=number, section=section)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is in force from the frontend to the backend, for one version of HAProxy.

    A section takes what `defaults` says unless it says otherwise itself.
    """

    version: tuple[int, ...]
    statements: tuple[Statement, ...]

    @classmethod
    def read(cls, text: str, version: str) -> Settings:
        """The settings of a configuration's text under HAProxy `version` (`2.8.25`)."""
        numbers = tuple(int(part) for part in re.findall(r"\d+", version))
        return cls(version=numbers, statements=tuple(statements(text)))

    def find(self, *words: str, among: tuple[str, ...] = ()) -> Statement | None:
        """The last statement that begins with the words and says one of `among`, if any."""
        hits = (s for s in reversed(self.statements) if s.begins(*words))
        return next((s for s in hits if not among or s.says(*among)), None)

    def option(self, name: str, section: str) -> Statement | None:
        """The line that sets or unsets an option for a section, or None where none does."""
        for place in (section, DEFAULTS):
            for s in reversed(self.statements):
                if s.section == place and (
                    s.begins("option", name) or s.begins("no", "option", name)
                ):
                    return s
        return None

    def is_on(self, name: str, section: str) -> bool:
        """Whether an option is in force for a section."""
        statement = self.option(name, section)
        return statement is not None and statement.words[0] == "option"

    @property
    def holds_chunks(self) -> bool:
        """Whether it tells the kernel that more is coming after each chunk.

        Either side's option ends that; Debian's 2.6 does not do it over TLS.
        """
        if any(self.is_on("http-no-delay", side) for side in (FRONTEND, BACKEND)):
            return False
        return self.version >= (2, 8) or not self.tls

    @property
    def tls(self) -> bool:
        """Whether the listener ends TLS."""
        return self.find("bind", among=("ssl",)) is not None

    @property
    def hears_client_close(self) -> bool:
        """Whether a client's FIN is passed on at once.

        A frontend's own line is ignored; 2.6 needs that of `defaults`, which holds for both sides.
        """
        places = (BACKEND,) if self.version >= (2, 8) else (BACKEND, DEFAULTS)
        return all(self.is_on("abortonclose", place) for place in places)
