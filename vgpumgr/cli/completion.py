"""``vgpumgr completion``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from vgpumgr.cli.declarations import Argument, Context, Option
from vgpumgr.cli.session import get_session
from vgpumgr.errors import UsageError


class Shell(StrEnum):
    """Shells that can ask us."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


# Bash breaks words at colons, which addresses are full of: what stands before the last one is cut off.
_BASH = r"""_vgpumgr() {
    local line=${COMP_LINE:0:COMP_POINT} word colons
    mapfile -t COMPREPLY < <(vgpumgr completion --line "$line" 2>/dev/null)
    word=${line##*[[:space:]]}
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        colons=${word%"${word##*:}"}
        COMPREPLY=("${COMPREPLY[@]#"$colons"}")
    fi
}
complete -o default -F _vgpumgr vgpumgr"""
# From fpath zsh runs the file itself at the first TAB, and the function only from the second one on.
_ZSH = r"""#compdef vgpumgr
_vgpumgr() {
    local -a found
    found=(${(f)"$(vgpumgr completion --line "${(j: :)words[1,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
if [[ $funcstack[1] == _vgpumgr ]]; then _vgpumgr "$@"; else compdef _vgpumgr vgpumgr; fi"""
# Files are offered where there is nothing better, as in the other shells.
_FISH = r"""function __vgpumgr_complete
    set -l found (vgpumgr completion --line (commandline -cp | string collect) 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c vgpumgr -f -a '(__vgpumgr_complete)'"""
_SCRIPTS = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}


def command(
    context: Context,
    shell: Annotated[Shell | None, Argument(help="bash, zsh or fish.")] = None,
    line: Annotated[
        str | None,
        Option("--line", metavar="LINE", help="What could follow this line; the scripts ask."),
    ] = None,
) -> None:
    """Print the script with which a shell completes commands, options, and what the machine has.

    \b
    Examples:
      eval "$(vgpumgr completion bash)"
      vgpumgr completion bash > /etc/bash_completion.d/vgpumgr
      vgpumgr completion zsh > ~/.zfunc/_vgpumgr
      vgpumgr completion fish > ~/.config/fish/completions/vgpumgr.fish
    """
    session = get_session(context)
    if line is not None:
        from vgpumgr.cli.completing import complete

        for word in complete(session, line):
            session.streams.print(word)
    elif shell is not None:
        session.streams.print(_SCRIPTS[shell])
    else:
        raise UsageError("which shell?", hint="vgpumgr completion bash")
