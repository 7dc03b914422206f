"""Explanations are looked at in one process: each of the runs they are of is made once."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist asks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One group, whatever a test looks at."""
    for item in items:
        if item.path.parent == FOLDER:
            item.add_marker(pytest.mark.xdist_group("explanations"))
