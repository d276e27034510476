"""``vgpumgr completion``, ``version`` and ``help``: what is about the program itself.

Completion offers the names of commands and options from typer's declarations, and values from the
same lists that people read, so that other commands accept them. A list that cannot be read offers
nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from typer import Argument, Context, Option
from typer.core import TyperArgument

from vgpumgr import __version__
from vgpumgr.cli.main import App, Noun, Parameter, build_root, run_line
from vgpumgr.cli.output import print_single
from vgpumgr.cli.session import Session, get_session
from vgpumgr.errors import UsageError
from vgpumgr.model.callers import ROLE_NAMES
from vgpumgr.model.checks import BY_ID
from vgpumgr.model.choices import PROFILE_WORDS
from vgpumgr.model.limits import LIMIT_KEYS

app = App()
_PROGRAM = "vgpumgr"


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
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@app.command("completion")
def print_completion(
    context: Context,
    shell: Annotated[
        Literal["bash", "zsh", "fish"] | None, Argument(help="bash, zsh or fish.")
    ] = None,
    line: Annotated[
        str | None,
        Option("--line", metavar="LINE", help="What could follow this line; for scripts."),
    ] = None,
) -> None:
    """Print the completion script of a shell.

    The shell then completes commands, options, and names of GPUs, VMs and profiles.

    \b
    Examples:
      eval "$(vgpumgr completion bash)"
      vgpumgr completion bash > /etc/bash_completion.d/vgpumgr
      vgpumgr completion zsh > ~/.zfunc/_vgpumgr
      vgpumgr completion fish > ~/.config/fish/completions/vgpumgr.fish
    """
    session = get_session(context)
    if line is not None:
        for word in complete(session, line):
            session.streams.print(word)
    elif shell is not None:
        session.streams.print(SCRIPTS[shell])
    else:
        raise UsageError("which shell?", hint="vgpumgr completion bash")


@app.single("version")
def print_version(context: Context) -> None:
    """Show the version of vgpumgr.

    \b
    Examples:
      vgpumgr version
      vgpumgr version -o json
    """
    document = {"schema": "vgpumgr/v1", "version": __version__}
    print_single(context, document, [f"vgpumgr {__version__}"])


@app.command("help")
def print_help(
    context: Context,
    words: Annotated[
        list[str] | None, Argument(metavar="[COMMAND]...", help="Which command.")
    ] = None,
) -> None:
    """Show the help of a command.

    \b
    Examples:
      vgpumgr help gpu list
    """
    run_line([*(words or ()), "--help"], get_session(context))


def complete(session: Session, line: str) -> list[str]:
    """The words that could stand where the line ends; the last one may be incomplete."""
    words = _split(line)
    begun = words.pop() if words and not line[-1].isspace() else ""
    try:
        found = [word for word in _list_next(session, words, begun) if word.startswith(begun)]
    except Exception:
        return []  # a shell shows no errors here
    return sorted(set(found), key=lambda word: (int(word) if word.isdecimal() else 1 << 30, word))


def _split(line: str) -> list[str]:
    """The words behind the program's name, also behind ``sudo vgpumgr``."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()  # an open quote
    for place, word in enumerate(words):
        if PurePath(word).name == _PROGRAM:
            return words[place + 1 :]
    return []


def _list_next(session: Session, words: Iterable[str], begun: str) -> Iterable[str]:
    """Names of commands, options, the values of the option before, or those of the next argument."""
    command: Any = build_root()
    context = Context(command, info_name=_PROGRAM, obj=session)
    places: list[Parameter] = []
    waiting: Parameter | None = None
    for word in words:
        if waiting is not None:
            session.options.update({str(waiting.name): word})
            waiting = None
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            option = next((one for one in command.params if name in one.opts), None)
            if option is not None and equals:
                session.options.update({option.name: value})
            elif option is not None and not (option.is_flag or option.count):
                waiting = option
        elif isinstance(command, Noun):
            command = command.get_command(context, word)
            if command is None:
                return ()
            places = [one for one in command.params if isinstance(one, TyperArgument)]
        elif places and places[0].nargs == 1:
            places.pop(0)
    if waiting is not None:
        return _list_values(session, context, waiting, begun)
    if begun.startswith("-"):
        names = [name for one in command.params for name in (*one.opts, *one.secondary_opts)]
        return [*(name for name in names if name.startswith("--")), "--help"]
    if isinstance(command, Noun):
        return command.list_visible(context)
    return _list_values(session, context, places[0], begun) if places else ()


