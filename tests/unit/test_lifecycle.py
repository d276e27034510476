"""When what a VM has is freed because of what happened to the VM: decided on fakes, with a clock of the test's own."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.domains import UUID_PC
from tests.support.service import Bench, make_bench
from tests.support.watched import watched
from vgpumgr.app.application import Application
from vgpumgr.app.operations.attachment_recovery import observe_attachments
from vgpumgr.app.operations.channels import restart_channel
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.errors import (
    ChannelNotFoundError,
    ChannelRestartError,
    ChannelStartError,
    LibvirtError,
    RolledBackError,
    SandboxError,
    SettingsError,
    UsageError,
    VmNotFoundError,
)
from vgpumgr.model.attachment import AttachmentState
from vgpumgr.model.limits import parse_limits
from vgpumgr.model.request import AttachRequest
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.server.reconciler import Lifecycle, Sources
from vgpumgr.server.settings import ReleaseSettings, Settings, read_settings
from vgpumgr.state.domain_metadata import rebuild_records
from vgpumgr.virtio.channel import SessionEvent, SessionReport


class Scene:
    """One VM with a slice."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.bench: Bench = make_bench(directory)
        self.bench.service.attach(AttachRequest("vm01", "1g.10gb"))
        self.clock = FakeClock()
        self.qemu: int | None = None
        chosen = ReleaseSettings.model_validate(settings)
        self.life = Lifecycle(chosen, self.clock, lambda _: self.qemu)

    def observe(self, **vm: object) -> Snapshot:
        """What is, with the VM as it is said to be."""
        observed = observe_attachments(self.bench.service.parts)
        vms = [replace(v, **vm) if v.uuid == UUID_PC else v for v in observed.vms]  # type: ignore[arg-type]
        return observed.replace(vms=vms)

    def choose(self, **vm: object) -> list[str]:
        return [why for _, why in self.life.choose_releases(self.observe(**vm))]


def test_an_undefined_vm_must_be_missing_for_a_while(tmp_path: Path) -> None:
    scene = Scene(tmp_path, delay_s=10)
    assert scene.choose() == []
    assert scene.life.read_next_s() is None
    machine = scene.bench.hypervisor.machines.pop(UUID_PC)
    assert scene.choose() == []
    assert scene.life.read_next_s() == 10
    scene.clock.sleep(9)
    assert scene.choose() == []
    scene.bench.hypervisor.machines[UUID_PC] = machine  # defined anew: the time begins anew
    assert scene.choose() == []
    assert scene.life.read_next_s() is None
    del scene.bench.hypervisor.machines[UUID_PC]
    scene.clock.sleep(9)
    assert scene.choose() == []
    scene.clock.sleep(10)
    assert scene.choose() == ["the VM is no longer defined"]


def test_a_qemu_that_still_runs_is_no_vm_that_is_gone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, delay_s=10)
    scene.bench.hypervisor.machines.clear()
    scene.choose()
    scene.qemu = 4711
    scene.clock.sleep(20)
    assert scene.choose() == []
    scene.qemu = None
    assert scene.choose() == []
    scene.clock.sleep(10)
    assert scene.choose() == ["the VM is no longer defined"]


def test_policy_keeps_an_undefined_vms_slice(tmp_path: Path) -> None:
    scene = Scene(tmp_path, undefined=False, delay_s=0)
    scene.bench.hypervisor.machines.clear()
    assert scene.choose() == scene.choose() == []


@pytest.mark.parametrize("policy", [True, False])
def test_a_migrated_vm(tmp_path: Path, policy: bool) -> None:
    scene = Scene(tmp_path, migrated=policy)
    assert scene.choose(migrated=True) == (["the VM runs on another host now"] if policy else [])
    assert scene.choose(migrated=False) == []


def test_a_stop_counts_for_what_the_vm_had_then(tmp_path: Path) -> None:
    scene = Scene(tmp_path, stopped=True)
    (record,) = scene.bench.store.list_attachments()
    assert scene.choose() == []
    scene.clock.now_s = record.created_s - 1
    scene.life.note_stopped(UUID_PC)
    assert scene.choose() == [], "it got it later"
    scene.clock.now_s = record.created_s + 1
    scene.life.note_stopped(UUID_PC)
    assert scene.choose() == ["the VM was stopped"]


