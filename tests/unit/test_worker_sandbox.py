"""The worker's sandbox from outside: what holds a running worker's processes, read from /proc."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from resource import (
    RLIMIT_CORE,
    RLIMIT_NOFILE,
    RLIMIT_NPROC,
    getrlimit,
    setrlimit,
)

import pytest

from tests.support.attached_machine import attached_machine
from tests.support.fake_channels import FakeChannels
from tests.support.service import make_bench
from tests.unit.calls_rig import null_channel, simulated_channel, start_python
from tests.unit.transport_rig import ECHO, Rig
from vgpumgr import __version__
from vgpumgr.app.documents.attachments import describe_warnings
from vgpumgr.cli.text import render_sandbox
from vgpumgr.errors import LibraryNotFoundError, SandboxError, UsageError
from vgpumgr.host.confinement import Fact, audit_tree
from vgpumgr.host.gpu_nodes import list_gpu_nodes
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.model.request import AttachRequest
from vgpumgr.state.domain_metadata import rebuild_records
from vgpumgr.steps.channel import check_sandbox
from vgpumgr.virtio import keeper
from vgpumgr.virtio.channel import ChannelSpec
from vgpumgr.virtio.keeper import Keeper, KeeperChannels, KeeperError, KeeperOptions
from vgpumgr.virtio.sandbox import choose_user_id

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif("VGPUMGR_TEST_LIB" in os.environ, reason="sanitizers have no sandbox"),
]
#: an own user needs root: anybody else's worker is himself, in a user namespace
AS_ROOT = {"user", "group", "groups"}
#: of a user of its own; native/keeper/sandbox.c
PROCESSES, FILES = 4096, 65536


@contextmanager
def computing(rig: Rig) -> Iterator[None]:
    """A guest process with a context, so that the worker has a session."""
    guest = start_python(rig, "context()\nprint('ready', flush=True)\ninput()")
    try:
        assert guest.stdout is not None
        assert guest.stdout.readline() == "ready\n"
        worker = rig.status().worker.pid
        assert Path(f"/proc/{worker}/task/{worker}/children").read_text()
        yield
    finally:
        guest.communicate("\n")


def audit(rig: Rig, *writable: Path) -> tuple[Fact, ...]:
    worker = rig.status().worker.pid
    return audit_tree(worker, os.getpid(), writable=[str(path) for path in writable])


def list_failing(facts: tuple[Fact, ...]) -> list[Fact]:
    ignored = AS_ROOT if os.geteuid() else set()
    return [fact for fact in facts if not fact.holds and fact.name not in ignored]


def test_every_fact_holds_of_a_worker_that_serves() -> None:
    with null_channel("auto") as rig, computing(rig):
        facts = audit(rig)
    assert len(facts) >= 25
    assert list_failing(facts) == []


@contextmanager
def other_caller() -> Iterator[None]:
    """This process hands on descriptors, and has limits that no worker has."""
    wanted = {RLIMIT_CORE: 1 << 20, RLIMIT_NOFILE: 1000, RLIMIT_NPROC: 1 << 15}
    before = {which: getrlimit(which) for which in wanted}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "vgpumgr.virtio.keeper.subprocess.run", partial(subprocess.run, close_fds=False)
        )
        try:
            for which, value in wanted.items():
                setrlimit(which, (value, before[which][1]))
            yield
        finally:
            for which, values in before.items():
                setrlimit(which, values)


@pytest.mark.skipif(os.geteuid() != 0, reason="a limit on processes is of another user")
def test_limits_and_descriptors_are_not_the_callers(tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        files_limit = min(FILES, getrlimit(RLIMIT_NOFILE)[1])
        with other_caller(), null_channel("auto") as rig, computing(rig):
            assert list_failing(audit(rig)) == []
            worker = rig.status().worker.pid
            sessions = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
            for pid in (worker, *map(int, sessions)):
                limits = Path(f"/proc/{pid}/limits").read_text()
                assert re.search(rf"^Max processes +{PROCESSES} ", limits, re.MULTILINE)
                assert re.search(rf"^Max open files +{files_limit} ", limits, re.MULTILINE)
                files = [fd.readlink().name for fd in Path(f"/proc/{pid}/fd").iterdir()]
                assert files
                assert "secret" not in files


def test_a_strict_umask_is_not_in_the_way() -> None:
    before = os.umask(0o077)
    try:
        with null_channel("ring") as rig:
            assert list_failing(audit(rig)) == []
    finally:
        os.umask(before)


@pytest.fixture
def beside_dev(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where all directories are made: not in memory below /dev, as a worker has its GPU's nodes alone in /dev."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def test_every_fact_holds_on_the_simulated_driver(beside_dev: Path) -> None:
    with simulated_channel("ring", beside_dev) as rig, computing(rig):
        state = beside_dev / "a30-pair" / "state"
        assert list_failing(audit(rig, state)) == []


def test_the_audit_notices_a_worker_without_a_sandbox() -> None:
    with null_channel("ring", VGPUMGR_ALLOW_UNCONFINED="1") as rig:
        facts = audit(rig)
    # what may hold of any process
    common = {"CapInh", "CapAmb", "groups", "network", "descriptors"}
    common |= {"max core file size", "max open files", "AppArmor"}
    assert {fact.name for fact in facts if fact.holds} <= common


def test_each_worker_of_a_host_has_a_user_of_its_own() -> None:
    if os.geteuid():
        pytest.skip("needs root")
    with null_channel("ring") as one, null_channel("ring") as other:
        users = [Path(f"/proc/{rig.status().worker.pid}").stat().st_uid for rig in (one, other)]
    assert len({*users, 0}) == 3


def test_a_worker_that_cannot_be_confined_does_not_start(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "k")
    keeper.start(KeeperOptions(worker=ECHO, confined=True, devices=("/dev/not-there",)))
    try:
        with pytest.raises(KeeperError) as caught:
            keeper.wait_ready()
    finally:
        keeper.stop()
    assert "sandbox: cannot find /dev/not-there" in (caught.value.cause or "")


def test_the_refusal_says_what_and_why_and_what_to_try(tmp_path: Path) -> None:
    channels = FakeChannels(tmp_path)
    channels.start(ChannelSpec("a1", "vm01", "MIG-1", ring=True, serial=False))
    status = channels.read_status("a1")
    assert status is not None
    check_sandbox("vm01", replace(status, problem="waiting: no CUDA device"))
    with pytest.raises(SandboxError) as caught:
        check_sandbox("vm01", replace(status, problem="waiting: sandbox: cannot mount it: no"))
    assert caught.value.cause == "cannot mount it: no"
    assert "--allow-unconfined" in (caught.value.hint or "")


NO_SANDBOX = "user namespaces are switched off"


def test_without_a_sandbox_an_attach_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    before = bench.snapshot()
    bench.channels.obstacle = NO_SANDBOX
    for dry_run in (True, False):
        with pytest.raises(SandboxError) as caught:
            bench.service.attach(AttachRequest("vm01", "1g.10gb"), dry_run=dry_run)
        assert caught.value.cause == NO_SANDBOX
        assert bench.snapshot() == before


def test_without_the_hosts_package_an_attach_is_refused_before_anything_is_changed(
    tmp_path: Path,
) -> None:
    bench = make_bench(tmp_path)
    before = bench.snapshot()
    bench.channels.programs = (tmp_path / "vgpumgr-keeper",)
    for dry_run in (True, False):
        with pytest.raises(LibraryNotFoundError, match="not installed") as caught:
            bench.service.attach(AttachRequest("vm01", "1g.10gb"), dry_run=dry_run)
        assert "vgpumgr-keeper" in (caught.value.cause or "")
        assert "vgpumgr-host" in (caught.value.why or "")
        assert caught.value.hint
        assert bench.snapshot() == before


@pytest.mark.parametrize("own", [None, "7.0~20260101"])
def test_with_a_host_package_of_another_version_an_attach_is_refused_before_anything_is_changed(
    tmp_path: Path, own: str | None
) -> None:
    bench = make_bench(tmp_path)
    before = bench.snapshot()
    lib = bench.channels.lib
    lib.mkdir(parents=True)
    if own is not None:
        (lib / "version").write_text(f"{own}\n")
    (lib / "channels.version").write_text("6.9\n")
    for dry_run in (True, False):
        with pytest.raises(LibraryNotFoundError) as caught:
            bench.service.attach(AttachRequest("vm01", "1g.10gb"), dry_run=dry_run)
        mine = own or __version__
        both = f"the programs of channels are of version 6.9, and this command of version {mine}"
        assert caught.value.error == both
        assert caught.value.hint
        assert bench.snapshot() == before
    (lib / "channels.version").write_text(f"{own or __version__}\n")
    bench.service.attach(AttachRequest("vm01", "1g.10gb"))


def test_no_keeper_of_another_version_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for restore and recover, which ask nothing beforehand."""
    (tmp_path / "channels.version").write_text("6.9\n")
    monkeypatch.setattr(keeper.check_programs, "__defaults__", (tmp_path,))
    machine = Machine("test", tmp_path, tmp_path, tmp_path / "run", "test:///default")
    channels = KeeperChannels(machine)
    with pytest.raises(LibraryNotFoundError, match=r"are of version 6\.9"):
        channels.start(ChannelSpec("a1", "vm01", "MIG-1", ring=True, serial=True))
    assert not (tmp_path / "run").exists()


