"""The terminal report: every field on the known report, widths, colours, progress on a real tty."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import pytest

from harness.model import Cause, Directive, Outcome, Report, Told, Verdict
from reports import terminal, words
from reports.paragraphs import repeat_command
from reports.text import plain, visible
from tests.unit.reports import samples as s

ROOT = Path(__file__).parents[3]
ESCAPE = "\x1b"


def rendered(report: Report, width: int = 80) -> str:
    """What is printed into a pipe, or on a terminal of this width without colour."""
    stream = io.StringIO()
    console = terminal.console(stream)
    console.width = width
    terminal.render(report, console)
    return stream.getvalue()


def flat(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A pseudo-terminal: `stream` is what a program writes to."""

    stream: TextIO
    master: int

    def seen(self) -> str:
        """What arrived, once the program is done writing: up to a mark that is written last."""
        self.stream.write(MARK)
        self.stream.flush()
        arrived = b""
        while not arrived.endswith(MARK.encode()):
            arrived += os.read(self.master, 1 << 16)
        return arrived.decode().removesuffix(MARK).replace("\r\n", "\n")


MARK = "\x00"


@contextmanager
def opened(columns: int = 80) -> Iterator[Terminal]:
    """A terminal of that many columns."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        with os.fdopen(slave, "w", encoding="utf-8") as stream:
            yield Terminal(stream=stream, master=master)
    finally:
        os.close(master)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person who runs the tests has set does not count."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


# ---------------------------------------------------------------------------------------- content


@pytest.mark.parametrize(
    "part",
    [
        "War story 1: nginx holds the stream",
        "seed 7, engine reference",
        "nginx 1.31.3",
        "✓ as told nginx-131-as-shipped 21 23 1 1 done",
        "✓ as told nginx-131-http10-short-answer 21 765 744 17 done",
        "✗ NOT AS TOLD nginx-122-off 21 765 744 17 done 3, reset 1",
        "? undecided nginx-131-tls 20 – – – –",
        "- skipped nginx-122-as-shipped – – – – –",
        "! harness error rst-before-the-first-event – – – – –",
        "reset: the connection was reset.",
        "because first_event_not_held is fail at nginx",
        "✗ fail: first_event_not_held (must)",
        "expected each node passes the first event on within 100 ms",
        "actual nginx held the first event until 744 ms after its arrival",
        "culprit nginx",
        "directive nginx.conf:38 lacks proxy_buffering off; (hint:",
        "cure Set proxy_buffering off in the location.",
        "evidence client, event 0 of through.0; hop1, event 17 of through.1",
        "figures hold_ms 743.6",
        "source nginx, ngx_http_proxy_module, proxy_buffering; RFC 9112 §7.1",
        "? unknown (noise): events_not_coalesced (must)",
        "settle a run on a quieter machine",
        "attempts 3, all of them kept",
        "look into chaos-results/20261201T012708Z-7/story1/nginx-122-off/attempt-1",
        "repeat pytest -m chaos -k story1/nginx-122-off --chaos-seed 7",
        "error nginx: did not get ready within 20 s its log ends with:",
        "because nginx 1.22 is not on this machine: make nginx-debian",
        "not run story1/nginx-122-as-shipped",
        "6 scenarios: 2 as told, 1 NOT AS TOLD, 1 undecided, 1 harness error, 1 skipped",
        "kept in chaos-results/20261201T012708Z-7",
        "again streamchaos warstory 1 --seed 7",
        "The harness itself failed",
    ],
)
def test_report_of_all_kinds_shows_each_field(part: str) -> None:
    """Nothing that a finding or an outcome holds is kept from the reader."""
    assert part in flat(rendered(s.KNOWN))


def test_report_leaves_out_what_does_not_matter() -> None:
    """Passes, observations and arms that came out as told have no paragraph."""
    text = rendered(s.KNOWN)
    assert "payload_identical" not in text
    assert "engine_on_schedule" not in text
    assert "proxy_http_version 1.0" not in text


def test_report_of_a_finding_told_to_fail_that_passes_shows_it() -> None:
    """A pass matters where a reason names it, and stands before the rest."""
    odd = replace(
        s.NOT_AS_TOLD,
        reasons=("payload_identical is pass; told was fail at nginx",),
        findings=(s.UNKNOWN, s.PASSED),
    )
    text = rendered(s.report(odd))
    assert 0 < text.index("✓ pass: payload_identical") < text.index("? unknown (noise)")


@pytest.mark.parametrize(
    ("proven", "directive", "text"),
    [
        (True, s.HTTP10, "nginx.conf:41 proxy_http_version 1.0; (proven: this run was green"),
        (False, s.HTTP10, "nginx.conf:41 proxy_http_version 1.0; (hint: this run has not shown"),
        (True, s.OFF_MISSING, "nginx.conf:38 lacks proxy_buffering off; (proven: this run was"),
    ],
)
def test_directive_is_told_as_proven_or_as_a_hint(
    proven: bool, directive: Directive, text: str
) -> None:
    """A line that is only suspected is never shown as the culprit that was proven."""
    odd = replace(s.NOT_AS_TOLD, findings=(s.held(directive=directive, proven=proven),))
    assert f"directive {text}" in flat(rendered(s.report(odd)))


def test_finding_that_fails_without_the_fault_says_so() -> None:
    """The configuration is to blame then, not the fault."""
    odd = replace(s.NOT_AS_TOLD, findings=(replace(s.held(), also_without_fault=True),))
    assert "without the fault it fails too" in flat(rendered(s.report(odd)))


@pytest.mark.parametrize(
    ("outcomes", "closing"),
    [
        ((), "Nothing was run."),
        ((s.AS_TOLD, s.SKIPPED), "All that ran came out as told."),
        ((s.NOT_AS_TOLD,), "Not everything came out as told."),
        ((s.UNDECIDED,), "not everything could be decided."),
        ((s.HARNESS_ERROR,), "The harness itself failed"),
    ],
)
def test_closing_line_says_how_it_came_out(outcomes: tuple[Outcome, ...], closing: str) -> None:
    """The last line is the answer."""
    assert closing in rendered(s.report(*outcomes)).splitlines()[-1]


def test_reason_of_several_skips_stands_once() -> None:
    """Twelve arms without nginx 1.22 are one paragraph."""
    skipped = [replace(s.SKIPPED, scenario=f"story1/arm-{n}") for n in range(12)]
    text = flat(rendered(s.report(*skipped)))
    assert text.count("make nginx-debian") == 1
    assert "- skipped, 12 scenarios" in text
    assert "story1/arm-0, story1/arm-1" in text


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"time_divisor": 1}, "--chaos-real-time"),
        ({"time_divisor": 5}, "--chaos-time-scale 5"),
        ({"engine": "vllm"}, "--chaos-engine vllm"),
        ({"seed": 99}, "--chaos-seed 99"),
    ],
)
def test_command_that_repeats_keeps_what_was_chosen(
    changes: dict[str, object], option: str
) -> None:
    """Seed, engine and scale are part of what is repeated; what is the default is not named."""
    report = replace(s.KNOWN, **changes)  # type: ignore[arg-type]
    assert option in repeat_command(report, "a/b")
    assert repeat_command(s.KNOWN, "a/b") == "pytest -m chaos -k a/b --chaos-seed 7"


# ----------------------------------------------------------------------------------------- layout


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_report_of_any_size_fits_its_width(count: int, width: int) -> None:
    """No line is wider, and each scenario stands in the table by its own name."""
    report = s.many(count)
    text = rendered(report, width)
    assert not [line for line in s.too_wide(text, width) if not s.is_whole(line)]
    for outcome in report.outcomes:
        assert outcome.scenario.rpartition("/")[2] in text


def test_report_of_long_names_breaks_none_of_them() -> None:
    """Ids, directives and commands stay whole, so that they can be copied."""
    text = rendered(s.report(s.LONG))
    assert s.LONG_ID in text
    assert s.LONG_DIRECTIVE.split()[-1] in text
    assert repeat_command(s.KNOWN, s.LONG_ID) in text
    for line in s.too_wide(text, 80):
        assert s.is_whole(line) or len(max(line.split(), key=len)) > 60


def test_table_with_long_names_keeps_its_columns() -> None:
    """Figures stand under their headings, below a name that does not fit."""
    lines = rendered(s.report(s.LONG, s.AS_TOLD)).splitlines()
    heading = next(line for line in lines if line.startswith("told"))
    column = heading.index("through") + len("through")
    figures = [line[column - 3 : column] for line in lines if line.endswith((" eof", " done"))]
    assert figures == ["765", " 23"]


def test_table_of_different_ends_shows_each_with_its_number() -> None:
    """Three streams that ended well do not hide the one that was reset."""
    assert words.end_text(s.NOT_AS_TOLD) == "done 3, reset 1"
    assert words.end_text(s.AS_TOLD) == "done"
    assert words.end_text(s.SKIPPED) == words.ABSENT


def test_table_explains_only_the_ends_that_are_seen() -> None:
    """A run in which all went well needs no list of bad ends."""
    assert "reset:" in rendered(s.KNOWN)
    assert not {"reset:", "done:", "eof:"} & set(rendered(s.report(s.AS_TOLD)).split())


@pytest.mark.parametrize("width", range(80, 110))
def test_name_with_hyphens_is_never_broken(width: int) -> None:
    """Half an id finds nothing."""
    ids = [f"story1/two-hops-pass-header-{n}" for n in range(12)]
    text = rendered(s.report(*(replace(s.SKIPPED, scenario=one) for one in ids)), width)
    assert {f"{one}," for one in ids[:-1]} <= set(text.split())


@pytest.mark.parametrize(
    ("value", "shown"), [(-0.3, "0"), (744.4, "744"), (float("nan"), "–"), (float("inf"), "–")]
)
def test_figure_of_any_value_is_a_whole_number_or_a_dash(value: float, shown: str) -> None:
    """What is no number is not shown as one, and nothing is minus zero."""
    assert words.number(replace(s.AS_TOLD, figures=(("hold_ms", value),)), "hold_ms") == shown


# --------------------------------------------------------------------------------- colour, safety


def test_report_in_a_pipe_has_no_escape() -> None:
    """Neither colours nor what a log holds reach a pipe as escapes."""
    text = rendered(s.KNOWN)
    assert ESCAPE not in text
    assert "\x00" not in text
    assert "\\x1b[31mbind()\\x00 failed" in text


def test_report_on_a_terminal_has_colours_and_its_width() -> None:
    """The same words, coloured, as wide as the terminal."""
    with opened(columns=120) as screen:
        console = terminal.console(screen.stream)
        terminal.render(s.KNOWN, console)
        assert console.width == 120
        assert f"{ESCAPE}[1;31m✗ NOT AS TOLD" in screen.seen()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_report_on_a_terminal_that_asks_for_none_has_no_colour(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """no-color.org: any value but an empty one; a dumb terminal cannot."""
    monkeypatch.setenv(name, value)
    with opened() as screen:
        terminal.render(s.KNOWN, terminal.console(screen.stream))
        assert ESCAPE not in screen.seen()


@pytest.mark.parametrize("colour", [True, False])
def test_colour_that_is_asked_for_overrides_the_stream(
    colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option of the command outweighs terminal and environment."""
    monkeypatch.setenv("NO_COLOR", "1" if colour else "")
    with opened() as screen:
        terminal.render(s.KNOWN, terminal.console(screen.stream, colour=colour))
        assert (ESCAPE in screen.seen()) is colour


