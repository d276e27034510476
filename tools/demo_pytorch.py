"""``./run demo --pytorch``: PyTorch from PyPI trains on a slice, on a simulated DGX A100.

Everything shown is the output of the real commands; only the GPUs are simulated. What the demo starts it ends.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.pytorch import ROOT, TRAIN, find_pytorch, torch_env
from tools.demo import DIM, PLAIN, tell

MACHINE = "dgx-a100"
STEPS = 8
#: steps that are not over when the next command asks who uses the slice
LONGER = 40


class Story:
    """Shows commands and what they print."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env

    def start(self, *words: str, stdout: int | None = None) -> subprocess.Popen[str]:
        """A vgpumgr command as a user would type it."""
        print(f"{DIM}host${PLAIN} vgpumgr {shlex.join(words)}", flush=True)
        # a reader of a file sees a table, too
        table = ["-o", "table"] * (words[1:2] == ("list",))
        started = sys.executable, "-m", "vgpumgr", "--machine", MACHINE, *words, *table
        return subprocess.Popen(started, env=self.env, cwd=ROOT, stdout=stdout, text=True)

    def finish(self, process: subprocess.Popen[str]) -> None:
        """Print what is left of its output. Raises subprocess.CalledProcessError."""
        for line in process.stdout or ():
            print(line, end="", flush=True)
        if status := process.wait():
            raise subprocess.CalledProcessError(status, process.args)

    def run(self, *words: str) -> None:
        """A command from beginning to end."""
        self.finish(self.start(*words))


def tell_story(story: Story) -> None:
    """Two networks, step by step beside the CPU."""
    python = ("run", "--profile", "1g.10gb", "--", "python")
    tell("A host with eight A100s, simulated. Which mathematics libraries do its sessions find?")
    story.run("doctor", "--check", "mathematics")
    tell("PyTorch as pip installs it, without NVIDIA's libraries, on a slice. Is cuBLAS there?")
    story.run(
        *python,
        "-c",
        "import torch; a = torch.ones(3, 3).cuda(); print(torch.cuda.get_device_name()); print((a @ a).cpu())",
    )
    tell("A compiled network with convolutions trains, beside the same network on the CPU.")
    story.run(*python, TRAIN, "cnn", str(STEPS))
    tell("And a small language model. Who uses the slice meanwhile?")
    training = story.start(*python, TRAIN, "gpt", str(LONGER), stdout=subprocess.PIPE)
    assert training.stdout is not None
    print(training.stdout.readline(), end="", flush=True)
    story.run("virtio", "list")
    story.finish(training)
    tell("Its slice ended with it.")
    story.run("mig", "list")


def prepare(directory: Path) -> dict[str, str]:
    """The environment of the commands: a machine of the demo's own, and a ``python`` that has PyTorch."""
    programs = directory / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "VGPUMGR_SIM_ROOT": str(directory)}
    return {**os.environ, **torch_env(directory), **own}


def main() -> int:
    """Start the machine, tell the story, stop it."""
    if find_pytorch() is None:
        print("demo: PyTorch is not set up; try: ./run demo --pytorch", file=sys.stderr)
        return 1
    began = time.monotonic()
    # short: the paths of sockets are limited
    with tempfile.TemporaryDirectory(prefix="vgd") as name:
        env = prepare(Path(name))
        machine = [sys.executable, "-m", "vgpumgr", "sim"]
        subprocess.run([*machine, "start", MACHINE], env=env, check=True, capture_output=True)
        try:
            tell_story(Story(env))
        finally:
            subprocess.run([*machine, "stop", MACHINE], env=env, check=False, capture_output=True)
    print(f"\n{time.monotonic() - began:.0f} s. Nothing that was started is left running.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        print(f"demo: {shlex.join(error.cmd)}: exit {error.returncode}", file=sys.stderr)
        sys.exit(1)
