"""Our data classes and named tuples behave like the standard library's; only their methods are made later."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import sys
from dataclasses import KW_ONLY, FrozenInstanceError, field, fields, replace
from dataclasses import dataclass as standard
from operator import lt
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pytest

from blis_tui.base import classes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PACKAGE = Path(classes.__file__).parents[1]


class Family(NamedTuple):
    """The same classes, made by either decorator."""

    plain: Any
    frozen: Any
    child: Any
    grandchild: Any
    mixed: Any
    ordered: Any
    identity: Any
    empty: Any
    single: Any


def family(dataclass: Any) -> Family:
    @dataclass
    class Plain:
        a: int
        b: list[int] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Frozen:
        a: int
        b: str = "b"
        hidden: float = field(default=0.0, compare=False, repr=False)
        kind: ClassVar[str] = "kind"

        def __init_subclass__(cls) -> None:
            cls.seen = True  # type: ignore[attr-defined]

        @property
        def twice(self) -> int:
            return 2 * self.a

    @dataclass(frozen=True, slots=True)
    class Child(Frozen):
        b: str = "child"
        c: tuple[int, ...] = ()

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Grandchild(Child):
        d: dict[str, int] = field(default_factory=dict, hash=False)
        e: None = None

    @dataclass(slots=True)
    class Mixed:
        a: int
        made: list[int] = field(init=False)
        counted: int = field(init=False, default=7)
        listed: list[int] = field(init=False, default_factory=list, repr=False)
        _: KW_ONLY
        b: int = 1
        c: str

        def __post_init__(self) -> None:
            self.made = [self.a] * self.b

    @dataclass(order=True, slots=True)
    class Ordered:
        a: int
        b: str = field(default="", compare=False)

    @dataclass(slots=True, eq=False)
    class Identity:
        a: int

        def __repr__(self) -> str:
            return "mine"

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclass(frozen=True)
    class Single:
        a: object

        def __hash__(self) -> int:
            return 42

    return Family(Plain, Frozen, Child, Grandchild, Mixed, Ordered, Identity, Empty, Single)


OURS, THEIRS = family(classes.dataclass), family(standard)
NAN = float("nan")
CALLS: dict[str, tuple[Callable[[Family], Any], ...]] = {
    "plain": (lambda of: of.plain(1), lambda of: of.plain(1, [2]), lambda of: of.plain(b=[], a=2)),
    "frozen": (lambda of: of.frozen(1), lambda of: of.frozen(1, "c", 2.0), lambda of: of.frozen(1, hidden=3.0)),
    "child": (lambda of: of.child(1), lambda of: of.child(1, "b", 0.0, (1,))),
    "grandchild": (lambda of: of.grandchild(1, d={"x": 1}), lambda of: of.grandchild(1)),
    "mixed": (lambda of: of.mixed(1, c="c"), lambda of: of.mixed(2, b=3, c="c")),
    "ordered": (lambda of: of.ordered(1), lambda of: of.ordered(1, "b"), lambda of: of.ordered(2)),
    "identity": (lambda of: of.identity(1), lambda of: of.identity(1)),
    "empty": (lambda of: of.empty(), lambda of: of.empty()),
    "single": (lambda of: of.single(1), lambda of: of.single("1"), lambda of: of.single(NAN)),
}


def outcome(work: Callable[..., object], *arguments: object) -> object:
    """The result of a call, or the type and message of its error."""
    try:
        return work(*arguments)
    except (TypeError, AttributeError, ValueError) as error:
        return type(error), str(error).replace("_made.<locals>", "family.<locals>")


@pytest.mark.parametrize("name", Family._fields)
def test_objects_are_those_of_the_standard_library(name: str) -> None:
    ours, theirs = getattr(OURS, name), getattr(THEIRS, name)
    mine, other = ([call(of) for call in CALLS[name]] for of in (OURS, THEIRS))
    if name != "identity":
        assert [repr(one) for one in mine] == [repr(one) for one in other]
        assert [outcome(hash, one) for one in mine] == [outcome(hash, one) for one in other]
    pairs = [(a, b) for a in range(len(mine)) for b in range(len(mine))]
    assert [mine[a] == mine[b] for a, b in pairs] == [other[a] == other[b] for a, b in pairs]
    assert [outcome(lt, mine[a], mine[b]) for a, b in pairs] == [outcome(lt, other[a], other[b]) for a, b in pairs]
    for one, like in zip(mine, other, strict=True):
        assert [getattr(one, part.name) for part in fields(one)] == [getattr(like, part.name) for part in fields(like)]
        assert hasattr(one, "__dict__") == hasattr(like, "__dict__")
        assert str(replace(one)) == str(one)
        assert str(copy.deepcopy(one)) == str(one)
        assert list(map(repr, dataclasses.astuple(one))) == list(map(repr, dataclasses.astuple(like)))
        assert one != like
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__qualname__ == theirs.__qualname__
    properties = ("name", "type", "init", "repr", "compare", "hash", "kw_only", "default")
    assert [[getattr(one, word) for word in properties] for one in fields(ours)] == [
        [getattr(one, word) for word in properties] for one in fields(theirs)
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda of: of.plain(),
        lambda of: of.plain(1, 2, 3),
        lambda of: of.plain(1, c=3),
        lambda of: of.mixed(1),
        lambda of: of.mixed(1, 2, c=""),
        lambda of: of.mixed(1, made=[], c=""),
        lambda of: of.empty(1),
        lambda of: setattr(of.frozen(1), "a", 2),
        lambda of: delattr(of.frozen(1), "a"),
        lambda of: setattr(of.child(1), "a", 2),
        lambda of: setattr(of.single(1), "a", 2),
        lambda of: setattr(of.identity(1), "b", 2),
        lambda of: of.ordered(1) < 2,
        lambda of: of.frozen(1) < of.frozen(2),
        lambda of: replace(of.mixed(1, c=""), counted=3),
    ],
)
def test_what_is_wrong_is_told_as_by_the_standard_library(wrong: Callable[[Family], object]) -> None:
    found = outcome(wrong, OURS)
    assert found == outcome(wrong, THEIRS)
    assert isinstance(found, tuple)


@classes.dataclass(frozen=True, slots=True)
class Kept:
    a: int
    b: str = ""


class Below(Kept):
    """Accepts attributes that are not fields."""


def test_it_comes_back_from_a_pickle() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(Kept(1, "x"), protocol))  # noqa: S301  (just made)
        assert again == Kept(1, "x")
        assert type(again) is Kept


def test_only_fields_are_frozen_below_a_frozen_class() -> None:
    below = Below(1)
    below.more = 2  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        Kept(1).more = 2  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        below.a = 2  # type: ignore[misc]


def test_each_kind_of_class_may_inherit_from_the_other() -> None:
    @standard(frozen=True, slots=True)
    class Theirs(Kept):
        c: int = 3

    @classes.dataclass(frozen=True, slots=True)
    class Ours(Theirs):
        d: int = 4

    assert Theirs(1, c=5) == Theirs(1, "", 5)
    assert Ours(1, d=6) == Ours(1, "", 3, 6)
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        standard(type("Open", (Kept,), {"__annotations__": {}}))


def test_patterns_see_its_fields() -> None:
    match Kept(1, "x"):
        case Kept(a, b):
            assert (a, b) == (1, "x")


def test_a_default_that_can_change_is_refused() -> None:
    with pytest.raises(ValueError, match="mutable default"):

        @classes.dataclass
        class Wrong:
            a: list[int] = []  # noqa: RUF012


def test_nothing_is_compiled_for_few_objects_and_once_for_many() -> None:
    compiled: list[object] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "exec":
            compiled.append(arguments[0].co_names)

    watching = True
    sys.addaudithook(watch)

    @classes.dataclass(frozen=True, slots=True)
    class New:
        a: int

    assert {New(2), New(2), New(3)} == {New(2), New(3)}
    assert compiled == []
    for number in range(100):
        assert New(number) == New(a=number)
    assert len(compiled) == 1
    watching = False


def test_all_objects_of_a_class_are_made_alike_from_the_first_to_the_last() -> None:
    @classes.dataclass(frozen=True, slots=True)
    class Alike:
        a: int
        b: list[int] = dataclasses.field(default_factory=list)
        c: int = dataclasses.field(default=3, kw_only=True)
        d: int = dataclasses.field(init=False, default=4)
        e: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "e", self.a + 1)

    made = [Alike(1, c=5) for _ in range(100)]
    assert {repr(alike) for alike in made} == {repr(made[0])} == {repr(made[0]).replace("c=3", "c=5")}
    made[0].b.append(1)
    assert [alike.b for alike in made[1:]] == [[]] * 99


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing 1 required positional argument: 'a'"),
        ((1, 2, 3), {}, "takes from 2 to 3 positional arguments but 4 were given"),
        ((1,), {"a": 2}, "got multiple values for argument 'a'"),
        ((1,), {"d": 2}, "got an unexpected keyword argument 'd'"),
    ],
)
def test_wrong_arguments_are_told_of_the_first_object(
    args: tuple[int, ...], kwargs: dict[str, int], message: str
) -> None:
    @classes.dataclass(frozen=True)
    class Strict:
        a: int
        b: int = 2

    for _ in range(2):
        with pytest.raises(TypeError, match=message):
            Strict(*args, **kwargs)
    assert Strict(1) == Strict(1, 2)


# ---- named tuples ----


class Quick(classes.NamedTuple):
    """One of ours."""

    a: int
    b: Sequence[str] = ("b",)
    c: None = None

    @property
    def twice(self) -> int:
        """Not a field."""
        return 2 * self.a

    def __str__(self) -> str:
        return f"{self.a}!"


class Usual(NamedTuple):
    """One of the standard library's."""

    a: int
    b: Sequence[str]
    c: None


