"""The configuration: TOML files that need not be there, and ``--set``; each value knows where it comes from.

``vgpumgr.toml`` is read first, then ``conf.d/*.toml`` beside it in the order of their names, then what ``daemon --set``
says; later ones win, key by key.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vgpumgr.app.documents.operations import ConfigDocument, SettingDocument
from vgpumgr.errors import SettingsError
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import list_near
from vgpumgr.virtio.links import split_address

DIRECTORY = "conf.d"
_DEFAULT = "default"
_OPTION = "--set"
_MAX_BYTES = 1 << 20


class _Table(BaseModel):
    # strict: "yes", 1 or "512" is another value to every other reader of the file
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class ReconcileSettings(_Table):
    """``[reconcile]``: how often everything is looked at though nothing was heard."""

    interval_s: float = Field(
        default=60,
        ge=0,
        description="seconds after which everything is observed without an event; 0: never",
    )
    jitter: float = Field(
        default=0.1,
        ge=0,
        le=0.5,
        description="of the interval, either way, so that many hosts do not observe at once",
    )


class ReleaseSettings(_Table):
    """``[release]``: when a VM loses what it has without anybody's asking."""

    undefined: bool = Field(default=True, description="a VM that is undefined loses its slices")
    stopped: bool = Field(default=False, description="a VM that is shut off loses its slices")
    migrated: bool = Field(default=True, description="a VM that migrates away loses its slices")
    delay_s: float = Field(
        default=10,
        ge=0,
        description="seconds before that: some tools change a VM by undefining and defining it",
    )


class RepairSettings(_Table):
    """``[repair]``: what is made good that was perhaps meant."""

    devices: bool = Field(
        default=False, description="devices that a definition has lost are added again"
    )


class PoolSettings(_Table):
    """``[pool]``: the daemon as a host of the pool that its machine is in."""

    serve: bool = Field(
        default=True,
        description="be the host of the pool that this machine has joined; false: vgpumgr pool serve is",
    )


class LinkSettings(_Table):
    """``[link]``: this machine's GPUs for other hosts of its pool, over the network."""

    listen: list[str] = Field(
        default=[],
        description="addresses at which GPUs are offered, as 10.0.0.5:7443; none: they are not",
    )
    advertise: list[str] = Field(
        default=[],
        description="addresses that other hosts connect to, where these are not the same",
    )

    @model_validator(mode="after")
    def _check_addresses(self) -> Self:
        for text in (*self.listen, *self.advertise):
            split_address(text)
        if self.advertise and not self.listen:
            raise ValueError("advertise without listen: nothing listens there")
        if len(self.listen) > 8 or len(self.advertise) > 8:
            raise ValueError("at most 8 addresses")
        return self

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where other hosts connect."""
        return tuple(self.advertise or self.listen)


class HistorySettings(_Table):
    """``[history]``: figures of the last hour, for the plots of the web page."""

    keep: bool = Field(
        default=True, description="collect figures every 10 seconds, and keep them for an hour"
    )


class LimitSettings(_Table):
    """``[limits]``: limits and timeouts of callers. Root, and the user of the daemon, have no limit per user."""

    connections: int = Field(default=512, ge=16, le=65536, description="in total")
    kept_for_root: int = Field(default=32, ge=1, description="of them for root alone")
    kept_for_admins: int = Field(default=64, ge=0, description="of them for administrators")
    kept_for_viewers: int = Field(default=64, ge=0, description="of them for those who may look")
    connections_per_user: int = Field(default=128, ge=1, description="at a time")
    requests_per_user: int = Field(default=32, ge=1, description="at a time")
    listeners_per_user: int = Field(default=16, ge=1, description="event streams")
    head_s: float = Field(default=20, gt=0, description="seconds for the head of a request")
    body_s: float = Field(default=30, gt=0, description="seconds for its body")
    answer_s: float = Field(
        default=30, gt=0, description="seconds in which the caller reads an answer or an event"
    )

    @model_validator(mode="after")
    def _check_kept(self) -> Self:
        kept = self.kept_for_root + self.kept_for_admins + self.kept_for_viewers
        if kept >= self.connections:
            raise ValueError(
                f"of {self.connections} connections {kept} are kept: none is left for others"
            )
        return self


class ListenSettings(_Table):
    """``[listen]``: the API on a network, for who has a token or a certificate."""

    address: str = Field(
        default="", description='IP address to listen on, "::" or "0.0.0.0" for all; "": none'
    )
    port: int = Field(default=8443, ge=0, le=65535, description="TCP port")
    certificate: str = Field(
        default="", description='PEM file with its chain; "": one that vgpumgr makes'
    )
    key: str = Field(default="", description="PEM file of its key, without a password")
    client_ca: str = Field(
        default="", description='PEM file of who signs certificates of clients; "": none is taken'
    )
    connections: int = Field(default=256, ge=4, le=65536, description="in total")
    connections_per_address: int = Field(default=32, ge=1, description="at a time")
    handshake_s: float = Field(
        default=10, gt=0, le=60, description="seconds for the handshake of TLS"
    )

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.address:
            try:
                ip_address(self.address)
            except ValueError:
                raise ValueError(f"{self.address!r} is no IP address") from None
        if bool(self.certificate) != bool(self.key):
            raise ValueError("certificate and key are given together, or neither of them")
        relative = [
            one for one in (self.certificate, self.key, self.client_ca) if one[:1] not in "/"
        ]
        if relative:
            raise ValueError(f"{relative[0]} is no absolute path")
        return self


class Settings(_Table):
    """All of the file."""

    reconcile: ReconcileSettings = ReconcileSettings()
    release: ReleaseSettings = ReleaseSettings()
    repair: RepairSettings = RepairSettings()
    history: HistorySettings = HistorySettings()
    limits: LimitSettings = LimitSettings()
    listen: ListenSettings = ListenSettings()
    pool: PoolSettings = PoolSettings()
    link: LinkSettings = LinkSettings()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one place of the configuration."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings, the files that were read, and where each key was set that is not as it was made."""

    settings: Settings = field(default_factory=Settings)
    files: tuple[Path, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)

    def find_origin(self, key: str) -> str:
        """``FILE:LINE``, ``--set`` or ``default``."""
        return self.origins.get(key, _DEFAULT)


