"""The experiment pane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.tui.presenters.spec_view import spec_lines, spec_path, spec_value
from blis_tui.tui.widgets.lines import LinesPane

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.tui.presenters.lines import Line
    from blis_tui.tui.view import View


class SpecPane(LinesPane):
    """The resolved experiment, with the origin of each value."""

    FOLLOWS_SELECTION = False

    _document: Sequence[str] = ()
    _shown: tuple[int, Sequence[Line]] = (0, ())

    def set_document(self, lines: Iterable[str]) -> None:
        """Show a document in the format of ``blis-tui spec resolve``."""
        self._document = [line.rstrip("\n") for line in lines]
        self._shown = (0, ())
        self.refresh_view()

    def lines(self, view: View, width: int) -> Sequence[Line]:  # noqa: ARG002  (the same at every position)
        """Return the document's lines, cached per width."""
        if self._shown[0] != width:
            self._shown = (width, spec_lines(self._document, width))
        return self._shown[1]

    def selected_value(self) -> str:
        """Return the value on the cursor's line."""
        return spec_value(self._document[int(self._key)]) if self._key else ""

    def selected_path(self) -> str:
        """Return the path of that value for ``--set``."""
        return spec_path(self._document, int(self._key)) if self._key else ""
