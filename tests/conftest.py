"""What all tests share."""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.wheels import build, environment

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# Matrices here are small, and other tests use the other cores: threads would only wait for each other. NumPy reads this
# when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# How long an example takes depends on the machine and on what else it does: no test judges that.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Hypothesis also tries constants that stand in the code, of which it reads all that is imported: ten seconds in each
# worker of a clean checkout, and which examples are the same ones every time would follow from what else was imported.
if hasattr(providers, "_get_local_constants") and hasattr(providers, "_local_constants"):  # private: it may go
    providers._get_local_constants = lambda: providers._local_constants


def pytest_configure(config: pytest.Config) -> None:
    """Where no bytecode may be left beside the sources, keep it in pytest's cache.

    Otherwise each of the programs that the tests start would compile everything anew: half of its time.
    """
    if sys.dont_write_bytecode and config.pluginmanager.has_plugin("cacheprovider"):
        folder = config.cache.mkdir("bytecode")
        _share_bytecode(folder)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(folder)


def _share_bytecode(folder: Path) -> None:
    """Put what was compiled when it was installed where Python now looks, and no longer elsewhere."""
    for root in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}:
        for compiled in Path(root).rglob("__pycache__"):
            target = folder / compiled.parent.relative_to(compiled.anchor)
            with suppress(OSError):  # it is there, from another run, or there are no links here
                target.mkdir(parents=True)
                for file in compiled.iterdir():
                    (target / file.name).symlink_to(file)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what lives as long as the tests: modules, and the tests themselves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def pytest_sessionfinish() -> None:
    """Look once for garbage that complains: pytest does it ten times, through all that the tests have left."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before xdist asks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In one process: tests of what is released share what takes long to build."""
    for item in items:
        if "distributions" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("wheel"))


@pytest.hookimpl(optionalhook=True)  # xdist asks, where it is installed
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Who hands out tests to workers; ``None`` = who it would be elsewhere."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.groups import Groups  # noqa: PLC0415  (it needs xdist)

    return Groups(config, log)


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
    """The folder of programs of an environment with the wheel."""
    return environment(wheel, tmp_path_factory.mktemp("installed"))
