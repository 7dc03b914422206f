"""Explains keys of documents, found by dotted path or by word, and diagnostic codes, each with an example.

An example is the invalid part of a small experiment or study; all other keys are valid. A test runs each example.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import CODES, render_text, words_of
from blis_tui.base.errors import BlisError, SpecError, TraceError
from blis_tui.base.scalars import flow
from blis_tui.base.text import described, printable
from blis_tui.base.units import in_words, plural
from blis_tui.spec.authoring.key_tree import DISCRIMINATORS, Choice, Key, every_key, root
from blis_tui.spec.hints import KEYS
from blis_tui.spec.library import suffix
from blis_tui.spec.load import load
from blis_tui.spec.read import read_document
from blis_tui.spec.schema import KINDS
from blis_tui.spec.study.document import read_study

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import Json
    from blis_tui.model.plug_ins import Registry

_CODE_WIDTH: Final = 80


_LAYERS: Final = {"0": "YAML syntax", "1": "schema", "2": "semantics"}


_SOUND: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Experiment": {"model": "llama-3.1-8b-instruct", "hardware": "h100", "workload": "chatbot"},
        "Study": {"experiment": "quickstart"},
    }
)
"""Kind of document -> its indispensable keys."""


@dataclass(frozen=True, slots=True)
class Example:
    """A mistake: invalid lines of a document, a whole text, or an argument of ``--set``."""

    wrong: str = ""
    """Top-level lines that are added to a valid document, or replace lines of it."""
    kind: str = "Experiment"
    """Kind of the document: an experiment, or a ``Study``."""
    whole: str | None = None
    """The whole text instead; lone surrogates stand for bytes that are not UTF-8."""
    shown: str | None = None
    """What to show if the text is too large or invisible."""
    overrides: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Other files in its folder."""

    @property
    def text(self) -> str:
        """The whole document."""
        if self.whole is not None:
            return self.whole
        given = {line.partition(":")[0] for line in self.wrong.splitlines() if line[:1].isalpha()}
        sound = {"apiVersion": "blis/v1", "kind": self.kind, "metadata": "{name: example}", **_SOUND[self.kind]}
        kept = [f"{key}: {value}" for key, value in sound.items() if key not in given]
        return "\n".join([*kept, self.wrong.strip("\n"), ""])


def _clients(*lengths: str) -> str:
    """Return a generated workload whose only client has these keys."""
    inner = "\n".join(f"      {line}" for line in lengths)
    return f"workload:\n  requests: 10\n  rate_per_s: 1\n  clients:\n    - id: chat\n{inner}"


_INPUT: Final = "input_tokens: {kind: constant, value: 100}"


_OUTPUT: Final = "output_tokens: {kind: constant, value: 10}"


_ROWS: Final = "arrival_time_us,input_tokens,output_tokens\n0,100,10\n"


