"""Random streams: frozen known answers, independence, moments, and pickling in mid-stream."""

import math
import pickle
from collections.abc import Callable
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.streams import Stream, Streams, stream_key

DRAWS = 20_000


def moments(draw: Callable[[], float], count: int = DRAWS) -> tuple[float, float]:
    """Sample mean and variance."""
    values = [draw() for _ in range(count)]
    mean = math.fsum(values) / count
    return mean, math.fsum((value - mean) ** 2 for value in values) / count


def copy(stream: Stream) -> Stream:
    found = pickle.loads(pickle.dumps(stream))  # noqa: S301
    assert isinstance(found, Stream)
    return found


# Frozen for ever: generated workloads are functions of these words.
KNOWN = {
    (0, "", 0): 0x946209EBBB0A051C,
    (0, "workload/client-3/arrivals", 0): 0x6EF887E958E05F7E,
    (42, "workload/client-3/arrivals", 0): 0xC35505775D2AEFF9,
    (42, "workload/client-3/arrivals", 7): 0x58E88C5D7FA45CBA,
    (42, "workload/client-3/arrivals", 8): 0x14ECF7CA5051B4CF,
    (42, "workload/client-3/arrivals", 1000): 0x7D119354C5093D71,
    (18446744073709551616, "router/tie-break", 1): 0x1C313785C5AD95B4,
}


@pytest.mark.parametrize(("seed", "name", "number"), list(KNOWN))
def test_known_answers(seed: int, name: str, number: int) -> None:
    stream = Streams(seed).stream(name)
    for _ in range(number):
        stream.next_word()
    assert stream.next_word() == KNOWN[seed, name, number]


def test_the_construction_is_the_documented_one() -> None:
    key = blake2b(b"42\0workload/client-3/arrivals", digest_size=32).digest()
    assert stream_key(42, "workload/client-3/arrivals") == key
    block = blake2b((3).to_bytes(8, "little"), key=key).digest()
    assert Stream(key, 29).next_word() == int.from_bytes(block[40:48], "little")


def test_streams_differ_by_seed_and_by_name() -> None:
    first = [
        Streams(seed).stream(name).next_word() for seed in (0, 1, 12, 2**70) for name in ("a", "b", "2a", "a/b", "")
    ]
    assert len(dict.fromkeys(first)) == len(first)


def test_consumers_do_not_disturb_each_other() -> None:
    streams = Streams(7)
    alone = [streams.stream("a").next_word() for _ in range(1)]
    a, b = streams.stream("a"), streams.stream("b")
    b.next_word()
    assert a.next_word() == alone[0]


@given(st.integers(0, 2**64), st.text(max_size=20), st.lists(st.sampled_from("wunge"), max_size=40))
def test_a_pickled_stream_continues_alike(seed: int, name: str, draws: list[str]) -> None:
    stream = Streams(seed).stream(name)
    sample: dict[str, Callable[[Stream], float]] = {
        "w": Stream.next_word,
        "u": Stream.uniform,
        "n": Stream.normal,
        "g": lambda one: one.gamma(0.7),
        "e": Stream.exponential,
    }
    for draw in draws:
        sample[draw](stream)
    other = copy(stream)
    for draw in (*draws, *"wwwwnnugennwwwwww"):
        assert sample[draw](other) == sample[draw](stream)


def test_a_pickle_is_small_and_does_not_grow() -> None:
    stream = Streams(1).stream("x")
    for _ in range(10_001):
        stream.normal()
    assert len(pickle.dumps(stream)) < 150


@given(st.integers(1, 2**64), st.integers(0, 100))
def test_whole_numbers_stay_below_their_bound(n: int, seed: int) -> None:
    stream = Streams(seed).stream("below")
    assert all(0 <= stream.below(n) < n for _ in range(5))


@pytest.mark.parametrize("n", [0, -1, 2**64 + 1])
def test_impossible_bounds_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match="no whole number below"):
        Streams(0).stream("x").below(n)


def test_whole_numbers_are_even() -> None:
    stream = Streams(5).stream("dice")
    counts = [0] * 6
    for _ in range(60_000):
        counts[stream.below(6)] += 1
    chi_square = math.fsum((count - 10_000) ** 2 / 10_000 for count in counts)
    assert chi_square < 20.5  # 0.1 % at 5 degrees of freedom


def test_uniform_numbers() -> None:
    stream = Streams(11).stream("uniform")
    mean, variance = moments(stream.uniform)
    assert mean == pytest.approx(1 / 2, abs=4 * math.sqrt(1 / 12 / DRAWS))
    assert variance == pytest.approx(1 / 12, rel=0.03)
    assert all(0.0 <= stream.uniform() < 1.0 and 0.0 < stream.uniform_open() < 1.0 for _ in range(1000))


def test_exponential_numbers() -> None:
    mean, variance = moments(Streams(12).stream("exponential").exponential)
    assert mean == pytest.approx(1.0, abs=4 / math.sqrt(DRAWS))
    assert variance == pytest.approx(1.0, abs=4 * math.sqrt(8 / DRAWS))


def test_normal_numbers() -> None:
    stream = Streams(13).stream("normal")
    values = sorted(stream.normal() for _ in range(DRAWS))
    # Kolmogorov-Smirnov against the normal distribution, 0.1 % level.
    distance = max(
        abs((rank + 0.5) / DRAWS - (1 + math.erf(value / math.sqrt(2))) / 2) for rank, value in enumerate(values)
    )
    assert distance < 1.95 / math.sqrt(DRAWS)


@pytest.mark.parametrize("shape", [0.05, 0.3, 1.0, 2.5, 40.0])
def test_gamma_numbers(shape: float) -> None:
    stream = Streams(14).stream(f"gamma/{shape}")
    mean, variance = moments(lambda: stream.gamma(shape))
    assert mean == pytest.approx(shape, abs=4 * math.sqrt(shape / DRAWS))
    # Var(s^2) = (mu4 - var^2) / n with mu4 = 3 k^2 + 6 k.
    assert variance == pytest.approx(shape, abs=4 * math.sqrt((2 * shape**2 + 6 * shape) / DRAWS))


def test_gamma_needs_a_positive_shape() -> None:
    with pytest.raises(ValueError, match="no gamma distribution of shape 0"):
        Streams(0).stream("x").gamma(0.0)
