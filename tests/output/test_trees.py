"""Files below a folder: written all or none, where others may read them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from blis_tui.base.errors import InputError
from blis_tui.output.result_files import write_tree

FILES: dict[str, str | bytes] = {"a.txt": "a", "inner/b.txt": b"b"}


@contextmanager
def masked(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="permissions")
@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
@pytest.mark.parametrize("there", [True, False], ids=["an existing folder", "a new folder"])
def test_everything_has_the_permissions_of_new_files_and_folders(tmp_path: Path, mask: int, there: bool) -> None:
    with masked(mask):
        for folder in ("usual", "made"):
            if folder == "usual" or there:
                (tmp_path / folder).mkdir()
        (tmp_path / "usual" / "inner").mkdir()
        for name in FILES:
            (tmp_path / "usual" / name).touch()
        write_tree(tmp_path / "made", FILES, replace=False)
    for name in ("", "inner", *FILES):
        usual, made = (tmp_path / folder / name for folder in ("usual", "made"))
        assert oct(made.stat().st_mode) == oct(usual.stat().st_mode), name


@pytest.mark.parametrize("replace", [True, False])
def test_what_is_in_the_way_leaves_everything_as_it_was(tmp_path: Path, replace: bool) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "a.txt").write_text("mine")
    (folder / "inner").write_text("a file where a folder is needed")
    with pytest.raises(InputError, match=r"is in the way|already has a\.txt"):
        write_tree(folder, FILES, replace=replace)
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "inner"]
    assert (folder / "a.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_other_files_of_a_folder_stay(tmp_path: Path) -> None:
    write_tree(tmp_path / "made", {**FILES, "c.txt": "c"}, replace=False)
    write_tree(tmp_path / "made", {**dict.fromkeys(FILES, "new")}, replace=True)
    found = {str(path.relative_to(tmp_path / "made")): path.read_text() for path in tmp_path.rglob("*.txt")}
    assert found == {"a.txt": "new", "inner/b.txt": "new", "c.txt": "c"}