_TABLE: Final = {
    "BLIS0001": Example("engine: {max_num_seqs: 64"),
    "BLIS0002": Example("seed: 1\nseed: 2"),
    "BLIS0003": Example("1: one"),
    "BLIS0004": Example("horizon_us: .inf"),
    "BLIS0005": Example("engine: {<<: {max_num_seqs: 64}}"),
    "BLIS0006": Example("seed: 1\n---\nkind: Policy"),
    "BLIS0007": Example(whole="# nothing but a comment\n"),
    "BLIS0008": Example("engine: &all {more: *all}"),
    "BLIS0009": Example(
        "tags: [" + "a, " * 200_001 + "a]", shown="tags: [a, a, a]  # and 200,000 more of them, or as many by aliases"
    ),
    "BLIS0010": Example("expect: " + "[" * 101 + "]" * 101, shown="expect: [[[[[[[[[[[[[[[[  # a hundred levels deep"),
    "BLIS0011": Example(whole="# x\n" * 2_200_000, shown="# a file of more than 8 MiB"),
    "BLIS0012": Example(
        whole="metadata: {name: example, description: caf\udce9}\n",
        shown="metadata: {name: example, description: caf\ufffd}  # saved as Latin-1",
    ),
    "BLIS0013": Example("seed: !!set {a}"),
    "BLIS0014": Example("seed: 1  # \x07", shown="seed: 1  # and an invisible control character"),
    "BLIS0015": Example("seed: 99999999999999999999"),
    "BLIS0016": Example("engine: *shared"),
    "BLIS1001": Example("engine: {max_num_seq: 64}"),
    "BLIS1002": Example("latency: {alpha: [0, 0, 0]}"),
    "BLIS1003": Example('engine: {block_size_tokens: "64"}'),
    "BLIS1004": Example("latency: {kind: roofine}"),
    "BLIS1005": Example("engine: {gpu_memory_utilization: 1.5}"),
    "BLIS1006": Example("latency: {kind: blackbox, alpha: [0, 0], beta: [0, 0, 0]}"),
    "BLIS1007": Example('metadata: {name: "My Example"}'),
    "BLIS1008": Example("policy: ./other.yaml", files={"other.yaml": "kind: Hardware\n"}),
    "BLIS1009": Example("seed: 42", overrides=("seed.first=1",), shown="blis-tui run FILE --set seed.first=1"),
    "BLIS2001": Example("model: lama-3.1-8b-instruct"),
    "BLIS2002": Example("policy: ./policies/mine.yaml"),
    "BLIS2003": Example("extends: ./example.blis.yaml"),
    "BLIS2004": Example("cluster: {tensor_parallel: 3}"),
    "BLIS2005": Example("model: llama-3.1-70b-instruct"),
    "BLIS2006": Example(_clients("input_tokens: {kind: constant, value: 1000}", _OUTPUT) + "\nengine: {kv_blocks: 10}"),
    "BLIS2007": Example(_clients(_INPUT, _OUTPUT) + "\nengine: {max_model_len: 64}"),
    "BLIS2008": Example("expect: [{metric: latency.ttft_ms.p99, min: 300, max: 250}]"),
    "BLIS2009": Example(
        _clients("input_tokens: {kind: gaussian, mean: 50, std_dev: 5, min: 1, max: 30}", _OUTPUT),
    ),
    "BLIS2033": Example(_clients("input_tokens: {kind: lognormal, sigma: 0.8, max: 4000}", _OUTPUT)),
    "BLIS2010": Example(_clients('input_tokens: {kind: empirical, weights: {"10": 0, "20": 0}}', _OUTPUT)),
    "BLIS2011": Example("latency: {kind: blackbox}\ncluster: {tensor_parallel: 32}"),
    "BLIS2071": Example(_clients(_INPUT, _OUTPUT, "session: {turns: {kind: constant, value: 100001}}")),
    "BLIS2070": Example('expect: [{never: "kv.utilisation > 90%"}]'),
    "BLIS2012": Example("expect: [{metric: latency.ttft_ms.p99}]"),
    "BLIS2013": Example("expect: [{metric: latency.ttft_ms.p98, max: 250}]"),
    "BLIS2014": Example("workload: {requests: 10, rate_per_s: 1}"),
    "BLIS2015": Example(
        "workload:\n  trace:\n    file: requests.csv\n    sha256: " + f'"{"0" * 64}"', files={"requests.csv": _ROWS}
    ),
    "BLIS2016": Example(_clients(_INPUT, _OUTPUT).replace("requests: 10", "requests: null")),
    "BLIS2017": Example(
        _clients(_INPUT, _OUTPUT, "# and once more:") + f"\n    - id: chat\n      {_INPUT}\n      {_OUTPUT}"
    ),
    "BLIS2018": Example("model: {config: {hidden_size: 4096, num_attention_heads: 32}}"),
    "BLIS2019": Example(
        "policy: {batching: {kind: vllm-v1, enable_chunked_prefill: false}}\nengine: {max_num_batched_tokens: 2048}"
    ),
    "BLIS2020": Example(
        _clients(_INPUT, _OUTPUT, "prefix: {group: system, tokens: 2000000}")
        + "\nengine: {block_size_tokens: 1, kv_blocks: 3000000, max_model_len: none}"
    ),
    "BLIS2021": Example("policy: {routing: {kind: weighted, scorers: [queue-depth, queue-depth]}}"),
    "BLIS2022": Example(
        "cluster:\n  instances: 3\n  pools:\n    - {name: a, instances: 1}\n    - {name: b, instances: 1}"
    ),
    "BLIS2023": Example("cluster: {disaggregation: {}}"),
    "BLIS2024": Example(_clients(_INPUT, _OUTPUT, "model: gpt-2")),
    "BLIS2025": Example(
        "cluster:\n  disaggregation: {}\n  pools:\n    - {name: a, role: prefill, instances: 1}\n"
        "    - {name: b, role: decode, instances: 1, model: qwen3-14b}"
    ),
    "BLIS2026": Example("policy: {gateway: {weights: {acme: 2}}}"),
    "BLIS2027": Example("engine: {max_num_seqs: 0}"),
    "BLIS2028": Example(_clients(_INPUT, _OUTPUT, "session: {calls: [{id: answer, after: [search]}, {id: search}]}")),
    "BLIS2029": Example("engine: {lora: {max_loras: 4, max_cpu_loras: 2}}"),
    "BLIS2030": Example(
        "model: qwen3-30b-a3b\nlatency: {kind: operators, expert_parallel: 4}\ncluster: {tensor_parallel: 2}"
    ),
    "BLIS2031": Example("model: qwen3-30b-a3b\nhardware: h200\nengine: {data_parallel: 4}"),
    "BLIS2032": Example("engine: {speculative: {draft_tokens: 3, acceptance_rates: [0.8, 0.55]}}"),
    "BLIS2050": Example("cluster: {instances: 2, failures: [{instance: 7, at_us: 1000}]}"),
    "BLIS2060": Example("axes: {cluster.instances: [1, 2]}\nexclude: [{cluster.instances: {max: 2}}]", kind="Study"),
    "BLIS2061": Example("axes: {workload.rate_per_s: {from: 1, to: 1000000, step: 1}}", kind="Study"),
    "BLIS2062": Example("set: {cluster.instances: 4}\naxes: {cluster.instances: [1, 2]}", kind="Study"),
    "BLIS2063": Example("zip: [{hardware: [h100, l40s], cluster.instances: [1, 2, 4]}]", kind="Study"),
    "BLIS2064": Example("axes: {cluster.instances: {from: 8, to: 1, step: 1}}", kind="Study"),
    "BLIS2065": Example(
        "constraints:\n  - {metric: latency.ttft_ms.p99, max: 200}\n  - {metric: latency.ttft_ms.p99, min: 300}",
        kind="Study",
    ),
    "BLIS2066": Example("axes: {cluster.instances: [1, 2]}\nexclude: [{cluster.instances: 3}]", kind="Study"),
    "BLIS2067": Example("set: {model: llama-3.1-70b-instruct}\naxes: {cluster.instances: [1, 2]}", kind="Study"),
    "BLIS2068": Example("seeds: [1, 2, 1]", kind="Study"),
    "BLIS2100": Example(
        "workload: {trace: {file: requests.csv}}", files={"requests.csv": _ROWS.replace("100", "-100")}
    ),
}


