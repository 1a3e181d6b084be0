"""Which line of an nginx configuration explains which symptom: one small entry per rule.

The most specific stands first. Measured on nginx 1.22.1 and 1.31.3; the directives are those of
ngx_http_proxy_module and its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from harness.model import Directive, SymptomKind
from stacks.nginx.configuration import Settings, Statement

Find = Callable[[Settings], Statement | None]
When = Callable[[Settings], bool]

HOLDS = (SymptomKind.HELD, SymptomKind.COALESCED)
CANCELS = (SymptomKind.CANCEL_LATE, SymptomKind.CANCEL_LOST)
UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}
DEFAULT_BUFFER_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When the configuration is so, the found line explains these symptoms, or a missing one."""

    when: When
    find: Find
    explains: tuple[SymptomKind, ...]
    cure: str
    missing: str = ""


def line(name: str, *words: str) -> Find:
    """Finds the statement `name` that says any of the words."""
    return lambda settings: settings.find(name, *words)


def set_to_other_than(name: str, off: str) -> Find:
    """Finds the statement `name` unless it says `off`."""

    def find(settings: Settings) -> Statement | None:
        statement = settings.find(name)
        return None if statement and statement.says(off) else statement

    return find


def large_buffer(settings: Settings) -> Statement | None:
    """The statement that makes one buffer larger than nginx's default on any platform."""
    for name in ("proxy_buffer_size", "proxy_buffers"):
        statement = settings.find(name)
        words = statement.arguments if statement else ()
        size = re.fullmatch(r"(\d+)([km]?)", words[-1].lower()) if words else None
        if size and int(size[1]) * UNITS[size[2]] > DEFAULT_BUFFER_BYTES:
            return statement
    return None


def always(settings: Settings) -> bool:
    """For rules that one line decides."""
    return True


def buffering(settings: Settings) -> bool:
    """Answers are buffered."""
    return settings.buffering


def buffering_http10(settings: Settings) -> bool:
    """Answers are buffered and not chunked, so a buffer leaves when it is full."""
    return settings.buffering and settings.asks_http10


def buffering_http11(settings: Settings) -> bool:
    """Answers are buffered; chunks are passed on as they come, other framings are not."""
    return settings.buffering and not settings.asks_http10


def asks_http10(settings: Settings) -> bool:
    """The upstream's answer ends by closing."""
    return settings.asks_http10


def buffering_gzip(settings: Settings) -> bool:
    """Answers are buffered, and those of a listed type compressed."""
    return settings.buffering and settings.value("gzip", "off") == "on"


