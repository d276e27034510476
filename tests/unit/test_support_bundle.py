"""``vgpumgr support-bundle``: all that it says, no secret, and no state in which it does not work."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from vgpumgr.host.support import remove_secrets

ROOT = Path(__file__).resolve().parents[2]
#: what must be in no file of any bundle
SECRETS = (
    "hunter2", "s3cr3t-t0ken", "correct-horse", "battery-staple", "MIIEvQIBADANBg", "eyJhbGciOiJIUzI1NiJ9",
    "ghp_0123456789abcdef",
    "c00kie-jar", "spice-pass", "in-a-list", "over-lines", "1325419000042",
)  # fmt: skip
JOURNAL = """\
Nov 23 gpu1 vgpumgr[1]: kept line of the journal
Nov 23 gpu1 vgpumgr[1]: connecting with password=hunter2 to vm01
Nov 23 gpu1 vgpumgr[1]: url https://admin:hunter2@gpu2/api?access_token=s3cr3t-t0ken&x=1
Nov 23 gpu1 vgpumgr[1]: Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.abc
Nov 23 gpu1 vgpumgr[1]: {"token": "s3cr3t-t0ken", "vm": "kept-vm"}
Nov 23 gpu1 vgpumgr[1]: ran tool --password hunter2 --verbose
Nov 23 gpu1 vgpumgr[1]: pushed with ghp_0123456789abcdef
-----BEGIN RSA PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQ
-----END RSA PRIVATE KEY-----
Nov 23 gpu1 vgpumgr[1]: Set-Cookie: c00kie-jar; path=/
Nov 23 gpu1 vgpumgr[1]: passphrase: correct-horse battery-staple
"""


class Host:
    """A host with planted secrets; its programs are ours."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state, self.run_dir = directory / "state", directory / "run"
        self.config = directory / "etc/vgpumgr.toml"
        root = directory / "root"
        for path in (
            self.state,
            self.run_dir,
            self.config.parent,
            root / "proc",
            directory / "bin",
        ):
            path.mkdir(parents=True)
        (root / "proc/cmdline").write_text("quiet kept.option=1 luks.passphrase=hunter2\n")
        for name, text in (
            ("journalctl", JOURNAL),
            (
                "nvidia-smi",
                "Serial Number                         : 1325419000042\nkept: nvidia-smi\n",
            ),
        ):
            self.write_program(name, f"cat <<'END'\n{text}END\n")
        self.write_program("virsh", "echo 'error: token=s3cr3t-t0ken refused' >&2; exit 1\n")
        self.env = {
            key: value for key, value in os.environ.items() if not key.startswith("VGPUMGR_")
        } | {
            "PATH": f"{directory}/bin:{os.environ['PATH']}",
            "VGPUMGR_STATE_DIR": str(self.state), "VGPUMGR_RUN_DIR": str(self.run_dir),
            "VGPUMGR_CONFIG": str(self.config), "VGPUMGR_SYSFS_ROOT": str(root),
            "VGPUMGR_LIBVIRT_URI": "test:///default",
        }  # fmt: skip

    def write_program(self, name: str, text: str) -> None:
        path = self.directory / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)

    def bundle(self, *words: str) -> dict[str, str]:
        """The files of one, by name."""
        target = self.directory / "bundle.tar.gz"
        done = self.call(*words, "--out", str(target))
        assert (done.returncode, done.stdout) == (0, f"{target}\n"), done.stderr
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        with tarfile.open(target) as archive:
            return {
                member.name.removeprefix("vgpumgr-support/"): read_member(archive, member)
                for member in archive
            }

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "vgpumgr", "support-bundle", *words], cwd=ROOT, env=self.env,
            capture_output=True, text=True, timeout=240, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip


def read_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    assert file is not None
    return file.read().decode()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def plant(host: Host) -> None:
    """Secrets wherever a bundle looks."""
    host.config.write_text(
        "# a comment with password = hunter2\n[release]\nkept_token = 's3cr3t-t0ken'\n"
        'token = """\nover-lines\n"""\ntokens = [\n  "in-a-list",\n]\n'
    )
    entry = {"event": "operation", "params": {"vm": "kept-vm", "api_key": "s3cr3t-t0ken"}}
    nested = {"event": "x", "text": json.dumps({"password": "hunter2"}), "serial": "1325419000042"}
    lines = [json.dumps(one) for one in (entry, nested)]
    (host.state / "audit.jsonl").write_text("\n".join(lines) + "\n")
    log = host.run_dir / "channels/a1/worker.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        "kept line\n<graphics type='spice' passwd='spice-pass'/>\n<secret>hunter2</secret>\n"
    )
    with sqlite3.connect(host.state / "state.sqlite") as connection:
        connection.execute("CREATE TABLE record (kind, id, text)")
        text = json.dumps({"vm_name": "kept-vm", "note": {"secret": ["in-a-list"]}})
        connection.execute("INSERT INTO record VALUES ('attachment', 'a1', ?)", (text,))
    connection.close()