def test_report_in_another_encoding_keeps_its_words() -> None:
    """A stream without the symbols gets ASCII ones; none of them becomes a question mark."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    terminal.render(s.report(s.AS_TOLD, s.NOT_AS_TOLD), terminal.console(stream))
    stream.flush()
    text = raw.getvalue().decode("ascii")
    assert "+ as told" in text
    assert "x NOT AS TOLD" in text


def test_text_with_brackets_is_no_markup() -> None:
    """What looks like markup of the library that prints is printed."""
    odd = replace(s.NOT_AS_TOLD, title="[red]data: [DONE][/red] :smile:")
    assert "[red]data: [DONE][/red] :smile:" in rendered(s.report(odd))


def test_text_with_controls_is_made_visible() -> None:
    """Escapes, C1 and the controls of direction are shown, tabs and newlines kept."""
    assert visible("a\x1b\x9b\u202eb\t\r\n\r") == "a\\x1b\\x9b\\u202eb\t\n\\x0d"


# --------------------------------------------------------------------------------------- progress


def test_progress_in_a_pipe_is_one_line_for_each_end() -> None:
    """A log of CI holds no status line, and nothing is said of a start."""
    stream = io.StringIO()
    progress = terminal.ProgressLines(stream)
    for outcome in s.ALL_KINDS:
        progress(outcome.scenario, None)
    assert stream.getvalue() == ""
    for outcome in s.ALL_KINDS:
        progress(outcome.scenario, outcome)
    lines = stream.getvalue().splitlines()
    assert len(lines) == len(s.ALL_KINDS)
    for line, outcome in zip(lines, s.ALL_KINDS, strict=True):
        assert line.startswith(str(words.word(outcome)))
        assert outcome.scenario in line
    assert "4.3 s" in lines[0]
    assert "(attempt 3)" in lines[3]


def test_progress_with_a_total_counts() -> None:
    """How far it is can be read off each line."""
    stream = io.StringIO()
    terminal.ProgressLines(stream, total=38)(s.AS_TOLD.scenario, s.AS_TOLD)
    assert stream.getvalue().startswith("[ 1/38] ✓ as told")


def test_progress_on_a_terminal_tells_what_runs_and_takes_it_away() -> None:
    """The status is never wider than the terminal, and is gone when nothing runs."""
    with opened(columns=50) as screen:
        progress = terminal.ProgressLines(screen.stream, colour=False)
        progress(s.AS_TOLD.scenario, None)
        progress(s.NOT_AS_TOLD.scenario, None)
        status = screen.seen().rpartition(terminal.CLEAR_LINE)[2]
        assert status.startswith("2 running: story1/nginx-131-as-shipped")
        assert len(status) < 50
        progress(s.AS_TOLD.scenario, s.AS_TOLD)
        progress(s.NOT_AS_TOLD.scenario, s.NOT_AS_TOLD)
        seen = screen.seen()
        assert "1 running: story1/nginx-122-off" in seen
        last = seen.rpartition(terminal.CLEAR_LINE)[2]
        assert last == f"✗ NOT AS TOLD      5.1 s  {s.NOT_AS_TOLD.scenario}\n"


def test_progress_that_is_cleared_leaves_an_empty_line() -> None:
    """After an interruption the shell's prompt stands alone."""
    with opened() as screen:
        progress = terminal.ProgressLines(screen.stream)
        progress(s.AS_TOLD.scenario, None)
        progress.clear()
        assert screen.seen().endswith(terminal.CLEAR_LINE)


def test_progress_of_a_skip_without_a_start_is_told() -> None:
    """A skipped scenario never starts."""
    stream = io.StringIO()
    terminal.ProgressLines(stream)(s.SKIPPED.scenario, s.SKIPPED)
    assert stream.getvalue() == f"- skipped                 {s.SKIPPED.scenario}\n"


# ----------------------------------------------------------------------------------------- README


def test_readme_explains_every_word_and_symbol() -> None:
    """Whatever a report may show, its meaning can be looked up."""
    text = (ROOT / "reports" / "README.md").read_text(encoding="utf-8")
    shown = [*words.RESULTS.values(), *words.VERDICTS.values()]
    for one in (*map(str, shown), *(f"`{e}`" for e in (*Told, *Verdict, *Cause, *words.ENDS))):
        assert f"| {one} |" in text or f"{one}," in text, one
    for short, _ in words.ENDS.values():
        assert f"| {short} |" in text


def test_plain_lines_lose_only_their_styles() -> None:
    """What JUnit holds is what the terminal shows."""
    assert plain([(("a ", "bold"), ("b  ", "")), ()]) == "a b\n\n"
