"""A language server: what editors show of documents while they are written.

It speaks the Language Server Protocol (3.17) by ``pygls``: diagnostics of ``check``, completion, what ``explain`` says
under the cursor, quick fixes of "did you mean", the files behind names, the layout of ``spec fmt``, and above each
experiment what can be done with it.
"""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from blis_tui._version import __version__
from blis_tui.base.errors import BlisError, InputError, SpecError, TraceError
from blis_tui.base.scalars import flow
from blis_tui.base.source import Source
from blis_tui.cli.check import check_document
from blis_tui.spec.authoring.cursor import cursor_at, kind_of, on_row, rows_of
from blis_tui.spec.authoring.fixes import fixes
from blis_tui.spec.authoring.layout import format_source
from blis_tui.spec.library import description, entries, find
from blis_tui.spec.metric_names import COSTS, all_metrics
from blis_tui.spec.read import parse
from blis_tui.spec.subjects import subjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pygls.workspace import TextDocument

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.spec.authoring.cursor import Cursor
    from blis_tui.spec.authoring.key_tree import Key

RUN: Final = "blis-tui.run"
GOLDEN: Final = "blis-tui.golden"
PLAN: Final = "blis-tui.plan"
_LENSES: Final = ((RUN, "run"), (GOLDEN, "golden"), (PLAN, "plan"))
_SETTLE_S: Final = 0.2
"""A document is checked when nothing was typed for so long."""
_SHOWN_LINES: Final = 40
"""Lines of a command's output that are shown; the whole of it is in the log."""
_OURS: Final = re.compile(r"^apiVersion: *[\"']?blis/", re.MULTILINE)
_SUFFIXES: Final = (".blis.yaml", ".study.yaml")


def is_ours(document: TextDocument) -> bool:
    """Return whether a YAML file is a document of blis-tui."""
    return document.uri.endswith(_SUFFIXES) or _OURS.search(document.source) is not None


def directory_of(document: TextDocument) -> Path:
    """Return where relative paths in a document start."""
    path = to_fs_path(document.uri)
    return Path.cwd() if path is None else Path(path).parent


def lines_of(document: TextDocument) -> list[str]:
    """Return a document's lines without their ends."""
    return [line.rstrip("\r\n") for line in document.lines]


def diagnostics_of(document: TextDocument) -> list[types.Diagnostic]:
    """Return the problems that ``check`` finds in the text, which need not be saved."""
    if not is_ours(document):
        return []
    try:
        check_document(parse(Source(document.uri, document.source, directory_of(document))))
    except (SpecError, TraceError) as error:
        diagnostics = error.diagnostics
        return [
            _placed(document, diagnostic, _message(diagnostic, here=diagnostic.file == document.uri))
            for diagnostic in diagnostics
        ]
    except InputError as error:
        return [_placed(document, None, str(error))]
    return []


def _message(diagnostic: Diagnostic, *, here: bool) -> str:
    where = "" if here else f"{diagnostic.file}:{diagnostic.line}: "
    return "\n".join(
        [f"{where}{diagnostic.message}", *diagnostic.notes, *([f"help: {diagnostic.help}"] if diagnostic.help else [])]
    )


def _placed(document: TextDocument, diagnostic: Diagnostic | None, message: str) -> types.Diagnostic:
    """Return a problem at its place; one of another file, or of none, is shown on the first line."""
    line, start, end = (0, 0, 0)
    if diagnostic is not None and diagnostic.line and diagnostic.file == document.uri:
        line, start, end = diagnostic.line - 1, diagnostic.column - 1, diagnostic.end_column - 1
    place = types.Range(types.Position(line, start), types.Position(line, max(end, start + 1)))
    return types.Diagnostic(
        range=document.position_codec.range_to_client_units(document.lines, place),
        message=message,
        severity=types.DiagnosticSeverity.Error,
        code=None if diagnostic is None else diagnostic.code,
        source="blis-tui",
        data=None
        if diagnostic is None
        else [int(step) if step.isdecimal() else step for step in diagnostic.path.split(".") if step],
    )


