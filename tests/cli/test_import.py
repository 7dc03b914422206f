"""``blis-tui spec import`` as a user meets it."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pytest_regressions.file_regression import FileRegressionFixture

from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.spec.validate import validate

DATA = Path(__file__).parents[1] / "spec" / "foreign" / "data"


def blis_import(*args: object) -> Result:
    return CliRunner().invoke(cli, ["spec", "import", *map(str, args)])


@pytest.mark.parametrize(
    "command", [(), ("policy",), ("workload",), ("hardware",), ("model",), ("vllm",), ("kubernetes",), ("helm",)]
)
def test_help(command: tuple[str, ...], file_regression: FileRegressionFixture) -> None:
    file_regression.check(blis_import(*command, "--help").stdout)


def test_standard_output_and_the_file_are_the_same_bytes(tmp_path: Path) -> None:
    printed = blis_import("workload", DATA / "workload-v2.yaml")
    target = tmp_path / "deep" / "er.yaml"
    quiet = blis_import("workload", DATA / "workload-v2.yaml", "-o", target)
    assert (printed.exit_code, quiet.exit_code, quiet.stdout) == (ExitCode.OK, ExitCode.OK, "")
    assert target.read_bytes() == printed.stdout_bytes
    assert "$schema" not in printed.stdout, "a schema's path depends on where the document lies"
    assert printed.stderr == quiet.stderr
    assert "seed: set elsewhere" in printed.stderr


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("workload", DATA / "workload-v2.yaml"), ExitCode.OK),
        (("workload", DATA / "workload-v2.yaml", "--strict"), ExitCode.OK),
        (("workload", DATA / "workload-lossy.yaml"), ExitCode.OK),
        (("workload", DATA / "workload-lossy.yaml", "--strict"), ExitCode.CHECK_FAILED),
        (("policy", DATA / "policy-full.yaml", "--strict"), ExitCode.OK),
        (("policy", DATA / "policy-lossy.yaml", "--strict"), ExitCode.CHECK_FAILED),
        (("model", DATA / "config.json"), ExitCode.OK),
        (("model", DATA / "config.json", "--name", "No Name"), ExitCode.USAGE),
        (("policy", DATA / "workload-v2.yaml"), ExitCode.USAGE),
        (("workload", DATA / "policy-full.yaml"), ExitCode.USAGE),
        (("hardware", DATA / "hardware.json"), ExitCode.USAGE),
        (("workload", DATA / "nothing.yaml"), ExitCode.IO),
        (("workload", DATA / "workload-v2.yaml", "-o", "/dev/null/x.yaml"), ExitCode.IO),
    ],
)
def test_exit_codes(args: tuple[object, ...], expected: ExitCode) -> None:
    result = blis_import(*args)
    assert result.exit_code == expected, result.output
    assert "Traceback" not in result.output


def test_one_file_an_accelerator(tmp_path: Path) -> None:
    result = blis_import("hardware", DATA / "hardware.json", "-o", tmp_path / "hardware")
    assert (result.exit_code, result.stdout) == (ExitCode.OK, "")
    assert sorted(path.name for path in (tmp_path / "hardware").iterdir()) == ["a100-sxm.yaml", "h100.yaml"]
    assert validate(tmp_path / "hardware" / "h100.yaml").name == "h100"


def test_nothing_is_written_when_anything_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "hardware.json"
    path.write_text((DATA / "hardware.json").read_text().replace('"mfuDecode": 0.18', '"mfuDecode": 18'))
    result = blis_import("hardware", path, "-o", tmp_path / "out")
    assert result.exit_code == ExitCode.USAGE
    assert not (tmp_path / "out").exists()
