"""Manual pages from the command line's own declarations: ``vgpumgr(1)`` and one for each of its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import Context

from vgpumgr import __version__
from vgpumgr.cli.main import Noun, build_root

ERRORS = Path(__file__).resolve().parents[1] / "docs/errors.md"
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


def list_pages(agent_usage: str) -> Iterator[tuple[str, str]]:
    """File names and texts. ``agent_usage`` is what the guest's agent prints of its options."""
    root: Any = build_root()
    context = Context(root, info_name="vgpumgr")
    names = root.list_visible(context)
    yield "vgpumgr.1", "\n".join(_write_program(root, context, names))
    for name in names:
        command = root.get_command(context, name)
        lines = [*_begin(f"vgpumgr-{name}", _first_line(command.help)), ".SH SYNOPSIS"]
        lines += _write_command(command, Context(command, info_name=name, parent=context), ".SH")
        lines += [".SH SEE ALSO", ".BR vgpumgr (1)"]
        yield f"vgpumgr-{name}.1", "\n".join(lines) + "\n"
    options = re.findall(r"\[(--[a-z-]+)(?: ([^\]]+))?\]", agent_usage)
    shown = (f".TP\n\\fB{_escape(name)}\\fR \\fI{_escape(value)}\\fR" for name, value in options)
    yield "vgpumgr-guestd.8", _AGENT.format(version=__version__, options="\n".join(shown))


def _begin(name: str, summary: str) -> list[str]:
    title = f'.TH {name.upper()} 1 "" "vgpumgr {__version__}" "vgpumgr"'
    return [title, ".SH NAME", f"{_escape(name)} \\- {_escape(summary)}"]


def _write_program(root: Any, context: Context, names: list[str]) -> Iterator[str]:
    yield from _begin("vgpumgr", "GPUs of a KVM host for its virtual machines")
    yield ".SH SYNOPSIS"
    yield "\\fBvgpumgr\\fR [\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]..."
    yield ".SH DESCRIPTION"
    yield from _write_text(root.help)
    yield ".SH OPTIONS"
    yield from _write_options(root, context)
    yield ".SH COMMANDS"
    for name in names:
        yield f".TP\n.BR vgpumgr\\-{_escape(name)} (1)"
        yield _escape(_first_line(root.get_command(context, name).help))
    yield ".SH EXIT STATUS"
    for code, meaning in re.findall(r"^\| (\d+) \| (.+) \|$", ERRORS.read_text(), re.MULTILINE):
        yield f".TP\n.B {code}\n{_escape(meaning.replace('`', ''))}"
    yield ".SH FILES"
    for place, what in (
        ("/etc/vgpumgr/vgpumgr.toml", "the configuration"),
        ("/run/vgpumgr/vgpumgr.sock", "where the daemon listens"),
        ("/var/lib/vgpumgr", "what is recorded"),
    ):
        yield f".TP\n.I {place}\n{what}"
    yield ""


def _write_command(command: Any, context: Context, heading: str) -> Iterator[str]:
    """Synopsis and description; the verbs of a noun follow, each under its own heading."""
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"\\fB{_escape(context.command_path)}\\fR {_escape(pieces)}"
    yield ".SH DESCRIPTION" if heading == ".SH" else ".PP"
    yield from _write_text(command.help)
    if isinstance(command, Noun):
        for name in command.list_visible(context):
            verb: Any = command.get_command(context, name)
            inner = Context(verb, info_name=name, parent=context)
            yield f".SH {_escape(inner.command_path.partition(' ')[2].upper())}"
            yield from _write_command(verb, inner, ".SS")
    elif any(not one.hidden for one in command.params):
        yield f"{heading} OPTIONS" if heading == ".SH" else ".PP"
        yield from _write_options(command, context)


def _write_options(command: Any, context: Context) -> Iterator[str]:
    for one in command.params:
        if not getattr(one, "hidden", False) and (record := one.get_help_record(context)):
            names, text = record
            yield f".TP\n\\fB{_escape(names)}\\fR\n{_escape(' '.join(text.split()))}"


def _write_text(text: str | None) -> Iterator[str]:
    """Paragraphs; one behind a ``\\b`` keeps its lines, and a heading of one line becomes bold."""
    for paragraph in (text or "").split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() == "\b":
            yield f".PP\n.B {_escape(lines[1])}"
            yield ".nf\n.RS 4"
            yield from (_escape(line.strip()) for line in lines[2:])
            yield ".RE\n.fi"
        elif lines:
            yield ".PP"
            yield _escape(" ".join(" ".join(lines).split()))


def _first_line(text: str | None) -> str:
    line = (text or "").strip().splitlines()[0].rstrip(".")
    return line[:1].lower() + line[1:] if line[1:2].islower() else line


def _escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text
