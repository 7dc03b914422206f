"""Commands that a shell script starts, with the place of each word. A script is read, never run.

Followed are variables that the script or the caller gives, arrays of words, sums, functions, loops over words and
numbers, and conditions of known values (``[ "$A" = b ]``). Of a condition whose value only running the script would
give, all branches are read; a variable that they leave with different values is not known behind it.
"""

from __future__ import annotations

import ast
import fnmatch
import operator
import re
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.diagnostics import located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Location, Source, Span
from blis_tui.spec.foreign.shell_syntax import Case, Choice, Function, Line, Loop, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from blis_tui.spec.foreign.shell_syntax import Node, Raw

_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_NAME: Final = re.compile(r"\$(?:(\w+|[@*#])|\{([!#]?)(\w+|[@*#])(?:\[([^\[\]{}]*)\])?([^{}]*)\})")
_ARRAY: Final = re.compile(r'\$(?:\{?(@)\}?|\{(!?)(\w+)\[[@*]\](?::?\+"?\$\{\w+\[[@*]\]\}"?)?\})')
_CHANGING: Final = re.compile(r"(:?[-=+?]|//?|%%?|##?|\^\^|,,)(.*)", re.DOTALL)
_COMPUTED: Final = re.compile(r"\$[({][^\s]*|`[^`]*`")
"""What is left of a value that only running the script would give."""
_SUM: Final = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)")
_OUTPUT: Final = re.compile(r"\$\(([^()]*)\)")
_RANGE: Final = re.compile(r"(.*)\{(-?\d+)\.\.(-?\d+)\}(.*)")
_INSIDE: Final = re.compile(r"\(\((.*)\)\)", re.DOTALL)
_CHANGED: Final = re.compile(r"\s*(\w+)\s*(?:(\+\+|--)|([-+*/%]?)=(?!=)(.*))\s*", re.DOTALL)
_OPERATIONS: Final[Mapping[type[ast.AST], Callable[[int, int], int]]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: lambda left, right: int(left / right),
        ast.Mod: lambda left, right: left - right * int(left / right),
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
    }
)
_COMPARED: Final[Mapping[str, Callable[[str, str], bool]]] = MappingProxyType(
    {
        **dict.fromkeys(("=", "=="), fnmatch.fnmatchcase),
        "!=": lambda text, pattern: not fnmatch.fnmatchcase(text, pattern),
        "-eq": lambda left, right: int(left) == int(right),
        "-ne": lambda left, right: int(left) != int(right),
        "-lt": lambda left, right: int(left) < int(right),
        "-le": lambda left, right: int(left) <= int(right),
        "-gt": lambda left, right: int(left) > int(right),
        "-ge": lambda left, right: int(left) >= int(right),
    }
)
_LEADING: Final = frozenset({"exec", "nohup", "time", "sudo", "env", "command", "!"})
"""Words before a command that do not change what it is."""
_DECLARING: Final = frozenset({"export", "local", "declare", "readonly", "typeset"})
_LEAVING: Final = frozenset({"break", "continue", "return", "exit"})
_MOST_STEPS: Final = 20_000
_MOST_CALLS: Final = 20
_MOST_NUMBERS: Final = 10_000
_PASSES: Final = 8
_LONGEST: Final = 100_000
"""Characters of a value; longer ones are made by loops that never end."""


class Word(NamedTuple):
    """A word of a command."""

    text: str
    place: Location
    unknown: str = ""
    """What of it the script does not say, such as a variable; then the text has it as it is written."""


class Command(NamedTuple):
    """A command of a script, with the variables that were set before it."""

    words: tuple[Word, ...]
    variables: Mapping[str, str]
    files: Mapping[str, str] = MappingProxyType({})
    """Files that the script has written before: ``cat > NAME <<EOF``."""
    condition: str = ""
    """The condition under which it is started, if only running the script would tell whether it holds."""


def commands(
    source: Source, given: Mapping[str, str] | None = None, arguments: Sequence[Word] | None = None
) -> list[Command]:
    """Return the commands of a script in order.

    Args:
        source: the script.
        given: values of variables that win over the script's.
        arguments: ``$1`` and those after it; None = they are not known.

    Raises:
        SpecError: a quote is not closed, or loops do not end; the error names the place.
    """
    reader = _Reader(source, given or {})
    if arguments is not None:
        reader.set_arguments(tuple(arguments))
    with suppress(_Left):
        reader.follow(parsed(source))
    return reader.found


