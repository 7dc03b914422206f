"""How the whole debugger looks: in each state a reader meets, in a large terminal and in the smallest usual one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.base.errors import StalledError
from blis_tui.engine.batch import Batch
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.tui.drawing.life_line import PHASE_STYLES
from blis_tui.tui.panes import PANES
from tests.nightly import every
from tests.tui.debugging import NARROW, NORMAL, Debugging, debugging
from tests.tui.screens import check_screen, screen_rows, screen_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture
    from textual.app import App
    from textual.strip import Strip

    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request

PREEMPTS: Final = "2761"
"""A step of kv-pressure that throws a request out and completes another, while fifteen wait."""
ADMITS: Final = "2762"
"""The step behind it: three are admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An experiment open in the debugger, where to go in it, and what is looked at there, one after the other.

    A scene has the keys that lead to it from the one before; what begins with a colon is a text to type.
    """

    scenes: Mapping[str, tuple[str, ...]]
    spec: str = "kv-pressure"
    at: str | None = None
    breaks: tuple[str, ...] = ()


RUNS: Final = (
    Run(scenes={"start": (), "first-schedule": ("n", "n", "n", "n", "s", "3")}),
    Run(
        at="2760",
        scenes={
            "schedule": ("s", "2"),
            "metrics": ("g", f":{PREEMPTS}", "4"),
            "admits": ("g", f":{ADMITS}", "2"),
        },
    ),
    Run(
        at=PREEMPTS,
        scenes={"changes": ("6",), "spec": ("9", "down", "down", "down"), "instances": ("4", "2", "down", "down")},
    ),
    Run(
        scenes={
            "palette-why": ("end", "ctrl+p", *"why"),
            "end": ("escape", "3"),
            "warnings": ("7",),
            "ranking": ("4", "3", "l", "l", "l", "l"),
        }
    ),
    Run(scenes={"queued": ("end", "g", ":2642", "3")}),
    Run(scenes={"events-filter": ("end", "/", ":preempted", "comma")}),
    Run(scenes={"past": ("end", "g", ":2761")}),
    Run(scenes={"request": ("end", "3", "enter", "g", ":3300", "3")}),
    Run(spec="chunked-prefill", scenes={"why-decode": ("end", "3", "question_mark")}),
    Run(spec="shared-prefixes", at="300", scenes={"kv-shared": ("5",)}),
    Run(spec="kv-tiers offload", at="2500", scenes={"kv-tiers": ("5",)}),
    Run(spec="quickstart drafts", at="600", scenes={"drafts": ("2", "question_mark")}),
    Run(spec="pipeline-bubble", at="300", scenes={"pipeline": ("2",)}),
    Run(
        at=PREEMPTS,
        breaks=("preempted", "kv.utilization > 0.9 and waiting >= 3", "first preemption"),
        scenes={
            "breakpoints": ("w", ":kv.utilization", "w", ":waiting", "w", ":running >= 8", "8", "down", "space"),
        },
    ),
    Run(spec="quickstart", at="1500", scenes={"several-instances": ("2",)}),
    # Clusters.
    Run(spec="SPLIT", at="1656", scenes={"fleet": ("0", "right", "right", "right")}),
    Run(spec="LARGE", at="8000", scenes={"fleet-512": ("0", "right", "down", "down")}),
    Run(spec="GROWING", at="900", scenes={"fleet-life": ("0", "right")}),
    Run(spec="GROWING", at="7579", scenes={"why-scaling": ("question_mark",)}),
    Run(spec="GROWING", at="8400", scenes={"fleet-drain": ("0", "right", "right")}),
    Run(spec="WEIGHTED", at="3519", scenes={"router": ("R", "down", "down"), "whatif": ("i",)}),
    Run(spec="GATEWAY", at="1500", scenes={"gateway": ("W",)}),
    Run(spec="SPLIT", scenes={"life-split": ("g", ":request_67", "g", ":3500", "3")}),
    # Who sends what.
    Run(spec="conversations", at="3000", scenes={"sessions": ("S", "down", "down"), "session": ("enter",)}),
    Run(spec="thinking", at="2600", scenes={"reasoning": ("g", ":request_67", "g", ":2600", "3")}),
    Run(
        spec="thinking",
        at="2920",
        scenes={"answer": ("g", ":request_64", "g", ":2920", "3"), "why-answer": ("question_mark",)},
    ),
    Run(spec="kv-tiers", at="1000", scenes={"arrivals": ("a",)}),
)
WINDOWS: Final = {
    "export": ("x",),
    "go-to-wrong": ("g", *"9999999999999s"),
    "breakpoint-wrong": ("B", *"kv.usd", "space", "greater_than_sign", "space", "3"),
    "help": ("h",),
    "palette": ("ctrl+p",),
    "jump": ("ctrl+o",),
}
"""What lies above the debugger: the keys that open it, at ``PREEMPTS``."""
SMALLEST: Final = (60, 16)
TWO_PANES: Final = (110, 30)
LARGE: Final = (200, 60)
OTHER_SIZES: Final = {
    "kv-shared": (SMALLEST, TWO_PANES, LARGE),
    **dict.fromkeys(("end", "instances", "metrics", "several-instances"), (LARGE,)),
    **dict.fromkeys(("fleet", "fleet-512", "fleet-life", "fleet-drain", "router", "whatif", "gateway"), (LARGE,)),
}
"""Sizes in which a scene is looked at besides the two usual ones."""
RUN_OF: Final = {name: run for run in RUNS for name in run.scenes}
ANEW: Final = {"past", "request"}
"""Scenes played once for each size: a new size leaves lists scrolled and letters on panes where they are."""


def opened(run: Run, size: tuple[int, int]) -> AbstractAsyncContextManager[Debugging]:
    """The debugger where a run begins."""
    return debugging(run.spec, size=size, requests=None, at=run.at, breaks=run.breaks, at_once=True)


async def look(here: Debugging, run: Run, file_regression: FileRegressionFixture, *sizes: tuple[int, int]) -> None:
    """Compare scenes with their goldens: each in the terminal's own size, then in others, and its own of those."""
    first = here.app.size
    for name, keys in run.scenes.items():
        await resize(here, first)
        await here.press(*keys)
        for size in (first, *sizes, *(OTHER_SIZES.get(name, ()) if sizes else ())):
            await resize(here, size)
            await check_screen(here.pilot, file_regression, f"debugger-{name}")


