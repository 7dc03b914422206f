"""Colours: our own two themes in addition to Textual's.

Every colour has one meaning on all screens: ``success`` completed or good, ``warning`` waiting or in need of attention,
``error`` preempted, dropped or failed, ``accent`` the cursor and the current item, ``primary`` decode, ``secondary``
prefill, ``text-muted`` unimportant. No meaning depends on colour alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.theme import Theme

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT: Final = "blis-dark"
FEW_COLOURS: Final = "ansi-dark"
"""For terminals with sixteen colours, which would round the other themes to greys."""

DARK: Final = Theme(
    name=DEFAULT,
    dark=True,
    primary="#7fb0f5",
    secondary="#c5a5f2",
    accent="#4fd1c5",
    success="#83cf8c",
    warning="#e6b450",
    error="#f6928a",
    foreground="#dde2ea",
    background="#12161c",
    surface="#171c23",
    panel="#222932",
    variables={
        "text-muted": "#a0aab8",
        "block-cursor-foreground": "#f4f7fb",
        "block-cursor-background": "#1d3b54",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-foreground": "#dde2ea",
        "block-cursor-blurred-background": "#242c36",
        "border": "#4fd1c5",
        "border-blurred": "#3b4552",
        "footer-key-foreground": "#4fd1c5",
        "input-selection-background": "#4fd1c5 35%",
        "scrollbar": "#3b4552",
        "scrollbar-hover": "#56657a",
        "scrollbar-active": "#4fd1c5",
        "scrollbar-background": "#171c23",
        "scrollbar-background-hover": "#171c23",
        "scrollbar-background-active": "#171c23",
        "scrollbar-corner-color": "#171c23",
    },
)

LIGHT: Final = Theme(
    name="blis-light",
    dark=False,
    primary="#1d5fae",
    secondary="#7a3ea8",
    accent="#00695f",
    success="#226b2e",
    warning="#835300",
    error="#b12a22",
    foreground="#1c2228",
    background="#fcfcfa",
    surface="#f5f6f4",
    panel="#e8ebe9",
    variables={
        "text-muted": "#525c67",
        "block-cursor-foreground": "#10151a",
        "block-cursor-background": "#cfe3ee",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-foreground": "#1c2228",
        "block-cursor-blurred-background": "#e3e8ea",
        "border": "#00695f",
        "border-blurred": "#b9c1c6",
        "footer-key-foreground": "#00695f",
        "input-selection-background": "#00695f 25%",
        "scrollbar": "#b9c1c6",
        "scrollbar-hover": "#93a0a8",
        "scrollbar-active": "#00695f",
        "scrollbar-background": "#f5f6f4",
        "scrollbar-background-hover": "#f5f6f4",
        "scrollbar-background-active": "#f5f6f4",
        "scrollbar-corner-color": "#f5f6f4",
    },
)

THEMES: Final = (DARK, LIGHT)


def default_theme(environment: Mapping[str, str]) -> str:
    """Return the theme for a terminal, given its environment variables."""
    terminal = environment.get("TERM", "")
    few = terminal in ("linux", "ansi", "screen", "vt100", "vt220", "xterm") or terminal.endswith("-16color")
    return FEW_COLOURS if few and not environment.get("COLORTERM") else DEFAULT
