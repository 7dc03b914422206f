"""BLIS's short form of inference-perf's shared-prefix workload as clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.importers.notes import Fate

if TYPE_CHECKING:
    from blis_tui.importers.clients import Clients
    from blis_tui.importers.section import Section

_MOST_CLIENTS: Final = 10_000
_DEFAULT_PREFIX: Final = 50


def add_shared_prefix(section: Section, clients: Clients) -> tuple[float, int] | None:
    """Fill ``clients`` from an ``inference_perf`` section with one stage.

    Returns:
        Requests a second and requests in all; None (and a problem) when it cannot be carried over.
    """
    stages = section.sections("stages")
    shared = section.section("shared_prefix")
    section.finish()
    if len(stages) != 1 or shared is None:
        text = "only a load of one stage can be imported; write one workload per stage"
        if shared is None:
            text = "this lacks the key `shared_prefix`"
        section.source.problem((*section.path, "stages"), text, key=True)
        return None
    rate = stages[0].number("rate", required=True) or 0.0
    duration_s = stages[0].number("duration", required=True) or 0.0
    stages[0].finish()
    groups = shared.whole("num_unique_system_prompts", low=1)
    users = shared.whole("num_users_per_system_prompt", low=1)
    prefix, question, output = (shared.whole(key) for key in ("system_prompt_len", "question_len", "output_len"))
    shared.lose("enable_multi_turn_chat", "conversations are not simulated: requests are independent")
    shared.finish()
    if not 0 < groups * users <= _MOST_CLIENTS or rate <= 0 or duration_s <= 0:
        text = f"rate, duration and the number of users (at most {_MOST_CLIENTS}) must be positive"
        section.source.problem(section.path, text, code="BLIS1005", key=True)
        return None
    requests = groups * users * -int(-(rate * duration_s) // (groups * users))
    for group in range(groups):
        for user in range(users):
            at = ("clients", len(clients.found))
            clients.found.append(
                {
                    "id": f"prompt-{group}-user-{user}",
                    "arrivals": {"kind": "poisson"},
                    "input_tokens": {"kind": "constant", "value": max(1, question)},
                    "output_tokens": {"kind": "constant", "value": max(1, output)},
                    "prefix": {"group": f"prompt-{group}", "tokens": prefix or _DEFAULT_PREFIX},
                    "slo_class": "standard",
                    "tenant": f"prompt-{group}",
                }
            )
            clients.origins[at] = shared.path
            clients.origins[(*at, "input_tokens", "value")] = (*shared.path, "question_len")
            clients.origins[(*at, "output_tokens", "value")] = (*shared.path, "output_len")
            clients.origins[(*at, "prefix", "tokens")] = (*shared.path, "system_prompt_len")
    text = f"{requests} requests in Poisson arrivals; BLIS stretches each user's to fill {duration_s:g} s exactly"
    section.note(Fate.APPROXIMATED, "stages", text)
    text = "class `standard`, as in newer versions of BLIS; older ones said `batch`"
    section.source.note(Fate.NO_EFFECT, shared.path, text)
    return rate, requests
