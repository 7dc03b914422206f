"""Admission control: may a request enter the cluster at all? It must not read output lengths (INV-9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Plug


class AdmissionPolicy(Protocol):
    """Decides about each request once, when it arrives."""

    def refusal(self, request: Request, now: int) -> str:
        """Why ``request`` is turned away at ``now`` (microseconds); empty when it may enter."""

    def state(self) -> tuple[object, ...]:
        """All it remembers, as plain values (for digests)."""


class AlwaysAdmit:
    """Everybody may enter."""

    def __init__(self, plug: Plug) -> None:
        del plug

    def refusal(self, request: Request, now: int) -> str:  # noqa: ARG002  (the protocol's signature)
        """Never."""
        return ""

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()


class RejectAll:
    """Nobody may enter; for testing what depends on it."""

    def __init__(self, plug: Plug) -> None:
        del plug

    def refusal(self, request: Request, now: int) -> str:  # noqa: ARG002  (the protocol's signature)
        """Always."""
        return "reject-all"

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()


class TokenBucket:
    """A bucket of prompt tokens that refills at a constant rate and starts full; each request costs its prompt."""

    def __init__(self, plug: Plug) -> None:
        self._capacity = plug.number("capacity_tokens")
        self._refill_per_s = plug.number("refill_tokens_per_s")
        self._tokens = self._capacity
        self._filled_us = 0

    def refusal(self, request: Request, now: int) -> str:
        """``insufficient tokens`` when the bucket holds less than the prompt."""
        refill = (now - self._filled_us) * self._refill_per_s / 1e6
        self._filled_us = now
        self._tokens = min(self._capacity, self._tokens + refill)
        if request.input_tokens > self._tokens:
            return "insufficient tokens"
        self._tokens -= request.input_tokens
        return ""

    def state(self) -> tuple[object, ...]:
        """The bucket's content and when it was last filled."""
        return (self._tokens, self._filled_us)


ADMISSION: Final[dict[str, Callable[[Plug], AdmissionPolicy]]] = {
    "always-admit": AlwaysAdmit,
    "reject-all": RejectAll,
    "token-bucket": TokenBucket,
}


def create_admission(plug: Plug) -> AdmissionPolicy:
    """The admission policy of that name. Raises PolicyError when there is none."""
    try:
        make = ADMISSION[plug.kind]
    except KeyError:
        raise PolicyError(f"no admission policy `{plug.kind}`", help=f"known: {', '.join(ADMISSION)}") from None
    return make(plug)
