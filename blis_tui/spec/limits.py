"""What limits mean where a spec leaves them off."""

from __future__ import annotations

from typing import Final

UNLIMITED: Final = 10**9
"""``max_num_seqs`` where a spec says 0."""
