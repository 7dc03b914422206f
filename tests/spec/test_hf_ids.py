"""Hugging Face ids as names of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import SpecError
from blis_tui.spec.library import find_by_id, is_id, names
from blis_tui.spec.load import load
from blis_tui.spec.read import read_document
from blis_tui.spec.shipped import shipped_specs

if TYPE_CHECKING:
    from pathlib import Path

MODELS = shipped_specs() / "models"


def experiment(folder: Path, model: str) -> Path:
    path = folder / "mine.blis.yaml"
    path.write_text(
        f"apiVersion: blis/v1\nkind: Experiment\nmetadata: {{name: mine}}\nmodel: {model}\n"
        "hardware: b200\nworkload: chatbot\ncluster: {tensor_parallel: 8}\n"
    )
    return path


def problem(path: Path) -> tuple[str, str]:
    with pytest.raises(SpecError) as caught:
        load(path)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["BLIS2001"]
    return caught.value.diagnostics[0].message, caught.value.diagnostics[0].help or ""


def test_every_shipped_model_lists_ids_of_its_own_and_is_found_by_them_in_any_case() -> None:
    seen: list[str] = []
    for name in names("Model", shipped_specs()):
        path = MODELS / f"{name}.yaml"
        listed = read_document(path).get("huggingface_ids")
        assert isinstance(listed, list)
        assert listed
        for one in map(str, listed):
            assert is_id(one)
            assert find_by_id(one) == find_by_id(one.upper()) == find_by_id(one.lower()) == path
            seen.append(one.lower())
    assert len(seen) == len(set(seen))


def test_an_id_means_the_same_experiment_as_the_name(tmp_path: Path) -> None:
    by_id = load(experiment(tmp_path, "meta-llama/Meta-Llama-3.1-8B-Instruct"))
    assert by_id.sha256 == load(experiment(tmp_path, "llama-3.1-8b-instruct")).sha256
    assert by_id.sha256 == load(tmp_path / "mine.blis.yaml", overrides=["model=meta-llama/llama-3.1-8b"]).sha256


def test_a_file_goes_before_an_id(tmp_path: Path) -> None:
    path = experiment(tmp_path, "Qwen/Qwen3-14B")
    assert load(path).pools[0].model.name == "qwen3-14b"
    (tmp_path / "Qwen").mkdir()
    text = (MODELS / "qwen3-30b-a3b.yaml").read_text(encoding="utf-8")
    (tmp_path / "Qwen" / "Qwen3-14B").write_text(text.replace("name: qwen3-30b-a3b", "name: tuned"))
    assert load(path, overrides=["cluster.tensor_parallel=1"]).pools[0].model.name == "tuned"


def test_own_models_are_found_by_their_ids(tmp_path: Path) -> None:
    own = tmp_path / "specs" / "models"
    own.mkdir(parents=True)
    text = (MODELS / "qwen3-14b.yaml").read_text(encoding="utf-8")
    (own / "tuned.yaml").write_text(text.replace("Qwen/Qwen3-14B", "acme/Tuned-14B").replace("qwen3-14b", "tuned"))
    (own / "broken.yaml").write_text("{")
    assert load(experiment(tmp_path, "ACME/tuned-14b")).pools[0].model.name == "tuned"


@pytest.mark.parametrize(
    ("model", "start"),
    [
        (
            "Qwen/Qwen3-9B",
            "similar ones are `qwen3-8b`; to add it: `blis-tui spec import model config.json",
        ),
        ("unsloth/Llama-3.1-8B-Instruct", "did you mean `llama-3.1-8b-instruct`?"),
        ("acme/none", "to add it: `blis-tui spec import model config.json --name none -o specs/models/none.yaml`"),
    ],
)
def test_unknown_ids_say_what_is_near_and_how_to_add_them(model: str, start: str, tmp_path: Path) -> None:
    message, hint = problem(experiment(tmp_path, model))
    assert message == f"no model has the Hugging Face id `{model}`, and no file has this path"
    assert hint.startswith(start)


@pytest.mark.parametrize("text", ["./Qwen/Qwen3-14B", "a/b/c", "dir/model.yaml", "/a/b", "a", "x" * 300 + "/y", "../a"])
def test_what_is_no_id(text: str) -> None:
    assert not is_id(text)
