"""The wheel of the blis-tui that runs, so that another machine gets the same one where no package index has it."""

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
"""Folders of files that the package carries (``pyproject.toml``)."""
_OF_A_BUILD: Final = frozenset({".pyc", ".so", ".pyd"})
"""Made for one version of Python or one platform; the sources lie beside them."""
_ABOUT: Final = frozenset({"METADATA", "entry_points.txt"})
_DATE: Final = (2020, 2, 2, 0, 0, 0)
"""Equal contents are equal files."""


def own_wheel() -> bytes | None:
    """The wheel, in plain Python, of what runs: installed from a wheel, from a clone, or out of one as it is.

    None where it came from a package index by its name, or is not installed at all.
    """
    try:
        installed = distribution("blis-tui")
    except PackageNotFoundError:
        return None
    # Installers write this file (PEP 610) where they were given an address and not a name.
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
    """The modules, and the data wherever they lie."""
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
    """What was installed, but for what the installer wrote itself."""
    for file in installed.files or ():
        below = file.parts[1:]
        if file.parts[0] == _INFO and (below[0] == "licenses" or "/".join(below) in _ABOUT):
            yield file.as_posix(), Path(str(file.locate())).read_bytes()


def _digest(content: bytes) -> str:
    return urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
