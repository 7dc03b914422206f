"""BLIS's length distributions and arrival processes as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.importers.section import Fate
from blis_tui.spec.diagnostics import suggestion

if TYPE_CHECKING:
    from blis_tui.importers.section import Section
    from blis_tui.spec.source import Json

_PARAMETERS: Final = {
    "gaussian": ("mean", "std_dev", "min", "max"),
    "exponential": ("mean",),
    "lognormal": ("mu", "sigma"),
    "pareto_lognormal": ("alpha", "xm", "mu", "sigma", "mix_weight"),
    "constant": ("value",),
    "empirical": (),
}
"""Distribution -> the parameters it requires."""

_BOUNDED: Final = frozenset({"gaussian", "exponential", "lognormal"})
"""Distributions that know ``min`` and ``max``."""

PROCESSES: Final = ("poisson", "constant", "gamma", "weibull")
_SMALLEST_GAMMA_SHAPE: Final = 0.01


def lengths(section: Section) -> dict[str, Json] | None:
    """A distribution of token counts; None (and a problem) when it is none.

    BLIS cuts the fraction off a bound and off a constant, and counts less than one token as one: so does this.
    """
    kind = section.text("type")
    params = section.section("params")
    if kind not in _PARAMETERS:
        hint = suggestion(kind, _PARAMETERS, otherwise="BLIS knows")
        section.source.problem((*section.path, "type"), f"unknown distribution `{kind}`", hint=hint)
        return None
    section.lose("file", "BLIS does not read it either; give `params`")
    section.finish()
    if params is None:
        section.source.problem(section.path, f"{kind} lengths lack `params`", code="BLIS1002", key=True)
        return None
    if kind == "empirical":
        return _empirical(params)
    found = {name: params.number(name, required=True) for name in _PARAMETERS[kind]}
    bounds = {name: params.number(name) for name in ("min", "max")} if kind in _BOUNDED else {}
    params.finish()
    if None in found.values():
        return None
    whole = {name: max(1, int(value)) for name, value in bounds.items() if value is not None}
    if kind == "constant":
        return {"kind": kind, "value": max(1, int(found["value"] or 0))}
    if kind == "gaussian":
        return _gaussian(params, found["mean"] or 0, found["std_dev"] or 0, whole)
    return {"kind": kind.replace("_", "-"), **found, **whole}


def _gaussian(params: Section, mean: float, std_dev: float, bounds: dict[str, int]) -> dict[str, Json]:
    low, high = bounds["min"], bounds["max"]
    if low == high or std_dev == 0:
        return {"kind": "constant", "value": low if mean < low else high if mean > high else max(1, int(mean + 0.5))}
    if low < high and not low <= mean <= high:
        moved = low if mean < low else high
        text = f"{mean:g} lies outside [{low}, {high}], which is invalid here; it became {moved}"
        params.note(Fate.APPROXIMATED, "mean", text)
        mean = moved
    return {"kind": "gaussian", "mean": mean, "std_dev": std_dev, "min": low, "max": high}


def _empirical(params: Section) -> dict[str, Json] | None:
    weights: dict[int, float] = {}
    for key in params.data:
        weight = params.number(key)
        if not key.strip().isdecimal():
            params.source.problem((*params.path, key), f"`{key[:40]}` is not a number of tokens", key=True)
        elif weight is not None and weight > 0:
            tokens = max(1, int(key))
            weights[tokens] = weights.get(tokens, 0) + weight
    if not weights:
        params.source.problem(params.path, "no length has a positive weight", code="BLIS2010", key=True)
        return None
    return {"kind": "empirical", "weights": {str(tokens): weights[tokens] for tokens in sorted(weights)}}


def arrivals(section: Section | None) -> dict[str, Json]:
    """An arrival process; Poisson when it was left out."""
    if section is None:
        return {"kind": "poisson"}
    kind = section.choice("process", PROCESSES, otherwise="poisson")
    cv = section.number("cv")
    for key in ("shape", "scale"):
        section.lose(key, "arrivals are given by the client's rate and `cv`")
    section.finish()
    if kind not in {"gamma", "weibull"}:
        section.note(Fate.NO_EFFECT, "cv", f"{kind} arrivals have none")
        return {"kind": kind}
    if kind == "gamma" and cv is not None and cv > 0 and 1 / (cv * cv) < _SMALLEST_GAMMA_SHAPE:
        section.note(Fate.NO_EFFECT, "cv", "BLIS draws Poisson arrivals for a `cv` above 10, and so does this")
        return {"kind": "poisson"}
    return {"kind": kind} if cv is None else {"kind": kind, "cv": cv}
