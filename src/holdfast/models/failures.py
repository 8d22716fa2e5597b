"""What went wrong in a call of a model, in our words: one kind, one sentence, one hint, whatever provider it came from.

A window that is too small for the answer that is asked for is no window that is too small for the request: `max_tokens` says so, where the
provider's figures do (`refusals.py`), and nothing is learned from it (S10).

An answer may be flawed as well (`flaw_of`): cut at a limit, or one sentence over and over (A15). What is cut is no answer, however well its
form fits: a grammar that closes the quotation marks at the two hundredth character makes valid JSON out of half a sentence.

`typed` looks at LangChain's typed errors first, then at the status that nearly every client library carries, then at the words that
gateways use for a full window. The provider's text is shown shortened and without secrets; for a refused key it is not shown at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from holdfast.errors import CallFailed, CallUnavailable, ContextOverflow, FailureKind, HoldfastError
from holdfast.models.refusals import refusal_in
from holdfast.redaction import HIDDEN, redact_text
from holdfast.text.likeness import repetition

_RETRYABLE: frozenset[FailureKind] = frozenset({"rate_limit", "server", "connection", "timeout"})
_LONGEST_WAIT = 60.0
"""A server that asks to wait longer than these seconds is not waited for."""
_SHORTEST_SECRET = 6
"""Keys such as `none`, given to servers that want none, are words and stay."""


_BY_NAME: dict[str, FailureKind] = {
    "ModelAuthenticationError": "authentication",
    "ModelPermissionDeniedError": "permission",
    "ModelNotFoundError": "not_found",
    "ModelRateLimitError": "rate_limit",
    "ModelAPIError": "server",
    "ModelTimeoutError": "timeout",
    "ModelConnectionError": "connection",
    "ContextOverflowError": "overflow",
    "ModelInvalidRequestError": "invalid",
}
"""The typed errors of langchain-core. Looked up by name along the ancestry of a class, so that nothing has to be imported for it."""

_BY_STATUS: dict[int, FailureKind] = {
    400: "invalid",
    401: "authentication",
    402: "quota",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "server",
    413: "overflow",
    422: "invalid",
    429: "rate_limit",
    529: "server",
}

_OVERFLOW_WORDS = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context window",
    "context size",
    "context length",
    "context limit",
    "maximum prompt length",
    "`max_new_tokens` must be",
    "prompt is too long",
    "input is too long",
    "too many input tokens",
    "maximum number of tokens",
    "reduce the length",
    "contextwindowexceeded",
)
_QUOTA_WORDS = ("insufficient_quota", "exceeded your current quota", "credit balance", "billing")
_WORDS: Mapping[FailureKind, tuple[str, ...]] = {
    "quota": _QUOTA_WORDS,
    "rate_limit": ("rate_limit", "rate limit", "too many requests", "throttl"),
    "authentication": ("invalid_api_key", "authentication_error", "unauthorized"),
    "timeout": ("timeout", "timed out"),
    "server": ("overloaded", "server_error", "server error", "api_error", "internal", "unavailable", "capacity", "upstream", "try again"),
}
"""What servers say of an error in the middle of a stream, which began with 200 and has no status."""

_ENDS = (".", "!", "?", "…")
_SENTENCES: dict[FailureKind, tuple[str, str]] = {
    "authentication": ("the provider refused the key", "Check `api_key` of the model, or the variable that it names."),
    "permission": ("the key may not use this model", "Check what the account may use, or configure another model."),
    "not_found": (
        "the server does not know the model or the address",
        "Check `model:` and `base_url:`; most OpenAI-compatible addresses end in /v1.",
    ),
    "quota": ("the account has no credit or quota left", "Top the account up, or configure another model under `fallbacks:`."),
    "rate_limit": ("the provider's rate limit is reached", "Wait a little, raise `max_retries:`, or name other models under `fallbacks:`."),
    "server": ("the provider failed", "Try again later, or name other models under `fallbacks:`."),
    "connection": ("the server cannot be reached", "Check that it runs, `base_url:`, and the network."),
    "timeout": ("no answer came in time", "Raise `timeout:` of the model, or check that the server is alive."),
    "overflow": ("the request is larger than the model's window", "Set `max_input_tokens:` of the model to its real window."),
    "max_tokens": (
        "the answer that is asked for (`max_tokens`) does not fit the model's window beside the request",
        "Ask for a shorter one: lower `max_tokens` of the request, or of the model in config.yaml.",
    ),
    "invalid": ("the provider rejected the request", "Check the settings of the model: keys that are not ours go to it as they are."),
    "garbled": ("what came is no answer", "Check that `base_url:` is the address of a model's API, and not of a page or a proxy."),
    "broken_off": ("the answer broke off before its end", "Ask again. The server closed the connection without saying why it stopped."),
    "unknown": ("the call failed", "Try `holdfast models test` to see which kind of call works."),
}


def kind_of(error: BaseException) -> FailureKind | None:
    """Which kind of model failure this is, or None when it does not look like one."""
    if isinstance(error, CallFailed):
        return error.kind
    if isinstance(error, HoldfastError):
        return None
    text = " ".join([str(error), *(str(getattr(error, name, "")) for name in ("code", "type", "body"))]).lower()
    found = _kind_by_type(error) or _kind_by_status(error)
    told = _status(error) is not None or _said(error) is not None  # by a server, not by somebody's own code
    if found in {"invalid", "overflow", "server", None} and told and any(words in text for words in _OVERFLOW_WORDS):
        found = "overflow"
    if found == "overflow":
        return "max_tokens" if refusal_in(error).is_hopeless else "overflow"
    if found == "rate_limit" and any(words in text for words in _QUOTA_WORDS):
        return "quota"
    return found or _kind_of_plain(error) or (_kind_by_words(text) if told else None) or _kind_by_place(error)


def is_retryable(error: BaseException) -> bool:
    """Whether asking the same again may help, soon enough to wait for."""
    return kind_of(error) in _RETRYABLE and (retry_after(error) or 0.0) <= _LONGEST_WAIT


def retry_after(error: BaseException) -> float | None:
    """The seconds that the server asked to wait, if it did."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit  # type: ignore[index]  # whatever mapping the client library has
        except (KeyError, TypeError, ValueError):
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def typed(error: BaseException, *, model: str | None = None, secrets: Sequence[str] = ()) -> HoldfastError:
    """The error in our words. One of ours is returned as it is; what no rule knows becomes a `CallFailed` of kind `unknown`.

    `secrets` are values that must not be repeated, whatever form the provider's text gives them.
    """
    if isinstance(error, HoldfastError):
        return error
    kind = kind_of(error) or "unknown"
    sentence, hint = _SENTENCES[kind]
    status = _status(error)
    who = f"model {model!r}: " if model else "model: "
    where = f" at {address}" if kind in {"connection", "timeout"} and (address := _address(error)) else ""
    asked = retry_after(error) if kind == "rate_limit" else None
    told = "" if kind in {"authentication", "connection", "timeout", "garbled"} else _excerpt(error, secrets)
    message = "".join(
        (
            f"{who}{sentence}{where}",
            f" ({status})" if status else "",
            f"; it asks to wait {asked:g} s" if asked else "",
            f": {told}{'' if told.endswith(_ENDS) else '.'}" if told else ".",
        )
    )
    made = ContextOverflow if kind == "overflow" else CallFailed if kind in {"invalid", "max_tokens", "unknown"} else CallUnavailable
    again = is_retryable(error)
    return made(message, kind=kind, model=model, hint=hint, status=status, retryable=again, retry_after=retry_after(error))


