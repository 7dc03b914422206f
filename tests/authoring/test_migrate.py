"""Migration: the mechanism with made-up steps, and that there is nothing to migrate yet."""

from __future__ import annotations

import pytest

from blis_tui.authoring.migrate import CURRENT, STEPS, Step, migrate
from blis_tui.errors import SpecError
from blis_tui.spec.source import Source

TEXT = "# head\nkind: Policy\napiVersion: test/v1  # old\nsizes: 3\n"
MADE_UP = (
    Step("test/v1", "test/v2", lambda text: text.replace("sizes:", "size_tokens:")),
    Step("test/v2", "test/v3", lambda text: text + "added: true\n"),
)


def test_steps_follow_one_another_and_keep_comments() -> None:
    done = migrate(Source("x", TEXT), MADE_UP)
    assert done.versions == ("test/v1", "test/v2", "test/v3")
    assert done.text == "# head\nkind: Policy\napiVersion: test/v3  # old\nsize_tokens: 3\nadded: true\n"
    assert migrate(Source("x", done.text), MADE_UP).versions == ("test/v3",)


def test_the_current_version_needs_no_step() -> None:
    text = f"apiVersion: {CURRENT}\n"
    assert migrate(Source("x", text)).text == text
    assert not STEPS
    assert CURRENT == "blis/v1"


@pytest.mark.parametrize(("text", "code"), [("apiVersion: blis/v9\n", "BLIS1004"), ("kind: Policy\n", "BLIS1002")])
def test_unknown_versions_are_refused_with_help(text: str, code: str) -> None:
    with pytest.raises(SpecError) as caught:
        migrate(Source("x", text))
    assert caught.value.diagnostics[0].code == code
    assert "blis/v1" in str(caught.value.diagnostics[0].help)
