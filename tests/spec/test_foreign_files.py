"""A document of somebody else may name any file: errors say what is wrong, and quote nothing of what is no document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.api import run
from blis_tui.base.errors import BlisError
from blis_tui.base.input_files import input_digest
from blis_tui.base.source import Source
from blis_tui.spec.load import load
from blis_tui.spec.read import parse
from blis_tui.spec.study.document import read_study
from blis_tui.spec.validate import validate

if TYPE_CHECKING:
    from pathlib import Path

SECRET: Final = "hunter2"  # noqa: S105  (nobody's)
FILES: Final = {
    "passwd": f"root:{SECRET}:0:0:root:/root:/bin/bash\nmail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n",
    "key.pem": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
    "credentials.ini": f"[default]\naws_secret_access_key = {SECRET}\npassword: {SECRET}\n",
    ".env": f"export TOKEN={SECRET} 'unclosed\n",
    "auths.json": f'{{"auths": {{"registry": {{"auth": "{SECRET}"}}}}, "{SECRET}": ["{SECRET}"]}}',
    "kubeconfig": f"apiVersion: v1\nkind: Config\nusers: [{{name: {SECRET}, user: {{token: {SECRET}}}}}]\n",
    "list.yaml": f"- {SECRET}\n- password: {SECRET}\n",
    "lines.json": f'{{"{SECRET}": "{SECRET}"}}\n{{"{SECRET}": "{SECRET}"}}\n',
    "secrets.csv": f"user,password\nroot,{SECRET}\n",
    "one.csv": f"{SECRET}\n",
    "latin.txt": f"caf\xe9 {SECRET}\n",
}
HEAD: Final = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: theirs}\n"
REST: Final = {
    "model": "llama-3.1-8b-instruct",
    "hardware": "h100",
    "workload": "{requests: 2, rate_per_s: 1, clients: [{id: c, input_tokens: 10, output_tokens: 2}]}",
    "policy": "default",
}
TRACE: Final = "{trace: {file: ./FILE, format: FORMAT}}"
PLACES: Final = {
    "extends": "extends: ./FILE",
    "model": "model: ./FILE",
    "hardware": "hardware: ./FILE",
    "policy": "policy: ./FILE",
    "config_file": "model: {apiVersion: blis/v1, kind: Model, metadata: {name: m}, config_file: ./FILE}",
    "workload": "workload: ./FILE",
    "workload.trace": "workload: {trace: {file: ./FILE}}",
    "columns": "workload: {trace: {file: ./FILE, columns: {arrival: a, input_tokens: b, output_tokens: c}}}",
    "sha256": f"workload: {{trace: {{file: ./FILE, sha256: {'0' * 64}}}}}",
    "latency": "latency: {kind: operators, tables: ./FILE}",
    "pool": "cluster: {pools: [{name: p, instances: 1, model: ./FILE}]}",
    **{
        f"trace {one}": f"workload: {TRACE.replace('FORMAT', one)}" for one in ("azure", "burstgpt", "mooncake", "otel")
    },
    **{f"trace {one}": f"workload: {TRACE.replace('FORMAT', one)}" for one in ("sharegpt", "tracev2", "vllm-bench")},
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_quoted_of_a_file_that_is_something_else(place: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name].encode("latin-1"))
    line = PLACES[place].replace("FILE", name)
    given = "\n".join(f"{key}: {value}" for key, value in REST.items() if not line.startswith(f"{key}:"))
    spec = tmp_path / "theirs.blis.yaml"
    spec.write_text(f"{HEAD}{line}\n{given}\n", encoding="utf-8")
    for use in (validate, lambda source: run(load(source))):
        with pytest.raises(BlisError) as caught:
            use(str(spec))
        text = str(caught.value)
        assert SECRET not in text
        assert name in text


def test_a_study_names_files_too(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content.encode("latin-1"))
        text = (
            f"apiVersion: blis/v1\nkind: Study\nmetadata: {{name: s}}\nexperiment: ./{name}\naxes: {{seed: [1, 2]}}\n"
        )
        with pytest.raises(BlisError, match=name) as caught:
            read_study(parse(Source("s.study.yaml", text, tmp_path)))
        assert SECRET not in str(caught.value)


def test_columns_that_look_like_those_of_a_trace_are_quoted_for_advice(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("when it arrived,prompt size,words\n0,1,1\n", encoding="utf-8")
    spec = tmp_path / "mine.blis.yaml"
    rest = "model: llama-3.1-8b-instruct\nhardware: h100\npolicy: default"
    spec.write_text(f"{HEAD}workload: {{trace: {{file: mine.csv}}}}\n{rest}\n", encoding="utf-8")
    with pytest.raises(BlisError, match="unknown columns: 'when it arrived', 'words'"):
        validate(str(spec))


def test_a_document_with_mistakes_is_quoted_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: Policy\nroutng: round-robin\n", encoding="utf-8")
    (tmp_path / "cut.yaml").write_text("apiVersion: blis/v1\nkind: Policy\nrouting: {]\n", encoding="utf-8")
    for name, line in (("mine.yaml", "routng: round-robin"), ("cut.yaml", "routing: {]")):
        spec = tmp_path / "spec.blis.yaml"
        spec.write_text(
            f"{HEAD}model: llama-3.1-8b-instruct\nhardware: h100\nworkload: {REST['workload']}\npolicy: ./{name}\n",
            encoding="utf-8",
        )
        with pytest.raises(BlisError) as caught:
            load(str(spec))
        assert line in str(caught.value)


@pytest.mark.parametrize("where", ["absolute", "../outside.csv", "inside/link.csv"])
def test_a_digest_is_told_only_of_what_lies_beside_the_document(where: str, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    (folder / "inside").mkdir(parents=True)
    for path in (tmp_path / "outside.csv", folder / "inside" / "trace.csv"):
        path.write_text("arrival_us,input_tokens,output_tokens\n0,10,5\n", encoding="utf-8")
    (folder / "inside" / "link.csv").symlink_to(tmp_path / "outside.csv")
    digest = input_digest(tmp_path / "outside.csv", limit=1000)
    spec = folder / "theirs.blis.yaml"

    def error_text(file: str, *overrides: str) -> str:
        trace = f"{{trace: {{file: {file}, format: requests, sha256: {'f' * 64}}}}}"
        rest = "model: llama-3.1-8b-instruct\nhardware: h100\npolicy: default"
        spec.write_text(f"{HEAD}workload: {trace}\n{rest}\n", encoding="utf-8")
        with pytest.raises(BlisError, match="does not match its `sha256`") as caught:
            load(str(spec), overrides=overrides)
        return str(caught.value)

    file = str(tmp_path / "outside.csv") if where == "absolute" else where
    assert digest not in error_text(file)
    assert digest in error_text("inside/trace.csv")
    assert digest in error_text("inside/trace.csv", f"workload.trace.file={tmp_path / 'outside.csv'}"), (
        "a user names it"
    )
