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
    assert [one[: one.index('"')] for one in pictures] == ["percentiles", "arrivals", "throughput", "load", "instances"]
    drawn = [len(re.findall(r'<g class="trace scatter trace\w+"', one)) for one in pictures]
    assert drawn == [13, 12, 3, 4, 0]  # 4 groups, 3 latencies, and the gaps; points and p90 of 3 classes, twice; ...
    assert pictures[1].count('<path class="point') == 2 * 60
    assert "<image" in pictures[4]
    buttons = dict.fromkeys(re.findall(r'class="modebar-btn[^>]*data-title="([^"]*)"', document))
    assert [*buttons] == ["Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes", "Download plot as a PNG"]
