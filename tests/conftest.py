"""What all tests share."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

# Matrices here are small, and other tests use the other cores: threads would only wait for each other. NumPy reads this
# when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# How long an example takes depends on the machine and on what else it does: no test judges that.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Where no bytecode may be left beside the sources, keep it in pytest's cache.

    Otherwise each of the programs that the tests start would compile everything anew: half of its time.
    """
    if sys.dont_write_bytecode and config.pluginmanager.has_plugin("cacheprovider"):
        folder = str(config.cache.mkdir("bytecode"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        sys.dont_write_bytecode, sys.pycache_prefix = False, folder


def pytest_collection_finish() -> None:
    """Spare the garbage collector what lives as long as the tests: modules, and the tests themselves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