@pytest.mark.parametrize("days", [-3, 3])
def test_once_the_clock_was_set_nobody_knows_what_a_vm_had(tmp_path: Path, days: int) -> None:
    """Set back, what a VM got after its stop would seem to be older than that."""
    scene = Scene(tmp_path, stopped=True)
    (record,) = scene.bench.store.list_attachments()
    scene.clock.now_s = record.created_s + 1
    scene.life.note_stopped(UUID_PC)
    scene.clock.set_s = days * 86400.0
    assert scene.choose() == []
    scene.life.note_stopped(UUID_PC)
    # a stop after that counts again, as far as the times agree
    assert scene.choose() == (["the VM was stopped"] if days > 0 else [])


@pytest.mark.parametrize("days", [-3, 3])
def test_a_delay_is_no_matter_of_the_wall_clock(tmp_path: Path, days: int) -> None:
    scene = Scene(tmp_path, delay_s=10)
    scene.bench.hypervisor.machines.clear()
    scene.choose()
    scene.clock.set_s = days * 86400.0
    assert scene.choose() == []
    assert scene.life.read_next_s() == 10
    scene.clock.sleep(10)
    assert scene.choose() == ["the VM is no longer defined"]


def test_a_restart_is_no_stop(tmp_path: Path) -> None:
    scene = Scene(tmp_path, stopped=True)
    scene.clock.now_s = 1e12
    scene.life.note_stopped(UUID_PC)
    machine = scene.bench.hypervisor.machines[UUID_PC]
    machine.live = machine.config
    assert scene.choose() == []
    machine.live = None
    assert scene.choose() == []


def test_what_is_chosen_is_freed_in_its_definition_too(tmp_path: Path) -> None:
    """A VM that has migrated away may still be defined here."""
    scene = Scene(tmp_path)
    recovery = Recovery(scene.bench.service.parts)

    def choose(observed: Snapshot):  # type: ignore[no-untyped-def]
        vms = [replace(vm, migrated=vm.uuid == UUID_PC) for vm in observed.vms]
        return scene.life.choose_releases(observed.replace(vms=vms))

    done = recovery.recover(Policy(), choose)
    assert [a.text for a in done.actions] == ["freed 1g.10gb: the VM runs on another host now"]
    assert done.drift == []
    assert scene.bench.gpu.instances == ()
    machine = scene.bench.hypervisor.machines[UUID_PC]
    assert machine.config is not None
    assert machine.config.own_aliases() == ()
    assert machine.notes == ()
    assert recovery.recover(Policy(), choose).actions == []