EXAMPLES: Final[Mapping[str, Example]] = MappingProxyType(_TABLE)
"""Code -> a mistake that causes it. Codes for unforeseen errors have none."""


class UnknownCodeError(BlisError):
    """No diagnostic has that code."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a code."""

    code: str
    layer: str
    title: str
    cause: str
    remedy: str
    example: str = ""
    """The mistake; empty if no document is known to cause it."""
    output: str = ""
    """The command output that it causes."""

    def to_text(self) -> str:
        """Return the explanation as text."""
        lines = [f"{self.code}: {self.title}  ({self.layer})", ""]
        lines += textwrap.wrap(self.cause, _CODE_WIDTH)
        lines += textwrap.wrap(f"Remedy: {self.remedy}", _CODE_WIDTH)
        if self.example:
            lines += ["", "For example:", "", textwrap.indent(self.example, "    "), ""]
            lines += ["makes a command print:", "", textwrap.indent(self.output, "    ")]
        return "\n".join(lines) + "\n"


def normal_code(text: str) -> str:
    """Return the normal form of a code: `blis1001` and `1001` become `BLIS1001`.

    Raises:
        UnknownCodeError: there is no such code.
    """
    code = text.strip().upper()
    code = f"BLIS{code}" if code.isdecimal() else code
    if code not in CODES:
        near = get_close_matches(code, CODES, n=1, cutoff=0.8)
        hint = f"did you mean `{near[0]}`?" if near else "`blis-tui explain` lists all codes"
        raise UnknownCodeError(f"there is no diagnostic code `{text[:40]}`", help=hint)
    return code


