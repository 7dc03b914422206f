"""Every broken document gives exactly the recorded diagnostics, and never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from blis_tui.base.diagnostics import CODES
from blis_tui.base.errors import SpecError
from blis_tui.spec.validate import validate

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

BROKEN = Path(__file__).parent / "broken"
NAMES = sorted(path.stem for path in BROKEN.glob("*.yaml"))


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_diagnostics(name: str, file_regression: FileRegressionFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("syntax") and not hasattr(yaml, "CSafeLoader"):
        pytest.skip("the wording of grammar errors is libyaml's")
    monkeypatch.chdir(BROKEN)
    with pytest.raises(SpecError) as caught:
        validate(f"./{name}.yaml")
    assert all(diagnostic.code in CODES for diagnostic in caught.value.diagnostics)
    file_regression.check(str(caught.value) + "\n", fullpath=BROKEN / f"{name}.txt", encoding="utf-8")


def test_the_table_of_codes_says_everything() -> None:
    for code, info in CODES.items():
        assert code.startswith("BLIS")
        assert len(code) == 8
        assert info.title[0] == info.title[0].lower() or info.title.startswith("KV")
        assert info.cause.endswith(".")
        assert info.remedy.endswith(".")


def test_every_code_that_a_file_can_cause_has_a_broken_file() -> None:
    """Except limits (too large to keep as files), rows of traces, reports, and the catch-all."""
    elsewhere = {"BLIS0009", "BLIS0010", "BLIS0011", "BLIS1099", "BLIS2069", "BLIS2100"}
    texts = "".join(path.read_text(encoding="utf-8") for path in BROKEN.glob("*.txt"))
    assert {code for code in CODES if f"[{code}]" not in texts} == elsewhere