def _list_values(
    session: Session, context: Context, parameter: Parameter, begun: str
) -> Iterable[str]:
    if (find := _LIVE.get(str(parameter.name))) is not None:
        return find(session)
    # the members of an enumeration; of files the shell knows more
    items = parameter.shell_complete(context, begun)
    return [item.value for item in items if item.type == "plain"]


def _list_running(_session: Session) -> Iterable[str]:
    from vgpumgr.cli.backend import list_simulated

    return list_simulated()


def _list_machines(_session: Session) -> Iterable[str]:
    return [path.stem for path in Path(__file__).parents[1].glob("sim/machines/*.toml")]


def _ask(
    operation: str, rows: str, name: Callable[[Any], str], **params: Any
) -> Callable[[Session], list[str]]:
    """Lists the names of a document's rows."""
    return lambda session: [name(row) for row in session.call(operation, **params)[rows]]


def _list_gpus(session: Session) -> Iterable[str]:
    document = session.call("list_gpus")
    return [
        *(str(gpu["index"]) for gpu in document["gpus"]),
        *(gpu["pci"] for gpu in (*document["gpus"], *document["others"])),
    ]


# the last word of a name is a name, too, and needs no quotes
_list_types = _ask("list_vgpu_types", "types", lambda row: row["name"].split()[-1], selector=None)
_list_profiles = _ask("list_mig_profiles", "profiles", lambda row: row["name"], selector=None)


def _list_attachable(session: Session) -> Iterable[str]:
    found = set(PROFILE_WORDS)
    for ask in (_list_profiles, _list_types):
        try:
            found.update(ask(session))
        except Exception:
            continue  # no MIG here, or no vGPUs: the other list may be there
    return found


def _list_operations(session: Session) -> Iterable[str]:
    from vgpumgr.cli.backend import open_daemon
    from vgpumgr.model.routes import OPERATIONS

    document = open_daemon(session.options).request("GET", OPERATIONS).document()
    return [row["id"] for row in document["operations"]]


def _list_claims(session: Session) -> Iterable[str]:
    from vgpumgr.cli.backend import open_pool

    if session.options.host:
        return []  # its pool is known there
    with open_pool(session.options) as pool:
        return [row["name"] for row in pool.list_claims()]


def _list_settings(_session: Session) -> Iterable[str]:
    from vgpumgr.cli.backend import list_settings

    return list_settings()


_list_instances = _ask(
    "list_mig_instances", "instances", lambda row: f"{row['gpu_index']}/{row['id']}", selector=None
)

#: the values of a parameter by its name
_LIVE: Mapping[str, Callable[[Session], Iterable[str]]] = {
    "machine": _list_running,
    "running": _list_running,
    "name": _list_machines,
    "vm": _ask("list_vms", "vms", lambda row: row["name"]),
    "gpu": _list_gpus,
    "function": _ask("list_passthrough", "functions", lambda row: row["address"]),
    "gpus": _list_gpus,
    "instance": _list_instances,
    "instances": _list_instances,
    "mig_profile": _list_profiles,
    "vgpu": _ask("list_vgpus", "vgpus", lambda row: row["uuid"] or row["parent"]),
    "profile": _list_attachable,
    "type": _list_types,
    "plan": _list_profiles,
    "operation": _list_operations,
    "settings": _list_settings,
    "claim": _list_claims,
    "role": lambda _session: ROLE_NAMES,
    "limit": lambda _session: LIMIT_KEYS,
    "check": lambda _session: BY_ID,
    "checks": lambda _session: BY_ID,
}