def explain(code: str) -> Explanation:
    """Explain a code, and run its example to show the output.

    Raises:
        UnknownCodeError: there is no such code.
    """
    code = normal_code(code)
    info = CODES[code]
    base = Explanation(code, _LAYERS[code[4]], info.title, info.cause, info.remedy)
    example = EXAMPLES.get(code)
    if example is None:
        return base
    return replace(base, example=_shown(example), output=output_of(code, example))


def _shown(example: Example) -> str:
    parts = [example.shown if example.shown is not None else example.wrong or example.whole or ""]
    for name, text in example.files.items():
        parts += [f"# {name}", text]
    return "\n".join(part.strip("\n") for part in parts)


def output_of(code: str, example: Example) -> str:
    """Return the diagnostics with that code that the example causes; empty if there are none."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for file, text in example.files.items():
            (folder / file).write_text(text, encoding="utf-8")
        path = folder / f"example{suffix(example.kind)}"
        path.write_bytes(example.text.encode(errors="surrogateescape"))
        diagnostics = [diagnostic for diagnostic in _diagnostics(path, example) if diagnostic.code == code]
        return render_text(diagnostics[:1]).replace(f"{folder}/", "").replace(f"{folder}\\", "")


def _diagnostics(path: Path, example: Example) -> tuple[Diagnostic, ...]:
    from blis_tui.workload.traces.read import read_trace  # noqa: PLC0415  (only needed for one example)

    try:
        if example.kind == "Study":
            read_study(read_document(path, str(path)))
            return ()
        experiment = load(path, overrides=example.overrides)
        if experiment.workload.trace is not None:
            read_trace(experiment.workload.trace, experiment.plugins)
    except (SpecError, TraceError) as error:
        return error.diagnostics
    return ()


_WIDTH: Final = 100


_NEAR: Final = 5


_KINDS_WITH_OWN: Final = ("Experiment", "Latency", "Study")
"""The kinds of document with unique keys; an experiment contains the keys of all others."""


_MOST_SHOWN: Final = 12


class UnknownKeyError(BlisError):
    """No key has that path; the help names the nearest ones."""


def look_up(path: str, plugins: Registry | None = None) -> tuple[str, list[Key]]:
    """Return the kind of document and the keys at a dotted path.

    ``engine.kv_blocks`` is a path in an experiment, ``Hardware.mfu`` one in a document of that kind, ``Hardware`` the
    document itself. List positions may be left out. Several keys are returned if the key's meaning depends on a
    ``kind`` beside it.

    Raises:
        UnknownKeyError: there is no such key.
    """
    steps = [step for step in path.split(".") if step]
    named = {kind.lower(): kind for kind in KINDS}
    kind = "Experiment"
    # `workload` is a key of an experiment, `Workload` the kind of document.
    if steps and steps[0].lower() in named and (steps[0] in KINDS or steps[0] not in root(kind, plugins).children):
        kind = named[steps.pop(0).lower()]
    steps = [step for step in steps if not step.isdecimal()]
    keys = [root(kind, plugins)]
    for at, step in enumerate(steps):
        below = [match for key in keys for match in _below(key, step)]
        if not below:
            raise _unknown(path, kind, steps[:at], step, keys, plugins)
        keys = below
    return kind, keys


def _below(key: Key, step: str) -> list[Key]:
    """Return the keys that a step leads to: a child, the same child in several variants, or a variant by name."""
    if step in key.children and (
        step in ("kind", "step_time") or not any(step in variant.keys for variant in key.variants)
    ):
        return [key.children[step]]
    in_variants = [variant.keys[step] for variant in key.variants if step in variant.keys]
    if in_variants:
        return in_variants
    return [key.as_variant(variant) for variant in key.variants if variant.value == step]


def _unknown(
    path: str, kind: str, done: list[str], step: str, keys: list[Key], plugins: Registry | None
) -> UnknownKeyError:
    where = f"`{'.'.join(done)}`" if done else f"a document of kind {kind}"
    names = sorted({name for key in keys for name in key.names()})
    near = get_close_matches(step, names, n=1, cutoff=0.6) or [name for name in names if name.startswith(step)]
    same = _elsewhere(step, plugins)
    if near:
        prefix = () if kind == "Experiment" else (kind,)
        paths = ["`" + ".".join((*prefix, *done, name)) + "`" for name in near[:_NEAR]]
        hint = f"did you mean {' or '.join(paths)}?"
    elif same:
        hint = "did you mean " + " or ".join(f"`{word}`" for word in same) + "?"
    elif names:
        hint = "known keys are " + ", ".join(f"`{name}`" for name in names)
    else:
        hint = f"{where} has no keys below it"
    return UnknownKeyError(f"{where} has no key `{step[:60]}`" + (f" (in `{path[:80]}`)" if done else ""), help=hint)


def _elsewhere(step: str, plugins: Registry | None) -> list[str]:
    """Return the paths anywhere that end with the key, or with the nearest one."""
    every: dict[str, list[str]] = {}
    for kind in KINDS:
        for key in root(kind, plugins).walk():
            shown = key.shown(kind)
            if key.path and shown not in every.setdefault(key.name, []):
                every[key.name].append(shown)
    near = [step] if step in every else get_close_matches(step, sorted(every), n=1, cutoff=0.75)
    paths = every.get(near[0], []) if near else []
    # A key may occur both in a document and in the experiment that contains it; prefer the path for `--set`.
    short = [path for path in paths if path[0].islower()] or paths
    return [path for path in short if not _is_echo(path, short)][:_NEAR]


def is_among(path: str, paths: Iterable[str]) -> bool:
    """Return whether a path is one of these keys, or an echo of one."""
    return any(path == other or path.endswith(f".{other}") for other in paths)


def _is_echo(path: str, paths: Iterable[str]) -> bool:
    """Return whether a path repeats one of these keys at a deeper level, like a pool's `engine` keys."""
    return any(path.endswith(f".{other}") for other in paths)


