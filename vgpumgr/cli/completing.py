"""What could come next on an unfinished line: names of commands and options, and what the machine has.

Names come from the tree of commands and the declarations; values from the same lists that people
read, so they are what other commands accept. What cannot be asked offers nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path, PurePath

from vgpumgr.cli.arguments import VALUED, Color, split_global
from vgpumgr.cli.commands import GROUPS, TOP_LEVEL, Verb, find_group, find_verb, load
from vgpumgr.cli.declarations import Option
from vgpumgr.cli.plain_line import Parameter, list_parameters
from vgpumgr.cli.session import Session
from vgpumgr.errors import VgpumgrError

_PROGRAM = "vgpumgr"
_GLOBAL = (*VALUED, "--quiet", "--verbose", "--debug")


def complete(session: Session, line: str) -> list[str]:
    """The words that could stand where the line ends; the last one may be begun."""
    words = _split(line)
    begun = words.pop() if words and not line[-1].isspace() else ""
    before = words[-1] if words else ""
    found: Iterable[str]
    if before in VALUED:
        found = _list_global_values(before)
    else:
        try:
            options, rest = split_global(words)
        except VgpumgrError:
            return []
        found = _list_words(replace(session, options=options), rest, begun)
    return sorted({word for word in found if word.startswith(begun)}, key=_by_number)


def _by_number(word: str) -> tuple[int, str]:
    return (int(word), "") if word.isdecimal() else (1 << 30, word)


def _split(line: str) -> list[str]:
    """The words behind the program's name, however it was called (``sudo vgpumgr``)."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()  # an open quote
    for place, word in enumerate(words):
        if PurePath(word).name == _PROGRAM:
            return words[place + 1 :]
    return []


def _list_global_values(option: str) -> Iterable[str]:
    if option == "--color":
        return list(Color)
    if option == "--machine":
        return _list_machines()
    return ()


def _list_words(session: Session, words: Sequence[str], begun: str) -> Iterable[str]:
    verb, rest = find_verb(words)
    if verb is not None:
        return _list_of_verb(session, verb, rest, begun)
    group, rest = find_group(words)
    if rest:
        return ()
    if begun.startswith("-"):
        return (*_GLOBAL, "--help")
    known = (group.verbs, group.groups) if group else (TOP_LEVEL, GROUPS)
    return [one.name for row in known for one in row if not getattr(one, "hidden", False)]


def _list_of_verb(session: Session, verb: Verb, words: Sequence[str], begun: str) -> Iterable[str]:
    """Options, the values of the option before, or what stands in this place."""
    parameters = list_parameters(load(verb))
    options = [p for p in parameters if isinstance(p.declared, Option)]
    places = [p for p in parameters if not isinstance(p.declared, Option)]
    waiting: Parameter | None = None
    for word in words:
        if waiting is not None:
            waiting = None
        elif word.startswith("-"):
            waiting = next((p for p in options if _takes_value(p, word)), None)
        elif places and not places[0].is_list:
            places.pop(0)
    if waiting is not None:
        return _list_values(session, verb, waiting)
    if begun.startswith("-"):
        names = [name for p in options for name in (*p.list_names(), *_list_off(p))]
        return [*(n for n in names if n.startswith("--")), *_GLOBAL, "--help"]
    return _list_values(session, verb, places[0]) if places else ()


def _takes_value(parameter: Parameter, word: str) -> bool:
    return parameter.kind is not bool and word in parameter.list_names()


def _list_off(parameter: Parameter) -> tuple[str, ...]:
    return parameter.list_off_names() if parameter.kind is bool else ()


def _list_values(session: Session, verb: Verb, parameter: Parameter) -> Iterable[str]:
    kind = parameter.kind
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(member.value) for member in kind]
    if parameter.name == "name" and verb.module.startswith("vgpumgr.cli.sim_"):
        return _list_machines(known=verb.name == "start")
    find = _LIVE.get(parameter.name)
    if find is None:
        return ()
    try:
        return find(session)
    except Exception:
        return ()  # nobody reads an error here


def _list_machines(*, known: bool = False) -> Iterable[str]:
    from vgpumgr.cli.backend import list_simulated

    if not known:
        return list_simulated()
    return [path.stem for path in Path(__file__).parents[1].glob("sim/machines/*.toml")]


def _list_vms(session: Session) -> Iterable[str]:
    return [vm["name"] for vm in session.call("list_vms")["vms"]]


def _list_gpus(session: Session) -> Iterable[str]:
    document = session.call("list_gpus")
    return [
        *(str(gpu["index"]) for gpu in document["gpus"]),
        *(gpu["pci"] for gpu in (*document["gpus"], *document["others"])),
    ]


def _list_functions(session: Session) -> Iterable[str]:
    return [row["address"] for row in session.call("list_passthrough")["functions"]]


def _list_vgpus(session: Session) -> Iterable[str]:
    return [row["uuid"] for row in session.call("list_vgpus")["vgpus"]]


def _list_types(session: Session) -> Iterable[str]:
    # the last word of a name is a name, too, and needs no quotes
    types = session.call("list_vgpu_types", selector=None)["types"]
    return [row["name"].split()[-1] for row in types]


def _list_profiles(session: Session) -> Iterable[str]:
    profiles = session.call("list_mig_profiles", selector=None)["profiles"]
    return [row["name"] for row in profiles]


def _list_attachable(session: Session) -> Iterable[str]:
    found = {"passthrough", "vf"}
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


#: what a parameter of this name stands for, and where to ask for it
_LIVE: Mapping[str, Callable[[Session], Iterable[str]]] = {
    "vm": _list_vms,
    "gpu": _list_gpus,
    "function": _list_functions,
    "vgpu": _list_vgpus,
    "profile": _list_attachable,
    "type": _list_types,
    "plan": _list_profiles,
    "operation": _list_operations,
}
