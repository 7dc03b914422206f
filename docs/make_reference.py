"""The pages of ``docs/reference/``, made from schemas, error codes, and the docstrings of records and the report.

``make docs`` writes them; a test fails when they are stale.
"""

from __future__ import annotations

import ast
import re
import sys
from importlib import import_module
from inspect import getdoc
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import blis_tui
import blis_tui.cluster.records  # importing registers the kinds of records
import blis_tui.engine.records
from blis_tui.base.diagnostics import CODES
from blis_tui.base.scalars import flow
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.engine.stopped import CAUSES, SchedulingStopped
from blis_tui.output.result_files import write_tree
from blis_tui.spec.authoring.explain import explain
from blis_tui.spec.authoring.key_tree import Key, root
from blis_tui.spec.authoring.report_figures import Field, Part, as_code, part_of, report_parts
from blis_tui.spec.foreign.charts import CHARTS, VLLM_CONFIG
from blis_tui.spec.foreign.manifests import PARALLELISM
from blis_tui.spec.foreign.routing import PLUGINS, POLICIES, SCORERS
from blis_tui.spec.foreign.server_arguments import ENVIRONMENT, SGLANG, TENSORRT_LLM, VLLM
from blis_tui.spec.library import suffix
from blis_tui.spec.metric_names import all_metrics
from blis_tui.spec.schema import KINDS
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import TRACES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_PACKAGE: Final = Path(blis_tui.__file__).resolve().parent
FOLDER: Final = Path(__file__).resolve().parent / "reference"
_NOTE: Final = "<!-- Made by `make docs` from the schemas and docstrings. Do not edit. -->\n"
_SERVERS: Final = {"vLLM 0.33": VLLM, "SGLang 0.5.23": SGLANG, "TensorRT-LLM 1.1": TENSORRT_LLM}
_REPORT_ROOTS: Final = ("Report", "RequestTable", "RequestRow", "Finding")
"""Types that the report's page describes, with all their parts."""
_LAYERS: Final = {"BLIS0": "YAML syntax", "BLIS1": "Schema", "BLIS2": "Meaning"}


def pages() -> dict[str, str]:
    """Every page: file name -> Markdown."""
    made = {f"{kind.lower()}.md": _kind_page(kind) for kind in KINDS}
    made["report.md"] = _report_page()
    made["records.md"] = _records_page()
    made["errors.md"] = _errors_page()
    made["traces.md"] = _traces_page()
    made["servers.md"] = _servers_page()
    return {"README.md": _index(), **made}


def _index() -> str:
    lines = [_NOTE, "# Reference", "", "Documents:", ""]
    lines += [f"- [{kind}]({kind.lower()}.md) (`*{suffix(kind)}`): {root(kind).description}" for kind in KINDS]
    lines += [
        "",
        "- [Trace formats](traces.md): the files of recorded workloads.",
        "- [Arguments of servers](servers.md): what `spec import` makes of them.",
        "- [Plug points](python/plugins.md): what policies of your own implement, and the types that they see.",
        "",
        "Results:",
        "",
        "- [Report](report.md): what a run reports, and the metrics that `expect` can name.",
        "- [Records](records.md): the events that `run --records` writes.",
        "",
        "The terminal interface:",
        "",
        "- [Keys](terminal/keys.md): what every key does, and how to change it.",
        "- [Conditions](terminal/conditions.md): how to write breakpoints and watches.",
        "",
        "[Errors](errors.md): every code, its cause and remedy.",
        "",
        "`blis-tui explain PATH` and `blis-tui explain CODE` print the same.",
    ]
    return "\n".join(lines) + "\n"


def _traces_page() -> str:
    """The formats of recorded workloads, as their modules describe them."""
    lines = [_NOTE, "# Trace formats", "", "What `workload.trace.format` can name; the keys beside it are those of the"]
    lines += ["[workload](workload.md#trace). A file is read as it is, plain or compressed with gzip or Zstandard."]
    for plugin in builtin().of(TRACES.path):
        about, reads = getdoc(import_module(plugin.module)), getdoc(plugin.make)
        lines += ["", f"## `{plugin.name}`", "", plugin.summary, "", about or "", "", reads or ""]
    return "\n".join(lines).replace("``", "`") + "\n"


