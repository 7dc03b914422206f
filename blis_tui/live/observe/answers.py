"""Parses answers: tokens with their times, the server's counts, and why the answer ended."""

from __future__ import annotations

from dataclasses import field
from json import JSONDecodeError
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.input_files import parse_foreign_json
from blis_tui.live.observe.recording import MOST_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_LONGEST_TEXT: Final = 300
"""Longer texts about an answer, or names, are cut."""
_LARGEST_TOKEN: Final = (1 << 31) - 1
_MOST_EMPTY: Final = 10_000
"""Events without tokens after which a stream is no answer."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of the server; None = not reported, or a number that no answer can have."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(slots=True)
class Answer:
    """The content of an answer.

    Attributes:
        chunks: for each chunk with tokens, its arrival in nanoseconds of ``monotonic_ns``, and its number of tokens.
        tokens: token ids, if the server reports them.
        has_token_ids: whether it does so for every chunk.
        text: the answer as text.
        usage: the server's counts.
        finish_reason: the server's reason for the end; empty = not reported.
        error: the error in the answer; empty = none.
        ended: whether the answer says that it has ended.
        merged: chunks that were read together with an earlier one of this answer, and so have its time.
    """

    chunks: list[tuple[int, int]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    has_token_ids: bool = False
    text: str = ""
    usage: Usage = Usage()
    finish_reason: str = ""
    error: str = ""
    ended: bool = False
    merged: int = 0


def read_stream(pieces: Sequence[tuple[int, bytes]]) -> Answer:
    """Return the answer in a stream of server-sent events, up to one that is not JSON; unknown ones are ignored."""
    answer = Answer()
    reader = _Reader(answer)
    latest_ns, in_piece, empty = -1, 0, 0
    for stamp_ns, payload in _events(pieces):
        if payload == _DONE:
            answer.ended = True
            continue
        tokens = reader.take(payload)
        empty += not tokens
        if empty > _MOST_EMPTY:
            answer.error = answer.error or f"the stream has more than {_MOST_EMPTY:,} events without tokens"
        if reader.broken or empty > _MOST_EMPTY:
            break
        if tokens:
            in_piece = in_piece + 1 if stamp_ns == latest_ns else 0
            answer.merged += in_piece > 0
            latest_ns = stamp_ns
            answer.chunks.append((stamp_ns, tokens))
    reader.close()
    return answer


def read_whole(body: bytes, stamp_ns: int) -> Answer:
    """Return an answer that came in one piece."""
    answer = Answer(ended=True)
    reader = _Reader(answer)
    tokens = reader.take(body)
    reported_tokens = answer.usage.completion_tokens
    if not answer.has_token_ids and reported_tokens is not None:
        tokens = reported_tokens
    if tokens:
        answer.chunks.append((stamp_ns, tokens))
    if not answer.finish_reason and not answer.error:
        answer.error = "the answer has no `choices`"
    return answer


def read_answer(
    pieces: Sequence[tuple[int, bytes]], stamp_ns: int, headers: Mapping[str, str], *, stream: bool
) -> Answer:
    """Return a received answer; if its form is not as requested, that is its error.

    Args:
        pieces: the body as it was received.
        stamp_ns: arrival of the last piece.
        headers: HTTP headers, in lower case.
        stream: whether it was requested as a stream.
    """
    encoding = headers.get("content-encoding", "")
    if encoding.lower() not in ("", "identity"):
        return Answer(error=f"the answer is compressed ({brief(encoding)}), which was not requested")
    if not stream:
        return read_whole(b"".join(piece for _, piece in pieces), stamp_ns)
    answer = read_stream(pieces)
    kind = headers.get("content-type", "")
    if not answer.chunks and not answer.error and kind.partition(";")[0].strip().lower() == "application/json":
        whole = read_whole(b"".join(piece for _, piece in pieces), stamp_ns)
        answer.error = (
            whole.error if not whole.chunks else ""
        ) or "the answer came in one piece, not as a stream of tokens"
    return answer


def error_text(body: bytes, status: int, headers: Mapping[str, str] | None = None) -> str:
    """Return the text of a refusal, with a redirect target or the time after which to retry."""
    known = headers or {}
    details = [f"{name}: {brief(known[name.lower()])}" for name in ("Location", "Retry-After") if name.lower() in known]
    return " ".join([_refusal(body, status), *([f"({', '.join(details)})"] if details else [])])


def brief(text: str) -> str:
    """Return the beginning of a text from a server."""
    return text[:_LONGEST_TEXT]


def count_of(value: object) -> int | None:
    """Return a number of tokens from a server; None = it is not one."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def _refusal(body: bytes, status: int) -> str:
    try:
        document = parse_foreign_json(body)
    except ValueError:
        document = None
    if isinstance(document, dict):
        inner = document.get("error", document)
        message = inner.get("message", inner.get("detail")) if isinstance(inner, dict) else inner
        if isinstance(message, str) and message:
            return f"HTTP {status}: {brief(message)}"
    text = " ".join(body[:_LONGEST_TEXT].decode(errors="replace").split())
    return f"HTTP {status}: {text}" if text else f"HTTP {status}"


