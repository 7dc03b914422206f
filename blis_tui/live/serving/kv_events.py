"""KV cache events, published over ZeroMQ in vLLM's format.

Source: vLLM 0.32.0, ``distributed/kv_events.py``: batches in MessagePack, ``[time, events, rank]``, each event a map
with its type under ``type``; three frames: topic, sequence number as eight bytes, batch. Each instance has its own
publisher, on consecutive ports. Answers become findable when their requests end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import zmq

from blis_tui.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.request import Request

_MEDIUM: Final = "GPU"
_HIGH_WATER: Final = 100_000
_REMEMBERED: Final = 1 << 18
"""Maximum number of blocks whose tokens are remembered, besides those in the caches."""


class _Block:
    """The published attributes of a block."""

    __slots__ = ("adapter", "before", "hash", "tokens")

    def __init__(self, block_hash: int, before: int | None, tokens: Sequence[int], adapter: str | None) -> None:
        self.hash = block_hash
        self.before = before
        self.tokens = tokens
        self.adapter = adapter


class _Publisher:
    """The publisher of one instance's cache."""

    def __init__(self, socket: zmq.Socket[bytes], rank: int, topic: bytes) -> None:
        self._socket = socket
        self._rank = rank
        self._topic = topic
        self._number = 0
        self._tag: tuple[int, int, int] | None = None
        self.visible: dict[int, _Block] = {}

    def changed(self, instance: Instance) -> bool:
        """Whether blocks may have become findable or been evicted since the last call."""
        pool = instance.pool
        tag = (pool.epoch, pool.misses, pool.hits)
        self._tag, before = tag, self._tag
        return tag != before

    def publish(self, time_s: float, events: list[dict[str, object]]) -> None:
        """Send a batch."""
        batch = msgspec.msgpack.encode([time_s, events, self._rank])
        self._socket.send_multipart((self._topic, self._number.to_bytes(8, "big"), batch), copy=True)
        self._number += 1

    def close(self) -> None:
        """Stop publishing."""
        self._socket.close(linger=0)


class KvPublisher:
    """The publishers of all instances' caches.

    Args:
        endpoint: where the first instance publishes, such as ``tcp://*:5557``; each further one uses the next port.
        topic: the topic of batches.

    Raises:
        InputError: nothing can be published there.
    """

    def __init__(self, endpoint: str, topic: str = "") -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._topic = topic.encode()
        self._publishers: list[_Publisher] = []
        self._blocks: dict[int, dict[int, _Block]] = {}
        try:
            self._head, mark, port = endpoint.rpartition(":")
            self._port = int(port)
            if not mark or not 0 < self._port < 1 << 16:
                raise ValueError(port)  # noqa: TRY301
            self._publishers.append(self._open(0))
        except (ValueError, zmq.ZMQError) as error:
            self.close()
            raise InputError(f"cannot publish at {endpoint!r}: {error}", help="such as tcp://*:5557") from error

    def note(self, cluster: Cluster, request: Request, hashes: Sequence[int], tokens: Sequence[int]) -> None:
        """Remember the hashes and tokens of a request's blocks."""
        pools = {pool.engine.block_size_tokens: index for index, pool in enumerate(cluster.pools)}
        for size, index in pools.items():
            keys = cluster.instances[index].pool.prompts.shareable(request.content)
            known = self._blocks.setdefault(size, {})
            before: int | None = None
            for place, (key, block_hash) in enumerate(zip(keys, hashes, strict=False)):
                known.setdefault(
                    key, _Block(block_hash, before, tokens[place * size : (place + 1) * size], request.adapter or None)
                )
                before = block_hash

    def publish(self, cluster: Cluster, time_s: float) -> None:
        """Publish changes of the caches since the last call."""
        for instance in cluster.instances:
            if instance.index == len(self._publishers):
                self._publishers.append(self._open(instance.index))
            publisher = self._publishers[instance.index]
            if publisher.changed(instance):
                self._compare(publisher, instance, cluster.now, time_s)

    def close(self) -> None:
        """Stop publishing."""
        for publisher in self._publishers:
            publisher.close()
        self._context.term()

    def _open(self, rank: int) -> _Publisher:
        socket: zmq.Socket[bytes] = self._context.socket(zmq.PUB)
        socket.set_hwm(_HIGH_WATER)
        where = f"{self._head}:{self._port + rank}"
        try:
            socket.bind(where) if "*" in where or where.startswith("tcp://127.") else socket.connect(where)
        except zmq.ZMQError:
            socket.close(linger=0)
            raise
        return _Publisher(socket, rank, self._topic)

    def _compare(self, publisher: _Publisher, instance: Instance, now: int, time_s: float) -> None:
        pool = instance.pool
        known = self._blocks.setdefault(pool.block_size_tokens, {})
        # Sorted by key: chains of segments in order of first appearance, blocks by position. Blocks with the same
        # content are published once.
        keys = [key for key in sorted(pool.visible_keys(now)) if key in known]
        visible = {known[key].hash: known[key] for key in keys}
        gone = [block_hash for block_hash in publisher.visible if block_hash not in visible]
        fresh = [block for block_hash, block in visible.items() if block_hash not in publisher.visible]
        publisher.visible = visible
        events: list[dict[str, object]] = []
        if gone and not visible:
            events.append({"type": "AllBlocksCleared"})
        elif gone:
            events.append({"type": "BlockRemoved", "block_hashes": gone, "medium": _MEDIUM})
        events += _stored(fresh, pool.block_size_tokens)
        if events:
            publisher.publish(time_s, events)
        self._forget(known)

    def _forget(self, known: dict[int, _Block]) -> None:
        if len(known) <= 2 * _REMEMBERED:
            return
        held = {block_hash: None for publisher in self._publishers for block_hash in publisher.visible}
        for key in list(known)[:_REMEMBERED]:
            if known[key].hash not in held:
                del known[key]


def _stored(blocks: Sequence[_Block], size: int) -> list[dict[str, object]]:
    """Combine consecutive blocks into one event."""
    events: list[dict[str, object]] = []
    hashes: list[int] = []
    tokens: list[int] = []
    latest: int | None = None
    for block in blocks:
        if not hashes or block.before != latest:
            hashes, tokens = [], []
            events.append(
                {
                    "type": "BlockStored",
                    "block_hashes": hashes,
                    "parent_block_hash": block.before,
                    "token_ids": tokens,
                    "block_size": size,
                    "lora_id": None,
                    "medium": _MEDIUM,
                    "lora_name": block.adapter,
                }
            )
        hashes.append(block.hash)
        tokens += block.tokens
        latest = block.hash
    return events