def _servers_page() -> str:
    """The arguments of servers, by what becomes of them."""
    lines = [_NOTE, "# Arguments of servers", ""]
    lines += ["What `blis-tui spec import vllm`, `sglang`, `tensorrt-llm`, `kubernetes`, `compose` and `helm` make of"]
    lines += ["each argument. One that is not here is listed as unknown."]
    for title, server in _SERVERS.items():
        names = {name: [short for short, of in server.short.items() if of == name] for name in server.taken}
        lines += ["", f"## {title}", "", "| argument | what becomes of it |", "|---|---|"]
        for name, key in server.taken.items():
            shown = ", ".join(f"`{'--' if len(one) > 3 else '-'}{one}`" for one in (name, *names[name]))
            lines.append(f"| {shown} | taken: {f'`{key}`' if key else 'see the notes of the import'} |")
        lines += [f"| `--{name}` | no effect: {why} |" for name, why in server.no_effect.items()]
        lines += [f"| `--{name}` | not carried: {why} |" for name, why in server.lost.items()]
    lines += ["", "## Variables of the environment", "", "Of several patterns, the first that fits counts."]
    lines += ["", "| variable | what becomes of it |", "|---|---|"]
    for (lost, why), patterns in groupby(ENVIRONMENT, key=ENVIRONMENT.__getitem__):
        lines.append(f"| `{'`, `'.join(patterns)}` | {'not carried' if lost else 'no effect'}: {why} |")
    lines += ["", "## Routers", "", "Routing policies of routers, charts and operators, written without signs."]
    lines += ["", "| policy | `policy.routing` |", "|---|---|"]
    for name, (policy, why) in POLICIES.items():
        lines.append(f"| `{name}` | `{flow(policy)}`{f' ({why})' if why else ''} |")
    lines += ["", "## Endpoint picker", "", "Plugins of llm-d's endpoint picker; others are not simulated."]
    lines += ["", "| plugin | what becomes of it |", "|---|---|"]
    lines += [f"| `{name}` | scorer `{ours}` |" for name, ours in SCORERS.items()]
    lines += [f"| `{name}` | no effect: {why} |" for name, why in PLUGINS.items()]
    lines += ["", "## Charts and operators", "", "| values | known by |", "|---|---|"]
    lines += [f"| {name} | `{'`, `'.join(keys)}` |" for name, (keys, _) in CHARTS.items()]
    lines += ["", "| key | argument |", "|---|---|"]
    lines += [f"| `vllmConfig.{key}` (production-stack) | `--{name}` |" for key, name in VLLM_CONFIG.items()]
    lines += [f"| `parallelism.{key}` (KServe) | `{name}` |" for key, name in PARALLELISM.items()]
    return "\n".join(lines) + "\n"


def _kind_page(kind: str) -> str:
    tree = root(kind)
    lines = [_NOTE, f"# {kind}", "", tree.description, "", *_table(tree.children.values())]
    for key in tree.children.values():
        lines += _sections(key)
    return "\n".join(lines) + "\n"


def _sections(key: Key) -> Iterator[str]:
    """The keys below a key, as sections; other kinds of documents have their own pages."""
    if key.document or not (key.children or key.variants):
        return
    entry = "Each entry of `" if key.is_list else "`"
    yield from ("", f"## {entry}{key.dotted}`", "", key.description, "", *_table(key.children.values()))
    for variant in key.variants:
        yield from ("", f"### `{key.dotted}` of kind `{variant.value}`", "", variant.description)
        if variant.keys:
            yield from ("", *_table(variant.keys.values()))
    for child in key.children.values():
        yield from _sections(child)


def _table(keys: Iterable[Key]) -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for key in keys:
        yield _row(key)


