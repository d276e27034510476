"""``vgpumgr run``: commands of the host on slices of a simulated machine, from outside."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.guest.build_programs import build_programs
from tests.support.attached_machine import attached_machine
from tests.support.run_host import (
    MACHINE,
    PATIENCE_S,
    Host,
    list_processes,
    read_line,
    wait_for,
)
from tests.unit.transport_rig import LIB
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.cli.main import main
from vgpumgr.cli.session import Backend, GlobalOptions, Session, Streams

pytestmark = pytest.mark.native


#: copies to the device and back, by the driver API
PROGRAM = """
import ctypes, sys
cu = ctypes.CDLL("libcuda.so.1")
def ok(code):
    if code:
        sys.exit(f"CUDA error {code}")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
ok(cu.cuInit(0))
ok(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cu.cuCtxSetCurrent(context))
size = ctypes.c_size_t(5)
ok(cu.cuMemAlloc_v2(ctypes.byref(memory), size))
ok(cu.cuMemcpyHtoD_v2(memory, b"12345", size))
back = ctypes.create_string_buffer(5)
ok(cu.cuMemcpyDtoH_v2(back, memory, size))
print(back.raw.decode(), flush=True)
"""
#: the same, then waits for a line and copies once more
PROGRAM_AND_MORE = PROGRAM + 'input()\nok(cu.cuMemcpyDtoH_v2(back, memory, size))\nprint("more")\n'
#: ends with 40 and the number of the SIGINTs that it got
COUNT_CTRL_C = """
import os, signal, time
heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
print("ready", flush=True)
while not heard:
    time.sleep(0.01)
time.sleep(1)
os._exit(40 + len(heard))
"""


RUN = ("run", "--profile", "1g.10gb")
PYTHON = ("--", sys.executable, "-c")


@pytest.mark.parametrize("transport", ["ring", "serial"])
def test_a_command_uses_the_slice(host: Host, transport: str) -> None:
    done = host.call(*RUN, "--transport", transport, *PYTHON, PROGRAM)
    assert (done.stdout, done.stderr) == ("12345\n", "")
    assert host.list_left() == {}


@pytest.mark.cuda
@pytest.mark.parametrize("transport", ["ring", "serial"])
def test_a_cuda_program_computes(host: Host, transport: str) -> None:
    program = build_programs(["vectoradd"])["vectoradd"]
    done = host.call(*RUN, "--transport", transport, "--", str(program), "5000")
    assert done.stdout == "PASS vectoradd 5000 elements\n"


@pytest.mark.parametrize(
    ("command", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), (":", 0)]
)
def test_the_exit_code_is_the_commands(host: Host, command: str, code: int) -> None:
    host.call(*RUN, "--", "sh", "-c", command, code=code)
    assert host.list_left() == {}


def test_the_command_has_the_callers_surroundings(host: Host, tmp_path: Path) -> None:
    host.env |= {"OF_THE_CALLER": "there", "CUDA_VISIBLE_DEVICES": "7", "LD_LIBRARY_PATH": "/own"}
    text = 'read -r line; echo "$line $PWD $OF_THE_CALLER ${CUDA_VISIBLE_DEVICES-none} $LD_LIBRARY_PATH"'
    try:
        done = host.call(*RUN, "--", "sh", "-c", text, cwd=tmp_path, given="read\n")
    finally:
        for name in ("OF_THE_CALLER", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"):
            del host.env[name]
            if name in os.environ:
                host.env[name] = os.environ[name]
    read, directory, of_caller, devices, libraries = done.stdout.split()
    assert (read, directory, of_caller, devices) == ("read", str(tmp_path), "there", "none")
    assert re.fullmatch(r".*/guest:/own", libraries)


def test_signals_reach_the_command_and_only_it_answers(host: Host) -> None:
    trap = 'trap "echo got; exit 3" TERM; echo ready; while :; do sleep 0.05; done'
    process = host.start(*RUN, "--", "bash", "-c", trap)
    assert read_line(process) == "ready"
    process.terminate()
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (out, errors, process.returncode) == ("got\n", "", 3)


def test_without_user_namespaces_only_who_allows_it_goes_without_a_sandbox(host: Host) -> None:
    switch_off = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["unshare", "-Ur", "sh", "-c", switch_off, "-", *host.words(*words)]
        return subprocess.run(
            command, env=host.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    refused = call(*RUN, *PYTHON, PROGRAM)
    assert (refused.returncode, refused.stdout) == (7, "")
    assert "user namespaces are switched off" in refused.stderr
    assert "--allow-unconfined" in refused.stderr
    assert host.list_left() == {}
    allowed = call(*RUN, "--allow-unconfined", *PYTHON, PROGRAM)
    assert (allowed.returncode, allowed.stdout) == (0, "12345\n")
    assert "without one, as --allow-unconfined says" in allowed.stderr


@contextmanager
def daemon(host: Host, *options: str) -> Iterator[None]:
    """A daemon of the machine, until the context ends."""
    socket = host.root / MACHINE / "host" / "run" / "vgpumgr.sock"
    process = host.start("daemon", *options)
    try:
        wait_for(socket.exists, "the daemon listens")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def list_operations(host: Host) -> list[str]:
    return [operation["operation"] for operation in host.read("op", "list")["operations"]]


def test_a_daemon_makes_the_slice_and_takes_it_back(host: Host) -> None:
    with daemon(host):
        done = host.call(*RUN, *PYTHON, f"{PROGRAM}\nsys.exit(7)", code=7)
        assert (done.stdout, done.stderr) == ("12345\n", "")
        assert {"start_run", "detach"} <= set(list_operations(host))
        assert host.list_left() == {}


def test_a_run_outlives_the_daemon_that_made_its_slice(host: Host) -> None:
    with daemon(host):
        process = host.start(*RUN, *PYTHON, PROGRAM_AND_MORE)
        assert read_line(process) == "12345"
    with daemon(host):
        out, errors = process.communicate("\n", timeout=PATIENCE_S)
        assert (out, errors, process.returncode) == ("more\n", "", 0)
        assert host.list_left() == {}


def test_the_hosts_libraries_are_named_with_those_who_have_them(host: Host) -> None:
    program = f"""{PROGRAM}
