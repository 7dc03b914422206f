"""The reference pages."""

from docs.make_reference import stale


def test_the_pages_are_those_that_are_made() -> None:
    assert stale() == [], "make docs"
