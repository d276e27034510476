"""Reference of the command line from its own declarations: ``vgpumgr(1)`` with one manual page for each command, and
``docs/reference/cli.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer import Context

from vgpumgr import __version__
from vgpumgr.cli.main import Noun, build_root

ERRORS = Path(__file__).resolve().parents[1] / "docs/errors.md"
SUMMARY = "GPUs of a KVM host for its virtual machines"
FILES = (
    ("/etc/vgpumgr/vgpumgr.toml", "the configuration"),
    ("/run/vgpumgr/vgpumgr.sock", "where the daemon listens"),
    ("/var/lib/vgpumgr", "what is recorded"),
)
_AGENT = """\
.TH VGPUMGR-GUESTD 8 "" "vgpumgr {version}" "vgpumgr"
.SH NAME
vgpumgr-guestd \\- guest agent of vgpumgr
.SH SYNOPSIS
.B vgpumgr\\-guestd
[\\fIOPTIONS\\fR]
.SH DESCRIPTION
Gives the CUDA programs of this virtual machine their lanes of the channel to the host's worker. The package's unit
starts it without options.
.SH OPTIONS
{options}
.SH SEE ALSO
.BR vgpumgr (1)
"""
_CHECK = """\
.TH VGPUMGR-GUEST-CHECK 1 "" "vgpumgr {version}" "vgpumgr"
.SH NAME
vgpumgr-guest-check \\- why a program of this VM finds no GPU
.SH SYNOPSIS
.B vgpumgr\\-guest\\-check
[\\fB\\-\\-help\\fR | \\fB\\-\\-version\\fR]
.SH DESCRIPTION
Checks whether CUDA programs of this virtual machine can use its forwarded GPUs, and says what to do if not: the
devices of the channel, the guest's agent, a lane of each GPU as a program gets one, the libraries and which of them
a program finds, variables of the environment, and managed memory. It changes nothing and needs no root.
.SH EXIT STATUS
0 if no check finds a problem, 3 if one does, 2 for wrong options.
.SH SEE ALSO
.BR vgpumgr\\-guestd (8)
"""
_GUEST = """\
.TH VGPUMGR-GUEST 1 "" "vgpumgr {version}" "vgpumgr"
.SH NAME
vgpumgr-guest \\- CUDA libraries of this package in place of those of wheels
.SH SYNOPSIS
.B vgpumgr\\-guest
\\fBrun\\fR \\fIPROGRAM\\fR [\\fIARGUMENT\\fR...]
.br
.B vgpumgr\\-guest
\\fBadopt\\fR | \\fBrelease\\fR \\fIENVIRONMENT\\fR
.SH DESCRIPTION
NVIDIA's CUDA libraries, which Python wheels and conda packages bring, need the whole driver, which a virtual machine
with a forwarded GPU does not have.
.TP
\\fBrun\\fR
Runs a program, and what it starts, with the libraries of vgpumgr\\-guest in their place, by the dynamic loader's
variable LD_AUDIT; no file is changed. Programs that are linked statically are not reached.
.TP
\\fBadopt\\fR
Replaces them in a virtual environment, a conda environment or a directory named site\\-packages by links, and keeps
each beside it as NAME.nvidia. Again after wheels were installed or upgraded.
.TP
\\fBrelease\\fR
Puts NVIDIA's back; before vgpumgr\\-guest is removed.
.SH EXIT STATUS
The program's; 0 if it is done, 2 for wrong usage, 3 if not.
.SH SEE ALSO
.BR vgpumgr\\-guest\\-check (1),
.BR rtld\\-audit (7)
"""
#: of the guest's package, all others are the host's
GUEST_PAGES = ("vgpumgr-guestd.8", "vgpumgr-guest-check.1", "vgpumgr-guest.1")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Of a help text. Examples have a heading and keep their lines."""

    heading: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A command as both forms need it."""

    path: str
    usage: str
    text: tuple[Paragraph, ...]
    options: tuple[tuple[str, str], ...]
    is_noun: bool
    verbs: tuple[Command, ...]

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        return " ".join(self.text[0].lines).rstrip(".") if self.text else ""


def read_program() -> Command:
    """The program with all commands that help shows."""
    root: Any = build_root()
    return _read(root, Context(root, info_name="vgpumgr"))


def _read(command: Any, context: Context) -> Command:
    verbs: list[Command] = []
    is_noun = hasattr(command, "list_visible")
    for name in command.list_visible(context) if is_noun else ():
        verb: Any = command.get_command(context, name)
        verbs.append(_read(verb, Context(verb, info_name=name, parent=context)))
    return Command(
        context.command_path,
        " ".join(command.collect_usage_pieces(context)),
        tuple(_read_text(command.help)),
        tuple(_read_options(command, context)),
        isinstance(command, Noun),
        tuple(verbs),
    )


def _read_text(text: str | None) -> Iterator[Paragraph]:
    """Paragraphs; one behind a ``\\b`` keeps its lines."""
    for paragraph in (text or "").split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() == "\b":
            yield Paragraph(lines[1].strip(), tuple(line.strip() for line in lines[2:]))
        elif lines:
            yield Paragraph("", (" ".join(" ".join(lines).split()),))


def _read_options(command: Any, context: Context) -> Iterator[tuple[str, str]]:
    for one in command.params:
        if not getattr(one, "hidden", False) and (record := one.get_help_record(context)):
            names, text = record
            yield names, " ".join(text.split())


def list_pages(agent_usage: str) -> Iterator[tuple[str, str]]:
    """File names and texts of the manual pages. ``agent_usage`` is what the guest's agent prints of its options."""
    program = read_program()
    yield "vgpumgr.1", "\n".join(_write_program(program))
    for command in program.verbs:
        name = command.path.replace(" ", "-")
        lines = [*_begin(name, _first_line(command)), ".SH SYNOPSIS"]
        lines += _write_command(command, ".SH")
        lines += [".SH SEE ALSO", ".BR vgpumgr (1)"]
        yield f"{name}.1", "\n".join(lines) + "\n"
    options = re.findall(r"\[(--[a-z-]+)(?: ([^\]]+))?\]", agent_usage)
    shown = (f".TP\n\\fB{_escape(name)}\\fR \\fI{_escape(value)}\\fR" for name, value in options)
    yield "vgpumgr-guestd.8", _AGENT.format(version=__version__, options="\n".join(shown))
    yield "vgpumgr-guest-check.1", _CHECK.format(version=__version__)
    yield "vgpumgr-guest.1", _GUEST.format(version=__version__)


