"""Keys of documents, defaults of servers, latencies and plug-ins, by everything that they depend on, as recorded."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields, is_dataclass, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Final

import blis_tui
from blis_tui import model
from blis_tui.base.classes import dataclass
from blis_tui.model.control_plane import PluginConfig, named_in
from blis_tui.model.defaults import (
    CHUNK,
    DEFAULTS,
    LENGTH,
    SEQS,
    SHARE,
    TOKENS,
    Server,
    default_of,
    left_out,
    running_requests,
    static_share,
    value_text,
    vllm_limits,
)
from blis_tui.model.engine import Encoder, Speculative
from blis_tui.model.keys import Key, keys_of
from blis_tui.model.latencies import LATENCIES
from blis_tui.model.plug_ins import (
    Origin,
    PlugPoint,
    Registry,
    json_type,
    nested,
    plugins_in,
    setting,
    setting_or,
)
from blis_tui.spec.shipped import builtin
from tests.recorded import SHIPPED, Digests, outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_regressions.file_regression import FileRegressionFixture

_ENGINES: Final = ("blis", "vllm-v1", "sglang", "tensorrt-llm", "llm-serving-sim", "nano", "own")
_GPUS: Final = {"a100-80": 80.0, "h100": 80.0, "l4": 24.0, "t4": 16.0, "b200": 192.0, "x": 60.0, "y": 160.0}


def _plain(value: object) -> str:
    """A value as text that is the same everywhere: classes and functions by their names."""
    if value is MISSING:
        return "MISSING"
    if isinstance(value, Key):
        return f"Key({', '.join(f'{name}={_plain(one)}' for name, one in value._asdict().items())})"
    if isinstance(value, type) or callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    if isinstance(value, dict) or hasattr(value, "items"):
        return "{" + ", ".join(f"{_plain(key)}: {_plain(one)}" for key, one in value.items()) + "}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_plain, value))})"
    if is_dataclass(value):
        return f"{type(value).__qualname__}({', '.join(_plain(getattr(value, field.name)) for field in fields(value))})"
    return repr(value)


def _modules() -> Iterator[ModuleType]:
    for path in sorted(Path(model.__file__).parent.glob("*.py")):
        yield import_module(f"blis_tui.model.{path.stem}".removesuffix(".__init__"))


def test_keys(file_regression: FileRegressionFixture) -> None:
    """What each key of each kind of document means, may be, and is where it is left out."""
    digests = Digests()
    for module in _modules():
        for name, kind in vars(module).items():
            if not isinstance(kind, type) or kind.__module__ != module.__name__:
                continue
            for key, (about, annotation) in keys_of(kind).items():
                digests.add(f"{module.__name__}: keys", name, key, annotation, _plain(about), about.is_required)
            if is_dataclass(kind):
                for field in fields(kind):
                    made = MISSING if field.default_factory is MISSING else field.default_factory()
                    digests.add(f"{module.__name__}: fields", name, field.name, _plain(field.default), _plain(made))
    digests.check(file_regression)


def test_defaults(file_regression: FileRegressionFixture) -> None:
    """Each limit of each engine on each GPU, and the formulas over many sizes."""
    digests = Digests()
    for engine, version, (gpu, gib) in product(_ENGINES, ("0.33", "0.32", "0.10", ""), _GPUS.items()):
        server = Server(engine, version, gpu.upper(), gib)
        for key in (SEQS, TOKENS, SHARE, LENGTH, CHUNK):
            found = default_of(key, server)
            digests.add(f"default {key}", None if found is None else (found[0], DEFAULTS.index(found[1])))
    for row in DEFAULTS:
        digests.add("conditions", row.condition(), *(value_text(key, value) for key, value in row.values.items()))
    digests.add("left out", *(left_out(key) for key in (SEQS, TOKENS, SHARE, LENGTH, CHUNK)))
    sizes = product(
        (16.0, 20.0, 34.9, 35.0, 60.0, 60.5, 80.0, 160.0), (1, 2, 4, 8), (1, 2), (False, True), (False, True)
    )
    for gib, tensor, stages, latent, graphs in sizes:
        server = Server("sglang", "", "x", gib, tensor, stages, latent, graphs)
        for tokens, seqs, split in ((1, None, True), (2048, 16, True), (8192, 300, True), (9001, 1, False)):
            digests.add("share", static_share(server, tokens, seqs, split=split))
    for tokens, longest in product((0, 1, 3, 4000, 10**6, 10**7, 3 * 10**7), (0, 1, 4096, 131072)):
        digests.add("running", running_requests(tokens, longest))
    given = product((None, 100, 9000), (None, 7, 4000), (None, 50, 3000), (False, True), (False, True))
    for budget, places, most, whole, batched in given:
        asked = (budget, places)
        digests.add("vllm", vllm_limits(asked, (2048, 256), most, whole_prompts=whole, batched_dp=batched))
    digests.check(file_regression)


def test_latencies(file_regression: FileRegressionFixture) -> None:
    """Times of requests with answers of every length, finished or not, each and all together."""
    digests = Digests()
    rows = [
        SimpleNamespace(ttft_us=ttft, e2e_us=e2e, output_tokens=tokens, scheduled_us=late, arrival_us=7)
        for ttft, e2e, tokens, late in product((-1, 0, 5000), (-1, 0, 12_345), (0, 1, 2, 9), (-1, 7, 50))
    ]
    for latency in LATENCIES:
        digests.add("names", latency.field, _plain(latency))
        if not latency.end:
            continue
        for row, unit in product(rows, (1, 1000)):
            digests.add(latency.name, latency.of(row, unit))
        for some in (rows, rows[:0], [row for row in rows if row.e2e_us > 0 and row.ttft_us > 0]):
            columns = {name: [getattr(row, name) for row in some] for name in vars(rows[0])}
            digests.add(f"{latency.name} of all", list(latency.samples_us(SimpleNamespace(**columns))))
    digests.check(file_regression)


def test_experiments(file_regression: FileRegressionFixture) -> None:
    """What follows from the shipped experiments' keys."""
    digests = Digests()
    for name in SHIPPED:
        one = blis_tui.load(name)
        digests.add("experiment", repr(one), one.instances, one.instance_numbers, one.plain, one.has_detours)
        digests.add("experiment", one.request_facts, one.cluster.varies, one.plugins_used())
        digests.add("named", *named_in((one.workload, one.policy, one.cluster, one.pools)))
        digests.add(
            "pools", *((pool.lockstep, pool.engine.expert_ranks, pool.engine.verify_width) for pool in one.pools)
        )
    for method, tokens, (acceptance, rates) in product(("eagle", "ngram", "mtp"), (1, 3), _ACCEPTED):
        some = rates[:tokens]
        drafts = Speculative(draft_tokens=tokens, method=method, acceptance=acceptance, acceptance_rates=some)
        digests.add("drafts", drafts.acceptance_probabilities, drafts.lookahead_tokens, drafts.reads_hidden_states)
    for budget in (None, 5):
        digests.add("encoder", Encoder(token_us=3, encoder_cache_size=budget).scheduled)
    digests.check(file_regression)