def read_configuration(
    path: Path, options: Sequence[str] = (), *, must_be_there: bool = False
) -> Configuration:
    """What ``path``, the files of ``conf.d`` beside it and ``KEY=VALUE`` options say. Raises SettingsError, which
    names every place that cannot be.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[Problem] = []
    more = _list_files(path.parent / DIRECTORY)
    files = [file for file in (path, *more) if must_be_there or _is_there(file)]
    for key, value, origin in _read_all(files, options, problems):
        # one that is set twice has one origin, the later one
        values[key], origins[key] = value, origin
    problems += _check_keys(values, origins)
    known = {key: value for key, value in values.items() if key in KEYS}
    settings, wrong = _validate(known, origins)
    if problems or wrong or settings is None:
        raise SettingsError(
            "the configuration cannot be used",
            cause="\n".join(map(str, [*problems, *wrong])),
            hint="vgpumgr config defaults",
        )
    return Configuration(settings, tuple(files), origins)


def read_settings(path: Path) -> Settings:
    """The settings; their defaults without a file. Raises SettingsError."""
    return read_configuration(path).settings


def _list_keys() -> Iterator[tuple[str, Any]]:
    for section, table in Settings.model_fields.items():
        assert isinstance(table.default, BaseModel)
        for name, one in type(table.default).model_fields.items():
            yield f"{section}.{name}", one


#: every key, with the field that declares it: its default and its meaning
KEYS: Mapping[str, Any] = dict(_list_keys())


def format_value(value: object) -> str:
    """As TOML has it."""
    return json.dumps(value, ensure_ascii=False)


def find_value(settings: Settings, key: str) -> Any:
    """The value of a key."""
    section, _, name = key.partition(".")
    return getattr(getattr(settings, section), name)


def format_defaults() -> str:
    """A file of all keys, each with its default and its meaning, and none of them set."""
    lines = ["# Files of conf.d/*.toml are read after this one. Check: vgpumgr config check"]
    section = ""
    for key, one in KEYS.items():
        table, _, name = key.partition(".")
        if table != section:
            lines += ["", f"[{table}]"]
            section = table
        lines.append(f"# {f'{name} = {format_value(one.default)}':<27} # {one.description}")
    return "\n".join(lines) + "\n"


#: what the environment decides before any file is read: where the machine is, and how workers start
_VARIABLES: Mapping[str, tuple[Callable[[Machine], object], str]] = {
    "VGPUMGR_CONFIG": (lambda machine: machine.config_path, "the first file of the configuration"),
    "VGPUMGR_STATE_DIR": (lambda machine: machine.state_dir, "what is remembered"),
    "VGPUMGR_RUN_DIR": (lambda machine: machine.run_dir, "sockets and locks"),
    "VGPUMGR_LIBVIRT_URI": (lambda machine: machine.libvirt_uri, "the hypervisor"),
    "VGPUMGR_ALLOW_UNCONFINED": (lambda _: "0", "1: workers start without a sandbox"),
    "VGPUMGR_WORKER_FILTER": (
        lambda _: "enforce",
        "the workers' filter of system calls: enforce, log or off",
    ),
    "VGPUMGR_MATH": (
        lambda _: "",
        "directories of cuBLAS, cuBLASLt, cuDNN, cuFFT, cuSOLVER, cuSPARSE and cuRAND for forwarded GPUs, with : "
        "between them",
    ),
    "VGPUMGR_WATCHDOG": (
        lambda _: "60",
        "seconds after which a guest's call is named, and :SECONDS after which its session ends",
    ),
}


def describe(
    configuration: Configuration,
    machine: Machine,
    source: Literal["daemon", "files"],
    environ: Mapping[str, str] | None = None,
) -> ConfigDocument:
    """Every key and variable with its value and origin."""
    env = os.environ if environ is None else environ
    rows = [
        SettingDocument(
            key=key,
            value=format_value(find_value(configuration.settings, key)),
            default=format_value(one.default),
            origin=configuration.find_origin(key),
            meaning=str(one.description),
        )
        for key, one in KEYS.items()
    ]
    usual = machine if machine.is_simulated else find_machine(None, {})
    for name, (find, meaning) in _VARIABLES.items():
        rows.append(
            SettingDocument(
                key=name,
                value=format_value(env.get(name) or str(find(machine))),
                default=format_value(str(find(usual))),
                origin="environment" if env.get(name) else _DEFAULT,
                meaning=meaning,
            )
        )
    return ConfigDocument(
        source=source, files=[str(file) for file in configuration.files], settings=rows
    )


def _is_there(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:
        return True  # what keeps it from being read is said where it is read


def _list_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.toml"))


def _read_all(
    files: Sequence[Path], options: Sequence[str], problems: list[Problem]
) -> Iterator[tuple[str, Any, str]]:
    """Keys with values and origins, in the order in which they count."""
    for file in files:
        try:
            text = _read_text(file)
            data = tomllib.loads(text)
        except RecursionError:
            problems.append(Problem(str(file), "no TOML: nested too deeply"))
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"at line (\d+)", str(error))
            where = f"{file}:{line[1]}" if line else str(file)
            problems.append(Problem(where, f"no TOML: {error}"))
        except UnicodeDecodeError:
            problems.append(Problem(str(file), "not UTF-8 text"))
        except OSError as error:
            problems.append(Problem(str(file), f"cannot be read: {error.strerror}"))
        else:
            lines = _find_lines(text)
            for key, value in _flatten(data):
                line_number = lines.get(key) or lines.get(key.partition(".")[0])
                yield key, value, f"{file}:{line_number}" if line_number else str(file)
    for option in options:
        key, equals, text = option.partition("=")
        if not equals or not key.strip():
            problems.append(Problem(f"{_OPTION} {option}", "not of the form KEY=VALUE"))
        else:
            yield key.strip(), _read_value(text.strip()), _OPTION


def _read_text(file: Path) -> str:
    """A file's text. A pipe or device in its place must neither hold the daemon nor fill its memory."""
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        data = stream.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise OSError(errno.EFBIG, "larger than 1 MiB")
    return data.decode()


