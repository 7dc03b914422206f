"""The terms of screens, reports and documents."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from blis_tui.spec.authoring.glossary import WORDS
from blis_tui.spec.authoring.key_tree import root
from blis_tui.spec.authoring.report_figures import figures_at
from blis_tui.spec.schema import KINDS
from blis_tui.spec.subjects import subjects

# What people who come from vLLM, SGLang or papers about serving ask for.
ASKED = (
    "MLA|GQA|MoE|mixture of experts|expert parallelism|EP|data-parallel attention|DP attention|all-to-all"
    "|DeepEP|MTP|EAGLE|CUDA graph|front end|API server|chunked prefill|prefix caching|preemption"
    "|preemption by swapping|swapping|radix tree|retraction|goodput|knee|roofline|disaggregation|PD"
    "|watermark|chat template|session|think time|tensor parallelism|TP|PP|pipeline bubble"
    "|speculative decoding|acceptance rate|LoRA|KV transfer|KV tier|offloading|closed loop|open loop"
    "|warm-up|horizon|continuous batching|paged attention|asynchronous scheduling|hit rate|MFU"
    "|step-time model|invariant|head-of-line blocking|Jain's index|victim|reasoning|KV cache"
)


@pytest.mark.parametrize("name", ASKED.split("|"))
def test_a_term_of_the_field_is_explained(name: str) -> None:
    assert ": a term" in subjects(name)[0].text


@pytest.mark.parametrize("asked", ["INV-4", "inv-4", "KV cache conservation"])
def test_an_invariant_is_explained_by_identifier_or_name(asked: str) -> None:
    (subject,) = subjects(asked)
    assert subject.text.startswith("INV-4: an invariant, KV cache conservation\n\nUsed and free KV blocks add up")


def test_a_name_is_that_of_one_term() -> None:
    counts = Counter(name for word in WORDS for name in {word.name.lower(), *word.also})
    assert [name for name, times in counts.items() if times > 1 or not name] == []
    assert [name for name in counts if name != name.lower()] == []


def test_keys_and_figures_that_meanings_name_exist() -> None:
    keys = {key.dotted for kind in KINDS for key in root(kind).walk()} | set(root("Experiment").children)
    named = {name for word in WORDS for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", word.meaning)}
    assert len(named) >= 15
    assert {name for name in named if name not in keys and not figures_at(name)} == set()