def as_data(kind: str, keys: Iterable[Key]) -> Json:
    """Return the description of the keys as plain data."""
    entries: list[Json] = [_data(kind, key) for key in keys]
    return entries[0] if len(entries) == 1 else entries


def _data(kind: str, key: Key) -> dict[str, Json]:
    data: dict[str, Json] = {
        "kind": kind,
        "path": key.dotted,
        "type": key.type,
        "unit": key.unit,
        "required": key.required,
        "range": key.range,
        "description": key.description,
        "only_for_kind": key.only,
        "choices": _choices(key.choices),
        "kinds": _choices(key.discriminator),
        "examples": list(key.examples),
        "keys": list(key.names()),
    }
    if key.has_default:
        data["default"] = key.default
    return data


def _choices(choices: Iterable[Choice]) -> list[Json]:
    return [{"value": choice.value, "description": choice.description} for choice in choices]


def as_text(kind: str, keys: list[Key]) -> str:
    """Return the description of the keys as text."""
    return "\n\n".join(_text(kind, key) for key in keys) + "\n"


def _text(kind: str, key: Key) -> str:
    title = key.dotted or kind
    lines = [f"{title}" + (f"  (when kind is `{key.only}`)" if key.only else "")]
    lines += textwrap.wrap(key.description, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    facts = {
        "document": kind if key.path else "",
        "type": key.type,
        "unit": key.unit,
        "default": flow(key.default) if key.has_default else "none; the key is required" if key.required else "",
        "range": key.range,
        "examples": "  or  ".join(flow(example) for example in key.examples),
    }
    lines.append("")
    lines += [f"  {name:<9} {text}" for name, text in facts.items() if text]
    if key.choices:
        lines += ["", "  values", *described((choice.value, choice.description) for choice in key.choices)]
    if key.discriminator:
        lines += ["", "  kinds", *described((choice.value, choice.description) for choice in key.discriminator)]
    if key.children or key.variants:
        lines += ["", "  keys", *described(_rows(key))]
    return "\n".join(lines)


def _rows(key: Key) -> list[tuple[str, str]]:
    rows = [(child.name, child.description) for child in key.children.values()]
    for variant in key.variants:
        rows += [
            (name, f"({variant.value}) {child.description}")
            for name, child in variant.keys.items()
            if name not in key.children
        ]
    return rows


def overview(kind: str, plugins: Registry | None = None) -> str:
    """Return the tree of all keys of a kind of document, one per line."""
    return "\n".join([f"{kind}: {root(kind).description}", *_tree(root(kind, plugins), 0)]) + "\n"


def _tree(key: Key, depth: int) -> list[str]:
    lines: list[str] = []
    indent = "  " * (depth + 1)
    for child in key.children.values():
        mark = "required" if child.required else f"[{flow(child.default)}]" if child.has_default else ""
        known = "|".join(choice.value for choice in child.choices)
        about = " ".join(part for part in (child.type if child.type != "word" else known, child.unit, mark) if part)
        lines.append(f"{indent}{child.name}: {about}")
        if not child.document:  # the other document has its own tree
            lines += _tree(child, depth + 1)
    for variant in key.variants:
        if variant.keys:
            lines.append(f"{indent}({variant.value})")
            lines += _tree(replace(key, children=variant.keys, variants=()), depth + 1)
    return lines


def search(text: str, plugins: Registry | None = None) -> list[tuple[str, Key]]:
    """Return every key that ``text`` may mean, with the kind of its document, the best match first.

    Exact names come first, then names from other tools, names and values with these words, names with words that begin
    like this, and descriptions with these words.
    """
    words = words_of(text)
    if not words:
        return []
    hits: dict[str, tuple[int, str, Key]] = {}
    for kind in _KINDS_WITH_OWN:
        for key in every_key(kind, plugins):
            rank = _rank(words, key, kind) if key.path else None
            if rank is not None:
                hits.setdefault(key.shown(kind), (rank, kind, key))
    ranked = sorted((rank, _is_echo(path, hits), at) for at, (path, (rank, *_)) in enumerate(hits.items()))
    listed = list(hits.values())
    return [listed[at][1:] for *_, at in ranked]


def _rank(words: Sequence[str], key: Key, kind: str) -> int | None:
    name = words_of(key.name)
    if name == tuple(words):
        return 0
    path = key.dotted if kind == "Experiment" else f"{kind.lower()}.{key.dotted}"
    if path in KEYS.get("_".join(words), ()):
        return 1
    if set(words) <= set(name) or any(words_of(choice.value) == tuple(words) for choice in key.choices):
        return 2
    if all(any(part.startswith(word) for part in name) for word in words):
        return 3
    description = key.description.lower()
    if not all(word in description for word in words):  # a cheap test that excludes most keys
        return None
    there = set(words_of(re.sub(r"`[^`]*`", "", description)))
    return 4 if all(word in there or f"{word}s" in there for word in words) else None


@dataclass(frozen=True, slots=True)
class Value:
    """A value that keys accept, and its meaning."""

    word: str
    meaning: str
    paths: tuple[str, ...]
    """The keys, in the form of ``explain``."""
    keys: tuple[tuple[str, str], ...]
    """Further keys allowed beside it, and their meanings."""

    def to_text(self) -> str:
        """Return the explanation as text."""
        places = [f"`{path}`" for path in self.paths[:_NEAR]]
        places += [plural(len(self.paths) - _NEAR, "more key")] if len(self.paths) > _NEAR else []
        title = f"{self.word}: a value of {in_words(places)}"
        head = textwrap.wrap(title, _WIDTH, break_on_hyphens=False)
        beside = ["", "  its keys", *described(self.keys)] if self.keys else []
        return "\n".join([*head, "", *textwrap.wrap(self.meaning, _WIDTH), *beside]) + "\n"

    def to_dict(self) -> Json:
        """Return the explanation as plain data."""
        return {
            "value": self.word,
            "meaning": self.meaning,
            "of": [*self.paths],
            "keys": [name for name, _ in self.keys],
        }


@cache
def _takers(plugins: Registry | None) -> Mapping[str, list[tuple[str, Key, str]]]:
    """Return, for each accepted value, the kinds of document, the keys, and its meaning there."""
    takers: dict[str, list[tuple[str, Key, str]]] = {}
    for kind in _KINDS_WITH_OWN:
        for key in every_key(kind, plugins):
            if key.name not in DISCRIMINATORS:
                meanings = {choice.value: choice.description for choice in key.discriminator or key.choices}
                for word, meaning in meanings.items():
                    takers.setdefault(word, []).append((kind, key, meaning))
    return takers


def values(word: str, plugins: Registry | None = None) -> list[Value]:
    """Return the meanings of a word as a value; keys for which it means the same are combined."""
    by_meaning: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for kind, key, meaning in _takers(plugins).get(word, ()):
        beside = [variant for variant in key.variants if variant.value == word]
        own = tuple((name, child.description) for variant in beside for name, child in variant.keys.items())
        by_meaning.setdefault((meaning or key.description, own), []).append(key.shown(kind))
    meanings = {
        about: dict.fromkeys(path for path in paths if not _is_echo(path, paths)) for about, paths in by_meaning.items()
    }
    return [Value(word, meaning, tuple(paths), own) for (meaning, own), paths in meanings.items()]


def as_list(text: str, hits: Sequence[tuple[str, Key]], *, alone: bool = True) -> str:
    """Return the best matches, one per line; ``alone``: whether nothing else has this name."""
    rows = [(key.shown(kind), key.description) for kind, key in hits[:_MOST_SHOWN]]
    width = max(len(path) for path, _ in rows)
    room = max(_WIDTH - width - 4, 30)
    more = len(hits) - len(rows)
    name = printable(text)
    lines = [f"no key has the path `{name}`; keys that mention it:" if alone else f"keys that mention `{name}`:", ""]
    lines += [f"  {path:<{width}}  {textwrap.shorten(about, room, placeholder=' ...')}" for path, about in rows]
    return "\n".join([*lines, *([f"  ... and {more} more"] if more else [])]) + "\n"


def as_rows(hits: Sequence[tuple[str, Key]]) -> Json:
    """Return all matches as plain data."""
    rows: list[Json] = [{"path": key.shown(kind), "description": key.description} for kind, key in hits]
    return rows
