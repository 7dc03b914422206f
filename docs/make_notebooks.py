"""Execute the notebooks of ``docs/notebooks/`` and store their outputs: ``make notebooks``.

Needs the extras ``docs`` and ``calibrate``. ``tests/test_notebooks.py`` runs the cells without Jupyter and reports
stale outputs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import nbformat
from nbclient import NotebookClient

ERASE_LINE: Final = "\x1b[2K"
"""What is left of a progress line."""
FOLDER: Final = Path(__file__).with_name("notebooks")


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs, but without what differs each time: the time, and what rendered a picture."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        ours = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # `!blis-tui` is this one
        client = NotebookClient(notebook, resources={"metadata": {"path": folder}}, coalesce_streams=True)
        client.execute(env={**os.environ, "PATH": ours})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                text = output.text.replace("\r\n", "\n")  # commands print to a terminal
                output.text = text.replace(ERASE_LINE, "")
        if "outputs" in cell:
            cell.outputs = [one for one in cell.outputs if one.output_type != "stream" or one.text]
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    return notebook


if __name__ == "__main__":
    for one in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(executed(one), one)
        sys.stderr.write(f"wrote {one}\n")
