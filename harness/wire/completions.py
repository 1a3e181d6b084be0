"""What an event of OpenAI's streaming API carries (`/v1/completions`, `/v1/chat/completions`)."""

from __future__ import annotations

from typing import Any

import msgspec

from harness.model import EventKind
from harness.wire.sse import SseEvent

TERMINATOR = "[DONE]"
CONTENT_FIELDS = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call")


def classify(event: SseEvent) -> EventKind:
    """The kind of one event; OTHER for what is not this API's."""
    if event.comment:
        return EventKind.COMMENT
    if event.event == "error":
        return EventKind.ERROR
    if event.data == TERMINATOR:
        return EventKind.TERMINATOR
    try:
        chunk = msgspec.json.decode(event.data)
    except msgspec.DecodeError:
        return EventKind.OTHER
    return _of_chunk(chunk) if isinstance(chunk, dict) else EventKind.OTHER


def _of_chunk(chunk: dict[str, Any]) -> EventKind:
    if chunk.get("error"):
        return EventKind.ERROR
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return EventKind.OTHER
    if not choices:
        return EventKind.USAGE if chunk.get("usage") else EventKind.EMPTY
    kinds = [_of_choice(choice) for choice in choices]
    for kind in (EventKind.CONTENT, EventKind.FINISH, EventKind.EMPTY):
        if kind in kinds:
            return kind
    return EventKind.OTHER


def _of_choice(choice: object) -> EventKind:
    if not isinstance(choice, dict):
        return EventKind.OTHER
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    if choice.get("text") or any(delta.get(name) for name in CONTENT_FIELDS):
        return EventKind.CONTENT
    return EventKind.FINISH if choice.get("finish_reason") else EventKind.EMPTY
