"""An nginx configuration as text: its statements, and what is in force at the location `/`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A word may hold `${name}` and `@{placeholder}`; any other brace opens or closes a block.
TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<quoted>"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*')
      | (?P<mark>[;{}])
      | (?P<word>(?:[@$]\{[^}\n]*\} | \\. | [^\s;{}])+)""",
    re.VERBOSE | re.DOTALL,
)
LEVELS = ((), ("http",), ("http", "server"), ("http", "server", "location /"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A directive or a block's head: its words, the line of the first, the blocks around it."""

    name: str
    arguments: tuple[str, ...]
    line: int
    context: tuple[str, ...]

    def says(self, word: str) -> bool:
        """Whether an argument is this word, in any case."""
        return word.casefold() in (argument.casefold() for argument in self.arguments)


def _unquoted(match: re.Match[str]) -> str:
    text = match.group()
    return text[1:-1] if match.lastgroup == "quoted" else text


def _scan(text: str) -> Iterator[Statement]:
    words: list[str] = []
    context: list[str] = []
    start, line, seen = 1, 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", seen, match.start())
        seen = match.start()
        if match.lastgroup == "comment":
            continue
        if match.lastgroup != "mark":
            start = start if words else line
            words.append(_unquoted(match))
            continue
        if words:
            yield Statement(
                name=words[0], arguments=tuple(words[1:]), line=start, context=tuple(context)
            )
        if match.group() == "{":
            context.append(" ".join(words))
        elif match.group() == "}" and context:
            context.pop()
        words = []


def statements(text: str) -> tuple[Statement, ...]:
    """All statements in order. Text that nginx would refuse gives what can be read of it."""
    return tuple(_scan(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is in force at `location /` of the only server, for one version of nginx.

    nginx inherits a directive from the level above only where the own level has none of that name.
    """

    version: tuple[int, ...]
    in_force: tuple[Statement, ...]

    @classmethod
    def read(cls, text: str, version: str) -> Settings:
        """The settings of a configuration's text under nginx `version` (`1.31.3`)."""
        everything = statements(text)
        in_force: list[Statement] = []
        for level in LEVELS:
            here = [s for s in everything if s.context == level]
            replaced = {s.name for s in here}
            in_force = [s for s in in_force if s.name not in replaced] + here
        numbers = tuple(int(part) for part in re.findall(r"\d+", version))
        return cls(version=numbers, in_force=tuple(in_force))

    def find(self, name: str, *words: str) -> Statement | None:
        """The last statement of this name in force that says any of the words (or any at all)."""
        hits = [s for s in self.in_force if s.name == name]
        return next((s for s in reversed(hits) if not words or any(map(s.says, words))), None)

    def value(self, name: str, default: str) -> str:
        """The first argument of a directive in force."""
        statement = self.find(name)
        return statement.arguments[0] if statement and statement.arguments else default

    @property
    def buffering(self) -> bool:
        """Whether answers are buffered, unless the origin's header says otherwise."""
        return self.value("proxy_buffering", "on") != "off"

    @property
    def asks_http10(self) -> bool:
        """Whether the upstream is asked in HTTP/1.0: nginx's default before 1.29.7."""
        default = "1.1" if self.version >= (1, 29, 7) else "1.0"
        return self.value("proxy_http_version", default) == "1.0"
