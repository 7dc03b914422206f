"""Messages for schema violations: one formatter per schema keyword, and one for maps in place of documents."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import Diagnostic, about, in_order
from blis_tui.base.scalars import flow, is_text, plain_scalar
from blis_tui.base.source import as_list, as_map
from blis_tui.model.keys import SMALLEST
from blis_tui.spec.hints import WORDS, expected_hint, in_unit_of, key_hint, plain, renamed, unit_of, word_hint
from blis_tui.spec.library import names
from blis_tui.spec.pools import SLOTS, slot_of
from blis_tui.spec.schema import node_at
from blis_tui.spec.shipped import are_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from blis_tui.base.source import DataPath, Document, Json
    from blis_tui.spec.reader import Violation


_NEEDS: Final = {
    "Hardware": ("peak_tflops",),
    "Model": ("config", "config_file"),
    "Workload": ("clients", "trace"),
    "Policy": (),
}
"""Keys of which a whole document of a kind has one."""
_NAMES: Final = ("kind", "name", "id", "type", "use", "from", "base", "model", "hardware", "gpu", "workload", "policy")
"""Keys with which a name may be wrapped in a map."""


def of_slots(document: Document, violations: Sequence[Violation]) -> tuple[list[Diagnostic], list[Violation]]:
    """Return one diagnostic for each map in place of a document that is none, and the other violations."""
    diagnostics: list[Diagnostic] = []
    rest = list(violations)
    for slot in dict.fromkeys(slot_of(violation.path) for violation in violations):
        value = document.get(*slot) if slot else None
        if not isinstance(value, dict):
            continue
        kind = SLOTS[str(slot[-1])]
        if name := _named(document, kind, value):
            diagnostics.append(_disguised(document, slot, value, name))
            rest = [violation for violation in rest if violation.path[: len(slot)] != slot]
        elif (
            len(
                missing := [
                    violation for violation in rest if violation.keyword == "required" and violation.path == slot
                ]
            )
            > 1
        ):
            diagnostics.append(_incomplete(document, slot, kind, missing))
            rest = [violation for violation in rest if violation not in missing]
    return diagnostics, rest


def _named(document: Document, kind: str, value: dict[str, Json]) -> str:
    """Return the name or path that a map only wraps; empty = it wraps none."""
    glued = dict(key.split(":", 1) for key, text in value.items() if ":" in key and text is None)  # `{name:h100}`
    texts = {key: text for key in _NAMES if isinstance(text := {**value, **glued}.get(key), str) and text != kind}
    known = names(kind, document.source.directory)
    if name := next((text for text in texts.values() if text in known), ""):
        return name
    if any(key in value for key in _NEEDS[kind]):
        return ""
    own = as_map(value.get("metadata")).get("name")
    if isinstance(own, str) and not value.keys() - {"metadata", "kind", "apiVersion"}:
        return own
    return texts.get("kind") or texts.get("name") or texts.get("id") or ""


def _disguised(document: Document, slot: DataPath, value: dict[str, Json], name: str) -> Diagnostic:
    message = f"`{slot[-1]}` takes a name, a path or a whole document, not a map around a name"
    hint = f"write `{slot[-1]}: {name[:60]}`"
    if len(value) > 1:
        hint += "; keys of it can be changed by `--set`, `cases` or an experiment that `extends` this one"
    return about(document, slot, "BLIS1003", message, hint=hint)


def _incomplete(document: Document, slot: DataPath, kind: str, missing: Iterable[Violation]) -> Diagnostic:
    keys = [f"`{violation.wanted}`" for violation in missing]
    message = f"`{slot[-1]}` lacks the keys {', '.join(keys[:-1])} and {keys[-1]}"
    hint = f"a {kind} document has them all; to use an existing one, write its name, such as `{slot[-1]}: "
    return about(document, slot, "BLIS1002", message, key=True, hint=f"{hint}{_example_document(kind)}`")


def _example_document(kind: str) -> str:
    return {"Hardware": "h100", "Model": "qwen3-14b", "Workload": "chatbot"}.get(kind, "vllm-v1")


_TYPES: Final = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "a map",
    "array": "a list",
    "null": "null",
}
_BOUNDS_IN_TEXT: Final = re.compile(r"([0-9]{1,15}) ?(?:-|\.\.|to) ?([0-9]{1,15})")
_GROUPED: Final = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_THOUSANDS: Final = ("k", "K")
_LONGEST_EXAMPLE: Final = 120
_UNKNOWN: Final = "BLIS1001"
_MISSING: Final = "BLIS1002"
_BOOLEANS: Final = {"yes": "true", "on": "true", "no": "false", "off": "false"}
"""Booleans of older YAML."""
_PERCENTILE: Final = re.compile(r"p\d{1,2}(\.\d+)?")
_WITH_UNIT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?(%|/?[A-Za-z]{1,8}(?:/[A-Za-z]{1,3})?)")
"""A number with a unit, which the names of keys have."""


def explained(document: Document, broken: Sequence[Violation]) -> list[Diagnostic]:
    """Return in words what a document violates, sorted by position.

    Args:
        document: it is wrong.
        broken: what was found, which is not nothing.
    """
    diagnostics: list[Diagnostic] = []
    if broken[0].kind == "Experiment":
        diagnostics, broken = of_slots(document, broken)
    untyped = {
        violation.path for violation in broken if violation.keyword == "type"
    }  # a number of the wrong type is not measured, too
    broken = [violation for violation in broken if violation.keyword not in _BOUNDS or violation.path not in untyped]
    explanations = [
        (violation, diagnostic)
        for violation in broken
        for diagnostic in _FORMATTERS.get(violation.keyword, _other)(document, violation)
    ]
    hints = {(violation.path, diagnostic.help) for violation, diagnostic in explanations if diagnostic.code == _UNKNOWN}
    diagnostics += [
        diagnostic for violation, diagnostic in explanations if not _is_misnamed(violation, diagnostic, hints)
    ]
    return in_order(diagnostics)


def _is_misnamed(violation: Violation, diagnostic: Diagnostic, hints: Collection[tuple[DataPath, str | None]]) -> bool:
    """Return whether a key is missing only because it has another name, which is told already."""
    if diagnostic.code != _MISSING:
        return False
    key = diagnostic.message.rpartition("`")[0].rpartition("`")[2]
    if any(path == violation.path and hint and hint.startswith("paths are written") for path, hint in hints):
        return True
    begins = (f"did you mean `{key}`", f"write `{key}`", f"write `{key}: ")
    return any(hint is not None and hint.startswith(begins) for path, hint in hints if path == violation.path)


def show(value: Json) -> str:
    """Return a value in YAML's flow style, shortened."""
    if isinstance(value, str):
        text = value if value.isprintable() and value.strip() == value and value else json.dumps(value)
    else:
        text = json.dumps(value, ensure_ascii=False)
    return f"`{text if len(text) <= 40 else text[:37] + '...'}`"


