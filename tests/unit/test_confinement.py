"""What is read of a process from outside: facts of its confinement, its owner, the word that allows none."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.unprivileged import NOBODY
from vgpumgr.host import confinement
from vgpumgr.host.confinement import audit_tree
from vgpumgr.host.process import read_owner
from vgpumgr.virtio.sandbox import is_unconfined

_PR_SET_DUMPABLE = 4
#: starts a child that can be killed, says its number, and reaps it
PARENT = (
    "import subprocess, sys\n"
    "child = subprocess.Popen(['sleep', '1000'])\n"
    "print(child.pid, flush=True)\n"
    "child.wait()\n"
    "sys.stdin.read()\n"
)


@pytest.mark.parametrize("value", ["true", "yes", "on", "false", "no", "0", "", " 1", "2", "01"])
def test_nothing_but_a_one_switches_the_sandbox_off(value: str) -> None:
    assert not is_unconfined({"VGPUMGR_ALLOW_UNCONFINED": value})


def test_a_one_does() -> None:
    assert is_unconfined({"VGPUMGR_ALLOW_UNCONFINED": "1"})
    assert not is_unconfined({})


def test_of_a_process_that_has_ended_no_fact_holds() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    facts = audit_tree(gone.pid, os.getpid())
    assert len(facts) >= 25
    assert [fact for fact in facts if fact.holds] == []


def test_of_a_process_that_is_not_reaped_yet_no_fact_holds_by_mistake() -> None:
    gone = subprocess.Popen(["true"])
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
    held = {fact.name for fact in audit_tree(gone.pid, os.getpid()) if fact.holds}
    gone.wait()
    assert not held & {"root", "nodes", "mounts", "Seccomp", "filters", "NoNewPrivs", "user"}


@contextmanager
def family() -> Iterator[tuple[int, int]]:
    """A process and its child."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        yield parent.pid, child
    finally:
        if read_owner(child) is not None:
            os.kill(child, signal.SIGKILL)
        parent.communicate("")


def test_a_session_that_ends_during_the_audit_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = confinement._audit

    def audit(pid: int, *rest: Any, **more: Any) -> Iterator[confinement.Fact]:
        if pid == child and ends:
            os.kill(child, signal.SIGKILL)
            while read_owner(child) is not None:
                time.sleep(0.01)
        for fact in genuine(pid, *rest, **more):
            yield fact if pid == child else replace(fact, holds=True)

    monkeypatch.setattr(confinement, "_audit", audit)
    with family() as (parent, child):
        ends = False
        failing = [fact for fact in audit_tree(parent, os.getpid()) if not fact.holds]
        assert any(f"process {child}: " in fact.detail for fact in failing)
        ends = True
        facts = audit_tree(parent, os.getpid())
        assert read_owner(child) is None
        assert [fact for fact in facts if not fact.holds] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it becomes another user")
def test_the_owner_of_a_process_that_cannot_be_dumped_is_its_user() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        os.write(writer, b".")
        signal.pause()
        os._exit(0)
    try:
        os.read(reader, 1)
        assert Path(f"/proc/{child}/fd").stat().st_uid == 0
        assert read_owner(child) == (NOBODY, NOBODY)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
    assert read_owner(child) is None


@pytest.mark.parametrize(
    ("enabled", "loaded", "label", "holds"),
    [
        ("N", "", "", True),
        (None, "", "", True),
        ("Y", "vgpumgr-worker (enforce)\n", "vgpumgr-worker (enforce)", True),
        ("Y", "vgpumgr-worker (enforce)\n", "other//&vgpumgr-worker (enforce)", True),
        ("Y", "vgpumgr-worker (complain)\n", "vgpumgr-worker (complain)", False),
        ("Y", "x (enforce)\nvgpumgr-worker (enforce)\n", "unconfined", False),
        ("Y", "vgpumgr-worker (enforce)\n", "vgpumgr-worker-2 (enforce)", False),
        ("Y", "vgpumgr-worker (enforce)\n", "", False),
        ("Y", "libvirtd (enforce)\nvgpumgr-workers (enforce)\n", "unconfined", True),
    ],
)
def test_a_profile_that_is_loaded_must_hold_the_worker(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    enabled: str | None,
    loaded: str,
    label: str,
    holds: bool,
) -> None:
    for name, path, text in (
        ("_APPARMOR", "enabled", enabled),
        ("PROFILES", "profiles", loaded),
        ("_PROC", "proc/7/attr/apparmor/current", label and f"{label}\n"),
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if text:
            file.write_text(text)
        monkeypatch.setattr(confinement, name, tmp_path / path.partition("/")[0])
    (tmp_path / "proc/7").mkdir(parents=True, exist_ok=True)
    fact = confinement._audit_profile(7)
    assert (fact.name, fact.holds) == ("AppArmor", holds)
