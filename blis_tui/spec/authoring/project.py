"""Creates documents from templates, new projects, and the schemas as files for editors and other tools.

Exported schemas have a hover text with default and range for every key, because editors do not show these by
themselves. They have no ``$id``, so that copies in a folder refer to each other without a network.

In a template, ``##`` starts an explanation, ``# `` a disabled key, so that an editor's "toggle comment" enables keys.
"""

from __future__ import annotations

import io
import json
import re
import textwrap
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui._version import __version__
from blis_tui.base.errors import InputError
from blis_tui.base.input_files import real_path
from blis_tui.base.scalars import flow
from blis_tui.base.source import as_list, as_map
from blis_tui.spec.authoring.key_tree import Key, range_of, root
from blis_tui.spec.library import FOLDERS, schema_path, suffix
from blis_tui.spec.shipped import data_root, package_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.metadata import Distribution

    from blis_tui.base.source import Json

_WIDTH: Final = 100
_LIVE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"Model": ("config",), "Study": ("axes", "constraints"), "Workload": ("requests", "rate_per_s", "clients")}
)
"""Keys that a useful document needs, although its schema (which has alternatives) does not require them."""

_COMMON: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Experiment": ("seed", "policy", "cluster", "engine", "expect"),
        "Hardware": ("watts",),
        "Policy": ("scheduling", "batching", "routing", "admission"),
        "Study": ("objectives", "seeds"),
        "Workload": ("trace",),
    }
)
"""Optional keys to know first."""

_INTRODUCTION: Final = (
    "Lines with `##` explain the keys. Lines with a single `#` are optional keys that are off: remove the `# ` "
    "to set one. `blis-tui explain KEY` says more about a key."
)


def template(kind: str, name: str, schema: str) -> str:
    """Return a valid document of a kind; ``schema`` is the reference in its modeline."""
    tree = root(kind)
    lines = [f"# yaml-language-server: $schema={schema}"]
    lines += [f"# {line}" for line in textwrap.wrap(f"{kind}: {tree.description}", _WIDTH - 2)]
    lines += [f"# {line}" for line in textwrap.wrap(_INTRODUCTION, _WIDTH - 2)]
    header: dict[str, Json] = {"apiVersion": "blis/v1", "kind": kind, "metadata": {"name": name}}
    for child in tree.children.values():
        if child.name in header:
            value = header[child.name]
        else:
            value = sample(child) if child.required or child.name in _LIVE.get(kind, ()) else None
            lines.append("")
        lines += _entry(child, value, live=value is not None)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def short(kind: str, name: str, schema: str) -> str:
    """Return a valid document with the required keys, and the most important optional ones disabled."""
    tree = root(kind)
    more = f"`blis-tui spec new {kind.lower()} --all` shows every key; `blis-tui explain KEY` says what one means."
    lines = [f"# yaml-language-server: $schema={schema}", f"# {more}", "apiVersion: blis/v1", f"kind: {kind}"]
    lines += ["metadata:", f"  name: {name}", '  description: ""']
    for child in tree.children.values():
        live = child.required or child.name in _LIVE.get(kind, ())
        if child.name in ("apiVersion", "kind", "metadata") or not (live or child.name in _COMMON.get(kind, ())):
            continue
        value = sample(child)
        inline = f"{child.name}: {flow(value)}"
        body = [line for line in _body(child, value) if not line.lstrip().startswith("#")]
        sentence = child.description.partition(". ")[0].rstrip(".") + "."
        lines += ["", *(f"# {line}" for line in textwrap.wrap(sentence, _WIDTH - 2))]
        lines += body if live else [f"# {inline}"] if len(inline) <= _WIDTH else [f"# {line}" for line in body]
    return "\n".join(lines) + "\n"


def _entry(key: Key, value: Json, *, live: bool) -> list[str]:
    """Return a key with its explanation; commented out unless it is live."""
    lines = [] if key.name in ("apiVersion", "kind", "metadata") else _explained(key)
    body = _body(key, value if live else sample(key))
    return lines + (body if live else [f"# {line}" for line in body])


def _explained(key: Key) -> list[str]:
    facts = [key.type if key.type not in ("word", "map") else "", key.unit, key.range]
    facts.append(
        "required"
        if key.required
        else f"default {flow(key.default)}"
        if key.has_default and key.default not in ([], {})
        else ""
    )
    listed = "; ".join(fact for fact in facts if fact)
    prose = key.description + (f" ({listed})" if listed else "")
    if key.document:
        prose += f" Names: `blis-tui spec list --kind {key.document.lower()}`."
    lines = textwrap.wrap(prose, _WIDTH - 10)
    kinds = next((child.choices for child in key.children.values() if key.variants and child.choices), key.choices)
    if any(choice.description for choice in kinds):
        settings = {variant.value: ", ".join(variant.keys) for variant in key.variants}
        for choice in kinds:
            own = f" {{{settings[choice.value]}}}" if settings.get(choice.value) else ""
            about = f": {choice.description}" if choice.description else ""
            lines += textwrap.wrap(
                f"{choice.value}{own}{about}", _WIDTH - 12, initial_indent="- ", subsequent_indent="  "
            )
    elif len(kinds) > 1 and key.type == "word":
        lines += textwrap.wrap("One of " + ", ".join(choice.value for choice in kinds) + ".", _WIDTH - 10)
    return [f"## {line}" for line in lines]


