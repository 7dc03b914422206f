"""What is noted of a request beside its row."""

from __future__ import annotations

import pickle

from blis_tui.engine.request import NO_MEDIA, Media
from blis_tui.results.request_book import RequestBook
from tests.builders import request


def test_of_a_request_that_a_checkpoint_brought_back_nothing_more_is_noted() -> None:
    for media, noted in ((NO_MEDIA, False), (Media(*[1] * len(Media._fields)), True)):
        one = request(0, 0, 8, 2)
        one.media = media
        for which in (one, pickle.loads(pickle.dumps(one))):  # noqa: S301  (our own)
            book = RequestBook()
            book.row(which, -1, -1, 2)
            assert bool(book.noted["extras"]) is noted