async def resize(here: Debugging, size: tuple[int, int]) -> None:
    """Give the terminal a size, where it has another."""
    if size != here.app.size:
        await here.pilot.resize_terminal(*size)
        await here.idle()


@pytest.fixture(autouse=True)
def _folder(empty: Path) -> None:
    """A working folder with a name that is always the same."""


@pytest.mark.parametrize(
    "run", [run for run in RUNS if ANEW.isdisjoint(run.scenes)], ids=lambda run: " ".join(run.scenes)
)
async def test_the_debugger(run: Run, file_regression: FileRegressionFixture) -> None:
    async with opened(run, NORMAL) as here:
        await look(here, run, file_regression, NARROW)


@pytest.mark.parametrize("size", [NORMAL, NARROW, SMALLEST, TWO_PANES])
@pytest.mark.parametrize("name", sorted(ANEW))
async def test_the_debugger_opened_in_a_size(
    name: str, size: tuple[int, int], file_regression: FileRegressionFixture
) -> None:
    async with opened(RUN_OF[name], size) as here:
        await look(here, RUN_OF[name], file_regression)


@pytest.mark.parametrize("size", [NORMAL, NARROW])
async def test_the_windows_above_it(size: tuple[int, int], file_regression: FileRegressionFixture) -> None:
    """One after the other over the same debugger, which is as before when each is closed."""
    async with debugging(size=size, requests=None, at=PREEMPTS, at_once=True) as here:
        below = screen_text(here.app)
        for name, keys in WINDOWS.items():
            await here.press(*keys)
            await check_screen(here.pilot, file_regression, f"debugger-{name}")
            await here.press("escape")
            assert here.on_top, name
            assert screen_text(here.app) == below, name


