"""Where two runs part: chains of digests, and mutated engines whose first divergent event must be named."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blis_tui
from blis_tui.engine.batch import Batch
from blis_tui.engine.kv.pool import BlockPool
from blis_tui.engine.records import Admitted
from blis_tui.engine.rules.rule import RunningFirst
from blis_tui.engine.rules.vllm import BlisBatching
from blis_tui.golden import golden_store, session
from blis_tui.golden.case import cases_of
from blis_tui.golden.compare import ComparisonOptions, compare
from blis_tui.golden.golden_divergence import find_divergence, record_lines
from blis_tui.golden.golden_store import MAX_ENTRIES, RECORDS, ChainRecorder, GoldenFiles, divergence_window
from blis_tui.golden.produce import produce
from blis_tui.golden.review import accept
from blis_tui.results.record_lines import record_dict
from blis_tui.runs.divergence import first_divergence, record_stream

from .projects import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from blis_tui.engine.plan import Plan
    from blis_tui.engine.profile import Limits
    from blis_tui.engine.request import Request
    from blis_tui.golden.golden_store import Chain, Golden


def chain_of(events: list[str]) -> Chain:
    """The chain of a run with one record for each event."""
    recorder = ChainRecorder()
    for number, text in enumerate(events, 1):
        recorder(Admitted(number, number, text, "p"))
    return recorder.finish(len(events))


@given(length=st.integers(1, 3 * MAX_ENTRIES), data=st.data())
def test_the_window_holds_the_first_difference_and_is_small(length: int, data: st.DataObject) -> None:
    old = ["x"] * length
    new = list(old)
    where = data.draw(st.integers(0, length - 1))
    new[where] = "y"
    before = chain_of(old)
    window = divergence_window(before, chain_of(new))
    assert window is not None
    after, until = window
    assert after < where + 1 <= until
    assert until - after <= max(1, 2 * length // MAX_ENTRIES + 2)
    assert divergence_window(before, before) is None


@given(short=st.integers(1, 300), more=st.integers(1, 3 * MAX_ENTRIES))
def test_a_stream_that_ends_early_parts_at_its_end(short: int, more: int) -> None:
    window = divergence_window(chain_of(["x"] * short), chain_of(["x"] * (short + more)))
    assert window is not None
    assert window[0] <= short
    assert window[1] > short


# Small faults in scheduling, admission, preemption and the cache: each is one line of the engine.


def _limit(limited: Callable[[Limits], Limits]) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        plan = RunningFirst.plan

        def mutated(self: RunningFirst, batch: Batch) -> Plan:
            right = batch.limits
            batch.limits = limited(right)
            try:
                return plan(self, batch)
            finally:
                batch.limits = right

        patch.setattr(RunningFirst, "plan", mutated)

    return mutate


def _cut_budget(tokens: int) -> Callable[[pytest.MonkeyPatch], None]:
    return _limit(lambda right: replace(right, max_num_batched_tokens=right.max_num_batched_tokens - tokens))


def _cut_batch(requests: int) -> Callable[[pytest.MonkeyPatch], None]:
    return _limit(lambda right: replace(right, max_num_seqs=requests))


def _hide_cache(every: int) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        cached = BlockPool.cached_prefix

        def mutated(self: BlockPool, request: Request, limit_blocks: int) -> int:
            return 0 if request.index % every == 0 else cached(self, request, limit_blocks)

        patch.setattr(BlockPool, "cached_prefix", mutated)

    return mutate


def _other_victim(place: int) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        def mutated(self: Batch) -> Request:
            running = list(self.running.values())
            return running[min(place, len(running) - 1)]

        patch.setattr(Batch, "choose_victim", mutated)

    return mutate


def _threshold(tokens: int) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(BlisBatching, "prefill_threshold", lambda *_: tokens)

    return mutate


MUTATIONS = {
    **{f"budget-{n}": _cut_budget(n) for n in (1800, 1900, 1950, 2000, 2020, 2030, 2040)},
    **{f"batch-{n}": _cut_batch(n) for n in (1, 2, 3, 4, 5)},
    **{f"cache-{n}": _hide_cache(n) for n in (1, 2, 3, 5)},
    **{f"victim-{n}": _other_victim(n) for n in (0, 1, 2)},
    **{f"threshold-{n}": _threshold(n) for n in (8, 16, 64, 100, 150)},
}


def first_difference(old: list[str], new: list[str]) -> int | None:
    """The first event with another record, found the plain way."""
    events = [_event(a or b) for a, b in itertools.zip_longest(old, new) if a != b]
    return events[0] if events else None


def _event(line: str | None) -> int:
    assert line is not None
    return int(line.split('"event":')[1].split(",")[0])


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> blis_tui.Experiment:
    spec = tmp_path_factory.mktemp("mutations") / "demo.blis.yaml"
    prefix = SPEC.replace("output_tokens: {", "prefix: {group: g, tokens: 64}\n      output_tokens: {")
    spec.write_text(prefix, encoding="utf-8")
    return blis_tui.load(spec)


@pytest.fixture(scope="module")
def kept(experiment: blis_tui.Experiment) -> tuple[Golden, tuple[str, ...]]:
    """The golden, and all records of the run that it is of."""
    return produce(experiment, spec="demo.blis.yaml", case="default"), tuple(record_lines(experiment))


def test_there_are_enough_mutations() -> None:
    assert len(MUTATIONS) >= 20


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.parametrize("full", [True, False], ids=["records", "chain"])
def test_a_mutated_engine_is_caught_at_the_right_event(
    name: str,
    full: bool,
    experiment: blis_tui.Experiment,
    kept: tuple[Golden, tuple[str, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    golden, lines = kept
    files = GoldenFiles(tmp_path, "demo")
    old = list(lines)
    files.write(golden)
    if full:
        files.write_records(iter(old))
    MUTATIONS[name](monkeypatch)
    result = produce(experiment, spec="demo.blis.yaml", case="default")
    new = list(record_lines(experiment))
    expected = first_difference(old, new)
    assert expected is not None, "the mutation changes nothing: it tests nothing"
    divergence = find_divergence(golden, result, experiment, files)
    assert divergence is not None
    assert divergence.after < expected <= divergence.until
    if full:
        assert divergence.exact is not None
        assert divergence.event == divergence.exact.event == expected
        assert divergence.exact.left != divergence.exact.right
        assert f"first divergence: event {expected}" in divergence.text()
    else:
        # The old engine is gone and its records were not kept: the chain still gives a window, here of one event.
        assert divergence.exact is None
        assert divergence.event == divergence.until
        assert divergence.until - divergence.after == golden.chain.every
        where = (
            f"event {expected}\n" if golden.chain.every == 1 else f"between event {divergence.after} (still equal) and "
        )
        assert divergence.text().startswith(f"first divergence: {where}")


CHANGES: Final = {
    "early": ("kv_blocks: 60", "kv_blocks: 30"),
    "late": ("requests: 25", "requests: 24"),
    "later": ("requests: 25", "requests: 26"),
    "all": ("rate_per_s: 20", "rate_per_s: 21"),
    "end": ("policy: blis", "policy: blis\nhorizon_us: 1200000"),
}


@pytest.mark.parametrize("most", [8, MAX_ENTRIES])
@pytest.mark.parametrize(("before", "now"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("backwards", [False, True])
def test_of_a_changed_spec_the_records_are_those_of_whole_streams(
    before: str, now: str, most: int, *, backwards: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although only the window of the chains is compared, and the golden's run is repeated no further."""
    monkeypatch.setattr(golden_store, "MAX_ENTRIES", most)
    texts = [SPEC, SPEC.replace(before, now)][:: -1 if backwards else 1]
    experiments = []
    for name, text in zip(("old", "new"), texts, strict=True):
        (tmp_path / f"{name}.blis.yaml").write_text(text, encoding="utf-8")
        experiments.append(blis_tui.load(tmp_path / f"{name}.blis.yaml"))
    old, new = (produce(one, spec="demo.blis.yaml", case="default") for one in experiments)
    divergence = find_divergence(old, new, experiments[1], GoldenFiles(tmp_path, "none"))
    expected = first_divergence(record_stream(experiments[0]), record_stream(experiments[1]), record_dict)
    assert divergence is not None
    assert divergence.exact == expected is not None