def cause_of(error: BaseException, secrets: Sequence[str] = ()) -> BaseException | None:
    """What may stand behind our error in a traceback: nothing, when the provider's text might show a key."""
    if kind_of(error) in {"authentication", "permission"}:
        return None
    return error if all(without_secrets(str(one), secrets) == str(one) for one in _chain(error)) else None


def _kind_by_type(error: BaseException) -> FailureKind | None:
    for ancestor in type(error).__mro__:
        if ancestor.__module__.startswith("langchain_core") and ancestor.__name__ in _BY_NAME:
            return _BY_NAME[ancestor.__name__]
    return None


def _kind_by_status(error: BaseException) -> FailureKind | None:
    status = _status(error)
    if status is None:
        return None
    return _BY_STATUS.get(status) or ("server" if status >= 500 else "invalid")


def _kind_by_words(text: str) -> FailureKind:
    return next((kind for kind, words in _WORDS.items() if any(word in text for word in words)), "unknown")


def _said(error: BaseException) -> Mapping[str, Any] | None:
    """The error as a server wrote it into an answer: what the client library keeps of it, or the whole of it as the argument."""
    body = getattr(error, "body", None)
    for found in (body, error.args[0] if error.args else None):
        if isinstance(found, Mapping) and (found.get("message") or found.get("error")):
            inner = found.get("error")
            return inner if isinstance(inner, Mapping) else found
    return None


