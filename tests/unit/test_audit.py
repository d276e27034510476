"""The audit log: chained, rotated, and whole again after a crash in the middle of a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.unprivileged import as_nobody
from vgpumgr.cli.backend import verify_audit as check_log
from vgpumgr.cli.session import GlobalOptions
from vgpumgr.errors import AuditError, Exit, NotPermittedError
from vgpumgr.server.audit import KEPT, AuditLog, verify_all, verify_audit
from vgpumgr.sim.machine import create_machine


def open_log(directory: Path, max_bytes: int = 1 << 20) -> AuditLog:
    return AuditLog(directory / "audit.jsonl", FakeClock(), max_bytes)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def files(directory: Path) -> Sequence[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_chain_goes_on_in_the_next_daemon(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        open_log(tmp_path).append({"event": name})
    entries = read(tmp_path / "audit.jsonl")
    assert [(e["n"], e["event"]) for e in entries] == [(1, "one"), (2, "two"), (3, "three")]
    assert verify_audit(tmp_path / "audit.jsonl") is None


def test_rotation_keeps_the_chain_and_no_more_than_it_may(tmp_path: Path) -> None:
    log = open_log(tmp_path, 1000)
    for number in range(100):
        log.append({"event": "x", "number": number})
    assert files(tmp_path) == ["audit.jsonl", *(f"audit.jsonl.{n}" for n in range(1, KEPT + 1))]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    oldest_first = [tmp_path / f"audit.jsonl.{n}" for n in range(KEPT, 0, -1)]
    entries = [e for path in (*oldest_first, tmp_path / "audit.jsonl") for e in read(path)]
    numbers = [e["n"] for e in entries]
    assert numbers == list(range(numbers[0], 101))
    assert verify_all(tmp_path / "audit.jsonl") is None
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    (tmp_path / "audit.jsonl.2").unlink()
    assert verify_all(tmp_path / "audit.jsonl") is not None


def test_a_crash_between_rotation_and_the_first_line(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append({"event": "one"})
    log.path.rename(tmp_path / "audit.jsonl.1")
    open_log(tmp_path).append({"event": "two"})
    assert read(tmp_path / "audit.jsonl")[0]["n"] == 2
    assert verify_all(tmp_path / "audit.jsonl") is None


def test_a_line_torn_at_any_byte_is_cut_off_and_said(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append({"event": "one"})
    first = log.path.stat().st_size
    log.append({"event": "two", "text": "schön"})
    whole = log.path.read_bytes()
    for size in range(first, len(whole) + 1):
        log.path.write_bytes(whole[:size])
        open_log(tmp_path).append({"event": "three"})
        entries = read(log.path)
        torn = first < size < len(whole)
        middle = ["recovered"] if torn else ["two"] * (size == len(whole))
        assert [e["event"] for e in entries] == ["one", *middle, "three"]
        if torn:
            assert entries[1]["cut_bytes"] == size - first
        assert verify_audit(log.path) is None


def test_a_last_line_that_lost_its_text_but_not_its_end(tmp_path: Path) -> None:
    """As an unsynced page after a power failure: zeros, then the next daemon."""
    log = open_log(tmp_path)
    log.append({"event": "one"})
    with log.path.open("ab") as file:
        file.write(b"\0" * 50 + b"\n")
    open_log(tmp_path).append({"event": "three"})
    assert [e["event"] for e in read(log.path)] == ["one", "recovered", "three"]
    assert verify_audit(log.path) is None


@pytest.mark.parametrize("change", ["edit", "remove", "swap"])
def test_whoever_changes_it_is_noticed(tmp_path: Path, change: str) -> None:
    log = open_log(tmp_path)
    for number in range(4):
        log.append({"event": "x", "uid": number})
    lines = log.path.read_text().splitlines()
    if change == "edit":
        lines[1] = lines[1].replace('"uid": 1', '"uid": 0')
    elif change == "remove":
        del lines[1]
    else:
        lines[1:3] = reversed(lines[1:3])
    log.path.write_text("\n".join(lines) + "\n")
    assert verify_audit(log.path) is not None


def test_a_full_disk_refuses_and_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    log.append({"event": "one"})
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
        with pytest.raises(AuditError):
            log.append({"event": "two"})
    log.append({"event": "three"})
    assert [(e["n"], e["event"]) for e in read(log.path)] == [(1, "one"), (2, "three")]
    assert verify_audit(log.path) is None


def test_many_threads(tmp_path: Path) -> None:
    log = open_log(tmp_path, 20000)
    threads = [
        threading.Thread(target=lambda: [log.append({"event": "x"}) for _ in range(20)])
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify_all(log.path) is None


def test_the_program_says_whether_the_chain_is_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for name in ("one", "two", "three"):
        log.append({"event": name})
    path = str(log.path)
    assert run_audit(path) == (0, f"{path}: whole\n")
    log.path.write_text(log.path.read_text().replace('"two"', '"2"'))
    assert run_audit(path) == (3, f"{path}: line 2 was changed\n")
    code, text = run_audit(path + "x")
    assert (code, "No such file or directory" in text) == (2, True)


def test_before_the_daemons_first_start_there_is_no_log_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"VGPUMGR_SIM_ROOT": str(tmp_path), "VGPUMGR_MACHINE": "dgx-a100"}
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))
    create_machine("dgx-a100")
    code, text = run_audit(**env)
    assert (code, text.endswith("/audit.jsonl: no log yet\n")) == (0, True), text
    document = json.loads(run_audit("-o", "json", **env)[1])
    assert (document["exists"], document["problem"]) == (False, None)
    # where older ones are left, the newest was removed
    log = Path(document["file"])
    log.parent.mkdir(parents=True, exist_ok=True)
    log.with_name("audit.jsonl.1").write_text("")
    assert run_audit(**env)[0] == 2


def test_a_log_of_root_is_not_for_everybody(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append({"event": "one"})
    tmp_path.chmod(0o700)
    with pytest.raises(NotPermittedError) as caught:
        as_nobody(lambda: check_log(GlobalOptions(), str(log.path)))
    assert (caught.value.cause, caught.value.exit_code) == ("Permission denied", Exit.NOT_PERMITTED)


def run_audit(*words: str, **env: str) -> tuple[int, str]:
    """``vgpumgr audit``: its exit code and what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "vgpumgr", "audit", *words],
        env=os.environ | env,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
