"""The package's version, and the version of the simulated semantics.

``ENGINE`` changes whenever the same spec and seed may give other bytes than before. It is the ``engine`` number in a
report's ``meta``, and goldens compare it first.
"""

__version__ = "0.1.0"
ENGINE = "1"
