"""New documents are valid, explained, and every key in them can be switched on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.source import Source
from blis_tui.spec.authoring.key_tree import root
from blis_tui.spec.authoring.layout import format_source
from blis_tui.spec.authoring.project import schema_reference, short, template
from blis_tui.spec.library import schema_path
from blis_tui.spec.read import parse
from blis_tui.spec.reader import read
from blis_tui.spec.schema import KINDS
from blis_tui.spec.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture


def switched_on(text: str) -> Iterator[tuple[str, str]]:
    """The text with one of its switched-off keys, and everything below that, in force."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        match = re.match(r"( *)# ([a-z_]\w*):", line)
        if match is None or at < 4:
            continue
        mark = f"{match.group(1)}# "
        end = at + 1
        while lines[end].startswith(mark + "  "):
            end += 1
        block = [match.group(1) + one.removeprefix(mark) for one in lines[at:end]]
        yield match.group(2), "\n".join([*lines[:at], *block, *lines[end:]])


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_document_is_valid_and_formatted(kind: str, file_regression: FileRegressionFixture) -> None:
    text = template(kind, "mine", "x.json")
    valid = validate("-", stdin_text=text)
    assert (valid.kind, valid.name) == (kind, "mine")
    assert format_source(Source("x", text)).text == text
    assert max(len(line) for line in text.split("\n")) <= 170
    if kind in ("Hardware", "Latency"):  # those that change least
        file_regression.check(text, extension=".yaml")


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_one_is_valid_and_what_it_offers_can_be_switched_on(kind: str) -> None:
    text = short(kind, "mine", "x.json")
    valid = validate("-", stdin_text=text)
    assert (valid.kind, valid.name) == (kind, "mine")
    assert format_source(Source("x", text)).text == text
    assert text.count("\n") < 45
    for key, on in switched_on(text):
        if (kind, key) != ("Workload", "trace"):  # in the place of clients
            assert read(parse(Source("x", on)).data, kind).violations == [], key
    assert f"`blis-tui spec new {kind.lower()} --all`" in text


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_can_be_switched_on(kind: str) -> None:
    seen = set()
    for key, text in switched_on(template(kind, "mine", "x.json")):
        seen.add(key)
        assert read(parse(Source("x", text)).data, kind).violations == [], key
    assert seen


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_there(kind: str) -> None:
    text = template(kind, "mine", "x.json")
    assert all(re.search(rf"^(?:# )?{key}:", text, re.MULTILINE) for key in root(kind).children)


def test_the_modeline_prefers_the_schemas_of_the_project(tmp_path: Path) -> None:
    folder = tmp_path / "specs" / "policies"
    folder.mkdir(parents=True)
    shipped, own = schema_reference("Policy", folder)
    assert (shipped, own) == (schema_path("policy").resolve().as_uri(), False)
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "policy.schema.json").write_text("{}")
    assert schema_reference("Policy", folder) == ("../../schemas/policy.schema.json", True)
