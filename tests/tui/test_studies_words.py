"""What is said about the points of a study, each figure against runs made another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.units import number_text
from blis_tui.spec.load import load
from blis_tui.spec.study.document import experiment_of, override_texts, source_of
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.sweep import Sweep
from blis_tui.tui.screens.study_points import (
    Board,
    FilterError,
    Order,
    columns_of,
    details,
    in_order,
    longest_bar,
    parse_filter,
    standing,
    table,
    table_columns,
    title,
)
from tests.tui.studies import ODD, fail, load_study, run_study, write_study

if TYPE_CHECKING:
    from blis_tui.model import Experiment
    from blis_tui.spec.study.study_records import Study

TTFT = "latency.ttft_ms.p99"


def ttft(experiment: Experiment) -> float:
    """The 99th percentile, in milliseconds, of a run that is made for it."""
    value = blis_tui.run(experiment).latency.ttft_ms.p99
    assert value is not None
    return value


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """Everything is known."""
    study = load_study(write_study(tmp_path_factory.mktemp("study")))
    sweep = Sweep(study)
    found = Board(study)
    found.add([now.latest for now in sweep.run(InProcessRunner())])
    return found


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """Two seeds each; one point has failed, some are no experiments, one has not been run, one only with one seed."""
    study = load_study(write_study(tmp_path_factory.mktemp("study"), ODD))
    store = run_study(study)
    fail(store, study, 1)
    sweep = Sweep(study, store=store)
    rows = [now.latest for now in sweep.look_up()]
    found = Board(study)
    found.add([row for row in rows if row.point.number != 4 and (row.point.number, row.seed) != (3, study.seeds[1])])
    return found


@pytest.fixture(scope="module")
def expected(board: Board) -> dict[int, tuple[int, float]]:
    """GPUs and TTFT of each point, from runs of the experiment with values set."""
    found = {}
    for point in board.study.points:
        experiment = blis_tui.load(source_of(board.study), set=dict(point.coordinates))
        found[point.number] = (experiment.instances, ttft(experiment))
    return found


def shown(board: Board, order: Order = Order(), width: int = 120) -> list[list[str]]:  # noqa: B008  (frozen)
    columns = table_columns(board.study, longest_bar(board.study, board.entries), order, width)
    lines = table(columns, in_order(board.entries, order))
    return [str(line.draw()).replace("█", "").split() for line in lines]


def test_every_row_says_what_a_run_gives(board: Board, expected: dict[int, tuple[int, float]]) -> None:
    for line in shown(board):
        mark = line.pop(0) if line[0] in {"*", "✗"} else ""
        at, instances, blocks, gpus, ttft = line[:5]
        assert (int(instances), int(blocks)) == tuple(board.study.points[int(at)].coordinates.values())
        assert (gpus, ttft) == tuple(number_text(value) for value in expected[int(at)])
        assert (mark == "✗") == (expected[int(at)][1] > 20)


def test_the_front_is_what_nothing_beats(board: Board, expected: dict[int, tuple[int, float]]) -> None:
    holding = {at: place for at, place in expected.items() if place[1] <= 20}

    def beaten(place: tuple[int, float]) -> bool:
        return any(other != place and other[0] <= place[0] and other[1] <= place[1] for other in holding.values())

    assert board.front == {at for at, place in holding.items() if not beaten(place)}
    assert 0 < len(board.front) < len(expected)


def test_a_point_opens_as_what_was_run(board: Board) -> None:
    study = board.study
    for entry in board.entries[::4]:
        assert entry.summary is not None
        texts = override_texts(study, entry.point)
        opened = load(source_of(study), overrides=texts, seed=study.seeds[0])
        assert opened.sha256 == entry.summary.rows[0].sha256 == experiment_of(study, entry.point, 42).sha256


def test_the_point_under_the_cursor_says_why_it_does_not_hold(
    board: Board, expected: dict[int, tuple[int, float]]
) -> None:
    broken = next(entry for entry in board.entries if entry.ok is False)
    said = str(details(board.study, broken, 60))
    assert f"✗ {TTFT} <= 20 is {number_text(expected[broken.point.number][1])}" in said
    fine = next(entry for entry in board.entries if entry.ok)
    assert f"✓ {TTFT} <= 20" in str(details(board.study, fine, 60))


def test_several_seeds_are_means_with_their_range(odd: Board) -> None:
    study, entry = odd.study, odd.entries[0]
    values = [
        ttft(blis_tui.load(source_of(study), set=dict(entry.point.coordinates), seed=seed)) for seed in study.seeds
    ]
    said = " ".join(str(details(study, entry, 80)).split())
    assert f"{TTFT} {number_text(sum(values) / 2)} {number_text(min(values))} to {number_text(max(values))}" in said
    assert f"seeds {study.seeds[0]}, {study.seeds[1]} " in said
    broken = [value > 20 for value in values].count(True)
    assert (f"(broken with {broken} of 2 seeds)" in said) == bool(broken)
    assert f"seeds {study.seeds[0]} of 2" in " ".join(str(details(study, odd.entries[3], 80)).split())


def test_what_has_no_result_says_why(odd: Board) -> None:
    statuses = [entry.status for entry in odd.entries]
    assert statuses == ["done", "failed", "invalid", "done", "pending", "invalid", "done", "done", "invalid"]
    said = {entry.status: str(details(odd.study, entry, 80)) for entry in odd.entries}
    assert "out of memory." in said["failed"]
    assert "tensor" in said["invalid"].lower()
    assert "c makes the missing runs" in said["pending"]
    assert str(standing(odd.study, odd.entries, odd.done)).startswith("15 of 18 runs, ")
    assert str(standing(odd.study, odd.entries, odd.done)).endswith("1 failed, 3 invalid")


def test_a_second_result_replaces_the_first(odd: Board) -> None:
    done = odd.done
    assert odd.entries[0].summary is not None
    odd.add(odd.entries[0].summary.rows)
    assert odd.done == done
    assert [row.seed for row in odd.result().rows][:2] == list(odd.study.seeds)


# ---- order, filter ----


def test_any_column_gives_an_order_and_what_has_no_value_comes_last(odd: Board) -> None:
    for column in columns_of(odd.study):
        for down in (False, True):
            listed = in_order(odd.entries, Order(column, down))
            assert sorted(entry.point.number for entry in listed) == list(range(9))
    listed = in_order(odd.entries, Order(TTFT, down=True))
    values = [entry.mean(TTFT) for entry in listed]
    known = [value for value in values if value is not None]
    assert values[: len(known)] == sorted(known, reverse=True)
    assert "ttft_ms.p99 ▼" in str(
        [table_column.title for table_column in table_columns(odd.study, 1.0, Order(TTFT, down=True), 100)]
    )


@pytest.mark.parametrize("width", [20, 40, 58, 78, 120])
def test_lines_fit_where_their_columns_can(board: Board, width: int) -> None:
    columns = table_columns(board.study, 1.0, Order(), width)
    least = 2 + 11 + 11 + 11 + 13 + 4 * 2
    for line in table(columns, board.entries):
        assert line.draw().cell_length <= max(width, least)


def numbers(board: Board, text: str) -> list[int]:
    matches = parse_filter(text, board.study)
    return [entry.point.number for entry in board.entries if matches is None or matches(entry)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", list(range(9))),
        ("cluster.instances >= 3", [6, 7, 8]),
        ("instances>=2 and kv_blocks != 60", [3, 5, 6, 8]),
        ("point < 2", [0, 1]),
        ("cost.gpus = 1", [0, 1, 2]),
        ("cluster.instances==2 -kv_blocks<90", [5]),
        ("pending", []),
        ("done", list(range(9))),
        ("90", [2, 5, 8]),
        ("kv_blocks", list(range(9))),
        ("kv_blocks = sixty", []),
        ("kv_blocks != sixty", list(range(9))),
        ("nothing", []),
    ],
)
def test_filters(board: Board, text: str, found: list[int]) -> None:
    assert numbers(board, text) == found


def test_filters_by_how_points_stand(board: Board, odd: Board, expected: dict[int, tuple[int, float]]) -> None:
    holding = [at for at, place in expected.items() if place[1] <= 20]
    assert numbers(board, "ok") == numbers(board, "ttft_ms.p99 <= 20") == holding
    assert numbers(board, "broken") == numbers(board, "-ok") == [at for at in expected if at not in holding]
    assert numbers(board, "front") == sorted(board.front)
    assert numbers(odd, "failed") == [1]
    assert numbers(odd, "invalid") == numbers(odd, "tensor_parallel = 3") == [2, 5, 8]
    assert numbers(odd, "pending") == [4]
    assert numbers(odd, "latency.ttft_ms.p99 > 0") == [0, 3, 6, 7]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cluster.instance > 2", "did you mean `cluster.instances`?"),
        ("ttft > 2", "no axis and no metric is named `ttft`"),
        ("instances > many", "`many` is not a number"),
        ("instances >", "is an incomplete comparison"),
        ("> 3", "is an incomplete comparison"),
    ],
)
def test_a_slip_in_a_filter_is_told(board: Board, text: str, said: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text, board.study)
    assert said in str(caught.value)


def test_marks(board: Board) -> None:
    study = board.study
    own = Board(study)
    for number_of in (1, 5, 7):
        own.mark(number_of)
    assert [entry.point.number for entry in own.marked] == [5, 7]
    own.mark(5)
    assert [entry.point.number for entry in own.entries if entry.marked] == [7]
    assert numbers(own, "marked") == [7]
    assert str(title(study, None)) == "sizing  9 points of demo"
    assert str(title(study, 3)) == "sizing  3 of 9 points shown"


def test_an_empty_study_can_be_shown(board: Board) -> None:
    study: Study = board.study
    assert all(len(line) == 4 for line in shown(Board(study)))