def _begin(name: str, summary: str) -> list[str]:
    title = f'.TH {name.upper()} 1 "" "vgpumgr {__version__}" "vgpumgr"'
    return [title, ".SH NAME", f"{_escape(name)} \\- {_escape(summary)}"]


def _write_program(program: Command) -> Iterator[str]:
    yield from _begin("vgpumgr", SUMMARY)
    yield ".SH SYNOPSIS"
    yield "\\fBvgpumgr\\fR [\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]..."
    yield ".SH DESCRIPTION"
    yield from _write_text(program)
    yield ".SH OPTIONS"
    yield from _write_options(program)
    yield ".SH COMMANDS"
    for command in program.verbs:
        yield f".TP\n.BR {_escape(command.path.replace(' ', '-'))} (1)"
        yield _escape(_first_line(command))
    yield ".SH EXIT STATUS"
    for code, meaning in list_exit_codes():
        yield f".TP\n.B {code}\n{_escape(meaning.replace('`', ''))}"
    yield ".SH FILES"
    for place, what in FILES:
        yield f".TP\n.I {place}\n{what}"
    yield ""


def list_exit_codes() -> list[tuple[str, str]]:
    """Codes and meanings, of the generated page."""
    return re.findall(r"^\| (\d+) \| (.+) \|$", ERRORS.read_text(), re.MULTILINE)


def _write_command(command: Command, heading: str) -> Iterator[str]:
    """Synopsis and description; the verbs of a noun follow, each under its own heading."""
    yield f"\\fB{_escape(command.path)}\\fR {_escape(command.usage)}"
    yield ".SH DESCRIPTION" if heading == ".SH" else ".PP"
    yield from _write_text(command)
    if command.is_noun:
        for verb in command.verbs:
            yield f".SH {_escape(verb.path.partition(' ')[2].upper())}"
            yield from _write_command(verb, ".SS")
    elif command.options:
        yield f"{heading} OPTIONS" if heading == ".SH" else ".PP"
        yield from _write_options(command)


def _write_options(command: Command) -> Iterator[str]:
    for names, text in command.options:
        yield f".TP\n\\fB{_escape(names)}\\fR\n{_escape(text)}"


def _write_text(command: Command) -> Iterator[str]:
    for paragraph in command.text:
        if paragraph.heading:
            yield f".PP\n.B {_escape(paragraph.heading)}"
            yield ".nf\n.RS 4"
            yield from map(_escape, paragraph.lines)
            yield ".RE\n.fi"
        else:
            yield ".PP"
            yield from map(_escape, paragraph.lines)


def _first_line(command: Command) -> str:
    line = command.summary
    return line[:1].lower() + line[1:] if line[1:2].islower() else line


def _escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def write_reference() -> str:
    """``docs/reference/cli.md``."""
    program = read_program()
    lines = [
        "# Commands",
        "",
        "Generated from the command tree by `pytest --regenerate`, as the manual pages are (`man vgpumgr-attach`).",
        "",
        "| command | |",
        "|---|---|",
    ]
    for command in program.verbs:
        lines.append(f"| [`{command.path}`](#{_anchor(command)}) | {_cell(command.summary)} |")
    lines += ["", "## Options of every command", "", "They stand before or behind the command."]
    lines += _describe_options(program)
    for command in program.verbs:
        lines += _describe(command, "##")
    lines += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in list_exit_codes()]
    lines += ["", "## Files", "", "| path | |", "|---|---|"]
    lines += [f"| `{place}` | {what} |" for place, what in FILES]
    return "\n".join(lines) + "\n"


def _describe(command: Command, heading: str) -> Iterator[str]:
    yield f"\n{heading} {command.path}\n"
    yield f"    {command.path} {command.usage}".rstrip()
    for paragraph in command.text:
        yield f"\n{paragraph.heading}" if paragraph.heading else ""
        indent = "    " if paragraph.heading else ""
        if indent:
            yield ""
        yield from (f"{indent}{line}".rstrip() for line in paragraph.lines)
    if command.verbs:
        for verb in command.verbs:
            yield from _describe(verb, f"{heading}#")
    else:
        yield from _describe_options(command)


def _describe_options(command: Command) -> Iterator[str]:
    if command.options:
        yield "\n| option | meaning |\n|---|---|"
        for names, text in command.options:
            shown = names.replace("|", "\\|")
            yield f"| `{shown}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _anchor(command: Command) -> str:
    return command.path.replace(" ", "-")
