"""The configuration as shipped, per package, and where the lines of a stack end up."""

from __future__ import annotations

import pytest

from harness.errors import PlanError
from harness.model import PLACEHOLDER, Node
from stacks.nginx.configuration import Settings, statements
from stacks.nginx.node import render
from stacks.nginx.versions import Package

PLACEHOLDERS = {"dir", "port.http", "listen", "upstream", "tls_cert", "tls_key"}


@pytest.mark.parametrize("package", list(Package))
def test_render_bare_proxies_by_one_line(package: Package) -> None:
    """As shipped, the location holds proxy_pass alone, and no proxy directive is set elsewhere."""
    found = statements(render(Node(kind="nginx"), package, root=False))
    assert [s.name for s in found if s.context[-1:] == ("location /",)] == ["proxy_pass"]
    assert {s.name for s in found if s.name.startswith("proxy_")} == {
        "proxy_pass",
        "proxy_temp_path",
    }


@pytest.mark.parametrize("package", list(Package))
@pytest.mark.parametrize("tls", [False, True])
def test_render_any_variant_holds_known_placeholders(package: Package, tls: bool) -> None:
    """Only placeholders that a launcher fills in are left, and the listener's follow `tls`."""
    text = render(Node(kind="nginx", tls=tls), package, root=True)
    names = {match[1] for match in PLACEHOLDER.finditer(text)}
    assert names <= PLACEHOLDERS
    assert ("tls_cert" in names, "tls_key" in names, " ssl;" in text) == (tls, tls, tls)
    assert "[[" not in text
    assert "[%" not in text


@pytest.mark.parametrize("package", list(Package))
@pytest.mark.parametrize("root", [False, True])
def test_render_by_user_names_root_only_for_root(package: Package, root: bool) -> None:
    """`user root;` stands there only where root starts nginx; else nginx would warn about it."""
    text = render(Node(kind="nginx"), package, root=root)
    assert ("user root;" in text.splitlines()) is root


def test_render_per_package_keeps_what_it_ships() -> None:
    """Debian compresses and corks by default, upstream does not; both have one worker here."""
    stock = Settings.read(render(Node(kind="nginx"), Package.WHEEL, root=False), "1.31.3")
    debian = Settings.read(render(Node(kind="nginx"), Package.DEBIAN, root=False), "1.22.1")
    for name, of_stock, of_debian in (
        ("gzip", "off", "on"),
        ("tcp_nopush", "off", "on"),
        ("keepalive_timeout", "65", "75"),
        ("worker_processes", "1", "1"),
    ):
        default = {"gzip": "off", "tcp_nopush": "off", "keepalive_timeout": "75"}.get(name, "")
        assert (stock.value(name, default), debian.value(name, default)) == (of_stock, of_debian)


@pytest.mark.parametrize("package", list(Package))
def test_render_with_lines_puts_each_in_its_block(package: Package) -> None:
    """`lines` follow proxy_pass, `server_lines` are the server's, `global_lines` those of http."""
    node = Node(
        kind="nginx",
        lines=("proxy_buffering off;",),
        server_lines=("client_max_body_size 1m;",),
        global_lines=("gzip_types text/event-stream;",),
    )
    places = {s.name: s.context for s in statements(render(node, package, root=False))}
    assert places["proxy_buffering"] == ("http", "server", "location /")
    assert places["client_max_body_size"] == ("http", "server")
    assert places["gzip_types"] == ("http",)


def test_render_line_without_end_is_refused() -> None:
    """A line that would swallow the next one is refused by name."""
    with pytest.raises(PlanError, match="proxy_buffering off"):
        render(Node(kind="nginx", lines=("proxy_buffering off",)), Package.WHEEL, root=False)