RULES = (
    Rule(
        when=buffering_gzip,
        find=line("gzip_types", "text/event-stream", "*"),
        explains=HOLDS,
        cure="Take text/event-stream out of gzip_types, or set proxy_buffering off in the "
        "location: with buffering on, gzip keeps the answer until it ends.",
    ),
    Rule(
        when=buffering,
        find=line("listen", "ssl"),
        explains=HOLDS,
        cure="Set proxy_buffering off in the location: with buffering on, an HTTP/1.1 answer over "
        "TLS leaves in records of ssl_buffer_size (16 KB).",
    ),
    Rule(
        when=buffering_http10,
        find=line("proxy_http_version", "1.0"),
        explains=HOLDS,
        cure="Set proxy_http_version 1.1, or proxy_buffering off: an HTTP/1.0 answer is not "
        "chunked, and nginx passes it on by full buffers.",
    ),
    Rule(
        when=buffering_http10,
        find=large_buffer,
        explains=HOLDS,
        cure="Set proxy_buffering off in the location: with an HTTP/1.0 upstream nothing leaves "
        "before a buffer is full, and a larger one only fills later.",
    ),
    Rule(
        when=buffering,
        find=line("proxy_ignore_headers", "X-Accel-Buffering"),
        explains=HOLDS,
        cure="Take X-Accel-Buffering out of proxy_ignore_headers, so that the engine's header "
        "counts, or set proxy_buffering off in the location.",
    ),
    Rule(
        when=buffering,
        find=line("proxy_set_header", "X-Accel-Buffering"),
        explains=HOLDS,
        cure="Replace it by proxy_buffering off: this line puts the header on the request, where "
        "it does nothing; only the engine's answer can carry it.",
    ),
    Rule(
        when=buffering,
        find=line("add_header", "X-Accel-Buffering"),
        explains=HOLDS,
        cure="Replace it by proxy_buffering off: this line puts the header on the answer to the "
        "client, where it does nothing for this nginx.",
    ),
    Rule(
        when=buffering_http10,
        find=line("proxy_buffering"),
        missing="proxy_buffering off;",
        explains=HOLDS,
        cure="Set proxy_buffering off in the location, or proxy_http_version 1.1: this nginx asks "
        "its upstream in HTTP/1.0, and the unchunked answer is passed on by full buffers.",
    ),
    Rule(
        when=buffering_http11,
        find=line("proxy_buffering"),
        missing="proxy_buffering off;",
        explains=HOLDS,
        cure="Set proxy_buffering off in the location, or let the engine answer chunked: an "
        "answer that ends by closing or by its length is passed on by full buffers.",
    ),
    Rule(
        # Bites the next nginx toward the client. Stays behind the rules above, so that this node is
        # never blamed by it for what it holds itself.
        when=lambda s: s.buffering and s.find("proxy_pass_header", "X-Accel-Buffering") is None,
        find=lambda s: None,
        missing="proxy_pass_header X-Accel-Buffering;",
        explains=HOLDS,
        cure="Set proxy_pass_header X-Accel-Buffering here: nginx keeps the engine's header to "
        "itself, and the next nginx toward the client buffers.",
    ),
    Rule(
        when=asks_http10,
        find=line("proxy_http_version", "1.0"),
        missing="proxy_http_version 1.1;",
        explains=(SymptomKind.TRUNCATED_SILENTLY,),
        cure="Set proxy_http_version 1.1: an HTTP/1.0 answer ends by closing, so nginx completes "
        "the answer of an engine that died.",
    ),
    Rule(
        when=always,
        find=line("chunked_transfer_encoding", "off"),
        explains=(SymptomKind.TRUNCATED_SILENTLY,),
        cure="Take chunked_transfer_encoding off out: without chunks the client cannot tell the "
        "end of an answer from a cut.",
    ),
    Rule(
        when=always,
        find=line("proxy_ignore_client_abort", "on"),
        explains=CANCELS,
        cure="Set proxy_ignore_client_abort off: nginx otherwise learns that the client left only "
        "when it writes.",
    ),
    Rule(
        when=always,
        find=set_to_other_than("proxy_store", "off"),
        explains=CANCELS,
        cure="Set proxy_store off for streams: nginx reads an answer that it stores to its end.",
    ),
    Rule(
        when=always,
        find=set_to_other_than("proxy_cache", "off"),
        explains=CANCELS,
        cure="Set proxy_cache off for streams: nginx reads an answer that it may cache to its end.",
    ),
    Rule(
        when=always,
        find=line("proxy_read_timeout"),
        missing="proxy_read_timeout 600s;",
        explains=(SymptomKind.CUT,),
        cure="Set proxy_read_timeout above the engine's longest silence (60 s by default), or let "
        "the engine send comments more often.",
    ),
    Rule(
        when=always,
        find=line("worker_shutdown_timeout"),
        explains=(SymptomKind.CUT,),
        cure="Set worker_shutdown_timeout above the longest answer: a reload cuts streams when it "
        "ends.",
    ),
    Rule(
        when=always,
        find=line("proxy_next_upstream", "non_idempotent"),
        explains=(SymptomKind.REQUEST_REPEATED,),
        cure="Take non_idempotent out of proxy_next_upstream: with it a POST is sent again, and "
        "an answer generated twice.",
    ),
    Rule(
        when=always,
        find=line("sub_filter"),
        explains=(SymptomKind.ALTERED,),
        cure="Take sub_filter out of the streaming location: it rewrites answers.",
    ),
)


def _directive(rule: Rule, settings: Settings, file: str, lines: list[str]) -> Directive | None:
    found = rule.find(settings)
    place = found or settings.find("proxy_pass")
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
    of `proxy_pass`, beside which it belongs.
    """
    settings = Settings.read(text, version)
    lines = text.split("\n")
    applying = (_directive(rule, settings, file, lines) for rule in RULES if rule.when(settings))
    return tuple(directive for directive in applying if directive is not None)
