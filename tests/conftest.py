"""Fixtures and settings for all tests."""

from __future__ import annotations

import gc
import itertools
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.wheels import ROOT, build, environment

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# Matrices here are small, and other tests use the other cores, so threads would only wait for each other. NumPy reads
# this on import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The time of an example depends on the machine and its other load, so no test judges it.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Hypothesis also tries constants from the code, and reads all imported modules for that. In a clean checkout this takes
# each worker ten seconds, and the "same" examples would depend on what else was imported.
if hasattr(providers, "_get_local_constants") and hasattr(providers, "_local_constants"):  # private
    providers._get_local_constants = lambda: providers._local_constants

# Nothing that tests are collected with is garbage: looking for it took a third of the time in a clean checkout.
gc.disable()

_FOLDERS = itertools.count()
"""Numbers of the tests' folders in this process."""

_TOGETHER: Final = {ROOT / "tests" / "results" / "test_lints.py": "explanations"}
"""Modules that share runs with others, which take long to make, and the name of what is tested in one process."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep bytecode in pytest's cache if none may be written beside the sources; without a cache, as long as it runs.

    Otherwise each program that the tests start would spend half of its time on compiling everything again.
    """
    if not sys.dont_write_bytecode:
        return
    if config.pluginmanager.has_plugin("cacheprovider"):
        folder = config.cache.mkdir("bytecode")
    elif config.getoption("numprocesses", None):
        folder = Path(tempfile.mkdtemp())
        config.add_cleanup(lambda: shutil.rmtree(folder))
    else:
        return  # a few tests, for which it would not be worth it
    _share_bytecode(folder)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(folder)


def _share_bytecode(folder: Path) -> None:
    """Link the bytecode compiled at installation, and the checkout's own, to where Python now looks for it.

    Hard links, as symbolic ones take ten times as long. Python replaces such a file, and never writes into it.
    """
    roots = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    for root in (*roots, ROOT / "blis_tui", ROOT / "tests"):
        for place, folders, _ in os.walk(root):
            folders[:] = {*folders} - {"__pycache__", "site-packages", "test", "tests"}
            compiled = Path(place, "__pycache__")
            with suppress(OSError):  # there is none, or it is linked since another run
                files = [*compiled.iterdir()]
                target = folder / compiled.parent.relative_to(compiled.anchor)
                target.mkdir(parents=True)
                for file in files:
                    _link(file, target / file.name)


def _link(file: Path, name: Path) -> None:
    """Give the file another name: symbolic if it lies on another disk, or is somebody else's."""
    try:
        name.hardlink_to(file)
    except OSError:
        name.symlink_to(file)


def pytest_collection_finish() -> None:
    """Exempt what lives as long as the tests from garbage collection: modules, and the tests themselves.

    What many tests leave is old before it is garbage, so all objects are examined a few times only.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(90_000, 10, 100)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Collect once for unraisable exceptions: pytest does it ten times, through all objects that the tests left."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before xdist asks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests of the distributions in one process, and those of each module: they share what is slow to make."""
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            alone = "distributions" not in getattr(item, "fixturenames", ())
            group = _TOGETHER.get(item.path, item.path.stem) if alone else "wheel"
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(optionalhook=True)  # xdist asks, where it is installed
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """The scheduler that hands tests to workers; ``None`` = xdist's default."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.groups import Groups  # noqa: PLC0415  (it needs xdist)

    return Groups(config, log)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's own. (For a free name, pytest's fixture reads the names of all other tests' folders.)"""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}.{next(_FOLDERS)}", numbered=False)


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source distribution of this checkout, and a wheel built from that."""
    sdist, wheel = build(tmp_path_factory.mktemp("distributions"))
    return sdist, wheel


@pytest.fixture(scope="session")
def wheel(distributions: tuple[Path, Path]) -> Path:
    """A wheel of this checkout."""
    return distributions[1]


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment with the wheel."""
    return environment(wheel, tmp_path_factory.mktemp("installed"))
