"""The tree of commands: which module has a noun or a top-level verb, and its line in the help.

A module has an ``app`` with its verbs, or another name behind a colon; it is imported when one of them is named,
and at no other time. To add a verb to a noun, add a function to the noun's module.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A noun, or a verb of the top level."""

    name: str
    module: str
    help: str
    hidden: bool = False

    def load(self) -> Any:
        """The app with its verbs, or with itself."""
        module, _, name = self.module.partition(":")
        return getattr(import_module(module), name or "app")


VERBS = (
    Entry("attach", "vgpumgr.cli.attach", "Give a VM a slice of a GPU, or a whole one."),
    Entry("detach", "vgpumgr.cli.attach", "Take a VM's slice back and free it."),
    Entry("run", "vgpumgr.cli.run", "Run a command of this host on a slice of a GPU."),
    Entry("restore", "vgpumgr.cli.recovery", "Restore layouts and channels after a boot."),
    Entry("status", "vgpumgr.cli.recovery", "Show whether actual and recorded state agree."),
    Entry("diff", "vgpumgr.cli.recovery", "Compare actual with recorded state."),
    Entry("recover", "vgpumgr.cli.recovery", "Recover interrupted operations, repair drift."),
    Entry("doctor", "vgpumgr.cli.doctor", "Check whether this host can give GPUs to VMs."),
    Entry(
        "support-bundle", "vgpumgr.cli.doctor", "Write what others need to help, without secrets."
    ),
    Entry("why", "vgpumgr.cli.attach", "Explain why a profile does not fit, and what would help."),
    Entry("daemon", "vgpumgr.cli.daemon", "Serve this machine's API."),
    Entry("api", "vgpumgr.cli.daemon", "Send a request to the daemon's API."),
    Entry("events", "vgpumgr.cli.daemon", "Follow operations, attachments, VMs, devices, claims."),
    Entry("audit", "vgpumgr.cli.daemon", "Check that the daemon's audit log is unchanged."),
    Entry("metrics", "vgpumgr.cli.daemon", "Print the metrics for Prometheus."),
    Entry("top", "vgpumgr.cli.top", "Watch GPUs, slices and VMs."),
    Entry("web", "vgpumgr.cli.web", "Open the web page of a host's GPUs, slices and VMs."),
    Entry("listener", "vgpumgr.cli.https", "Show where the daemon listens on a network."),
    Entry("login", "vgpumgr.cli.https", "Keep a token of a host's listener."),
    Entry("logout", "vgpumgr.cli.https", "Forget a host's token and fingerprint."),
    Entry("completion", "vgpumgr.cli.program", "Print the completion script of a shell."),
    Entry("version", "vgpumgr.cli.program", "Show the version of vgpumgr."),
    Entry("help", "vgpumgr.cli.program", "Show the help of a command.", hidden=True),
)

NOUNS = (
    Entry("gpu", "vgpumgr.cli.gpu", "Physical GPUs, their slices and users."),
    Entry("mig", "vgpumgr.cli.mig", "MIG instances: hardware-isolated slices of a GPU."),
    Entry("passthrough", "vgpumgr.cli.passthrough", "Whole GPUs and PCI functions for VMs."),
    Entry("vf", "vgpumgr.cli.passthrough:vfs", "Virtual functions (SR-IOV)."),
    Entry("mdev", "vgpumgr.cli.mdev", "vGPUs: mediated devices, and VFs with a vGPU type."),
    Entry("virtio", "vgpumgr.cli.virtio", "Channels: how VMs without a GPU device reach slices."),
    Entry("vm", "vgpumgr.cli.vm", "Virtual machines and their attachments."),
    Entry("pool", "vgpumgr.cli.pool", "Hosts that share their GPUs; policies, tried on a trace."),
    Entry("claim", "vgpumgr.cli.claim", "What a VM or a process may use of a pool."),
    Entry(
        "reservation", "vgpumgr.cli.reservation", "GPUs of a pool for a tenant at a time of day."
    ),
    Entry("tenant", "vgpumgr.cli.tenant", "Whose claims of a pool go first, and their quotas."),
    Entry("token", "vgpumgr.cli.token", "Who may call the daemon over the network, and as what."),
    Entry("op", "vgpumgr.cli.op", "Operations of the daemon."),
    Entry("config", "vgpumgr.cli.daemon:config", "The configuration, and where it comes from."),
    Entry("host", "vgpumgr.cli.remote", "Other hosts.", hidden=True),
    Entry(
        "sim", "vgpumgr.cli.sim", "Simulated machines: NVML, CUDA, /sys and /proc without a GPU."
    ),
)


_UNADDRESSED = ("sim", "login", "logout", "listener", "token")


def address(text: str, options: str) -> str:
    """The text with these options in each vgpumgr command, except those that name a machine
    themselves (``sim``, ``login``) or are for the host of a listener. The program's name is a
    command's where a command's name follows it.
    """
    import re

    names = [entry.name for entry in (*VERBS, *NOUNS) if entry.name not in _UNADDRESSED]
    commands = rf"(?<![\w/.-])vgpumgr (?=(?:{'|'.join(names)})\b)"
    return re.sub(commands, lambda match: match[0] + options, text) if options else text