_ACCEPTED: Final = ((0.7, ()), (None, (0.8, 0.4, 0.0)), (None, (0.0,) * 3))


class _Chooser:
    """What a plug-in has to have."""

    rule: str

    def choose(self, number: int) -> int:
        """Choose."""
        raise NotImplementedError


_OUTER: Final = PlugPoint[[], object]("x.outer", "outer rule", _Chooser)
_INNER: Final = PlugPoint[[], object]("x.inner", "inner rule", _Chooser)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """Every kind of setting."""

    must: int = setting("Must be given.")
    may: int | None = setting("May be given.", default=None)
    often: int = setting("Usually 3.", default=3, minimum=1)
    auto: int | None = setting_or("Word.", ["none", "auto"], default=5)
    word: int | None = setting_or("Word.", ["none"], default=6)
    parts: tuple[tuple[str, object], ...] = nested("Parts.", _INNER, "#/$defs/parts", [{"kind": "plain"}])


@_OUTER.plugin("full", "Has settings.", _Settings)
class _Full(_Chooser):
    rule = "full"

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings

    def __repr__(self) -> str:
        return f"full of {self.settings!r}"


@_INNER.plugin("plain", "Has none.", of_blis=True)
class _Plain(_Chooser):
    rule = "plain"

    def __init__(self, settings: object) -> None:
        del settings

    def __repr__(self) -> str:
        return "plain"


_Also = _Plain


@_INNER.plugin("failing", "Cannot be made.")
def _failing(settings: object) -> object:
    raise RuntimeError(type(settings).__name__)


@_INNER.plugin("lacking", "Is no rule.")
def _lacking(settings: object) -> object:
    return type(settings).__name__


@_INNER.plugin("unsaved", "Cannot be pickled.")
def _unsaved(settings: object) -> object:
    made = _Plain(settings)
    made.choose = lambda number: number  # type: ignore[method-assign]
    return made


def test_plugins(file_regression: FileRegressionFixture) -> None:
    """Plug-ins found by their marks, made with right and wrong settings, and the shipped ones."""
    digests = Digests()
    here = import_module(__name__)
    plugins = plugins_in([here])
    origin = Origin("own.py", "1", asked="own.py", code="2")
    foreign = [replace(plugin, module="own", origin=origin) for plugin in plugins]
    for kind, registry in (("own", Registry(plugins)), ("foreign", Registry(foreign, [origin]))):
        digests.add(
            kind, *map(_plain, registry.plugins), len(registry.own), registry.names("x.inner"), registry.names("y")
        )
        for given in _GIVEN:
            digests.add(f"{kind}: made", _lines(outcome(registry.create, _OUTER, "full", given)))
        for name in ("plain", "lacking", "nothing", *(["failing", "unsaved"] if kind == "foreign" else [])):
            digests.add(f"{kind}: made", _lines(outcome(registry.create, _INNER, name, {})))
        config = PluginConfig(kind="full", settings={"must": 1, "parts": (PluginConfig(kind="plain"),)})
        digests.add(f"{kind}: used", *(plugin.name for plugin in registry.used("x.outer", config)))
    digests.add("members", _OUTER.members, _INNER.noun)
    digests.add("types", *(json_type(one) for one in (int, str, float, bool, int | None, tuple[int, ...])))
    for point in dict.fromkeys(plugin.path for plugin in builtin().plugins):
        digests.add("shipped", point, *map(_plain, builtin().of(point)))
        digests.add("shipped: unknown", outcome(builtin().find, point, "nothing"))
    digests.check(file_regression)


_GIVEN: Final[tuple[dict[str, object], ...]] = (
    {},
    {"must": 1},
    {"must": 1, "more": 2},
    {"must": 1, "auto": "auto", "word": "none"},
    {"must": 1, "auto": "none", "may": 4},
    {"must": 1, "word": "auto"},
    {"must": 1, "parts": (PluginConfig(kind="plain"),)},
    {"must": 1, "parts": (PluginConfig(kind="nothing"),)},
)


def _lines(made: object) -> str:
    """What was made or told, without places in this file and the words of Python."""
    text = made if isinstance(made, str) else repr(made)
    text = re.sub(r"(cannot be saved, as checkpoints need it).*", r"\1", text)
    return re.sub(r"at \S+:\d+ in", "HERE in", text)