def _noun(value: Json) -> str:
    """Return a noun for a value of the wrong type."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    kind = "true or false" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
    return show(value) if kind == "true or false" else f"the {kind} {show(value)}"


def _unknown_key(document: Document, violation: Violation) -> Iterator[Diagnostic]:
    path, instance = violation.path, as_map(violation.instance)
    known = as_map(violation.schema.get("properties"))
    for key in instance:
        if key not in known:
            given = document.place((*path, key), key=True).source.is_argument
            near = key_hint(violation.kind, path, key, instance[key], known.keys(), as_argument=given)
            yield about(document, (*path, key), _UNKNOWN, f"unknown key `{key}`", key=True, hint=near)


def _missing_key(document: Document, violation: Violation) -> Iterator[Diagnostic]:
    path, instance, key = violation.path, as_map(violation.instance), str(violation.wanted)
    where = f"`{path[-1]}`" if path and isinstance(path[-1], str) else "the document" if not path else "this entry"
    if path and isinstance(which := instance.get("kind"), str):
        where += f" of kind {show(which)}"
    help_ = _glued_key_hint(instance, key) or _renamed(instance, key) or _word_elsewhere(violation, key)
    help_ = help_ or _required_help(violation, key)
    yield about(document, path, _MISSING, f"{where} lacks the key `{key}`", key=True, hint=help_)


def _glued_key_hint(instance: dict[str, Json], key: str) -> str | None:
    """Return a hint for ``{kind:gamma}``, which YAML reads as one long key."""
    glued = next((word for word in instance if word.startswith(f"{key}:")), None)
    return None if glued is None else f"`{glued[:40]}` is one word: write a space after the colon"


def _renamed(instance: dict[str, Json], key: str) -> str | None:
    """Return a hint for ``{type: gamma}``, where other tools write ``type`` for ``kind``."""
    former = renamed(instance, key)
    return None if former is None else f"`{former[:40]}` is called `{key}` here"


def _word_elsewhere(violation: Violation, key: str) -> str | None:
    """Return a hint for ``{name: roofline}`` or ``{roofline: {}}``, where ``kind: roofline`` is meant."""
    part = as_map(as_map(violation.schema.get("properties")).get(key))
    words = as_list(part.get("enum"))
    percentiles = {name: value for name, value in as_map(violation.instance).items() if _PERCENTILE.fullmatch(name)}
    if percentiles and "percentiles" in words:
        return f"write `{{kind: percentiles, values: {flow(percentiles)}}}`"
    for other, value in as_map(violation.instance).items():
        if other in words:
            return f"`{other}` is a {key}: write `{key}: {other}`, and its settings beside that"
        if value in words:
            return f"write `{key}: {value}` instead of `{other}: {value}`"
    return None


def _required_help(violation: Violation, key: str) -> str | None:
    part = as_map(as_map(violation.schema.get("properties")).get(key))
    if not part and not violation.path:  # required by a condition that does not repeat the properties
        part = node_at(violation.kind, (key,))
    if "const" in part:
        return f"add `{key}: {part['const']}`"
    if isinstance(values := part.get("enum"), list):
        return "add it with one of " + ", ".join(f"`{value}`" for value in values)
    meaning = _lower_first(part.get("description"))
    example = next(iter(as_list(part.get("examples"))), None)
    if meaning is None or not isinstance(example, str | int | float) or isinstance(example, bool):
        return meaning
    return f"add it, such as `{key}: {flow(example)}` ({meaning})"


def _type(document: Document, violation: Violation) -> Iterator[Diagnostic]:
    value, part = violation.instance, violation.schema
    wanted = _wanted(part)
    yield about(
        document,
        violation.path,
        "BLIS1003",
        f"expected {wanted}, found {_noun(value)}",
        hint=_type_help(document, violation, wanted)
        or _example(value, part)
        or _keys_below(violation, wanted)
        or _lower_first(part.get("description")),
    )


def _keys_below(violation: Violation, wanted: str) -> str | None:
    """Return a hint for a plain value in place of a map."""
    plain_path = all(isinstance(step, str) and step.isidentifier() for step in violation.path)
    if wanted != "a map" or isinstance(violation.instance, list | dict) or not violation.path or not plain_path:
        return None
    kind = "" if violation.kind == "Experiment" else f"{violation.kind}."
    path = ".".join(map(str, violation.path))
    return f"give it its keys: `blis-tui explain {kind}{path}` lists them"


def _example(value: Json, part: dict[str, Json]) -> str | None:
    """Return an example: of a map with a ``kind``, that of the kind in ``value`` if possible, else the first."""
    examples = as_list(part.get("examples"))
    maps = [example for example in examples if isinstance(example, dict)]
    words = (value, *WORDS.get(plain(value), ())) if isinstance(value, str) else ()
    chosen = next((example for example in maps if example.get("kind") in words), next(iter(examples), None))
    if not isinstance(chosen, dict | list) or len(text := flow(chosen)) > _LONGEST_EXAMPLE:
        return None
    return f"write it like `{text}`"


def _wanted(part: dict[str, Json]) -> str:
    """Return what a schema accepts, in words; a short list of words is given in full."""
    if isinstance(title := part.get("title"), str):
        return title
    types = part.get("type")
    names = [str(name) for name in types] if isinstance(types, list) else [str(types)]
    then = part.get("then")
    words = then.get("enum") if isinstance(then, dict) and "string" in names else None
    if isinstance(words, list):
        names.remove("string")
    nouns = [_TYPES.get(name, name) for name in names] + [
        f"`{word}`" for word in (words if isinstance(words, list) else [])
    ]
    return nouns[0] if len(nouns) == 1 else ", ".join(nouns[:-1]) + " or " + nouns[-1]


def _type_help(document: Document, violation: Violation, wanted: str) -> str | None:
    value = violation.instance
    if isinstance(value, dict) and wanted.startswith("a list"):
        return "begin each entry of the list with `- `"
    named = wanted == "text" or wanted.startswith("the name")
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) and named:
        return f"write `{flow(value[0])}`, without brackets"
    if value is None:
        what = "what it contains" if wanted in ("a map", "a list") else "a value"
        return f"remove the key, or give it {what}"
    if violation.path[:2] == ("golden", "tolerance") and isinstance(value, int | float):
        return f"write `{{rel: {flow(value)}}}`"
    if wanted.startswith("a list of values") and not isinstance(value, dict):
        steps = str(value).split("..")
        if 2 <= len(steps) <= 3 and all(_NUMBER.fullmatch(step) for step in steps):
            return f"write `{{from: {steps[0]}, to: {steps[1]}, step: {(*steps, '1')[2]}}}`"
        return f"write `[{flow(value)}]`"
    if wanted == "text" and isinstance(value, dict) and len(value) == 1 and isinstance(value.get("name"), str):
        return f"write `{flow(value['name'])}`"
    if not isinstance(value, str):
        return None
    if "kind" in as_map(violation.schema.get("properties")) and (bounds := _BOUNDS_IN_TEXT.fullmatch(value)):
        return f"write `{{kind: uniform, min: {bounds[1]}, max: {bounds[2]}}}`"
    if wanted == "a map" and violation.path[:1] == ("objectives",):
        return f"write `metric: {value}`"
    if wanted == "a map" and violation.path[:1] in (("expect",), ("constraints",)):
        return expected_hint(value) or None
    if "true or false" in wanted and value in ("true", "false"):
        return "remove the quotes"
    if "true or false" in wanted and (word := value.lower()) in _BOOLEANS:
        return f"write {_BOOLEANS[word]}; YAML 1.2 has no other booleans"
    return _number_help(value, document, violation) if "number" in wanted else None


def _number_help(value: str, document: Document, violation: Violation) -> str | None:
    """Return how to write a number that is a text because of what stands in or around its digits."""
    if value.replace(".", "", 1).isdecimal():
        return "remove the quotes"
    for sign, name in (("_", "underscores"), (",", "commas")):
        if sign in value and (digits := value.replace(sign, "")).isdecimal():
            in_groups = sign == "_" or _GROUPED.fullmatch(value)
            return f"write {digits}, without {name}" if in_groups else "give one number"
    match = _WITH_UNIT.fullmatch(value)
    if match is None:
        return None
    number, unit = match.groups()
    if unit == "%" and node_at(violation.kind, violation.path).get("maximum") == 1:
        return f"write {float(number) / 100:g}, a share"
    name = _with_unit(document, violation.path)
    if (converted := in_unit_of(name, unit.removeprefix("/"), float(number))) is not None:
        return f"write {converted}: it is {unit_of(name)}"
    if unit in _THOUSANDS:
        return f"write the number in full, such as {float(number) * 1000:.0f}"
    return f"write {number}, without the unit"


def _with_unit(document: Document, path: DataPath) -> str:
    """Return the key whose name has the unit of a value: its own, or of a bound the metric's."""
    metric = document.get(*path[:-1], "metric") if path and path[-1] in ("min", "max", "equals") else None
    if isinstance(metric, str):
        return next((step for step in reversed(metric.split(".")) if unit_of(step)), "")
    return next((str(step) for step in reversed(path) if isinstance(step, str)), "")


