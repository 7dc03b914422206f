"""The formatter changes layout and nothing else, and knows when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blis_tui.base.errors import SpecError
from blis_tui.base.source import Source
from blis_tui.spec.authoring.layout import comments, format_source
from blis_tui.spec.read import parse
from blis_tui.spec.shipped import shipped_specs

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

MESSY = """\


# yaml-language-server: $schema=x.json
# what it is


kind:   Experiment   # the kind
apiVersion: "blis/v1"
metadata:  { name : 'mine' ,  description: 'It''s "quoted"' }  # who


# the load
workload:
    # inside
    clients:
    - id:   'chat'     # a client
      # about arrivals
      arrivals:
           kind: gamma
           cv:   2.0
      input_tokens: {kind: gaussian,
         mean: 256, std_dev: 100,   # spread
         min: 2, max: 800
      }
      # end of chat
    -   id: 'other one'
        output_tokens: [1,2,
             3]
        tenant: "yes"
    # after the clients
    rate_per_s: 8.0


model:
   config_file: >-
      a long
       indented

      text
   # after block
   name: |+
     kept

hardware:
      "h100"
seed: 42
unknown: 1
# the end

"""


def formatted(text: str) -> str:
    done = format_source(Source("x.yaml", text))
    assert done.left_alone == ""
    return done.text


def test_everything_at_once(file_regression: FileRegressionFixture) -> None:
    text = formatted(MESSY)
    file_regression.check(text, extension=".yaml")
    assert formatted(text) == text
    assert parse(Source("x", text)).data == parse(Source("x", MESSY)).data
    assert comments(text) == comments(MESSY)


@pytest.mark.parametrize("path", sorted(shipped_specs().glob("*/*.yaml")), ids=lambda path: path.name)
def test_shipped_documents_are_in_their_normal_form(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert formatted(text) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 'x'", "a: x\n"),
        ("a: 'no'", 'a: "no"\n'),
        ("a: '12'", 'a: "12"\n'),
        ("a: 'two words'", 'a: "two words"\n'),
        ("a: 'a \"b\"'", "a: 'a \"b\"'\n"),
        ("\ufeffa: 1\r\nb: 2\r\n", "a: 1\nb: 2\n"),
        ("a:\n- 1\n-   b: 2\n    c: 3\n", "a:\n  - 1\n  - b: 2\n    c: 3\n"),
        ("a: [ 1,2 , {b : 3} ]", "a: [1, 2, {b: 3}]\n"),
        ("a: 1 # short gap", "a: 1  # short gap\n"),
        ("a: 1          # column kept", "a: 1          # column kept\n"),
        ("---\na: 1\n", "---\na: 1\n"),
    ],
)
def test_layout(before: str, after: str) -> None:
    assert formatted(before) == after


def test_a_comment_travels_with_its_key() -> None:
    text = "# head\nkind: Hardware\n\n# second\nmetadata: {name: x}\n# first\napiVersion: blis/v1\n# foot\n"
    ordered = "# head\n\n# first\napiVersion: blis/v1\nkind: Hardware\n\n# second\nmetadata: {name: x}\n# foot\n"
    done = formatted(text)
    assert done.splitlines()[-1] == "# foot"
    assert done.index("# first\napiVersion") < done.index("kind: Hardware") < done.index("# second\nmetadata")
    assert sorted(done.split()) == sorted(ordered.split())


@pytest.mark.parametrize(
    "text",
    [
        "? a\n: 1\n",
        "a: |2\n    text\nb:    1\n",
        "%YAML 1.2\n---\na:   1\n",
        "a: 'x\u2028  y'\n",
        'a:   "x\\ \n  y"\n',
    ],
)
def test_what_cannot_be_laid_out_safely_is_left_alone(text: str) -> None:
    done = format_source(Source("x", text))
    assert done.text == text
    assert done.left_alone


def test_the_order_of_a_document_with_anchors_stays() -> None:
    text = "kind: Hardware\nwatts: &w {peak: 1}\nmfu: *w\n"
    assert formatted(text) == text


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(SpecError):
        format_source(Source("x", "a: 1\na: 2\n"))


WORDS = st.sampled_from(
    [
        *("a", "b c", "yes", "1", "x: y", "# no", "it's", 'say "hi"', "two\nlines\n", "end\n\n", "  lead", "é日本"),
        *("-", "?", "{", "[a]", "&x", "*y", "!t", "%", "@", "a#b", "a #b", "", "~", "long " * 30, "\\n"),
    ]
)
VALUES = st.recursive(
    st.one_of(st.integers(-5, 10**6), st.booleans(), st.none(), st.floats(0, 1e9), WORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["k1", "k2", "a b", "q'"]), inner, max_size=3)
    ),
    max_leaves=12,
)
DATA = st.dictionaries(st.sampled_from(["seed", "model", "engine", "cluster", "zz"]), VALUES, min_size=1)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=DATA,
    flow=st.sampled_from([None, True, False]),
    style=st.sampled_from([None, None, '"', "'", "|", ">"]),
    indent=st.integers(2, 6),
    width=st.sampled_from([20, 80, 200]),
    remarks=st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 6)), max_size=4),
)
def test_any_document_keeps_its_values_and_comments(
    data: dict[str, object],
    flow: bool | None,
    style: str | None,
    indent: int,
    width: int,
    remarks: list[tuple[int, int]],
) -> None:
    text = yaml.safe_dump(
        {"kind": "Experiment", **data},
        default_flow_style=flow,
        default_style=style,
        indent=indent,
        width=width,
        sort_keys=False,
        allow_unicode=True,
    )
    for number, (at, column) in enumerate(remarks):
        lines = text.split("\n")
        place = at % len(lines)
        if column < 0:
            lines[place] += f" # end {number}"
        else:
            lines.insert(place, " " * column + f"# line {number}")
        text = "\n".join(lines)
    try:
        before = parse(Source("x", text)).data
    except SpecError:
        return
    done = format_source(Source("x", text))
    assert parse(Source("x", done.text)).data == before
    if not done.left_alone:
        assert comments(done.text) == comments(text)
        assert formatted(done.text) == done.text
        assert not any(line != line.rstrip() for line in done.text.split("\n")) or "|" in text or ">" in text
    else:
        assert done.text == text
