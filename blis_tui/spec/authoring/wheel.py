"""Builds the wheel of the running blis-tui, for machines that cannot get it from a package index."""

from __future__ import annotations

import io
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui._version import __version__
from blis_tui.spec.places import data_root, package_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution

NAME: Final = f"blis_tui-{__version__}-py3-none-any.whl"
_INFO: Final = f"blis_tui-{__version__}.dist-info"
_DATA: Final = ("specs", "schemas")
"""Folders of data files in the package (``pyproject.toml``)."""
_OF_A_BUILD: Final = frozenset({".pyc", ".so", ".pyd"})
"""Suffixes of files for one Python version or platform; their sources are beside them."""
_ABOUT: Final = frozenset({"METADATA", "entry_points.txt"})
_DATE: Final = (2020, 2, 2, 0, 0, 0)
"""Fixed date, so that equal contents give equal files."""


def own_wheel() -> bytes | None:
    """Return a pure Python wheel of the running package, installed from a wheel or a clone, or run from a clone.

    Returns None if it was installed from a package index by name, or is not installed at all.
    """
    try:
        installed = distribution("blis-tui")
    except PackageNotFoundError:
        return None
    # Installers write this file (PEP 610) if they were given a URL or path instead of a name.
    if installed.version != __version__ or installed.read_text("direct_url.json") is None:
        return None
    members = {**dict(_package()), **dict(_metadata(installed))}
    members[f"{_INFO}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: blis-tui\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = [f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in members.items()]
    members[f"{_INFO}/RECORD"] = "".join([*lines, f"{_INFO}/RECORD,,\n"]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in members.items():
            wheel.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _package() -> Iterator[tuple[str, bytes]]:
    """Yield the modules, and the data wherever they are."""
    package = package_root()
    carried = package / "_data"
    yield from _files(package, "blis_tui", without=carried)
    for folder in _DATA:
        yield from _files(data_root() / folder, f"blis_tui/_data/{folder}")


def _files(folder: Path, name: str, without: Path | None = None) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix not in _OF_A_BUILD and path.is_file() and (without is None or without not in path.parents):
            yield f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _metadata(installed: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield the installed metadata, except for files written by the installer."""
    for file in installed.files or ():
        below = file.parts[1:]
        if file.parts[0] == _INFO and (below[0] == "licenses" or "/".join(below) in _ABOUT):
            yield file.as_posix(), Path(str(file.locate())).read_bytes()


def _digest(content: bytes) -> str:
    return urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
