"""What is derived from plug points and marks: ``docs/reference/python/plugins.md``, and the index of shipped plug-ins.

The page has every plug point with its protocol, and every type that plug-ins see, with the signatures and docstrings of
the source. The index (``blis_tui/spec/shipped.py``) says which module has a plug-in, so that only
that one is imported. ``make docs`` writes both; a test fails when they are stale.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import dedent, wrap
from typing import TYPE_CHECKING, Final, get_args

import blis_tui.cluster
import blis_tui.engine
import blis_tui.plugins
import blis_tui.spec.shipped
import blis_tui.workload
from blis_tui import model
from blis_tui.model.keys import keys_of
from blis_tui.model.plug_ins import Point, plugins_in
from blis_tui.spec.plug_points import POINTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.model.keys import Key
    from blis_tui.model.plug_ins import Plugin
    from blis_tui.spec.plug_points import PlugPointRow

_WIDTH: Final = 100
"""Columns of lines of prose."""
PAGE: Final = Path(__file__).resolve().parent / "reference" / "python" / "plugins.md"
INDEX: Final = Path(blis_tui.spec.shipped.__file__)
_BEGIN: Final = "<!-- plug points: made by `make docs` from the protocols -->\n"
_END: Final = "<!-- end of plug points -->\n"


def public_names() -> list[str]:
    """What authors of plug-ins may import."""
    return sorted(name for name in vars(blis_tui.plugins) if not name.startswith("_"))


def text_of() -> str:
    """What the page must contain."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    return f"{head}{_BEGIN}\n{_made()}\n{_END}{rest.partition(_END)[2]}"


def index_text() -> str:
    """What the index must contain."""
    head, begin, rest = INDEX.read_text(encoding="utf-8").partition(_INDEX)
    return _ruff(f"{head}{begin}{_marked()!r}\n{rest[rest.index(_AFTER_INDEX) :]}")


@cache
def _marked() -> dict[str, dict[str, str]]:
    """Plug point -> name -> module, in the order of modules; plug-ins for BLIS alone come last."""
    found: dict[str, dict[str, Plugin]] = {row.point.path: {} for row in POINTS}
    for package in (blis_tui.cluster, blis_tui.engine, blis_tui.workload):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for plugin in plugins_in([import_module(info.name)]):
                found[plugin.path][plugin.name] = plugin
    return {
        path: {name: one.module for name, one in sorted(named.items(), key=lambda pair: pair[1].of_blis)}
        for path, named in found.items()
    }


_INDEX: Final = "SHIPPED: Final[Mapping[str, Mapping[str, str]]] = "
_AFTER_INDEX: Final = '"""Plug point -> name -> module.'


def _made() -> str:
    lines = ["| plug point | mark | protocol | this package has |", "|---|---|---|---|"]
    for row in POINTS:
        ships = ", ".join(f"`{name}`" for name in _marked()[row.point.path])
        lines.append(f"| [`{row.point.path}`](#{_mark(row).lower()}) | `{_mark(row)}` | `{_protocol(row)}` | {ships} |")
    for row in POINTS:
        lines += ["", *section(row)]
    lines += ["", "## What plug-ins see and answer with", ""]
    lines += ["The rest of `blis_tui.plugins`, in alphabetical order.", ""]
    protocols = [row.point.protocol for row in POINTS]
    for name in public_names():
        value: object = getattr(blis_tui.plugins, name)
        if not isinstance(value, Point) and value not in protocols:
            lines += [f"### {name}", "", *_code(name, value), ""]
    return _formatted("\n".join(lines).rstrip("\n") + "\n")


def _formatted(page: str) -> str:
    """The page with its code formatted: newer versions of `ruff format` check code in pages, too."""
    texts = re.split(r"(?<=```python\n)(.*?)(?=```\n)", page, flags=re.DOTALL)
    between = "# next\n"
    texts[1::2] = [f"{code.strip()}\n" for code in _ruff(between.join(texts[1::2])).split(between)]
    return "".join(texts)


