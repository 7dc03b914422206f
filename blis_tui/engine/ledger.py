"""Who keeps the books: the engine tells a ledger about each request once, at the end of its life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.request import Request


class Ledger(Protocol):
    """Keeps what is known about requests after the engine has forgotten them."""

    def close(self, request: Request, ttft_us: int = -1, e2e_us: int = -1) -> None:
        """``request`` has reached a terminal state: all its fields are final.

        ``ttft_us`` and ``e2e_us`` are what its client measured, -1 where there was no first or last token.
        """

    @property
    def contradictions(self) -> Sequence[str]:
        """Requests whose times contradict each other, in words."""

    def __len__(self) -> int:
        """How many requests have ended."""

    def fingerprint(self) -> str:
        """A digest of all books (two ledgers that agree on it agree on everything)."""
