"""The role: what it says of itself, and what it does to hosts that are refused and to a host with the names of RHEL.

Such a host is this system, seen through an overlay: what is written to it can be listed, and is thrown away. The role
on a Debian with systemd: tests/systemd/test_role.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "ansible/roles/vgpumgr"
UNITS = ROOT / "templates/systemd"
PLAYBOOK = str(Path(sys.executable).parent / "ansible-playbook")
RPMS = ["vgpumgr-0.1.0-1.x86_64.rpm", "vgpumgr-host-0.1.0-1.x86_64.rpm"]

ENTER = """\
set -e
mount --make-rprivate /
mount -t overlay overlay -o lowerdir=/,upperdir=$1/upper,workdir=$1/work $1/root
mount -t proc proc $1/root/proc
mount --rbind /dev $1/root/dev
for d in run sys dev/shm; do mount -t tmpfs tmpfs $1/root/$d; done
mkdir -p $1/root/run/systemd/system $1/root/sys/kernel/iommu_groups/0 $1/root/run/home
chmod 777 $1/root/run/home
exec chroot $1/root /usr/bin/env -i PATH=/stubs:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/run/home \
    TMPDIR=/run/home PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/nowhere ANSIBLE_NOCOLOR=1 bash -c "$2"
"""
#: programs of a RHEL: dnf writes down what it is asked, and rpm knows it from then on
STUBS = {
    "rpm": "echo 'python3 python3-3.12-1.x86_64'; cat /etc/installed 2>/dev/null",
    "dnf": """
echo "dnf $*" >>/etc/asked
while [ "$1" != install ]; do shift; done
shift
for f; do case $f in
	*.rpm) f=${f##*/}; f=${f%.rpm}; echo "${f%-*-*} $f" ;;
	*) echo "$f $f-1-1.x" ;;
esac; done >>/etc/installed
groupadd -r vgpumgr; groupadd -r vgpumgr-ro
mkdir -p /usr/lib/systemd/system
touch /usr/lib/systemd/system/virtqemud.service
printf '#!/bin/sh\\necho "vgpumgr $*" >>/etc/asked; cat /etc/answer\\n' >/usr/bin/vgpumgr
chmod +x /usr/bin/vgpumgr""",
    "systemctl": """