blas, handle = ctypes.CDLL("libcublas.so.13"), ctypes.c_void_p()
ok(blas.cublasCreate_v2(ctypes.byref(handle)))
ok(blas.cublasSetMathMode(handle, 0))
input()
"""
    process = host.start(*RUN, *PYTHON, program)
    assert read_line(process) == "12345"
    (channel,) = host.read("virtio", "list")["channels"]

    def read() -> dict[str, int]:
        found = host.read("virtio", "show", channel["id"])["libraries"]
        assert {one["id"] for one in found} == {channel["id"]}
        return {Path(one["path"]).name: one["sessions"] for one in found}

    wait_for(lambda: read().get("libcublas.so.13") == 1, "a session has it loaded")
    # none has asked for the others
    assert read() == {
        "libcublas.so.13": 1,
        "libcublasLt.so.13": 0,
        "libcudnn.so.9": 0,
        "libcufft.so.12": 0,
        "libcusolver.so.12": 0,
        "libcusparse.so.12": 0,
        "libcurand.so.10": 0,
    }
    shown = host.call("virtio", "show", channel["id"]).stdout
    assert "libcublas.so.13, loaded by 1 session\n" in shown
    assert "libcudnn.so.9, not loaded yet\n" in shown
    process.communicate("\n", timeout=PATIENCE_S)


def test_a_daemon_frees_what_a_killed_run_leaves_when_the_next_change_comes(host: Host) -> None:
    with daemon(host):
        process = host.start(*RUN, *PYTHON, PROGRAM_AND_MORE)
        assert read_line(process) == "12345"
        process.kill()
        process.communicate()
        host.call(*RUN, "--", "true")
        assert host.list_left() == {}


def test_ctrl_c_reaches_the_command_once(host: Host) -> None:
    process = host.start(*RUN, *PYTHON, COUNT_CTRL_C)
    assert read_line(process) == "ready"
    # by another process, to this program alone
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 41


def test_ctrl_c_of_a_terminal_reaches_the_command_once(host: Host) -> None:
    child, terminal = os.forkpty()
    if child == 0:
        os.execve(sys.executable, host.words(*RUN, *PYTHON, COUNT_CTRL_C), host.env)
    shown = b""
    try:
        while b"ready" not in shown:
            shown += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        status = os.waitpid(child, 0)[1]
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 41, shown


def test_a_run_is_named_where_slices_are_listed(host: Host) -> None:
    process = host.start(*RUN, "--name", "train", *PYTHON, PROGRAM_AND_MORE)
    assert read_line(process) == "12345"
    (channel,) = host.read("virtio", "list")["channels"]
    assert (channel["vm"], channel["run"]["pid"]) == ("train", process.pid)
    (lane,) = channel["lanes"]
    assert lane["memory_bytes"] >= 5
    assert host.read("virtio", "show", "train")["channel"]["id"] == channel["id"]
    (instance,) = host.read("mig", "list")["instances"]
    assert (instance["profile"], instance["vm"]) == ("1g.10gb", None), "a run is no VM"
    assert instance["holder"] == {"kind": "run", "name": "train"}
    assert [part["holder"] for part in instance["compute_instances"]] == [instance["holder"]]
    assert host.call("mig", "list", "--columns", "used_by").stdout == "train\n"
    shown = host.call("gpu", "show", str(instance["gpu_index"])).stdout
    assert f"\n        run train (attachment {channel['id']})\n" in shown
    (line,) = re.findall(r"^vgpumgr_mig_instance_info.*$", host.call("metrics").stdout, re.M)
    assert 'domain=""' in line
    status = host.read("status")
    assert (status["attachments"], status["drift"]) == (1, [])
    refused = host.call(*RUN, "--name", "train", "--", "true", code=6)
    assert "has this name" in refused.stderr
    process.communicate("\n", timeout=PATIENCE_S)
    assert process.returncode == 0


def test_two_runs_have_a_slice_each(host: Host) -> None:
    both = [host.start(*RUN, *PYTHON, PROGRAM_AND_MORE) for _ in range(2)]
    assert [read_line(process) for process in both] == ["12345", "12345"]
    instances = host.read("mig", "list")["instances"]
    assert len({instance["placement"]["start"] for instance in instances}) == 2
    first, second = both
    assert first.communicate("\n", timeout=PATIENCE_S) == ("more\n", "")
    assert second.communicate("\n", timeout=PATIENCE_S) == ("more\n", "")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_last_of_two_runs_turns_mig_mode_off(host: Host, order: tuple[int, int]) -> None:
    """Whichever turned it on: the first to end may have to leave it to the other."""
    both = []
    for _ in range(2):
        both.append(host.start(*RUN, "--gpu", "0", "--", "sh", "-c", "echo ready; read -r line"))
        assert read_line(both[-1]) == "ready"
    for i in order:
        assert both[i].communicate("\n", timeout=PATIENCE_S) == ("", "")
    assert host.list_left() == {}


def test_a_killed_run_is_cleaned_up_by_recover(host: Host) -> None:
    process = host.start(
        *RUN, "--name", "killed", *PYTHON, "import time; print(1, flush=True); time.sleep(600)"
    )
    assert read_line(process) == "1"
    agents = [line for line in list_processes(str(host.root)) if "guestd" in line]
    assert len(agents) == 1
    process.kill()
    process.communicate()  # its command has ended, too, and closes its output
    wait_for(lambda: not any("guestd" in p for p in list_processes(str(host.root))), "agent's end")
    (drift,) = host.read("status")["drift"]
    assert (drift["kind"], drift["subject"]) == ("run-ended", "killed")
    assert "freed 1g.10gb: its command has ended" in host.call("recover").stdout
    assert host.list_left() == {}
    assert host.call("recover").stdout == "nothing to recover\n"


def test_the_next_command_that_changes_something_cleans_up(host: Host) -> None:
    process = host.start(
        "run", "--profile", "7g.80gb", "--gpu", "0", "--", "sh", "-c", "echo; exec sleep 600"
    )
    assert read_line(process) == ""
    refused = host.call("run", "--profile", "7g.80gb", "--gpu", "0", "--", "true", code=6)
    assert "VG104" in refused.stderr
    assert 'run "sh-' in refused.stderr
    process.kill()
    process.communicate()
    done = host.call("run", "--profile", "7g.80gb", "--gpu", "0", "--", "echo", "there")
    assert done.stdout == "there\n"


def test_a_detached_run_loses_the_gpu_and_says_so(host: Host) -> None:
    process = host.start(*RUN, "--name", "lost", *PYTHON, PROGRAM_AND_MORE)
    assert read_line(process) == "12345"
    assert host.call("detach", "lost", "--yes").stdout.startswith("detached 1g.10gb from lost")
    out, errors = process.communicate("\n", timeout=PATIENCE_S)
    assert "more" not in out
    assert process.returncode == 1
    assert "CUDA error" in errors
    assert "the command lost its GPU while it ran" in errors


def test_a_worker_that_dies_is_told_of_at_the_end(host: Host) -> None:
    process = host.start(*RUN, *PYTHON, PROGRAM_AND_MORE)
    assert read_line(process) == "12345"
    (channel,) = host.read("virtio", "list")["channels"]
    os.kill(channel["worker_pid"], signal.SIGKILL)
    wait_for(
        lambda: host.read("virtio", "list")["channels"][0]["worker_restarts"], "another worker"
    )
    _, errors = process.communicate("\n", timeout=PATIENCE_S)
    assert "the command lost its GPU while it ran" in errors
    assert process.returncode == 1


def is_usable(host: Host, name: str) -> bool:
    channel = host.read("virtio", "show", name)["channel"]
    return bool(channel["worker_ready"] and channel["hello"])


@pytest.mark.parametrize("through", [nullcontext, daemon], ids=["alone", "daemon"])
@pytest.mark.parametrize(
    "more", [(), ("--keeper",), ("--limit", "events=7")], ids=["worker", "keeper", "limits"]
)
def test_after_a_restart_the_next_process_has_the_gpu(
    host: Host, more: tuple[str, ...], through: Callable[[Host], AbstractContextManager[None]]
) -> None:
    with through(host):
        check_restart(host, more)


def check_restart(host: Host, more: tuple[str, ...]) -> None:
    words = shlex.join([*PYTHON[1:], PROGRAM])
    twice = host.start(
        *RUN, "--name", "again", "--", "sh", "-c", f"{words}; read -r line; exec {words}"
    )
    assert read_line(twice) == "12345"
    before = host.read("virtio", "show", "again")["channel"]
    done = host.call("virtio", "restart", "again", "--yes", *more).stdout
    assert ("start another worker" in done) is not bool(more)
    after = host.read("virtio", "show", "again")["channel"]
    assert after["worker_pid"] != before["worker_pid"]
    assert (after["keeper_pid"] != before["keeper_pid"]) is bool(more)
    assert (after["worker_ready"], after["device"]) == (True, before["device"])
    limits = {limit["key"]: limit["limit"] for limit in after["limits"]}
    assert (limits["events"] == 7) is ("events=7" in more)
    wait_for(lambda: is_usable(host, "again"), "the agent is back")
    out, errors = twice.communicate("\n", timeout=PATIENCE_S)
    assert out == "12345\n", errors
    assert "the command lost its GPU while it ran" in errors
    assert host.list_left() == {}


def test_a_restart_that_was_killed_is_completed(host: Host) -> None:
    """At whichever moment: 'recover' leaves a channel whose next process has the GPU."""
    words = shlex.join([*PYTHON[1:], PROGRAM])
    process = host.start(
        *RUN, "--name", "again", "--", "sh", "-c", f"while read -r line; do {words}; done"
    )
    wait_for(lambda: bool(host.read("virtio", "list")["channels"]), "the channel")
    for delay_s in (0.15, 0.3, 0.5):
        killed = host.start("virtio", "restart", "again", "--yes", "--keeper")
        time.sleep(delay_s)
        killed.kill()
        killed.communicate()
        host.call("recover")
        assert host.read("status")["interrupted"] == []
        wait_for(lambda: is_usable(host, "again"), "it is there again")
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert read_line(process) == "12345"
    process.communicate(timeout=PATIENCE_S)
    assert host.list_left() == {}


def test_its_libraries_come_before_those_of_wheels(host: Host, tmp_path: Path) -> None:
    """As PyTorch's libraries name NVIDIA's: by the path of the wheel."""
    foreign = shutil.copy(LIB / "sim/libcublas.so.13", tmp_path)
    code = f"import ctypes; ctypes.CDLL({foreign!r}); print(open('/proc/self/maps').read())"
    mapped = host.call(*RUN, *PYTHON, code).stdout
    assert str(LIB / "guest/libcublas.so.13") in mapped
    assert str(foreign) not in mapped


def test_dry_run_changes_nothing(host: Host) -> None:
    done = host.call(*RUN, "--name", "plan", "--dry-run", "--", "true")
    assert done.stdout.startswith("would run plan on 1g.10gb on GPU 0:")
    # steps that only keep records come with -v; the plan comes with -q, too
    more = host.call(*RUN, "--name", "plan", "--dry-run", "-v", "--", "true").stdout.splitlines()
    less = host.call(*RUN, "--name", "plan", "--dry-run", "-q", "--", "true").stdout.splitlines()
    assert set(more) > set(less)
    assert less == done.stdout.splitlines()
    shown = json.loads(host.call(*RUN, "--dry-run", "-o", "json", "--", "true").stdout)
    assert shown["dry_run"] is True
    kinds = [step["kind"] for step in shown["plan"]["steps"]]
    assert kinds[0] == "attachment.record"
    assert "channel.start" in kinds
    assert host.list_left() == {}


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ((*RUN,), 2, "VG100"),
        ((*RUN, "true"), 2, "VG100"),
        ((*RUN, "vm01", "--", "true"), 2, "VG100"),
        (("run", "--", "true"), 2, "VG100"),
        ((*RUN, "--name", "a b", "--", "true"), 2, "VG100"),
        ((*RUN, "-o", "json", "--", "true"), 2, "VG100"),
        ((*RUN, "--transport", "both", "--", "true"), 2, "VG100"),
        ((*RUN, "--", "no-such-command"), 127, "VG223"),
        ((*RUN, "--", "/no/such/command"), 127, "VG223"),
        ((*RUN, "--", "/etc"), 126, "VG224"),
        ((*RUN, "--", "/etc/passwd"), 126, "VG224"),
        (("run", "--profile", "9g.10gb", "--", "true"), 5, "VG103"),
        (("run", "--profile", "passthrough", "--", "true"), 7, "VG212"),
        (("run", "--profile", "share:8GiB", "--", "true"), 2, "VG100"),
        ((*RUN, "--gpu", "17", "--", "true"), 5, "VG101"),
        (("--host", "elsewhere", *RUN, "--", "true"), 2, "VG100"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(
    host: Host, words: tuple[str, ...], code: int, error: str
) -> None:
    done = host.call(*words, code=code)
    assert done.stdout == ""
    assert error in done.stderr
    assert not host.channels


def test_a_file_of_no_known_format_is_freed_again(host: Host, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x00nothing that a kernel executes\x00")
    program.chmod(0o755)
    done = host.call(*RUN, "--", str(program), code=126)
    assert "VG224" in done.stderr
    assert host.list_left() == {}


def test_what_is_the_commands_is_not_ours(host: Host) -> None:
    """Options behind ``--`` are read by nobody but the command."""
    done = host.call(*RUN, "--", "echo", "--debug", "--machine", "x", "--", "-o", "json")
    assert done.stdout == "--debug --machine x -- -o json\n"


def test_a_run_beside_an_attached_vm(capfd: pytest.CaptureFixture[str]) -> None:
    with attached_machine() as scene:

        @contextmanager
        def open_backend(_options: GlobalOptions) -> Iterator[Backend]:
            yield LocalBackend(scene.application)

        options = GlobalOptions()
        session = Session(options, Streams(options), open_backend)
        assert main([*RUN, *PYTHON, PROGRAM], session) == 0
        assert capfd.readouterr().out == "12345\n"
        owners = {row["vm"] for row in scene.call("list_mig_instances")["instances"]}
        assert owners == {"vm01", "vm02"}
        # the VM's name is its own
        assert main([*RUN, "--name", "vm01", "--", "true"], session) == 6


#: a parent of two processes that take memory of the device until there is no more, 16 MiB at a time
TWO = """
import subprocess, sys
CHILD = '''
import ctypes, sys
cu = ctypes.CDLL("libcuda.so.1")
context, memory, count = ctypes.c_void_p(), ctypes.c_uint64(), 0
assert not cu.cuInit(0) and not cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cu.cuCtxSetCurrent(context)
print("ready", flush=True)
input()
while not (code := cu.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(16 << 20))):
    count += 1
print(count, code, flush=True)
input()
'''
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
both = [subprocess.Popen([sys.executable, "-c", CHILD], **pipes) for _ in range(2)]
for one in both:
    one.stdout.readline()