_NOT_REACHED = {"TransportError", "NetworkError", "APIConnectionError", "ConnectError", "RemoteProtocolError"}


def _kind_of_plain(error: BaseException) -> FailureKind | None:
    """Errors without a status: the socket's own, and those of the HTTP libraries, which share their names but no ancestor."""
    names = {ancestor.__name__ for ancestor in type(error).__mro__}
    if isinstance(error, TimeoutError) or names & {"TimeoutException", "APITimeoutError", "Timeout", "ReadTimeout"}:
        return "timeout"
    if isinstance(error, ConnectionError) or names & _NOT_REACHED:
        return "connection"
    return None


_CLIENTS = frozenset(
    (
        *("openai", "anthropic", "google", "mistralai", "groq", "cohere", "ollama", "together", "fireworks", "huggingface_hub"),
        *("botocore", "boto3", "ibm_watsonx_ai", "databricks", "xai_sdk", "replicate", "writerai", "zhipuai", "dashscope"),
        *("httpx", "httpx2", "httpcore", "httpcore2", "httpx_sse", "h11", "h2", "requests", "urllib3", "aiohttp", "grpc", "websockets"),
        *("json", "pydantic"),
    )
)
"""Packages that ask a server and read what it sent, besides those of LangChain."""


def _kind_by_place(error: BaseException) -> FailureKind | None:
    """What a client library raises that has no other sign: `garbled` where it could not read what a server sent (a page instead of an
    answer, no choices in it), else `unknown`.

    Whatever our own code, or a model class of the user's own, raises is none: then the last frame is theirs. Nor is a wrong argument.
    """
    if not isinstance(error, Exception) or "keyword argument" in str(error):
        return None
    if any(ancestor.__module__.partition(".")[0] in _CLIENTS for ancestor in type(error).__mro__) and not isinstance(error, ValueError):
        return "unknown"
    places, trace = [], error.__traceback__
    while trace is not None:
        places.append(str(trace.tb_frame.f_globals.get("__name__", "")))
        trace = trace.tb_next
    asked = "langchain_core.language_models.chat_models" in places
    last = places[-1].partition(".")[0] if places else ""
    if not asked or not (last.startswith("langchain") or last in _CLIENTS):
        return None
    return "garbled" if isinstance(error, ValueError | TypeError | LookupError | AttributeError) else "unknown"


def _status(error: BaseException) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "http_status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
                return value
    code = (_said(error) or {}).get("code")
    number = int(code) if isinstance(code, str) and code.isdigit() else code
    return number if isinstance(number, int) and not isinstance(number, bool) and 400 <= number < 600 else None


