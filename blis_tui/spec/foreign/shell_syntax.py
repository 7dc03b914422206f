"""The syntax of shell scripts: words with their places, lists of commands, loops, conditions and functions.

Nothing is expanded here, and nothing is ever run; :mod:`blis_tui.spec.foreign.shell` follows what it can.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.base.classes import NamedTuple
from blis_tui.base.diagnostics import located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Location, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.source import Source

_REDIRECTED: Final = re.compile(r"\d*(>>|<<<|<<|>|<)(&[\d-]+)?")
_DOCUMENT: Final = re.compile(r"(-?)[ \t]*(['\"]?)([\w.]+)\2")
_ARRAY: Final = re.compile(r"([A-Za-z_]\w*\+?=)\(")
_ENDS: Final = ("&&", "||", ";;", "&", "|", ";", "\n", "(", ")")
_DEEPEST: Final = 50


class Raw(NamedTuple):
    """A word as it is written, without its quotes."""

    text: str
    """What single quotes hold has ``\\0`` for ``$``."""
    place: Location
    quoted: bool = False
    items: tuple[Raw, ...] | None = None
    """Of ``NAME=(…)`` the words inside; the text is ``NAME=`` then."""


class Redirection(NamedTuple):
    """``> FILE``, ``<<< WORD`` or ``<<EOF`` with its document."""

    sign: str
    target: Raw


class Line(NamedTuple):
    """One command, and what ends it: ``&&``, ``|`` and their like."""

    words: tuple[Raw, ...]
    redirections: tuple[Redirection, ...]
    end: str


class Loop(NamedTuple):
    """``for``, ``while`` or ``until``."""

    kind: str
    head: tuple[Raw, ...]
    """The words between ``for`` and ``do``; of others nothing."""
    condition: tuple[Node, ...]
    body: tuple[Node, ...]


class Choice(NamedTuple):
    """``if``: conditions and what is done; the last one may have no condition."""

    branches: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]


class Case(NamedTuple):
    """``case``: a word, and patterns with what is done."""

    word: Raw
    branches: tuple[tuple[tuple[Raw, ...], tuple[Node, ...]], ...]


class Function(NamedTuple):
    """``NAME() { … }``."""

    name: str
    body: tuple[Node, ...]


Node: TypeAlias = "Line | Loop | Choice | Case | Function"


def parsed(source: Source, place: Location | None = None) -> tuple[Node, ...]:
    """Return what a script says to do.

    Args:
        source: the script.
        place: where all of it stands, if it is a word of another script; otherwise the places of its own text.

    Raises:
        SpecError: a quote is not closed, or it is nested too deeply; the error names the place.
    """
    return _Parser(_tokens(source, place)).block(frozenset())


def _tokens(source: Source, place: Location | None) -> list[Raw | Redirection | str]:
    return _Lexer(source, place).read(())


class _Lexer:
    """Splits a script into words, redirections and signs."""

    def __init__(self, source: Source, place: Location | None) -> None:
        self._source = source
        self._text = source.text.replace("\r\n", "\n")
        self._at = 0
        self._outer = place
        self._skips: dict[int, int] = {}
        """End of a line -> end of the document behind it."""

    def read(self, until: tuple[str, ...]) -> list[Raw | Redirection | str]:
        """Read up to a sign that ends a list, which is taken, too."""
        parts: list[Raw | Redirection | str] = []
        while self._at < len(self._text):
            if self._text.startswith("\\\n", self._at):
                self._at += 2
            elif self._text[self._at] in " \t":
                self._at += 1
            elif self._text[self._at] == "#":
                self._at = self._line_end(self._at)
            elif self._text.startswith("((", self._at) and (not parts or isinstance(parts[-1], str | Raw)):
                begin = self._at
                parts.append(Raw(self._bracketed(), self._place(begin)))
            elif (sign := next((end for end in _ENDS if self._text.startswith(end, self._at)), "")) != "":
                self._at = self._skips.get(self._at, self._at) + len(sign)
                if sign in until:
                    break
                parts.append(sign)
            elif (redirected := _REDIRECTED.match(self._text, self._at)) is not None:
                parts += self._redirection(redirected)
            else:
                parts.append(self._word())
        return parts

    def _line_end(self, at: int) -> int:
        end = self._text.find("\n", at)
        return len(self._text) if end < 0 else end

    def _redirection(self, match: re.Match[str]) -> list[Raw | Redirection | str]:
        self._at = match.end()
        if match[1] == "<<" and (name := _DOCUMENT.match(self._text, self._at)) is not None:
            self._at = name.end()
            return [Redirection("<<", self._document(name))]
        if match[2]:
            return []
        while self._text.startswith((" ", "\t"), self._at):
            self._at += 1
        if self._text.startswith(("(", "<(", ">("), self._at):  # what another command writes
            self._at = self._text.index("(", self._at)
            self._bracketed()
            return []
        return [Redirection(match[1], self._word())]

    def _document(self, name: re.Match[str]) -> Raw:
        """Return the document behind the line, up to the line that is its name."""
        line = self._line_end(self._at)
        begin = self._skips.get(line, line) + 1
        lines = self._text[begin:].split("\n")
        size = next((at for at, text_line in enumerate(lines) if text_line.strip() == name[3]), len(lines))
        self._skips[line] = min(len(self._text), begin + sum(len(text_line) + 1 for text_line in lines[: size + 1]) - 1)
        text = "\n".join(text_line.lstrip("\t") if name[1] else text_line for text_line in lines[:size]) + "\n"
        return Raw(text.replace("$", "\0") if name[2] else text, self._place(self._at))

    def _word(self) -> Raw:
        """Return the next word; it may be empty before a sign that is none here."""
        begin, parts, quoted = self._at, list[str](), False
        if (array := _ARRAY.match(self._text, begin)) is not None:
            self._at = array.end()
            items = tuple(part for part in self.read((")",)) if isinstance(part, Raw))
            return Raw(array[1], self._place(begin), items=items)
        while self._at < len(self._text) and self._text[self._at] not in " \t\n;&|()<>":
            sign = self._text[self._at]
            if sign in "'\"":
                quoted = True
                parts.append(self._quoted(sign))
            elif sign == "\\":
                if self._text.startswith("\\\n", self._at):
                    break
                quoted = True
                parts.append(self._text[self._at + 1 : self._at + 2].replace("$", "\0"))
                self._at += 2
            elif self._text.startswith(("$(", "${"), self._at):
                parts.append(self._bracketed())
            else:
                parts.append(sign)
                self._at += 1
        self._at += self._at == begin
        return Raw("".join(parts), self._place(begin), quoted)

    def _quoted(self, sign: str) -> str:
        begin = self._at
        self._at += 1
        parts: list[str] = []
        while self._at < len(self._text) and self._text[self._at] != sign:
            if sign == '"' and self._text.startswith(("$(", "${"), self._at):
                parts.append(self._bracketed())
                continue
            if sign == '"' and self._text.startswith("\\\n", self._at):
                self._at += 2
                continue
            escaped = (
                sign == '"' and self._text[self._at] == "\\" and self._text[self._at + 1 : self._at + 2] in '"\\$`'
            )
            self._at += escaped
            character = self._text[self._at : self._at + 1]
            parts.append(character.replace("$", "\0") if escaped or sign == "'" else character)
            self._at += 1
        if self._at >= len(self._text):
            raise SpecError([located("BLIS1004", f"this {sign} is not closed", self._place(begin, begin + 1))])
        self._at += 1
        return "".join(parts)

    def _bracketed(self) -> str:
        """Return ``$(…)``, ``$((…))`` or ``${…}`` as it is written."""
        begin, depth = self._at, 0
        while self._at < len(self._text):
            depth += (self._text[self._at] in "({") - (self._text[self._at] in ")}")
            self._at += 1
            if not depth and self._at > begin + 1:
                break
        return self._text[begin : self._at]

    def _place(self, begin: int, end: int | None = None) -> Location:
        if self._outer is not None:
            return self._outer
        line = self._text.count("\n", 0, begin) + 1
        column = begin - (self._text.rfind("\n", 0, begin) + 1) + 1
        return Location(self._source, Span(line, column, column + max(1, (end or self._at) - begin)))


class _Parser:
    """Makes a tree of tokens. What is not closed ends with the script."""

    def __init__(self, tokens: list[Raw | Redirection | str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def block(self, until: frozenset[str]) -> tuple[Node, ...]:
        """Return commands up to a word or sign, which stays."""
        nodes: list[Node] = []
        self._depth += 1
        while (part := self._peek()) is not None:
            name = self._name(part)
            if name in until:
                break
            if self._depth > _DEEPEST and isinstance(part, Raw):
                raise SpecError([located("BLIS1004", "commands are nested too deeply", part.place)])
            if isinstance(part, str) and part != "(":
                self._at += 1
            elif name in ("for", "while", "until", "select"):
                nodes.append(self._loop(name))
            elif name == "if":
                nodes.append(self._choice())
            elif name == "case":
                nodes += self._case()
            elif (function := self._function(part)) is not None:
                nodes.append(function)
            elif name in ("{", "("):
                self._at += 1
                nodes += self.block(frozenset({{"{": "}", "(": ")"}[name]}))
                self._at += 1
            elif (line := self._line()).words or line.redirections:
                nodes.append(line)
        self._depth -= 1
        return tuple(nodes)

    def _peek(self, ahead: int = 0) -> Raw | Redirection | str | None:
        return self._tokens[self._at + ahead] if self._at + ahead < len(self._tokens) else None

    def _name(self, part: Raw | Redirection | str | None) -> str:
        """Return a sign, or a word without quotes."""
        return part if isinstance(part, str) else part.text if isinstance(part, Raw) and not part.quoted else ""

    def _line(self) -> Line:
        words: list[Raw] = []
        redirections: list[Redirection] = []
        while (part := self._peek()) is not None and (not isinstance(part, str) or part in "()"):
            if part == ")" or self._name(part) == ")":
                break
            self._at += 1
            if isinstance(part, Raw):
                words.append(part)
            elif isinstance(part, Redirection):
                redirections.append(part)
        end = self._peek()
        return Line(tuple(words), tuple(redirections), end if isinstance(end, str) else "")

    def _until(self, *names: str) -> tuple[Node, ...]:
        """Return commands up to a word, which is taken."""
        nodes = self.block(frozenset(names))
        self._at += 1
        return nodes

    def _loop(self, kind: str) -> Loop:
        self._at += 1
        head: list[Raw] = []
        if kind in ("while", "until"):
            return Loop(kind, (), self._until("do"), self._until("done"))
        while (part := self._peek()) is not None and self._name(part) not in ("do", "{"):
            head += [part] if isinstance(part, Raw) else []
            self._at += 1
        self._at += 1
        return Loop("for", tuple(head), (), self._until("done", "}") if self._depth else ())

    def _choice(self) -> Choice:
        branches = []
        ends = frozenset({"elif", "else", "fi"})
        while self._name(self._peek()) in ("if", "elif"):
            self._at += 1
            condition = self._until("then")
            branches.append((condition, self.block(ends)))
        if self._name(self._peek()) == "else":
            self._at += 1
            branches.append(((), self.block(frozenset({"fi"}))))
        self._at += 1
        return Choice(tuple(branches))

    def _case(self) -> Sequence[Case]:
        self._at += 1
        word, branches = self._peek(), list[tuple[tuple[Raw, ...], tuple[Node, ...]]]()
        while (part := self._peek()) is not None and self._name(part) != "in":
            self._at += 1
        self._at += 1
        while (part := self._peek()) is not None and self._name(part) != "esac":
            patterns: list[Raw] = []
            while (part := self._peek()) is not None and part != ")" and self._name(part) != "esac":
                patterns += [part] if isinstance(part, Raw) else []
                self._at += 1
            if part == ")":
                self._at += 1
                branches.append((tuple(patterns), self.block(frozenset({";;", "esac"}))))
            self._at += self._peek() == ";;"
        self._at += 1
        return [Case(word, tuple(branches))] if isinstance(word, Raw) else []

    def _function(self, part: Raw | Redirection | str | None) -> Function | None:
        """Return a function if one begins here."""
        named = self._name(part) == "function"
        name = self._name(self._peek(int(named)))
        ahead = int(named) + 1
        brackets = self._peek(ahead) == "(" and self._peek(ahead + 1) == ")"
        ahead += 2 * brackets
        while self._peek(ahead) == "\n":
            ahead += 1
        if not (named or brackets) or self._name(self._peek(ahead)) not in ("{", "(") or not name:
            return None
        self._at += ahead
        end = {"{": "}", "(": ")"}[self._name(self._peek())]
        self._at += 1
        return Function(name, self._until(end))
