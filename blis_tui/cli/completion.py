"""``blis-tui completion``: the script that makes a shell complete commands, options, names and keys."""

from __future__ import annotations

from typing import Final

import click

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
"""As click's script, but for `=` inside a word, and no blank after what wants to be continued."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  eval "$(blis-tui completion bash)"      in ~/.bashrc
    zsh:   eval "$(blis-tui completion zsh)"       in ~/.zshrc
    fish:  blis-tui completion fish | source       in ~/.config/fish/config.fish
    """  # noqa: D301  (click's mark for lines it must not join)
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    from blis_tui.cli.main import cli  # noqa: PLC0415  (the group that has this command)

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    maker = kind(cli, {}, "blis-tui", _VARIABLE)
    # Not click's `source()`: for bash that would run bash to look at its version.
    template = _BASH if shell == "bash" else maker.source_template
    click.echo(template % {**maker.source_vars(), "complete_func": _FUNCTION}, nl=False)
