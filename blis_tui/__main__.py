"""``python -m blis_tui``."""

from __future__ import annotations

from blis_tui.cli.main import main

if __name__ == "__main__":
    main()
