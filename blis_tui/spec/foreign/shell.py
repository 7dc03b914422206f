"""Commands in a shell script, with the place of each word. A script is read, never run.

Known are comments, quotes, continued lines, variables that the script or the caller gives (``NAME=…``, ``$NAME``,
``${NAME}``, ``${NAME:-default}``), arrays of words (``ARGS=(…)``, ``"${ARGS[@]}"``), and what separates commands.
"""

from __future__ import annotations

import ast
import operator
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.diagnostics import located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Location, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from blis_tui.base.source import Source

_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)=")
_NAME: Final = re.compile(r"\$(?:(\w+)|\{(\w+)(\[[@*]\])?(?::?-([^{}]*))?\})")
_COMPUTED: Final = re.compile(r"\$[({][^\s]*")
"""What is left of a value that only running the script would give."""
_REDIRECTED: Final = re.compile(r"\d*(>>|<<<|<<|>|<)(&[\d-]+)?")
_SUM: Final = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)")
_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: lambda one, other: int(one / other),
        ast.Mod: lambda one, other: one - other * int(one / other),
    }
)
_ENDS: Final = (";", "&", "|", "\n")
_LEADING: Final = frozenset({"export", "exec", "nohup", "time", "sudo", "env", "do", "then", "else", "{", "("})
"""Words before a command that do not change what it is."""


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


def commands(source: Source, given: Mapping[str, str] | None = None) -> list[Command]:
    """Return the commands of a script in order.

    Args:
        source: the script.
        given: values of variables that win over the script's.

    Raises:
        SpecError: a quote is not closed; the error names the place.
    """
    return _Reader(source, given or {}).read()


def places(words: list[str], source: Source) -> list[Word]:
    """Return the words of a command line that the shell has split; ``source`` has them joined by blanks."""
    found, column = [], 1
    for text in words:
        found.append(Word(text, Location(source, Span(1, column, column + max(1, len(text))))))
        column += len(text) + 1
    return found


def _whole(node: ast.expr) -> int:
    """Return the value of a sum of whole numbers, as a shell computes it.

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
    raise ValueError("not a sum of whole numbers")


def place_of(text: str, source: Source, line: int) -> Location:
    """Return where a text stands, from a line on; that line's beginning if it is nowhere."""
    for at, one in enumerate(source.lines[line - 1 :], line):
        if text and (column := one.find(text)) >= 0:
            return Location(source, Span(at, column + 1, column + 1 + len(text)))
    return Location(source, Span(line, 1, 2))


