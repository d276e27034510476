"""Where the program starts, how typer reads its lines, and every way in which it ends.

Nouns load when they are named; global options stand at any place. Errors, typer's too, are text of five
lines or JSON.
"""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, ClassVar, TypeVar, cast

import typer
import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.models import CommandInfo

from vgpumgr.cli.backend import open_backend
from vgpumgr.cli.commands import NOUNS, VERBS, Entry
from vgpumgr.cli.session import (
    Color,
    Columns,
    Filters,
    Format,
    GlobalOptions,
    Layout,
    NoHeader,
    NoWait,
    OperationBegun,
    Output,
    Session,
    SortBy,
    Streams,
    Watch,
    get_layout,
    get_session,
    set_layout,
)
from vgpumgr.errors import Exit, UsageError, VgpumgrError, explain_unexpected
from vgpumgr.model.text import list_near, make_printable, shorten_words

Command = TyperCommand | TyperGroup
Parameter = TyperArgument | TyperOption
Function = TypeVar("Function", bound=Callable[..., Any])

_TABLE = ("columns", "no_header", "sort_by", "filters", "watch_s")
#: of ``--watch`` without a number
_WATCH_S = 2.0
_GLOBAL = ("machine", "host", "hosts", "color", "quiet", "verbose", "debug")
#: the names that other programs have for our options
_HABITS = {"--json": "-o json", "--dumpjson": "-o json", "--format": "-o", "--force": "--yes"}


def _parse(
    parse: Callable[[Any, list[str]], list[str]], context: typer.Context, words: list[str]
) -> list[str]:
    """Reads one command's words; the global options go to the session. An error knows its command."""
    try:
        rest = parse(context, words)
    except typer.TyperException as error:
        if getattr(error, "ctx", None) is None:
            error.ctx = context  # type: ignore[attr-defined]
        raise
    values = {name: context.params.pop(name) for name in _GLOBAL if name in context.params}
    get_session(context).options.update(values)
    return rest


def _check_value(parameter: Any, context: typer.Context) -> None:
    """Raises UsageError for an empty value, as an unset variable of a script gives it, and for one that is not UTF-8:
    neither JSON nor libvirt can hold it. Words of another program, and a line to be completed, are left alone.
    """
    given = context.params.get(parameter.name)
    is_option = isinstance(parameter, TyperOption)
    if parameter.name == "line" or (parameter.nargs < 0 and not is_option):
        return
    name = parameter.opts[-1] if is_option else str(parameter.metavar).strip("[]")
    for value in given if isinstance(given, list | tuple) else (given,):
        if value == "":
            text = f"{name} needs a value, and this one is empty"
            raise _make_error(text, None, context)
        if isinstance(value, str) and any("\ud800" <= one <= "\udfff" for one in value):
            raise _make_error(f"{name} needs UTF-8, and has {value!a}", None, context)


class Verb(TyperCommand):
    """A command without commands below it."""

    #: the formats that ``-o`` has not; None: the verb has no ``-o`` of its class
    refused: ClassVar[Sequence[Format] | None] = None
    declaration: ClassVar[Callable[..., None]]
    #: whether it may end while its change goes on in a daemon: what has a plan may
    may_begin: ClassVar[bool] = True
    # refused in parse_args, with a suggestion
    allow_extra_args = True

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        if self.may_begin and any(one.name == "dry_run" for one in self.params):
            self.params += _read_declaration(_declare_change)
        if self.refused is not None:
            self.params += _read_declaration(self.declaration)
        for one in self.params:
            if isinstance(one, TyperArgument) and one.metavar is None:
                shown = str(one.name).upper()
                one.metavar = shown if one.required else f"[{shown}]"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises UsageError for words that no argument takes, and for formats that it has not."""
        extra = _parse(super().parse_args, ctx, args)
        if extra and not ctx.resilient_parsing:
            words = " ".join(extra)
            names = {name for parameter in self.params for name in parameter.opts}
            guess = next((f"{one} {words}" for one in ("--gpu", "--out") if one in names), None)
            raise _make_error(f"not expected here: {words}", guess, ctx)
        for one in self.params:
            _check_value(one, ctx)
        if ctx.params.pop("no_wait", False):
            if ctx.params["dry_run"]:
                raise _make_error("--no-wait and --dry-run contradict each other", None, ctx)
            get_session(ctx).options.no_wait = True
        if self.refused is not None:
            output = ctx.params.pop("output")
            rest = {name: ctx.params.pop(name) for name in _TABLE if name in ctx.params}
            layout = Layout(Format(output) if output else None, **rest)
            if layout.format and layout.format in self.refused:
                raise _refuse_format(layout.format, ctx)
            set_layout(ctx, layout)
        return extra

    def invoke(self, ctx: Any) -> Any:
        """With ``--no-wait`` the operation's id, or the operation where ``-o`` asks for a document."""
        try:
            return super().invoke(ctx)
        except OperationBegun as begun:
            from vgpumgr.cli.output import print_single

            identifier = begun.operation["id"]
            document = {"schema": "vgpumgr/v1", "operation": begun.operation}
            print_single(ctx, document, [identifier], lambda: identifier)
            streams = get_session(ctx).streams
            streams.note(streams.address(f"its end: vgpumgr op wait {identifier}"))
            return int(Exit.OK)