def completions_of(document: TextDocument, position: types.Position) -> list[types.CompletionItem]:
    """Return the keys, or the values of a key, that may be written at a place."""
    place = document.position_codec.position_from_client_units(document.lines, position)
    cursor = cursor_at(lines_of(document), place.line, place.character) if is_ours(document) else None
    if cursor is None:
        return []
    start = types.Position(place.line, cursor.column)
    end = types.Position(place.line, place.character)
    replaced = document.position_codec.range_to_client_units(document.lines, types.Range(start, end))
    if cursor.key:
        items = _values(cursor, cursor.keys(cursor.key), directory_of(document))
    else:
        items = [_key_item(name, key) for name, key in cursor.names().items()]
        if not items and cursor.path:  # an entry of a list of words
            items = _values(cursor, _last_keys(cursor), directory_of(document))
    for at, item in enumerate(items):
        item.text_edit = types.TextEdit(replaced, item.insert_text or item.label)
        item.sort_text = f"{at:04}"
    return items


def _last_keys(cursor: Cursor) -> list[Key]:
    """Return the keys whose value is the list or map around the cursor."""
    *outer, name = cursor.path
    return replace(cursor, path=tuple(outer)).keys(name)


def _key_item(name: str, key: Key) -> types.CompletionItem:
    whole = bool(key.children) and not key.document and key.type == "map"
    return types.CompletionItem(
        label=name,
        kind=types.CompletionItemKind.Property,
        detail=_facts(key),
        documentation=types.MarkupContent(types.MarkupKind.Markdown, _about(key)),
        insert_text=f"{name}:" if whole else f"{name}: ",
    )


def _facts(key: Key) -> str:
    """Return type, unit, default and range in a line."""
    default = f"default {flow(key.default)}" if key.has_default else "required" if key.required else ""
    kind = f"with kind: {key.only}" if key.only else ""
    return " · ".join(part for part in (key.type, key.unit, default, key.range, kind) if part)


def _about(key: Key) -> str:
    """Return what ``explain`` says of a key, in Markdown."""
    title = f"**{key.dotted}** — {_facts(key)}"
    choices = "\n".join(f"- `{choice.value}` {choice.description}".rstrip() for choice in key.choices)
    return "\n\n".join(part for part in (title, key.description, choices) if part)


def _values(cursor: Cursor, keys: list[Key], directory: Path) -> list[types.CompletionItem]:
    """Return what a key accepts: words, names of documents, its default."""
    items: dict[str, types.CompletionItem] = {}

    def add(word: str, about: str, kind: types.CompletionItemKind) -> None:
        items.setdefault(word, types.CompletionItem(label=word, kind=kind, detail=about or None))

    for key in keys:
        for choice in (*key.choices, *key.discriminator):
            add(choice.value, choice.description, types.CompletionItemKind.EnumMember)
        if "true or false" in key.type:
            for word in ("true", "false"):
                add(word, "", types.CompletionItemKind.Keyword)
        if kind := _document_kind(cursor, key):
            for entry in entries(directory):
                if entry.kind == kind:
                    add(entry.name, description(entry.path), types.CompletionItemKind.File)
        if key.has_default and key.default is not None and not isinstance(key.default, dict | list):
            add(flow(key.default), "the default", types.CompletionItemKind.Value)
        if key.name == "metric":
            for name in sorted({*all_metrics(), *COSTS}):
                add(name, COSTS.get(name, ""), types.CompletionItemKind.Value)
    return list(items.values())


def _document_kind(cursor: Cursor, key: Key) -> str:
    """Return the kind of document that a key names; empty = it names none."""
    if key.path in (("extends",), ("experiment",)):
        return "Experiment"
    return key.document or ("" if cursor.kind != "Study" or key.name != "experiment" else "Experiment")