def _ruff(code: str) -> str:
    """Format code with `ruff format`."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or "ruff"
    command = [ruff, "format", "--stdin-filename", "docs/plugins.py", "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True, check=True).stdout


def _mark(row: PlugPointRow) -> str:
    """The mark for plug-ins of a plug point."""
    return next(name for name in public_names() if getattr(blis_tui.plugins, name) is row.point)


def _protocol(row: PlugPointRow) -> str:
    return row.point.protocol.__name__


def section(row: PlugPointRow) -> Iterator[str]:
    """The section of one plug point."""
    protocol = row.point.protocol
    alias = vars(row.point)["__orig_class__"]  # `PlugPoint[[Pool], StepTimeModel]`, as it was made
    more = [one.__name__ for one in get_args(alias)[0]]
    called = ", ".join(f"`{name}`" for name in ("settings", *more))
    article = "an" if row.point.noun[0] in "aeiou" else "a"
    yield from (f"### {_mark(row)}", "", f"`{row.point.path}`: {article} {row.point.noun}, called with {called}.", "")
    named = _named_by(row)
    if len(named) > 1:
        yield from (*wrap(f"Named by the keys {', '.join(f'`{key}`' for key in named)}.", _WIDTH), "")
    yield from _code(protocol.__name__, protocol)


def _named_by(row: PlugPointRow) -> list[str]:
    """The fields of an experiment's records that hold names of its plug-ins."""
    records = [one for one in map(vars(model).__getitem__, model.__all__) if isinstance(one, type)]
    keys = [(name, key) for record in records for name, (key, _) in keys_of(record).items()]
    return list(dict.fromkeys(key.name or name for name, key in keys if key.point == row.point.path))


def _code(name: str, value: object) -> list[str]:
    """A class or a function without bodies, or the definition of a name."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return ["```python", f"{name} = {_plain(str(value))}", "```"]
    [class_def] = ast.parse(dedent(inspect.getsource(value))).body
    if isinstance(class_def, ast.ClassDef) and inspect.isclass(value):
        class_def.body = list(_with_words(class_def.body, keys_of(value)))
    return ["```python", *map(_as_documentation, _plain(ast.unparse(_outline(class_def))).splitlines()), "```"]


def _with_words(body: list[ast.stmt], keys: Mapping[str, tuple[Key, str]]) -> Iterator[ast.stmt]:
    """The body of a record; each key is followed by its description, and keys that are no fields are left out."""
    for node in body:
        name = ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else ""
        if name not in keys:
            yield node
        elif isinstance(node, ast.AnnAssign) and not keys[name][1].startswith("ClassVar"):
            node.value = None
            yield from (node, ast.Expr(ast.Constant(keys[name][0].doc)))


def _as_documentation(line: str) -> str:
    """A line of code, followed by an attribute's description as a docstring."""
    text = line.strip()
    return f'    """{ast.literal_eval(text)}"""' if re.fullmatch(r"""'.*'|"[^"].*[^"]\"""", text) else line


def _plain(text: str) -> str:
    """Type names without their modules."""
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text)


def _outline(node: ast.stmt) -> ast.stmt:
    """The public part of a definition."""
    if isinstance(node, ast.FunctionDef):
        doc = node.body[:1] if ast.get_docstring(node) is not None else []
        node.body = doc or [ast.Expr(ast.Constant(...))]
    elif isinstance(node, ast.ClassDef):
        # How a class is compiled and stored says nothing about its purpose.
        node.decorator_list = [one for one in node.decorator_list if "mypyc_attr" not in ast.unparse(one)]
        node.bases = [base for base in node.bases if ast.unparse(base) != "Picklable"]
        node.body = list(_public(node.body)) or [ast.Expr(ast.Constant(...))]
    return node


def _public(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The docstring of a class, its attributes with their docstrings, and its methods."""
    shown = True
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AnnAssign | ast.Assign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node
            name = (
                target.name if isinstance(target, ast.FunctionDef) else ast.unparse(getattr(target, "target", target))
            )
            shown = not name.startswith("_") or name in {"__init__", "__len__", "__getitem__", "__iter__"}
        if shown:
            yield _outline(node)


def stale() -> bool:
    """Whether page or index are stale."""
    return PAGE.read_text(encoding="utf-8") != text_of() or INDEX.read_text(encoding="utf-8") != index_text()


if __name__ == "__main__":
    INDEX.write_text(index_text(), encoding="utf-8")
    PAGE.write_text(text_of(), encoding="utf-8")
    sys.stderr.write(f"wrote {INDEX} and {PAGE}\n")
