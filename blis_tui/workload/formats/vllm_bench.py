"""Results of ``vllm bench serve --save-result --save-detailed``: one JSON object with a list for each figure.

Source: https://github.com/vllm-project/vllm (``vllm/benchmarks/serve.py``). ``start_times`` are seconds of a clock with
an arbitrary start; a failed request has a non-empty entry in ``errors``.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from blis_tui.workload.traces.read import TRACES
from blis_tui.workload.traces.trace_rows import brief, count_of, csv_only, json_document
from blis_tui.workload.traces.trace_table import LeftOut, TraceColumns, omissions
from blis_tui.workload.traces.trace_text import LARGEST_NUMBER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.model import Trace
    from blis_tui.model.plug_ins import NoSettings
    from blis_tui.workload.traces.trace_text import Problems, TraceText

_LISTS: Final = ("start_times", "input_lens", "output_lens")
_ADVICE: Final = "`vllm bench serve --save-result --save-detailed` writes it"
_US_PER_S: Final = 1_000_000
_MOST_PER_S: Final = 10**6


@TRACES.plugin(
    "vllm-bench", "The result of `vllm bench serve --save-detailed`: JSON with start_times, input_lens, output_lens."
)
def vllm_bench(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """Arrivals count from the first request; failed requests are left out. Without times it needs ``rate_per_s``."""
    csv_only(trace, problems)
    document = json_document(text)
    if not isinstance(document, dict):
        problems.fail(1, "", f"the file is {brief(document)}, not an object", _ADVICE)
    prompts, outputs = (_list(document.get(name), name, problems) for name in _LISTS[1:])
    timed = "start_times" in document
    if not timed and trace.rate_per_s is None and prompts:
        message = "there is no list `start_times`, so the file does not say when requests arrived"
        rate = document.get("request_throughput")
        example = f"{rate:.4g}" if isinstance(rate, float) and 0.0 < rate < _MOST_PER_S else "2"
        problems.fail(1, "", message, f"add under `trace:` how many arrive in a second: `rate_per_s: {example}`")
    starts = _list(document.get("start_times"), "start_times", problems) if timed else [0.0] * len(prompts)
    problems.check()
    errors = document.get("errors")
    failed = errors if isinstance(errors, list) else [""] * len(starts)
    for name, column in zip((*_LISTS, "errors"), (starts, prompts, outputs, failed), strict=True):
        if len(column) != len(starts):
            problems.fail(1, name, f"its length is {len(column):,}, that of `start_times` {len(starts):,}", _ADVICE)
    times: list[float] = []
    inputs, answers = array("q"), array("q")
    left_out = 0
    for number, (start, prompt, output, error) in enumerate(zip(starts, prompts, outputs, failed, strict=True)):
        if error:
            left_out += 1
            continue
        time = _time(start, f"start_times[{number}]", problems)
        tokens = count_of(prompt, 1, f"input_lens[{number}]", problems, least=1)
        answer = count_of(output, 1, f"output_lens[{number}]", problems)
        if time is not None and tokens is not None and answer is not None:
            times.append(time)
            inputs.append(tokens)
            answers.append(answer)
        if len(times) == trace.limit:
            break
    problems.check()
    if not times:
        message = "no request of the benchmark has succeeded"
        problems.fail(1, "", message, "it has no answers that could be replayed")
    first = min(times)
    arrivals = array("q", (round((time - first) * _US_PER_S) for time in times)) if timed else None
    failures = omissions(LeftOut(left_out, "request", "that failed"))
    return TraceColumns(arrival_us=arrivals, input_tokens=inputs, output_tokens=answers, left_out=failures)


def _list(value: object, name: str, problems: Problems) -> Sequence[object]:
    if isinstance(value, list):
        return value
    problems.add(1, name, f"there is no list `{name}`", _ADVICE)
    return ()


def _time(value: object, column: str, problems: Problems) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value * _US_PER_S <= LARGEST_NUMBER:
        problems.add(1, column, f"{brief(value)} is not a time in seconds", _ADVICE, cell=brief(value))
        return None
    return float(value)