def hover_of(document: TextDocument, position: types.Position) -> types.Hover | None:
    """Return what ``explain`` says of the key or value at a place."""
    place = document.position_codec.position_from_client_units(document.lines, position)
    target = on_row(lines_of(document), place.line, place.character) if is_ours(document) else None
    if target is None:
        return None
    cursor, name, word = target
    keys = cursor.keys(name)
    text = "\n\n---\n\n".join(_about(key) for key in keys)
    if word and any(word == choice.value for key in keys for choice in (*key.choices, *key.discriminator)):
        text = _explained(word) or text
    elif word and name == "metric":
        text = _explained(word)
    if not text:
        return None
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text))


def _explained(word: str) -> str:
    try:
        return "\n\n".join(f"```text\n{subject.text.rstrip()}\n```" for subject in subjects(word))
    except BlisError:
        return ""


def definition_of(document: TextDocument, position: types.Position) -> types.Location | None:
    """Return the file that the value at a place names: a document, by name or path, or any other file."""
    place = document.position_codec.position_from_client_units(document.lines, position)
    target = on_row(lines_of(document), place.line, place.character) if is_ours(document) else None
    if target is None or not target[2]:
        return None
    cursor, name, word = target
    directory = directory_of(document)
    kinds = [kind for key in cursor.keys(name) if (kind := _document_kind(cursor, key))]
    named = next((path for kind in kinds if (path := find(kind, word, directory)) is not None), None)
    path = named or directory / word
    uri = from_fs_path(str(path.resolve())) if path.is_file() else None
    start = types.Position(0, 0)
    return None if uri is None else types.Location(uri, types.Range(start, start))


def actions_of(document: TextDocument, problems: Iterable[types.Diagnostic]) -> Iterator[types.CodeAction]:
    """Yield quick fixes: the edits that a problem's help names."""
    for problem in problems:
        help_text = next((line[6:] for line in problem.message.splitlines() if line.startswith("help: ")), "")
        path = tuple(problem.data) if isinstance(problem.data, list | tuple) else ()
        for fix in fixes(
            document.source, problem.message.splitlines()[0], help_text, _text_at(document, problem.range), path
        ):
            edit = types.TextEdit(problem.range if fix.at < 0 else _range_at(document, fix.at), fix.text)
            yield types.CodeAction(
                title=fix.title,
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[problem],
                edit=types.WorkspaceEdit(changes={document.uri: [edit]}),
            )


def _text_at(document: TextDocument, place: types.Range) -> str:
    """Return what stands at a place of one line."""
    span = document.position_codec.range_from_client_units(document.lines, place)
    line = document.lines[span.start.line] if span.start.line < len(document.lines) else ""
    return line[span.start.character : span.end.character]


def _range_at(document: TextDocument, at: int) -> types.Range:
    """Return the empty range at a distance from the beginning of the text."""
    before = document.source[:at]
    place = types.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)
    return document.position_codec.range_to_client_units(document.lines, types.Range(place, place))


def lenses_of(document: TextDocument) -> list[types.CodeLens]:
    """Return what can be done with an experiment, above its first line."""
    rows = rows_of(lines_of(document))
    if not is_ours(document) or kind_of(rows) != "Experiment" or to_fs_path(document.uri) is None:
        return []
    start = types.Position(0, 0)
    bounded = any((row.column, row.key) == (0, "expect") for row in rows)
    return [
        types.CodeLens(types.Range(start, start), types.Command(title, command, arguments=[document.uri]))
        for command, title in _LENSES
        if bounded or command != PLAN
    ]


def format_of(document: TextDocument) -> list[types.TextEdit]:
    """Return the edit that brings a document into its normal form; none if it is, or is no valid YAML."""
    if not is_ours(document):
        return []
    try:
        text = format_source(Source(document.uri, document.source)).text
    except SpecError:
        return []
    whole = types.Range(types.Position(0, 0), types.Position(len(document.lines), 0))
    return [] if text == document.source else [types.TextEdit(whole, text)]


