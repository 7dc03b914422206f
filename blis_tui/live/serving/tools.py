"""Tools that a client offers, and calls of them with arguments that their schemas accept."""

from __future__ import annotations

import json
from itertools import accumulate
from math import ceil, floor, inf
from reprlib import repr as brief
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.live.serving.conversation import arguments_span, call_text
from blis_tui.live.serving.fields import RefusedError
from blis_tui.live.serving.shared_prefixes import Answer, encode, pieces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_VALUES: Final = 1000
"""How many values the arguments of a call may have: schemas that refer to others may ask for any number."""
_DEEPEST: Final = 64
"""How many schemas may be within one another, those that refer to others included."""
_LONGEST_TEXT: Final = 100_000
_END: Final = 0
"""The token that follows a complete call if it must go on: it has no text, like an end token that is ignored."""


def as_listed(tool: Mapping[str, object]) -> str:
    """Return a tool as the prompt has it."""
    return json.dumps(tool, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Function:
    """A function that may be called.

    Attributes:
        name: its name.
        parameters: the JSON schema of its arguments.
        listed: it as the prompt has it.
    """

    name: str
    parameters: Mapping[str, object]
    listed: str

    @classmethod
    def of(cls, name: object, description: object, parameters: object, parameter: str) -> Function:
        """Return the function that a client describes in the parameter.

        Raises:
            RefusedError: it has no name, or no schema that is an object.
        """
        if not isinstance(name, str) or not name:
            raise RefusedError(400, "each function needs a name", parameter)
        if parameters is not None and not isinstance(parameters, dict):
            raise RefusedError(400, f"the parameters of `{name[:100]}` must be a JSON schema", parameter)
        about: dict[str, object] = {"name": name}
        about |= {"description": description} if isinstance(description, str) else {}
        about |= {} if parameters is None else {"parameters": parameters}
        return cls(name, parameters or {}, as_listed({"type": "function", "function": about}))


@dataclass(frozen=True, slots=True)
class Tools:
    """What a client offers, and what it makes of it.

    Attributes:
        functions: what can be called.
        others: tools that the server would run itself, as JSON; they are in the prompt, and never called.
        forced: the function that must be called; None = none must.
        named: whether the client has named it.
    """

    functions: Sequence[Function] = ()
    others: Sequence[str] = ()
    forced: Function | None = None
    named: bool = False

    def text(self) -> str:
        """Return what of them is in the prompt; empty = nothing."""
        lines = [*(function.listed for function in self.functions), *self.others]
        return "\n".join(["# Tools", "<tools>", *lines, "</tools>"]) if lines else ""

    def with_choice(self, choice: object) -> Tools:
        """Return them under a choice: ``none`` ignores them all, ``required`` forces a call of the first function.

        Raises:
            RefusedError: there is no such choice, or no function.
        """
        if choice == "none":
            return Tools()
        if choice == "auto":
            return self
        if choice != "required":
            message = f'`tool_choice` must be "none", "auto", "required" or a function, got {brief(choice)}'
            raise RefusedError(400, message, "tool_choice")
        if not self.functions:
            raise RefusedError(400, "`tool_choice` needs `tools` with a function", "tool_choice")
        return Tools(self.functions, self.others, self.functions[0])

    def naming(self, name: object) -> Tools:
        """Return them with a call of the function of that name.

        Raises:
            RefusedError: there is none.
        """
        forced = next((function for function in self.functions if function.name == name), None)
        if forced is None:
            raise RefusedError(400, f"`tool_choice` must name a function of `tools`, got {brief(name)}", "tool_choice")
        return Tools(self.functions, self.others, forced, named=True)

    def call(self) -> Call | None:
        """Return the call that the answer must be, if it must be one.

        Raises:
            RefusedError: there are no arguments for it.
        """
        return None if self.forced is None else Call.of(self.forced)


@dataclass(frozen=True, slots=True)
class Call:
    """A call to make: the function's name, and its arguments as JSON up to and from where words can be put in.

    Attributes:
        name: the function.
        before: the arguments, or their beginning.
        after: the rest behind the words; empty = there is no place for any.
    """

    name: str
    before: str
    after: str

    @classmethod
    def of(cls, function: Function) -> Call:
        """Return the call of a function with its required arguments.

        Raises:
            RefusedError: they cannot be made.
        """
        filling = _Filling(function)
        text = json.dumps(filling.value({"type": "object", **function.parameters}), ensure_ascii=False)
        before, place, after = text.partition(_PLACE)
        return cls(function.name, before + ("" if not place else "the"), "" if not place else f" end{after}")

    def answer(self, number: int, wanted: int) -> CalledAnswer:
        """Return the call with so many words that it has ``wanted`` tokens, if they have a place."""
        least = len(encode(call_text(self.name, self.before + self.after)))
        count = max(wanted - least, 0) if self.after else 0
        words, _ = Answer(number, count, goes_on=True).piece(0, count)
        return CalledAnswer(self.name, self.before + words + self.after)


class CalledAnswer:
    """An answer that is the call of a tool; its text is that of the arguments.

    Args:
        name: the function.
        arguments: as JSON.
    """

    def __init__(self, name: str, arguments: str) -> None:
        text = call_text(name, arguments)
        self._pieces = pieces(text)
        start, end = arguments_span(name, arguments)
        ends = list(accumulate(map(len, self._pieces)))
        self._shown = [
            piece[max(start - (at - len(piece)), 0) : max(end - (at - len(piece)), 0)]
            for piece, at in zip(self._pieces, ends, strict=True)
        ]
        self._ids = encode(text)

    @property
    def length(self) -> int:
        """Number of its tokens."""
        return len(self._ids)

    def piece(self, start: int, stop: int) -> tuple[str, Sequence[int]]:
        """Return the text of the arguments and the tokens from ``start`` to ``stop``; end tokens follow the last."""
        ids = self._ids[start:stop]
        return "".join(self._shown[start:stop]), [*ids, *[_END] * (stop - start - len(ids))]


# ---- arguments ----

_PLACE: Final = "\ue000"
"""Stands in the first text that may be any, for words."""
_SIMPLE: Final = {"boolean": True, "null": None}


class _Filling:
    """Makes values that a function's schemas accept, as far as simple types go."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._left = _MOST_VALUES
        self._placed = _PLACE in function.listed

    def value(self, schema: object, depth: int = 0) -> object:
        """Return a value: the first that is listed, or the simplest of its type.

        Args:
            schema: what the value must be.
            depth: in how many schemas this one is.

        Raises:
            RefusedError: the arguments have too many values.
        """
        self._left -= 1
        if self._left < 0:
            raise self._refused(f"more than {_MOST_VALUES:,} values")
        if depth > _DEEPEST:
            raise self._refused(f"more than {_DEEPEST} levels")
        if not isinstance(schema, dict):
            return "the end"  # `true` accepts anything
        for name in ("$ref", "allOf", "anyOf", "oneOf"):
            if name in schema:
                return self.value(self._instead(name, schema), depth + 1)
        listed = schema.get("enum")
        if isinstance(listed, list) and listed:
            return listed[0]
        if "const" in schema:
            return schema["const"]
        return self._of_kind(_kind(schema), schema, depth + 1)

    def _instead(self, name: str, schema: Mapping[str, object]) -> object:
        """Return the schema that a reference or a choice of schemas stands for; all of ``allOf`` are merged."""
        found = schema[name]
        rest = {key: one for key, one in schema.items() if key != name}
        if name == "$ref":
            found = self._referred(found)
        elif isinstance(found, list) and name != "allOf":
            found = next((one for one in found if not isinstance(one, dict) or one.get("type") != "null"), {})
        elif isinstance(found, list):
            merged: dict[str, object] = {}
            for one in found:
                merged |= one if isinstance(one, dict) else {}
            found = merged
        return {**found, **rest} if isinstance(found, dict) else rest

    def _referred(self, reference: object) -> object:
        found: object = self._function.parameters
        for step in [step for step in str(reference).removeprefix("#").split("/") if step]:
            found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            raise self._refused(f"a reference to {str(reference)[:100]!r}, which is nowhere")
        return found

    def _of_kind(self, kind: str, schema: Mapping[str, object], depth: int) -> object:
        if kind == "object":
            described = schema.get("properties")
            properties: Mapping[str, object] = described if isinstance(described, dict) else {}
            required = schema.get("required")
            names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
            return {name: self.value(properties.get(name), depth) for name in names}
        if kind == "array":
            count = min(_least(schema, "minItems"), _MOST_VALUES + 1)
            return [self.value(schema.get("items"), depth) for _ in range(count)]
        if kind in ("integer", "number"):
            return _number(kind, schema)
        return _SIMPLE[kind] if kind in _SIMPLE else self._text(schema)

    def _text(self, schema: Mapping[str, object]) -> str:
        if not self._placed and not schema.keys() & {"minLength", "maxLength", "pattern", "format"}:
            self._placed = True
            return _PLACE
        least, longest = _least(schema, "minLength"), schema.get("maxLength")
        if least > _LONGEST_TEXT:
            raise self._refused(f"a text of {least:,} characters")
        return "the end".ljust(least, ".")[: longest if type(longest) is int and longest >= 0 else None]

    def _refused(self, what: str) -> RefusedError:
        return RefusedError(400, f"the arguments of `{self._function.name[:100]}` would have {what}", "tools")


def _kind(schema: Mapping[str, object]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _least(schema: Mapping[str, object], name: str) -> int:
    value = schema.get(name)
    return value if type(value) is int and value > 0 else 0


def _number(kind: str, schema: Mapping[str, object]) -> int | float:
    """Return a number within a schema's bounds: 1 if it is."""
    bounds = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
    least, above, most, below, step = (_bound(schema, name) for name in bounds)
    low, high = max((least, above), key=_or_less), min((most, below), key=_or_more)
    middle = None if low is None or high is None else (low + high) / 2
    edges = [edge for edge in (low, high, middle) if edge is not None]
    tried = [1, 0, *([] if step is None else [step]), *edges, *(edge + one for edge in edges for one in (-1, 1))]
    tried += [whole for one in tried for whole in (floor(one), ceil(one))]
    for one in tried:
        fits = (low is None or one >= low) and (high is None or one <= high) and one not in (above, below)
        if fits and (kind == "number" or one == floor(one)) and not (step and one % step):
            return int(one) if one == floor(one) else one
    return 1


def _bound(schema: Mapping[str, object], name: str) -> int | float | None:
    value = schema.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _or_less(bound: float | None) -> float:
    return -inf if bound is None else bound


def _or_more(bound: float | None) -> float:
    return inf if bound is None else bound
