"""The commands that write, format and explain documents, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from blis_tui.cli.main import cli, current_arguments
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.spec.authoring.explain import values
from blis_tui.spec.load import load
from blis_tui.spec.schema import KINDS
from blis_tui.spec.shipped import SHIPPED
from blis_tui.spec.subjects import subjects
from tests.prefork import run_module

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

COMMAND = [sys.executable, "-m", "blis_tui"]
UNTIDY = "kind: Policy # what\napiVersion: 'blis/v1'\nmetadata: { name: untidy }\n"
TIDY = "apiVersion: blis/v1\nkind: Policy  # what\nmetadata: {name: untidy}\n"


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def blis(*arguments: str, text: str | None = None) -> Result:
    result = CliRunner().invoke(cli, arguments, input=text, prog_name="blis-tui")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_module("blis_tui", arguments, cwd=cwd or Path.cwd(), env=os.environ)


# new


@pytest.mark.parametrize("kind", [kind.lower() for kind in KINDS])
def test_a_new_document_is_valid(kind: str) -> None:
    done = blis("spec", "new", kind)
    name = f"my-{kind}{ {'experiment': '.blis', 'study': '.study'}.get(kind, '') }.yaml"
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"wrote {name}" in done.stderr
    assert "spec schema -o schemas" in done.stderr
    assert blis("check", name).exit_code == 0
    again = blis("spec", "new", kind)
    assert again.exit_code == ExitCode.IO
    assert "exists already" in again.stderr
    assert "--force" in again.stderr
    assert blis("spec", "new", kind, "--force").exit_code == 0


def test_new_documents_use_the_schemas_of_the_project() -> None:
    assert blis("spec", "schema", "-o", "schemas").exit_code == 0
    done = blis("spec", "new", "policy", "mine", "-o", "house.yaml")
    assert done.stderr == "wrote house.yaml\n"
    assert Path("house.yaml").read_text().startswith("# yaml-language-server: $schema=schemas/policy.schema.json\n")
    assert "name: mine" in blis("spec", "new", "policy", "mine", "-o", "-").stdout


def test_new_refuses_names_and_places_that_are_impossible() -> None:
    assert blis("spec", "new", "policy", "My Policy").exit_code == ExitCode.USAGE
    lost = blis("spec", "new", "policy", "-o", "none/x.yaml")
    assert (lost.exit_code, "cannot write none/x.yaml" in lost.stderr) == (ExitCode.IO, True)
    assert list(Path().iterdir()) == []


# init


def pytest_in(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The project's own tests; on CI only when told so."""
    clean = {name: value for name, value in os.environ.items() if name not in ("CI", "GITHUB_ACTIONS")}
    return run_module("pytest", ["-q", "-p", "no:cacheprovider", *arguments], cwd=project, env=clean | environment)


