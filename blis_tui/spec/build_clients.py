"""From the resolved document to the records of what clients do over time: sessions, and rates that change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec import model as spec
from blis_tui.spec.document_parts import plugin_of

if TYPE_CHECKING:
    from blis_tui.spec.document_parts import Part


def session_of(part: Part) -> spec.Session:
    """How the requests of a client belong together."""
    return spec.Session(
        turns=plugin_of(part.part("turns")),
        think_time_ms=_optional_plugin(part, "think_time_ms"),
        history=part.text("history"),
        pacing=part.text("pacing"),
        max_context_tokens=part.integer("max_context_tokens") if "max_context_tokens" in part.data else None,
        calls=tuple(_call(call) for call in part.parts("calls")) if "calls" in part.data else (),
    )


def _call(part: Part) -> spec.SessionCall:
    return spec.SessionCall(
        id=part.text("id"),
        after=part.texts("after") if "after" in part.data else (),
        input_tokens=_optional_plugin(part, "input_tokens"),
        output_tokens=_optional_plugin(part, "output_tokens"),
        wait_ms=_optional_plugin(part, "wait_ms"),
        parallel=part.integer("parallel"),
        history=part.flag("history", otherwise=True),
    )


def _optional_plugin(part: Part, name: str) -> spec.PluginConfig | None:
    return plugin_of(part.part(name)) if name in part.data else None


def reasoning_of(part: Part) -> spec.Reasoning:
    """How requests of a client think before they answer."""
    return spec.Reasoning(ratio=plugin_of(part.part("ratio")), history=part.text("history", "dropped"))


def multimodal_of(part: Part) -> spec.Multimodal:
    """What prompts of a client have beside text."""
    return spec.Multimodal(**{name: _modality(part.part(name)) for name in part.data})


def _modality(part: Part) -> spec.Modality:
    return spec.Modality(
        probability=part.number("probability", 1.0),
        count=plugin_of(part.part("count")),
        tokens=plugin_of(part.part("tokens")),
    )


def rate_curve_of(part: Part) -> spec.RateCurve:
    """How the rate of a client changes over time."""
    points = tuple(spec.RatePoint(at_s=one.number("at_s"), factor=one.number("factor")) for one in part.parts("points"))
    return spec.RateCurve(points=points, repeat=part.flag("repeat", otherwise=False))
