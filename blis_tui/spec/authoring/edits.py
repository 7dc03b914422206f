"""Cuts a key from the text of a document, or puts one into it; comments and layout stay.

The places are those of the parser's nodes. What was made is read again: an edit that would change more is not done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast

import yaml

from blis_tui.base.errors import BlisError
from blis_tui.base.source import Source, as_map, copied
from blis_tui.spec.read import parse

if TYPE_CHECKING:
    from blis_tui.base.source import DataPath, Json

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STEP: Final = 2
_Pairs: TypeAlias = "list[tuple[yaml.Node, yaml.Node]]"


def cut(text: str, path: DataPath) -> str:
    """Return a text without a key of a map and its value; as it is if that cannot be done without changing others.

    Comments on lines of their own stay, but for those inside of the value.
    """
    holder = _node(text, path[:-1])
    pairs: _Pairs = holder.value
    at = next(at for at, (key, _) in enumerate(pairs) if key.value == path[-1])
    made = (_cut_flow if holder.flow_style else _cut_block)(text, pairs, at)
    wanted = copied(parse(Source("-", text)).data)
    del holder_of(wanted, path)[str(path[-1])]
    try:
        return made if parse(Source("-", made)).data == wanted else text
    except BlisError:
        return text


def holder_of(data: Json, path: DataPath) -> dict[str, Json]:
    """Return the map that has the key at the end of a path."""
    for step in path[:-1]:
        data = data[step] if isinstance(data, list) and isinstance(step, int) else as_map(data)[str(step)]
    return as_map(data)


def inserted(text: str, path: DataPath, entry: str) -> tuple[int, str] | None:
    """Return where ``key: value`` becomes the last key of a map, and what to insert there.

    Returns:
        None: the text is no YAML, or nothing is at the path, or something else than a map.
    """
    try:
        node = _node(text, path)
    except (yaml.YAMLError, StopIteration, IndexError, TypeError, AttributeError):
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    if node.flow_style:
        at = node.end_mark.index - 1
        return (_end(node.value[-1][1]), f", {entry}") if node.value else (at, entry)
    last = _line_end(text, _end(node.value[-1][1]))
    indent = " " * node.value[0][0].start_mark.column
    return last, f"{'' if text[:last].endswith(chr(10)) else chr(10)}{indent}{entry}\n"


def _node(text: str, path: DataPath) -> yaml.CollectionNode:
    node = cast("yaml.CollectionNode", yaml.compose(text, Loader=_LOADER))
    for step in path:
        node = _inside(node, step)
    return node


def _inside(node: yaml.CollectionNode, step: str | int) -> yaml.CollectionNode:
    if isinstance(step, int):
        return cast("yaml.CollectionNode", node.value[step])
    return next(cast("yaml.CollectionNode", value) for key, value in node.value if key.value == step)


def _end(node: yaml.Node) -> int:
    """Return where a node ends in the text; the parser lets a map or list go on to what comes next."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _line_end(text: str, end: int) -> int:
    """Return where the next line begins, if none does at ``end``."""
    return end if text[:end].endswith("\n") else text.find("\n", end) + 1 or len(text)


def _cut_flow(text: str, pairs: _Pairs, at: int) -> str:
    begin, end = pairs[at][0].start_mark.index, _end(pairs[at][1])
    if at + 1 < len(pairs):
        end = pairs[at + 1][0].start_mark.index
    elif at:
        begin = _end(pairs[at - 1][1])
    return text[:begin] + text[end:]


def _cut_block(text: str, pairs: _Pairs, at: int) -> str:
    key, value = pairs[at]
    begin, end = key.start_mark.index, _end(value)
    line_begin = text.rindex("\n", 0, begin) + 1 if "\n" in text[:begin] else 0
    if len(pairs) == 1:  # of the map nothing is left
        before = text[:begin].rstrip()
        return f"{before if before.endswith((':', '-')) else text[:begin].rstrip(' ')} {{}}{text[end:]}"
    if text[line_begin:begin].strip():  # behind the dash of a list's entry, where the next key goes
        if at + 1 < len(pairs):
            return text[:begin] + text[pairs[at + 1][0].start_mark.index :]
        return text
    last = _line_end(text, end)
    before, behind = text[:line_begin], text[last:]
    if before.endswith("\n\n") and behind.startswith("\n"):
        behind = behind[1:]
    return before + behind
