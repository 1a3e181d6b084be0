"""Which line is blamed for what, per version and configuration."""

from __future__ import annotations

import pytest

from harness.model import Directive, Node, SymptomKind
from stacks.nginx.directives import RULES, directives
from stacks.nginx.node import render
from stacks.nginx.versions import Package

PACKAGES = {"1.31.3": Package.WHEEL, "1.22.1": Package.DEBIAN}
GZIP = ("gzip on;", "gzip_types text/event-stream;")
EVERY_LINE = (
    *GZIP,
    "proxy_http_version 1.0;",
    "proxy_buffer_size 32k; proxy_buffers 8 32k;",
    "proxy_ignore_headers X-Accel-Buffering;",
    "proxy_set_header X-Accel-Buffering no;",
    "add_header X-Accel-Buffering no;",
    "chunked_transfer_encoding off;",
    "proxy_ignore_client_abort on;",
    "proxy_store on;",
    "proxy_cache zone;",
    "proxy_read_timeout 2s;",
    "proxy_next_upstream error timeout non_idempotent;",
    "sub_filter a b;",
)


def blamed(version: str, symptom: SymptomKind, *lines: str, tls: bool = False) -> Directive | None:
    """The directive that blame takes for this symptom, or None."""
    text = render(Node(kind="nginx", lines=lines, tls=tls), PACKAGES[version], root=False)
    found = directives(text, file="nginx.conf", version=version)
    return next((d for d in found if symptom in d.explains), None)


@pytest.mark.parametrize("version", PACKAGES)
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("lines", [(), EVERY_LINE, ("proxy_buffering off;",)])
def test_directives_of_any_variant_point_at_their_lines(
    version: str, tls: bool, lines: tuple[str, ...]
) -> None:
    """The file's line is the directive's text; a missing one is not there, but proxy_pass is."""
    text = render(Node(kind="nginx", lines=lines, tls=tls), PACKAGES[version], root=True)
    file_lines = [line.strip() for line in text.split("\n")]
    found = directives(text, file="nginx.conf", version=version)
    assert found
    for directive in found:
        here = file_lines[directive.line - 1]
        if directive.missing:
            assert directive.text not in file_lines
            assert here.startswith("proxy_pass ")
        else:
            assert here == directive.text
        assert directive.cure.endswith(".")
        assert directive.explains


@pytest.mark.parametrize(
    ("version", "lines", "tls", "text", "missing"),
    [
        ("1.22.1", (), False, "proxy_buffering off;", True),
        ("1.22.1", ("proxy_buffering on;",), False, "proxy_buffering on;", False),
        ("1.22.1", ("proxy_http_version 1.1;",), False, "proxy_buffering off;", True),
        ("1.31.3", (), False, "proxy_buffering off;", True),
        ("1.31.3", ("proxy_http_version 1.0;",), False, "proxy_http_version 1.0;", False),
        ("1.22.1", ("proxy_buffers 8 32k;",), False, "proxy_buffers 8 32k;", False),
        ("1.31.3", ("proxy_buffers 8 32k;",), False, "proxy_buffering off;", True),
        ("1.22.1", ("proxy_buffers 4 1k;",), False, "proxy_buffering off;", True),
        ("1.22.1", (), True, "listen @{listen}:@{port.http} ssl;", False),
        ("1.31.3", (), True, "listen @{listen}:@{port.http} ssl;", False),
        ("1.31.3", GZIP, False, GZIP[1], False),
        ("1.31.3", GZIP[1:], False, "proxy_buffering off;", True),
        ("1.22.1", GZIP[1:], False, GZIP[1], False),
        (
            "1.22.1",
            ("proxy_set_header X-Accel-Buffering no;",),
            False,
            "proxy_set_header X-Accel-Buffering no;",
            False,
        ),
        (
            "1.22.1",
            ("proxy_ignore_headers X-Accel-Buffering;",),
            False,
            "proxy_ignore_headers X-Accel-Buffering;",
            False,
        ),
    ],
)
def test_directives_for_held_name_the_decisive_line(
    version: str, lines: tuple[str, ...], tls: bool, text: str, missing: bool
) -> None:
    """The whole configuration and the version decide which line holds and clumps events."""
    for symptom in (SymptomKind.HELD, SymptomKind.COALESCED):
        found = blamed(version, symptom, *lines, tls=tls)
        assert found is not None
        assert (found.text, found.missing) == (text, missing)


