"""Names with terminal control sequences, in every place where a document accepts free text."""

from __future__ import annotations

import json
from typing import Final

from blis_tui.base.text import control_characters

EVIL: Final = (
    "\x1b]0;pwned\x07"  # sets the title of the window
    "\x1b[31m\x9b31m"  # colours, in both ways to write them
    "\r\b\x7f"  # overwrites what is there
    "\u202e\u2066\u200f\u200b"  # reverses or hides what follows
    "\u2028\x85\x0b\x1c"  # ends a line, for some programs
    "\nFORGED"  # begins one
)
TIER: Final = "tier" + EVIL[:3] + EVIL[-14:]  # 40 characters at most


def quoted(name: str) -> str:
    """The whole name as YAML and JSON write it."""
    return json.dumps(name + EVIL)


SPEC: Final = f"""\
apiVersion: blis/v1
kind: Experiment
metadata: {{name: evil, description: {quoted("about")}}}
model: llama-3.1-8b-instruct
hardware: h100
latency: {{kind: blackbox, alpha: [0, 0, 0], beta: [5000, 20, 30]}}
workload:
  rate_per_s: 400
  requests: 60
  clients:
    - id: {quoted("client")}
      tenant: {quoted("tenant")}
      prefix: {{group: {quoted("group")}, tokens: 64}}
      adapters: {{names: [{quoted("adapter")}, {quoted("another")}]}}
      input_tokens: 200
      output_tokens: 40
    - {{id: plain, tenant: other, input_tokens: 200, output_tokens: 40}}
policy: vllm-v1
cluster: {{instances: 2}}
engine:
  kv_blocks: 60
  lora: {{max_loras: 1}}
  kv_tiers: {{kind: offload, tiers: [{{name: {json.dumps(TIER)}, blocks: 64, bandwidth_tokens_per_us: 0.4}}]}}
expect:
  - {{metric: requests.completed, equals: {quoted("wish")}}}
cases:
  one: {{}}
"""


def require_harmless(printed: str, names: str) -> None:
    """Assert that the output has all of these names, but no control sequences or forged lines."""
    assert "Traceback" not in printed
    assert [name for name in names.split() if name not in printed] == []
    assert control_characters().findall(printed.replace("\n", "")) == []
    assert [line for line in printed.splitlines() if line.lstrip().startswith("FORGED")] == []
