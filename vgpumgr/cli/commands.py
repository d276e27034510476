"""The tree of commands, as data: what ``--help`` lists, and which module each verb lives in.

A verb's module has a function ``command``, declared with ``declarations``, which only parses; it is
imported when its verb is typed, and at no other time. To add a verb, add a row here and a file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Verb(NamedTuple):
    """One command: its name, its module, and its line in the help."""

    name: str
    module: str
    help: str


class Group(NamedTuple):
    """A noun with its verbs, and nouns below it."""

    name: str
    help: str
    verbs: tuple[Verb, ...]
    groups: tuple[Group, ...] = ()
    hidden: bool = False


TOP_LEVEL = (
    Verb("attach", "vgpumgr.cli.attach", "Give a VM a slice of a GPU."),
    Verb("detach", "vgpumgr.cli.detach", "Take a VM's slice back."),
    Verb("restore", "vgpumgr.cli.restore", "Bring layouts and channels back after a boot."),
    Verb("status", "vgpumgr.cli.status", "Show whether all is as it is recorded."),
    Verb("diff", "vgpumgr.cli.diff", "Compare what is recorded with what is."),
    Verb("recover", "vgpumgr.cli.recover", "Settle what a crash interrupted, repair what differs."),
    Verb("why", "vgpumgr.cli.why", "Say why a profile cannot be had now, and what would help."),
    Verb("daemon", "vgpumgr.cli.daemon", "Serve this machine's API."),
    Verb("api", "vgpumgr.cli.api", "Send a request to the daemon's API."),
    Verb("events", "vgpumgr.cli.events", "Follow what happens."),
    Verb("metrics", "vgpumgr.cli.metrics", "Print the metrics for Prometheus."),
    Verb("top", "vgpumgr.cli.top", "Watch GPUs, slices and VMs."),
    Verb("completion", "vgpumgr.cli.completion", "Print the completion script of a shell."),
    Verb("version", "vgpumgr.cli.version", "Show the version of vgpumgr."),
)

GROUPS = (
    Group(
        "gpu",
        "Physical GPUs: what there is, how it is cut, who uses it.",
        (
            Verb("list", "vgpumgr.cli.gpu_list", "List the GPUs."),
            Verb("show", "vgpumgr.cli.gpu_show", "Show one GPU, its slices and their users."),
        ),
    ),
    Group(
        "mig",
        "MIG instances: hardware-isolated slices of a GPU.",
        (
            Verb("list", "vgpumgr.cli.mig_list", "List the MIG instances."),
            Verb("profiles", "vgpumgr.cli.mig_profiles", "List the profiles and what still fits."),
            Verb("defrag", "vgpumgr.cli.mig_defrag", "Show which moves would make room."),
            Verb("enable", "vgpumgr.cli.mig_enable", "Turn MIG mode on."),
            Verb("disable", "vgpumgr.cli.mig_disable", "Turn MIG mode off."),
            Verb("checkpoint", "vgpumgr.cli.mig_checkpoint", "Save what there is to a file."),
            Verb("restore", "vgpumgr.cli.mig_restore", "Bring back what a checkpoint saved."),
        ),
        (
            Group(
                "layout",
                "Layouts: files that say how GPUs are cut.",
                (
                    Verb("plan", "vgpumgr.cli.mig_layout_plan", "Show the least change."),
                    Verb("apply", "vgpumgr.cli.mig_layout_apply", "Make it so."),
                    Verb("assert", "vgpumgr.cli.mig_layout_assert", "Say what differs."),
                    Verb("export", "vgpumgr.cli.mig_layout_export", "Write what there is."),
                ),
            ),
        ),
    ),
    Group(
        "passthrough",
        "Whole GPUs and other PCI functions for VMs.",
        (
            Verb("list", "vgpumgr.cli.passthrough_list", "List GPUs and who keeps them from VMs."),
            Verb("groups", "vgpumgr.cli.passthrough_groups", "List IOMMU groups with all members."),
            Verb("bind", "vgpumgr.cli.passthrough_bind", "Take a function from the host."),
            Verb("unbind", "vgpumgr.cli.passthrough_unbind", "Give a function back to the host."),
        ),
    ),
    Group(
        "vf",
        "Virtual functions (SR-IOV).",
        (
            Verb("list", "vgpumgr.cli.vf_list", "List virtual functions and who uses them."),
            Verb("enable", "vgpumgr.cli.vf_enable", "Make virtual functions."),
            Verb("disable", "vgpumgr.cli.vf_disable", "Remove virtual functions."),
        ),
    ),
    Group(
        "mdev",
        "vGPUs: mediated devices, and virtual functions with a vGPU type.",
        (
            Verb("types", "vgpumgr.cli.mdev_types", "List the vGPU types and what still fits."),
            Verb("list", "vgpumgr.cli.mdev_list", "List the vGPUs, ours and others'."),
            Verb("create", "vgpumgr.cli.mdev_create", "Create a vGPU."),
            Verb("delete", "vgpumgr.cli.mdev_delete", "Remove a vGPU and its definition."),
            Verb("define", "vgpumgr.cli.mdev_define", "Let a vGPU come back."),
            Verb("start", "vgpumgr.cli.mdev_start", "Create a defined vGPU."),
            Verb("stop", "vgpumgr.cli.mdev_stop", "Remove a vGPU, keep its definition."),
            Verb("adopt", "vgpumgr.cli.mdev_adopt", "Take over what somebody else created."),
        ),
    ),
    Group(
        "virtio",
        "Channels: how VMs without a GPU device reach their slices.",
        (
            Verb("list", "vgpumgr.cli.virtio_list", "List the channels."),
            Verb("show", "vgpumgr.cli.virtio_show", "Show one channel and who uses it."),
            Verb(
                "guest-package",
                "vgpumgr.cli.virtio_guest_package",
                "Write the archive that a VM needs to use its slice.",
            ),
        ),
    ),
    Group(
        "vm",
        "Virtual machines and what is attached to them.",
        (
            Verb("list", "vgpumgr.cli.vm_list", "List the VMs and their slices."),
            Verb("show", "vgpumgr.cli.vm_show", "Show one VM, its slice and its channel."),
            Verb(
                "xml", "vgpumgr.cli.vm_xml", "Print a VM's definition as an attach would make it."
            ),
        ),
    ),
    Group(
        "op",
        "Operations: what the daemon does or has done.",
        (
            Verb("list", "vgpumgr.cli.op_list", "List the operations."),
            Verb("show", "vgpumgr.cli.op_show", "Show one operation and its steps."),
            Verb("wait", "vgpumgr.cli.op_wait", "Wait until an operation has ended."),
            Verb("cancel", "vgpumgr.cli.op_cancel", "Stop an operation and undo it."),
        ),
    ),
    Group(
        "host",
        "Other hosts.",
        (
            Verb(
                "dial-stdio",
                "vgpumgr.cli.host_dial_stdio",
                "Join standard input and output to the daemon's socket.",
            ),
        ),
        hidden=True,
    ),
    Group(
        "sim",
        "Simulated machines: NVML, CUDA, /sys and /proc without a GPU.",
        (
            Verb("start", "vgpumgr.cli.sim_start", "Start a simulated machine."),
            Verb("stop", "vgpumgr.cli.sim_stop", "Stop it and forget its state."),
            Verb("reboot", "vgpumgr.cli.sim_reboot", "Reboot it: the disk stays, the rest goes."),
            Verb("list", "vgpumgr.cli.sim_list", "List machines, and which of them run."),
            Verb("env", "vgpumgr.cli.sim_env", "Print the variables for other programs."),
            Verb("tell", "vgpumgr.cli.sim_tell", "Let something happen to it: holders, faults."),
        ),
    ),
)


def list_names(words: Sequence[str]) -> list[str]:
    """The words that are no options."""
    return [word for word in words if not word.startswith("-")]


def find_group(words: Sequence[str]) -> tuple[Group | None, list[str]]:
    """The innermost group that the first words name, and the words after it."""
    found: Group | None = None
    groups: Sequence[Group] = GROUPS
    rest = list(words)
    while rest and (group := next((g for g in groups if g.name == rest[0]), None)):
        found, groups, rest = group, group.groups, rest[1:]
    return found, rest


def find_verb(words: Sequence[str]) -> tuple[Verb | None, list[str]]:
    """The verb that the first words name, and the words after it."""
    group, rest = find_group(words)
    verbs = group.verbs if group else TOP_LEVEL
    found = next((verb for verb in verbs if rest[:1] == [verb.name]), None)
    return found, rest[1:]


def address(text: str, options: str) -> str:
    """The text with these options in each command of ours, except those that name a machine
    themselves (``sim``). The program's name is a command's where a command's name follows it.
    """
    import re

    names = [one.name for one in (*TOP_LEVEL, *GROUPS) if one.name != "sim"]
    commands = rf"(?<![\w/.-])vgpumgr (?=(?:{'|'.join(names)})\b)"
    return re.sub(commands, lambda match: match[0] + options, text) if options else text


def load(verb: Verb) -> Callable[..., Any]:
    """The verb's function."""
    function: Callable[..., Any] = importlib.import_module(verb.module).command
    return function