def places(words: list[str], source: Source) -> list[Word]:
    """Return the words of a command line that the shell has split; ``source`` has them joined by blanks."""
    placed, column = [], 1
    for text in words:
        placed.append(Word(text, Location(source, Span(1, column, column + max(1, len(text))))))
        column += len(text) + 1
    return placed


def place_of(text: str, source: Source, line: int) -> Location:
    """Return where a text stands, from a line on; that line's beginning if it is nowhere."""
    for at, content in enumerate(source.lines[line - 1 :], line):
        if text and (column := content.find(text)) >= 0:
            return Location(source, Span(at, column + 1, column + 1 + len(text)))
    return Location(source, Span(line, 1, 2))


def _whole(node: ast.expr) -> int:
    """Return the value of a sum or comparison of whole numbers, as a shell computes it.

    Raises:
        ValueError: it is none.
        ZeroDivisionError: it divides by zero.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_whole(node.operand)
    if isinstance(node, ast.BinOp) and (compute := _OPERATIONS.get(type(node.op))) is not None:
        return compute(_whole(node.left), _whole(node.right))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return int(_OPERATIONS[type(node.ops[0])](_whole(node.left), _whole(node.comparators[0])))
    raise ValueError("not a sum of whole numbers")


class _Left(Exception):  # noqa: N818  (no error: a loop, a function or the script is left)
    """``break``, ``continue``, ``return`` or ``exit``."""


class _Reader:
    """Follows a script as far as its text says what happens.

    Attributes:
        found: the commands that it starts.
    """

    def __init__(self, source: Source, given: Mapping[str, str]) -> None:
        self.found: list[Command] = []
        self._source = source
        self._given = given
        self._variables: dict[str, str] = {}
        self._arrays: dict[str, tuple[Word, ...]] = {}
        self._files: dict[str, str] = {}
        self._functions: dict[str, tuple[Node, ...]] = {}
        self._conditions: list[str] = []
        self._steps = 0
        self._calls = 0

    # ---- what is done ----

    def follow(self, nodes: Sequence[Node]) -> None:
        """Follow commands in order."""
        skip = False
        for at, node in enumerate(nodes):
            if skip:
                skip = isinstance(node, Line) and node.end in ("&&", "||")
            elif isinstance(node, Loop):
                self._loop(node)
            elif isinstance(node, Choice):
                self._choose(node.branches)
            elif isinstance(node, Case):
                self._case(node)
            elif isinstance(node, Function):
                self._functions[node.name] = node.body
            elif node.end in ("&&", "||") and self._is_test(node):
                holds = self._holds((node._replace(end=""),))
                if holds is None:
                    self._either([nodes[at + 1 : at + 2], ()], _shown(node))
                skip = holds is not (node.end == "&&")
            else:
                self._line(node)

    def _step(self, place: Location) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise SpecError([located("BLIS1004", "the script's loops do not end", place)])

    def _line(self, line: Line) -> None:
        """Follow one command: set variables, call a function, or note that a program is started."""
        raws, own = list(line.words), dict[str, str]()
        while raws and (_assigned(raws[0]) or raws[0].text in _LEADING):
            raw = raws.pop(0)
            if raws and (match := _ASSIGNED.fullmatch(raw.text)) is not None:
                value, unknown = self._expanded(match[3])
                own.update({} if unknown else {match[1]: value})
        if not raws:
            for raw in line.words:
                self._assign(raw)
            return
        words = [word for raw in raws for word in self._words(raw)]
        if not words:
            return
        self._step(words[0].place)
        name = words[0].text
        if name in _DECLARING:
            for raw in raws[1:]:
                self._assign(raw)
        elif (inside := _INSIDE.fullmatch(raws[0].text)) is not None:
            self._change(inside[1])
        elif name in ("read", "readarray", "mapfile"):
            self._read(name, words[1:], line, own)
        elif name == "eval":
            text = " ".join(word.text for word in words[1:])
            self.follow(parsed(Source(self._source.name, text), words[0].place))
        elif name == "shift" and "@" in self._arrays:
            many = words[1].text if words[1:] else "1"
            self.set_arguments(self._arrays["@"][int(many) if many.isdigit() else 1 :])
        elif name in _LEAVING:
            if not self._conditions:
                raise _Left(name)
        elif name in self._functions and self._calls < _MOST_CALLS:
            self._call(name, tuple(words[1:]))
        else:
            self._start(line, words, own)

    def _start(self, line: Line, words: list[Word], own: Mapping[str, str]) -> None:
        variables = {**self._variables, **own, **self._given}
        condition = self._conditions[-1] if self._conditions else ""
        self.found.append(Command(tuple(words), variables, {**self._files}, condition))
        texts = [word.text for word in words]
        name = next(
            (
                self._expanded(redirection.target.text)[0]
                for redirection in line.redirections
                if ">" in redirection.sign
            ),
            "",
        )
        document = next(
            (
                self._expanded(redirection.target.text)[0]
                for redirection in line.redirections
                if redirection.sign == "<<"
            ),
            "",
        )
        if texts[0] == "tee" and document:
            name = texts[-1]
        if texts[0] == "echo" and name:
            document = " ".join(texts[1:]) + "\n"
        if name and document:
            more = any(redirection.sign == ">>" for redirection in line.redirections)
            self._files[name] = (self._files.get(name, "") if more else "") + document

    def _call(self, name: str, arguments: tuple[Word, ...]) -> None:
        before = self._arrays.get("@")
        self._calls += 1
        self.set_arguments(arguments)
        try:
            self.follow(self._functions[name])
        except _Left as left:
            if str(left) != "return":
                raise
        finally:
            self._calls -= 1
            self.set_arguments(before)

    def set_arguments(self, arguments: tuple[Word, ...] | None) -> None:
        """Set ``$1`` and those after it; None = they are not known."""
        for name in [name for name in self._variables if name.isdigit()]:
            del self._variables[name]
        self._arrays.pop("@", None)
        if arguments is not None:
            self._arrays["@"] = arguments
            known = {str(at): word.text for at, word in enumerate(arguments, 1) if not word.unknown}
            self._variables.update(known)

    # ---- loops and conditions ----

    def _loop(self, loop: Loop) -> None:
        head = loop.head
        if loop.kind != "for":
            place = Location(self._source, Span(1, 1, 2))
            while holds := self._holds(loop.condition, until=loop.kind == "until"):
                self._step(place)
                if not self._goes_on(loop.body):
                    return
            if holds is None:  # not at all, or any number of times
                before = self._variables.copy(), self._arrays.copy()
                self._either([loop.body], _shown(*loop.condition))
                self._variables, self._arrays = before
        elif head and (inside := _INSIDE.fullmatch(head[0].text)) is not None:
            first, _, rest = inside[1].partition(";")
            condition, _, step = rest.partition(";")
            self._change(first)
            while going := self._sum(condition):
                self._step(head[0].place)
                if not self._goes_on(loop.body):
                    return
                self._change(step)
            if going is None:
                self._either([loop.body, ()], inside[0])
        elif head:
            self._each(head, loop.body)

    def _each(self, head: tuple[Raw, ...], body: tuple[Node, ...]) -> None:
        name, words = head[0].text, [word for raw in head[2:] for word in self._words(raw)]
        words = words if len(head) > 1 else list(self._arrays.get("@", ()))
        unknown = next((word.unknown for word in words if word.unknown), "")
        if unknown:
            self._variables.pop(name, None)
            self._either([body, ()], f"for {name} in {unknown}")
            return
        for word in words:
            self._step(word.place)
            self._variables[name] = word.text
            if not self._goes_on(body):
                break

    def _goes_on(self, body: tuple[Node, ...]) -> bool:
        """Follow the body of a loop once; return whether the loop goes on."""
        try:
            self.follow(body)
        except _Left as left:
            if str(left) not in ("break", "continue"):
                raise
            return str(left) == "continue"
        return True

    def _choose(self, branches: Sequence[tuple[tuple[Node, ...], tuple[Node, ...]]]) -> None:
        possible: list[Sequence[Node]] = []
        for condition, body in branches:
            holds = self._holds(condition) if condition else True
            if holds is not False:
                possible.append(body)
            if holds:
                break
        else:
            possible.append(())
        undecided = next((test for test, _ in branches if test and self._holds(test) is None), ())
        if len(possible) == 1:
            self.follow(possible[0])
        else:
            self._either(possible, _shown(*undecided))

    def _case(self, case: Case) -> None:
        text, unknown = self._expanded(case.word.text)
        if unknown:
            self._either([*(body for _, body in case.branches), ()], f"case {unknown}")
            return
        for patterns, body in case.branches:
            if any(fnmatch.fnmatchcase(text, self._expanded(pattern.text)[0]) for pattern in patterns):
                self.follow(body)
                return

    def _either(self, bodies: Sequence[Sequence[Node]], condition: str) -> None:
        """Follow each of several possibilities; what they leave with different values is not known then."""
        before = self._variables, self._arrays
        left: list[tuple[dict[str, str], dict[str, tuple[Word, ...]]]] = []
        self._conditions.append(condition)
        for body in bodies:
            self._variables, self._arrays = before[0].copy(), before[1].copy()
            self.follow(body)
            left.append((self._variables, self._arrays))
        self._conditions.pop()
        first = left[0]
        self._variables = {
            name: value
            for name, value in first[0].items()
            if all(variables.get(name) == value for variables, _ in left)
        }
        self._arrays = {
            name: value
            for name, value in first[1].items()
            if all(variables.get(name) == value for _, variables in left)
        }

    def _is_test(self, line: Line) -> bool:
        return next((word.text for word in line.words if word.text != "!"), "")[:1] == "[" or (
            bool(line.words) and line.words[0].text.startswith(("test", "(("))
        )

    def _holds(self, nodes: Sequence[Node], *, until: bool = False) -> bool | None:
        """Return whether a condition holds; None = the text does not say."""
        holds: bool | None = None
        join = ""
        for node in nodes:
            tested = self._tested(node) if isinstance(node, Line) else None
            if join == "&&":
                holds = False if False in (holds, tested) else None if None in (holds, tested) else True
            elif join == "||":
                holds = True if True in (holds, tested) else None if None in (holds, tested) else False
            else:
                holds = tested
            join = node.end if isinstance(node, Line) else ""
        return holds if holds is None else holds is not until

    def _tested(self, line: Line) -> bool | None:
        if line.words and (inside := _INSIDE.fullmatch(line.words[0].text)) is not None:
            value = self._sum(inside[1])
            return None if value is None else bool(value)
        words = [word for raw in line.words for word in self._words(raw)]
        negated = bool(words) and words[0].text == "!"
        texts = [word.text for word in words[negated:]]
        bracketed = bool(texts) and texts[0] in ("[", "[[", "test")
        texts = [text for text in texts if text not in ("[", "[[", "]", "]]", "test")]
        negated ^= bool(texts) and bracketed and texts[0] == "!"
        texts = texts[texts[:1] == ["!"] :]
        holds: bool | None = None
        if texts in (["true"], [":"], ["false"]):
            holds = texts != ["false"]
        elif any(word.unknown for word in words):
            holds = None
        elif len(texts) < 2 and bracketed:
            holds = any(texts)
        elif len(texts) == 2 and texts[0] in ("-n", "-z"):
            holds = bool(texts[1]) is (texts[0] == "-n")
        elif len(texts) == 3 and (compared := _COMPARED.get(texts[1])) is not None:
            with suppress(ValueError):
                holds = compared(texts[0], texts[2])
        return holds if holds is None else holds is not negated

    # ---- variables ----

    def _assign(self, raw: Raw) -> None:
        name, more = raw.text.rstrip("+="), raw.text.endswith("+=")
        if raw.items is not None:
            words = tuple(word for item in raw.items for word in self._words(item))
            words = (self._arrays.get(name, ()) if more else ()) + words
            if len(words) > _MOST_NUMBERS:
                raise SpecError([located("BLIS1004", f"the list `{name}` is too long", raw.place)])
            self._arrays[name] = words
            return
        if (match := _ASSIGNED.fullmatch(raw.text)) is None:
            return
        value, unknown = self._expanded(match[3])
        if match[2]:
            unknown = unknown or ("" if match[1] in self._variables else match[1])
            value = self._variables.get(match[1], "") + value
        self._put(match[1], None if unknown else value)

    def _put(self, name: str, value: str | None) -> None:
        if value is None or len(value) > _LONGEST:
            self._variables.pop(name, None)
        else:
            self._variables[name] = value

    def _read(self, name: str, words: list[Word], line: Line, own: Mapping[str, str]) -> None:
        """Follow ``IFS=, read -ra NAME <<< "$LIST"``."""
        given = next((redirection.target for redirection in line.redirections if redirection.sign == "<<<"), None)
        text, unknown = ("", "$") if given is None else self._expanded(given.text)
        options = "".join(word.text for word in words if word.text.startswith("-"))
        names = [word.text for word in words if not word.text.startswith("-")]
        split = "\n" if name != "read" else {**self._variables, **own}.get("IFS", "")
        parts = [part for part in re.split(f"[{re.escape(split)}]", text.strip()) if part] if split else text.split()
        place = words[0].place if words else Location(self._source, Span(1, 1, 2))
        if names and ("a" in options or name != "read"):
            self._arrays.pop(names[-1], None)
            if not unknown:
                self._arrays[names[-1]] = tuple(Word(part.strip(), place) for part in parts)
            return
        for at, variable in enumerate(names):
            self._put(variable, None if unknown or at >= len(parts) else parts[at])

    def _change(self, text: str) -> None:
        """Follow ``NAME=SUM``, ``NAME++`` and their like."""
        if (match := _CHANGED.fullmatch(text)) is not None:
            sum_ = f"{match[1]}{match[2][0]}1" if match[2] else f"{match[1]}{match[3]}({match[4]})"
            value = self._sum(sum_ if match[2] or match[3] else match[4])
            self._put(match[1], None if value is None else str(value))

    def _sum(self, text: str) -> int | None:
        """Return the value of a sum of known numbers; None = it is none."""
        names = {**self._variables, **self._given}
        plain = _NAME.sub(self._value, text)
        plain = re.sub(r"[A-Za-z_]\w*", lambda name: names.get(name[0], name[0]), plain).strip()
        if not re.fullmatch(r"[\d\s+*/%()<>=!-]{1,100}", plain):
            return None
        with suppress(SyntaxError, ValueError, ZeroDivisionError, RecursionError, KeyError, OverflowError):
            return int(_whole(ast.parse(plain, mode="eval").body))
        return None

    # ---- words ----

    def _words(self, raw: Raw) -> Iterator[Word]:
        """Yield the words that one is expanded to."""
        whole = _ARRAY.fullmatch(raw.text)
        name = "" if whole is None else whole[1] or whole[3]
        if whole is not None and name in self._arrays and not (raw.quoted and "[*]" in raw.text):
            items = self._arrays[name]
            yield from (Word(str(at), raw.place) for at in range(len(items))) if whole[2] else items
            return
        if name == "@":  # the script is started without arguments
            return
        numbers = None if raw.quoted else _RANGE.fullmatch(raw.text)
        if numbers is not None and abs(int(numbers[3]) - int(numbers[2])) < _MOST_NUMBERS:
            low, high = int(numbers[2]), int(numbers[3])
            step = 1 if low <= high else -1
            yield from (Word(f"{numbers[1]}{at}{numbers[4]}", raw.place) for at in range(low, high + step, step))
            return
        value, unknown = self._expanded(raw.text)
        if raw.items is not None:
            yield Word(raw.text, raw.place)
        elif raw.quoted or not re.search(r"\s", value):
            if raw.quoted or value:
                yield Word(value, raw.place, unknown)
        else:  # an unquoted variable is split
            yield from (Word(text, raw.place, unknown) for text in value.split())

    def _expanded(self, text: str) -> tuple[str, str]:
        """Return a word with the values of its variables, and what has none."""
        if "$" not in text and "`" not in text:
            return text.replace("\0", "$"), ""
        for _ in range(_PASSES):
            before = text
            text = _OUTPUT.sub(self._printed, text)
            text = _SUM.sub(self._computed, _NAME.sub(self._value, text))
            if text == before:
                break
        left = _NAME.search(text) or _COMPUTED.search(text)
        return text.replace("\0", "$"), "" if left is None else left[0]

    def _computed(self, match: re.Match[str]) -> str:
        """Return the value of ``$((…))``; what is no sum of known numbers stays as it is written."""
        value = self._sum(match[1])
        return match[0] if value is None else str(value)

    def _printed(self, match: re.Match[str]) -> str:
        """Return what ``$(echo …)``, ``$(seq …)`` or ``$(basename …)`` prints, also through ``| tr``."""
        lines = [line for line in parsed(Source(self._source.name, match[1])) if isinstance(line, Line)]
        before = self._variables.copy()
        while lines and all(map(_assigned, lines[0].words)):
            self._line(lines.pop(0))
        programs = [[word for raw in line.words for word in self._words(raw)] for line in lines]
        self._variables = before
        if not programs or any(word.unknown or not word.text for program in programs for word in program):
            return match[0]
        (name, *arguments), *filters = ([word.text for word in program] or [""] for program in programs)
        text: str | None = None
        if name == "echo":
            text = " ".join(argument for argument in arguments if argument not in ("-n", "-e"))
        elif name == "basename" and arguments:
            text = arguments[0].rpartition("/")[2]
        elif name == "seq" and arguments and all(re.fullmatch(r"-?\d{1,6}", argument) for argument in arguments):
            numbers = [int(argument) for argument in arguments]
            low, step, high = numbers[0] if numbers[1:] else 1, numbers[1] if numbers[2:] else 1, numbers[-1]
            text = " ".join(map(str, range(low, high + (1 if step > 0 else -1), step or 1)))
        for words in filters:
            if text is None or words[0] != "tr" or len(words) != 3:
                return match[0]
            text = (
                text.replace(words[2], "")
                if words[1] == "-d"
                else text.replace(words[1], words[2].replace("\\n", "\n"))
            )
        return match[0] if text is None else text.strip().replace("$", "\0")

    def _value(self, match: re.Match[str]) -> str:
        """Return the value of a variable; one that has none stays as it is written."""
        name, index = match[1] or match[3], match[4]
        items = self._arrays.get("@" if name in "@*#" else name)
        known = self._given.get(name, self._variables.get(name))
        if match[2] == "!" and index is None:
            known = {**self._variables, **self._given}.get(known or "")
        elif name == "#" or (match[2] == "#" and index):
            known = None if items is None else str(len(items))
        elif items is not None and (index in ("@", "*") or name in "@*"):
            shown = [str(at) for at in range(len(items))] if match[2] else [word.text for word in items]
            known = self._variables.get("IFS", " ")[:1].join(shown)
            known = None if any(word.unknown for word in items) else known
        elif items is not None and known is None:
            at = self._sum(index or "0")
            inside = at is not None and -len(items) <= at < len(items)
            known = items[at].text if inside and at is not None and not items[at].unknown else None
        elif match[2] == "#" and known is not None:
            known = str(len(known))
        changed = self._changed(name, None if known is None else known.replace("$", "\0"), match[5] or "")
        return match[0] if changed is None else changed

    def _changed(self, name: str, known: str | None, change: str) -> str | None:
        """Return a value as ``${NAME:-otherwise}``, ``${NAME%.*}`` and their like change it; None = not known."""
        match = _CHANGING.fullmatch(change)
        if match is None:
            return None if change else known
        sign, argument = match[1], match[2].strip("\"'")
        if sign[-1] in "-=":
            if known or (known is not None and sign[0] != ":"):
                return known
            if sign[-1] == "=":
                self._variables[name] = argument
            return argument
        if sign[-1] == "+":
            return argument if known else ""
        if known is None or sign[-1] == "?":
            return known
        if sign[0] == "/":
            old, _, new = argument.partition("/")
            return known.replace(old.strip("\"'"), new.strip("\"'"), -1 if sign == "//" else 1) if old else known
        if sign in ("^^", ",,"):
            return known.upper() if sign == "^^" else known.lower()
        ends = range(len(known) + 1) if sign in ("#", "%%") else range(len(known), -1, -1)
        for end in ends:
            part, rest = (known[:end], known[end:]) if sign[0] == "#" else (known[end:], known[:end])
            if fnmatch.fnmatchcase(part, argument):
                return rest
        return known


def _assigned(raw: Raw) -> bool:
    return raw.items is not None or _ASSIGNED.fullmatch(raw.text) is not None


def _shown(*nodes: Node) -> str:
    """Return the text of a condition."""
    lines = [node for node in nodes if isinstance(node, Line)]
    return " ".join(word.text for line in lines[:1] for word in line.words)
