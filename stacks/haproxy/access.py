"""What HAProxy's logs say: a JSON object per exchange, in a format of ours, and its messages.

No header but X-Streamchaos-Id is logged, no path and no query: nothing that can be a secret.
"""

from __future__ import annotations

import json
import re

from harness.model import AccessEntry

# In the order of the line; HAProxy's manual §8.2.4. Times are in ms, -1 where it never came so far.
VARIABLES = {
    "key": "%[capture.req.hdr(0),json(utf8s)]",
    "status": "%ST",
    "termination_state": "%ts",
    "bytes_sent": "%B",
    "request_ms": "%TR",
    "queue_ms": "%Tw",
    "connect_ms": "%Tc",
    "response_ms": "%Tr",
    "active_ms": "%Ta",
    "retries": "%rc",
    "upstream_addr": "%si:%sp",
    "server_protocol": "%HV",
    "accepted_ms": "%Ts%ms",
}
# -1 where the client left, or was refused, before there was an answer.
STATUS = re.compile(r"-1|[0-9]{3}")
MESSAGE = re.compile(r"\[(WARNING|ALERT|EMERG)\] +\(\d+\) : (.+)")
QUERY = re.compile(r"\?[^\s\"]*")


def log_format() -> str:
    """The argument of `log-format`, with the blanks and quotes that it needs."""
    fields = ",".join(f'"{field}":"{variable}"' for field, variable in VARIABLES.items())
    return f"'{{{fields}}}'"


def _entry(line: str, node: str) -> AccessEntry | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not STATUS.fullmatch(str(record.get("status"))):
        return None
    fields = tuple((name, str(record.get(name, ""))) for name in VARIABLES)
    return AccessEntry(
        node=node, key=str(record.get("key", "")), status=int(record["status"]), fields=fields
    )


def read_access(text: str, node: str) -> tuple[AccessEntry, ...]:
    """The exchanges of an access log, in order of their ends; without lines cut off or not ours."""
    entries = (_entry(line, node) for line in text.split("\n"))
    return tuple(entry for entry in entries if entry is not None)


def read_errors(text: str) -> tuple[str, ...]:
    """Messages of standard error from warning upward: `level: message`, without ids, queries."""
    found = (MESSAGE.fullmatch(line) for line in text.split("\n"))
    return tuple(f"{match[1].lower()}: {QUERY.sub('', match[2])}" for match in found if match)
