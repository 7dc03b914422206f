"""The guard against accidents: how much work each phase does, against the last release.

    python -m benchmarks.guard                          compare with the anchor; exit code 1 where more is done
    python -m benchmarks.guard azure plan               only these inputs
    python -m benchmarks.guard --all                    every figure, not only those far above the anchor
    python -m benchmarks.guard --anchor                 make this checkout the anchor: with a release
    python -m benchmarks.guard --measure FOLDER         print the figures of another checkout as JSON
    python -m benchmarks.guard --against FOLDER         CPU time instead, in turns with another checkout

Counted are calls (of Python and of C functions), modules imported and code made at run time: the same on every machine
with the anchor's Python and dependencies. They say nothing of what a call costs; `--against` does.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.guard import figures, inputs, pairs


def _compare(names: list[str], *, everything: bool) -> int:
    """Print what is far above its anchor; how many figures are."""
    if figures.python() != figures.anchor_python():
        sys.exit(f"the anchor was counted with Python {figures.anchor_python()}, this is {figures.python()}")
    if others := figures.other_dependencies():
        print(f"other dependencies than the anchor's: {others}")
    found = 0
    anchors = figures.anchor()
    for name in names:
        counted = figures.count(name)
        if everything:
            for key, now in counted.items():
                print(f"{key:34} {anchors[key]:>12,.0f} {now:>12,.0f}  {now / max(anchors[key], 1):6.3f}")
        wrong = figures.over(counted)
        found += len(wrong)
        for over in wrong:
            print(f"OVER {over}")
    print("nothing is far above the anchor" if not found else f"{found} figures far above their anchor")
    return found


def _measure(package: Path, names: list[str]) -> None:
    """Print a checkout's figures; what it cannot run is left out."""
    counted: dict[str, float] = {}
    for name in names:
        try:
            counted |= figures.count(name, package)
        except figures.CannotCountError as error:
            print(error, file=sys.stderr)
    print(json.dumps(counted, indent=1))


def _make_anchor() -> None:
    """Count every input, and keep the figures."""
    counted: dict[str, float] = {}
    for name in inputs.NAMES:
        counted |= figures.count(name)
    made = {"python": figures.python(), "dependencies": figures.dependencies(), "figures": counted}
    figures.ANCHOR.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="INPUT", help=", ".join(inputs.NAMES))
    parser.add_argument("--all", action="store_true", help="print every figure")
    parser.add_argument("--anchor", action="store_true", help="keep the figures of this checkout as the anchor")
    parser.add_argument("--measure", type=Path, metavar="FOLDER", help="the root of a checkout")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="the root of a checkout to run in turns with")
    parser.add_argument(
        "--ours",
        type=Path,
        default=figures.ROOT,
        metavar="FOLDER",
        help="with --against: not this checkout, but the blis_tui in this folder (site-packages: a compiled one)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="with --against: how often each input is run")
    parser.add_argument("--azure", type=Path, metavar="FILE.csv", help="with --against: the published trace itself")
    arguments = parser.parse_args()
    known = pairs.NAMES if arguments.against else inputs.NAMES
    names = arguments.names or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no input is named {unknown[0]}: known are {', '.join(known)}")
    if arguments.against:
        pairs.compare(arguments.ours, arguments.against, names, arguments.rounds, arguments.azure)
    elif arguments.anchor:
        _make_anchor()
    elif arguments.measure:
        _measure(arguments.measure.resolve(), names)
    else:
        sys.exit(_compare(names, everything=arguments.all) > 0)


if __name__ == "__main__":
    main()
