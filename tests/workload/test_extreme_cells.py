"""Every number of a trace replaced by extreme ones: it is read, or is one error with a line and a hint."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.base.errors import TraceError
from blis_tui.model import Trace
from blis_tui.spec.shipped import builtin
from blis_tui.workload.traces.read import read_trace
from tests.workload.test_trace_formats import BURST, EPOCH, V2_COLUMNS, export, mooncake, span, v2
from tests.workload.test_traces import AZURE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FULL: Final = (
    "arrival_time_us,input_tokens,output_tokens,max_output_tokens,prefix_length,prefix_group,deadline_us,round_index,"
    "reason_ratio,image_tokens\n0,100,10,12,3,g,500,0,0.5,7\n5,100,10,12,3,g,500,1,0.5,7\n"
)
V2: Final = (",".join(V2_COLUMNS), v2(input_tokens=10, output_tokens=3), v2(request_id=1, input_tokens=5))
VALID: Final = {
    "requests": FULL,
    "azure": AZURE,
    "burstgpt": BURST,
    "tracev2": "\n".join(V2),
    "mooncake": mooncake((0, 1500, [1, 2, 3]), (27, 1600, [1, 2, 4, 5])),
    "vllm-bench": json.dumps({"start_times": [5.5, 5.75], "input_lens": [10, 20], "output_lens": [3, 4]}),
    "otel": json.dumps(export(span(EPOCH, 10, 3), span(EPOCH + 5_000_000, 10, 3))),
}
EXTREMES: Final = (
    *("0", "-1", "0.5", "1e9", "1e308", "1e400", "-1e400", "NaN", "Infinity", str(2**53 + 1), str(2**64)),
    *("1" + "0" * 400, "-1" + "0" * 400, "1" + "0" * 5000, "0." + "0" * 400 + "1", "1e-400", "true", '""', "null"),
)
NUMBER: Final = re.compile(r"(?<![\w.])-?[0-9]+(?:\.[0-9]+)?(?![\w.])")
MOST: Final = 24


def mutations(text: str) -> Iterator[str]:
    """The text with each of its first numbers replaced by each of the extremes."""
    for match in list(NUMBER.finditer(text))[:MOST]:
        for extreme in EXTREMES:
            yield text[: match.start()] + extreme + text[match.end() :]


def error_of(path: Path, form: str) -> TraceError | None:
    """What reading the trace complains about; any other exception escapes."""
    try:
        read_trace(Trace(path=str(path), format=form, sha256=""), builtin())
    except TraceError as error:
        return error
    return None


@pytest.mark.parametrize("form", VALID)
def test_extreme_numbers_are_read_or_told(form: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(VALID[form], encoding="utf-8")
    assert error_of(path, form) is None
    errors = 0
    for text in mutations(VALID[form]):
        path.write_text(text, encoding="utf-8")
        error = error_of(path, form)
        errors += error is not None
        assert error is None or (error.help and all(problem.line for problem in error.problems)), text[:300]
    assert errors > len(EXTREMES)
