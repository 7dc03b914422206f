"""The schemas in the tools that people edit and check YAML with: yaml-language-server and check-jsonschema."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pytest

from blis_tui.spec.authoring.project import schema_files, template
from blis_tui.spec.schema import KINDS

from . import tools
from .editor import Editor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.xdist_group("editors")]
"""In one process: what they share takes long to make."""

ROOT = Path(__file__).parents[3]
SCHEMAS = ROOT / "schemas"
DOCUMENTS = sorted((ROOT / "specs").glob("*/*.yaml"))
BROKEN = ROOT / "tests" / "spec" / "broken"
WITHOUT_KIND = {"schema-missing-kind", "schema-unknown-kind", "schema-another-kind"}
"""Faults of the key that says which schema to use."""
VISIBLE = sorted(path for path in BROKEN.glob("schema-*.yaml") if path.stem not in WITHOUT_KIND)

Checked = MappingProxyType[str, tuple[int, dict[str, Any]]]
Underlined = MappingProxyType[Path, list[dict[str, Any]]]

HEAD = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: x}\n"
PARTS = "model: qwen3-14b\nhardware: h100\nworkload: chatbot\n"


def kind_of(text: str) -> str:
    match = re.search(r"^kind: (\w+)$", text, re.MULTILINE)
    assert match is not None
    return match.group(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with exported schemas, as a user has them."""
    root = tmp_path_factory.mktemp("project")
    (root / "schemas").mkdir()
    for name, text in schema_files().items():
        (root / "schemas" / name).write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def editor(folder: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    with Editor(tools.language_server(pytestconfig, tmp_path_factory), folder) as running:
        yield running


def with_modeline(text: str, kind: str = "Experiment") -> str:
    return f"# yaml-language-server: $schema=schemas/{kind.lower()}.schema.json\n{text}"


@pytest.fixture(scope="module")
def underlined(editor: Editor, folder: Path) -> Underlined:
    """What the editor underlines in shipped, new and broken documents, all opened at once."""
    texts = {path: path.read_text(encoding="utf-8") for path in DOCUMENTS}
    for kind in KINDS:
        texts[folder / f"new-{kind}.yaml"] = template(kind, "mine", f"schemas/{kind.lower()}.schema.json")
    for path in VISIBLE:
        text = path.read_text(encoding="utf-8")
        texts[folder / path.name] = with_modeline(text, kind_of(text))
    return MappingProxyType(editor.diagnostics_of_all(texts))


def test_an_editor_has_nothing_to_say_about_shipped_documents(
    underlined: Underlined,
) -> None:
    assert {path.name: underlined[path] for path in DOCUMENTS if underlined[path]} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_an_editor_has_nothing_to_say_about_new_documents(kind: str, underlined: Underlined, folder: Path) -> None:
    assert underlined[folder / f"new-{kind}.yaml"] == []


@pytest.mark.parametrize("path", VISIBLE, ids=lambda path: path.stem)
def test_an_editor_underlines_what_is_wrong(path: Path, underlined: Underlined, folder: Path) -> None:
    ours = {int(line) for line in re.findall(r"--> .*?:(\d+):\d+", path.with_suffix(".txt").read_text("utf-8"))}
    found = underlined[folder / path.name]
    lines = {one["range"]["start"]["line"] for one in found}  # from 0, but below the modeline
    assert lines & ours or (found and ours == {1})


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        (HEAD + PARTS + "latency: {kind: |}\n", {"roofline", "blackbox", "trained-physics"}),
        (HEAD + PARTS + "latency:\n  kind: |\n", {"roofline", "crossmodel"}),
        (HEAD + PARTS + "engine:\n  max|\n", {"max_num_seqs", "max_num_batched_tokens", "max_model_len"}),
        (HEAD + PARTS + "policy:\n  |\n", {"admission", "routing", "scheduling", "batching", "preemption"}),
        (HEAD + PARTS + "policy:\n  batching:\n    kind: vllm-v1\n    |\n", {"watermark", "reserve_full_input"}),
        (
            HEAD + "model: qwen3-14b\nhardware: h100\nworkload:\n  clients:\n    - id: a\n      arrivals: {kind: |}\n",
            {"poisson", "constant", "gamma", "weibull"},
        ),
        (HEAD + PARTS + "|\n", {"latency", "cluster", "engine", "expect"}),
    ],
)
def test_an_editor_completes(text: str, offered: set[str], editor: Editor, folder: Path) -> None:
    found = editor.completion(folder / "x.blis.yaml", with_modeline(text))
    assert offered <= found.keys()
    assert all(found[label] for label in offered), "each with its description"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "engine: {|max_num_seqs: 64}",
            ["Maximum number of requests running at the same time;", "default `auto`; 0 to 1,000,000"],
        ),
        ("latency: {kind: |roofline}", ["peak figures", "`trained-physics`: A roofline with trained corrections"]),
        ("policy: {batching: {kind: vllm-v1, |watermark: 0.1}}", ["KV blocks kept free", "0 to 1"]),
        ("|horizon_us: none", ["Simulated time in microseconds", "`none` = until all requests have left"]),
    ],
)
def test_an_editor_explains(text: str, shown: list[str], editor: Editor, folder: Path) -> None:
    found = editor.hover(folder / "x.blis.yaml", with_modeline(HEAD + PARTS + text + "\n"))
    assert all(part in found for part in shown), found


@pytest.fixture(scope="module")
def checker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tools.check_jsonschema(pytestconfig, tmp_path_factory)


METASCHEMA: Final = "metaschema"
EACH: Final = """
import contextlib, io, json, sys
from check_jsonschema import main
for arguments in json.loads(sys.argv[1]):
    out, code = io.StringIO(), 0
    with contextlib.redirect_stdout(out):
        try:
            main(["-o", "json", *arguments])
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, json.loads(out.getvalue())]))
"""
"""Runs the program with each of these arguments: its imports take as long as all that it then does."""


def of_kind(paths: Iterable[Path], kind: str) -> list[Path]:
    return [path for path in paths if kind_of(path.read_text(encoding="utf-8")) == kind]


@pytest.fixture(scope="module")
def checked(checker: Path, folder: Path) -> Checked:
    """Exit code and report of check-jsonschema for the schemas, and for the documents of each kind."""
    schemas = [*SCHEMAS.glob("*.json"), *(folder / "schemas").glob("*.json")]
    asked = {METASCHEMA: ["--check-metaschema", *map(str, schemas)]}
    for kind in KINDS:
        schema = folder / "schemas" / f"{kind.lower()}.schema.json"  # those with an `$id` refer to published ones
        asked[kind] = ["--schemafile", str(schema), *map(str, of_kind((*DOCUMENTS, *VISIBLE), kind))]
    run = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps(list(asked.values()))],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(checker)},
        check=True,
    )
    found = [(code, report) for code, report in map(json.loads, run.stdout.splitlines())]
    return MappingProxyType(dict(zip(asked, found, strict=True)))


def test_check_jsonschema_takes_the_schemas(checked: Checked) -> None:
    assert checked[METASCHEMA][0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_check_jsonschema_accepts_what_ships_and_refuses_what_is_broken(checked: Checked, kind: str) -> None:
    broken = of_kind(VISIBLE, kind)
    code, report = checked[kind]
    assert {Path(one["filename"]) for one in report.get("errors", ())} == set(broken)
    assert code == bool(broken)