def _body(key: Key, value: Json) -> list[str]:
    """Return ``key: value``; a map with known keys becomes a block with all of them."""
    if isinstance(value, dict) and key.children and not key.variants:
        return [f"{key.name}:", *_indented(_children(key, value))]
    if key.is_list and key.children and isinstance(value, list) and value and isinstance(value[0], dict):
        entry = list(_indented(_children(key, value[0])))
        first = next(at for at, line in enumerate(entry) if not line.lstrip().startswith("#"))
        explanation, rest = entry[:first], entry[first:]
        # The explanation of an entry's first key stands above the dash.
        return [
            f"{key.name}:",
            *explanation,
            f"  - {rest[0].lstrip()}",
            *(f"  {line}" for line in rest[1:]),
        ]
    return [f"{key.name}: {flow(value)}"]


def _children(key: Key, value: dict[str, Json]) -> Iterator[str]:
    ordered = sorted(key.children.values(), key=lambda child: child.name not in value)
    for child in ordered if key.is_list else key.children.values():
        given = value.get(child.name)
        live = child.name in value or child.required
        yield from _entry(child, sample(child) if live and given is None else given, live=live)


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def sample(key: Key) -> Json:
    """Return a valid value of a key: its example if the author must choose, else its default."""
    if key.has_default and not key.required and key.default not in (None, [], {}):
        return key.default
    if key.examples:
        return key.examples[0]
    if key.has_default:
        return _all_defaults(key) if key.default == {} else key.default
    if key.choices:
        return key.choices[0].value
    if key.children and not key.variants:
        return _all_defaults(key)
    empty: Json = [] if key.is_list else {} if key.type.startswith("map") else 1
    return next((value for word, value in _PLACEHOLDERS.items() if key.type.endswith(word)), empty)


_PLACEHOLDERS: Final[Mapping[str, Json]] = MappingProxyType({"text": "text", "null": None, "false": True})
"""Last word of a type -> an example value, for keys without default and example."""


def _all_defaults(key: Key) -> dict[str, Json]:
    """Return a map with its required keys and those that have a default."""
    return {child.name: sample(child) for child in key.children.values() if child.required or child.has_default}


def file_name(kind: str, name: str) -> str:
    """Return the file name of a document."""
    return name + suffix(kind)


def schema_reference(kind: str, folder: Path) -> tuple[str, bool]:
    """Return the schema reference of a document in ``folder``, and whether it is the author's own copy.

    The schema is searched in ``schemas/`` of the folder and its parents. Without one, the reference is to the file in
    this package, which is valid on this machine only.
    """
    shipped = real_path(schema_path(kind.lower()))
    folder = real_path(folder)
    for up, parent in enumerate((folder, *folder.parents)):
        own = parent / "schemas" / shipped.name
        if own.is_file():
            return "../" * up + f"schemas/{shipped.name}", True
    return shipped.as_uri(), False


_REFERENCE = re.compile(r'"\$ref": "([a-z]+\.schema\.json)')


def schema_files() -> dict[str, str]:
    """Return every schema: file name -> text.

    Raises:
        InputError: the installation is incomplete.
    """
    paths = sorted((data_root() / "schemas").glob("*.schema.json"))
    if not paths:
        raise InputError("no schemas are installed", help="the installation is incomplete")
    return {path.name: _annotated(path.read_text(encoding="utf-8")) for path in paths}