def test_a_new_project_is_valid_runs_and_passes_its_own_tests(tmp_path: Path) -> None:
    assert process("spec", "init", "demo", cwd=tmp_path).returncode == 0
    project = tmp_path / "demo"
    for command in (["check", "specs"], ["spec", "fmt", "--check", "specs"], ["run", "specs/demo.blis.yaml"]):
        run = process(*command, cwd=project)
        assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout)
    assert report["requests"]["completed"] == 200
    assert all(verdict["ok"] for verdict in report["expectations"])
    once = ("-o", "blis_checks=observers")
    for arguments, environment in (((), {}), (once, {"CI": "1"})):
        first = pytest_in(project, *arguments, **environment)
        assert (first.returncode, "1 passed" in first.stdout) == (0, True), first.stdout
    assert process("golden", "status", cwd=project).returncode == 0
    policy = project / "specs" / "policies" / "house.yaml"
    policy.write_text(policy.read_text().replace("kind: fcfs", "kind: sjf"))
    before = sorted(path.name for path in (project / "golden").iterdir())
    on_ci = pytest_in(project, *once, CI="1")
    assert (on_ci.returncode, "first divergence: event " in on_ci.stdout) == (1, True)
    assert sorted(path.name for path in (project / "golden").iterdir()) == before
    mapped = json.loads((project / ".vscode" / "settings.json").read_text())["yaml.schemas"]
    assert all((project / schema).is_file() for schema in mapped)
    assert stat.S_IMODE(project.stat().st_mode) & 0o055, "others may read it, as any new folder"


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel that a project carries takes long to pack: tests/golden/test_ci.py looks at it."""
    monkeypatch.setattr("blis_tui.spec.authoring.project.own_wheel", lambda: b"wheel")


@pytest.mark.usefixtures("light")
def test_init_writes_all_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "full" / "README.md").write_text("mine, too")
    refused = blis("spec", "init", "full")
    assert (refused.exit_code, "full already has README.md" in refused.stderr) == (ExitCode.IO, True)
    assert sorted(path.name for path in (tmp_path / "full").iterdir()) == ["README.md", "mine.txt"]
    assert (tmp_path / "full" / "README.md").read_text() == "mine, too"
    (tmp_path / "full" / "README.md").unlink()
    (tmp_path / "full" / "specs").write_text("a file where a folder has to be")
    assert blis("spec", "init", "full").exit_code == ExitCode.IO
    assert sorted(path.name for path in (tmp_path / "full").iterdir()) == ["mine.txt", "specs"]
    (tmp_path / "full" / "specs").unlink()
    assert blis("spec", "init", "full").exit_code == 0, "other files are not in the way"
    assert blis("spec", "init", "full", "--force").exit_code == 0
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"
    assert blis("spec", "init", "full/mine.txt").exit_code == ExitCode.IO
    assert [path.name for path in tmp_path.iterdir()] == ["full"], "no temporary folders stay"


@pytest.mark.usefixtures("light")
def test_init_in_the_working_directory() -> None:
    assert blis("spec", "init", ".").exit_code == 0
    assert blis("check", "specs").exit_code == 0


# show and resolve


def test_show_takes_the_experiment_of_several_and_says_so() -> None:
    both = blis("spec", "show", "unfair-tenants")
    assert both.exit_code == 0
    assert "\nkind: Experiment\n" in both.stdout
    assert both.stderr == "note: this is the experiment `unfair-tenants`; --kind workload shows the other one\n"
    workload = blis("spec", "show", "unfair-tenants", "--kind", "workload")
    assert "\nkind: Workload\n" in workload.stdout
    assert workload.stderr == ""


def test_show_prints_every_document_that_is_listed() -> None:
    listed = json.loads(blis("spec", "list", "--format", "json").stdout)
    for name in dict.fromkeys(one["name"] for one in listed):
        kinds = [one["kind"] for one in listed if one["name"] == name]
        shown = blis("spec", "show", name)
        assert shown.exit_code == 0, name
        assert f"\nkind: {kinds[0]}\n" in shown.stdout
        assert shown.stderr.count("note: ") == len(kinds) - 1


def test_resolve_prints_an_experiment_that_is_the_same() -> None:
    arguments = ("trace-replay", "--set", "cluster.instances=2", "--seed", "5")
    done = blis("spec", "resolve", *arguments)
    assert done.exit_code == 0
    report = json.loads(process("run", *arguments).stdout)
    assert f"# spec_sha256: {report['meta']['spec_sha256']}" in done.stdout
    Path("resolved.blis.yaml").write_text(done.stdout)
    assert json.loads(process("run", "resolved.blis.yaml").stdout) == report
    assert blis("spec", "resolve", "-", text=done.stdout).exit_code == 0
    data = json.loads(blis("spec", "resolve", *arguments, "--format", "json").stdout)
    assert data["spec_sha256"] == report["meta"]["spec_sha256"]
    assert data["origins"]["seed"] == "--seed"
    assert data["document"]["cluster"]["instances"] == 2
    assert blis("spec", "resolve", *arguments, "-o", "there.blis.yaml").exit_code == 0
    assert load("./there.blis.yaml").sha256 == data["spec_sha256"]


def test_resolve_says_what_is_wrong() -> None:
    assert blis("spec", "resolve", "quickstrat").exit_code == ExitCode.IO
    wrong = blis("spec", "resolve", "quickstart", "--set", "cluster.instance=2")
    assert (wrong.exit_code, "BLIS1001" in wrong.stderr, wrong.stdout) == (ExitCode.USAGE, True, "")


# explain


def test_explain_a_key() -> None:
    done = blis("explain", "engine.max_num_seqs")
    assert "Maximum number of requests running at the same time" in done.stdout
    data = json.loads(blis("explain", "engine.max_num_seqs", "--format", "json").stdout)
    assert (data["default"], data["type"]) == ("auto", "whole number or `auto`")
    assert json.loads(blis("explain", "memory_gib", "--kind", "hardware", "--format", "json").stdout)["required"]
    found = blis("explain", "rate").stdout.splitlines()
    assert found[2].split()[0] == "workload.rate_per_s"
    assert json.loads(blis("explain", "rate", "--format", "json").stdout)[0]["path"] == "workload.rate_per_s"
    assert blis("explain", "qps").stdout.startswith("workload.rate_per_s\n")
    assert blis("explain", "zzz").exit_code == ExitCode.USAGE
    unknown = blis("explain", "engine.max_num_seq")
    assert (unknown.exit_code, "did you mean `engine.max_num_seqs`?" in unknown.stderr) == (ExitCode.USAGE, True)


def test_the_tree_of_keys() -> None:
    assert blis("explain", "--kind", "experiment").stdout.startswith("Experiment: ")
    tree = blis("explain", "--kind", "hardware").stdout
    assert "  memory_gib: number GiB required" in tree
    assert len(json.loads(blis("explain", "--kind", "experiment", "--format", "json").stdout)) > 100


def test_values_of_keys_are_explained_with_the_keys_beside_them() -> None:
    assert blis("explain", "vllm-v1").stdout.startswith("vllm-v1: a value of `policy.batching`\n")
    (found, *others) = subjects("gamma")
    assert found.data == {
        "value": "gamma",
        "meaning": "Gamma-distributed gaps.",
        "of": ["workload.clients.arrivals"],
        "keys": ["cv"],
    }
    assert others == []  # the key that takes it has been told
    of = json.loads(blis("explain", "least-loaded", "--format", "json").stdout)["of"]
    assert of == ["policy.routing", *(f"cluster.disaggregation.{one}_routing" for one in ("prefill", "decode"))]
    assert len({subject.text for subject in subjects("auto")}) > 3  # it means something else for each
    assert blis("explain", "0.32").stdout.startswith("0.32: a value of `policy.batching.version`\n")
    assert "nothing is named `7.5`" in blis("explain", "7.5").stderr


def test_every_plug_in_is_explained_where_documents_name_it() -> None:
    lengths = "workload.clients.lengths"  # no key, but what several keys take
    for path, names in SHIPPED.items():
        for name in names:
            assert path == lengths or path in {one for value in values(name) for one in value.paths}, name
            assert values(name)
    index = blis("explain").stdout
    assert all(name in index for names in SHIPPED.values() for name in names)


def test_what_a_table_calls_a_figure_is_explained() -> None:
    assert subjects("ttft_ms.p99") == subjects("latency.ttft_ms.p99")
    for other in ("ttft_p99", "p99_ttft_ms"):  # as other tools say it, before keys with the same words
        assert subjects(other)[0] == subjects("latency.ttft_ms.p99")[0]


def test_records_and_terms_are_explained() -> None:
    done = blis("explain", "preempted").stdout
    assert done.startswith("preempted: a kind of record")
    assert "for_request" in done  # its field
    assert "\npreemption: a term" in done  # of which it is another name
    found = json.loads(blis("explain", "Preempted", "--format", "json").stdout)
    assert [next(iter(one)) for one in found] == ["record", "term"]
    for name in ("ttft_ms", "TTFT", "time to first token"):
        assert blis("explain", name).stdout.startswith("TTFT: a term")
    wrong = blis("explain", "goodputs")
    assert (wrong.exit_code, "did you mean `goodput`" in wrong.stderr) == (ExitCode.USAGE, True)


def test_every_name_that_is_listed_is_explained() -> None:
    listed = json.loads(blis("explain", "--format", "json").stdout)
    assert {next(iter(one)) for one in listed} == {"code", "warning", "record", "term", "value", "figure", "invariant"}
    for one in listed:
        kind, name = next(iter(one.items()))
        if kind != "code":
            assert re.search(
                f"^{re.escape(str(name))}: an? ", "".join(part.text for part in subjects(name)), re.MULTILINE
            )


def test_the_index_names_all_and_fits_a_terminal() -> None:
    text = blis("explain").stdout
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(line.strip() for line in text.splitlines() if line.startswith("  "))
    for one in json.loads(blis("explain", "--format", "json").stdout):
        name = next(iter(one.values())).split(".")[0] if "figure" in one else next(iter(one.values()))
        assert name in words


@pytest.mark.parametrize("command", [("spec", "fmt"), ("spec", "fmt", "--check"), ("upgrade", "--diff"), ("check",)])
def test_a_folder_without_documents_was_meant_otherwise(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / ".hidden.yaml").write_text("a:   1")
    done = blis(*command, str(tmp_path))
    assert f"no documents in {tmp_path}" in done.stderr
    assert done.exit_code == ExitCode.IO
    assert (tmp_path / ".hidden.yaml").read_text() == "a:   1"


def test_figures_of_reports_are_explained() -> None:
    report = json.loads((Path(__file__).parents[2] / "golden/quickstart.report.json").read_text())
    for name, statistics in report["latency"].items():
        term, figures = subjects(name)  # what the word means, and the figures that are called so
        assert ": a term" in term.text
        assert f"latency.{name}" in figures.text
        for statistic in statistics:
            (subject,) = subjects(f"latency.{name}.{statistic}")
            assert subject.text.startswith(f"latency.{name}.{statistic}: a metric of reports")
            assert "milliseconds" in subject.text
    shown = blis("explain", "kv.hit_rate").stdout
    assert shown.startswith(
        "kv.hit_rate: a metric of reports\n\nPrefix cache hit rate as vLLM and SGLang log it, from 0 to 1"
    )
    assert "`expect`, `plan --slo`" in shown
    found = json.loads(blis("explain", "slo_classes.batch.ttft_ms.p99", "--format", "json").stdout)
    assert (found["figure"], found["unit"], found["expect"]) == ("slo_classes.NAME.ttft_ms.p99", "milliseconds", True)
    (key,) = subjects("workload.clients.output_tokens.max")  # is a key, whatever else ends so
    assert key.text.startswith("workload.clients.output_tokens.max ")


def test_columns_and_fields_of_records_are_explained() -> None:
    assert blis("explain", "queued_us").stdout.startswith("queued_us: a column of request files")
    assert blis("explain", "step.duration_us").stdout.startswith("duration_us: a field of `step` records")
    assert "in simulated time" in blis("explain", "preempted.time_us").stdout  # as all kinds of records have it
    (subject,) = subjects("preempted.freed_blocks")
    assert subject.data == {
        "field": "freed_blocks",
        "of": "preempted",
        "meaning": "KV blocks that it held.",
        "type": "whole number",
        "unit": "KV blocks",
    }


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("kv.hit_rat", "kv.hit_rate"),
        ("latency.ttft.p99", "latency.ttft_ms.p99"),  # `latency` is a key of documents, too
        ("latency.bete", "latency.beta"),
        ("step.durat", "step.duration_us"),
        ("hit_rat", "hit_rate"),
        ("slo_classes.batch.e2e.p99", "slo_classes.batch.e2e_ms.p99"),
    ],
)
def test_an_unknown_figure_is_near_a_known_one(name: str, nearest: str) -> None:
    wrong = blis("explain", name)
    assert wrong.exit_code == ExitCode.USAGE
    assert f"did you mean `{nearest}`" in wrong.stderr


def test_a_former_name_does_what_the_command_does_now(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("kind: Policy\n")
    for former, now in (
        ("validate quickstart wrong.yaml", "check quickstart wrong.yaml"),
        ("spec explain engine.kv_blocks", "explain engine.kv_blocks"),
        ("import --help", "spec import --help"),
    ):
        old, new = blis(*former.split()), blis(*now.split())
        assert (old.exit_code, old.stdout, old.stderr) == (new.exit_code, new.stdout, new.stderr)
    assert "validate" not in blis("--help").stdout


def test_a_person_is_told_of_the_name_that_is_now(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert current_arguments(["validate", "x"]) == ["check", "x"]
    assert capsys.readouterr().err == "note: `blis-tui validate` is `blis-tui check` now\n"
    assert current_arguments(["spec", "list"]) == ["spec", "list"]
    assert capsys.readouterr().err == ""


def test_a_group_without_a_command_shows_its_help_line_by_line() -> None:
    for former in (("import",), ("spec", "import")):
        done = process(*former)
        assert done.stdout + done.stderr == process("spec", "import", "--help").stdout


def test_a_word_with_a_line_end_stays_on_its_line() -> None:
    assert blis("explain", "kv\nblocks").stdout.startswith("no key has the path `kv\ufffdblocks`; keys that")


def test_explain_a_code() -> None:
    assert "error[BLIS2005]" in blis("explain", "blis2005").stdout
    assert json.loads(blis("explain", "BLIS1001", "--format", "json").stdout)["title"] == "unknown key"
    assert "BLIS0001, BLIS0002, " in blis("explain").stdout
    assert json.loads(blis("explain", "--format", "json").stdout)[0]["title"] == "not valid YAML"
    assert json.loads(blis("explain", "--format", "json").stdout)[0]["code"] == "BLIS0001"
    unknown = blis("explain", "BLIS9999")
    assert (unknown.exit_code, "there is no diagnostic code" in unknown.stderr) == (ExitCode.USAGE, True)


# fmt


def test_fmt() -> None:
    Path("a.yaml").write_text(UNTIDY)
    Path("b.yaml").write_text(TIDY)
    check = blis("spec", "fmt", "--check", ".")
    assert (check.exit_code, check.stderr) == (ExitCode.CHECK_FAILED, "a.yaml would be formatted\n")
    diff = blis("spec", "fmt", "--diff", "a.yaml")
    assert (diff.exit_code, "+kind: Policy  # what" in diff.stdout) == (0, True)
    assert Path("a.yaml").read_text() == UNTIDY
    assert blis("spec", "fmt", "--check", "--diff", "a.yaml").exit_code == ExitCode.CHECK_FAILED
    before = Path("b.yaml").stat().st_mtime_ns
    assert blis("spec", "fmt", "a.yaml", "b.yaml").stderr == "formatted a.yaml\n"
    assert Path("a.yaml").read_text() == TIDY
    assert Path("b.yaml").stat().st_mtime_ns == before, "what is in order is not written again"
    assert blis("spec", "fmt", "--check", ".").exit_code == 0
    assert blis("spec", "fmt", "-", text=UNTIDY).stdout == TIDY


def test_fmt_of_a_folder_leaves_hidden_files_to_other_programs() -> None:
    Path(".github").mkdir()
    Path(".github/ci.yml").write_text(UNTIDY)
    Path("tidy.yaml").write_text("a: 1\n")
    assert blis("spec", "fmt", "--check", ".").exit_code == 0
    assert blis("spec", "fmt", "--check", ".github").exit_code == ExitCode.CHECK_FAILED


def test_fmt_keeps_links_and_permissions() -> None:
    Path("real.yaml").write_text(UNTIDY)
    Path("real.yaml").chmod(0o600)
    Path("link.yaml").symlink_to("real.yaml")
    assert blis("spec", "fmt", "link.yaml").exit_code == 0
    assert Path("link.yaml").is_symlink()
    assert Path("real.yaml").read_text() == TIDY
    assert stat.S_IMODE(Path("real.yaml").stat().st_mode) == 0o600


def test_fmt_normalises_bytes_that_are_no_text() -> None:
    Path("a.yaml").write_bytes(b"\xef\xbb\xbf" + TIDY.replace("\n", "\r\n").encode())
    assert blis("spec", "fmt", "--check", "a.yaml").exit_code == ExitCode.CHECK_FAILED
    assert blis("spec", "fmt", "a.yaml").exit_code == 0
    assert Path("a.yaml").read_bytes() == TIDY.encode()


def test_fmt_does_the_good_ones_and_tells_of_the_bad_ones() -> None:
    Path("bad.yaml").write_text("a: 1\na: 2\n")
    Path("good.yaml").write_text(UNTIDY)
    Path("odd.yaml").write_text("? a\n:   1\n")
    done = blis("spec", "fmt", "bad.yaml", "good.yaml", "odd.yaml")
    assert done.exit_code == ExitCode.USAGE
    assert "error[BLIS0002]" in done.stderr
    assert "odd.yaml was left unchanged: it has a key marked with `?`" in done.stderr
    assert Path("good.yaml").read_text() == TIDY
    assert Path("bad.yaml").read_text() == "a: 1\na: 2\n"
    assert blis("spec", "fmt", "none.yaml", "good.yaml").exit_code == ExitCode.IO


# schema


def test_schema() -> None:
    printed = json.loads(blis("spec", "schema", "policy").stdout)
    assert printed["title"] == "Policy"
    assert blis("spec", "schema", "hardware", "-o", "some").exit_code == 0
    assert sorted(path.name for path in Path("some").iterdir()) == ["common.schema.json", "hardware.schema.json"]
    Path("some/keep.txt").touch()
    assert blis("spec", "schema", "-o", "some").exit_code == 0
    assert len(list(Path("some").iterdir())) == len(KINDS) + 3
    assert blis("spec", "schema").exit_code == ExitCode.USAGE
    assert blis("spec", "schema", "nothing").exit_code == ExitCode.USAGE


# completion


def complete(*words: str) -> list[str]:
    """What is offered for the last word."""
    environment = {
        **os.environ,
        "_BLIS_TUI_COMPLETE": "bash_complete",
        "COMP_WORDS": "\n".join(["blis-tui", *words]),
        "COMP_CWORD": str(len(words)),
    }
    run = subprocess.run(COMMAND, capture_output=True, text=True, env=environment, check=False)
    return [line.partition(",")[2] for line in run.stdout.splitlines() if line.startswith("plain,")]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sp"], {"spec"}),
        (["run", "quick"], {"quickstart"}),
        (["check", "quick"], {"quickstart"}),
        (["check", "token"], {"token-budget"}),
        (["sweep", "token"], {"token-budget"}),
        (["sweep", "x", "--axis", "cluster.inst"], {"cluster.instances="}),
        (["sweep", "x", "--objective", "max:throughput.req"], {"max:throughput.requests_per_s"}),
        (["spec", "resolve", "trace"], {"trace-replay"}),
        (["spec", "show", "--kind", "hardware", "h"], {"h100", "h200"}),
        (["spec", "new", "po"], {"policy"}),
        (["run", "quickstart", "--set", "engine.kv"], {"engine.kv_blocks="}),
        (["run", "quickstart", "--set", "latency.kind=trained"], {"latency.kind=trained-roofline"}),
        (["run", "quickstart", "--set", "policy=v"], {"policy=vllm-v1"}),
        (["explain", "engine.gpu"], {"engine.gpu_memory_utilization"}),
        (["explain", "Hardware.mf"], {"Hardware.mfu", "Hardware.mfu.decode"}),
        (["explain", "BLIS10"], {"BLIS1001"}),
    ],
)
def test_words_are_completed(words: list[str], offered: set[str]) -> None:
    assert offered <= set(complete(*words))


def test_names_that_a_terminal_would_act_on_are_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "specs/experiments"
    folder.mkdir(parents=True)
    for name in ("mine", "mine\x1b]0;pwned\x07", "mine\nplain,forged", "mine\u202e"):
        (folder / f"{name}.blis.yaml").write_text("kind: Experiment\n")
    monkeypatch.chdir(tmp_path)
    assert complete("run", "mine") == ["mine"]
    assert complete("run", "forged") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_accepted_by_its_shell(shell: str, tmp_path: Path) -> None:
    script = blis("completion", shell).stdout
    assert "_BLIS_TUI_COMPLETE" in script
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}")
    path = tmp_path / "script"
    path.write_text(script)
    assert subprocess.run([program, "-n", str(path)], check=False).returncode == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        (["run", "quick"], ["quickstart"]),
        (["run", "quickstart", "--set", "engine.kv"], ["engine.kv_blocks="]),
        (["run", "quickstart", "--set", "policy", "=", "v"], ["vllm-v1"]),  # bash takes `policy=v` apart
        (["run", "quickstart", "--set", "latency.kind", "="], ["roofline", "trained-physics", "operators"]),
    ],
)
def test_bash_completes(words: list[str], replies: list[str], tmp_path: Path) -> None:
    wrapper = tmp_path / "blis-tui"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m blis_tui "$@"\n')
    wrapper.chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in ["blis-tui", *words])
    script = (
        'eval "$(blis-tui completion bash)"\n'
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words)}\n"
        "compopt() { :; }\n_blis_tui_completion blis-tui\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert run.stdout.split()[: len(replies)] == replies, run.stderr


# help


COMMANDS = ["new", "init", "fmt", "schema", "resolve"]


@pytest.mark.parametrize("command", [*(f"spec {name}" for name in COMMANDS), "explain", "upgrade", "completion"])
def test_help_texts(command: str, file_regression: FileRegressionFixture) -> None:
    shown = {}
    for width in (80, 100):
        result = CliRunner().invoke(cli, [*command.split(), "--help"], prog_name="blis-tui", terminal_width=width)
        assert result.exit_code == 0
        assert max(map(len, result.output.splitlines())) <= width
        shown[width] = result.output
    file_regression.check(shown[80], extension=".txt")


def test_commands_import_heavy_things_only_when_they_run() -> None:
    code = (
        "import sys, blis_tui.cli.spec, blis_tui.cli.explain, blis_tui.cli.completion\n"
        "heavy = {'yaml', 'jsonschema', 'blis_tui.runs.simulation', 'blis_tui.spec.authoring.key_tree'}\n"
        "assert not heavy & sys.modules.keys()"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
