"""Fields of a request's body, and how a request is refused."""

from __future__ import annotations

from reprlib import repr as brief
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_NAME: Final = 1000
_LEAST_BYTES, _BYTES_PER_TOKEN = 8 << 20, 16


def most_bytes(longest: int) -> int:
    """Return how large a body may be: room for a prompt of ``longest`` token ids, and for images, which are ignored."""
    return max(_LEAST_BYTES, _BYTES_PER_TOKEN * longest)


class RefusedError(Exception):
    """A rejected request: an HTTP status, the reason, and which parameter is wrong, if one is."""

    def __init__(self, status: int, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.parameter = parameter


class TooLongError(RefusedError):
    """A prompt that leaves no room for an answer; of one that is not read to its end, the length is not known."""

    def __init__(self, longest: int, parameter: str, length: int | None = None) -> None:
        has = "more" if length is None else length
        super().__init__(
            400, f"This model's maximum context length is {longest} tokens; the prompt has {has}.", parameter
        )


def body_of(document: object) -> Mapping[str, object]:
    """Return a body as its fields.

    Raises:
        RefusedError: it has none.
    """
    if not isinstance(document, dict):
        raise RefusedError(400, "the body is not a JSON object")
    return document


def name_in(document: Mapping[str, object], name: str) -> str:
    """Return a short text; empty = there is none.

    Raises:
        RefusedError: it is something else.
    """
    value = document.get(name)
    if value is not None and not isinstance(value, str):
        raise RefusedError(400, f"`{name}` must be a text, got {brief(value)}", name)
    if value is not None and len(value) > _LONGEST_NAME:
        raise RefusedError(400, f"`{name}` has more than {_LONGEST_NAME} characters", name)
    return value or ""


def flag_in(document: Mapping[str, object], name: str) -> bool:
    """Return a flag, which is false unless it is set.

    Raises:
        RefusedError: it is something else.
    """
    value = document.get(name)
    if value is not None and not isinstance(value, bool):
        raise RefusedError(400, f"`{name}` must be true or false, got {brief(value)}", name)
    return value is True


def integer_in(document: Mapping[str, object], name: str, otherwise: int) -> int:
    """Return a whole number from 0.

    Raises:
        RefusedError: it is something else.
    """
    value = document.get(name)
    if value is None:
        return otherwise
    if type(value) is not int or value < 0:
        raise RefusedError(400, f"`{name}` must be a whole number, got {brief(value)}", name)
    return value


def limit_in(document: Mapping[str, object], name: str) -> int | None:
    """Return the most tokens of an answer; None = nothing is said.

    Raises:
        RefusedError: it is no number, or there would be no answer.
    """
    value = document.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise RefusedError(400, f"{name} must be at least 1, got {brief(value)}.", name)
    return value


def refuse_fields(document: Mapping[str, object], reasons: Mapping[str, str]) -> None:
    """Refuse a body that asks for what is not simulated.

    Args:
        document: the body.
        reasons: why, by parameter; nulls, false and empty values ask for nothing.

    Raises:
        RefusedError: it does.
    """
    for name, reason in reasons.items():
        if document.get(name):
            raise RefusedError(400, f"`{name}` is not simulated: {reason}", name)
