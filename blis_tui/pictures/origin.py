"""Where the figures of a page come from: all settings, and what identifies them."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING

from blis_tui._version import ENGINE, __version__
from blis_tui.canonical import to_json
from blis_tui.pictures.library import plotly_version
from blis_tui.pictures.parts import Table, paragraph, unfold
from blis_tui.spec.yaml_text import yaml_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model import Experiment


def settings(experiment: Experiment, summary: str = "The resolved experiment") -> str:
    """All settings of an experiment, as one document, to unfold."""
    about = "One document with everything that the experiment refers to and every default: it can be run as it is."
    return unfold(summary, paragraph(about) + document(experiment.document))


def document(data: Mapping[str, object]) -> str:
    """Plain data as YAML."""
    return f"<pre>{escape(yaml_body(json.loads(to_json(data))))}</pre>"


def provenance(facts: Mapping[str, str]) -> Table:
    """What identifies a page's figures, and what made it."""
    made_by = {"Engine": ENGINE, "blis-tui": __version__, "plotly.js, which draws the pictures": plotly_version()}
    rows = [*facts.items(), *made_by.items()]
    return Table(caption="Equal digests, seeds and engines give equal figures", head=("", ""), rows=rows, words=(1,))