def _row(key: Key) -> str:
    kind = f"[{key.type}]({key.document.lower()}.md)" if key.document else key.type
    default = f"`{flow(key.default)}`" if key.has_default else "required" if key.required else ""
    meaning = key.description
    if any(choice.description for choice in key.choices):
        meaning += "".join(f"<br>`{choice.value}`: {choice.description}" for choice in key.choices)
    elif key.type == "word" and len(key.choices) > 1:
        meaning += " One of " + ", ".join(f"`{choice.value}`" for choice in key.choices) + "."
    elif key.type == "word":
        kind = f"`{key.choices[0].value}`" if key.choices else kind
    facts = ", ".join(part for part in (kind, key.unit, key.range) if part)
    return f"| `{key.name}` | {_cell(facts)} | {_cell(default)} | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _errors_page() -> str:
    lines = [_NOTE, "# Errors", "", "The meaning of a code never changes.", ""]
    layer = ""
    for code in CODES:
        if (found := _LAYERS[code[:5]]) != layer:
            layer = found
            lines += [f"## {layer}", ""]
        entry = explain(code)
        lines += [f"### {code}: {entry.title}", "", entry.cause, "", f"**Remedy.** {entry.remedy}", ""]
        if entry.example:
            lines += ["```yaml", entry.example, "```", "", "```text", entry.output, "```", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _report_page() -> str:
    lines = [_NOTE, "# Report", ""]
    lines += ["`blis-tui run` prints it as JSON in this order; `blis-tui explain METRIC` explains one.", ""]
    parts = list(_report_parts())
    for found in parts:
        lines += _class_section(found, found.name, {part.name for part in parts})
    lines += ["## Warnings", "", "What each check of `warnings` looks for, by its `id`:", ""]
    lines += _checks()
    lines += [
        "",
        "## Metrics",
        "",
        "What `expect` can name, in addition to the groups of `slo_classes` and `tenants`:",
        "",
    ]
    lines += [f"- `{metric}`" for metric in sorted(all_metrics())]
    return "\n".join(lines).rstrip("\n") + "\n"


def _report_parts() -> Iterable[Part]:
    """The parts of a report, each after the part that first names it."""
    known = report_parts()
    parts: dict[str, Part] = {}

    def add(name: str) -> None:
        if name in known and name not in parts:
            parts[name] = known[name]
            for field in known[name].fields:
                for inner in re.findall(r"\w+", field.annotation):
                    add(inner)
            for base in known[name].bases:
                add(base)

    for name in _REPORT_ROOTS:
        add(name)
    return parts.values()


def _checks() -> Iterator[str]:
    """The checks behind the warnings: each ``Lint("id", ...)`` of the table, and the docstring of its function."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in sorted((_PACKAGE / "results/lints").glob("*.py"))]
    functions = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    docs = {node.name: ast.get_docstring(node) or "" for node in functions}
    table = ast.parse((_PACKAGE / "results/lints/table.py").read_text(encoding="utf-8"))
    for node in ast.walk(table):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Lint":
            name, _, check = node.args
            about = as_code(" ".join(docs[ast.unparse(check).rpartition(".")[2]].split()))
            yield f"- `{ast.literal_eval(name)}`: {about}"


def _records_page() -> str:
    lines = [_NOTE, "# Records", ""]
    lines += [
        "`blis-tui run --records FILE.jsonl` writes one JSON object per line. Each has `kind`, `event` (the number of",
        "the event it belongs to, from 1) and `time_us` (simulated microseconds), and then:",
        "",
    ]
    for kind, record in sorted(RECORD_KINDS.items()):  # their own order is that of imports
        lines += _class_section(part_of(record), kind)
        if record.shown.on_demand:
            lines += ["On demand: only subscribing to it by name brings it; it is in no file.", ""]
        if record is SchedulingStopped:
            lines += _causes()
    return "\n".join(lines).rstrip("\n") + "\n"


def _causes() -> list[str]:
    lines = ["Causes that built-in rules report:", "", "| cause | meaning | amounts | follows from | less of it by |"]
    lines.append("|---|---|---|---|---|")
    for cause in CAUSES.values():
        meaning = re.sub(r" ?\({(key|limit:,)}\)", "", cause.short)
        key = f"`{cause.key}`" if cause.key else ""
        lines.append(
            f"| `{cause.name}` | {meaning} | {f'{cause.unit}s' if cause.unit else ''} | {key} | {cause.advice} |"
        )
    return [*lines, ""]


def _class_section(part: Part, title: str, linked: Collection[str] = ()) -> list[str]:
    lines = [f"## {title}", "", as_code(part.about), ""]
    if part.fields:
        lines += ["| field | type | meaning |", "|---|---|---|"]
        lines += [_field(field, linked) for field in part.fields]
        lines.append("")
    return lines


def _field(field: Field, linked: Collection[str]) -> str:
    facts = ", ".join(part for part in (_type(field.annotation, linked), field.unit) if part)
    return f"| `{field.name}` | {_cell(facts)} | {_cell(field.meaning)} |"


def _type(annotation: str, linked: Collection[str]) -> str:
    """A type as code; those described on the same page are linked."""
    if (match := re.fullmatch(r"([A-Z]\w+)( \| None)?", annotation)) and match[1] in linked:
        return f"[{match[1]}](#{match[1].lower()})" + (" or `None`" if match[2] else "")
    return f"`{annotation}`"


def stale() -> list[str]:
    """Names of the pages that are missing, different, or no longer made."""
    made = pages()
    there = {path.name for path in FOLDER.glob("*.md")}
    wrong = [
        name for name, text in made.items() if name not in there or (FOLDER / name).read_text(encoding="utf-8") != text
    ]
    return sorted({*wrong, *(there - made.keys())})


if __name__ == "__main__":
    write_tree(FOLDER, pages(), replace=True)
    for name in set(stale()):
        (FOLDER / name).unlink()
    sys.stderr.write(f"wrote {len(pages())} pages to {FOLDER}\n")
