"""Draw a few steps of each batching rule for ``docs/schedulers.md``: one workload, one SVG file per rule.

The page's tables of versions and of defaults are made from the tables that the rules use
(``engine/rules/traits.py``, ``model/defaults.py``).

    make docs

The pictures show a simulation of five requests on an engine so small that everything happens within twenty steps. A
test fails when they are stale.
"""

from __future__ import annotations

import sys
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import blis_tui
from blis_tui.engine.records import StepFinished
from blis_tui.engine.rules.traits import OLD, ONLY_IN, SIMULATED, VERSIONS
from blis_tui.engine.rules.traits import RULES as RULES_OF_VERSIONS
from blis_tui.model.defaults import DEFAULTS, value_text
from blis_tui.output.result_files import write_tree
from blis_tui.spec.library import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PAGE: Final = Path(__file__).with_name("schedulers.md")
IMAGES: Final = Path(__file__).with_name("img")
RULES: Final = {
    "blis": "blis",
    "vllm-v1": "vllm-v1",
    "nano": "nano",
    "llm-serving-sim": "llm-serving-sim",
    "sglang": "{kind: sglang, chunked_prefill_size: 160, schedule_conservativeness: 0.3}",
}
"""Batching rules, as documents write them here."""

COMPARED: Final = {
    "vllm-v1": "runs of its own scheduler, batch for batch (0.32, 0.33); 0.10 was read in the code",
    "nano": "read in the code",
    "llm-serving-sim": "read in the code",
    "tensorrt-llm": "times of measured servers; the scheduler was read in the code",
    "sglang": "runs of its own scheduler, batch for batch",
}
"""How each rule was compared with its engine."""
MEANINGS: Final = {
    "serves-behind-own-victim": "a request that is its own victim does not keep those behind it from getting tokens",
    "ending-use-adapters": "a LoRA adapter is in use until the last token of its requests is there",
    "keeps-accepted-drafts": "synchronous steps: accepted drafts are found in the prefix cache once they are verified",
    "hashes-lookahead": "with `eagle` and `mtp`, a block of a prompt is found in the prefix cache only before the same"
    " next token; otherwise the last cached block of a prompt is computed again",
    "passes-over-media": "a waiting request whose next image has no room in the encoder does not hold up others",
    "whole-media-strictly": "`disable_chunked_mm_input` does not split an image where a step begins with it, either",
    "lone-request-has-no-threshold": "`long_prefill_token_threshold` does not apply to a request that is alone",
    "pads-admissions": "an admitted request that needs one token is padded to as many as decodes with drafts have",
}
"""Meaning of the rules in which versions of vLLM differ."""

NOTES: Final = {"prefill_schedule_interval": " (ranks that share experts had it before; with them it is not simulated)"}
"""What the names of settings do not tell."""

