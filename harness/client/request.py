"""The request of one stream: OpenAI's API over HTTP/1.1, with the stream's key in each place where
it can survive.

The key goes into `X-Streamchaos-Id` and `X-Request-Id`, and as a unique prefix into the prompt,
which gateways that drop headers pass on and which defeats accidental prefix-cache hits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from harness.model import StreamKey

CHAT_ENDPOINT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """What to ask for. `extension` is the body's field `streamchaos`, which the reference engine
    reads."""

    endpoint: str
    model: str
    max_tokens: int
    accept_encoding: str = ""
    api_key: str = ""
    extension: Mapping[str, object] | None = None

    def encode(self, key: StreamKey, host: str) -> bytes:
        """Head and body as they go on the wire."""
        body = msgspec.json.encode(self._body(f"[{key}] Once upon a time"))
        lines = [
            f"POST {self.endpoint} HTTP/1.1",
            f"Host: {host}",
            "User-Agent: streamchaos",
            "Accept: text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"X-Streamchaos-Id: {key}",
            f"X-Request-Id: {key}",
        ]
        if self.accept_encoding:
            lines.append(f"Accept-Encoding: {self.accept_encoding}")
        if self.api_key:
            lines.append(f"Authorization: Bearer {self.api_key}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    def _body(self, prompt: str) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self.model,
            "stream": True,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
        }
        if self.endpoint == CHAT_ENDPOINT:
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        if self.extension is not None:
            body["streamchaos"] = self.extension
        return body
