"""A whole scene: a simulated machine, a private libvirtd, guests that can run commands, and vgpumgr on top of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from tests.guest import image
from tests.guest.build_programs import SOURCES, build_programs, compile_program
from tests.guest.libvirtd import PrivateLibvirtd, private_libvirtd
from tests.guest.shell import GuestShell
from tests.support.forked import run_vgpumgr
from tests.support.places import short
from vgpumgr.virtio.channel import guest_files

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "vgpumgr" / "_lib"
#: what a guest's kernel says of that
STALLED = "kthread timer wakeup didn't happen"


@dataclass(frozen=True, slots=True)
class Done:
    """What a vgpumgr command did."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """Its ``-o json`` output."""
        return json.loads(self.stdout)


@dataclass(slots=True)
class GuestLab:
    """See the module's docstring; made by ``lab``."""

    machine: str
    directory: Path
    libvirtd: PrivateLibvirtd
    environment: dict[str, str]
    _shells: dict[tuple[str, int], GuestShell] = field(default_factory=dict)
    _stalls: dict[str, int] = field(default_factory=dict)

    def run(self, *arguments: str) -> Done:
        """Run vgpumgr on the scene's machine, whatever its exit status."""
        result = run_vgpumgr("--machine", self.machine, *arguments, env=self.environment)
        return Done(result.returncode, result.stdout, result.stderr)

    def vgpumgr(self, *arguments: str) -> str:
        """Run a vgpumgr command that must succeed; returns its output."""
        done = self.run(*arguments)
        assert done.status == 0, (
            f"vgpumgr {' '.join(arguments)}: exit {done.status}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def show(self, *arguments: str) -> None:
        """Run a vgpumgr command that must succeed, as a reader of this process's output would see it."""
        command = [sys.executable, "-m", "vgpumgr", "--machine", self.machine, *arguments]
        listing = arguments[1:2] == ("list",) and not sys.stdout.isatty()
        subprocess.run(command + ["-o", "table"] * listing, check=True, env=self.environment)

    def document(self, *arguments: str) -> Any:
        """Run a vgpumgr command with ``-o json`` that must succeed."""
        return json.loads(self.vgpumgr(*arguments, "-o", "json"))

    def virsh(self, *arguments: str) -> str:
        """Run virsh; it must succeed."""
        return self.libvirtd.virsh(*arguments).stdout

    def define(
        self,
        name: str,
        *,
        machine: str = "q35",
        agent: bool = True,
        initrd: Path | None = None,
        devices: str = "",
    ) -> None:
        """Define a domain that boots Debian's kernel with the guest package and the CUDA programs.

        ``devices`` is more XML for its ``<devices>``.
        """
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
        template = environment.from_string(
            (ROOT / "templates/guest-direct-kernel.xml.j2").read_text()
        )
        xml = template.render(
            name=name, memory_mib=512, vcpus=2, machine=machine, directory=directory,
            kernel=image.kernel(), initrd=initrd or guest_image(),
            cmdline="" if agent else "vgpumgr.agent=off",
        )  # fmt: skip
        xml = xml.replace("</devices>", f"{devices}</devices>")
        path = directory / "domain.xml"
        path.write_text(xml)
        self.virsh("define", str(path))

    def start(self, name: str) -> GuestShell:
        """Start a domain and wait until its shell answers."""
        self.forget_shells(name)
        self.virsh("start", name)
        return self.shell(name)

    def destroy(self, name: str) -> None:
        """Pull a domain's plug."""
        self.virsh("destroy", name)
        self.forget_shells(name)

    def shell(self, name: str, port: int = 0) -> GuestShell:
        """One of the two shells of a running domain."""
        key = (name, port)
        if key not in self._shells:
            path = self.directory / name / f"shell.{port}"
            try:
                self._shells[key] = GuestShell(path, look=lambda: self._reset_if_stalled(name))
            except OSError as error:
                error.add_note(f"console of {name}:\n{self.console(name)[-4000:]}")
                raise
        return self._shells[key]

    def _reset_if_stalled(self, name: str) -> None:
        """Reset a domain whose second processor never got a timer: rare under emulation, seen with QEMU 10.0 only."""
        if any(vm == name for vm, _ in self._shells):
            return
        stalls = self.console(name).count(STALLED)
        if stalls > self._stalls.get(name, 0):
            self._stalls[name] = stalls
            print(f"{name} has no timer on a processor: reset", file=sys.stderr, flush=True)
            self.virsh("reset", name)

    def forget_shells(self, name: str) -> None:
        """Close the shells of a domain that went away."""
        for key in [k for k in self._shells if k[0] == name]:
            self._shells.pop(key).close()

    def console(self, name: str) -> str:
        """What the domain's kernel printed."""
        path = self.directory / name / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""


def guest_image() -> Path:
    """The guests' initial file system."""
    return guest_image_with({})


def guest_image_with(more: dict[str, Path]) -> Path:
    """The guest package as a user would install it, the test programs, and ``more``: path there to file here."""
    package = {
        f"/{path}": source for path, source in guest_files(LIBRARY).items() if path != "install.sh"
    }
    programs = {f"/opt/bin/{name}": path for name, path in build_programs().items()}
    static = compile_program(SOURCES / "vectoradd.cu", runtime="static")
    programs |= {"/opt/bin/static_runtime": static, "/opt/bin/scribble": build_hostile()}
    programs["/opt/bin/attacks"] = LIBRARY / "test" / "vgpumgr-test-attacks"
    return image.build(package | programs | more)


def build_hostile() -> Path:
    """The hostile guest program, statically linked."""
    target = image.cache() / "scribble"
    source = ROOT / "tests/guest/hostile/scribble.c"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        part = target.with_suffix(f".{os.getpid()}")
        headers = f"-I{ROOT}/vgpumgr/virtio/native/codec"
        subprocess.run(["gcc", "-static", "-O2", headers, "-o", str(part), str(source)], check=True)
        part.rename(target)
    return target


@contextmanager
def lab(kind: str) -> Iterator[GuestLab]:
    """A scene on a simulated machine of this kind, with a simulator root of its own. Ends all that it started."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="vglab.", dir=short()))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        libvirtd = stack.enter_context(private_libvirtd())
        environment = os.environ | {
            "VGPUMGR_SIM_ROOT": str(directory / "sim"),
            "PYTHONPATH": str(ROOT),
        }
        scene = GuestLab(kind, directory, libvirtd, environment)
        simulate(scene, "start", kind, "--libvirt", libvirtd.uri)
        stack.callback(simulate, scene, "stop", kind)
        stack.callback(detach_all, scene)
        yield scene


def simulate(scene: GuestLab, *arguments: str) -> None:
    """``vgpumgr sim ...``."""
    command = [sys.executable, "-m", "vgpumgr", "-q", "sim", *arguments]
    subprocess.run(command, check=True, env=scene.environment, stdout=subprocess.DEVNULL)


def detach_all(scene: GuestLab) -> None:
    """Take every attachment back, so that no keeper outlives the scene."""
    done = scene.run("virtio", "list", "-o", "json")
    for channel in done.document.get("channels", []) if done.status == 0 else []:
        scene.run("detach", channel["vm"], "--yes")
