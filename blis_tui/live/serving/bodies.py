"""The documents in the bodies of requests: read as far as they may be, unpacked, and refused if nothing can be made.

A client cannot make the server hold more than a limit, nor read for long while nobody else is answered.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from aiohttp import web

from blis_tui.base.input_files import parse_json
from blis_tui.live.serving import connections
from blis_tui.live.serving.fields import RefusedError

_MOST_BRACKETS: Final = 1 << 20
"""So many lists take about a second to read, in which nobody else is answered."""


async def read_document(request: web.Request, most: int) -> object:
    """Return the document in the body of a request, of at most ``most`` bytes.

    Raises:
        RefusedError: there is none, or it is too large or comes too slowly.
    """
    too_large = RefusedError(413, f"the body is larger than {most >> 20} MiB")
    if (request.content_length or 0) > most:
        raise too_large
    try:
        async with asyncio.timeout(connections.IDLE_S):
            body = await request.read()
    except TimeoutError as error:
        raise RefusedError(408, f"the body has not come within {connections.IDLE_S:g} s") from error
    except web.HTTPRequestEntityTooLarge as error:
        raise too_large from error
    except web.RequestPayloadError as error:
        raise RefusedError(400, "the body is not sent as HTTP says") from error
    body = _unpacked(body, request.headers.get("Content-Encoding", ""), most)
    if len(body) > most:
        raise too_large
    if body.count(b"[") + body.count(b"{") > _MOST_BRACKETS:
        raise RefusedError(400, f"the body has more than {_MOST_BRACKETS:,} lists and objects")
    try:
        return parse_json(body)
    except ValueError as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from error


def _unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """Return the content of a body, or more than its first ``most`` bytes.

    Raises:
        RefusedError: it is not compressed as it says.
    """
    if encoding.lower() in ("", "identity"):
        return body
    if encoding.lower() not in ("gzip", "x-gzip", "deflate"):
        raise RefusedError(400, f"a body compressed with {encoding[:20]!r} cannot be read: gzip and deflate can")
    reading = zlib.decompressobj(zlib.MAX_WBITS | 32)  # with the head of either
    try:
        content = reading.decompress(body, most + 1)
    except zlib.error as error:
        raise RefusedError(400, f"the body is not compressed with {encoding}: {error}") from error
    if len(content) <= most and not reading.eof:
        raise RefusedError(400, f"the body is cut off: its compression with {encoding} does not end")
    return content