def _choice(document: Document, violation: Violation) -> Iterator[Diagnostic]:
    value, path = violation.instance, violation.path
    options = [str(option) for option in as_list(violation.wanted)]
    if isinstance(value, str):
        others = "a number, or " if _is_number_word(options) else "a map, or " if _is_short_form(violation) else ""
        words = f"use {others}one of" if len(options) > 1 else f"use {others}".rstrip()
        number = _number_help(value, document, violation) if _is_number_word(options) else None
        near = number or word_hint(value, options, otherwise=words)
        if are_plugins(options) and near.startswith(words):
            near += "; `--plugins` adds others, in pytest `--blis-plugins`"
        yield about(document, path, "BLIS1004", f"unknown value {show(value)}", hint=near)
    else:
        listed = ", ".join(f"`{option}`" for option in options[:12])
        hint = next((f"write '{option}', in quotes" for option in options if _reads_as(option, value)), None)
        yield about(document, path, "BLIS1003", f"expected one of {listed}, found {_noun(value)}", hint=hint)


def _reads_as(option: str, value: Json) -> bool:
    """Return whether an option, written without quotes, would be read as that number (such as a version)."""
    return isinstance(value, (int, float)) and not is_text(option) and plain_scalar(option) == value


def _is_number_word(options: list[str]) -> bool:
    """Return whether the words are alternatives to a number."""
    return set(options) <= {"auto", "none"}


