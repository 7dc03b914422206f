"""What answers say, however they are cut into pieces."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from blis_tui.live.observe.answers import Answer, Usage, error_text, read_answer, read_stream, read_whole


def event(*ids: int, text: str = "x", finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": finish, "token_ids": list(ids)}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def plain(text: str, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def test_every_chunk_has_its_time_and_its_tokens() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    last = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    answer = read_stream([(10, event(1)), (20, event(2, 3)), (30, event(4, finish="length")), (40, last)])
    assert answer.chunks == [(10, 1), (20, 2), (30, 1)]
    assert answer.tokens == [1, 2, 3, 4]
    assert answer.has_token_ids
    assert answer.usage == Usage(5, 4, 3)
    assert (answer.finish_reason, answer.text, answer.ended) == ("length", "xxx", False)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=8), st.data())
def test_cuts_anywhere_change_only_when_an_event_is_complete(sizes: list[int], data: st.DataObject) -> None:
    events = [event(*range(size)) for size in sizes] + [b"data: [DONE]\n\n"]
    whole = b"".join(events)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=6)))
    bounds = list(zip([0, *cuts], [*cuts, len(whole)], strict=True))
    answer = read_stream([(number, whole[begin:end]) for number, (begin, end) in enumerate(bounds)])
    expected, place = [], 0
    for size, one in zip(sizes, events, strict=False):
        # An event counts when the line is over, which is one byte before the empty line's end.
        over = place + len(one) - 1
        expected.append((next(n for n, (_, end) in enumerate(bounds) if end >= over), size))
        place += len(one)
    assert answer.chunks == expected
    assert answer.ended
    assert answer.merged == len(expected) - len({time for time, _ in expected})


def test_without_ids_chunks_with_text_are_tokens_and_the_server_tells_the_sum() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 7}
    answer = read_stream([(1, plain("")), (2, plain("a")), (3, plain("b")), (4, plain("c", usage=usage))])
    assert answer.chunks == [(2, 1), (3, 1), (4, 5)]
    assert not answer.has_token_ids


def test_usage_that_grows_with_every_chunk_tells_their_tokens() -> None:
    pieces = [(n, plain("t", usage={"prompt_tokens": 1, "completion_tokens": n * 2})) for n in (1, 2, 3)]
    assert read_stream(pieces).chunks == [(1, 2), (2, 2), (3, 2)]


def test_reasoning_is_part_of_the_answer() -> None:
    choice = {"delta": {"reasoning_content": "hm", "content": None}}
    answer = read_stream([(1, b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")])
    assert (answer.text, answer.chunks) == ("hm", [(1, 1)])


def test_a_whole_answer_is_one_chunk() -> None:
    document = {
        "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 9},
    }
    answer = read_whole(json.dumps(document).encode(), 77)
    assert answer.chunks == [(77, 9)]
    assert answer.ended
    assert read_whole(b"[]", 1).error
    assert read_whole(b"{}", 1).error == "the answer has no `choices`"


@given(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=60)), max_size=8))
def test_nothing_that_a_server_sends_is_an_error_of_ours(pieces: list[tuple[int, bytes]]) -> None:
    pieces = [(time, b"data: " + piece + b"\n") for time, piece in pieces]
    assert isinstance(read_stream(pieces), Answer)
    assert isinstance(read_whole(b"".join(piece for _, piece in pieces), 1), Answer)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["choices", "usage", "error", "delta", "text", "token_ids", "prompt_tokens_details"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_nor_any_json(document: object) -> None:
    text = json.dumps(document).encode()
    assert isinstance(read_stream([(1, b"data: " + text + b"\n")]), Answer)
    assert isinstance(read_whole(text, 1), Answer)
    assert error_text(text, 500).startswith("HTTP 500")


def test_refusals_are_quoted_in_the_words_of_the_server() -> None:
    assert error_text(b'{"error": {"message": "no such model"}}', 404) == "HTTP 404: no such model"
    assert error_text(b'{"detail": "Not Found"}', 404) == "HTTP 404: Not Found"
    assert error_text(b"<html>\n bad </html>", 502) == "HTTP 502: <html> bad </html>"
    assert error_text(b"", 500) == "HTTP 500"
    assert error_text(b"", 307, {"location": "https://there/v1"}) == "HTTP 307 (Location: https://there/v1)"
    assert error_text(b'{"detail": "busy"}', 429, {"retry-after": "7"}) == "HTTP 429: busy (Retry-After: 7)"


def test_what_came_in_another_way_than_was_asked_is_said() -> None:
    whole = b'{"choices": [{"text": "a b", "finish_reason": "length"}], "usage": {"completion_tokens": 2}}'
    plain = {"content-type": "application/json; charset=utf-8"}
    assert read_answer([(5, whole)], 5, plain, stream=False).chunks == [(5, 2)]
    asked = read_answer([(5, whole)], 5, plain, stream=True)
    assert (asked.chunks, asked.error) == ([], "the answer came in one piece, not as a stream of tokens")
    failed = read_answer([(5, b'{"error": {"message": "no memory"}}')], 5, plain, stream=True)
    assert (failed.chunks, failed.error) == ([], "no memory")
    for stream in (True, False):
        packed = read_answer([(5, b"\x1f\x8b")], 5, {"content-encoding": "gzip"}, stream=stream)
        assert (packed.chunks, packed.error) == ([], "the answer is compressed (gzip), which was not requested")
    event = [(5, b'data: {"choices": [{"text": "a", "finish_reason": "stop"}]}\n\n')]
    assert read_answer(event, 5, plain, stream=True).chunks == [(5, 1)]  # whatever it calls that
