"""Runs of vLLM's own scheduler with images in prompts: the same batch in every step, and the same images encoded.

``vllm-media.jsonl.xz`` is what ``make_vllm_cases.py --media`` recorded of vLLM 0.32.0 and 0.33.0 (``version``), some of
it in pipelines (``--stages``).
"""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from blis_tui.engine.records import MediaEncoded, StepFinished
from blis_tui.engine.request import Media, MediaItem
from blis_tui.model import Encoder
from tests.builders import Outcome
from tests.parity.test_vllm import batches, document_of, request_of
from tests.parity.test_vllm_stops import compared, staged

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment

FILE: Final = Path(__file__).with_name("vllm-media.jsonl.xz")
_ALL: Final = [json.loads(line) for line in lzma.decompress(FILE.read_bytes()).decode().splitlines()]
RUNS: Final = [run for run in _ALL if "pipeline_parallel" not in run["case"]]
PIPELINED: Final = [run for run in _ALL if "pipeline_parallel" in run["case"]]


def with_encoder(run: dict[str, Any]) -> Experiment:
    case, made = run["case"], document_of(run)
    (pool,) = made.pools
    encoder = Encoder(
        token_us=1e-9,  # the encoder takes no time
        max_num_encoder_input_tokens=case["max_num_encoder_input_tokens"],
        encoder_cache_size=case["encoder_cache_size"],
        max_tokens_per_mm_item=0,
        disable_chunked_mm_input=case["disable_chunked_mm_input"],
    )
    return replace(made, pools=(replace(pool, engine=replace(pool.engine, encoder=encoder)),))


def with_media(number: int, row: list[Any]) -> Request:
    *plain, items = row
    made = request_of(number, plain)
    if items:
        made.media_items = tuple(MediaItem(*item) for item in items)
        made.media = Media(image_tokens=sum(item.tokens for item in made.media_items))
    return made


def found_in(run: dict[str, Any]) -> list[dict[str, Any]]:
    requests = [with_media(number, row) for number, row in enumerate(run["trace"])]
    records = Outcome(with_encoder(run), requests).records
    steps = batches(
        [record for record in records if isinstance(record, StepFinished)], [row[1] + row[4] for row in run["trace"]]
    )
    encoded: dict[int, dict[int, int]] = {}
    for record in records:
        if isinstance(record, MediaEncoded) and record.encoded_tokens:
            encoded.setdefault(record.time_us, {})[int(record.request_id)] = record.encoded_tokens
    return [{**step, "encoded": encoded.get(step["t"], {})} for step in steps]


def theirs_of(run: dict[str, Any]) -> list[dict[str, Any]]:
    steps = []
    for step in run["steps"]:
        encoded: dict[int, int] = {}
        for number, item in step["encoded"]:
            encoded[number] = encoded.get(number, 0) + run["trace"][number][6][item][1]
        steps.append({**step, "batch": sorted(step["batch"]), "encoded": encoded})
    return steps


@pytest.mark.parametrize("number", range(len(RUNS)))
def test_every_batch_is_vllms(number: int) -> None:
    run = RUNS[number]
    for ours, theirs in zip(found_in(run), theirs_of(run), strict=True):
        assert {key: ours[key] for key in theirs} == theirs


@pytest.mark.parametrize("number", range(len(PIPELINED)))
def test_every_batch_in_a_pipeline_is_vllms(number: int) -> None:
    run = PIPELINED[number]
    requests = [with_media(number, row) for number, row in enumerate(run["trace"])]
    records = Outcome(staged(run, with_encoder(run)), requests).records
    ours, theirs = compared(run, [record for record in records if isinstance(record, StepFinished)])
    assert ours == theirs
    encoded = [
        (int(record.request_id), record.encoded_tokens) for record in records if isinstance(record, MediaEncoded)
    ]
    assert sorted(one for one in encoded if one[1]) == sorted(
        one for step in theirs_of(run) for one in step["encoded"].items()
    )


def test_versions_differ() -> None:
    """In 0.33 a request that waits for the encoder is passed over."""
    other = {"0.32": "0.33", "0.33": "0.32"}
    runs = [run for run in RUNS if not run["case"]["disable_chunked_mm_input"]]
    differ = [found_in(run) != found_in({**run, "version": other[run["version"]]}) for run in runs]
    assert any(differ)
    assert not all(differ)


def test_the_runs_cover_what_is_hard() -> None:
    for version in ("0.32", "0.33"):
        some = [run for run in RUNS if run["version"] == version]
        assert {run["case"]["async_scheduling"] for run in some} == {False, True}
        assert {run["case"]["policy"] for run in some} == {"fcfs", "priority"}
        assert {run["case"]["disable_chunked_mm_input"] for run in some} == {False, True}
        assert any(step["preempted"] for run in some for step in run["steps"])
        encoders = [encoder for run in some for encoder in encoders_of(run)]
        held, evicted, cached = (
            sum(getattr(encoder, name) for encoder in encoders) for name in ("holds", "evicted_items", "cached_tokens")
        )
        assert held > 40
        assert evicted > 50
        assert cached > 100


def encoders_of(run: dict[str, Any]) -> list[Any]:
    requests = [with_media(number, row) for number, row in enumerate(run["trace"])]
    cluster = Outcome(with_encoder(run), requests).cluster
    return [instance.batch.encoder for instance in cluster.instances]
