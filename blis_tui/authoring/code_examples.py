"""For every code of a diagnostic, the smallest mistake that causes it. A test makes each of them.

An example is the part of a small experiment that is wrong; the keys it does not mention are sound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOUND: Final[Mapping[str, str]] = MappingProxyType(
    {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": "{name: example}",
        "model": "llama-3.1-8b-instruct",
        "hardware": "h100",
        "workload": "chatbot",
    }
)


@dataclass(frozen=True, slots=True)
class Example:
    """A mistake: lines of an experiment that are wrong, or a whole text, or an argument of ``--set``."""

    wrong: str = ""
    """Top-level lines that join, or replace, those of a sound experiment."""
    whole: str | None = None
    """The whole text instead; half surrogates stand for bytes that are no text."""
    shown: str | None = None
    """What to show where the text itself cannot be: too large, or invisible."""
    overrides: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Other files beside it."""

    @property
    def text(self) -> str:
        """The whole document."""
        if self.whole is not None:
            return self.whole
        said = {line.partition(":")[0] for line in self.wrong.splitlines() if line[:1].isalpha()}
        kept = [f"{key}: {value}" for key, value in _SOUND.items() if key not in said]
        return "\n".join([*kept, self.wrong.strip("\n"), ""])


def _clients(*lengths: str) -> str:
    """A generated workload with these keys of its one client."""
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
    "BLIS1003": Example('engine: {max_num_seqs: "64"}'),
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
    "BLIS2010": Example(_clients('input_tokens: {kind: empirical, weights: {"10": 0, "20": 0}}', _OUTPUT)),
    "BLIS2011": Example("latency: {kind: blackbox}\ncluster: {tensor_parallel: 32}"),
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
    "BLIS2019": Example("policy: {batching: {kind: vllm-v1, enable_chunked_prefill: false}}"),
    "BLIS2020": Example(
        _clients(_INPUT, _OUTPUT, "prefix: {group: system, tokens: 2000000}")
        + "\nengine: {block_size_tokens: 1, kv_blocks: 3000000, max_model_len: none}"
    ),
    "BLIS2100": Example(
        "workload: {trace: {file: requests.csv}}", files={"requests.csv": _ROWS.replace("100", "-100")}
    ),
}

EXAMPLES: Final[Mapping[str, Example]] = MappingProxyType(_TABLE)
"""Code -> a mistake that causes it. Codes that only guard against the unforeseen have none."""
