"""The pane with the experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.tui.presenters.spec_view import spec_lines, spec_path, spec_value
from blis_tui.tui.widgets.lines import LinesPane

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.tui.presenters.lines import Line
    from blis_tui.tui.view import View


class SpecPane(LinesPane):
    """The resolved experiment, each value with where it comes from."""

    FOLLOWS_SELECTION = False

    _document: Sequence[str] = ()
    _shown: tuple[int, Sequence[Line]] = (0, ())

    def set_document(self, lines: Iterable[str]) -> None:
        """Show a document, as ``blis-tui spec resolve`` prints it."""
        self._document = [line.rstrip("\n") for line in lines]
        self._shown = (0, ())
        self.refresh_view()

    def lines(self, view: View, width: int) -> Sequence[Line]:  # noqa: ARG002  (the same at every position)
        """Present the document; again only when the width changes."""
        if self._shown[0] != width:
            self._shown = (width, spec_lines(self._document, width))
        return self._shown[1]

    def selected_value(self) -> str:
        """The value on the line of the cursor."""
        return spec_value(self._document[int(self._key)]) if self._key else ""

    def selected_path(self) -> str:
        """Path of that value, as for ``--set``."""
        return spec_path(self._document, int(self._key)) if self._key else ""
