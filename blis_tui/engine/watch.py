"""What instances tell the control plane about their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import mypyc_attr
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from blis_tui.engine.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class Watch(Kept):
    """What the control plane wants to hear of instances; without it they keep to themselves.

    Attributes:
        early: whether a step's results are seen from its start on.
        early_transfers: whether the transfer of KV blocks starts with the step that completes the prefill.
        departed: requests that no longer count, until who watches takes note of them.
        prefilled: requests whose prompt has been computed for another instance, likewise.
        touched: the board's list of instances to which something has happened.
    """

    __slots__ = ("departed", "early", "early_transfers", "prefilled", "touched")

    def __init__(self, *, early: bool, early_transfers: bool = False, touched: dict[int, None] | None = None) -> None:
        self.touched: dict[int, None] = {} if touched is None else touched
        self.early = early
        self.early_transfers = early_transfers
        self.departed: list[Request] = []
        self.prefilled: list[Request] = []