_BEGIN, _END = "<!-- begin of the versions -->", "<!-- end of the versions -->"
_DEFAULTS: Final = "<!-- begin of the defaults -->", "<!-- end of the defaults -->"
_ENGINES: Final = {
    "vLLM 0.32, 0.33": ("vllm-v1", "0.32"),
    "vLLM 0.10": ("vllm-v1", "0.10"),
    "SGLang": ("sglang", "0.5.23"),
}
"""Engines whose limits depend on the GPU, with their rule and version."""
_ROWS: Final = (("a", 0, 90, 10), ("b", 0, 60, 8), ("c", 5, 150, 6), ("d", 5, 30, 6), ("e", 30, 40, 3))
"""Name, arrival in milliseconds, prompt, answer."""
_EXPERIMENT: Final = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: steps}
model: llama-3.1-8b-instruct
hardware: h100
latency: {kind: blackbox, alpha: [0, 0, 0], beta: [4000, 30, 100]}
workload: {trace: {file: requests.csv}}
engine: {max_num_seqs: 4, max_num_batched_tokens: 160, max_model_len: 160, kv_blocks: 20}
"""
_STEPS: Final = 20
_SMALL: Final = "qwen2.5-7b-instruct"
"""A model that fits on each GPU."""

_LANE: Final = 26
_LEFT: Final = 150
_TOP: Final = 34
_STEP: Final = 40
_COLORS: Final = {"prefill": "#4c78a8", "decode": "#59a14f", "stalled": "#f2cf5b", "waiting": "#d9d9d9"}
_WORDS: Final = {
    "prefill": "prefill, its tokens",
    "decode": "decode, one token",
    "stalled": "runs, gets nothing",
    "waiting": "waits",
}


def steps_of(rule: str) -> list[StepFinished]:
    """The first steps under a rule."""
    with tempfile.TemporaryDirectory() as folder:
        table = "".join(f"{name},{at * 1000},{prompt},{answer}\n" for name, at, prompt, answer in _ROWS)
        Path(folder, "requests.csv").write_text(
            "request_id,arrival_time_us,input_tokens,output_tokens\n" + table, encoding="utf-8"
        )
        spec = Path(folder, "steps.blis.yaml")
        spec.write_text(f"{_EXPERIMENT}policy: {{batching: {RULES[rule]}}}\n", encoding="utf-8")
        simulation = blis_tui.Simulation(blis_tui.load(spec))
    steps: list[StepFinished] = []
    simulation.subscribe(StepFinished, steps.append)
    simulation.run()
    return steps[:_STEPS]


def picture(steps: Sequence[StepFinished]) -> str:
    """An SVG file: a column for each step, a lane for each request."""
    width, height = _LEFT + _STEP * len(steps) + 10, _TOP + _LANE * (len(_ROWS) + 1) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for column, step in enumerate(steps):
        parts.append(_text(_LEFT + _STEP * column + _STEP // 2, 14, f"{step.step}", "#666"))
        parts.append(_text(_LEFT + _STEP * column + _STEP // 2, 27, f"{step.duration_us / 1000:.1f} ms", "#666", 9))
    for lane, (name, at, prompt, answer) in enumerate(_ROWS):
        y = _TOP + _LANE * lane
        label = f"{name}: {prompt} in, {answer} out, {at} ms"
        parts.append(_text(_LEFT - 8, y + 17, label, "#222", anchor="end"))
        for column, (what, mark) in enumerate(_lane(name, at * 1000, steps)):
            if what:
                x = _LEFT + _STEP * column
                parts.append(
                    f'<rect x="{x + 1}" y="{y + 2}" width="{_STEP - 2}" height="{_LANE - 4}" fill="{_COLORS[what]}"/>'
                )
                parts.append(_text(x + _STEP // 2, y + 17, mark, "white" if what == "prefill" else "#222"))
    y = _TOP + _LANE * len(_ROWS)
    parts.append(_text(_LEFT - 8, y + 17, "KV blocks in use, of 20", "#222", anchor="end"))
    parts += [
        _text(_LEFT + _STEP * column + _STEP // 2, y + 17, f"{step.kv_used_blocks}", "#666")
        for column, step in enumerate(steps)
    ]
    parts += _legend(y + _LANE + 12)
    return "\n".join((*parts, "</svg>", ""))


def _lane(name: str, arrival_us: int, steps: Iterable[StepFinished]) -> list[tuple[str, str]]:
    """What happens to a request in each step, with its label."""
    found: list[tuple[str, str]] = []
    running = prefilled = done = False
    for step in steps:
        chunk = next((one for one in step.chunks if one.request_id == name), None)
        lost = name in step.preempted
        running = (running and not lost) or name in step.admitted
        prefilled = prefilled and not lost
        if done or step.time_us < arrival_us:
            found.append(("", ""))
        elif not running:
            found.append(("waiting", "✕" if lost else ""))
        elif chunk is not None:
            found.append(("prefill", f"{chunk.new_tokens}"))
        elif prefilled and step.decode_requests and name not in step.stalled:
            found.append(("decode", "1"))
        else:
            found.append(("stalled", ""))
        if chunk is not None and chunk.computed_tokens + chunk.new_tokens >= _target(name):
            prefilled = True
        done = done or name in step.completed
    return found


def _target(name: str) -> int:
    return next(prompt for row, _, prompt, _ in _ROWS if row == name)


def _legend(y: int) -> list[str]:
    parts: list[str] = []
    x = _LEFT
    for what, words in _WORDS.items():
        parts.append(f'<rect x="{x}" y="{y}" width="14" height="12" fill="{_COLORS[what]}"/>')
        parts.append(_text(x + 20, y + 10, words, "#222", anchor="start"))
        x += 40 + 6 * len(words)
    parts.append(_text(x, y + 10, "✕ preempted", "#222", anchor="start"))
    return parts


def _text(x: int, y: int, words: str, color: str, size: int = 11, *, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" fill="{color}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'


def pictures() -> dict[str, str]:
    """All pictures, by the names of their files."""
    return {f"steps-{rule}.svg": picture(steps_of(rule)) for rule in RULES}


def page(text: str) -> str:
    """The page with up-to-date tables of versions and defaults."""
    for (begin, end), table in (((_BEGIN, _END), _versions()), (_DEFAULTS, f"{_rows()}\n\n{_by_gpu()}")):
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def _rows() -> str:
    """The rules of defaults, with their sources."""
    lines = ["| engine | limit left out | its value | on GPUs | source |", "|---|---|--:|---|---|"]
    seen: set[tuple[str, str]] = set()
    for row in DEFAULTS:
        for key, value in row.values.items():
            engine = f"`{row.engine}`" if row.engine else "`blis`, others"
            if row.versions:
                engine += f" {', '.join(row.versions)}"
            elif row.engine == "vllm-v1":
                engine += f" {OLD}"
            on = row.condition() or ("others" if (row.source, key) in seen else "all")
            seen.add((row.source, key))
            lines.append(f"| {engine} | `{key}` | {value_text(key, value)} | {on} | {row.source} |")
    return "\n".join(lines)


def _by_gpu() -> str:
    """The defaults of each shipped GPU, one per instance."""
    lines = [
        f"| GPU | GiB | {' | '.join(f'{name}: tokens, requests, share' for name in _ENGINES)} |",
        f"|---|--:|{'---|' * len(_ENGINES)}",
    ]
    for name in names("Hardware"):
        texts: list[str] = []
        for kind, version in _ENGINES.values():
            batching = {"kind": kind, "version": version}
            settings = {"model": _SMALL, "hardware": name, "policy.batching": batching, "expect": []}
            pool = blis_tui.load("quickstart", set=settings).pools[0]
            engine, memory_gib = pool.engine, pool.hardware.memory_gib
            seqs = f"{engine.max_num_seqs:,}" if kind != "sglang" else "by KV cache"
            texts.append(f"{engine.max_num_batched_tokens:,}, {seqs}, {engine.gpu_memory_utilization:g}")
        lines.append(f"| `{name}` | {memory_gib:g} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _versions() -> str:
    lines = ["| rule | engine | versions | compared with it by |", "|---|---|---|---|"]
    for kind, (engine, versions) in SIMULATED.items():
        lines.append(f"| `{kind}` | {engine} | {', '.join(versions)} | {COMPARED[kind]} |")
    marks = {True: "yes", False: ""}
    lines += ["", f"| rule or setting of `vllm-v1` | {' | '.join(VERSIONS)} |", f"|---|{'---|' * len(VERSIONS)}"]
    named = {f"{name}: {MEANINGS[name]}": only for name, only in RULES_OF_VERSIONS.items()}
    settings = {f"the setting `{name}`{NOTES.get(name, '')}": only for name, only in ONLY_IN.items()}
    for name, only in {**named, **settings}.items():
        lines.append(f"| {name} | {' | '.join(marks[version in only] for version in VERSIONS)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    made = pictures()
    write_tree(IMAGES, made, replace=True)
    sys.stderr.write(f"drew {len(made)} pictures in {IMAGES}\n")