@pytest.mark.parametrize("rewritten", [False, True])
def test_records_of_an_older_golden_do_not_outlive_it(
    experiment: blis_tui.Experiment, tmp_path: Path, *, rewritten: bool
) -> None:
    golden = produce(experiment, spec="demo.blis.yaml", case="default")
    files = GoldenFiles(tmp_path, "demo")
    files.write(golden)
    files.write_records(record_lines(experiment))
    assert files.read_records(golden) is not None
    smaller = produce(
        blis_tui.load("quickstart", set={"workload.requests": 3, "expect": []}), spec="demo.blis.yaml", case="default"
    )
    if rewritten:  # as `pytest --blis-update=always` does
        files.write(smaller)
    else:
        files.write(smaller, pending=True)
        accept(files)
    assert not files.file(RECORDS).exists()


def test_records_of_another_result_are_not_believed(experiment: blis_tui.Experiment, tmp_path: Path) -> None:
    """As a merge can leave them, or a golden whose other files were deleted."""
    smaller = blis_tui.load("quickstart", set={"workload.requests": 3, "expect": []})
    old, new = (produce(one, spec="demo.blis.yaml", case="default") for one in (smaller, experiment))
    files = GoldenFiles(tmp_path, "demo")
    files.write(old)
    files.write_records(record_lines(experiment))
    divergence = find_divergence(old, new, experiment, files)
    assert divergence is not None
    assert divergence == find_divergence(old, new, experiment, GoldenFiles(tmp_path, "none"))


def test_events_that_differ_are_a_difference_though_the_report_is_the_same(experiment: blis_tui.Experiment) -> None:
    golden = produce(experiment, spec="demo.blis.yaml", case="default")
    other = replace(golden, chain=replace(golden.chain, sha256="0" * 64))
    difference = compare(golden, other, ComparisonOptions())
    assert (difference.records, difference.report, difference.found) == (True, (), True)
    assert not compare(golden, other, ComparisonOptions(records=False)).found


def test_the_terminal_interface_is_offered_where_it_is_there(
    experiment: blis_tui.Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = produce(experiment, spec="demo.blis.yaml", case="default")
    files = GoldenFiles(tmp_path, "demo")
    spec = tmp_path / "demo.blis.yaml"
    spec.write_text(SPEC + "cases: {default: {}, slow: {seed: 7}}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    files.write(golden)
    files.write_records(record_lines(experiment))
    MUTATIONS["batch-2"](monkeypatch)
    result = produce(experiment, spec="demo.blis.yaml", case="default")
    difference = compare(golden, result, ComparisonOptions())
    divergence = find_divergence(golden, result, experiment, files)
    assert divergence is not None
    for there, expected in ((None, 0), (object(), 1)):
        monkeypatch.setattr(session, "find_spec", lambda _, there=there: there)
        for case, option in zip(cases_of(spec), ("", " --case slow"), strict=True):
            text = session.describe(case, files, golden, result, difference, experiment)
            assert text.count(f"blis-tui tui demo.blis.yaml{option} --at {divergence.event}") == expected
