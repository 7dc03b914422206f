"""Answers that are JSON that a schema accepts: the arguments of a call, or a text in a form."""

from __future__ import annotations

import json
from itertools import accumulate
from math import ceil, floor, inf
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.live.serving.conversation import arguments_span, call_text
from blis_tui.live.serving.fields import RefusedError
from blis_tui.live.serving.shared_prefixes import Answer, encode, pieces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_VALUES: Final = 1000
"""How many values the JSON may have: schemas that refer to others may ask for any number."""
_DEEPEST: Final = 64
"""How many schemas may be within one another, those that refer to others included."""
_LONGEST_TEXT: Final = 100_000
_END: Final = 0
"""The token that follows complete JSON if it must go on: it has no text, like an end token that is ignored."""


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer must be: JSON up to and from where words can be put in.

    Attributes:
        function: the function that it is the arguments of; empty = it is the answer's text.
        before: the JSON, or its beginning.
        after: the rest behind the words; empty = there is no place for any.
    """

    function: str
    before: str
    after: str

    @classmethod
    def of(cls, schema: Mapping[str, object], parameter: str, function: str = "") -> Form:
        """Return the form for a schema that came in the parameter.

        Raises:
            RefusedError: there is no such JSON.
        """
        text = json.dumps(_Filling(schema, parameter, function).value(schema), ensure_ascii=False)
        before, place, after = text.partition(_PLACE)
        return cls(function, before + ("" if not place else "the"), "" if not place else f" end{after}")

    def answer(self, number: int, wanted: int) -> JsonAnswer:
        """Return the JSON with so many words that it has ``wanted`` tokens, if they have a place."""
        least = JsonAnswer(self.function, self.before + self.after).length
        count = max(wanted - least, 0) if self.after else 0
        words, _ = Answer(number, count, goes_on=True).piece(0, count)
        return JsonAnswer(self.function, self.before + words + self.after)


def form_in(wanted: object, parameter: str) -> Form | None:
    """Return the form that a client wants an answer to have; None = a plain text.

    Args:
        wanted: a ``response_format``, or what other APIs call that.
        parameter: where it is.

    Raises:
        RefusedError: it is none, or has no JSON.
    """
    if wanted is None:
        return None
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if not isinstance(wanted, dict) or kind not in ("text", "json_object", "json_schema"):
        message = f"`{parameter}` must have the type `text`, `json_object` or `json_schema`"
        raise RefusedError(400, message, parameter)
    if kind == "text":
        return None
    inside = wanted.get("json_schema", wanted)
    schema = {"type": "object"} if kind == "json_object" else inside.get("schema") if isinstance(inside, dict) else None
    if not isinstance(schema, dict):
        raise RefusedError(400, f"`{parameter}` has no schema", parameter)
    return Form.of(schema, parameter)


class JsonAnswer:
    """An answer that is JSON; of a call, its text is that of the arguments.

    Args:
        function: the function that is called; empty = none.
        text: the JSON.
    """

    def __init__(self, function: str, text: str) -> None:
        said, start, end = text, 0, len(text)
        if function:
            said = call_text(function, text)
            start, end = arguments_span(function, text)
        parts = pieces(said)
        self._shown = [
            part[max(start - (at - len(part)), 0) : max(end - (at - len(part)), 0)]
            for part, at in zip(parts, accumulate(map(len, parts)), strict=True)
        ]
        self._ids = encode(said)

    @property
    def length(self) -> int:
        """Number of its tokens."""
        return len(self._ids)

    def piece(self, start: int, stop: int) -> tuple[str, Sequence[int]]:
        """Return the text and the tokens from ``start`` to ``stop``; end tokens follow the last."""
        ids = self._ids[start:stop]
        return "".join(self._shown[start:stop]), [*ids, *[_END] * (stop - start - len(ids))]


# ---- values ----

_PLACE: Final = "\ue000"
"""Stands in the first text that may be any, for words."""
_SIMPLE: Final = {"boolean": True, "null": None}


class _Filling:
    """Makes values that schemas accept, as far as simple types go.

    Args:
        schema: the whole schema, to which parts may refer.
        parameter: where it came from, and the function whose arguments it describes, if any: for errors.
        function: as above.
    """

    def __init__(self, schema: Mapping[str, object], parameter: str, function: str) -> None:
        self._schema = schema
        self._parameter = parameter
        self._what = f"the arguments of `{function[:100]}`" if function else f"the JSON of `{parameter}`"
        self._left = _MOST_VALUES
        self._placed = _PLACE in json.dumps(schema, ensure_ascii=False)

    def value(self, schema: object, depth: int = 0) -> object:
        """Return a value: the first that is listed, or the simplest of its type.

        Args:
            schema: what the value must be.
            depth: in how many schemas this one is.

        Raises:
            RefusedError: there would be too many values.
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
        found: object = self._schema
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
        return RefusedError(400, f"{self._what} would have {what}", self._parameter)


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