def _declare_change(no_wait: NoWait = False) -> None:
    """The option of a verb that has a plan."""


def _declare_single(output: Output = None) -> None:
    """The option of a verb that prints one thing."""


def _declare_listing(
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
    sort_by: SortBy = None,
    filters: Filters = None,
    watch_s: Watch = None,
) -> None:
    """The options of a verb that prints a table."""


def _refuse_format(output: Format, context: typer.Context) -> UsageError:
    path = context.command_path
    listing = f"{path.removesuffix('show')}list -o {output}"
    return UsageError(
        f"{path.partition(' ')[2]} has no {output} output",
        hint=listing if path.endswith(" show") else "-o json",
    )


class Listing(Verb):
    """A verb that prints a table; see ``output.print_list``."""

    refused = ()
    declaration = staticmethod(_declare_listing)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``--watch`` may stand without a number. Raises UsageError for a word after it that is neither that nor an
        argument.
        """
        pairs = list(zip(args, [*args[1:], ""], strict=False))
        words = [
            f"--watch={_WATCH_S}" if word == "--watch" and not _is_number(after) else word
            for word, after in pairs
        ]
        has_arguments = any(isinstance(one, TyperArgument) for one in self.params)
        for word, after in pairs:
            if word == "--watch" and not (has_arguments or _is_number(after) or after[:1] in "-"):
                raise _make_error(
                    f"--watch needs a number of seconds, and has {after!r}", None, ctx
                )
        return super().parse_args(ctx, words)

    def invoke(self, ctx: Any) -> Any:
        """With ``--watch`` again and again, until Ctrl-C ends it."""
        layout = get_layout(ctx)
        if layout.watch_s is None:
            return super().invoke(ctx)
        from vgpumgr.host.clock import SystemClock

        streams, clock = get_session(ctx).streams, SystemClock()
        while True:
            if streams.is_terminal:
                streams.out.write(_CLEAR)
            super().invoke(ctx)
            streams.out.flush()
            clock.sleep(layout.watch_s)


#: clears a terminal and goes to its first line
_CLEAR = "\x1b[H\x1b[2J"


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-?[0-9][0-9.e]*", word) is not None


class Single(Verb):
    """A verb that prints one thing; see ``output.print_single``."""

    refused: ClassVar[Sequence[Format] | None] = (Format.CSV, Format.MARKDOWN, Format.NAME)
    declaration = staticmethod(_declare_single)


class Named(Single):
    """The same with ``-o name``, which prints what other commands accept."""

    refused = (Format.CSV, Format.MARKDOWN)


class Noun(TyperGroup):
    """A command with commands below it; alone it prints its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the global options that stand before the next word."""
        return _parse(super().parse_args, ctx, args)

    def list_visible(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names of the commands in its help."""
        return [name for name, command in self.commands.items() if not command.hidden]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises UsageError for a word that is no command."""
        if self.get_command(ctx, args[0]) is None:
            near = list_near(args[0], self.list_commands(ctx), n=1)
            guess = repr(near[0]) if near else None
            raise _make_error(f"no such command {args[0]!r}", guess, ctx)
        return super().resolve_command(ctx, args)


class _Root(Noun):
    """The program. It imports the modules of its commands when they are named."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names of all of them, hidden ones too."""
        return [entry.name for entry in (*VERBS, *NOUNS)]

    def list_visible(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names of the commands in its help."""
        return [entry.name for entry in (*VERBS, *NOUNS) if not entry.hidden]

    def get_command(self, ctx: Any, cmd_name: str) -> Command | None:  # noqa: ARG002
        """The command of that name."""
        entry = next((entry for entry in (*VERBS, *NOUNS) if entry.name == cmd_name), None)
        if entry is None:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = self._load(entry)
        return cast(Command, self.commands[cmd_name])

    def _load(self, entry: Entry) -> Any:
        shared = [copy.copy(one) for one in self.params if one.name in _GLOBAL]
        for option in shared:
            option.hidden = True  # type: ignore[attr-defined]
        commands = _Commands(entry.load(), shared)
        return commands[entry.name] if entry in VERBS else commands.read_noun(entry)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """The list in the help, which needs no module."""
        for title, entries in (("Commands", VERBS), ("Groups of commands", NOUNS)):
            with formatter.section(title):
                formatter.write_dl([(e.name, e.help) for e in entries if not e.hidden])


class _Commands(Mapping[str, Command]):
    """The commands of an app by name. The declarations of one are read when it is asked for: reading all takes time."""

    def __init__(self, app: typer.Typer, shared: Sequence[Any]) -> None:
        self._app = app
        self._shared = shared
        declared: list[Any] = [*app.registered_commands, *app.registered_groups]
        self._declared = {str(one.name): one for one in declared}
        self._read: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._read:
            declared = self._declared[name]
            if isinstance(declared, CommandInfo):
                command: Any = self._parse([declared]).commands[name]
                command.params += self._shared
            else:
                assert declared.typer_instance is not None
                command = _Commands(declared.typer_instance, self._shared).read_noun(declared)
            self._read[name] = command
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def read_noun(self, entry: Any) -> Command:
        """The command that these are below, with the name and the help of an entry."""
        noun = self._parse([])
        noun.commands, noun.name, noun.help = self, entry.name, entry.help
        noun.params += self._shared
        return cast(Command, noun)

    def _parse(self, verbs: list[CommandInfo]) -> Any:
        app = copy.copy(self._app)
        app.registered_commands, app.registered_groups = verbs, []
        return typer.main.get_command(app)


class App(typer.Typer):
    """The verbs of a module."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            **{"cls": Noun, **settings},
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
        )
        self.callback(invoke_without_command=True)(_print_help)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:
        """Declares a verb."""
        return super().command(name, **{"cls": Verb, **settings})

    def listing(self, name: str) -> Callable[[Function], Function]:
        """Declares a verb that prints a table."""
        return self.command(name, cls=Listing)

    def single(self, name: str) -> Callable[[Function], Function]:
        """Declares a verb that prints one thing."""
        return self.command(name, cls=Single)

    def named(self, name: str) -> Callable[[Function], Function]:
        """Declares a verb that prints one thing with a name."""
        return self.command(name, cls=Named)


