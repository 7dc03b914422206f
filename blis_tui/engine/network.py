"""What a client's connection adds to the times it measures, as in BLIS; a token is four bytes."""

from __future__ import annotations

from typing import Final

from blis_tui.base.classes import NamedTuple

_BITS_PER_TOKEN: Final = 32
_US_PER_MS: Final = 1000


class Connection(NamedTuple):
    """A client's connection to the cluster; 10^6 bits per second are one bit per microsecond."""

    rtt_ms: float
    bandwidth_mbps: float | None
    """None = unlimited."""

    def ttft_us(self, input_tokens: int) -> int:
        """Time added to the time to first token: a round trip and sending the prompt."""
        return self._us(input_tokens)

    def e2e_us(self, input_tokens: int, output_tokens: int) -> int:
        """Time added to the time to last token: a round trip and sending prompt and answer."""
        return self._us(input_tokens + output_tokens)

    def _us(self, tokens: int) -> int:
        sending = 0.0 if self.bandwidth_mbps is None else tokens * _BITS_PER_TOKEN / self.bandwidth_mbps
        return int(self.rtt_ms * _US_PER_MS + sending + 0.5)
