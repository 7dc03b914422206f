"""What figures are said to be."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.engine.records import RECORD_KINDS, streamed_kinds
from blis_tui.live.observe.recording import Observed
from blis_tui.results.report import Report
from blis_tui.results.request_log import RequestRow
from blis_tui.spec.authoring.report_figures import (
    all_figures,
    classes_of,
    fields_of,
    figure_text,
    figures_at,
    is_named,
    near,
    part_of,
    report_parts,
)
from blis_tui.spec.metric_names import COSTS, all_metrics
from blis_tui.spec.subjects import subjects  # which imports all kinds of records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.spec.authoring.report_figures import Field

_PARTS: Final = sorted(
    {name for figure in all_figures() for field in figure.way for name in re.findall(r"\w+", field.annotation)}
    & report_parts().keys()
)
_UNIT: Final = re.compile(
    r"\b(requests?|tokens?|kv blocks|drafts|preemptions?|attempts|steps?|sessions|batch(es)?|instances|gpus|stages"
    r"|items|ranks|replicas|servers|tenants|adapters|loads|deaths|transfers|decisions|victims|pairs|bytes|hours|price|percent"
    r"|ratio|from 0|share|score points|without unit|the figure's unit|index|seed|event|call|how often|chunks"
    r"|jain's index|mean|sample|median|percentile|status)\b|[01] = ",
    re.IGNORECASE,
)

_ELSEWHERE: Final = re.compile(r"\b[Ll]ikewise[;.:]|[Ll]ikewise below|\b(as|so|two|none) below\b")


def _description(field: Field) -> str:
    return f"{field.meaning} {field.unit}"


@pytest.mark.parametrize("part", [*_PARTS, "Report", "RequestRow", "Finding", "Observed"])
def test_every_field_says_what_it_is_and_in_which_unit(part: str) -> None:
    fields = classes_of("live")[part].fields if part == "Observed" else fields_of(part)
    assert [field.name for field in fields if not field.meaning] == []
    numbers = [field for field in fields if field.annotation.removesuffix(" | None") in {"int", "float"}]
    assert [
        f"{number.name}: {number.meaning}"
        for number in numbers
        if not number.unit and not _UNIT.search(_description(number))
    ] == []
    assert [field.name for field in fields if _ELSEWHERE.search(field.meaning)] == [], "each is read alone"


def test_the_fields_are_those_of_the_records() -> None:
    assert {field.name for field in fields_of("Report")} == set(Report.__dataclass_fields__)
    assert tuple(field.name for field in fields_of("RequestRow")) == RequestRow._fields
    assert tuple(field.name for field in classes_of("live")["Observed"].fields) == tuple(Observed.__dataclass_fields__)


def test_they_are_the_metrics_that_expectations_can_name() -> None:
    found = {one.path for one in all_figures() if is_named(one) and "NAME" not in one.path and ".N" not in one.path}
    # What one distribution holds is known by its text alone: that of a class is one of another record.
    assert found == all_metrics()


def _leaves(value: object, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{place}")
    else:
        yield path


@pytest.mark.parametrize(
    "name",
    [
        "quickstart",
        "service-classes",
        "disaggregation@disaggregated",
        "instance-dies",
        "wide-experts@ranks",
        "thinking",
    ],
)
def test_every_figure_of_a_report_is_explained(name: str) -> None:
    report = json.loads(Path(f"golden/{name}.report.json").read_text(encoding="utf-8"))
    for leaf in _leaves(report):
        if leaf.startswith(("warnings.", "invariants.")):  # figures of a warning are named in its sentence
            continue
        (found,) = figures_at(leaf)
        assert found.field.meaning
        assert figure_text(found).startswith(f"{found.path}: a metric of reports\n\n")


def test_figures_near_one_are_other_figures() -> None:
    paths = {one.path for one in all_figures()}
    for one in all_figures():
        assert set(near(one)) <= paths - {one.path}
    (rate,) = figures_at("kv.hit_rate")
    assert near(rate)[0] == "instances.N.kv.hit_rate"
    assert "kv_tiers.tiers.NAME.hit_rate" in near(rate)


def test_the_figures_of_studies_alone_are_found_by_their_section_and_by_their_name() -> None:
    """All that studies know and reports do not: what a figure of theirs is called after its last dot is enough."""
    whole = next(subject.text for subject in subjects("cost") if subject.text.startswith("cost: metrics of studies"))
    assert [line.split()[0] for line in whole.splitlines()[2:]] == [*COSTS]
    for name, meaning in COSTS.items():
        for asked in (name, name.partition(".")[2]):
            assert f"{name}: a metric of studies\n\n{meaning}\n" in [subject.text for subject in subjects(asked)]


def test_names_and_places_can_be_left_out() -> None:
    for path in ("slo_classes.batch.ttft_ms.p99", "slo_classes.ttft_ms.p99", "slo_classes.NAME.ttft_ms.p99"):
        assert [one.path for one in figures_at(path)] == ["slo_classes.NAME.ttft_ms.p99"]
    assert [one.path for one in figures_at("instances.2.steps")] == ["instances.N.steps"]
    assert figures_at("instances.two.steps") == figures_at("kv.nothing") == []
    assert {"kv.hit_rate", "kv_tiers.hit_rate", "adapters.hit_rate"} <= {one.path for one in figures_at("hit_rate")}


def test_the_sources_that_are_read_are_in_compiled_wheels_too() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    compiled = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]["include"]
    records = {f"{record.__module__.replace('.', '/')}.py" for record in RECORD_KINDS.values()}
    assert not records & {*compiled}
    for file in compiled:
        if file.startswith("blis_tui/results/"):
            names = re.findall(r"^class (\w+)", Path(file).read_text(encoding="utf-8"), re.MULTILINE)
            assert not {*names} & {*_PARTS, "RequestRow", "Report"}, file


@pytest.mark.parametrize("kind", sorted(streamed_kinds()))
def test_every_field_of_a_record_says_what_it_is(kind: str) -> None:
    part = part_of(RECORD_KINDS[kind])
    assert [field.name for field in part.fields if not field.meaning] == []
    assert ["event", "time_us", *(field.name for field in part.fields)] == [*RECORD_KINDS[kind].__dataclass_fields__]