def _address(error: BaseException) -> str | None:
    """Where the request went: scheme, host and port, without path, user and query."""
    for one in _chain(error):
        try:
            url = one.request.url  # type: ignore[attr-defined]  # httpx raises when there was no request
        except (AttributeError, RuntimeError):
            continue
        host = getattr(url, "host", None)
        if host:
            port = getattr(url, "port", None)
            return f"{url.scheme}://{host}{f':{port}' if port else ''}"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _excerpt(error: BaseException, secrets: Sequence[str], limit: int = 240) -> str:
    """What the provider said, on one line, shortened, without secrets."""
    said = (_said(error) or {}).get("message")
    text = said if isinstance(said, str) and said else f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    line = " ".join(without_secrets(text, secrets).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """The text without these values and without anything that has the form of a secret."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    return redact_text(text)


REPEATED = "repetition"
"""The reason for which an answer ended that was stopped because it repeated itself."""
_CUT = "was cut at the limit of its tokens"
_LIMITS = (
    *("length", "max_length", "model_length", "reason_max_len", "limit", "token_limit", "incomplete"),
    *("max_tokens", "max_output_tokens", "max_new_tokens", "max_completion_tokens", "model_context_window_exceeded"),
)
"""What providers call an end by the token limit."""
_FILTERS = (
    *("content_filter", "content_filtered", "refusal", "safety", "image_safety", "recitation", "blocklist", "prohibited_content", "spii"),
    *("guardrail_intervened", "error_toxic", "sensitive"),
)
"""What providers call an end by a filter, or by a model that refuses."""
Ending = Literal["cut", "filtered", "empty"]


def broken_off(message: object, model: object) -> bool:
    """Whether a streamed answer ended without its end: the server left in the middle, and the client library took that for all of it.

    Known of OpenAI's protocol, whose last chunk has the reason why it ends, or what was used.
    """
    if not any(kind.__name__ == "BaseChatOpenAI" for kind in type(model).__mro__):
        return False
    said = _ending(message)
    if not said:  # our own words in the place of an answer: a model's say at least who wrote them
        return False
    whole = any(said.get(name) for name in ("finish_reason", "stop_reason", "done_reason", "status"))  # `status`: of the responses API
    return not whole and "token_usage" not in said and not getattr(message, "usage_metadata", None)  # unstreamed answers have the former


def cut_by_client(error: Exception) -> str | None:
    """The flaw of an answer that the provider's client did not even give us, because it was cut; None for every other error."""
    return _CUT if type(error).__name__ == "LengthFinishReasonError" else None  # of openai, which need not be installed


def is_cut(message: object) -> bool:
    """Whether an answer ended because its token limit was reached, as OpenAI, Anthropic, Google, Mistral, Cohere and Ollama say it."""
    return _ended_by(message, _LIMITS)


def ending_of(message: object) -> Ending | None:
    """How an answer ended that is no whole one: cut at its token limit, held back by a filter, or without a word. None for all others.

    One that calls tools is none of these: a call that was cut is told to the model (`agents/middleware/broken_calls.py`).
    """
    if getattr(message, "tool_calls", None):
        return None
    extras, content = getattr(message, "additional_kwargs", None), getattr(message, "content", "")
    kinds = {block.get("type") for block in content if isinstance(block, Mapping)} if isinstance(content, list) else set()
    if _ended_by(message, _FILTERS) or "refusal" in kinds or (isinstance(extras, Mapping) and extras.get("refusal")):
        return "filtered"
    if is_cut(message):
        return "cut"
    return None if str(getattr(message, "text", "")).strip() or kinds - _WORDS_AND_THOUGHTS else "empty"


def _ended_by(message: object, ends: Sequence[str]) -> bool:
    said = _ending(message)
    details = said.get("incomplete_details")
    told = [said.get(name) for name in ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")]
    told.append(details.get("reason") if isinstance(details, Mapping) else None)
    # LangChain joins what a server says twice in one stream: "lengthlength"
    return any(isinstance(one, str) and one and any(not one.lower().replace(end, "") for end in ends) for one in told)


_WORDS_AND_THOUGHTS = {"text", "thinking", "reasoning", "reasoning_content", "redacted_thinking"}


def _ending(message: object) -> Mapping[str, Any]:
    """What the provider said of how the answer ended."""
    said = getattr(message, "response_metadata", None)
    return said if isinstance(said, Mapping) else {}


def flaw_of(message: object) -> str | None:
    """Why what a model said is no whole answer, in words that follow "the answer"; None when it is one."""
    if is_cut(message):
        return _CUT
    if _ending(message).get("finish_reason") == REPEATED or repetition(str(getattr(message, "text", ""))) is not None:
        return "says the same over and over"
    return None
