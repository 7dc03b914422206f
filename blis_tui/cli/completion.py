"""Shell completion: names of documents, keys for ``--set``, codes; and the script that enables it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from blis_tui.cli.help import Command
from blis_tui.cli.standard_streams import print_data, reported

if TYPE_CHECKING:
    from collections.abc import Iterable

_FILE: Final = "file"
_VARIABLE: Final = "_BLIS_TUI_COMPLETE"
_FUNCTION: Final = "_blis_tui_completion"

_BASH: Final = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response completion type value i cword=0 prefix
    local words=()

    # To bash, `a=b` is three words; to the command it is one.
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        if [[ $i -gt 1 && -n ${COMP_WORDS[i]} && ( ${COMP_WORDS[i]} == "=" || ${COMP_WORDS[i-1]} == "=" ) ]]; then
            words[${#words[@]}-1]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
        if [[ $i -le $COMP_CWORD ]]; then cword=$((${#words[@]} - 1)); fi
    done
    prefix=${words[cword]%%"${words[cword]##*=}"}

    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$cword %(complete_var)s=bash_complete $1)
    for completion in $response; do
        IFS=',' read type value <<< "$completion"
        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("${value#"$prefix"}")
        fi
    done
    if [[ ${COMPREPLY[0]} == *[=.] ]]; then compopt -o nospace; fi
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
"""click's script, adapted to `=` within a word, and without a blank after an incomplete word."""


def experiments(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of experiments, and files."""
    return _names(incomplete, "Experiment")


def studies(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of studies and experiments, and files."""
    return _names(incomplete, "Study", "Experiment")


def documents(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of documents (of the kind in ``--kind``, if given), and files."""
    kind = context.params.get("kind")
    return _names(incomplete, *([kind.capitalize()] if isinstance(kind, str) else []))


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete files only."""
    return [CompletionItem(incomplete, type=_FILE)]


def assignments(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete ``path=`` for every key of an experiment, and after the ``=`` the words that the key accepts."""
    from blis_tui.spec.authoring.key_tree import root  # noqa: PLC0415  (only when TAB is pressed)

    path, equals, _ = incomplete.partition("=")
    if not equals:
        keys = [key for key in root("Experiment").walk() if not key.is_list and len(key.path) > 0]
        paths = {key.dotted: key.description for key in keys if not key.children or key.document}
        return _items(((f"{name}=", about) for name, about in paths.items()), incomplete)
    named = [key for key in root("Experiment").walk() if key.dotted == path]
    words = {choice.value: choice.description for key in named for choice in key.choices}
    if any(key.type == "true or false" for key in named):
        words |= {"true": "", "false": ""}
    for key in named:
        if key.document:
            words |= dict.fromkeys(_known(key.document), "")
    return _items(((f"{path}={word}", about) for word, about in words.items()), incomplete)


def metrics(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete metrics for bounds and objectives."""
    from blis_tui.spec.metric_names import (  # noqa: PLC0415
        COSTS,
        all_metrics,
    )

    known = {**dict.fromkeys(sorted(all_metrics()), ""), **COSTS}
    goal, colon, begun = incomplete.rpartition(":")
    return _items(
        ((f"{goal}{colon}{name}", unit) for name, unit in known.items() if name.startswith(begun)), incomplete
    )


def keys(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete dotted paths of keys."""
    from blis_tui.spec.authoring.key_tree import root  # noqa: PLC0415
    from blis_tui.spec.schema import KINDS  # noqa: PLC0415

    kind = next((candidate for candidate in KINDS if incomplete.startswith(f"{candidate}.")), None)
    chosen = kind or "Experiment"
    known = {key.shown(chosen): key.description for key in root(chosen).walk() if key.path}
    if kind is None:
        known |= {f"{candidate}.": root(candidate).description for candidate in KINDS}
    return _items(known.items(), incomplete)


def subjects(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete what ``explain`` accepts: codes, warnings, records, terms, and paths of keys."""
    from blis_tui.spec.subjects import names  # noqa: PLC0415  (only when TAB is pressed)

    completions = keys(context, parameter, incomplete)
    if not context.params.get("kind"):
        known = tuple(names())
        completions = [
            *_items(known, incomplete.upper() if incomplete.lower().startswith("blis") else incomplete),
            *completions,
        ]
    return completions


def _names(incomplete: str, *kinds: str) -> list[CompletionItem]:
    if "/" in incomplete or incomplete.startswith("."):
        return [CompletionItem(incomplete, type=_FILE)]
    # The file item must come first, because in bash it empties the list.
    return [CompletionItem(incomplete, type=_FILE), *_items(((name, "") for name in _known(*kinds)), incomplete)]


def _known(*kinds: str) -> list[str]:
    """Return names of documents of these kinds (default: all), from the working directory's ``specs/`` and the package.

    Names with control characters are left out, because an escaped form would not be the name.
    """
    from pathlib import Path  # noqa: PLC0415  (not needed to print the script)

    from blis_tui.base.text import printable  # noqa: PLC0415
    from blis_tui.spec.library import entries  # noqa: PLC0415

    names = {entry.name for entry in entries(Path.cwd()) if not kinds or entry.kind in kinds}
    return sorted(name for name in names if printable(name) == name)


def _items(known: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name, help=about or None) for name, about in known if name.startswith(incomplete)]


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
@reported
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash:  eval "$(blis-tui completion bash)"      in ~/.bashrc
    zsh:   eval "$(blis-tui completion zsh)"       in ~/.zshrc
    fish:  blis-tui completion fish | source       in ~/.config/fish/config.fish
    """  # noqa: D301  (click's mark for lines it must not join)
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    maker = kind(context.find_root().command, {}, "blis-tui", _VARIABLE)
    # click's `source()` would run bash to find its version.
    template = _BASH if shell == "bash" else maker.source_template
    print_data(template % {**maker.source_vars(), "complete_func": _FUNCTION})
