"""Which format a trace has, by words that stand in the files of one tool only."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from blis_tui.inputs import MAX_TRACE_BYTES, open_input
from blis_tui.workload.traces import TRACES

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.registry import Registry

OTHERWISE: Final = "requests"
_LOOKED_AT: Final = 64 * 1024
_GZIP: Final = b"\x1f\x8b"
_WORDS: Final = (
    ("mooncake", b"{", (b'"hash_ids"',)),
    ("otel", b"{[", (b'"resourceSpans"', b'"gen_ai.')),
    ("sharegpt", b"{[", (b'"conversations"',)),
    ("vllm-bench", b"{", (b'"request_throughput"', b'"input_lens"')),
    ("burstgpt", b"", (b"Request tokens",)),
    ("azure", b"", (b"ContextTokens",)),
    ("tracev2", b"", (b"last_chunk_time_us",)),
)
"""Format, what its files begin with (empty = a letter), and words of which one is at their beginning."""


def format_of(path: Path, plugins: Registry) -> str:
    """The format of a file; ``requests``, whose reader says what it misses, where nothing tells.

    Raises:
        InputError: the file cannot be read.
    """
    known = [plugin.name for plugin in plugins.of(TRACES.path)]
    with open_input(path, limit=MAX_TRACE_BYTES) as file:
        head = file.read(_LOOKED_AT)
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _LOOKED_AT)
        except zlib.error:
            return OTHERWISE  # its reader will say what is wrong
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    line = head if start in (b"{", b"[") else head.partition(b"\n")[0]
    for name, begins, words in _WORDS:
        fits = start in [bytes([one]) for one in begins] if begins else start.isalpha()
        if fits and name in known and any(word in line for word in words):
            return name
    return OTHERWISE