@cache
def _read_declaration(function: Callable[..., Any]) -> list[Any]:
    """Typer's parameters of a function."""
    app = typer.Typer(add_completion=False)
    app.command()(function)
    return list(typer.main.get_command(app).params)


def _print_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _print_version(context: typer.Context, value: bool) -> None:
    if value:
        from vgpumgr import __version__

        get_session(context).streams.print(f"vgpumgr {__version__}")
        raise typer.Exit


def _declare_program(
    context: typer.Context,
    machine: Annotated[  # noqa: ARG001
        str | None, typer.Option("--machine", metavar="NAME", help="A simulated machine.")
    ] = None,
    host: Annotated[  # noqa: ARG001
        str | None,
        typer.Option(
            "--host", metavar="HOST", help="Another host: ssh://USER@HOST, or https://HOST."
        ),
    ] = None,
    hosts: Annotated[  # noqa: ARG001
        str | None, typer.Option("--hosts", metavar="A,B", help="The lists of several hosts.")
    ] = None,
    color: Annotated[  # noqa: ARG001
        Color | None, typer.Option("--color", help="When to colour the output.")
    ] = None,
    quiet: Annotated[  # noqa: ARG001
        bool, typer.Option("-q", "--quiet", help="No remarks on standard error.")
    ] = False,
    verbose: Annotated[  # noqa: ARG001
        int,
        typer.Option(
            "-v", "--verbose", count=True, show_default=False, help="All steps of a plan."
        ),
    ] = 0,
    debug: Annotated[  # noqa: ARG001
        bool, typer.Option("--debug", help="Tracebacks instead of errors.")
    ] = False,
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "-V", "--version", is_eager=True, callback=_print_version, help="Show the version."
        ),
    ] = False,
) -> None:
    """GPUs of a KVM host for its virtual machines: slices, attachments and their users.

    These options may stand at any place of every command, except --version.
    """
    _print_help(context)


def build_root() -> TyperGroup:
    """The program as typer's command."""
    app = App(
        cls=_Root,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True)(_declare_program)
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    return root


def run_line(words: Sequence[str], session: Session) -> Any:
    """Reads one command line and runs its verb. Raises UsageError for a line that typer refuses."""
    try:
        with build_root().make_context("vgpumgr", list(words), obj=session) as context:
            return context.command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        raise explain_usage(error) from error


def explain_usage(error: typer.TyperException) -> UsageError:
    """An error of typer's in the form of ours: from its fields, never from the words of its text."""
    near = getattr(error, "possibilities", None)
    option = getattr(error, "option_name", None)
    # with possibilities, format_message would list them
    text = error.message if near else error.format_message()
    context = getattr(error, "ctx", None)
    guess = _HABITS.get(str(option)) or (
        _guess_option(option, near or (), context) if option else None
    )
    return _make_error(text[:1].lower() + text[1:].rstrip("."), guess, context)