def test_a_worker_that_was_given_up_is_tried_again_when_asked(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    recovery, channels = Recovery(scene.bench.service.parts), scene.bench.channels
    (id_,) = channels.running
    failed = replace(
        channels.running[id_], worker_ready=False, worker_failed=True, problem="no GPU"
    )
    channels.running[id_] = failed
    done = recovery.recover(Policy(restart=False))
    assert ([d.kind for d in done.drift], done.actions) == (["worker-down"], [])
    assert "no GPU" in done.drift[0].text
    channels.fail["restart_worker"] = ChannelStartError("no")
    assert [a.done for a in recovery.recover(Policy()).actions] == [False]
    done = recovery.recover(Policy())
    assert [a.text for a in done.actions] == ["started its worker again"]
    assert done.drift == []


def restart(scene: Scene, **asked: Any) -> Any:
    return restart_channel(scene.bench.service.parts, **({"vm": "vm01"} | asked))


def test_a_restart_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    channels, store = scene.bench.channels, scene.bench.store
    (id_,) = channels.running
    before = dict(channels.running)
    with pytest.raises(ChannelNotFoundError):
        restart(scene, vm="vm02")
    with pytest.raises(ChannelNotFoundError):
        restart(scene, vm="no-such-vm", dry_run=True)
    event = SessionEvent("stuck", 3, 4711, 1)
    channels.running[id_] = replace(before[id_], sessions=SessionReport(events=(event,)))
    for dry_run in (True, False):
        with pytest.raises(ChannelRestartError) as refused:
            restart(scene, dry_run=dry_run)
        assert refused.value.held_by == ("session 4711 of lane 3",)
    channels.running[id_] = before[id_]
    (record,) = store.list_attachments()
    instances = scene.bench.gpu.instances
    scene.bench.nvml.gpus[scene.bench.gpu.uuid] = replace(scene.bench.gpu, instances=())
    with pytest.raises(ChannelRestartError, match=r"cannot restart the channel of vm01"):
        restart(scene)
    scene.bench.nvml.gpus[scene.bench.gpu.uuid] = replace(scene.bench.gpu, instances=instances)
    store.save_attachment(replace(record, state=AttachmentState.DETACHING))
    with pytest.raises(ChannelRestartError):
        restart(scene, dry_run=True)
    store.save_attachment(record)
    assert channels.running == before
    assert restart(scene, dry_run=True).plan.operation == "restart"
    assert channels.running == before


def test_a_restart_leaves_the_ring_of_a_running_vm(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    channels = scene.bench.channels
    (id_,) = channels.running
    assert [s.kind for s in restart(scene).plan.steps] == ["channel.stop", "channel.start"]
    first = channels.running[id_] = replace(channels.running[id_], qemu_pid=77)
    done = restart(scene)
    assert [s.kind for s in done.plan.steps] == ["channel.restart"]
    assert "QEMU (pid 77) has its ring" in done.plan.notes[0]
    assert channels.running[id_] == replace(first, worker_pid=(first.worker_pid or 0) + 1)
    done = restart(scene, keeper=True)
    assert [s.kind for s in done.plan.steps] == ["channel.stop", "channel.start"]
    assert done.plan.notes == ["the running guest has its ring again from its next start"]


def test_a_restart_changes_limits_that_are_named_and_keeps_the_others(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    channels, store, hypervisor = (
        scene.bench.channels,
        scene.bench.store,
        scene.bench.hypervisor,
    )
    (id_,) = channels.running
    restart(scene, limits=("events=7", "cpu=150%"))
    assert channels.specs[id_].limits == parse_limits(["events=7", "cpu=150%"])
    before = channels.running[id_] = replace(channels.running[id_], qemu_pid=77)
    with pytest.raises(UsageError):
        restart(scene, limits=("event=7",), keeper=True)
    with pytest.raises(ChannelRestartError, match="cannot change the limits") as refused:
        restart(scene, limits=("events=9",))
    assert refused.value.held_by == ("QEMU (pid 77)",)
    assert refused.value.hint == "vgpumgr virtio restart vm01 --keeper --limit events=9"
    # the same once more is no change: the ring stays
    assert [s.kind for s in restart(scene, limits=("events=7",)).plan.steps] == ["channel.restart"]
    assert restart(scene, limits=("events=9",), keeper=True, dry_run=True).dry_run
    assert channels.running[id_].keeper_pid == before.keeper_pid
    assert channels.specs[id_].limits == parse_limits(["events=7", "cpu=150%"])
    restart(scene, limits=("events=9",), keeper=True)
    for record in (*store.list_attachments(), *rebuild_records(hypervisor.read_vm("vm01"))):
        assert record.channel is not None
        assert set(record.channel.limits) == {"events=9", "cpu=150%"}
    assert channels.specs[id_].limits == parse_limits(["events=9", "cpu=150%"])


def test_limits_are_refused_where_they_cannot_be_written_down(tmp_path: Path) -> None:
    """A VM that libvirt does not know, or no libvirt: the record must not say other than the VM's metadata."""
    scene = Scene(tmp_path)
    channels, hypervisor = scene.bench.channels, scene.bench.hypervisor
    (before,), running = scene.bench.store.list_attachments(), dict(channels.running)
    hypervisor.fail["read_vm"] = LibvirtError("libvirt is down")
    with pytest.raises(LibvirtError):
        restart(scene, limits=("events=9",))
    machine = hypervisor.machines.pop(UUID_PC)
    for dry_run in (True, False):
        with pytest.raises(VmNotFoundError):
            restart(scene, limits=("events=9",), dry_run=dry_run)
    assert (scene.bench.store.list_attachments(), channels.running) == ((before,), running)
    assert [s.kind for s in restart(scene).plan.steps] == ["channel.stop", "channel.start"]
    hypervisor.machines[UUID_PC] = machine
    restart(scene, limits=("events=9",))
    assert Recovery(scene.bench.service.parts).diff().drift == []


@pytest.mark.parametrize("step", ["set_notes config", "stop", "start"])
def test_limits_that_no_keeper_has_are_not_taken_for_set(tmp_path: Path, step: str) -> None:
    """A restart that failed has left the old ones, or a channel that starts with the new ones."""
    scene = Scene(tmp_path)
    channels, store = scene.bench.channels, scene.bench.store
    (id_,) = channels.running
    channels.running[id_] = replace(channels.running[id_], qemu_pid=77)
    failing = scene.bench.hypervisor.fail if step.startswith("set") else channels.fail
    failing[step] = ChannelStartError("no")
    (before,) = store.list_attachments()
    with pytest.raises(ChannelStartError if step != "stop" else RolledBackError):
        restart(scene, limits=("events=9",), keeper=True)
    if step != "start":
        assert store.list_attachments() == (before,)
        with pytest.raises(ChannelRestartError, match="cannot change the limits"):
            restart(scene, limits=("events=9",))
    restart(scene, limits=("events=9",), keeper=True)
    assert channels.specs[id_].limits == parse_limits(["events=9"])
    for record in (
        *store.list_attachments(),
        *rebuild_records(scene.bench.hypervisor.read_vm("vm01")),
    ):
        assert record.channel is not None
        assert record.channel.limits == ("events=9",)
    channels.running[id_] = replace(channels.running[id_], qemu_pid=77)
    assert [s.kind for s in restart(scene, limits=("events=9",)).plan.steps] == ["channel.restart"]


def test_a_worker_that_could_not_start_again_is_not_ended(tmp_path: Path) -> None:
    """The host has lost what a sandbox needs since the channel began."""
    scene = Scene(tmp_path)
    channels = scene.bench.channels
    before, channels.obstacle = dict(channels.running), "user namespaces are switched off"
    for dry_run in (True, False):
        with pytest.raises(SandboxError):
            restart(scene, dry_run=dry_run)
    assert channels.running == before
    (record,) = scene.bench.store.list_attachments()
    scene.bench.store.save_attachment(record.with_channel(allow_unconfined=True))
    assert restart(scene).notes


def test_a_hint_names_what_was_asked_for(tmp_path: Path) -> None:
    """Of a VM with several attachments, the one whose id was given."""
    scene = Scene(tmp_path)
    channels = scene.bench.channels
    (id_,) = channels.running
    channels.running[id_] = replace(channels.running[id_], qemu_pid=77)
    with pytest.raises(ChannelRestartError) as refused:
        restart(scene, vm=id_, limits=("events=9",))
    assert refused.value.hint == f"vgpumgr virtio restart {id_} --keeper --limit events=9"


def test_a_worker_that_does_not_come_back_is_said(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    channels = scene.bench.channels
    channels.never_ready = True
    with pytest.raises(ChannelStartError):
        restart(scene)
    (drift,) = Recovery(scene.bench.service.parts).diff().drift
    assert drift.kind == "worker-down"
    channels.never_ready = False
    restart(scene)
    assert Recovery(scene.bench.service.parts).diff().drift == []


def test_settings(tmp_path: Path) -> None:
    path = tmp_path / "vgpumgr.toml"
    assert read_settings(path) == Settings()
    path.write_text("[release]\nstopped = true\n[reconcile]\ninterval_s = 5\n")
    settings = read_settings(path)
    assert (settings.release.stopped, settings.reconcile.interval_s) == (True, 5)
    for text in ("[release]\nstoped = true", "[reconcile]\ninterval_s = -1", "release = ", "\xff"):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(SettingsError) as caught:
            read_settings(path)
        assert caught.value.cause


def test_no_error_ends_the_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a look meets, the next one is had."""
    parts = make_bench(tmp_path).service.parts
    errors: list[Exception] = [OSError(errno.EMFILE, "too many"), ValueError("a bug")]
    real = Application.reconcile

    def fail(self: Application, *asked: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return real(self, *asked)

    monkeypatch.setattr(Application, "reconcile", fail)
    quick = Settings.model_validate({"reconcile": {"interval_s": 0.1}})
    with watched(parts, quick, Sources()) as seen:
        seen.wait(lambda: seen.reconciler.looks >= 3, "a third look")
        told = [e["error"]["id"] for e in seen.events if e["type"] == "reconcile" and e["error"]]
        assert told == ["VG192", "VG190"]