for one in both:
    one.stdin.write("\\n")
    one.stdin.flush()
counts, codes = zip(*(map(int, one.stdout.readline().split()) for one in both))
print(sum(counts), *codes, flush=True)
input()
for one in both:
    one.communicate("\\n")
"""


def test_the_processes_of_a_command_have_its_limits_together(host: Host) -> None:
    limits = ("--limit", "device-memory=1GiB", "--limit", "jit=none", "--limit", "cpu=300%")
    process = host.start(*RUN, "--name", "two", *limits, *PYTHON, TWO)
    # 128 MiB for the context of each
    assert read_line(process) == f"{(1024 - 2 * 128) // 16} 2 2"

    def read() -> tuple[Any, dict[str, Any]]:
        shown = host.read("virtio", "show", "two")
        return shown, {one["key"]: one for one in shown["channel"]["limits"]}

    # what sessions use is reported a moment later
    wait_for(lambda: read()[1]["device-memory"]["used"] == 1 << 30, "all of it is counted")
    shown, found = read()
    assert (found["device-memory"]["limit"], found["device-memory"]["used"]) == (1 << 30, 1 << 30)
    assert found["device-memory"]["refused"] == 2
    assert (found["jit"]["limit"], found["contexts"]["used"]) == (None, 2)
    text = host.call("virtio", "show", "two").stdout
    assert "    device-memory 1GiB, 1 GiB used, held by the sessions alone: no daemon" in text
    assert " with the driver's figures, refused 2 times\n" in text
    facts = {fact["name"]: fact for fact in shown["sandboxes"][0]["facts"]}
    groups = [facts[f"cgroup {name}"] for name in ("memory", "pids", "cpu")]
    process.communicate("\n", timeout=PATIENCE_S)
    assert process.returncode == 0
    assert host.list_left() == {}
    assert not [one for one in groups if one["holds"] and Path(one["detail"]).exists()]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("device-mem=1GiB", "there is no limit 'device-mem': device-memory?"),
        ("events=many", "events=many: not a number"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_before_anything_changes(
    host: Host, word: str, says: str
) -> None:
    done = host.call(*RUN, "--limit", word, "--", "true", code=2)
    assert "cannot read --limit" in done.stderr
    assert f"cause:   {says}\n" in done.stderr
    assert "(VG100, exit 2)" in done.stderr
    assert host.list_left() == {}