def _read_value(text: str) -> Any:
    """A value as TOML has it; a word without quotes is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _flatten(data: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """``section.key`` and value; a section that is none is given as it is."""
    for name, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _find_lines(text: str) -> dict[str, int]:
    """Where keys and sections stand. The text is TOML; one with several lines may hide what looks like a key."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if table := re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line):
            section = re.sub(r"[\s\"']", "", table[1]) + "."
            found.setdefault(section.rstrip("."), number)
        elif key := re.match(r"\s*([\w\s.\"'-]+?)\s*=", line):
            found.setdefault(section + re.sub(r"[\s\"']", "", key[1]), number)
    return found


def _check_keys(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[Problem]:
    """Keys that there are not, each with the nearest that there is."""
    sections = Settings.model_fields
    for key, value in values.items():
        if key in KEYS or (key in sections and value == {}):
            continue
        if key in sections:
            yield Problem(origins[key], f"{key} is a section: [{key}]")
            continue
        section, _, name = key.partition(".")
        names = {one.partition(".")[2]: one for one in KEYS if one.startswith(f"{section}.")}
        # the name alone first: a key may stand in the wrong section
        near = [one for one in KEYS if one.partition(".")[2] == (name or section)]
        near += [names[one] for one in list_near(name, names, n=1)]
        near += [] if names else list_near(key, KEYS, n=1)
        there = ", ".join(names.values() or sections)
        guess = f"did you mean {near[0]}?" if near else f"there is: {there}"
        yield Problem(origins[key], f"there is no key {key}; {guess}")


def _validate(
    values: Mapping[str, Any], origins: Mapping[str, str]
) -> tuple[Settings | None, list[Problem]]:
    data: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        data.setdefault(section, {})[name] = value
    try:
        return Settings.model_validate(data), []
    except ValidationError as error:
        return None, [_describe_invalid(one, origins) for one in error.errors()]


def _describe_invalid(error: Any, origins: Mapping[str, str]) -> Problem:
    key = ".".join(map(str, error["loc"]))
    text = str(error["msg"]).removeprefix("Value error, ")
    if key in origins:
        return Problem(
            origins[key], f"{key} = {format_value(error['input'])}: {text[:1].lower()}{text[1:]}"
        )
    # what several keys do together
    where = ", ".join(
        dict.fromkeys(
            at for one, at in origins.items() if one in KEYS and one.startswith(f"{key}.")
        )
    )
    return Problem(where, f"[{key}] {text}")