case "$*" in
*list-unit-files*) cat /etc/enabled 2>/dev/null; exit ;;
*list-units*) cat /etc/active 2>/dev/null; exit ;;
*is-enabled*) grep -q "^$2 enabled" /etc/enabled 2>/dev/null && echo enabled || { echo disabled; exit 1; }; exit ;;
*is-active*) exit 3 ;;
*show*) echo 'LoadState=loaded'; echo 'ActiveState=inactive'; exit ;;
enable*) echo "$2 enabled" >>/etc/enabled ;;
start*) echo "$2 loaded active" >>/etc/active ;;
esac
echo "systemctl $*" >>/etc/asked""",
}


class System:
    """This system under another name, or without something."""

    def __init__(self, directory: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("needs root (namespaces)")
        self.directory = directory
        for name in ("upper", "work", "root"):
            (directory / name).mkdir()

    def prepare(self, command: str) -> None:
        """Changes before the play."""
        done = self._enter(command)
        if "overlay" in done.stderr:
            pytest.skip(f"no overlay of this system: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr

    def call(
        self, *, check: bool = False, before: str = "true", runner: str = "", **variables: Any
    ) -> str:
        """The play; what it said, with its status as the last line."""
        given = {
            "ansible_become": False, "ansible_python_interpreter": sys.executable,
            "vgpumgr_packages": ["/run/vgpumgr_1_amd64.deb"],
        } | variables  # fmt: skip
        words = [
            PLAYBOOK,
            "-c",
            "local",
            "-i",
            "localhost,",
            str(ROOT / "ansible/site.yml"),
            "--diff",
        ]
        words += ["--check"] if check else []
        words += ["-e", json.dumps(given)]
        done = self._enter(
            f"cd /run && {before} && {runner} {shlex.join(words)} 2>&1; echo status $?"
        )
        return done.stdout + done.stderr

    def _enter(self, command: str) -> subprocess.CompletedProcess[str]:
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER]
        return subprocess.run(
            [*words, "enter", str(self.directory), command],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def list_changes(self) -> set[str]:
        """What in it is unlike this system: files, and directories that are new."""
        upper = self.directory / "upper"
        below = {str(path.relative_to(upper)): path for path in upper.rglob("*")}
        return {
            name for name, path in below.items()
            if path.is_symlink() or not path.is_dir() or not Path("/", name).is_dir()
        }  # fmt: skip


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def change_system(name: str, kin: str = "") -> str:
    """Says in the overlay that it is another distribution."""
    return f"rm -f /etc/os-release; printf 'ID={name}\\nID_LIKE=\"{kin}\"\\nVERSION_ID=9\\n' >/etc/os-release"


@pytest.mark.parametrize(
    ("make", "before", "variables", "found", "hint"),
    [
        ("true", "user=nobody", {}, "runs as user 65534", "become: true"),
        (change_system("plan9"), "true", {}, 'found "plan9 9"', "docs/install.md"),
        ("true", "rmdir /run/systemd/system", {}, "/run/systemd/system is not there", "systemd runs in"),
        ("true", "rmdir /sys/kernel/iommu_groups/0", {}, "/sys/kernel/iommu_groups is empty", "VT-d or AMD-Vi"),
        ("rm -f /lib/systemd/system/libvirtd.service", "true",
         {"vgpumgr_hypervisor": False}, "no libvirt on the host", "libvirt-daemon-system and qemu-system-x86"),
        ("true", "true", {"vgpumgr_admins": ["root", "ann"]}, "no user ann", "make the users first"),
        ("true", "true", {"vgpumgr_packages": []}, "found: none", "./run package"),
        ("true", "true", {"vgpumgr_packages": ["/run/a.rpm"]}, "found: a.rpm", "*.deb files for debian"),
    ],
    ids=["root", "distribution", "systemd", "iommu", "libvirt", "users", "nothing", "format"],
)  # fmt: skip
def test_a_host_that_is_refused_is_left_as_it_was(
    system: System, make: str, before: str, variables: dict[str, Any], found: str, hint: str
) -> None:
    system.prepare(make)
    made = system.list_changes()
    nobody = "setpriv --reuid nobody --regid nogroup --clear-groups" if "nobody" in before else ""
    said = system.call(before=before, runner=nobody, **variables)
    said = re.sub(r"\s+", " ", said)
    assert found in said
    assert hint in said
    assert "nothing was changed. Try:" in said
    assert re.search(r"changed=0 .* failed=1 .* status 2", said)
    assert system.list_changes() == made


def read(name: str) -> Any:
    return yaml.safe_load((ROLE / name).read_text())


def list_tasks() -> list[dict[str, Any]]:
    return [
        task for path in sorted(ROLE.glob("tasks/*.yml")) for task in read(f"tasks/{path.name}")
    ]


def test_defaults_are_those_of_the_declaration() -> None:
    declared = read("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read("defaults/main.yml")
    assert set(declared) == set(defaults)
    for name, option in declared.items():
        if "default" in option:
            assert option["default"] == defaults[name], name


def test_every_unit_starts_the_program_that_a_wheel_has_elsewhere() -> None:
    (units,) = [task for task in list_tasks() if task["name"] == "Units"]
    assert (
        "replace('/usr/bin/vgpumgr', vgpumgr_prefix ~ '/bin/vgpumgr')"
        in (units["ansible.builtin.copy"]["content"])
    )
    for path in UNITS.glob("*.service"):
        for line in path.read_text().splitlines():
            if line.startswith("ExecStart="):
                assert line.startswith("ExecStart=/usr/bin/vgpumgr "), path.name


def test_the_state_directory_has_the_mode_that_the_units_give_it() -> None:
    (made,) = [task for task in list_tasks() if task["name"] == "State directory"]
    mode = made["ansible.builtin.file"]["mode"]
    assert f"StateDirectoryMode={mode}" in (UNITS / "vgpumgr.service").read_text()
    assert f"d /var/lib/vgpumgr {mode} " in (UNITS / "vgpumgr.tmpfiles.conf").read_text()


def test_the_daemon_and_metrics_are_among_the_extras() -> None:
    assert "daemon" in read("defaults/main.yml")["vgpumgr_extras"]


def test_a_host_with_the_names_of_rhel(system: System) -> None:
    """What the role asks of dnf, systemd and vgpumgr there: the programs are stubs, there is no RHEL here."""
    answer = {
        "repairs": [{"check": "iommu", "actions": ["run grubby"], "needs_reboot": True}],
        "vms": [],
        "steps": [],
    }
    stubs = "; ".join(
        f"printf '%s\\n' '#!/bin/bash' {shlex.quote(text)} >/stubs/{name}"
        for name, text in STUBS.items()
    )
    system.prepare(
        f"mkdir /stubs; {stubs}; chmod +x /stubs/*; rm -f /usr/bin/dpkg-query "
        f"/lib/systemd/system/libvirtd.service; {change_system('rocky', 'rhel centos fedora')}; "
        f"printf %s {shlex.quote(json.dumps(answer))} >/etc/answer"
    )
    made = system.list_changes()
    before = "touch " + " ".join(f"/run/{name}" for name in RPMS)
    wanted: dict[str, Any] = {
        "vgpumgr_packages": [f"/run/{name}" for name in RPMS],
        "vgpumgr_admins": ["daemon"],
        "vgpumgr_attachments": [{"vm": "a", "profile": "vf:2"}],
    }
    said = system.call(check=True, before=before, **wanted)
    assert "failed=0" in said, said
    for name in ("libvirt-daemon-kvm", "qemu-kvm", *RPMS):
        assert name in said
    assert system.list_changes() == made, "check mode changes nothing"

    said = system.call(before=before, **wanted)
    assert "failed=0" in said, said
    assert (
        "iommu: run grubby; takes effect with a reboot. Nothing was done: vgpumgr_kernel is false"
        in said
    )
    asked = (system.directory / "upper/etc/asked").read_text().splitlines()
    files = [f"/run/vgpumgr-packages/{name}" for name in RPMS]
    assert f"dnf -q -y install libvirt-daemon-kvm qemu-kvm {' '.join(files)}" in asked
    assert "systemctl enable vgpumgr-restore.service" in asked
    assert "systemctl start vgpumgr.socket" in asked
    assert "vgpumgr attach a --profile vf:2 --add -o json" in asked
    assert not any("--yes" in line for line in asked), "no consent"

    answer["vms"] = [{"name": "a", "attachments": [{"profile": "vf"}]}]
    (system.directory / "upper/etc/answer").write_text(json.dumps(answer))
    (system.directory / "upper/etc/asked").unlink()
    again = system.call(before=before, **wanted)
    assert re.search(r"changed=0 .* failed=0 ", again), again

    consented = system.call(before=before, vgpumgr_kernel=True, **wanted)
    assert "failed=0" in consented, consented
    asked = (system.directory / "upper/etc/asked").read_text().splitlines()
    assert any("doctor --fix" in line and "--yes" in line for line in asked)
    assert not any("reboot" in line for line in asked), "never by itself"
