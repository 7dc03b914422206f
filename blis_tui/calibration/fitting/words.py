"""What is to be said about a fit, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.calibration.fitting.averages import NOT_FOLLOWED
from blis_tui.calibration.fitting.fit import FOLLOWED
from blis_tui.units import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.calibration.elsewhere import Load
    from blis_tui.calibration.fitting.fit import Problem
    from blis_tui.calibration.outcome import Coefficient


def statements(
    found: Sequence[Coefficient],
    followed: float,
    problem: Problem,
    advice: Callable[[Sequence[str]], Load | None] | None,
    tried: Sequence[Load],
) -> tuple[str, ...]:
    """What the measurements do not tell and what would, bounds, and how well the server was followed."""
    said: list[str] = []
    for names in _groups(found):
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
        other = f"{1.0 - followed:.0%} of the first and last tokens came at other times than any such server could have"
        what = "Look at the experiment: limits, policy, prefix caching."
        if followed < NOT_FOLLOWED:
            said.append(
                f"{other} sent them: it cannot be followed step by step. These coefficients only make means agree, as"
                " far as they do; intervals say little, and what to expect of other loads is not known."
                f" {what} Or something that is not simulated held steps up, such as another process on the machine."
            )
        else:
            said.append(f"{other} sent them, so that intervals may be too short. {what}")
    if not problem.requests:
        said.append(
            "Steps say nothing of what lies between them and before them: measure requests, too. On a server that was"
            " measured on CPUs, 2.4 to 2.9 ms a step lay outside of what it logged."
        )
    return tuple(said)


def _most(loads: Sequence[Load]) -> str:
    users, tokens = max(one.users for one in loads), max(one.prompt_tokens for one in loads)
    return f"{users} users and prompts of {tokens:,} tokens"


def _groups(found: Sequence[Coefficient]) -> list[list[str]]:
    """Coefficients that cannot be told apart, together."""
    names = [one.name for one in found if one.told == "together"]
    beside = {one.name: set(one.together_with) for one in found}
    groups: list[list[str]] = []
    while names:
        group = [names[0]]
        for name in group:
            group += [one for one in names if one not in group and (one in beside[name] or name in beside[one])]
        names = [one for one in names if one not in group]
        if len(group) > 1:
            groups.append([one.name for one in found if one.name in group])
    return groups


def absent(name: str, problem: Problem) -> str:
    """Why a coefficient has no part in what was measured."""
    if name in ("first_token_us", "prompt_token_us", "alpha0", "alpha1") and not problem.requests:
        return "steps say nothing of what requests wait for outside of them"
    if name.startswith("fp8"):
        return "the model has no weights of 8 bits, or hardly any prompt tokens are computed"
    if name in ("flops", "prefill_attention", "prefill_step_us", "prompt_token_us"):
        return "no prompt tokens are computed, or too few at a time"
    if name.startswith("expert"):
        return "the model has no experts, or their other side counts"
    if name in ("all_reduce", "layer_tp_us"):
        return "no tensor parallelism"
    if name == "sampler_us":
        return "sorted_sampling is off"
    if name in ("kv_read", "decode_attention"):
        return "the other side of the attention of decodes counts"
    return "it has no part in these runs"