def _events(pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield the data of each event, and the arrival of its last byte."""
    begun: list[bytes] = []
    """Pieces of an unfinished line, joined only once."""
    stamp_ns = 0
    for stamp_ns, piece in pieces:
        begun.append(piece)
        if b"\n" not in piece:
            continue
        *lines, rest = b"".join(begun).split(b"\n")
        begun = [rest]
        for line in lines:
            if line.startswith(_DATA):
                yield stamp_ns, line[len(_DATA) :].strip()
    if (rest := b"".join(begun)).startswith(_DATA):
        yield stamp_ns, rest[len(_DATA) :].strip()


class _Reader:
    """Parses events, or a whole answer.

    Attributes:
        broken: whether an event could not be parsed.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._texts: list[str] = []
        self._counted = self._seen = 0
        self._chunks = self._with_ids = 0
        self.broken = False

    def take(self, payload: bytes) -> int:
        """Parse an event and return its number of tokens."""
        answer = self._answer
        wrong = "is not a JSON object"
        try:
            event = parse_foreign_json(payload)
        except JSONDecodeError:
            event, wrong = None, "is not JSON"
        except ValueError as unreadable:
            event, wrong = None, f"cannot be read, because {unreadable}"
        if not isinstance(event, dict):
            self.broken = True
            answer.error = answer.error or f"an event {wrong}: {payload[:80].decode(errors='replace')}"
            return 0
        if (error := event.get("error")) is not None:
            message = error.get("message") if isinstance(error, dict) else error
            answer.error = brief(str(message)) or "error"
        before = self._counted
        self._take_usage(event.get("usage"))
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return 0
        tokens = self._take_choice(choices[0], before)
        self._seen += tokens
        return tokens

    def _take_choice(self, choice: Mapping[str, object], counted_before: int) -> int:
        answer = self._answer
        inner = next((choice[name] for name in ("delta", "message") if isinstance(choice.get(name), dict)), choice)
        text = _text_of(inner)
        self._texts.append(text)
        if isinstance(reason := choice.get("finish_reason"), str):
            answer.finish_reason = brief(reason)
        ids = choice.get("token_ids")
        if isinstance(ids, list) and all(type(token) is int and 0 <= token <= _LARGEST_TOKEN for token in ids):
            answer.tokens += ids
            self._chunks += bool(ids)
            self._with_ids += bool(ids)
            answer.has_token_ids = self._with_ids == self._chunks
            return len(ids)
        if self._counted > counted_before:  # the server reports the number so far
            return max(self._counted - self._seen, 0)
        self._chunks += bool(text)
        answer.has_token_ids = False
        return 1 if text else 0

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        reported = Usage(
            count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens")), count_of(cached)
        )
        self._answer.usage = reported
        self._counted = reported.completion_tokens or self._counted

    def close(self) -> None:
        """Finish the answer."""
        self._answer.text = "".join(self._texts)


def _text_of(inner: object) -> str:
    """Return the text of a choice, including reasoning."""
    if not isinstance(inner, dict):
        return ""
    parts = [inner.get(name) for name in ("reasoning_content", "reasoning", "text", "content")]
    return "".join(part for part in parts if isinstance(part, str))
