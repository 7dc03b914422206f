"""Queries a server before it is loaded: its model, its engine's settings, and its tokens per word."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.errors import InputError
from blis_tui.inputs import parse_foreign_json
from blis_tui.observe.answers import brief, count_of, error_text, read_answer
from blis_tui.observe.exchange import ConnectionBrokenError, Reply, longest_answer
from blis_tui.observe.metrics import settings
from blis_tui.observe.prompts import TextScale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.observe.answers import Answer
    from blis_tui.observe.exchange import Exchanges
    from blis_tui.observe.prompts import Prompts, RequestForm
    from blis_tui.observe.recording import Server

_PATIENCE_S: Final = 10.0
_MOST_BYTES: Final = 8 << 20
"""Limit of what a server says of itself; the metrics of an engine have some 100 kB."""
_FIRST_TOKENS: Final = 64
"""The most tokens that a first request may ask for."""
_UNTRUSTED: Final = "trust its certificate, or who signed it, in a file of PEM that the variable SSL_CERT_FILE names"
_SHORT, _LONG = 20, 220
"""Numbers of words in the two prompts that measure tokens per word."""
METRICS_PATH: Final = "/metrics"


@dataclass(frozen=True, slots=True)
class Found:
    """A server that answers."""

    server: Server
    metrics: bool
    """Whether it has vLLM's metrics."""


async def fetch(exchanges: Exchanges, path: str) -> Reply | None:
    """Return the answer to a query that not every server supports; None = it does not.

    A broken connection is retried once, because a server may just have closed an idle one, and the query starts no
    computation.

    Raises:
        OSError: the server cannot be reached.
        TimeoutError: it does not answer.
    """
    reply = Reply()
    async with asyncio.timeout(_PATIENCE_S):
        try:
            await exchanges.ask("GET", path, b"", reply, most=_MOST_BYTES)
        except (ConnectionBrokenError, ConnectionError):
            reply = Reply()
            await exchanges.ask("GET", path, b"", reply, most=_MOST_BYTES)
    return reply if reply.status == 200 else None


async def survey(exchanges: Exchanges, address: str) -> Found:
    """Query a server's description.

    Raises:
        InputError: it cannot be reached.
    """
    try:
        models, metrics, version = [await fetch(exchanges, path) for path in ("/v1/models", METRICS_PATH, "/version")]
    except (OSError, TimeoutError) as error:
        why = "it does not answer" if isinstance(error, TimeoutError) else str(error)
        untrusted = isinstance(error, ssl.SSLCertVerificationError)
        hint = _UNTRUSTED if untrusted else "is the server running, and is the address right?"
        raise InputError(f"cannot reach {address}: {why}", help=hint) from error
    text = "" if metrics is None else metrics.body.decode(errors="replace")
    told = settings(text)
    model = _first_model(models)
    longest, name = model.get("max_model_len"), model.get("id")
    number = _map(version).get("version")
    server = replace(
        told,
        version=brief(number) if isinstance(number, str) else "",
        model=name if isinstance(name, str) and name == brief(name) else "",
        max_model_len=count_of(longest),
    )
    return Found(server, "vllm:" in text)


async def ask(exchanges: Exchanges, asking: RequestForm, body: bytes, timeout_s: float) -> Answer:
    """Send one request outside of the schedule.

    Raises:
        InputError: it gets no answer.
    """
    reply = Reply()
    try:
        async with asyncio.timeout(timeout_s):
            await exchanges.ask("POST", asking.path, body, reply, most=longest_answer(_FIRST_TOKENS))
    except (OSError, TimeoutError) as error:
        why = f"no end after {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
        raise InputError(f"the server does not answer a first request: {why}") from error
    if reply.status != 200:
        raise InputError(
            f"the server refuses a first request: {error_text(reply.body, reply.status, reply.headers)}",
            help="see --api, --model, --vocabulary and --dialect",
        )
    answer = read_answer(reply.pieces, reply.done_ns, reply.headers, stream=asking.stream)
    if answer.error or not answer.chunks:
        raise InputError(f"the server's first answer has no tokens: {answer.error or 'it is empty'}")
    return answer


async def scale_of(exchanges: Exchanges, prompts: Prompts, timeout_s: float) -> TextScale:
    """Measure how many tokens the server counts per word, from two prompts.

    Raises:
        InputError: it does not report the number of prompt tokens.
    """
    counts = []
    for words in (_SHORT, _LONG):
        answer = await ask(exchanges, prompts.asking, prompts.probe(words, f"probe-{words}"), timeout_s)
        counts.append(answer.usage.prompt_tokens)
    short, long = counts
    if short is None or long is None or long <= short:
        raise InputError(
            "the server does not report the number of prompt tokens, so prompts of a given length cannot be made"
        )
    per_word = (long - short) / (_LONG - _SHORT)
    return TextScale(per_word, max(short - per_word * _SHORT, 0.0))


def _first_model(reply: Reply | None) -> Mapping[str, object]:
    models = _map(reply).get("data")
    return models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}


def _map(reply: Reply | None) -> Mapping[str, object]:
    if reply is None:
        return {}
    try:
        found = parse_foreign_json(reply.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
