"""The machine: everything below us that a test, a demo or a bug report may replace.

The real machine is the default of each seam. A simulated one is a directory,
``$VGPUMGR_SIM_ROOT/NAME`` (root's default /run/vgpumgr/sim, otherwise
$XDG_RUNTIME_DIR/vgpumgr/sim), with an optional file ``env`` of KEY=VALUE lines. From it or by
default come:

* ``VGPUMGR_SIM``: the directory itself; how the simulated libraries find the machine.
* ``VGPUMGR_SYSFS_ROOT``: what stands for ``/`` before ``/sys`` and ``/proc/driver``; default: its
  subdirectory ``root``.
* ``LD_LIBRARY_PATH``: where ``libnvidia-ml.so.1`` and ``libcuda.so.1`` are found; default:
  ``_lib/sim`` of this package.
* ``VGPUMGR_LIBVIRT_URI``: the hypervisor; default: ``qemu:///system``.
* ``VGPUMGR_STATE_DIR``: what is remembered; default: ``host/state`` in the directory, on the real
  machine ``/var/lib/vgpumgr``.
* ``VGPUMGR_RUN_DIR``: sockets and locks; default: ``host/run`` in the directory, on the real
  machine ``/run/vgpumgr``.
* ``VGPUMGR_CONFIG``: the daemon's settings; default: ``host/vgpumgr.toml`` in the directory, on the
  real machine ``/etc/vgpumgr/vgpumgr.toml``.

The same variables in the environment of the command choose the machine without a name, as ``vgpumgr
sim env`` prints them; then each of them counts for the whole command.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from vgpumgr.errors import MachineNotFoundError
from vgpumgr.host.files import check_trusted, list_names, make_directory, read_text
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import parse_set

LIB_DIR = Path(__file__).resolve().parent.parent / "_lib"
#: the files of the web page, where they were built
WEB_DIR = LIB_DIR.with_name("_web")
KERNEL_LOG = "/dev/kmsg"
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_RUNTIME_DIR", "PYTHONPATH")


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine's seams. ``name`` is None for the real one; ``variables`` are what its children
    must see.
    """

    name: str | None
    root: Path
    state_dir: Path
    run_dir: Path
    libvirt_uri: str
    variables: Mapping[str, str] = field(default_factory=dict)
    config_path: Path = Path("/etc/vgpumgr/vgpumgr.toml")

    @property
    def is_simulated(self) -> bool:
        """Whether anything but the real hardware answers."""
        return self.name is not None

    def path(self, absolute: str) -> Path:
        """Where a path of the machine (``/sys/...``) lies on this host.

        A simulated machine's root is its kernel's; what is on its disk, and the kernel's log, lies beside its state.
        """
        is_beside = self.is_simulated and absolute.startswith(("/etc/", KERNEL_LOG))
        return (self.state_dir.parent if is_beside else self.root) / absolute.lstrip("/")

    def child_env(self) -> dict[str, str]:
        """A clean environment for a child process that works on this machine."""
        env = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        env.setdefault("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        env.update(self.variables)
        package_root = str(LIB_DIR.parent.parent)
        env["PYTHONPATH"] = os.pathsep.join(
            p for p in (package_root, env.get("PYTHONPATH", "")) if p
        )
        return env


def find_machine(name: str | None, environ: Mapping[str, str] | None = None) -> Machine:
    """The machine called ``name``, or the one that the environment describes (by default the real
    one).

    ``VGPUMGR_MACHINE`` stands in for a missing name. Raises MachineNotFoundError, UntrustedPathError.
    """
    env = os.environ if environ is None else environ
    name = name or env.get("VGPUMGR_MACHINE") or None
    if name is None:
        chosen = env.get("VGPUMGR_SIM")
        return _build_simulated(Path(chosen), env) if chosen else _build_real(env)
    root = find_sim_root(env)
    _check_sim_root(root, env)
    directory = root / name
    if "/" in name or name.startswith(".") or not directory.is_dir():
        running = ", ".join(list_machines(env)) or "none"
        raise MachineNotFoundError(
            f'no simulated machine "{name}" runs',
            why=f"running: {running} (under {root})",
            hint=f"vgpumgr sim start {name}",
        )
    check_trusted(directory)
    return _build_simulated(directory, _read_env_file(directory / "env"))


def find_sim_root(environ: Mapping[str, str]) -> Path:
    """The directory that holds the running simulated machines of this user."""
    if chosen := environ.get("VGPUMGR_SIM_ROOT"):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/run/vgpumgr/sim")
    runtime = environ.get("XDG_RUNTIME_DIR") or f"{tempfile.gettempdir()}/vgpumgr-{os.getuid()}"
    return Path(runtime) / "vgpumgr" / "sim"


def make_sim_root(environ: Mapping[str, str]) -> Path:
    """The same, made where it is missing. Raises UntrustedPathError, OSError."""
    root = find_sim_root(environ)
    if not environ.get("VGPUMGR_SIM_ROOT") and os.geteuid() != 0:
        make_directory(root.parents[1], 0o700)
    if not root.is_dir():
        make_directory(root)
    _check_sim_root(root, environ)
    return root


def _check_sim_root(root: Path, environ: Mapping[str, str]) -> None:
    """What stands there says which libraries are loaded. One that was chosen may be for all users, as /tmp is."""
    if environ.get("VGPUMGR_SIM_ROOT"):
        paths = [root]
    else:
        paths = [root.parent, root] if os.geteuid() == 0 else [*reversed(root.parents[:2]), root]
    with contextlib.suppress(FileNotFoundError):
        for path in paths:
            check_trusted(path, shared=bool(environ.get("VGPUMGR_SIM_ROOT")))


def list_machines(environ: Mapping[str, str] | None = None) -> list[str]:
    """Names of the simulated machines that are there."""
    env = os.environ if environ is None else environ
    root = find_sim_root(env)
    if not root.is_dir():
        return []
    _check_sim_root(root, env)
    names = (entry.name for entry in root.iterdir() if entry.is_dir())
    # a name with a dot in front is a machine that is only being made
    return sorted(name for name in names if not name.startswith("."))


def _build_real(env: Mapping[str, str]) -> Machine:
    variables = {"LD_LIBRARY_PATH": env["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in env else {}
    defaults = ("/", "/var/lib/vgpumgr", "/run/vgpumgr", "/etc/vgpumgr/vgpumgr.toml")
    return _build(None, env, variables, defaults)


def _build_simulated(directory: Path, env: Mapping[str, str]) -> Machine:
    host = directory / "host"
    defaults = (directory / "root", host / "state", host / "run", host / "vgpumgr.toml")
    variables = {
        "VGPUMGR_SIM": env.get("VGPUMGR_SIM", str(directory)),
        "VGPUMGR_SYSFS_ROOT": env.get("VGPUMGR_SYSFS_ROOT", str(defaults[0])),
        "LD_LIBRARY_PATH": env.get("LD_LIBRARY_PATH", str(LIB_DIR / "sim")),
    }
    return _build(directory.name, env, variables, defaults)


def _build(
    name: str | None,
    env: Mapping[str, str],
    variables: Mapping[str, str],
    defaults: tuple[str | Path, ...],
) -> Machine:
    root, state_dir, run_dir, config_path = defaults
    return Machine(
        name=name,
        root=Path(env.get("VGPUMGR_SYSFS_ROOT", root)),
        state_dir=Path(env.get("VGPUMGR_STATE_DIR", state_dir)),
        run_dir=Path(env.get("VGPUMGR_RUN_DIR", run_dir)),
        libvirt_uri=env.get("VGPUMGR_LIBVIRT_URI", "qemu:///system"),
        variables=variables,
        config_path=Path(env.get("VGPUMGR_CONFIG", config_path)),
    )


def _read_env_file(path: Path) -> dict[str, str]:
    """KEY=VALUE lines; ``export`` in front, quotes around the value, comments and blank lines are
    allowed.
    """
    if not path.is_file():
        return {}
    check_trusted(path)
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        key, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not key.startswith("#"):
            found[key.strip()] = value.strip().strip("'\"")
    return found


def read_boot_id(machine: Machine) -> str:
    """The kernel's random id of this boot; empty where /proc is not mounted."""
    return read_text(machine.path("/proc/sys/kernel/random/boot_id")) or ""


def read_kernel_words(machine: Machine) -> tuple[str, ...]:
    """The words of the kernel's command line."""
    return tuple((read_text(machine.path("/proc/cmdline")) or "").split())


def read_cpu_nodes(machine: Machine) -> dict[int, int]:
    """The NUMA node of each CPU; empty where the kernel shows no nodes."""
    directory = machine.path("/sys/devices/system/node")
    nodes: dict[int, int] = {}
    for name in list_names(directory):
        number = name.removeprefix("node")
        if name != number and number.isdigit():
            text = read_text(directory / name / "cpulist") or ""
            nodes.update(dict.fromkeys(parse_set(text), int(number)))
    return nodes
