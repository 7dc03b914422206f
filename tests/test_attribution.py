"""Every data file names the source of its figures and their licence, in its header or in NOTICE."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from blis_tui.spec.shipped import shipped_specs

ROOT = Path(__file__).parents[1]
NOTICE = (ROOT / "NOTICE").read_text(encoding="utf-8")
OUR_CODE = {".py", ".typed", ".tcss", ".css", ".html", ".js", ".pyc"}
"""File name endings of code, as opposed to data."""
OWN_HEADERS = ("hardware", "latency", "models")
"""Folders in specs/ whose files all hold figures from elsewhere; for others an entry in NOTICE may be enough."""

Attribution = tuple[str, str]
"""Source and licence; empty if not stated."""


def data_files(root: Path = ROOT) -> list[Path]:
    """Every data file in the wheel, except for the schemas, which are generated from the code."""
    package = [path for path in (root / "blis_tui").rglob("*") if path.suffix not in OUR_CODE]
    folders = ("specs", "docs/prices", "docs/recordings")
    files = [*package, *(path for folder in folders for path in (root / folder).rglob("*"))]
    return sorted(path for path in files if path.is_file() and path.name[0] != ".")


def of_header(path: Path) -> Attribution:
    """The attribution in a file itself: keys of a JSON document, the leading comments of a YAML document."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        keys = json.loads(text)
        return str(keys.get("source", "")), str(keys.get("licence", ""))
    comments = re.match(r"(?:#.*\n)*", text)
    header = "" if comments is None else comments[0]
    source, licence = (re.search(rf"^# {word}: (\S.*)$", header, re.MULTILINE) for word in ("Source", "Licence"))
    return source[1] if source else "", licence[1] if licence else ""


def of_notice(notice: str = NOTICE) -> dict[str, Attribution]:
    """The entries of NOTICE: a file, or a folder with everything in it, and its attribution."""
    entry = re.compile(r"^(\S+/\S*)\n  Source: (\S.*(?:\n  (?!Licence:).*)*)\n  Licence: (\S.*)$", re.MULTILINE)
    return {path: (source, licence) for path, source, licence in entry.findall(notice)}


def attribution(path: Path, root: Path = ROOT) -> Attribution:
    """The source and licence of a file's figures."""
    source, licence = of_header(path)
    if source and licence:
        return source, licence
    name = path.relative_to(root).as_posix()
    by_folder = not name.startswith(tuple(f"specs/{folder}/" for folder in OWN_HEADERS))
    entries = [
        (entry, origin) for entry, origin in of_notice().items() if entry == name or (by_folder and entry[-1] == "/")
    ]
    return next((origin for entry, origin in entries if name.startswith(entry)), ("", ""))


def test_every_file_of_data_has_a_source_and_a_licence() -> None:
    files = data_files()
    assert {path.relative_to(ROOT).parts[:2] for path in files} >= {("specs", name) for name in OWN_HEADERS}
    silent = [path.relative_to(ROOT).as_posix() for path in files if not all(attribution(path))]
    assert silent == []
    assert {licence.partition(",")[0] for _, licence in map(attribution, files)} == {"Apache-2.0"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("specs/models/new.yaml", "# Licence: MIT\nkind: Model\n"),
        ("specs/hardware/new.yaml", "# Source: a datasheet\nkind: Hardware\n# Licence: MIT\n"),
        ("specs/latency/operators/new.json", '{"source": "measured"}'),
        ("specs/traces/new.csv", "arrival_time_us\n"),
        ("docs/prices/new.yaml", "h100: 3\n"),
        ("blis_tui/results/new.json", "{}"),
    ],
)
def test_a_new_file_that_does_not_say_it_is_found(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert data_files(tmp_path) == [path]
    assert not all(attribution(path, tmp_path))


def test_what_notice_names_is_there() -> None:
    named = [path.rstrip(",.;") for path in re.findall(r"\b(?:specs|blis_tui|docs|benchmarks)/[\w./-]*", NOTICE)]
    assert len(named) > 12
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_notice_and_header_name_where_coefficients_come_from() -> None:
    licensed = "licensed under the Apache License, Version 2.0"
    notice = {" ".join(part.split()) for part in NOTICE.split("\n\n")}
    for words in (
        ("specs/latency/trained-physics.yaml", "defaults.yaml of BLIS", "github.com/inference-sim/inference-sim"),
        ("specs/latency/operators/", "aiconfigurator-core 0.12.0", "NVIDIA CORPORATION"),
    ):
        assert [part for part in notice if all(word in part for word in (*words, licensed))] != []
    source, licence = of_header(shipped_specs() / "latency" / "trained-physics.yaml")
    assert "BLIS" in source
    assert "defaults.yaml" in source
    assert licence.startswith("Apache-2.0")


def test_headers_that_refer_to_notice_find_their_source_there() -> None:
    by_notice = [path for path in data_files() if "NOTICE" in "".join(of_header(path))]
    assert len(by_notice) > 10
    for path in by_notice:
        words = "".join(of_header(path))
        assert [name for name in ("BLIS", "aiconfigurator-core") if name in words and name in NOTICE] != []


def test_a_preset_has_the_lengths_its_header_says() -> None:
    """The header names the preset; ``presets`` has BLIS's mean, deviation and bounds of prompts and answers."""
    presets = {
        "chatbot": ((256, 100, 2, 800), (256, 100, 1, 1024)),
        "contentgen": ((1024, 150, 10, 2048), (1024, 200, 10, 2048)),
        "summarization": ((4096, 500, 100, 8192), (512, 150, 10, 2048)),
        "multidoc": ((10240, 1200, 500, 20480), (1536, 300, 50, 4096)),
    }
    named = {
        path.stem for path in (ROOT / "specs" / "workloads").glob("*.yaml") if "BLIS's preset" in of_header(path)[0]
    }
    assert named == set(presets)
    for name, lengths in presets.items():
        client = yaml.safe_load((ROOT / "specs" / "workloads" / f"{name}.yaml").read_text(encoding="utf-8"))["clients"][
            0
        ]
        found = [
            tuple(client[which][key] for key in ("mean", "std_dev", "min", "max"))
            for which in ("input_tokens", "output_tokens")
        ]
        assert tuple(found) == lengths
