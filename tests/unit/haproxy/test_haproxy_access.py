"""The readers of HAProxy's logs, by example and by fuzz."""

from __future__ import annotations

import json
import re
import string

from hypothesis import given
from hypothesis import strategies as st

from harness.model import Lane, StreamKey
from stacks.haproxy.access import VARIABLES, log_format, read_access, read_errors

KEY = StreamKey(run="r1", scenario="haproxy/bare", lane=Lane.THROUGH, n=3)
KEYS = st.text(alphabet=string.ascii_letters + '._-\u2028\x85 "\\', max_size=20)


def access_line(key: str, status: int = 200) -> str:
    """A line as HAProxy writes it by our format."""
    return json.dumps(dict.fromkeys(VARIABLES, "-") | {"key": key, "status": str(status)}) + "\n"


def test_access_of_one_line_gives_its_stream() -> None:
    """The key and status are parsed, and all variables are kept in their order."""
    (entry,) = read_access(access_line(str(KEY), 502), "edge")
    assert (entry.node, StreamKey.parse(entry.key), entry.status) == ("edge", KEY, 502)
    assert [name for name, _ in entry.fields] == list(VARIABLES)


def test_access_without_an_answer_is_kept() -> None:
    """HAProxy's status of a client that left before there was one is -1."""
    (entry,) = read_access(access_line(str(KEY), -1), "edge")
    assert entry.status == -1


def test_access_format_logs_one_request_header_and_no_path() -> None:
    """Of the request only the stream's key is logged, so no secret can be."""
    assert re.findall(r"%\[(.*?)\]", log_format()) == ["capture.req.hdr(0),json(utf8s)"]
    assert not {"%r", "%{+Q}r", "%HU", "%HQ", "%HP", "%hr", "%hs"} & set(VARIABLES.values())


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
    """JSON that is not an object with a status of ours is no exchange."""
    for line in ("1", "[]", "null", "{}", '{"status": "x"}', '{"status": 99999}', "[" * 10_000):
        assert read_access(line, "edge") == ()


MESSAGES = """\
[NOTICE]   (10438) : haproxy version is 2.8.25-5cf5d0683
[WARNING]  (10438) : config : missing timeouts for frontend 'f'
   | a continuation
[ALERT]    (10438) : Binding [a.cfg:10] for frontend f: cannot bind socket (Address already in use)
[WARNING]  (10438) : sent to /v1?api_key=sk-1 twice
[ALER"""


def test_errors_are_those_from_warning_upward() -> None:
    """Numbers of processes, queries, notices and a cut-off line are gone."""
    assert read_errors(MESSAGES) == (
        "warning: config : missing timeouts for frontend 'f'",
        "alert: Binding [a.cfg:10] for frontend f: cannot bind socket (Address already in use)",
        "warning: sent to /v1 twice",
    )


@given(st.text(max_size=200))
def test_errors_of_any_text_keep_the_known_line(text: str) -> None:
    """Noise around a line neither raises nor hides it."""
    line = "[EMERG]    (7) : backend engine has no server available!"
    assert "emerg: backend engine has no server available!" in read_errors(
        f"{text}\n{line}\n{text}"
    )
