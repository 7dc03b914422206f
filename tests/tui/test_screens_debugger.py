"""How the whole debugger looks: in each state a reader meets, in a large terminal and in the smallest usual one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.engine.instance import Instance
from blis_tui.errors import StalledError
from tests.tui.debugging import NARROW, NORMAL, Debugging, debugging
from tests.tui.screens import check_screen

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

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
    Scene(name="end", keys=("end", "3")),
    Scene(name="events-filter", keys=("end", "/", ":preempted", "comma")),
    Scene(name="instances", at=PREEMPTS, keys=("2", "down", "down")),
    Scene(name="request", keys=("end", "3", "down", "enter", "g", ":3300", "3")),
    Scene(name="metrics", at=PREEMPTS, keys=("4",)),
    Scene(name="kv-shared", spec="shared-prefixes", at="300", keys=("5",)),
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
    # What lies above the debugger.
    Scene(name="export", at=PREEMPTS, keys=("x",)),
    Scene(name="go-to-wrong", at=PREEMPTS, keys=("g", *"9999999999999s")),
    Scene(name="breakpoint-wrong", at=PREEMPTS, keys=("B", *"kv.usd", "space", "greater_than_sign", "space", "3")),
    Scene(name="jump", at=PREEMPTS, keys=("ctrl+o",)),
    Scene(name="help", at=PREEMPTS, keys=("h",)),
    Scene(name="palette", at=PREEMPTS, keys=("ctrl+p",)),
    Scene(name="palette-why", keys=("end", "ctrl+p", *"why")),
)
BY_NAME: Final = {scene.name: scene for scene in SCENES}


async def drive(here: Debugging, scene: Scene) -> None:
    """Press the scene's keys."""
    for key in scene.keys:
        if key.startswith(":"):
            await here.type(key[1:])
        else:
            await here.press(key)


async def look(scene: Scene, size: tuple[int, int], file_regression: FileRegressionFixture) -> None:
    """Compare a scene with its golden."""
    async with debugging(scene.spec, size=size, requests=None, at=scene.at, breaks=scene.breaks) as here:
        await drive(here, scene)
        check_screen(here.app, file_regression, f"debugger-{scene.name}")


@pytest.fixture(autouse=True)
def _folder(empty: Path) -> None:
    """A working folder with a name that is always the same."""


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=["narrow", "normal"])
@pytest.mark.parametrize("name", list(BY_NAME))
async def test_the_debugger(name: str, size: tuple[int, int], file_regression: FileRegressionFixture) -> None:
    await look(BY_NAME[name], size, file_regression)


@pytest.mark.parametrize("size", [(60, 16), (110, 30)], ids=["smallest", "two-panes"])
@pytest.mark.parametrize("name", ["past", "request", "kv-shared"])
async def test_other_sizes(name: str, size: tuple[int, int], file_regression: FileRegressionFixture) -> None:
    await look(BY_NAME[name], size, file_regression)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=["narrow", "normal"])
async def test_a_failure(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture
) -> None:
    admit = Instance.admit

    def stuck(instance: Instance, request: Request, cached_blocks: int, new_tokens: int) -> None:
        if request.request_id == "request_20":
            raise StalledError(
                "instance 0 cannot go on: request request_20 needs 128 more tokens in the cache and nothing can be "
                "scheduled",
                help="its blocks must fit the KV cache",
            )
        admit(instance, request, cached_blocks, new_tokens)

    monkeypatch.setattr(Instance, "admit", stuck)
    await look(Scene(name="failed", keys=("end", "7")), size, file_regression)
