import pytest

from blis_tui.base.errors import InputError
from blis_tui.debugger.places import Place, parse_instance, parse_place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("1234", Place(event=1234)),
        ("1,234", Place(event=1234)),
        ("#12", Place(event=12)),
        ("event 12", Place(event=12)),
        ("1.5s", Place(time_us=1_500_000)),
        ("0.000001 s", Place(time_us=1)),
        ("200ms", Place(time_us=200_000)),
        ("12.3456ms", Place(time_us=12_345)),
        ("300 us", Place(time_us=300)),
        ("300µs", Place(time_us=300)),
        ("2min", Place(time_us=120_000_000)),
        ("0.5min", Place(time_us=30_000_000)),
        ("request_12", Place(request="request_12")),
        ("request 7b", Place(request="7b")),
        ("1.5", Place(request="1.5")),
        (" chat-3 ", Place(request="chat-3")),
        ("start", Place(event=0)),
        ("end", Place(end=True)),
        ("request end", Place(request="end")),
    ],
)
def test_places(text: str, place: Place) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["", "  ", "9" * 40, "9" * 40 + "s", "9" * 10_000, "9" * 10_000 + ".5s"])
def test_no_places(text: str) -> None:
    with pytest.raises(InputError) as told:
        parse_place(text)
    assert len(str(told.value)) < 200


def test_leading_zeros_are_none_too_many() -> None:
    assert parse_place("0" * 10_000 + "12") == Place(event=12)


@pytest.mark.parametrize("text", ["3", "i3", "instance 3", "03"])
@pytest.mark.parametrize("blank", ["", " ", "\t "])
def test_an_instance_is_read_however_it_is_written(text: str, blank: str) -> None:
    assert parse_instance(blank + text + blank) == 3


@pytest.mark.parametrize("text", ["", " ", "-1", "3.5", "i", "3 4", "event 3", "1_0"])
def test_what_is_no_instance_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no instance"):
        parse_instance(text)


@pytest.mark.parametrize("text", ["1234", "event 12", "200ms", "request_7"])
def test_blanks_around_a_place_do_not_matter(text: str) -> None:
    assert parse_place(f" \t{text} ") == parse_place(text)


def test_an_instance_is_not_quoted_at_length() -> None:
    with pytest.raises(InputError, match=r"^x{60}… is no instance"):
        parse_instance("x" * 10_000)
