"""Which line of a HAProxy configuration explains which symptom: one small entry per rule.

The most specific stands first. Measured on HAProxy 2.6.12 and 2.8.25.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.model import Directive, SymptomKind
from stacks.haproxy.configuration import BACKEND, FRONTEND, GLOBAL, Settings, Statement

Find = Callable[[Settings], Statement | None]
When = Callable[[Settings], bool]

HOLDS = (SymptomKind.HELD, SymptomKind.COALESCED)
CANCELS = (SymptomKind.CANCEL_LATE, SymptomKind.CANCEL_LOST)
# Words of retry-on that send a request again which the engine may have begun to answer.
REPEATS = (
    "all-retryable-errors", "empty-response", "junk-response", "response-timeout",
    "500", "501", "502", "503", "504", "408", "425", "429", "404", "401", "403",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When the configuration is so, the found line explains these symptoms, or a missing one."""

    when: When
    find: Find
    explains: tuple[SymptomKind, ...]
    cure: str
    missing: str = ""


def always(settings: Settings) -> bool:
    """Whatever the configuration."""
    return True


def line(*words: str, among: tuple[str, ...] = ()) -> Find:
    """Finds the last statement that begins with the words and says one of `among`."""
    return lambda settings: settings.find(*words, among=among)


def unset(name: str) -> Find:
    """Finds the line that takes an option out, or sets it where it does not count."""

    def find(settings: Settings) -> Statement | None:
        lines = (settings.option(name, side) for side in (FRONTEND, BACKEND))
        return next((statement for statement in lines if statement), None)

    return find


RULES = (
    Rule(
        when=always,
        find=line("http-response", "wait-for-body"),
        explains=(*HOLDS, SymptomKind.CUT),
        cure="Take http-response wait-for-body out for streams: it waits for the whole answer or "
        "a full buffer, and ends with 504 where its time is over first.",
    ),
    Rule(
        when=lambda s: s.holds_chunks,
        find=unset("http-no-delay"),
        missing="option http-no-delay",
        explains=HOLDS,
        cure="Set option http-no-delay in defaults: after each chunk HAProxy tells the kernel "
        "that more is coming, which waits for a full segment or 200 ms.",
    ),
    Rule(
        when=lambda s: not s.hears_client_close,
        find=unset("abortonclose"),
        missing="option abortonclose",
        explains=CANCELS,
        cure="Set option abortonclose in defaults (a frontend's is ignored, by 2.6 a backend's "
        "too): a client's FIN is otherwise noticed only at the next writes.",
    ),
    Rule(
        when=always,
        find=lambda s: next(
            (x for x in s.statements if x.section == GLOBAL and x.begins("hard-stop-after")), None
        ),
        explains=(SymptomKind.CUT,),
        cure="Set hard-stop-after above the longest answer: a soft stop cuts streams when it ends.",
    ),
    Rule(
        when=always,
        find=line("timeout", "server"),
        missing="timeout server 600s",
        explains=(SymptomKind.CUT,),
        cure="Set timeout server above the engine's longest silence, or let the engine send "
        "comments more often; timeout tunnel does not count for SSE.",
    ),
    Rule(
        when=always,
        find=line("retry-on", among=REPEATS),
        explains=(SymptomKind.REQUEST_REPEATED,),
        cure="Set retry-on conn-failure, or add http-request disable-l7-retry if METH_POST: "
        "otherwise a POST is sent again, and an answer generated twice.",
    ),
)


def _directive(rule: Rule, settings: Settings, file: str, lines: list[str]) -> Directive | None:
    found = rule.find(settings)
    place = found or settings.find("mode", "http")
    if place is None or (found is None and not rule.missing):
        return None
    return Directive(
        file=file,
        line=place.line,
        text=lines[place.line - 1].strip() if found else rule.missing,
        explains=rule.explains,
        cure=rule.cure,
        missing=found is None,
    )


def directives(text: str, *, file: str, version: str) -> tuple[Directive, ...]:
    """The lines of a configuration that can explain a symptom, and those whose absence does.

    The first whose `explains` holds the symptom is the best guess. A missing line has the number
    of `mode http`, beside which it belongs.
    """
    settings = Settings.read(text, version)
    lines = text.split("\n")
    applying = (_directive(rule, settings, file, lines) for rule in RULES if rule.when(settings))
    return tuple(directive for directive in applying if directive is not None)
