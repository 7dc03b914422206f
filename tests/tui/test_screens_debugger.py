"""How the whole debugger looks: in each state a reader meets, in a large terminal and in the smallest usual one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.engine.batch import Batch
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.errors import StalledError
from blis_tui.tui.presenters.phases import PHASE_LOOKS
from tests.tui.debugging import NARROW, NORMAL, Debugging, debugging
from tests.tui.screens import check_screen, screen_rows, screen_text

if TYPE_CHECKING:
    from collections.abc import Sequence
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
class Scene:
    """An experiment, where to go, and the keys to press there; what begins with a colon is a text to type."""

    name: str
    spec: str = "kv-pressure"
    at: str | None = None
    keys: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()


SCENES: Final = (
    Scene(name="start"),
    Scene(name="schedule", at="2760", keys=("s", "2")),
    Scene(name="admits", at=ADMITS, keys=("2",)),
    Scene(name="past", keys=("end", "g", ":2761")),
    Scene(name="queued", keys=("end", "g", ":2642", "3")),
    Scene(name="first-schedule", keys=("n", "n", "n", "n", "s", "3")),
    Scene(name="end", keys=("end", "3")),
    Scene(name="ranking", keys=("end", "l", "l", "l", "l")),
    Scene(name="why-decode", spec="chunked-prefill", keys=("end", "3", "question_mark")),
    Scene(name="events-filter", keys=("end", "/", ":preempted", "comma")),
    Scene(name="instances", at=PREEMPTS, keys=("2", "down", "down")),
    Scene(name="request", keys=("end", "3", "enter", "g", ":3300", "3")),
    Scene(name="metrics", at=PREEMPTS, keys=("4",)),
    Scene(name="kv-shared", spec="shared-prefixes", at="300", keys=("5",)),
    Scene(name="kv-tiers", spec="kv-tiers offload", at="2500", keys=("5",)),
    Scene(name="drafts", spec="quickstart drafts", at="600", keys=("2", "question_mark")),
    Scene(name="pipeline", spec="pipeline-bubble", at="300", keys=("2",)),
    Scene(name="changes", at=PREEMPTS, keys=("6",)),
    Scene(name="warnings", keys=("end", "7")),
    Scene(
        name="breakpoints",
        at=PREEMPTS,
        breaks=("preempted", "kv.utilization > 0.9 and waiting >= 3", "first preemption"),
        keys=("w", ":kv.utilization", "w", ":waiting", "w", ":running >= 8", "8", "down", "space"),
    ),
    Scene(name="spec", at=PREEMPTS, keys=("9", "down", "down", "down")),
    Scene(name="several-instances", spec="quickstart", at="1500", keys=("2",)),
    # Clusters.
    Scene(name="fleet", spec="SPLIT", at="1656", keys=("0", "right", "right", "right")),
    Scene(name="fleet-512", spec="LARGE", at="20000", keys=("0", "right", "down", "down")),
    Scene(name="fleet-life", spec="GROWING", at="900", keys=("0", "right")),
    Scene(name="fleet-drain", spec="GROWING", at="8400", keys=("0", "right", "right")),
    Scene(name="why-scaling", spec="GROWING", at="7579", keys=("question_mark",)),
    Scene(name="whatif", spec="WEIGHTED", at="3519", keys=("R", "down", "down", "i")),
    Scene(name="router", spec="WEIGHTED", at="3519", keys=("R", "down", "down")),
    Scene(name="gateway", spec="GATEWAY", at="1500", keys=("W",)),
    Scene(name="life-split", spec="SPLIT", keys=("g", ":request_67", "g", ":3500", "3")),
    # Who sends what.
    Scene(name="sessions", spec="conversations", at="3000", keys=("S", "down", "down")),
    Scene(name="session", spec="conversations", at="3000", keys=("S", "down", "down", "enter")),
    Scene(name="reasoning", spec="thinking", at="2600", keys=("g", ":request_67", "g", ":2600", "3")),
    Scene(name="answer", spec="thinking", at="2890", keys=("g", ":request_64", "g", ":2890", "3")),
    Scene(name="why-answer", spec="thinking", at="2890", keys=("g", ":request_64", "g", ":2890", "3", "question_mark")),
    Scene(name="arrivals", spec="kv-tiers", at="1000", keys=("a",)),
    Scene(name="palette-why", keys=("end", "ctrl+p", *"why")),
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
BY_NAME: Final = {scene.name: scene for scene in SCENES}
SMALLEST: Final = (60, 16)
TWO_PANES: Final = (110, 30)
LARGE: Final = (200, 60)
OTHER_SIZES: Final = {
    "past": (SMALLEST, TWO_PANES),
    "request": (SMALLEST, TWO_PANES),
    "kv-shared": (SMALLEST, TWO_PANES, LARGE),
    **dict.fromkeys(("end", "instances", "metrics", "several-instances"), (LARGE,)),
    **dict.fromkeys(("fleet", "fleet-512", "fleet-life", "fleet-drain", "router", "whatif", "gateway"), (LARGE,)),
}
"""Sizes in which a scene is looked at besides the two usual ones."""
ANEW: Final = {"past", "request"}
"""Scenes played once for each size: a new size leaves lists scrolled and letters on panes where they are."""


async def run_to_stop(here: Debugging, scene: Scene) -> None:
    """Press the scene's keys."""
    await here.press(*scene.keys)


