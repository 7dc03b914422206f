"""``CITATION.cff`` is valid in format 1.2.0 and agrees with the package's metadata."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from pathlib import Path

import yaml

from blis_tui._version import __version__

ROOT = Path(__file__).parents[1]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

REQUIRED = {"authors", "cff-version", "message", "title"}
"""Required keys in the schema of Citation File Format 1.2.0; ``OPTIONAL`` has the other keys that are used here."""
OPTIONAL = {
    "abstract": str,
    "keywords": list,
    "license": str,
    "type": str,
    "version": str,
    "url": str,
    "date-released": dt.date,
}


def test_it_is_a_citation_file() -> None:
    assert CITATION.keys() >= REQUIRED
    assert CITATION.keys() - REQUIRED <= OPTIONAL.keys()
    assert CITATION["cff-version"] == "1.2.0"
    assert [key for key, kind in OPTIONAL.items() if key in CITATION and not isinstance(CITATION[key], kind)] == []
    assert CITATION["type"] in {"software", "dataset"}
    assert [author for author in CITATION["authors"] if author.keys() != {"name"}] == []


def test_it_says_what_the_package_says() -> None:
    assert CITATION["version"] == __version__
    assert CITATION["title"] == PROJECT["name"]
    assert CITATION["abstract"] == PROJECT["description"]
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["authors"] == PROJECT["authors"]
    assert CITATION["keywords"] == PROJECT["keywords"]
    assert CITATION["url"] == PROJECT["urls"]["Homepage"]


def test_it_has_the_date_of_a_version_that_has_one() -> None:
    """The date of the newest version in the change log; `unreleased` if it has none yet."""
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = re.search(r"^## (\S+) \((unreleased|\d{4}-\d{2}-\d{2})\), engine \d+$", log, re.MULTILINE)
    assert version is not None
    assert version[1] == __version__
    assert str(CITATION.get("date-released", "unreleased")) == version[2]
