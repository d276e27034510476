"""``./run demo``: the main job as a story, on a simulated DGX A100 with a real libvirt guest.

Everything shown is the output of the real commands; only the GPUs are simulated. What the demo starts it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

from tests.guest.lab import GuestLab, lab

STORY_PROGRAMS = (
    "devinfo", "vectoradd", "matmul", "reduction", "histogram", "overlap", "device_functions", "errors",
)  # fmt: skip
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


def tell(sentence: str) -> None:
    """One sentence of the story."""
    print(f"\n{BOLD}# {sentence}{PLAIN}", flush=True)


class Story:
    """Shows commands and what they print."""

    def __init__(self, scene: GuestLab) -> None:
        self.scene = scene

    def run(self, *arguments: str) -> None:
        """A vgpumgr command as a user would type it."""
        print(f"{DIM}host${PLAIN} vgpumgr {' '.join(arguments)}", flush=True)
        self.scene.show(*arguments)

    def virsh(self, *arguments: str) -> None:
        """A virsh command."""
        print(f"{DIM}host${PLAIN} virsh {' '.join(arguments)}", flush=True)
        self.scene.virsh(*arguments)

    def guest(self, command: str) -> None:
        """A command in the VM."""
        print(f"{DIM}vm01${PLAIN} {command}", flush=True)
        print(self.scene.shell("vm01").check(command).rstrip(), flush=True)


def tell_story(scene: GuestLab) -> None:
    """The main job, step by step."""
    story = Story(scene)
    tell("A host with eight A100s, simulated: NVML, CUDA and /sys answer as on the machine.")
    story.run("gpu", "list")
    tell("vm01 is an ordinary libvirt domain. What would it take to give it a slice?")
    scene.define("vm01")
    story.run("attach", "vm01", "--profile", "1g.10gb", "--dry-run")
    story.run("attach", "vm01", "--profile", "1g.10gb")
    tell("The VM boots Debian's kernel under software emulation and finds a GPU.")
    story.virsh("start", "vm01")
    for program in STORY_PROGRAMS:
        story.guest(program)
    tell("Who uses what, while a program runs in the VM?")
    running = scene.shell("vm01", 1).start("holdmem 64 3600")
    wait_for_lane(scene)
    story.run("virtio", "list")
    story.run("gpu", "show", "0")
    scene.shell("vm01").check("killall -USR1 holdmem")
    scene.shell("vm01", 1).finish(running)
    tell("vm02 gets a whole GPU, by VFIO: one that no slice is on.")
    scene.define("vm02")
    story.run("attach", "vm02", "--profile", "passthrough")
    story.run("vm", "show", "vm02")
    tell("Slices and whole GPUs do not get into each other's way.")
    story.run("gpu", "list")
    story.run("detach", "vm02", "--yes")
    tell("Take the slice back, with the VM running.")
    story.run("detach", "vm01", "--yes")
    story.virsh("destroy", "vm01")
    story.run("gpu", "list")
    tell("Everything is free again.")


def wait_for_lane(scene: GuestLab) -> None:
    """Until the worker has seen the program that was just started."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if "holdmem" in scene.vgpumgr("virtio", "show", "vm01", "-o", "json"):
            return
        time.sleep(0.2)


def main() -> int:
    """Set the scene, tell the story, clear up."""
    if os.geteuid() != 0:
        print("demo: needs root (libvirtd and FUSE)", file=sys.stderr)
        return 4
    began = time.monotonic()
    with ExitStack() as stack:
        scene = stack.enter_context(lab("dgx-a100"))
        tell_story(scene)
    print(f"\n{time.monotonic() - began:.0f} s. Nothing that was started is left running.")
    print(
        "The web page of such a machine, for a browser here. Its GPUs are free, and the demo's VMs are gone:\n"
        "it lists the VMs of this machine's own libvirt, or says that no libvirt answers.\n"
        "  ./run vgpumgr sim start dgx-a100\n"
        "  ./run vgpumgr --machine dgx-a100 daemon &\n"
        "  ./run vgpumgr --machine dgx-a100 web\n"
        "Ctrl-C ends the page; then:\n"
        "  kill %1\n"
        "  ./run vgpumgr sim stop dgx-a100"
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        print(f"demo: {' '.join(map(str, error.cmd))}: exit {error.returncode}", file=sys.stderr)
        sys.exit(1)