def _is_short_form(violation: Violation) -> bool:
    """Return whether the words are alternatives to a map (``then`` of an ``if`` that the value is text)."""
    return violation.under == "then"


def _const(document: Document, violation: Violation) -> Iterator[Diagnostic]:
    path, wanted = violation.path, violation.wanted
    if path and path[-1] == "kind":
        message = f"expected kind `{wanted}`, found {_noun(violation.instance)}"
        yield about(document, path, "BLIS1008", message)
    else:
        message = f"expected `{wanted}`, found {_noun(violation.instance)}"
        yield about(document, path, "BLIS1004", message, hint=f"write `{wanted}`")


_BOUNDS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "greater than",
    "exclusiveMaximum": "less than",
}


def _bound(document: Document, violation: Violation) -> Iterator[Diagnostic]:
    words, limit = _BOUNDS[violation.keyword], show(violation.wanted).strip("`")
    if violation.wanted == SMALLEST and isinstance(violation.instance, int | float) and violation.instance <= 0:
        words, limit = "greater than", "0"
    part = violation.schema
    path = violation.path
    name = next((str(step) for step in reversed(path) if isinstance(step, str)), "value")
    message = f"`{name}` must be {words} {limit}, found {show(violation.instance)}"
    yield about(document, path, "BLIS1005", message, hint=_lower_first(part.get("description")))


