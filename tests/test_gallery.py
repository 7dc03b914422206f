"""The gallery shows each shipped experiment as it runs now."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Protocol, cast

from tests.determinism.cases import AS_IT_IS

ROOT = Path(__file__).parents[1]


class Drawn(Protocol):
    """A picture and the texts beside it."""

    name: str
    svg: str


class Maker(Protocol):
    """``docs/make_gallery.py``."""

    PAGE: Path
    IMAGES: Path

    def names(self) -> list[str]: ...
    def drawn(self, name: str) -> Drawn: ...
    def section(self, drawn: Drawn) -> str: ...
    def digest_of(self, svg: str) -> str: ...


def maker() -> Maker:
    spec = importlib.util.spec_from_file_location("make_gallery", ROOT / "docs" / "make_gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Maker", module)


MAKER = maker()


def golden_digest(name: str) -> str:
    case = f"@{AS_IT_IS[name]}" if name in AS_IT_IS else ""
    header = json.loads((ROOT / "golden" / f"{name}{case}.golden.json").read_text(encoding="utf-8"))
    return str(header["records"]["sha256"])


def test_every_experiment_has_a_picture_of_the_run_that_its_golden_is_of() -> None:
    assert sorted(path.stem for path in MAKER.IMAGES.iterdir()) == MAKER.names()
    stale = [
        name
        for name in MAKER.names()
        if MAKER.digest_of((MAKER.IMAGES / f"{name}.svg").read_text(encoding="utf-8")) != golden_digest(name)
    ]
    assert not stale, "make gallery"


def test_pictures_and_page_are_what_the_maker_writes() -> None:
    page = MAKER.PAGE.read_text(encoding="utf-8")
    for name in ("gateway-queue", "autoscaling", "kv-pressure"):
        drawn = MAKER.drawn(name)
        assert (MAKER.IMAGES / f"{name}.svg").read_text(encoding="utf-8") == drawn.svg
        assert MAKER.section(drawn) in page
    assert "at the gateway" in MAKER.drawn("gateway-queue").svg