def with_references(name: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return a schema and all schemas that it refers to."""
    chosen: dict[str, str] = {}
    waiting = [name]
    while waiting:
        file = waiting.pop()
        if file not in chosen:
            chosen[file] = files[file]
            waiting += _REFERENCE.findall(files[file])
    return chosen


def _annotated(text: str) -> str:
    schema: dict[str, Json] = json.loads(text)
    del schema["$id"]
    _annotate(schema)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _annotate(node: Json) -> None:
    """Add a hover text to every property below the node."""
    if isinstance(node, list):
        for part in node:
            _annotate(part)
    elif isinstance(node, dict):
        properties = node.get("properties")
        for part in properties.values() if isinstance(properties, dict) else ():
            if isinstance(part, dict) and isinstance(about := part.get("description"), str):
                shape = as_map(next(iter(as_list(part.get("anyOf"))), part))  # beside null, where it drops the key
                default = shape.get("default")
                facts = [f"default `{flow(default)}`"] if default not in (None, [], {}, "") else []
                facts += [limits] if (limits := range_of(shape)) else []
                part["markdownDescription"] = about + (f"\n\n*{'; '.join(facts)}*" if facts else "")
        for part in list(node.values()):
            _annotate(part)


DEMO: Final = "specs/demo.blis.yaml"
"""The experiment of a new project."""

_DEMO: Final = """\
# yaml-language-server: $schema=../schemas/experiment.schema.json
# One H100 serves support chats. Change a key, run it again, and compare.
# `blis-tui explain engine.max_num_seqs` says what a key means.
apiVersion: blis/v1
kind: Experiment
metadata: {name: demo, description: "Support chats on one H100."}
seed: 1
model: llama-3.1-8b-instruct
hardware: h100
latency: {kind: auto}
workload: support-chats
policy: house
cluster: {instances: 1, tensor_parallel: 1}
engine: {max_num_seqs: 4}
expect:
  - {metric: requests.completed, equals: 200}
  - {metric: latency.ttft_ms.p99, max: 1500}
"""

_WORKLOAD: Final = """\
# yaml-language-server: $schema=../../schemas/workload.schema.json
# Short questions that all begin with the same system prompt.
apiVersion: blis/v1
kind: Workload
metadata: {name: support-chats, description: "Support chats: 120 tokens in, 150 out."}
requests: 200
rate_per_s: 3.0
clients:
  - id: chat
    arrivals: {kind: poisson}
    input_tokens: {kind: gaussian, mean: 120, std_dev: 60, min: 8, max: 600}
    output_tokens: {kind: gaussian, mean: 150, std_dev: 70, min: 1, max: 600}
    prefix: {group: system-prompt, tokens: 256}
    slo_class: standard
"""

_POLICY: Final = """\
# yaml-language-server: $schema=../../schemas/policy.schema.json
# Schedules first come, first served, and composes steps like vLLM.
apiVersion: blis/v1
kind: Policy
metadata: {name: house, description: "First come, first served; vLLM's batching."}
scheduling: {kind: fcfs}
batching: {kind: vllm-v1}
"""

_WORKFLOW: Final = """\
name: blis
on: [push, pull_request]
permissions: {contents: read, pull-requests: write}
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - run: pip install -r requirements.txt
      - run: blis-tui check specs
      - run: blis-tui spec fmt --check specs
      - run: pytest --blis-obsolete=fail --blis-update=new
      # Report the changes on the run's summary page and in a comment on the pull request
      # (the token of a fork may not comment).
      - if: failure()
        run: |
          if blis-tui golden status --format github > golden-report.md; then rm golden-report.md; fi
          if [ -s golden-report.md ]; then cat golden-report.md >> "$GITHUB_STEP_SUMMARY"; fi
      - if: failure() && github.event_name == 'pull_request'
        continue-on-error: true
        env: {GH_TOKEN: "${{ github.token }}", NUMBER: "${{ github.event.number }}"}
        run: |
          if [ -s golden-report.md ]; then gh pr comment "$NUMBER" --body-file golden-report.md; fi
"""

_GITLAB: Final = """\
# The report of changes is an artifact. If the variable BLIS_TOKEN holds a project access token
# with the scope `api`, it is also a comment on the merge request.
blis:
  image: python:3.12
  rules:
    - if: $CI_PIPELINE_SOURCE == "merge_request_event"
    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH
  script:
    - pip install -r requirements.txt
    - blis-tui check specs
    - blis-tui spec fmt --check specs
    - pytest --blis-obsolete=fail --blis-update=new --junitxml=golden.xml
  after_script:
    - |
      if blis-tui golden status --format gitlab > golden-report.md; then rm golden-report.md; fi
      if [ -s golden-report.md ] && [ -n "$BLIS_TOKEN" ] && [ -n "$CI_MERGE_REQUEST_IID" ]; then
        curl --fail --silent --show-error -H "PRIVATE-TOKEN: $BLIS_TOKEN" --data-urlencode body@golden-report.md \\
          "$CI_API_V4_URL/projects/$CI_PROJECT_ID/merge_requests/$CI_MERGE_REQUEST_IID/notes"
      fi
  artifacts:
    when: always
    paths: [golden-report.md]
    reports: {junit: golden.xml}
"""

_REQUIREMENTS: Final = f"""\
# If no package index has this version of blis-tui, its wheel must be in wheels/:
# `pip wheel --no-deps -w wheels CLONE` builds it.
--find-links wheels
blis-tui=={__version__}
pytest>=8.2
"""

_README: Final = """\
# Experiments

Simulations of LLM inference serving, run by `blis-tui`. The same document gives the same results on every machine.

```sh
pip install -r requirements.txt
blis-tui check specs
blis-tui run specs/demo.blis.yaml
blis-tui run specs/demo.blis.yaml --set cluster.instances=2
pytest                       # compares every experiment with its golden result in golden/
blis-tui golden review       # after a change: accept or reject new results
```

- `specs/*.blis.yaml`: experiments. `specs/workloads/`, `specs/policies/`, `specs/hardware/` and `specs/models/`:
  documents that they refer to by name; `blis-tui spec list` shows everything available.
- `blis-tui spec new experiment NAME -o specs/NAME.blis.yaml` writes a new one; `--all` explains every key.
- `wheels/`, if there is one: the wheel of the `blis-tui` that made this project, for `requirements.txt` to install,
  because it came from no package index. After an update, replace it, and its version in `requirements.txt`.
- `schemas/`: for editors with a YAML language server (completion, hover). After an update of `blis-tui`:
  `blis-tui spec schema -o schemas`.
"""

_PYTEST: Final = """\
[pytest]
minversion = 8.2
testpaths = specs
# Every experiment in specs/ is a golden test; its golden files are in golden/.
blis_spec_root = specs
blis_golden_dir = golden
"""
_IGNORED: Final = "__pycache__/\n.pytest_cache/\n.venv/\n/out/\n/golden-report.md\n/golden.xml\n!/wheels/\n"


def project_files() -> dict[str, str]:
    """Return every file of a new project: path below its folder -> text."""
    return {
        "README.md": _README,
        "requirements.txt": _REQUIREMENTS,
        "pytest.ini": _PYTEST,
        ".gitignore": _IGNORED,
        ".vscode/settings.json": _settings(),
        ".vscode/extensions.json": json.dumps({"recommendations": ["redhat.vscode-yaml"]}, indent=2) + "\n",
        ".github/workflows/blis.yml": _WORKFLOW,
        ".gitlab-ci.yml": _GITLAB,
        DEMO: _DEMO,
        "specs/workloads/support-chats.yaml": _WORKLOAD,
        "specs/policies/house.yaml": _POLICY,
        **{f"schemas/{name}": text for name, text in schema_files().items()},
    }


def _settings() -> str:
    patterns = {
        f"./schemas/{kind.lower()}.schema.json": [f"specs/{folder}/*.yaml" if ending == ".yaml" else f"*{ending}"]
        for kind, folder in FOLDERS.items()
        for ending in [suffix(kind)]
    }
    return json.dumps({"yaml.schemas": patterns}, indent=2) + "\n"


NAME: Final = f"blis_tui-{__version__}-py3-none-any.whl"
_INFO: Final = f"blis_tui-{__version__}.dist-info"
_DATA: Final = ("specs", "schemas")
"""Folders of data files in the package (``pyproject.toml``)."""
_OF_A_BUILD: Final = frozenset({".pyc", ".so", ".pyd"})
"""Suffixes of files for one Python version or platform; their sources are beside them."""
_ABOUT: Final = frozenset({"METADATA", "entry_points.txt"})
_DATE: Final = (2020, 2, 2, 0, 0, 0)
"""Fixed date, so that equal contents give equal files."""


def own_wheel() -> bytes | None:
    """Return a pure Python wheel of the running package, installed from a wheel or a clone, or run from a clone.

    Returns None if it was installed from a package index by name, or is not installed at all.
    """
    try:
        installed = distribution("blis-tui")
    except PackageNotFoundError:
        return None
    # Installers write this file (PEP 610) if they were given a URL or path instead of a name.
    if installed.version != __version__ or installed.read_text("direct_url.json") is None:
        return None
    members = {**dict(_package()), **dict(_metadata(installed))}
    members[f"{_INFO}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: blis-tui\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = [f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in members.items()]
    members[f"{_INFO}/RECORD"] = "".join([*lines, f"{_INFO}/RECORD,,\n"]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in members.items():
            wheel.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _package() -> Iterator[tuple[str, bytes]]:
    """Yield the modules, and the data wherever they are."""
    package = package_root()
    carried = package / "_data"
    yield from _files(package, "blis_tui", without=carried)
    for folder in _DATA:
        yield from _files(data_root() / folder, f"blis_tui/_data/{folder}")


def _files(folder: Path, name: str, without: Path | None = None) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix not in _OF_A_BUILD and path.is_file() and (without is None or without not in path.parents):
            yield f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _metadata(installed: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield the installed metadata, except for files written by the installer."""
    for file in installed.files or ():
        below = file.parts[1:]
        if file.parts[0] == _INFO and (below[0] == "licenses" or "/".join(below) in _ABOUT):
            yield file.as_posix(), Path(str(file.locate())).read_bytes()


def _digest(content: bytes) -> str:
    return urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
