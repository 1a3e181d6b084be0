"""The readers of nginx's logs, by example and by fuzz."""

from __future__ import annotations

import json
import string

from hypothesis import given
from hypothesis import strategies as st

from harness.model import Lane, StreamKey
from stacks.nginx.access import VARIABLES, log_format, read_access, read_errors

KEY = StreamKey(run="r1", scenario="warstory-1/bare", lane=Lane.THROUGH, n=3)


def access_line(key: str, status: int = 200) -> str:
    """A line as nginx writes it by our format."""
    return json.dumps(dict.fromkeys(VARIABLES, "-") | {"key": key, "status": str(status)}) + "\n"


KEYS = st.text(alphabet=string.ascii_letters + '._-\u2028\x85 "\\', max_size=20)


def test_access_of_one_line_gives_its_stream() -> None:
    """The key and status are parsed, and all variables are kept in their order."""
    (entry,) = read_access(access_line(str(KEY), 502), "edge")
    assert (entry.node, StreamKey.parse(entry.key), entry.status) == ("edge", KEY, 502)
    assert [name for name, _ in entry.fields] == list(VARIABLES)


def test_access_format_logs_one_request_header() -> None:
    """Of the request's headers only the stream's key is logged, so no secret can be."""
    headers = [part for part in log_format().split("$") if part.startswith(("http_", "sent_http_"))]
    assert len(headers) == 1
    assert headers[0].startswith("http_x_streamchaos_id")
    assert not {"request", "args", "request_uri", "query_string"} & set(VARIABLES.values())


@given(st.lists(KEYS, max_size=4), st.data())
def test_access_cut_off_anywhere_gives_the_whole_lines(
    keys: list[str], data: st.DataObject
) -> None:
    """A log that ends in the middle of a line gives exactly the lines before it."""
    text = "".join(access_line(key) for key in keys)
    cut = data.draw(st.integers(0, len(text)))
    # A line whose newline alone is cut off is whole.
    whole = (text[:cut] + "\n").count("}\n")
    assert [e.key for e in read_access(text[:cut], "edge")] == keys[:whole]


@given(st.text(max_size=200) | st.text(alphabet='{}[]":,0123456789status\n', max_size=200))
def test_access_of_any_text_raises_nothing(text: str) -> None:
    """Lines that are not ours are left out, whatever they are."""
    whole = read_access(text + "\n" + access_line("k"), "edge")
    assert whole[:-1] == read_access(text, "edge")
    assert whole[-1].key == "k"


def test_access_of_foreign_json_is_left_out() -> None:
    """JSON that is not an object with a status of three digits is no exchange."""
    for line in ("1", "[]", "null", "{}", '{"status": "x"}', '{"status": 99999}', "[" * 10_000):
        assert read_access(line, "edge") == ()


ERROR_LOG = """\
2026/01/02 03:04:05 [notice] 12#12: signal process started
2026/01/02 03:04:05 [warn] 12#12: *7 an upstream response is buffered to a temporary file
2026/01/02 03:04:06 [error] 12#12: *9 connect() failed (111: Connection refused), \
request: "GET /v1?api_key=sk-1 HTTP/1.1", upstream: "http://127.0.0.1:1/v1?api_key=sk-1"
nginx: [emerg] bind() to 127.0.0.1:80 failed (98: Address already in use)
2026/01/02 03:04:07 [aler"""


def test_errors_of_a_log_are_those_from_warn_upward() -> None:
    """Times, numbers of processes and connections, queries, notices and a cut-off line are gone."""
    assert read_errors(ERROR_LOG) == (
        "warn: an upstream response is buffered to a temporary file",
        "error: connect() failed (111: Connection refused), "
        'request: "GET /v1 HTTP/1.1", upstream: "http://127.0.0.1:1/v1"',
        "emerg: bind() to 127.0.0.1:80 failed (98: Address already in use)",
    )


@given(st.text(max_size=200))
def test_errors_of_any_text_keep_the_known_line(text: str) -> None:
    """Noise around a line neither raises nor hides it."""
    line = "2026/01/02 03:04:05 [crit] 1#1: *2 bad"
    assert "crit: bad" in read_errors(f"{text}\n{line}\n{text}")