def words_of_command(command: str, uri: str) -> list[str]:
    """Return the command line behind a lens."""
    path = to_fs_path(uri) or ""
    ours = [sys.executable, "-m", "blis_tui"]
    return {
        RUN: [*ours, "run", "--format", "table", "--", path],
        GOLDEN: [sys.executable, "-m", "pytest", "-q", "--no-header", "--", path],
        PLAN: [*ours, "plan", "--", path],
    }[command]


async def output_of(command: str, uri: str) -> str:
    """Run a lens' command on the saved file; return what it prints."""
    path = to_fs_path(uri)
    process = await asyncio.create_subprocess_exec(
        *words_of_command(command, uri),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=None if path is None else Path(path).parent,
    )
    printed, _ = await process.communicate()
    return printed.decode(errors="replace").rstrip()


def server() -> LanguageServer:
    """Return a server with all its features."""
    made = LanguageServer("blis-tui", f"v{__version__}")
    _check_what_is_written(made)
    _answer(made)
    for command, title in _LENSES:
        _register(made, command, title)
    return made


def _check_what_is_written(made: LanguageServer) -> None:
    """Publish diagnostics of open documents as they change."""
    waiting: dict[str, asyncio.Task[None]] = {}

    async def publish(uri: str) -> None:
        await asyncio.sleep(_SETTLE_S)
        document = made.workspace.get_text_document(uri)
        diagnostics = diagnostics_of(document)
        made.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics, document.version))

    def check(uri: str) -> None:
        if uri in waiting:
            waiting[uri].cancel()
        waiting[uri] = asyncio.get_running_loop().create_task(publish(uri))

    @made.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: types.DidOpenTextDocumentParams) -> None:
        check(params.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: types.DidChangeTextDocumentParams) -> None:
        check(params.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(_: types.DidSaveTextDocumentParams) -> None:
        for uri in made.workspace.text_documents:  # it may be what others refer to
            check(uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: types.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        if uri in waiting:
            waiting.pop(uri).cancel()
        made.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))


def _answer(made: LanguageServer) -> None:
    """Answer requests about open documents."""

    @made.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[" ", ":", "{", ","]))
    def complete(params: types.CompletionParams) -> list[types.CompletionItem]:
        return completions_of(made.workspace.get_text_document(params.text_document.uri), params.position)

    @made.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        return hover_of(made.workspace.get_text_document(params.text_document.uri), params.position)

    @made.feature(types.TEXT_DOCUMENT_DEFINITION)
    def definition(params: types.DefinitionParams) -> types.Location | None:
        return definition_of(made.workspace.get_text_document(params.text_document.uri), params.position)

    @made.feature(
        types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
    )
    def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        document = made.workspace.get_text_document(params.text_document.uri)
        return list(actions_of(document, params.context.diagnostics))

    @made.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions())
    def lenses(params: types.CodeLensParams) -> list[types.CodeLens]:
        return lenses_of(made.workspace.get_text_document(params.text_document.uri))

    @made.feature(types.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: types.DocumentFormattingParams) -> list[types.TextEdit]:
        return format_of(made.workspace.get_text_document(params.text_document.uri))


def _register(made: LanguageServer, command: str, title: str) -> None:
    """Register the command of a lens: it runs in a process of its own, and its output is logged and shown."""

    @made.command(command)
    async def run(uri: str) -> str:
        text = await output_of(command, uri)
        made.window_log_message(types.LogMessageParams(types.MessageType.Info, f"{title} {uri}\n{text}"))
        shown = "\n".join(text.splitlines()[:_SHOWN_LINES])
        made.window_show_message(types.ShowMessageParams(types.MessageType.Info, shown))
        return text