async def look(scene: Scene, sizes: Sequence[tuple[int, int]], file_regression: FileRegressionFixture) -> None:
    """Compare a scene with its goldens: played in a terminal of the first size, which then gets the others."""
    first, *others = sizes
    async with debugging(scene.spec, size=first, requests=None, at=scene.at, breaks=scene.breaks, at_once=True) as here:
        await run_to_stop(here, scene)
        await check_screen(here.pilot, file_regression, f"debugger-{scene.name}")
        for size in others:
            await here.pilot.resize_terminal(*size)
            await here.idle()
            await check_screen(here.pilot, file_regression, f"debugger-{scene.name}")


@pytest.fixture(autouse=True)
def _folder(empty: Path) -> None:
    """A working folder with a name that is always the same."""


@pytest.mark.parametrize("name", list(BY_NAME))
async def test_the_debugger(name: str, file_regression: FileRegressionFixture) -> None:
    sizes = (NORMAL, NARROW, *OTHER_SIZES.get(name, ()))
    for some in [(size,) for size in sizes] if name in ANEW else [sizes]:
        await look(BY_NAME[name], some, file_regression)


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
        *,
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
    await look(Scene(name="failed", keys=("end", "7")), (NORMAL, NARROW), file_regression)


# ---- with few colours or none ----


@pytest.fixture(params=["NO_COLOR", "ansi-dark"])
def few_colours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A terminal without colours, and one with the sixteen that its user chose."""
    kind = str(request.param)
    monkeypatch.setenv(*(("NO_COLOR", "1") if kind == "NO_COLOR" else ("TEXTUAL_THEME", kind)))
    return kind


@pytest.mark.parametrize("name", ["past", "request", "warnings", "breakpoints"])
async def test_the_text_does_not_depend_on_colours(
    few_colours: str, name: str, file_regression: FileRegressionFixture
) -> None:
    scene = BY_NAME[name]
    async with debugging(
        scene.spec, size=NORMAL, requests=None, at=scene.at, breaks=scene.breaks, at_once=True
    ) as here:
        assert here.app.no_color if few_colours == "NO_COLOR" else here.app.native_ansi_color
        await run_to_stop(here, scene)
        await check_screen(here.pilot, file_regression, f"debugger-{name}")


def row_with(app: App[None], text: str) -> Strip:
    """The only row of the screen with that text."""
    (found,) = (strip for strip in screen_rows(app) if text in strip.text)
    return found


def has(strip: Strip, text: str, attribute: str) -> bool:
    """Whether the piece of a row that has that text is, say, underlined."""
    piece = next(segment for segment in strip if text in segment.text)
    return bool(piece.style and getattr(piece.style, attribute))


async def test_positions_and_cursors_are_signs(few_colours: str) -> None:
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


async def test_the_pane_in_use_is_underlined_among_the_tabs(few_colours: str) -> None:
    async with debugging(requests=None, at=PREEMPTS) as here:
        await here.press("5")
        tabs = row_with(here.app, "9 Spec")
        assert has(tabs, "KV cache", "underline"), few_colours
        assert not has(tabs, "Changes", "underline")


async def test_cursors_of_lists_in_windows_are_reversed(few_colours: str) -> None:
    async with debugging(requests=None, at=PREEMPTS) as here:
        for keys, first, second in (
            (("x",), "report.json", "requests.csv"),
            (("escape", "h"), "Process the next event", "Go on to the next phase"),
        ):
            await here.press(*keys)
            assert has(row_with(here.app, first), first, "reverse"), few_colours
            assert not has(row_with(here.app, second), second, "reverse")


def test_kinds_of_events_and_phases_have_signs_of_their_own() -> None:
    phases = [(look.glyph, look.word) for look in PHASE_LOOKS.values()]
    assert len({glyph for glyph, _ in phases}) == len({word for _, word in phases}) == len(phases)
    losses = {"rejected", "dropped"}
    signs = [kind.shown.sign for name, kind in RECORD_KINDS.items() if name not in losses]
    assert len(set(signs)) == len(signs)
    assert {RECORD_KINDS[name].shown.sign for name in losses} == {"✗"}
