"""What a completion request asks for, and the API's JSON answers. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from harness.model import Defects, StreamKey, StreamScript
from stacks.reference import schema
from stacks.reference.frames import CHAT_COMPLETIONS, CREATED
from stacks.reference.request import HttpRequest
from stacks.reference.settings import EngineSettings

_KEYED = re.compile(r"\[([^\]\s]+)\]")


class ApiError(Exception):
    """A request that is answered with an error object: `status`, the field in `param`, the API's
    `code`.
    """

    def __init__(self, message: str, *, status: int = 400, param: str = "", code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A valid completion request. `script` is what will be played: the extension's, or one made
    from `max_tokens`.
    """

    endpoint: str
    key: str
    stream: bool
    script: StreamScript
    defects: Defects
    prompt_tokens: int


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None


class _Extension(msgspec.Struct, forbid_unknown_fields=True):
    script: dict[str, Any] | None = None
    defects: dict[str, Any] | None = None


class _Body(msgspec.Struct):
    """The fields that mean something here; the API's others (temperature, …) are allowed and
    without effect.
    """

    model: str | None = None
    prompt: str | list[Any] | None = None
    messages: list[_Message] | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    ignore_eos: bool = False
    streamchaos: _Extension | None = None


def key_of(request: HttpRequest) -> str:
    """The stream's key from the header alone, "" without."""
    return request.headers.get("x-streamchaos-id", "")


def read(request: HttpRequest, settings: EngineSettings) -> Ask:
    """The completion that a request asks for; raises ApiError."""
    body = _decode(request.body)
    chat = request.path == CHAT_COMPLETIONS
    if body.model not in (None, settings.model):
        raise ApiError(
            f"The model `{body.model}` does not exist.",
            status=404,
            param="model",
            code="model_not_found",
        )
    if body.n not in (None, 1):
        raise ApiError(f"n: {body.n} choices were asked for, only 1 is given.", param="n")
    texts, prompt_tokens = _messages(body.messages) if chat else _prompt(body.prompt)
    extension = body.streamchaos or _Extension()
    try:
        script = _script(body, extension, settings)
        defects = settings.defects
        if extension.defects is not None:
            defects = schema.defects(extension.defects, "streamchaos.defects")
    except schema.SchemaError as error:
        raise ApiError(str(error), param=str(error).partition(":")[0]) from None
    return Ask(
        endpoint=request.path,
        key=key_of(request) or _key_in(texts),
        stream=body.stream,
        script=script,
        defects=defects,
        prompt_tokens=max(1, prompt_tokens),
    )


def _decode(body: bytes) -> _Body:
    try:
        return msgspec.json.decode(body, type=_Body)
    except msgspec.ValidationError as error:
        param = str(error).partition(" - at `$.")[2].rstrip("`")
        raise ApiError(str(error), param=param) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(f"The body is no JSON: {error}") from None


def _script(body: _Body, extension: _Extension, settings: EngineSettings) -> StreamScript:
    """An extension's script is played as it is; without one `max_tokens` counts the events of the
    engine's own.
    """
    script = settings.script
    tokens = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if extension.script is not None:
        script = schema.script(extension.script, "streamchaos.script")
    elif tokens is not None:
        if not 1 <= tokens <= schema.EVENT_COUNT_MAX:
            raise schema.SchemaError(f"max_tokens: {tokens} is not in 1..{schema.EVENT_COUNT_MAX}")
        script = replace(script, event_count=tokens)
    if body.stream_options is not None and body.stream_options.include_usage:
        script = replace(script, include_usage=True)
    return script


def _prompt(prompt: str | list[Any] | None) -> tuple[list[str], int]:
    """Texts of a prompt and its tokens: words, or the ids of a prompt that is given as ids."""
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return [prompt], len(prompt.split())
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return [], len(prompt)
    raise ApiError("prompt: one text, or the ids of one, is needed.", param="prompt")


def _messages(messages: list[_Message] | None) -> tuple[list[str], int]:
    if not messages:
        raise ApiError("messages: at least one is needed.", param="messages")
    texts: list[str] = []
    for message in messages:
        if isinstance(message.content, list):
            texts.extend(str(part.get("text", "")) for part in message.content)
        else:
            texts.append(message.content or "")
    return texts, sum(len(text.split()) for text in texts)


def _key_in(texts: list[str]) -> str:
    """The key that a text begins with, in brackets: it outlives gateways that drop headers."""
    for text in texts:
        match = _KEYED.match(text)
        if match and StreamKey.parse(match[1]):
            return match[1]
    return ""


def error_body(error: ApiError) -> bytes:
    """The API's error object."""
    kind = "invalid_request_error" if error.status < 500 else "internal_error"
    told = {
        "message": str(error),
        "type": kind,
        "param": error.param or None,
        "code": error.code or None,
    }
    return msgspec.json.encode({"error": told})


def models_body(settings: EngineSettings) -> bytes:
    """The list of the one model."""
    model = {
        "id": settings.model,
        "object": "model",
        "created": CREATED,
        "owned_by": "streamchaos",
        "max_model_len": settings.num_blocks * settings.block_tokens,
    }
    return msgspec.json.encode({"object": "list", "data": [model]})