def test_no_secret_is_in_it_and_all_else_is(host: Host) -> None:
    plant(host)
    files = host.bundle()
    for name, text in files.items():
        assert [secret for secret in SECRETS if secret in text] == [], name
    assert "kept line of the journal" in files["host/journal"]
    assert "kept-vm" in files["host/journal"]
    assert "/api?access_token=" in files["host/journal"]
    assert "--verbose" in files["host/journal"]
    assert "kept: nvidia-smi" in files["host/nvidia-smi"]
    assert "kept.option=1" in files["files/proc/cmdline"]
    assert "kept-vm" in files["logs/audit.jsonl"]
    assert "kept line" in files["logs/channels/a1/worker.log"]
    assert "kept-vm" in files["state/records.json"]
    assert "[release]" in files["config/vgpumgr.toml"]
    assert "host/virsh-list: exit code 1: error: token=[removed] refused" in files["MANIFEST"]
    assert json.loads(files["vgpumgr/doctor"])["checks"]
    assert files["vgpumgr/version"].startswith("vgpumgr ")
    assert "state.sqlite sha256:" in files["state/files.txt"]
    # the configuration is broken, and that is what the bundle says
    assert "there is no key release.kept_token" in files["vgpumgr/config-show"]


def test_serial_numbers_stay_where_that_is_asked(host: Host) -> None:
    plant(host)
    files = host.bundle("--serials")
    assert "1325419000042" in files["host/nvidia-smi"]
    assert "1325419000042" in files["logs/audit.jsonl"]
    rest = [secret for secret in SECRETS if secret != "1325419000042"]
    assert [s for s in rest if any(s in text for text in files.values())] == []


def test_a_damaged_state_costs_its_part_only_and_stays_as_it_is(host: Host) -> None:
    state = host.state / "state.sqlite"
    state.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 64)
    (host.state / "journal").write_bytes(b"\xff\xfe not a journal")
    (host.state / "audit.jsonl").mkdir()
    before = {path: path.read_bytes() for path in host.state.iterdir() if path.is_file()}
    files = host.bundle()
    assert "state/records.json: damaged: " in files["MANIFEST"]
    assert "logs/audit.jsonl: Is a directory" in files["MANIFEST"]
    assert json.loads(files["vgpumgr/doctor"])["checks"]
    assert {path: path.read_bytes() for path in host.state.iterdir() if path.is_file()} == before


def test_neither_a_daemon_that_does_not_answer_nor_programs_that_hang_hold_it_up(
    host: Host,
) -> None:
    """The daemon is stopped: its socket takes connections, and nobody reads them."""
    host.write_program("nvidia-smi", "echo begun; exec sleep 600\n")
    host.write_program("lspci", "kill -SEGV $$\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "vgpumgr", "daemon"],
        cwd=ROOT,
        env=host.env,
        stdin=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not (host.run_dir / "vgpumgr.sock").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGSTOP)
        files = host.bundle()
        assert "vgpumgr/status: no end within 20 s" in files["MANIFEST"]
        assert files["host/nvidia-smi"] == "begun\n"
        assert "host/nvidia-smi: no end within 20 s" in files["MANIFEST"]
        assert "host/lspci: exit code -11" in files["MANIFEST"]
        assert "kept line of the journal" in files["host/journal"]
    finally:
        process.kill()
        process.wait()


def test_it_goes_through_a_pipe_and_nowhere_else_by_mistake(host: Host) -> None:
    words = [sys.executable, "-m", "vgpumgr", "support-bundle", "--out", "-"]
    done = subprocess.run(words, cwd=ROOT, env=host.env, capture_output=True, check=True)
    assert done.stdout[:2] == b"\x1f\x8b"
    for target in (host.directory, host.directory / "no/such.tar.gz"):
        refused = host.call("--out", str(target))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"cannot write {target}" in refused.stderr
    elsewhere = host.call("--host", "gpu9", "--out", str(host.directory / "x"))
    assert (elsewhere.returncode, "is about this host only" in elsewhere.stderr) == (2, True)


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2", "PASSWORD = 'hunter2'", 'db_password: "hunter2"', "x --token hunter2", "x --token=hunter2",
        '{"a": {"clientSecret": {"b": "hunter2"}}}', '[{"credentials": ["hunter2"]}]', "https://u:hunter2@h/",
        "Authorization: Basic hunter2aaaa", "<password type='x'>hunter2</password>", "secret_key: a hunter2 b",
        '{"text": "run --password hunter2"}', "my.api-key=hunter2;", "token='''\na\nhunter2\n'''\n",
        "-----BEGIN PRIVATE KEY-----\nhunter2\n", '"{\\"password\\": \\"hunter2\\"}"',
    ],
)  # fmt: skip
def test_forms_of_secrets(text: str) -> None:
    assert "hunter2" not in remove_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "attach vm01 --transport serial -o json\n", "passthrough 0000:3b:00.0 bound\n",
        "GPU-1c3e5a7b-1111 has 2 slices\n",
        "the keeper of channel a1b2 serves\n", "2 keys, 3 tokens were counted\n",
    ],
)  # fmt: skip
def test_what_is_none_stays(text: str) -> None:
    assert remove_secrets(text) == text
