"""``blis-tui explain``: explains a code, a warning, a figure, a record, a term or a key."""

from __future__ import annotations

import click

from blis_tui.base.canonical import to_json
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import KINDS, format_option, known_plugins, plugins_option
from blis_tui.cli.standard_streams import print_text, reported


@click.command("explain", cls=Command)
@click.argument("word", required=False, shell_complete=completion.subjects)
@click.option("--kind", type=click.Choice(KINDS), help="Only keys of this kind of document; without WORD, all of them.")
@format_option("text", "json")
@plugins_option
@reported
def explain(word: str | None, kind: str | None, output_format: str, plugins: tuple[str, ...]) -> None:
    """Explain WORD: an error code, a warning, a metric, a term, a kind of record, a key of documents or its value.

    \b
    BLIS1001             an error code
    overload             a warning about a run
    INV-4                an invariant that every run keeps
    kv.hit_rate, steady  a metric of the report, or a section of it
    queued_us            a column of request files
    preempted            a kind of record; preempted.freed_blocks is a field of it
    TTFT, goodput        a term used on screens and in reports
    engine.max_num_seqs  a key: type, unit, default, range, values
    vllm-v1, gamma       a value of a key, such as a policy, and the keys it takes
    rate, tp             keys with this word, or with this name in other tools

    Without WORD, list everything that can be explained; with --kind, the keys as a tree.
    """  # noqa: D301  (click's mark for lines it must not join)
    from blis_tui.spec.subjects import all_keys, everything, subjects  # noqa: PLC0415  (heavy imports only here)

    known = known_plugins(plugins)
    if word is not None:
        answers = subjects(word, kind, known)
    else:
        answers = [everything() if kind is None else all_keys(kind.capitalize(), known)]
    if output_format == "json":
        print_text(to_json(answers[0].data if len(answers) == 1 else [subject.data for subject in answers]), nl=False)
    else:
        print_text("\n".join(subject.text for subject in answers), nl=False)