def test_a_guest_package_of_another_version_is_a_problem_of_its_vm(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.service.attach(AttachRequest("vm01", "1g.10gb"))
    (channel,) = bench.channels.running
    status = bench.channels.running[channel]
    bench.channels.running[channel] = replace(
        status, worker_ready=True, guest_differs="libraries 1; install 2"
    )
    assert bench.service.show_vm("vm01").vm.problems == ["libraries 1; install 2"]
    (record,) = bench.store.list_attachments()
    warned = describe_warnings(record, bench.channels.running[channel], None)
    assert warned == ["vm01: libraries 1; install 2"]


def test_an_attachment_that_allows_it_goes_without_and_keeps_its_choice(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.channels.obstacle = NO_SANDBOX
    request = AttachRequest("vm01", "1g.10gb", allow_unconfined=True)
    done = bench.service.attach(request)
    assert any(NO_SANDBOX in note for note in done.notes)
    (record,) = bench.store.list_attachments()
    assert bench.channels.specs[record.id].confined is False
    (rebuilt,) = rebuild_records(bench.hypervisor.read_vm("vm01"))
    assert rebuilt.channel is not None
    assert rebuilt.channel.allow_unconfined


def test_where_there_can_be_a_sandbox_there_is_one_whatever_is_allowed(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    done = bench.service.attach(AttachRequest("vm01", "1g.10gb", allow_unconfined=True))
    (record,) = bench.store.list_attachments()
    assert bench.channels.specs[record.id].confined is None
    assert not any("sandbox" in note for note in done.notes)


def test_only_a_forwarded_slice_has_a_worker_to_confine(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    request = AttachRequest("vm01", "passthrough", allow_unconfined=True)
    with pytest.raises(UsageError, match="--allow-unconfined is for slices"):
        bench.service.attach(request)


def test_channels_of_one_host_never_share_a_user(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    first = choose_user_id(tmp_path / "one")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/user").write_text(f"{first}\n")
    assert choose_user_id(tmp_path / "one") != first


def test_a_worker_sees_the_nodes_of_its_gpu_and_its_instance_only(tmp_path: Path) -> None:
    proc, dev = tmp_path / "proc/driver/nvidia", tmp_path / "dev"
    for minor in (0, 1):
        (proc / f"gpus/0000:0{minor}:00.0").mkdir(parents=True)
        text = f"Model:\t\t X\nGPU UUID:\t GPU-{minor}\nDevice Minor:\t {minor}\n"
        (proc / f"gpus/0000:0{minor}:00.0/information").write_text(text)
    (dev / "nvidia-caps").mkdir(parents=True)
    names = [f"nvidia-caps/nvidia-cap{number}" for number in range(40, 50)]
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", *names):
        (dev / name).touch()
    for number, place in enumerate(("gi1", "gi1/ci0", "gi1/ci1", "gi2", "gi2/ci0")):
        directory = proc / "capabilities/gpu1/mig" / place
        directory.mkdir(parents=True)
        (directory / "access").write_text(f"DeviceFileMinor: {40 + number}\nDeviceFileMode: 292\n")
    machine = replace(find_machine(None, {}), root=tmp_path)
    assert list_gpu_nodes(machine, "GPU-1", 1, 0) == (
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap40",
        "/dev/nvidia-caps/nvidia-cap41",
    )


@pytest.mark.usefixtures("beside_dev")
def test_show_says_what_holds() -> None:
    with attached_machine() as machine:
        shown = machine.call("show_channel", selector="vm01")
    (sandbox,) = shown["sandboxes"]
    assert sandbox["id"] == shown["channel"]["id"]
    failing = {fact["name"] for fact in sandbox["facts"] if not fact["holds"]}
    assert failing <= (AS_ROOT if os.geteuid() else set())
    lines = list(render_sandbox(shown["sandboxes"], sandbox["id"]))
    count = len(sandbox["facts"])
    assert f" {count - len(failing)} of {count} facts hold; AppArmor: " in lines[0]
    sandbox["facts"][0] |= {"holds": False, "detail": "the host's"}
    assert f"{sandbox['facts'][0]['name']} does not: the host's" in "".join(
        render_sandbox(shown["sandboxes"], sandbox["id"])
    )
