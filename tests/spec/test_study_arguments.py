"""Studies by arguments: every wrong one gives exactly the recorded text, with the place in the argument."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from click.testing import CliRunner

from blis_tui.base.errors import SpecError
from blis_tui.base.source import Source
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.spec.read import parse
from blis_tui.spec.study.arguments import parse_axis, parse_bound, parse_objective, parse_seeds, study_of_arguments
from blis_tui.spec.study.document import open_study_or_experiment, read_study
from blis_tui.study.figures import require_figures

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.spec.study.study_records import Study

ROOT: Final = Path(__file__).parents[2]
WRONG = {
    "--axis": (
        "cluster.instances",
        "cluster.instances=",
        "=1..8",
        "cluster.instances=1..",
        "cluster.instances=1..8..",
        "cluster.instances=8..1",
        "cluster.instances=1..8..0",
        "cluster.instances=1..1000000000",
        "cluster.instance=1..8",
        "cluster.instances=1,two,3",
        "cluster.instances=[1,2",
        "cluster.instances={from: 1, to: 8}",
        "cluster.instances={kind: all}",
        "cluster.instances=[1],2",
        "policy=default,fastest",
        "cluster..instances=1",
        "seed=1..3",
    ),
    "--slo": (
        "latency.ttft_ms.p99",
        "latency.ttft_ms.p99<300",
        "latency.ttft_ms.p99<=",
        "latency.ttft_ms.p99<=300ms",
        "ttft_p99<=300",
        "slo.attainment>=0.99",
        "tenants.acme.ttft_ms.p99<=300",
        "slo_classes.standrad.ttft_ms.p99<=300",
        "slo_classes.standard.ttft.p99<=300",
        "instances.7.kv.peak_used<=300",
    ),
    "--objective": ("min:", "smallest:cost.gpus", "cost.gpu", "max:goodput", "max: cost gpus"),
    "--price": ("h100", "h100=", "=2.5", "h100=-1", "h100=cheap", "h100=.inf", "h10=2.5", "[h100]=1"),
    "--seeds": ("0", "few", "1,1", "1,-2", "[1,2", "5000"),
}


def study_of(option: str, *texts: str, source: str = "quickstart") -> Study:
    document, base = open_study_or_experiment(source)
    lists = ("--axis", "--slo", "--objective", "--price")
    axes, slos, objectives, prices = (texts if option == name else () for name in lists)
    seeds = texts[0] if option == "--seeds" else ""
    study_of_arguments(document, axes=axes, slos=slos, objectives=objectives, seeds=seeds, prices=prices)
    study = read_study(document, base=base)
    require_figures(study)
    return study


@pytest.mark.parametrize("option", WRONG)
def test_diagnostics(option: str, file_regression: FileRegressionFixture) -> None:
    texts = []
    for text in WRONG[option]:
        with pytest.raises(SpecError) as caught:
            study_of(option, text)
        texts.append(f"$ sweep quickstart {option} '{text}'\n{caught.value}\n")
    file_regression.check("\n".join(texts), extension=".txt")


def test_a_class_that_no_trace_can_name_is_told() -> None:
    for group in ("slo_classes.batch", "tenants.whoever"):
        assert study_of("--slo", f"{group}.ttft_ms.p99<=300", source="trace-replay").constraints
    for name, hint in {"critcal": "did you mean `critical`?", "x9": "the SLO classes are "}.items():
        with pytest.raises(SpecError) as caught:
            study_of("--slo", f"slo_classes.{name}.ttft_ms.p99<=300", source="trace-replay")
        assert hint in str(caught.value)


def test_an_axis_given_twice_is_told() -> None:
    with pytest.raises(SpecError, match=r"`cluster\.instances` is the path of two axes"):
        study_of("--axis", "cluster.instances=1..2", "cluster.instances=4")


def test_a_setting_that_an_axis_replaces_at_every_point_is_told() -> None:
    for given in ("cluster.instances=4", "policy.batching.kind=nano"):
        axis = "cluster.instances=1..2" if given.startswith("cluster") else "policy=default,sjf"
        result = CliRunner().invoke(cli, ["sweep", "quickstart", "--axis", axis, "--set", given])
        assert result.exit_code == 2
        assert f"`{given.partition('=')[0]}` has no effect: every point has its own `{axis.partition('=')[0]}`" in (
            result.output
        )
        assert f" --> --set\n  |\n1 | {given}\n" in result.output


def test_a_price_given_twice_is_told_and_one_of_the_document_replaced() -> None:
    with pytest.raises(SpecError, match="`h100` has two prices"):
        study_of("--price", "h100=1", "h100=2")
    assert study_of("--price", "h100=2.5", "l40s=0.9").prices == {"h100": 2.5, "l40s": 0.9}
    assert study_of("--price").prices == {}


def test_prices_come_from_a_table_too() -> None:
    """Before those of the document, and after those of the command line; mistakes are told with their line."""

    def priced(text: str, *prices: str) -> Study:
        document, base = open_study_or_experiment("cheapest-gpus")
        study_of_arguments(document, prices=prices, price_table=parse(Source("mine.yaml", text)))
        study = read_study(document, base=base)
        require_figures(study)
        return study

    assert priced("h100: 5\nl40s: 0.9\n", "l40s=1").prices == {"a100-80": 1.3, "h100": 5.0, "h200": 4.0, "l40s": 1.0}
    for text, message in {
        "- h100: 5\n": "this is not a table of prices",
        "h100: 5\nl40s: cheap\n": "mine.yaml:2:7",
        "h100: 5\nh10: 5\n": "mine.yaml:2:1",
        "h100: -5\n": "mine.yaml:1:7",
    }.items():
        with pytest.raises(SpecError) as caught:
            priced(text)
        assert message in str(caught.value)


def test_the_example_of_prices_is_that_of_the_shipped_study() -> None:
    table = yaml.safe_load((ROOT / "docs/prices/2026-05.yaml").read_text(encoding="utf-8"))
    assert table == study_of("--price", source="cheapest-gpus").prices
    small = ["--set", "workload.requests=20", "--axis", "cluster.instances=2,3", "-j", "1", "--store", "none"]
    given = ["--prices", str(ROOT / "docs/prices/2026-05.yaml"), "--objective", "cost.usd_per_hour", "--format", "csv"]
    done = CliRunner().invoke(cli, ["sweep", "quickstart", *small, *given])
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [float(row["cost.usd_per_hour"]) for row in rows] == [2 * table["h100"], 3 * table["h100"]]
    gone = CliRunner().invoke(cli, ["sweep", "quickstart", *small, "--prices", "no-such.yaml"])
    assert (gone.exit_code, "no-such.yaml" in gone.stderr) == (ExitCode.IO, True)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("cluster.instances=1..4", [1, 2, 3, 4]),
        ("cluster.instances=2..2", [2]),
        ("workload.rate_per_s=5..40..10", [5, 15, 25, 35]),
        ("workload.rate_per_s=0.1..0.5..0.1", [0.1, 0.2, 0.3, 0.4, 0.5]),
        ("workload.rate_per_s={from: 1, to: 64, count: 4, scale: log}", [1, 4, 16, 64]),
        ("hardware=h100, a100-80", ["h100", "a100-80"]),
        ("engine.enable_prefix_caching=[true, false]", [True, False]),
        ("latency={kind: roofline},{kind: trained-physics}", [{"kind": "roofline"}, {"kind": "trained-physics"}]),
    ],
)
def test_axes(text: str, values: list[object]) -> None:
    study = study_of("--axis", text)
    assert [point.coordinates[study.paths[0]] for point in study.points] == values


def test_places_are_those_in_the_argument() -> None:
    path, values = parse_axis("cluster.instances = 1..8..2")
    assert path == "cluster.instances"
    assert {key[0]: place.span.column for key, place in values.values.items() if key} == {
        "from": 21,
        "to": 24,
        "step": 27,
    }
    assert parse_bound(" kv.blocks >= 5").values["min",].span.column == 15
    assert parse_objective("max:kv.blocks").values["metric",].span.column == 5
    assert parse_seeds("1, 2").values[(1,)].span.column == 4


def test_an_axis_replaces_that_of_the_document_and_a_case_comes_first() -> None:
    document, base = open_study_or_experiment("schedulers")
    study_of_arguments(document, axes=["cluster.instances=1,2"], case="vllm-v1")
    study_of_arguments(document, axes=["cluster.instances=3"])
    study = read_study(document, base=base, given=["seed=9"])
    assert [point.coordinates for point in study.points] == [{"cluster.instances": 3}]
    assert study.fixed[0].value.data == "vllm-v1"
    assert study.seeds == (9,)