def _lower_first(text: object) -> str | None:
    """Return a description as a hint: without full stop and defaults, in lower case unless an acronym begins it."""
    if not isinstance(text, str) or len(text) < 2:
        return None
    first = text[0] if text[1].isupper() else text[0].lower()
    return f"{first}{text[1:].partition('. Left out')[0].rstrip('.')}"


_SIZES: Final = {
    "minItems": ("at least", "entries"),
    "maxItems": ("at most", "entries"),
    "minProperties": ("at least", "keys"),
    "minLength": ("at least", "characters"),
    "maxLength": ("at most", "characters"),
}


def _size(document: Document, violation: Violation) -> Iterator[Diagnostic]:
    words, what = _SIZES[violation.keyword]
    value, wanted = violation.instance, violation.wanted
    size = len(value) if isinstance(value, str | list | dict) else 0
    noun = what if wanted != 1 else {"entries": "entry", "keys": "key", "characters": "character"}[what]
    part = violation.schema
    message = f"expected {words} {wanted} {noun}, found {size}"
    yield about(document, violation.path, "BLIS1006", message, hint=_lower_first(part.get("description")))


def _pattern(document: Document, violation: Violation) -> Iterator[Diagnostic]:
    path, part = violation.path, violation.schema
    if violation.under == "propertyNames":
        key = str(violation.instance)
        message = f"key `{key[:40]}` is not {_lower_first(part.get('description'))}"
        is_pointer = path == ("golden", "tolerance") and "." in key
        hint = f"write `/{key.replace('.', '/')}`" if is_pointer else None
        yield about(document, (*path, key), "BLIS1007", message, key=True, hint=hint)
        return
    message = f"malformed text {show(violation.instance)}"
    yield about(document, path, "BLIS1007", message, hint=_lower_first(part.get("description")))


_OTHERS: Final = {
    "uniqueItems": "has non-unique elements",
    "maxProperties": "has too many properties",
    "multipleOf": "is not a multiple of {}",
}


def _other(document: Document, violation: Violation) -> Iterator[Diagnostic]:
    message = f"{violation.instance!r} {_OTHERS[violation.keyword].format(violation.wanted)}"
    yield about(document, violation.path, "BLIS1099", f"{message[:200]} ({violation.keyword})")


_FORMATTERS: Final[dict[str, Callable[[Document, Violation], Iterator[Diagnostic]]]] = {
    "additionalProperties": _unknown_key,
    "required": _missing_key,
    "type": _type,
    "enum": _choice,
    "const": _const,
    "minimum": _bound,
    "maximum": _bound,
    "exclusiveMinimum": _bound,
    "exclusiveMaximum": _bound,
    "minItems": _size,
    "maxItems": _size,
    "minProperties": _size,
    "minLength": _size,
    "maxLength": _size,
    "pattern": _pattern,
}
