"""The oracle: every SSE frame of an answer, from its script and its key alone.

Who knows the script, the key, the endpoint and the model knows the answer byte for byte: ids are
derived from the key, `created` is fixed, the sizes are drawn from the script's seed. One content
event stands for one token.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from harness import seeds
from harness.model import StreamScript

COMPLETIONS = "/v1/completions"
CHAT_COMPLETIONS = "/v1/chat/completions"

TERMINATOR = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
CREATED = 1_700_000_000
"""Fixed, so that an answer does not depend on when it was given."""

_MARK = "<text>"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """All frames of a streamed answer in the order in which they leave.

    `prelude` is the chat API's role delta (empty tuple elsewhere), `events` the content, `finish`
    the frame with the finish reason, `usage` at most one frame. `text_end` counts the bytes of a
    content frame behind its text.
    """

    prelude: tuple[bytes, ...]
    events: tuple[bytes, ...]
    finish: bytes
    usage: tuple[bytes, ...]
    terminator: bytes
    text_end: int


@dataclass(frozen=True, slots=True)
class _Grammar:
    """How one endpoint writes its frames."""

    id: str
    model: str
    chat: bool

    def frame(self, choices: list[object], **more: object) -> bytes:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return b"data: %s\n\n" % self._json(kind, choices, more)

    def body(self, choice: dict[str, object], usage: dict[str, int]) -> bytes:
        kind = "chat.completion" if self.chat else "text_completion"
        return self._json(kind, [choice], {"usage": usage})

    def _json(self, kind: str, choices: list[object], more: dict[str, object]) -> bytes:
        head = {"id": self.id, "object": kind, "created": CREATED, "model": self.model}
        return msgspec.json.encode(head | {"choices": choices} | more)

    def choice(self, text: str, finish_reason: str | None) -> dict[str, object]:
        said = {"delta": {"content": text} if text else {}} if self.chat else {"text": text}
        return {"index": 0} | said | {"logprobs": None, "finish_reason": finish_reason}

    def content(self) -> tuple[bytes, bytes]:
        """What stands before and behind the text of a content frame."""
        before, _, behind = self.frame([self.choice(_MARK, None)]).rpartition(_MARK.encode())
        return before, behind

    def prelude(self) -> bytes:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return self.frame([choice])


def _grammar(script: StreamScript, key: str, endpoint: str, model: str) -> _Grammar:
    chat = endpoint == CHAT_COMPLETIONS
    identity = seeds.derive(script.seed, key, "id")
    return _Grammar(f"{'chatcmpl' if chat else 'cmpl'}-{identity:016x}", model, chat)


def _texts(script: StreamScript, key: str, envelope_bytes: int) -> list[str]:
    """Texts that give each frame its size. Each begins with its number, so that no two events of a
    stream are equal.
    """
    rng = seeds.generator(script.seed, key)
    low = 1 - script.event_bytes_spread
    width = 2 * script.event_bytes_spread
    fill = _LETTERS * (2 * script.event_bytes // len(_LETTERS) + 2)
    texts = []
    for index in range(script.event_count):
        size = round(script.event_bytes * (low + width * rng.random())) - envelope_bytes
        label = f" {index} "
        start = index % len(_LETTERS)
        texts.append(label + fill[start : start + max(1, size - len(label))])
    return texts


def _usage(script: StreamScript, prompt_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + script.event_count,
        "completion_tokens": script.event_count,
    }


def render(
    script: StreamScript, *, key: str, endpoint: str, model: str, prompt_tokens: int = 1
) -> Rendered:
    """The frames of a streamed answer. Content frames are `script.event_bytes` ± spread long, never
    below the envelope (about 150 bytes, 180 for chat) and a few characters. `prompt_tokens` is
    only told in the usage frame.
    """
    grammar = _grammar(script, key, endpoint, model)
    before, behind = grammar.content()
    texts = _texts(script, key, len(before) + len(behind))
    usage = grammar.frame([], usage=_usage(script, prompt_tokens)) if script.include_usage else b""
    return Rendered(
        prelude=(grammar.prelude(),) if grammar.chat else (),
        events=tuple([before + text.encode() + behind for text in texts]),
        finish=grammar.frame([grammar.choice("", "length")]),
        usage=(usage,) if usage else (),
        terminator=TERMINATOR,
        text_end=len(behind),
    )


def render_body(
    script: StreamScript, *, key: str, endpoint: str, model: str, prompt_tokens: int = 1
) -> bytes:
    """The JSON body of the same answer when it is not streamed."""
    grammar = _grammar(script, key, endpoint, model)
    text = "".join(_texts(script, key, sum(map(len, grammar.content()))))
    choice = grammar.choice(text, "length")
    if grammar.chat:
        del choice["delta"]
        choice["message"] = {"role": "assistant", "content": text}
    return grammar.body(choice, _usage(script, prompt_tokens))


def altered(frame: bytes, text_end: int) -> bytes:
    """A content frame with the case of its text's last letter changed: the same length, one byte
    different.
    """
    place = len(frame) - text_end - 1
    return frame[:place] + bytes((frame[place] ^ 0x20,)) + frame[place + 1 :]


def error_frame(message: str) -> bytes:
    """The event with which an engine tells, after its 200, that it failed."""
    error = {"message": message, "type": "internal_error", "param": None, "code": 500}
    return b"data: %s\n\n" % msgspec.json.encode({"error": error})


def digest(frame: bytes) -> str:
    """SHA-256 (hex) of a frame without the line ends that close it, as a reader sees the event's
    bytes.
    """
    return hashlib.sha256(frame.rstrip(b"\n")).hexdigest()


def digests(rendered: Rendered) -> tuple[str, ...]:
    """The digest of each content event, in order: what an unharmed stream must show."""
    return tuple(digest(frame) for frame in rendered.events)
