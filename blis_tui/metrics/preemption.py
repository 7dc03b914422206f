"""The report's section on preemptions, for policies with other than the default victims or restoration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.instance import Instance
    from blis_tui.spec.model import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionReport:
    """Preemption figures of all instances.

    The section is present unless the policy is ``victim: tail`` or ``priority`` with ``restore: recompute``.
    """

    recomputed_tokens: int
    """Tokens computed again, including generated ones."""
    swapped_out: int
    """Victims whose KV blocks moved to the host's memory."""
    swapped_in: int
    """Victims that were swapped back; victims that timed out on the host are excluded."""
    host_full: int
    """Victims that were recomputed instead of swapped because the host had no room."""
    swapped_out_blocks: int
    """KV blocks moved to the host."""
    swapped_in_blocks: int
    """KV blocks moved back; blocks that the GPU still held are not moved."""
    bytes_moved: int
    """Bytes moved in both directions, over the links of all GPUs."""
    transfer_us: int
    """The sum of the times of all transfers, whether steps waited for them or not."""
    added_us: int
    """By how much these transfers made steps longer: their whole time, or with ``overlap: true`` the part not hidden
    behind computation."""


def has_preemption_section(policy: Policy) -> bool:
    """Return whether reports under this policy have the section."""
    plain = policy.preemption_restore == "recompute" and policy.preemption_victim in {"tail", "priority"}
    return not plain or policy.preemption_recompute is not None


def preemption_report(instances: Sequence[Instance], tensor_parallel: Sequence[int]) -> PreemptionReport:
    """Return the figures of these instances; ``tensor_parallel`` gives the accelerators of each."""
    recomputed = out = back = full = out_blocks = back_blocks = moved = transfer = added = 0
    for instance, accelerators in zip(instances, tensor_parallel, strict=True):
        recomputed += instance.batch.recomputed_tokens()
        host = instance.batch.host
        if host is None:
            continue
        out += host.swapped_out
        back += host.swapped_in
        full += host.refused
        out_blocks += host.out_blocks
        back_blocks += host.in_blocks
        moved += (host.out_blocks + host.in_blocks) * host.link.bytes_per_block * accelerators
        transfer += host.transfer_us
        added += host.added_us
    return PreemptionReport(
        recomputed_tokens=recomputed,
        swapped_out=out,
        swapped_in=back,
        host_full=full,
        swapped_out_blocks=out_blocks,
        swapped_in_blocks=back_blocks,
        bytes_moved=moved,
        transfer_us=transfer,
        added_us=added,
    )
