"""Reading nginx's language: words, blocks, lines, inheritance."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stacks.nginx.configuration import Settings, statements


def test_statements_of_nested_text_have_lines_and_context() -> None:
    """Comments, quotes, braces in words, several statements of a line are read as nginx does."""
    text = """# a; b {
http {  # c;
    log_format x '{"a;b": "$c"}'; gzip
        on;
    server { location ~ "^/a{2}$" { set $y ${z}; } }
}
"""
    found = [(s.name, s.arguments, s.line, s.context) for s in statements(text)]
    assert found == [
        ("http", (), 2, ()),
        ("log_format", ("x", '{"a;b": "$c"}'), 3, ("http",)),
        ("gzip", ("on",), 3, ("http",)),
        ("server", (), 5, ("http",)),
        ("location", ("~", "^/a{2}$"), 5, ("http", "server")),
        ("set", ("$y", "${z}"), 5, ("http", "server", "location ~ ^/a{2}$")),
    ]


def test_settings_of_inner_level_replace_the_outer() -> None:
    """A directive of the location hides its namesakes above; another location's does not count."""
    text = """http { gzip on; proxy_set_header A 1; proxy_set_header B 2;
    server { gzip off;
        location /other { proxy_buffering off; }
        location / { proxy_pass http://x; proxy_set_header C 3; } } }"""
    settings = Settings.read(text, "1.31.3")
    assert settings.value("gzip", "") == "off"
    assert settings.buffering
    assert settings.find("proxy_set_header", "A") is None
    assert settings.find("proxy_set_header", "c") is not None


@given(st.text(alphabet="ab \n;{}#\"'\\$@", max_size=60))
def test_statements_of_any_text_lie_within_it(text: str) -> None:
    """Whatever the text, reading ends, and each statement's line exists and rises."""
    lines = [s.line for s in statements(text)]
    assert lines == sorted(lines)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines)
