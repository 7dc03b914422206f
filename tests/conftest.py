"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes depends on the machine and on what else it does: no test judges that.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
