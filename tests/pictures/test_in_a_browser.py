"""Pages in a real browser, without a network: every plot is drawn, and nothing complains."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from blis_tui.cli.main import cli

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")]

USE = """<script>
for (const select of document.querySelectorAll("select[data-for]")) {
  for (let at = 0; at < select.options.length; at++) {
    const plot = document.getElementById(select.dataset.for);
    plot.querySelectorAll(".trace, image").forEach((one) => one.remove());
    select.selectedIndex = at;
    select.dispatchEvent(new Event("change"));
    if (!plot.querySelector(".trace, image")) console.log(`nothing of ${select.options[at].text}`);
  }
}
console.log("all drawn");
const table = document.querySelector("table[data-sortable]");
const heads = [...table.tHead.rows[0].cells];
const at = heads.findIndex((one) => one.textContent === "e2e_ms.p99");
for (const _ of [1, 2]) {
  heads[at].querySelector("button").click();
  console.log([...table.tBodies[0].rows].map((row) => row.cells[at].textContent).join(" "));
}
const input = document.querySelector("input[type=search]");
input.value = "2 8 holds";
input.dispatchEvent(new Event("input"));
const left = [...table.tBodies[0].rows].filter((row) => !row.hidden);
console.log(`${left.length} row of point ${left[0].cells[0].textContent}`);
</script>"""
"""Uses the page as a reader would: looks at every view, sorts the table by a column, twice, and filters it."""


def opened(page: Path, *options: str) -> tuple[str, str]:
    """The page as the browser has made it, and what stands in its console."""
    offline = ("--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking")
    quiet = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0")
    command = [CHROMIUM, *quiet, *offline, f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=10000"]
    run = subprocess.run(
        [*command, *options, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True, timeout=300
    )
    return run.stdout, "\n".join(line for line in run.stderr.splitlines() if "CONSOLE" in line)


def test_the_page_of_a_run_is_drawn_offline(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    changes = ("--set", "workload.requests=60", "--set", "cluster.instances=9", "--set", "expect=[]")
    run = CliRunner().invoke(
        cli, ["run", "service-classes", *changes, "--html", str(page), "-o", str(tmp_path / "out")]
    )
    assert run.exit_code == 0
    document, console = opened(page)
    assert console == ""
    pictures = document.split('<figure class="picture" id="')[1:]
    assert [picture[: picture.index('"')] for picture in pictures] == [
        "percentiles",
        "arrivals",
        "throughput",
        "load",
        "instances",
    ]
    drawn = [len(re.findall(r'<g class="trace scatter trace\w+"', picture)) for picture in pictures]
    assert drawn == [13, 12, 3, 4, 0]  # 4 groups, 3 latencies, and the gaps; points and p90 of 3 classes, twice; ...
    assert pictures[1].count('<path class="point') == 2 * 60
    assert "<image" in pictures[4]
    buttons = dict.fromkeys(re.findall(r'class="modebar-btn[^>]*data-title="([^"]*)"', document))
    assert [*buttons] == ["Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes", "Download plot as a PNG"]


def test_the_pages_of_a_study_and_a_plan_are_drawn_offline(tmp_path: Path) -> None:
    page = tmp_path / "study.html"
    axes = ("--axis", "cluster.instances=1,2", "--axis", "workload.rate_per_s=4,8,64", "--set", "workload.requests=40")
    goals = ("--objective", "cost.gpus", "--objective", "latency.e2e_ms.p99", "--slo", "latency.ttft_ms.p99<=60")
    rest = ("--set", "expect=[]", "--jobs", "1", "--store", str(tmp_path / "store"), "--html", str(page))
    assert CliRunner().invoke(cli, ["sweep", "quickstart", *axes, *goals, *rest]).exit_code == 0
    page.write_text(page.read_text().replace("</body>", USE + "</body>"))
    document, console = opened(page)
    views, column, again, left = (line.split('"')[1] for line in console.splitlines())
    assert views == "all drawn"
    figures = [float(one.replace(",", "")) for one in column.split()]
    assert len(figures) == 6
    assert figures == sorted(figures)
    assert again.split() == column.split()[::-1]
    assert left == "1 row of point 4"
    pictures = document.split('<figure class="picture" id="')[1:]
    names = ["front", "rate", "percentiles", "heat-map", "runs-percentiles", "runs-load"]
    assert [picture[: picture.index('"')] for picture in pictures] == names
    assert all("main-svg" in picture for picture in pictures)
    assert document.count('<input type="search"') == 1
    assert document.count('<th scope="col"><button>') + document.count('<th scope="col" class="n"><button>') > 5

    page = tmp_path / "plan.html"
    question = ("--slo", "latency.ttft_ms.p50<=60", "--max-rate", "--duration", "5", "--set", "horizon_us=10000000000")
    assert CliRunner().invoke(cli, ["plan", "quickstart", *question, *rest[2:-1], str(page)]).exit_code == 0
    document, console = opened(page)
    assert console == ""
    assert document.count("main-svg") >= 3