def _guess_option(option: str, near: Sequence[str], context: typer.Context | None) -> str | None:
    """The argument of that name, or the option that looks like it. Dashes, which all have, make none alike."""
    name = option.lstrip("-")
    params = context.command.params if context is not None else []
    arguments = [str(one.metavar).strip("[]") for one in params if isinstance(one, TyperArgument)]
    if name.upper() in arguments:
        return f"{name.upper()} without {option}"
    names = {one.lstrip("-"): one for one in near}
    return next((names[found] for found in list_near(name, names, n=1)), None)


def _make_error(text: str, guess: str | None, context: typer.Context | None) -> UsageError:
    path = context.command_path if context is not None else "vgpumgr"
    why = f"did you mean {guess}?" if guess else None
    return UsageError(text, why=why, hint=f"{path} --help")


_RED, _RESET = "\033[1;31m", "\033[0m"
_WIDTH = 9
#: how Python spells an error of the system; its words say the same
_ERRNO = re.compile(r"\[Errno (-?\d+|None)\] ")


def main(arguments: Sequence[str] | None = None, session: Session | None = None) -> int:
    """Runs one command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    unreached: list[VgpumgrError] = []
    if session is None:
        options = GlobalOptions.from_environ(os.environ)
        session = Session(options, Streams(options), partial(open_backend, report=unreached.append))
    streams = session.streams
    # what stands behind is another program's: see ``run``
    words_of_ours = words[: words.index("--")] if "--" in words else words
    session.options.words = tuple(words_of_ours)
    debug = "--debug" in words_of_ours or bool(os.environ.get("VGPUMGR_DEBUG"))
    try:
        result = run_line(words, session)
        streams.out.flush()
        if unreached:
            return _report_unreached(streams, unreached, words_of_ours)
        return int(result) if isinstance(result, int) else int(Exit.OK)
    except BrokenPipeError:
        # the reader has enough; what is still buffered must not fail at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.OK)
    except KeyboardInterrupt as error:
        streams.note(str(error) or "interrupted")
        return int(Exit.INTERRUPTED)
    except VgpumgrError as error:
        if debug:
            raise
        return _fail(streams, error, words_of_ours)
    except Exception as error:
        if debug:
            raise
        return _fail(streams, explain_unexpected(error, "vgpumgr"), words_of_ours)


def _report_unreached(
    streams: Streams, errors: Sequence[VgpumgrError], words: Sequence[str]
) -> int:
    """Some of several hosts have not answered: the answers of the others are printed, and this is the
    exit code of the first error.
    """
    for error in errors:
        _fail(streams, error, words)
    return int(errors[0].exit_code)


def _fail(streams: Streams, error: VgpumgrError, words: Sequence[str]) -> int:
    print_error(streams, error, as_json=wants_json(words))
    return int(error.exit_code)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the line asks for JSON: errors are then JSON too, even those of reading it."""
    for index, word in enumerate(arguments):
        if word in ("-ojson", "--output=json"):
            return True
        if word in ("-o", "--output") and list(arguments[index + 1 : index + 2]) == ["json"]:
            return True
    return False


def print_error(streams: Streams, error: VgpumgrError, *, as_json: bool) -> None:
    """Prints an error on standard error; the hint's commands name the machine of this run."""
    if error.hint:
        error.hint = streams.address(error.hint)
    if as_json:
        import json

        document = {"schema": "vgpumgr/v1", "error": error.as_dict()}
        streams.err.write(json.dumps(document, ensure_ascii=False) + "\n")
    else:
        streams.err.write(format_error(error, color=streams.has_color(streams.err)) + "\n")


def format_error(error: VgpumgrError, *, color: bool = False) -> str:
    """``error / cause / why / held by / try``; parts that are not known are left out.

    Number and exit code stand at the end of the last line.
    """
    parts = [("error", error.error)]
    if error.cause:
        parts.append(("cause", _ERRNO.sub("", error.cause)))
    if error.why:
        parts.append(("why", error.why))
    parts += [("held by" if i == 0 else "", holder) for i, holder in enumerate(error.held_by)]
    if error.hint:
        parts.append(("try", error.hint))
    lines = [_line(label, text, color=color) for label, text in parts]
    lines[-1] += f"        ({error.id}, exit {int(error.exit_code)})"
    return "\n".join(lines)


def _line(label: str, text: str, *, color: bool) -> str:
    """Further lines of a long cause are indented below its first. What is not printable may come from a file or
    another user, and commands a terminal: it is written as an escape.
    """
    indented = make_printable(shorten_words(text.rstrip())).replace("\n", "\n" + " " * _WIDTH)
    head = f"{label}:" if label else ""
    padded = head.ljust(_WIDTH)
    if color and label == "error":
        padded = _RED + padded + _RESET
    return padded + indented
