"""What nginx's logs say: a JSON object per exchange, in a format of ours, and the error log.

No header but X-Streamchaos-Id is logged, no query, no cookie: nothing that can be a secret.
"""

from __future__ import annotations

import json
import re

from harness.model import AccessEntry

# In the order of the line. Times are in seconds; `-` or nothing where there was none.
VARIABLES = {
    "key": "http_x_streamchaos_id",
    "status": "status",
    "bytes_sent": "bytes_sent",
    "request_time": "request_time",
    "upstream_response_time": "upstream_response_time",
    "upstream_header_time": "upstream_header_time",
    "upstream_connect_time": "upstream_connect_time",
    "upstream_addr": "upstream_addr",
    "upstream_status": "upstream_status",
    "connection": "connection",
    "connection_requests": "connection_requests",
    "server_protocol": "server_protocol",
    "msec": "msec",
}
STATUS = re.compile(r"[0-9]{3}")
ERROR_LINE = re.compile(
    r"(?:\d{4}/\d\d/\d\d \d\d:\d\d:\d\d|nginx:) \[(warn|error|crit|alert|emerg)\] "
    r"(?:\d+#\d+: )?(?:\*\d+ )?(.+)"
)
QUERY = re.compile(r"\?[^\s\"]*")


def log_format() -> str:
    """The argument of `log_format NAME escape=json`, quoted."""
    fields = ",".join(f'"{field}":"${variable}"' for field, variable in VARIABLES.items())
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
    """An error log's lines from warn upward: `level: message`, without times, ids, queries."""
    found = (ERROR_LINE.fullmatch(line) for line in text.split("\n"))
    return tuple(f"{match[1]}: {QUERY.sub('', match[2])}" for match in found if match)
