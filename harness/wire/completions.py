"""What an event of OpenAI's streaming API carries (`/v1/completions`, `/v1/chat/completions`)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.model import EventKind
from harness.wire.sse import SseEvent

TERMINATOR = "[DONE]"
CONTENT_FIELDS = (
    "content",
    "reasoning_content",
    "reasoning",
    "tool_calls",
    "function_call",
    "refusal",
    "audio",
)

# Looked up once: an enum's members are slow to reach, and this runs for each event.
CONTENT: Final = EventKind.CONTENT
EMPTY: Final = EventKind.EMPTY
FINISH: Final = EventKind.FINISH
OTHER: Final = EventKind.OTHER

_decode = msgspec.json.Decoder().decode


def classify(event: SseEvent) -> EventKind:
    """The kind of one event; OTHER for what is not this API's."""
    if event.comment:
        return EventKind.COMMENT
    if event.event == "error":
        return EventKind.ERROR
    data = event.data
    if data.startswith(TERMINATOR) and data.strip() == TERMINATOR:
        return EventKind.TERMINATOR
    try:
        chunk = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        return OTHER
    return _of_chunk(chunk) if isinstance(chunk, dict) else OTHER


def _of_chunk(chunk: dict[str, Any]) -> EventKind:
    if chunk.get("error"):
        return EventKind.ERROR
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return OTHER
    if not choices:
        return EventKind.USAGE if chunk.get("usage") else EMPTY
    if len(choices) == 1:
        return _of_choice(choices[0])
    kinds = {_of_choice(choice) for choice in choices}
    return next(kind for kind in (CONTENT, FINISH, EMPTY, OTHER) if kind in kinds)


def _of_choice(choice: object) -> EventKind:
    if not isinstance(choice, dict):
        return OTHER
    if choice.get("text"):
        return CONTENT
    delta = choice.get("delta")
    if isinstance(delta, dict):
        for name in CONTENT_FIELDS:
            if delta.get(name):
                return CONTENT
    return FINISH if choice.get("finish_reason") else EMPTY