def test_named_tuples_are_those_of_the_standard_library() -> None:
    quick, other = Quick(1, c=None), Usual(1, ("b",), None)
    assert tuple(quick) == tuple(other) == (1, ("b",), None)
    assert hash(quick) == hash(other)
    assert repr(quick) == repr(other).replace("Usual", "Quick")
    assert (Quick._fields, Quick.__match_args__) == (Usual._fields, Usual.__match_args__)
    assert Quick._field_defaults == {"b": ("b",), "c": None}
    assert quick._asdict() == other._asdict()
    assert quick._replace(a=2) == Quick._make([2, ("b",), None]) == (2, ("b",), None)
    assert (quick.twice, str(quick), Quick.__doc__, Quick.__mro__) == (2, "1!", "One of ours.", (Quick, tuple, object))
    assert (Quick.__module__, Quick.__qualname__) == (__name__, "Quick")
    back = pickle.loads(pickle.dumps(quick))  # noqa: S301  (our own)
    assert back == quick
    assert type(copy.copy(quick)) is type(back) is Quick
    assert not hasattr(quick, "__dict__")


@pytest.mark.parametrize("wrong", [(), (1, 2, 3, 4)])
def test_a_wrong_number_of_fields_is_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(TypeError):
        Quick(*wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Expected 3 arguments"):
        Quick._make(wrong)


def test_all_of_the_package_uses_them() -> None:
    users = [path for path in PACKAGE.rglob("*.py") if path.name != "classes.py"]
    not_ours = re.compile(r"dataclasses import dataclass|typing import .*NamedTuple")
    assert [path for path in users if not_ours.search(path.read_text(encoding="utf-8"))] == []
