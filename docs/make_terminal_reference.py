"""The pages of ``docs/reference/terminal/``, made from the tables of actions and of breakpoint conditions.

``make docs`` writes them; a test fails when they are stale.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import blis_tui.engine.stopped  # noqa: F401  (kinds of records are known once they are imported)
from blis_tui.cluster.state import FIGURES
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.output.result_files import write_tree
from blis_tui.results.conditions.breakpoints import FIRST, KEYWORDS
from blis_tui.results.conditions.vocabulary import EVENT_NUMBERS, EVENT_TEXTS, PHASE, REQUEST_FIGURES
from blis_tui.tui.actions import ACTIONS, shown_key

_NOTE: Final = "<!-- Made by `make docs` from the tables in the code. Do not edit. -->\n"
_KEYS: Final = """\
Every action has a name by which its keys can be changed: write lines such as `step.event: n, j` into `keys.yaml` in
the configuration folder (`~/.config/blis-tui` on Linux; `BLIS_TUI_CONFIG_DIR` overrides it). `h` (and `?`, where
it does not ask why) shows the keys of a screen, `ctrl+p` finds an action by its title."""
_REQUESTS = (
    '`request_12.NAME`, or with any name `request["chat 3"].NAME`; phases are compared with texts in quotes.'
    " Before it arrives and after it ends, its phase is `none` and its numbers are 0."
)
_GRAMMAR: Final = """\
`kv.utilization > 90% and not instance[0].waiting == 0`: comparisons (`< <= > >= == !=`), `and`, `or`, `not`,
`+ - * /`, parentheses, numbers (`3`, `1.5s`, `250ms`, `300us`, `90%`), text in quotes, and names. A condition on the
state stops a run where it *becomes* true; one about the event itself stops at every event where it is true.
Units are checked: times go with times, shares with shares, and `kv.utilization` with at most 1 (`100%`). A comparison
is false where one side does not exist."""
_SCOPES: Final = {
    "app": "Everywhere",
    "home": "Experiments",
    "debugger": "Debugger",
    "why": "Explanations",
    "compare": "Comparison",
    "twin": "Twin",
    "observing": "Observing",
    "goldens": "Goldens",
    "study": "Studies",
    "printed": "What was printed",
    "error": "An experiment that cannot be opened",
    "dialog": "Windows",
}


FOLDER: Final = Path(__file__).resolve().parent / "reference" / "terminal"


def pages() -> dict[str, str]:
    """Every page: file name -> Markdown."""
    return {"keys.md": _keys(), "conditions.md": _conditions()}


def _keys() -> str:
    lines = [
        _NOTE,
        "# Keys",
        "",
        _KEYS,
    ]
    for scope in dict.fromkeys(action.scope for action in ACTIONS):
        lines += ["", f"## {_SCOPES.get(scope, scope)}", "", "| keys | name | what it does |", "|---|---|---|"]
        for action in ACTIONS:
            if action.scope == scope:
                keys = " ".join(f"`{shown_key(key)}`" for key in action.keys).replace("|", "\\|")
                lines.append(f"| {keys} | `{action.name}` | {action.help} |")
    return "\n".join(lines) + "\n"


def _conditions() -> str:
    lines = [
        _NOTE,
        "# Breakpoints and conditions",
        "",
        "A breakpoint stops a run after an event. It is a kind of record, one of the forms below, or a condition.",
        "",
        "| breakpoint | stops after |",
        "|---|---|",
        *(f"| `{kind}` | an event in which {record.shown.meaning} |" for kind, record in sorted(RECORD_KINDS.items())),
        *(f"| `{word.usage}` | {word.meaning} |" for word in KEYWORDS.values()),
        "",
        f"`first` takes one of {', '.join(f'`{word}`' for word in FIRST)}, or any kind of record (`first retried`).",
        "",
        "## Conditions",
        "",
        _GRAMMAR,
        "",
        "### The state after an event",
        "",
        "`NAME` is the whole cluster's figure, `instance[N].NAME` one instance's where there is a mark.",
        "",
        "| name | unit | meaning | per instance |",
        "|---|---|---|---|",
        *(
            f"| `{figure.name}` | {figure.unit} | {figure.meaning} | {'x' if figure.of_instance else ''} |"
            for figure in FIGURES.values()
        ),
        "",
        "### A request after an event",
        "",
        _REQUESTS,
        "",
        "| name | unit | meaning |",
        "|---|---|---|",
        *(
            f"| `{name}` | {'text' if figure.quantity == PHASE else figure.quantity.unit} | {figure.meaning} |"
            for name, figure in REQUEST_FIGURES.items()
        ),
        "",
        "### The event itself",
        "",
        "| name | unit | meaning |",
        "|---|---|---|",
        *(f"| `{text.name}` | text | {text.meaning} |" for text in EVENT_TEXTS.values()),
        *(f"| `{number.name}` | {number.unit} | {number.meaning} |" for number in EVENT_NUMBERS.values()),
    ]
    return "\n".join(lines) + "\n"


def main(folder: Path = FOLDER) -> int:
    """Write the pages."""
    write_tree(folder, pages(), replace=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
