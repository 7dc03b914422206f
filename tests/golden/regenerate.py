"""Write the golden files anew: ``python -m tests.golden.regenerate [EXPERIMENT ...]``.

Without names, every experiment is run and files of experiments that no longer exist are removed. Only what changed is
written. Refuses to run where ``CI`` is set: there, a golden file that differs is a failure and never a new golden file.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .store import FOLDER, experiments, orphans, produce

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def regenerate(names: Sequence[str], folder: Path = FOLDER) -> list[str]:
    """Write the files of these experiments that are missing or differ; return what was done, a line each."""
    done = []
    for experiment in names:
        for name, content in produce(experiment).items():
            path = folder / name
            existed = path.is_file()
            if existed and path.read_bytes() == content:
                continue
            path.write_bytes(content)
            done.append(f"{'changed' if existed else 'new'}  golden/{name}")
    return done


def remove_orphans(known: list[str], folder: Path = FOLDER) -> list[str]:
    """Remove what belongs to no experiment; return what was done, a line each."""
    names = orphans(known, folder)
    for name in names:
        (folder / name).unlink()
    return [f"removed  golden/{name}" for name in names]


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """Do it and say what was done; the exit status."""
    if os.environ.get("CI"):
        print("CI is set: golden files are made by people, who read what changed.", file=sys.stderr)
        return 2
    known = experiments()
    unknown = [name for name in arguments if name not in known]
    if unknown:
        print(f"no such experiment: {', '.join(unknown)} (there are: {', '.join(known)})", file=sys.stderr)
        return 2
    done = regenerate(arguments or known, folder)
    if not arguments:
        done += remove_orphans(known, folder)
    print("\n".join(done) or "nothing changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
