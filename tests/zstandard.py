"""Zstandard: the standard library's from Python 3.14 on, the extra's before."""

from __future__ import annotations

try:
    from compression import zstd  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from backports import zstd

__all__ = ["zstd"]
