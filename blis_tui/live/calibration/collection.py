"""``calibrate --collect``: the loads to measure on a server, written as the cases of an experiment."""

from __future__ import annotations

import json
from shlex import quote
from typing import TYPE_CHECKING

from blis_tui.base.scalars import flow
from blis_tui.base.text import printable
from blis_tui.base.units import in_words
from blis_tui.live.calibration.run import require_extra
from blis_tui.live.calibration.simulated_load import require_one_instance
from blis_tui.spec.authoring.provenance import compose
from blis_tui.spec.load import load as load_experiment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.base.source import Json
    from blis_tui.live.calibration.fitting.collect import Plan
    from blis_tui.live.calibration.other_loads import Load


def collection(spec: str, overrides: Sequence[str], count: int) -> Plan:
    """Choose the loads to measure, for a fit of ``fitted``, because ``blackbox`` has no expected coefficients.

    Args:
        spec: the experiment that describes the server.
        overrides: as for ``load``.
        count: number of loads.

    Raises:
        InputError: the extra is not installed, or the engine can serve none of the loads.
        PolicyError: the experiment has more than one instance.
        SpecError: it is invalid.
    """
    require_extra()
    from blis_tui.live.calibration.fitting.calibrate import fitted_law  # noqa: PLC0415  (needs the extra)
    from blis_tui.live.calibration.fitting.collect import plan  # noqa: PLC0415  (needs the extra)

    experiment = load_experiment(spec, overrides=overrides)
    require_one_instance(experiment)
    return plan(experiment, fitted_law(experiment.pools[0].latency), count)


def name_of(load: Load) -> str:
    """Return the name of a load's case."""
    return f"users-{load.users}-prompt-{load.prompt_tokens}-answer-{load.answer_tokens}"


def collection_text(spec: str, overrides: Sequence[str], found: Plan, target: Path) -> str:
    """Return an experiment whose cases are the loads, in order of measurement; comments say what each determines.

    Args:
        spec: the experiment that describes the server.
        overrides: as for ``load``.
        found: the loads.
        target: the file to be written.
    """
    workloads = [_workload(one.load) for one in found.loads]
    name = target.name.removesuffix(".blis.yaml").removesuffix(".yaml")
    own = [f"workload={json.dumps(workloads[0])}", "expect=[]", f"metadata.name={name}"]
    composed = compose(spec, overrides=[*overrides, *own], relative_to=target.parent)
    file = quote(printable(target.name))
    first = name_of(found.loads[0].load)
    lines = [
        "# Loads to measure on this server, the most informative first. For each case:",
        f"#   blis-tui observe URL --workload {file} --case {first} -o {first}",
        "# and then, with all that were measured:",
        f"#   blis-tui calibrate users-*/requests.csv --spec {file} -o mine.yaml",
        *(f"# {one}" for one in accuracy_sentences(found)),
        "cases:",
    ]
    for one, workload in zip(found.loads, workloads, strict=True):
        lines += [f"  # {sentence}" for sentence in purpose_sentences(one.settles, one.duration_us)]
        lines.append(f"  {name_of(one.load)}: {flow({'workload': workload})}")
    return composed.to_yaml() + "\n".join(lines) + "\n"


def accuracy_sentences(found: Plan) -> list[str]:
    """Return sentences on how well the coefficients will be known once all loads are measured."""
    from blis_tui.live.calibration.fitting.collect import settled  # noqa: PLC0415  (needs the extra)

    known, open_ = settled(found.within)
    said = [f"Chosen from {found.tried} that were simulated with the coefficients that are expected."]
    if known:
        said.append(f"With all of them these should be known within 10 % (9 of 10): {in_words(known)}.")
    if open_:
        shares = ", ".join(f"{name} ({100.0 * found.within[name]:.0f} %)" for name in open_)
        said.append(f"Less well, as loads of one server hardly tell them apart: {shares}.")
    return said


def purpose_sentences(settles: Sequence[str], duration_us: float) -> list[str]:
    """What a load is for, in sentences."""
    what = f"settles {in_words(list(settles))}" if settles else "narrows the intervals"
    return [f"About {duration_us / 1e6:,.0f} s; {what}."]


def _workload(load: Load) -> dict[str, Json]:
    return {"requests": load.requests, "clients": [load.client]}
