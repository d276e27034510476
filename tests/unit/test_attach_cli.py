"""The verbs attach, detach, vm and virtio: what they ask for, what they print, when they stop."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.channels import restart_channel
from vgpumgr.app.operations.recovery import Recovery
from vgpumgr.app.operations.shares import set_share
from vgpumgr.cli.main import main
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.errors import NotPermittedError
from vgpumgr.model.choices import Transport
from vgpumgr.model.request import AttachRequest
from vgpumgr.virtio.channel import ChannelStatus, Lane, SessionEvent, SessionReport


@dataclass
class Cli:
    """The program on a bench; every call is kept."""

    bench: Bench
    calls: list[tuple[str, dict[str, Any]]]
    code: int = 0
    out: str = ""
    err: str = ""

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        self.calls.append((operation, params))
        service = self.bench.service
        if operation == "attach":
            dry_run, transport = params.pop("dry_run"), Transport(params.pop("transport"))
            document: Any = service.attach(AttachRequest(transport=transport, **params), dry_run)
        elif operation == "detach":
            document = service.detach(**params)
        elif operation in ("show_vm", "show_channel"):
            document = getattr(service, operation)(params["selector"])
        elif operation == "restart_channel":
            document = restart_channel(service.parts, **params)
        elif operation == "set_share":
            document = set_share(service.parts, **params)
        else:
            document = getattr(service, operation)()
        return document.as_data()  # type: ignore[no-any-return]

    def run(self, *words: str) -> str:
        options = GlobalOptions()
        out, err = io.StringIO(), io.StringIO()

        @contextmanager
        def backend(_options: GlobalOptions) -> Iterator[Cli]:
            yield self

        streams = Streams(options, out, err)
        self.code = main(list(words), Session(options, streams, backend))
        self.out, self.err = out.getvalue(), err.getvalue()
        return self.out


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(make_bench(tmp_path), [])


def use(cli: Cli, vm_id: str) -> None:
    """Somebody in the guest uses the channel."""
    lane = Lane(3, 412, "matmul", True, 1000, 1 << 20, 2048, 64 << 20)
    status: ChannelStatus = cli.bench.channels.running[vm_id]
    cli.bench.channels.running[vm_id] = replace(
        status, hello_serial=True, lanes=(lane,), calls=1000, bytes_in=1 << 20, bytes_out=2048
    )


@pytest.mark.parametrize("running", [True, False])
def test_who_may_not_look_at_a_channel_is_told_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    """Neither that it is not ready, nor that it is: and what to try."""
    cli = Cli(make_bench(tmp_path, running=running), [])
    cli.run("attach", "vm01", "--profile", "1g.10gb", "--config")

    def refuse(_channel_id: str) -> None:
        raise NotPermittedError("cannot look as this user", cause="Permission denied (EACCES)")

    assert "no keeper" not in cli.run("virtio", "list")
    assert cli.err == ""
    monkeypatch.setattr(cli.bench.channels, "read_status", refuse)
    for verb, word in (("virtio list", "not permitted"), ("vm list", "is not known to this user")):
        assert word in cli.run(*verb.split())
        assert "not ready" not in cli.out
        assert cli.err.startswith("note: one channel answers only to the user who attached it:")
        assert f"sudo vgpumgr {verb};" in cli.err
        assert "vgpumgr-ro" in cli.err
        assert cli.code == 0
    shown = cli.run("virtio", "show", "vm01")
    assert "worker        not permitted, pid -" in shown
    (channel,) = json.loads(cli.run("virtio", "list", "-o", "json"))["channels"]
    assert (channel["hidden"], channel["keeper_pid"], channel["worker_ready"]) == (
        True,
        None,
        False,
    )


def test_attach_passes_every_option_on(cli: Cli) -> None:
    cli.run(
        *("attach", "vm01", "--profile", "1g.10gb", "--gpu", "0", "--backend", "forward"),
        *("--config", "--transport", "serial", "--hello-timeout", "3", "--dry-run"),
    )
    assert cli.code == 0, cli.err
    ((operation, _),) = cli.calls
    assert operation == "attach"
    assert "would attach 1g.10gb on GPU 0 to vm01:" in cli.out
    assert "  + start the worker (virtio-serial)" in cli.out


def test_without_an_agent_every_answer_is_the_same(tmp_path: Path) -> None:
    """When the slice is usable, and what to try: plan, result, VM and channel say so alike."""
    cli = Cli(make_bench(tmp_path, running=True), [])
    words = ("attach", "vm02", "--profile", "1g.10gb", "--hello-timeout", "0.1")
    when, advice = "once its agent answers", "vgpumgr virtio guest-package"
    assert f"live now, usable {when}" in cli.run(*words, "--dry-run")
    done = cli.run(*words)
    assert cli.code == 0, cli.err
    assert done.startswith(f"attached 1g.10gb on GPU 0 to vm02 ({when}):")
    assert f"note: usable {when}: no hello from the guest" in done
    assert when in cli.run("vm", "list")
    assert f"usable        {when}" in cli.run("vm", "show", "vm02")
    shown = cli.run("virtio", "show", "vm02")
    assert f"usable {when}" in shown
    for text in (done, shown):
        assert advice in text
        assert "systemctl status vgpumgr-guestd" in text
        assert "next start" not in text.partition("ring ")[0]
    # once it answers, all say that
    use(cli, cli.bench.store.list_attachments()[0].id)
    assert "usable        live now" in cli.run("vm", "show", "vm02")
    assert when not in cli.run("virtio", "show", "vm02") + cli.run("vm", "list")


def test_live_without_an_agent_is_refused_with_what_to_try(tmp_path: Path) -> None:
    cli = Cli(make_bench(tmp_path, running=True), [])
    cli.run(*("attach", "vm02", "--profile", "1g.10gb", "--live", "--hello-timeout", "0.1"))
    assert cli.code != 0
    assert "vgpumgr-guestd does not run in it" in cli.err
    assert "vgpumgr virtio guest-package" in cli.err


def test_story(cli: Cli) -> None:
    out = cli.run("attach", "vm01", "--profile", "1g.10gb")
    assert out.startswith("attached 1g.10gb on GPU 0 to vm01 (at the next start):")
    id_ = cli.bench.store.list_attachments()[0].id
    use(cli, id_)
    assert "matmul (412)" in cli.run("vm", "list")
    shown = cli.run("vm", "show", "vm01")
    assert "matmul (guest pid 412, ring): 1000 calls, 1 MiB in, 2 KiB out, holds 64 MiB" in shown
    assert cli.run("virtio", "list", "-o", "csv", "--columns", "vm,calls,in,memory") == (
        f"vm,calls,in,memory\nvm01,1000,{1 << 20},{64 << 20}\n"
    )
    assert "channel of vm01" in cli.run("virtio", "show", id_)
    assert cli.run("vm", "list", "-o", "name") == "vm01\nvm02\nvm03\n"
    plan = json.loads(cli.run("detach", "vm01", "--dry-run", "-o", "json"))
    assert plan["schema"] == "vgpumgr/v1"
    assert plan["dry_run"]
    assert "detached 1g.10gb from vm01:" in cli.run("detach", "vm01", "--yes")
    assert cli.bench.store.list_attachments() == ()


def test_restart(cli: Cli) -> None:
    cli.run("attach", "vm01", "--profile", "1g.10gb")
    (id_,) = cli.bench.channels.running
    shown = cli.run("virtio", "restart", "vm01", "--dry-run")
    assert shown.startswith(
        "would restart the channel of vm01:\n  - stop the worker\n  + start the"
    )
    assert cli.run("virtio", "restart", "vm01").startswith("restarted the channel of vm01:")
    use(cli, id_)
    cli.run("virtio", "restart", "vm01")
    assert (cli.code, "matmul (412)" in cli.err) == (2, True)
    assert cli.calls[-1][0] == "show_channel"
    assert cli.run("virtio", "restart", id_, "--yes", "-o", "name") == "vm01\n"


def test_what_needs_an_eye_is_shown(cli: Cli) -> None:
    cli.run("attach", "vm01", "--profile", "1g.10gb")
    (id_,) = cli.bench.channels.running
    assert "sessions" not in cli.run("virtio", "show", "vm01")
    events = (
        SessionEvent("stuck", 2, 4711, 0),
        SessionEvent("slow", 3, 4712, 60, 412, "train", "cuCtxSynchronize"),
        SessionEvent("ended", 4, None, 120, 413, "bad", "killed by signal 11 (Segmentation fault)"),
    )
    cli.bench.channels.running[id_] = replace(
        cli.bench.channels.running[id_],
        sessions=SessionReport(7, 6, 1, events),
        refused={"cuGraphCreate": 3, "cuMemAllocManaged": 5},
    )
    shown = cli.run("virtio", "show", "vm01")
    assert "sessions      7 lost, 6 of them by a fault; 1 ended by the watchdog" in shown
    assert re.search(r"slow: train \(guest pid 412\), lane 3, pid 4712, since .*: cuCtxSync", shown)
    assert re.search(r"ended: bad \(guest pid 413\), lane 4, at .*: killed by signal 11", shown)
    assert "refused       8 calls that are not supported\n    cuMemAllocManaged: 5\n" in shown
    warnings = Recovery(cli.bench.service.parts).status().warnings
    assert [w.split(":")[1] for w in warnings[:2]] == [" lane 2", " train (guest pid 412)"]
    assert "stuck in the driver" in warnings[0]
    assert "7 lost, 6 of them by a fault, the last killed by signal 11" in warnings[2]
    document = json.loads(cli.run("virtio", "show", "vm01", "-o", "json"))["channel"]
    assert [e["kind"] for e in document["sessions"]["events"]] == ["stuck", "slow", "ended"]
    assert document["refused"][0] == {"name": "cuMemAllocManaged", "count": 5}


def test_detach_asks_when_the_slice_is_in_use(cli: Cli) -> None:
    cli.run("attach", "vm01", "--profile", "1g.10gb")
    use(cli, cli.bench.store.list_attachments()[0].id)
    cli.run("detach", "vm01")
    assert cli.code == 2
    assert "held by: matmul (412)" in cli.err
    assert "try:     vgpumgr detach vm01 --yes        (VG214, exit 2)" in cli.err
    assert len(cli.bench.store.list_attachments()) == 1


def test_detach_of_an_idle_slice_does_not_ask(cli: Cli) -> None:
    cli.run("attach", "vm01", "--profile", "1g.10gb")
    cli.run("detach", "vm01")
    assert cli.code == 0


def test_errors_as_text_and_json(cli: Cli) -> None:
    cli.run("attach", "vm03", "--profile", "1g.10gb")
    assert cli.code == 6
    assert cli.err.startswith('error:   cannot attach to vm "vm03": it has no free PCI slot\n')
    cli.run("attach", "vm03", "--profile", "1g.10gb", "-o", "json")
    assert json.loads(cli.err)["error"]["id"] == "VG207"
    cli.run("attach", "vm03", "--profile", "9g.99gb")
    assert cli.err.startswith("error:   cannot place 9g.99gb on GPU 0"), "no slot helps that"
    cli.run("attach", "vm01")
    assert cli.code == 2
    cli.run("attach", "vm01", "--profile", "1g.10gb", "-o", "csv")
    assert cli.code == 2


@pytest.mark.parametrize(
    "words", ["attach", "detach", "vm list", "vm show", "virtio list", "virtio show"]
)
def test_every_help_page_has_examples(
    cli: Cli, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(*words.split(), "--help")
    assert cli.code == 0
    assert capsys.readouterr().out.count(f"vgpumgr {words}") >= 2


def test_programs_are_asked_about_where_only_the_id_says_which(cli: Cli) -> None:
    """The VM is named as an attachment of another one; its own is named with --attachment."""
    cli.run("attach", "vm02", "--profile", "1g.10gb", "--config")
    cli.run("attach", "vm01", "--profile", "1g.10gb", "--config")
    store = cli.bench.store
    theirs, ours = sorted(store.list_attachments(), key=lambda r: r.vm_name, reverse=True)
    cli.bench.hypervisor.machines[ours.vm_uuid].name = theirs.id
    store.save_attachment(replace(ours, vm_name=theirs.id))
    use(cli, ours.id)
    cli.run("detach", theirs.id)
    assert cli.code == 2
    assert "can mean 2 things" in cli.err
    cli.run("detach", theirs.id, "--attachment", ours.id)
    assert "matmul" in cli.err
    assert "--yes" in cli.err
    assert len(store.list_attachments()) == 2
    cli.run("detach", theirs.id, "--attachment", ours.id, "--yes")
    assert [r.id for r in store.list_attachments()] == [theirs.id]


def test_records_are_kept_in_silence(cli: Cli) -> None:
    """Steps that change our own records only come with -v."""
    usual = cli.run("attach", "vm01", "--profile", "1g.10gb")
    assert "create GPU instance" in usual
    assert not any(word in usual for word in ("record attachment", "mark attachment", "metadata"))
    verbose = cli.run("-v", "detach", "vm01")
    assert "forget attachment" in verbose
    assert "metadata" in verbose


def test_quiet_prints_no_plan(cli: Cli) -> None:
    text = cli.run("-q", "attach", "vm01", "--profile", "1g.10gb")
    assert len(text.splitlines()) == 1
    assert "attached 1g.10gb" in text
    assert not text.rstrip().endswith(":")
    assert cli.run("-q", "virtio", "restart", "vm01") == "restarted the channel of vm01\n"
    assert len(cli.run("-q", "detach", "vm01").splitlines()) == 1
    dry = cli.run("-q", "attach", "vm01", "--profile", "1g.10gb", "--dry-run")
    assert "create GPU instance" in dry, "here the plan is the answer"


def test_a_share_is_attached_shown_and_changed(cli: Cli) -> None:
    text = cli.run("attach", "vm01", "--equal", "8", "--compute-policy", "fixed")
    assert text.startswith("attached share:10GiB,12.5% on GPU 0 to vm01")
    assert cli.calls[-1][1]["profile"] == "share:1/8"
    shown = cli.run("virtio", "show", "vm01")
    assert "  share         10 GiB, 12.5% of the time, fixed\n" in shown
    assert "  time          0.0 s on the GPU, held back 0.0 s, 0 turns\n" in shown
    assert "    device-memory 10GiB, 0 B used" in shown
    assert "share:10GiB,12.5%" in cli.run("vm", "show", "vm01")
    assert re.search(r"12.5% fixed, 0.0 s used", cli.run("virtio", "list", "-o", "wide"))
    dry = cli.run("virtio", "set", "vm01", "--memory", "6GiB", "--dry-run")
    assert dry.splitlines()[:2] == [
        "would change the share of vm01 to share:6GiB,12.5%:",
        "  ~ change share:10GiB,12.5% to share:6GiB,12.5%",
    ]
    line = "changed the share of vm01 to share:6GiB,40%\n"
    assert cli.run("-q", "virtio", "set", "vm01", "--memory", "6GiB", "--compute", "40%") == line
    assert cli.run("virtio", "set", "vm01", "--compute", "40", "-o", "name") == "vm01\n"
    bench = cli.bench
    bench.channels.used[bench.store.list_attachments()[0].id] = 5 << 30
    cli.run("virtio", "set", "vm01", "--memory", "1GiB")
    assert cli.code == 6
    assert cli.err.splitlines() == [
        "error:   cannot limit the device memory to 1 GiB",
        "why:     its programs use 5 GiB of it now",
        "try:     --memory 5GiB or more; or --at-exit, which waits for its programs' end        (VG229, exit 6)",
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("virtio", "set", "vm01"), "neither --memory nor --compute nor --priority is given"),
        (("virtio", "set", "vm01", "--memory", "6GB"), "write 6GiB"),
        (("virtio", "set", "vm01", "--compute", "x"), "'x' is not a number"),
        (("virtio", "set", "vm01", "--compute", "0"), "1% to 100% can"),
        (("attach", "vm01", "--equal", "65"), "65 is not from 1 to 64"),
        (("attach", "vm01", "--equal", "2", "--profile", "vf"), "contradict each other"),
        (("attach", "vm01", "--profile", "vf", "--compute-policy", "burst"), "is for shares"),
    ],
)
def test_wrong_lines_about_shares(cli: Cli, words: tuple[str, ...], text: str) -> None:
    cli.bench.service.attach(AttachRequest("vm02", "share:8GiB,30%"))
    if words[0] == "virtio":
        cli.bench.service.attach(AttachRequest("vm01", "share:8GiB,30%"))
    cli.run(*words)
    assert cli.code == 2
    assert text in cli.err
