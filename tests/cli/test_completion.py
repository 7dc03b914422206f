"""What TAB offers: names, files, keys, words and metrics, as each function of completion says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from blis_tui.cli import completion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from click.shell_completion import CompletionItem


def offered(
    function: Callable[[click.Context, click.Parameter, str], Sequence[CompletionItem]], begun: str, **given: str
) -> list[str]:
    context = click.Context(click.Command("x"))
    context.params.update(given)
    return [
        "FILE" if completion_item.type == "file" else str(completion_item.value)
        for completion_item in function(context, click.Option(["--x"]), begun)
    ]


@pytest.mark.parametrize("function", [completion.experiments, completion.studies, completion.documents])
@pytest.mark.parametrize("begun", ["./quick", "specs/quick", ".", "/", "quick/start"])
def test_a_path_is_completed_with_files_alone(
    function: Callable[[click.Context, click.Parameter, str], Sequence[CompletionItem]], begun: str
) -> None:
    assert offered(function, begun) == ["FILE"]


@pytest.mark.parametrize(
    ("name", "begun", "kind", "words"),
    [
        ("experiments", "quickst", "", ["FILE", "quickstart"]),
        ("experiments", "order-and", "", ["FILE"]),
        ("studies", "order-and", "", ["FILE", "order-and-load"]),
        ("studies", "quickst", "", ["FILE", "quickstart"]),
        ("documents", "unfair", "", ["FILE", "unfair-tenants"]),
        ("documents", "qwen3-14", "", ["FILE", "qwen3-14b", "qwen3-14b-fp8"]),
        ("documents", "qwen3-14", "model", ["FILE", "qwen3-14b", "qwen3-14b-fp8"]),
        ("documents", "qwen3-14", "workload", ["FILE"]),
        ("files", "anything", "", ["FILE"]),
        ("assignments", "engine.max_num_se", "", ["engine.max_num_seqs="]),
        ("assignments", "latency.kind=roofline-", "", ["latency.kind=roofline-phases"]),
        ("assignments", "engine.enable_prefix_caching=", "", ["true", "false"]),
        ("assignments", "hardware=h20", "", ["hardware=h20", "hardware=h200"]),
        ("assignments", "engine.nonsense=", "", []),
        ("metrics", "latency.ttft_ms.p9", "", [f"latency.ttft_ms.p{p}" for p in (90, 95, 99)]),
        ("metrics", "min:cost.gpu", "", ["min:cost.gpus"]),
        ("keys", "engine.max_num_se", "", ["engine.max_num_seqs"]),
        ("keys", "Wor", "", ["Workload."]),
        ("subjects", "blis2100", "", ["BLIS2100"]),
        ("subjects", "BLIS2100", "", ["BLIS2100"]),
        ("subjects", "BLIS2100", "study", []),
        ("subjects", "engine.max_num_se", "model", ["engine.max_num_seqs"]),
    ],
)
def test_what_is_offered(name: str, begun: str, kind: str, words: list[str]) -> None:
    found = offered(getattr(completion, name), begun, **({"kind": kind} if kind else {}))
    short = [one.rpartition("=")[2] if one.endswith(("=true", "=false")) else one for one in found]
    assert [one for one in short if not one.startswith(("min:cost.gpu_", "cost.gpu_"))] == words


def test_names_of_ones_own_are_offered_and_no_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "specs" / "experiments"
    folder.mkdir(parents=True)
    for name in ("mine", "mine\x1b", "other"):
        (folder / f"{name}.blis.yaml").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert offered(completion.experiments, "mine") == ["FILE", "mine"]