async def test_a_failure(monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    admit = Batch.admit

    def stuck(
        batch: Batch,
        plan: Plan,
        request: Request,
        cached_blocks: int,
        new_tokens: int,
        swapped_tokens: int = 0,
        tiered: Sequence[int] = (),
        padding: int = 0,
    ) -> None:
        if request.request_id == "request_20":
            raise StalledError(
                "instance 0 cannot go on: request request_20 needs 128 more tokens in the cache and nothing can be "
                "scheduled",
                help="its blocks must fit the KV cache",
            )
        admit(
            batch,
            plan,
            request,
            cached_blocks,
            new_tokens,
            swapped_tokens=swapped_tokens,
            tiered=tiered,
            padding=padding,
        )

    monkeypatch.setattr(Batch, "admit", stuck)
    run = Run(scenes={"failed": ("end", "7")})
    async with opened(run, NORMAL) as here:
        await look(here, run, file_regression, NARROW)


# ---- with few colours or none ----


WORD: Final = re.compile(r"[A-Za-z][a-z]{3,}(?!…)")


async def panes_of(here: Debugging) -> dict[str, str]:
    """What each pane looks like in the terminal as it is."""
    texts: dict[str, str] = {}
    for pane in here.screen.panes:
        here.screen.activate(pane)
        await here.idle()
        texts[pane] = screen_text(here.app)
    return texts


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    every(2, [(SMALLEST, NARROW, (100, 30), NORMAL), ((120, 35), (200, 50))]),
    ids=["usual", "others"],
)
async def test_no_word_is_cut_in_any_pane_and_size(sizes: Sequence[tuple[int, int]]) -> None:
    """Every word is one that a very large terminal shows, too, or the short name of a pane."""
    async with debugging("disaggregation", size=(240, 90), at="end", at_once=True) as here:
        large = await panes_of(here)
        known = {word for text in large.values() for word in WORD.findall(text)}
        known |= {info.short for info in PANES} | {"plot"}
        for size in sizes:
            await resize(here, size)
            for pane, text in (await panes_of(here)).items():
                assert {word for word in WORD.findall(text) if word not in known} == set(), (size, pane)


FEW_COLOURS: Final = ("NO_COLOR", "ansi-dark")


@pytest.fixture(params=FEW_COLOURS)
def few_colours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A terminal without colours, and one with the sixteen that its user chose."""
    kind = str(request.param)
    monkeypatch.setenv(*(("NO_COLOR", "1") if kind == "NO_COLOR" else ("TEXTUAL_THEME", kind)))
    return kind


@pytest.mark.parametrize(
    ("few_colours", "name"),
    [
        pytest.param(kind, name, marks=[] if (kind == "NO_COLOR") == without else pytest.mark.nightly)
        for name, without in (("past", True), ("request", False), ("warnings", False), ("breakpoints", True))
        for kind in FEW_COLOURS
    ],
    indirect=["few_colours"],
)
async def test_the_text_does_not_depend_on_colours(
    few_colours: str, name: str, file_regression: FileRegressionFixture
) -> None:
    run = Run(scenes={name: ("end", "7")}) if name == "warnings" else RUN_OF[name]  # without the scenes before it
    async with opened(run, NORMAL) as here:
        assert here.app.no_color if few_colours == "NO_COLOR" else here.app.native_ansi_color
        await look(here, run, file_regression)


def row_with(app: App[None], text: str) -> Strip:
    """The only row of the screen with that text."""
    (found,) = (strip for strip in screen_rows(app) if text in strip.text)
    return found


def has(strip: Strip, text: str, attribute: str) -> bool:
    """Whether the piece of a row that has that text is, say, underlined."""
    piece = next(segment for segment in strip if text in segment.text)
    return bool(piece.style and getattr(piece.style, attribute))


async def test_positions_cursors_and_the_pane_in_use_can_be_told_without_colours(few_colours: str) -> None:
    async with debugging(requests=None, at=PREEMPTS) as here:
        assert row_with(here.app, "step 2248").text.startswith("│▶ ")
        assert row_with(here.app, " ≤ 100 %").text.rstrip().endswith("▲")
        await here.press("up")
        assert row_with(here.app, "step 2247").text.startswith("│  ▸"), few_colours
        assert row_with(here.app, "step 2248").text.startswith("│▶ ")
        await here.press("2", "down", "down")
        assert "│▸ 2  request_95 " in row_with(here.app, "2  request_95").text
        assert "‖ paused" in screen_text(here.app)
        assert row_with(here.app, "! 2").text.rstrip().endswith("! 2")

        await here.press("5")
        tabs = row_with(here.app, "9 Spec")
        assert has(tabs, "KV cache", "underline"), few_colours
        assert not has(tabs, "Changes", "underline")

        for keys, first, second in (
            (("x",), "report.json", "requests.csv"),
            (("escape", "h"), "Process the next event", "Advance to the next phase"),
        ):
            await here.press(*keys)
            assert has(row_with(here.app, first), first, "reverse"), few_colours
            assert not has(row_with(here.app, second), second, "reverse")


def test_kinds_of_events_and_phases_have_signs_of_their_own() -> None:
    phases = [(look.glyph, look.word) for look in PHASE_STYLES.values()]
    assert len({glyph for glyph, _ in phases}) == len({word for _, word in phases}) == len(phases)
    losses = {"rejected", "dropped"}
    signs = [kind.shown.sign for name, kind in RECORD_KINDS.items() if name not in losses]
    assert len(set(signs)) == len(signs)
    assert {RECORD_KINDS[name].shown.sign for name in losses} == {"✗"}