def test_directives_of_default_tell_the_upstream_version() -> None:
    """The same missing line has another cure before 1.29.7, when the upstream speaks HTTP/1.0."""
    text = render(Node(kind="nginx"), Package.WHEEL, root=False)
    for version, told in (("1.22.1", True), ("1.29.6", True), ("1.29.7", False), ("1.31.3", False)):
        first = directives(text, file="nginx.conf", version=version)[0]
        assert ("HTTP/1.0" in first.cure) is told


@pytest.mark.parametrize("version", PACKAGES)
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("lines", [(), GZIP, EVERY_LINE])
def test_directives_without_buffering_blame_nothing_for_held(
    version: str, tls: bool, lines: tuple[str, ...]
) -> None:
    """With buffering off nginx is innocent of holding, whatever else is set."""
    for symptom in (SymptomKind.HELD, SymptomKind.COALESCED):
        assert blamed(version, symptom, *lines, "proxy_buffering off;", tls=tls) is None


@pytest.mark.parametrize(
    ("line", "symptom"),
    [
        ("proxy_ignore_client_abort on;", SymptomKind.CANCEL_LATE),
        ("proxy_ignore_client_abort on;", SymptomKind.CANCEL_LOST),
        ("proxy_store on;", SymptomKind.CANCEL_LOST),
        ("proxy_cache zone;", SymptomKind.CANCEL_LOST),
        ("proxy_next_upstream error non_idempotent;", SymptomKind.REQUEST_REPEATED),
        ("chunked_transfer_encoding off;", SymptomKind.TRUNCATED_SILENTLY),
        ("proxy_http_version 1.0;", SymptomKind.TRUNCATED_SILENTLY),
        ("proxy_read_timeout 2s;", SymptomKind.CUT),
        ("sub_filter a b;", SymptomKind.ALTERED),
    ],
)
def test_directives_for_other_symptoms_follow_their_line(line: str, symptom: SymptomKind) -> None:
    """The line explains its symptom; without it nothing of the file's own does."""
    found, without = blamed("1.31.3", symptom, line), blamed("1.31.3", symptom)
    assert found is not None
    assert (found.text, found.missing) == (line, False)
    assert without is None or without.missing


@pytest.mark.parametrize("line", ["proxy_store off;", "proxy_cache off;"])
def test_directives_of_a_line_that_is_off_explain_nothing(line: str) -> None:
    """Storing and caching are blamed only when on."""
    assert blamed("1.31.3", SymptomKind.CANCEL_LOST, line) is None


def test_directives_of_inner_nginx_name_the_swallowed_header_last() -> None:
    """The missing proxy_pass_header bites the next hop, so a rule of the own node comes first."""
    for version in PACKAGES:
        text = render(Node(kind="nginx"), PACKAGES[version], root=False)
        holding = [
            d.text
            for d in directives(text, file="nginx.conf", version=version)
            if SymptomKind.HELD in d.explains
        ]
        assert holding == ["proxy_buffering off;", "proxy_pass_header X-Accel-Buffering;"]
    passing = ("proxy_pass_header X-Accel-Buffering;",)
    text = render(Node(kind="nginx", lines=passing), Package.WHEEL, root=False)
    found = directives(text, file="nginx.conf", version="1.31.3")
    assert not [d for d in found if "proxy_pass_header" in d.text]


def test_rules_can_each_be_blamed() -> None:
    """No rule is dead: each gives a directive in some configuration."""
    texts = [
        render(Node(kind="nginx", tls=tls, lines=lines), package, root=False)
        + "worker_shutdown_timeout 1s;\n"
        for package in Package
        for tls in (False, True)
        for lines in ((), EVERY_LINE)
    ]
    cures = {
        directive.cure
        for text in texts
        for version in PACKAGES
        for directive in directives(text, file="nginx.conf", version=version)
    }
    assert {rule.cure for rule in RULES} == cures
