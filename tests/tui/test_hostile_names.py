"""Names that a terminal would act on are only text on every screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import blis_tui
from blis_tui.base.text import control_characters
from blis_tui.tui.app import BlisApp, Start
from tests.hostile import EVIL, SPEC
from tests.tui.screens import press, screen_text, settle

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SIZE = (160, 48)


def require_harmless_screen(app: BlisApp, names: str) -> None:
    shown = screen_text(app)
    assert [name for name in names.split() if name not in shown] == []
    assert control_characters().findall(shown.replace("\n", "")) == []


async def test_the_list_of_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.blis.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / f"file{EVIL}.blis.yaml").write_text(SPEC, encoding="utf-8")
    app = BlisApp()
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        require_harmless_screen(app, "evil file about")


async def test_the_panes_of_the_debugger(tmp_path: Path) -> None:
    path = tmp_path / f"file{EVIL}.blis.yaml"
    path.write_text(SPEC, encoding="utf-8")
    app = BlisApp(Start(experiment=blis_tui.load(path), source=str(path), at="100", breaks=()))
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        seen = ""
        for key in "123456789":
            await press(pilot, key)
            require_harmless_screen(app, "")
            seen += screen_text(app)
        await press(pilot, "3", "question_mark")
        require_harmless_screen(app, "")
        assert "tenant]0;pwned" in seen


async def test_notifications_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "evil.blis.yaml"
    path.write_text(SPEC, encoding="utf-8")
    app = BlisApp(Start(experiment=blis_tui.load(path), source=str(path)))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        app.notify(f"said{EVIL}", title=f"title{EVIL}", markup=False, timeout=1000)
        await settle(pilot)
        require_harmless_screen(app, "said title")
        app.open_experiment(f"nowhere{EVIL}")
        await settle(pilot)
        require_harmless_screen(app, "nowhere")
