"""The line between what a control plane may know and what only an oracle knows (INV-9).

While invariants are checked after every event, admission and routing see a request through a window that has
everything but its output length; a look at that is noted and answered with the declared budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from blis_tui.engine.request import Request

HIDDEN: Final = frozenset({"output_tokens", "finish_clock"})


class RequestWindow:
    """A request without its future."""

    def __init__(self, request: Request, breaches: list[str]) -> None:
        self._request = request
        self._breaches = breaches

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):  # nothing of a request; and a copy being unpickled has no fields yet
            raise AttributeError(name)
        if name in HIDDEN:
            self._breaches.append(f"a policy read `{name}` of request {self._request.request_id}")
            return self._request.max_output_tokens
        return getattr(self._request, name)


def window(request: Request, breaches: list[str]) -> Request:
    """``request`` as the control plane may see it; what it must not look at is noted in ``breaches``."""
    return cast("Request", RequestWindow(request, breaches))


def is_foreign(policy: object) -> bool:
    """Whether a policy comes from outside this package."""
    return type(policy).__module__.partition(".")[0] != __name__.partition(".")[0]
