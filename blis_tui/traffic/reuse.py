"""How much of a prompt an infinite prefix cache would find: counted over segments, without any engine.

Requests are looked at in order of arrival, each prompt being in the cache for all later ones. Two prompts share their
beginning as far as the same segments follow one another; how far a segment goes on behind that does not matter. Only
whole blocks are found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.engine.request import Segments


class _Branch:
    """Prompts that continue with one segment: how much of it the longest has, and what follows, by its length."""

    __slots__ = ("longest", "next")

    def __init__(self) -> None:
        self.longest = 0
        self.next: dict[int, dict[str, _Branch]] = {}


class InfiniteCache:
    """Everything that was ever asked.

    Args:
        block_size_tokens: tokens of a block.
    """

    __slots__ = ("_block", "_models")

    def __init__(self, block_size_tokens: int) -> None:
        self._block = block_size_tokens
        self._models: dict[str, dict[str, _Branch]] = {}

    def ask(self, segments: Segments, model: str = "", content: Segments = ()) -> int:
        """Tokens found of a prompt that begins with ``segments``; from now on all of them are there.

        Args:
            segments: the shareable head of the prompt.
            model: who computes it: models share nothing.
            content: what is there afterwards, where that is more than the prompt: its answer, too.
        """
        root = self._models.setdefault(model, {})
        found = _found(root, segments)
        branches = root
        for name, tokens in content or segments:
            branch = branches.get(name)
            if branch is None:
                branch = branches[name] = _Branch()
            branch.longest = max(branch.longest, tokens)
            branches = branch.next.setdefault(tokens, {})
        return found // self._block * self._block


def _found(branches: dict[str, _Branch], segments: Segments) -> int:
    """Tokens of a prompt's head that an earlier one has had."""
    found = 0
    for name, tokens in segments:
        branch = branches.get(name)
        if branch is None:
            break
        found += min(tokens, branch.longest)
        following = branch.next.get(tokens)
        if following is None:
            break
        branches = following
    return found
