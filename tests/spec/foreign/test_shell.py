"""Shell scripts: which commands they start, as far as their text says it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.base.errors import BlisError, SpecError
from blis_tui.base.source import Source
from blis_tui.spec.foreign.shell import commands


def started(text: str, **given: str) -> list[str]:
    """The commands of a script, each as one line; what is not known is between angle brackets."""
    found = commands(Source("s", text), given)
    return [" ".join(f"<{word.unknown}>" if word.unknown else word.text for word in one.words) for one in found]


def test_words_of_a_script() -> None:
    text = """# start
A='a b' B="$A c" # end
export C=$B; run --x="$C" '$C' \\
  two\\ words \"${D:-none}\" $(date) | tee log
"""
    found = [[word.text for word in command.words] for command in commands(Source("s", text))]
    assert found == [["run", "--x=a b c", "$C", "two words", "none", "$(date)"], ["tee", "log"]]


def test_redirections_and_documents_are_no_words() -> None:
    text = """cat > options.yaml <<'EOF' && next a
vllm serve no
EOF
run --x 1 > log.txt 2>&1 < /dev/null & wait
read -r a <<< "$b"
"""
    found = commands(Source("s", text))
    assert [[word.text for word in one.words] for one in found] == [
        *(["cat"], ["next", "a"], ["run", "--x", "1"], ["wait"])
    ]
    assert found[2].words[0].place.span.line == 4


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("for i in 0 {2..3} $(seq 5 6); do a $i; done", "a 0|a 2|a 3|a 5|a 6"),
        ("for ((i=0; i<2; i++)); do a $((8100 + i * 2)); done", "a 8100|a 8102"),
        (
            'IFS=, read -ra P <<< "x,y"\nfor i in "${!P[@]}"; do a ${P[$i]} ${P[i]} of ${#P[@]}; done',
            "a x x of 2|a y y of 2",
        ),
        (
            "L=x,y; for p in ${L//,/ }; do a $p; done; for p in $(echo $L | tr ',' ' '); do b $p; done",
            "a x|a y|b x|b y",
        ),
        ("i=0; while [ $i -lt 2 ]; do a $i; i=$((i+1)); done", "a 0|a 1"),
        ("for i in 1 2 3; do [ $i -eq 2 ] && continue; a $i; [[ $i == 3 ]] || b; done", "a 1|b|a 3"),
        ('f() {\n local x=$1; shift\n a $x "$@" &\n}\nf 1 "b c" d\nfunction g { f 2; return; a; }; g', "a 1 b c d|a 2"),
        (
            'A=(x "y z"); A+=(w); a "${A[@]}" "${A[*]}" ${A[1]} $(IFS=,; echo "${A[*]}")',
            "a x y z w x y z w y z x,y z,w",
        ),
        (
            "M=org/name; a ${M##*/} ${M%/*} ${M^^} ${M:+--m $M} ${N:+no} $(basename $M)",
            "a name org ORG/NAME --m org/name name",
        ),
        ('if [ "$A" = x ]; then a; elif [[ $B -ge 2 && -n "$B" ]]; then b; else c; fi', "b"),
        ("case $A in x|y) a ;; z*) b ;; *) c ;; esac", "b"),
        ('C="a --j \'{\\"k\\": 1}\'"; eval "$C &"', 'a --j {"k": 1}'),
        ('main() { a "$@"; }\nmain "$@"', "a"),
        ("X=1 Y=2 env Z=3 nohup a $X; exit; b", "a <$X>"),
        ('( cd x && a ) & { b; }; c "${A[@]+"${A[@]}"}"', "cd x|a|b|c <${A[@]}>"),
    ],
)
def test_what_a_script_starts(text: str, found: str) -> None:
    known = {"A": "zoo", "B": "3"} if "if [" in text or "case" in text else {}
    assert "|".join(started(text, **known)) == found


def test_of_an_unknown_condition_all_branches_are_read() -> None:
    """A variable that they leave with different values is not known behind it."""
    text = "S=8; X=1; if [ $MODE = fast ]; then X=2; a $X; else b; fi; c $X $S"
    assert started(text) == ["a 2", "b", "c <$X> 8"]
    assert [command.condition for command in commands(Source("s", text))] == [
        "[ $MODE = fast ]",
        "[ $MODE = fast ]",
        "",
    ]
    assert started(text, MODE="slow") == ["b", "c 1 8"]
    assert started("X=1; while ! curl u; do X=2; sleep 1; done; a $X") == ["sleep 1", "a 1"]
    assert started("X=1; for d in $UNSET; do X=$d; done; a $X") == ["a <$X>"]


def test_values_do_not_grow_without_end() -> None:
    assert started("A=xx; for i in {1..40}; do A=$A$A; done; a $A") == ["a <$A>"]
    with pytest.raises(SpecError, match="the list `A` is too long"):
        started('A=(x y); for i in {1..40}; do A+=("${A[@]}"); done')


@pytest.mark.parametrize("text", ["while true; do a; done", "while true; do :; done", "f() { f; f; }; f"])
def test_a_script_without_end_is_refused(text: str) -> None:
    with suppress(BlisError):
        assert len(commands(Source("s", text))) < 30_000
    if "while" in text:
        with pytest.raises(SpecError, match="the script's loops do not end"):
            commands(Source("s", text))


@given(st.text("ab$({['\"\\ \n;&|#=-)}]:A<>0", max_size=60))
def test_any_script_is_read_or_refused(text: str) -> None:
    with suppress(BlisError):
        commands(Source("s", text))


KEYWORDS = (
    "if [ $A = 1 ] [[ then else fi for i in 1 2 {0..3} do done while true case esac ) ( { } f() f ; & && || | "
    "$(seq 1 3) $((i+1)) ((i++)) ${A[@]} A=(x) read -ra P <<< break exit"
)


@given(st.lists(st.sampled_from([*KEYWORDS.split(), "\n"]), max_size=25))
def test_any_order_of_keywords_is_read_or_refused(words: list[str]) -> None:
    with suppress(BlisError):
        commands(Source("s", " ".join(words)))
