"""Which line is blamed for what, per version and configuration; and how the text is read."""

from __future__ import annotations

import pytest

from harness.errors import PlanError
from harness.model import PLACEHOLDER, Directive, Node, SymptomKind
from stacks.haproxy.configuration import Settings, statements, words_of
from stacks.haproxy.directives import RULES, directives
from stacks.haproxy.node import render

VERSIONS = ("2.8.25", "2.6.12")
EVERY_LINE = (
    "no option http-no-delay",
    "no option abortonclose  # deaf",
    "timeout server 2s",
    "retry-on all-retryable-errors",
)
EVERYWHERE = Node(
    kind="haproxy",
    lines=EVERY_LINE,
    server_lines=("http-response wait-for-body time 1s",),
    global_lines=("hard-stop-after 1s",),
)


def blame(text: str, version: str, symptom: SymptomKind) -> Directive | None:
    """The directive that blame takes for this symptom, or None."""
    found = directives(text, file="haproxy.cfg", version=version)
    return next((d for d in found if symptom in d.explains), None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("node", [Node(kind="haproxy"), EVERYWHERE], ids=["bare", "everywhere"])
def test_directives_of_any_variant_point_at_their_lines(version: str, node: Node) -> None:
    """The file's line is the directive's text; a missing one is not there, but `mode http` is."""
    text = render(node)
    file_lines = [line.strip() for line in text.split("\n")]
    found = directives(text, file="haproxy.cfg", version=version)
    assert found
    for directive in found:
        here = file_lines[directive.line - 1]
        if directive.missing:
            assert directive.text not in file_lines
            assert here == "mode http"
        else:
            assert here == directive.text
        assert directive.cure.endswith(".")


def test_directives_of_all_lines_use_every_rule() -> None:
    """No rule is dead."""
    assert len(directives(render(EVERYWHERE), file="f", version="2.8.25")) == len(RULES)


@pytest.mark.parametrize(
    ("version", "lines", "server_lines", "tls", "blamed"),
    [
        ("2.8.25", (), (), False, "option http-no-delay"),
        ("2.6.12", (), (), False, "option http-no-delay"),
        ("2.8.25", (), (), True, "option http-no-delay"),
        ("2.6.12", (), (), True, ""),
        ("2.8.25", ("option http-no-delay",), (), True, ""),
        ("2.8.25", (), ("option http-no-delay",), False, ""),
        ("2.8.25", ("option http-no-delay",), ("no option http-no-delay",), False, ""),
        ("2.8.25", ("no option http-no-delay",), (), False, "no option http-no-delay"),
        (
            "2.8.25",
            ("option http-no-delay", "no option http-no-delay"),
            (),
            False,
            "no option http-no-delay",
        ),
        ("2.6.12", ("# option http-no-delay",), (), False, "option http-no-delay"),
    ],
)
def test_hold_is_blamed_on_the_option_where_neither_side_has_it(
    version: str, lines: tuple[str, ...], server_lines: tuple[str, ...], tls: bool, blamed: str
) -> None:
    """One side's option is enough, the last line counts, and 2.6 over TLS does not hold."""
    text = render(Node(kind="haproxy", lines=lines, server_lines=server_lines, tls=tls))
    for symptom in (SymptomKind.HELD, SymptomKind.COALESCED):
        found = blame(text, version, symptom)
        assert (found.text if found else "") == blamed
        assert found is None or found.missing is blamed.startswith("option")


@pytest.mark.parametrize(("version", "blamed"), [("2.8.25", ""), ("2.6.12", "option abortonclose")])
def test_late_cancel_with_the_option_in_the_backend_depends_on_the_version(
    version: str, blamed: str
) -> None:
    """2.6 ignores abortonclose in the backend alone, and that line is the one to move."""
    text = render(Node(kind="haproxy")) + "    option abortonclose\n"
    found = blame(text, version, SymptomKind.CANCEL_LATE)
    assert (found.text if found else "") == blamed
    assert found is None or not found.missing


@pytest.mark.parametrize("version", VERSIONS)
def test_late_cancel_with_the_option_in_the_frontend_is_blamed_on_it(version: str) -> None:
    """Both versions ignore it there: the line is the one to move."""
    text = render(Node(kind="haproxy", server_lines=("option abortonclose",)))
    found = blame(text, version, SymptomKind.CANCEL_LATE)
    assert found
    assert (found.text, found.missing) == ("option abortonclose", False)


@pytest.mark.parametrize("version", VERSIONS)
def test_late_cancel_is_blamed_only_without_the_option_in_defaults(version: str) -> None:
    """As shipped the line is missing; in defaults it counts for both sides."""
    bare = blame(render(Node(kind="haproxy")), version, SymptomKind.CANCEL_LATE)
    assert bare
    assert bare.missing
    cured = render(Node(kind="haproxy", lines=("option abortonclose",)))
    assert blame(cured, version, SymptomKind.CANCEL_LATE) is None


def test_cut_is_blamed_on_the_timer_in_force() -> None:
    """The stack's own timer stands after the shipped one and is the one that is named."""
    text = render(Node(kind="haproxy", lines=("timeout server 2s",)))
    found = blame(text, "2.8.25", SymptomKind.CUT)
    assert found
    assert found.text == "timeout server 2s"


def test_cut_by_waiting_for_the_body_is_blamed_on_it() -> None:
    """It answers 504 itself, long before the shipped timer."""
    line = "http-response wait-for-body time 1s"
    text = render(Node(kind="haproxy", server_lines=(line,)))
    for symptom in (SymptomKind.HELD, SymptomKind.CUT):
        found = blame(text, "2.8.25", symptom)
        assert found
        assert found.text == line


def test_repeat_by_retry_of_connections_is_not_blamed() -> None:
    """A request that never reached the engine may be sent again."""
    text = render(Node(kind="haproxy", lines=("retry-on conn-failure",)))
    assert blame(text, "2.8.25", SymptomKind.REQUEST_REPEATED) is None


@pytest.mark.parametrize("tls", [False, True])
def test_render_puts_lines_into_their_sections(tls: bool) -> None:
    """Lines to defaults, the listener's to the frontend, the top's to global."""
    node = Node(
        kind="haproxy",
        lines=("timeout queue 1s",),
        server_lines=("maxconn 7",),
        global_lines=("nbthread 1",),
        tls=tls,
    )
    found = {s.words: s.section for s in statements(render(node))}
    assert found["timeout", "queue", "1s"] == "defaults"
    assert found["maxconn", "7"] == "frontend"
    assert found["nbthread", "1"] == "global"
    bare = {s.words for s in statements(render(Node(kind="haproxy", tls=tls)))}
    assert len(found) - len(bare) == 3
    names = {match[1] for match in PLACEHOLDER.finditer(render(node))}
    assert names == {"listen", "port.http", "upstream"} | ({"dir"} if tls else set())
    assert Settings.read(render(node), "2.8").tls is tls


@pytest.mark.parametrize(
    "line", ["backend other", "  defaults", "retries 1\nretries 2", "listen x"]
)
def test_render_of_a_line_that_opens_a_section_is_refused(line: str) -> None:
    """What follows it would belong elsewhere."""
    with pytest.raises(PlanError, match="is not one line of a section"):
        render(Node(kind="haproxy", lines=(line,)))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", ()),
        ("  # all of it", ()),
        ("option x#tail", ("option", "x")),
        (r"a\ b c\#d", ("a b", "c#d")),
        ("log-format '{\"a b\"}' # x", ("log-format", '{"a b"}')),
        (r'a "it\'s \" b" c', ("a", "it's \" b", "c")),
        ('http-request deny if { path "/a # b" }', (
            "http-request", "deny", "if", "{", "path", "/a # b", "}",
        )),
    ],
)  # fmt: skip
def test_words_of_a_line_are_those_that_haproxy_reads(line: str, words: tuple[str, ...]) -> None:
    """Quotes and backslashes keep blanks and hashes; a bare hash ends the line."""
    assert words_of(line) == words
