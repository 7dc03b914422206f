"""Remarks on a fit, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.calibration.fitting.averages import NOT_FOLLOWED
from blis_tui.calibration.fitting.fit import FOLLOWED
from blis_tui.calibration.fitting.told import groups_of
from blis_tui.units import in_words, share_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.calibration.fitting.fit import Problem
    from blis_tui.calibration.other_loads import Load
    from blis_tui.calibration.outcome import Coefficient


_16_BITS: Final = 2.0


def statements(
    found: Sequence[Coefficient],
    followed: float,
    problem: Problem,
    advice: Callable[[Sequence[str]], Load | None] | None,
    tried: Sequence[Load],
) -> tuple[str, ...]:
    """Return what the measurements leave open, helpful loads, bounds reached, and how well the server was followed."""
    said: list[str] = []
    for names in groups_of(found):
        load = None if advice is None else advice(names)
        what = f"{in_words(names)} cannot be told apart by these loads"
        if load is not None:
            what += f"; {load.words} should tell them"
        elif tried:
            what += f", nor by others of this server: {len(tried)} were tried, of up to {_most(tried)}"
        said.append(f"{what}.")
    said += [
        f"{one.name} is at its bound, {one.value:g}: less would agree better. Look at the experiment."
        for one in found
        if one.pressed
    ]
    if followed < FOLLOWED:
        missed = share_text(1.0 - followed, 0)
        other = f"{missed} of the first and last tokens came at other times than any such server could have"
        what = "Look at the experiment: limits, policy, prefix caching."
        if followed < NOT_FOLLOWED:
            said.append(
                f"{other} sent them: it cannot be followed step by step. These coefficients only make means agree, as"
                " far as they do; intervals say little, and what to expect of other loads is not known."
                f" {what} Or something that is not simulated held steps up, such as another process on the machine."
            )
        else:
            short = "intervals, and errors expected of other loads, may be too small"
            said.append(f"{other} sent them, so that {short}. {what}")
    if not problem.requests:
        said.append(
            "Steps say nothing of what lies between them and before them: measure requests, too. On a server that was"
            " measured on CPUs, 2.4 to 2.9 ms a step lay outside of what it logged."
        )
    return tuple(said)


def _most(loads: Sequence[Load]) -> str:
    users, tokens = max(one.users for one in loads), max(one.prompt_tokens for one in loads)
    return f"{users} users and prompts of {tokens:,} tokens"


def absent(name: str, problem: Problem) -> str:
    """Return why no measurement contains a coefficient."""
    models = [pool.model for pool in problem.pools]
    prompts = "too few prompt tokens are computed at a time" if problem.has_prompts else "no prompt tokens are computed"
    if name in ("first_token_us", "prompt_token_us", "alpha0", "alpha1") and not problem.requests:
        return "steps say nothing of what requests wait for outside of them"
    if name.startswith("fp8"):
        narrow = any(pool.model.weight_bytes < _16_BITS and pool.hardware.peak_tflops_fp8 for pool in problem.pools)
        return prompts if narrow else "no weights of 8 bits are multiplied as such"
    if name in ("flops", "prefill_attention", "prefill_step_us", "prompt_token_us"):
        return prompts
    if name.startswith("expert"):
        other = "multiplying" if name == "expert_weights" else "reading"
        return f"{other} them takes longer" if any(one.num_experts for one in models) else "the model has no experts"
    if name in ("all_reduce", "layer_tp_us"):
        return "no tensor parallelism"
    if name == "sampler_us":
        return "sorted_sampling is off"
    if name in ("kv_read", "decode_attention"):
        other = "multiplying" if name == "kv_read" else "reading"
        return f"{other} takes longer in the attention of decodes"
    return "it has no part in these runs"