class _Reader:
    """Reads a script character by character."""

    def __init__(self, source: Source, given: Mapping[str, str]) -> None:
        self._source = source
        self._text = source.text.replace("\r\n", "\n")
        self._given = given
        self._variables: dict[str, str] = {}
        self._arrays: dict[str, tuple[Word, ...]] = {}
        self._files: dict[str, str] = {}
        self._written: tuple[str, str] = ("", "")
        """Of the command that is read: the file that it writes, and the document that it is given."""
        self._at = 0

    def read(self) -> list[Command]:
        found: list[Command] = []
        words: list[Word] = []
        while self._at < len(self._text):
            if self._text[self._at] in _ENDS:
                self._at += 1
                self._finish(words, found)
            elif self._text[self._at] == "#":
                self._at = self._end_of_line()
            elif not self._skipped():
                words += self._word(first=all(one.text in _LEADING for one in words))
        self._finish(words, found)
        return found

    def _finish(self, words: list[Word], found: list[Command]) -> None:
        while words and words[0].text in _LEADING:
            del words[0]
        if words:
            found.append(Command(tuple(words), {**self._variables, **self._given}, {**self._files}))
        if all(self._written):
            self._files[self._written[0]] = self._written[1]
        self._written = ("", "")
        words.clear()

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _skipped(self) -> bool:
        """Skip a blank, a continued line, or a redirection with its file or document."""
        if (redirected := _REDIRECTED.match(self._text, self._at)) is not None:
            self._at = redirected.end()
            if redirected[1] == "<<":
                self._skip_document()
            elif not redirected[2]:
                while self._text.startswith((" ", "\t"), self._at):
                    self._at += 1
                name = self._expanded(self._joined()[0])[0]
                self._written = (name if ">" in redirected[1] else self._written[0], self._written[1])
        elif self._text.startswith("\\\n", self._at):
            self._at += 2
        elif self._text[self._at] in " \t":
            self._at += 1
        else:
            return False
        return True

    def _skip_document(self) -> None:
        """Skip a document that is written behind the line, up to its last line."""
        begin = self._end_of_line()
        name = re.match(r"-?\s*['\"]?([\w.]+)", self._text[self._at : begin])
        if name is None:
            return
        rest = self._text[self._at + name.end() : begin].lstrip("'\"")
        lines = self._text[begin + 1 :].split("\n")
        size = next((at for at, line in enumerate(lines) if line.strip() == name[1]), len(lines))
        after = "\n".join(lines[size + 1 :])
        self._written = (self._written[0], "\n".join(lines[:size]) + "\n")
        # The rest of the line comes before what follows the document; its lines stay, so that places are right.
        self._text = self._text[: self._at] + rest + "\n" * (min(size, len(lines) - 1) + 2) + after

    def _word(self, *, first: bool) -> Iterator[Word]:
        """Yield the next word: none of an assignment, several of an array."""
        begin = self._at
        if (assigned := _ASSIGNED.match(self._text, begin)) is not None and first:
            self._at = assigned.end()
            self._assign(assigned[1])
            return
        text, quoted = self._joined()
        if (array := re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", text)) is not None and array[1] in self._arrays:
            yield from self._arrays[array[1]]
            return
        place = self._place(begin)
        value, unknown = self._expanded(text)
        if quoted or " " not in value:
            yield Word(value, place, unknown)
        else:  # an unquoted variable is split
            yield from (Word(one, place, unknown) for one in value.split())

    def _assign(self, name: str) -> None:
        if self._text.startswith("(", self._at):
            self._at += 1
            words: list[Word] = []
            while self._at < len(self._text) and self._text[self._at] != ")":
                if self._text[self._at] == "#":
                    self._at = self._end_of_line()
                elif self._text[self._at] == "\n":
                    self._at += 1
                elif not self._skipped():
                    words += self._word(first=False)
            self._at += 1
            self._arrays[name] = tuple(words)
            return
        value, unknown = self._expanded(self._joined()[0])
        if not unknown:
            self._variables[name] = value

    def _joined(self) -> tuple[str, bool]:
        """Return a word without its quotes, and whether it had any; what single quotes hold is not expanded."""
        parts: list[str] = []
        quoted = False
        while self._at < len(self._text) and self._text[self._at] not in " \t\n;&|)":
            sign = self._text[self._at]
            if sign in "'\"":
                quoted = True
                parts.append(self._quoted(sign))
            elif sign == "\\":
                if self._text.startswith("\\\n", self._at):
                    break
                quoted = True
                parts.append(self._text[self._at + 1 : self._at + 2])
                self._at += 2
            elif self._text.startswith(("$(", "${"), self._at):
                parts.append(self._bracketed())
            else:
                parts.append(sign)
                self._at += 1
        if self._at < len(self._text) and self._text[self._at] == ")" and not parts:
            self._at += 1
        return "".join(parts), quoted

    def _quoted(self, sign: str) -> str:
        begin = self._at
        self._at += 1
        parts: list[str] = []
        while self._at < len(self._text) and self._text[self._at] != sign:
            if sign == '"' and self._text.startswith(("$(", "${"), self._at):
                parts.append(self._bracketed())
                continue
            if sign == '"' and self._text[self._at] == "\\" and self._text[self._at + 1 : self._at + 2] in '"\\$`\n':
                self._at += 1
            parts.append(self._text[self._at : self._at + 1])
            self._at += 1
        if self._at >= len(self._text):
            raise self._error(begin, f"this {sign} is not closed")
        self._at += 1
        text = "".join(parts)
        return text.replace("$", "\0") if sign == "'" else text

    def _bracketed(self) -> str:
        """Return ``$(…)``, ``$((…))`` or ``${…}`` as it is written."""
        begin, depth = self._at, 0
        while self._at < len(self._text):
            depth += (self._text[self._at] in "({") - (self._text[self._at] in ")}")
            self._at += 1
            if not depth and self._at > begin + 1:
                break
        return self._text[begin : self._at]

    def _expanded(self, text: str) -> tuple[str, str]:
        """Return a word with the values of its variables, and what has none."""
        unknown = ""

        def value(match: re.Match[str]) -> str:
            nonlocal unknown
            name = match[1] or match[2]
            known = self._given.get(name, self._variables.get(name))
            if known is None and match[4] is None:
                unknown = unknown or match[0]
                return match[0]
            return known or match[4] or ""

        found = _NAME.sub(value, _SUM.sub(self._computed, text))
        if not unknown and (computed := _COMPUTED.search(found)) is not None:
            unknown = computed[0]
        return found.replace("\0", "$"), unknown

    def _computed(self, match: re.Match[str]) -> str:
        """Return the value of ``$((…))``; what is no sum of known numbers stays as it is written."""
        names = {**self._variables, **self._given}
        text = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda name: names.get(name[1], name[1]), match[1])
        if not re.fullmatch(r"[\d\s+*/%()-]{1,100}", text):
            return match[0]
        try:
            return str(_whole(ast.parse(text.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            return match[0]

    def _place(self, begin: int) -> Location:
        line = self._text.count("\n", 0, begin) + 1
        column = begin - (self._text.rfind("\n", 0, begin) + 1) + 1
        return Location(self._source, Span(line, column, column + max(1, self._at - begin)))

    def _error(self, begin: int, message: str) -> SpecError:
        return SpecError([located("BLIS1004", message, self._place(begin))])
