"""What kernels print comes to the guest process's own standard output and error, and to no file of the host."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.build_programs import build_programs
from tests.unit.calls_rig import (
    PROGRAM_S,
    run_program,
    run_python,
    simulated_channel,
    start_python,
)
from tests.unit.transport_rig import Rig, read_line, wait_for

pytestmark = pytest.mark.native

#: say(count): that many lines; fail(): an assertion; quiet(): nothing
KERNELS = r"""
image = b'''.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c);
.global .align 1 .b8 text[9] = {108, 105, 110, 101, 32, 37, 117, 10, 0};
.global .align 1 .b8 words[5] = {97, 46, 99, 117, 0};
.visible .entry say(.param .u32 count) {
  .local .align 8 .b8 arguments[8]; .reg .b64 %a, %t; .reg .b32 %i, %n, %r; .reg .pred %p;
  ld.param.u32 %n, [count]; mov.u32 %i, 0;
again: setp.ge.u32 %p, %i, %n; @%p bra done;
  mov.u64 %a, arguments; st.local.u32 [%a], %i; cvta.local.u64 %a, %a; mov.u64 %t, text; cvta.global.u64 %t, %t;
  { .param .b64 f; .param .b64 v; .param .b32 r; st.param.b64 [f], %t; st.param.b64 [v], %a;
    call.uni (r), vprintf, (f, v); }
  add.u32 %i, %i, 1; bra again;
done: ret; }
.visible .entry fail() { .reg .b64 %t; mov.u64 %t, words; cvta.global.u64 %t, %t;
  { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 c;
    st.param.b64 [m], %t; st.param.b64 [f], %t; st.param.b32 [l], 7; st.param.b64 [n], %t; st.param.b64 [c], 1;
    call.uni __assertfail, (m, f, l, n, c); } ret; }
.visible .entry quiet() { ret; }
\0'''
def run(name, *values):
    array = (c_void_p * 1)(*(addressof(v) for v in values))
    ok(cu.cuLaunchKernel(found[name], 1, 1, 1, 1, 1, 1, 0, None, array, None))
def start():
    context(); loaded = module(image)
    found.update({name: function(loaded, name.encode()) for name in ('say', 'fail', 'quiet')})
found = {}
"""
ASSERTION = "a.cu:7: a.cu: block: [0,0,0], thread: [0,0,0] Assertion `a.cu` failed.\n"


def lines(count: int) -> str:
    return "".join(f"line {i}\n" for i in range(count))


@pytest.fixture(scope="module", params=["ring", "private", "serial"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with simulated_channel(request.param, tmp_path_factory.mktemp("sim")) as found:
        yield found


def run(rig: Rig, code: str) -> subprocess.CompletedProcess[str]:
    """A guest process to its end: standard output and error apart."""
    process = start_python(rig, f"{KERNELS}\n{code}")
    out, errors = process.communicate(timeout=PROGRAM_S)
    return subprocess.CompletedProcess([], process.returncode, out, errors)


def printed(rig: Rig, code: str) -> str:
    return run_python(rig, f"{KERNELS}\n{code}")


@pytest.mark.parametrize(
    "wait",
    [
        "ok(cu.cuCtxSynchronize())",
        "ok(cu.cuStreamSynchronize(None))",
        "p = memory(4); b = ctypes.create_string_buffer(4); ok(cu.cuMemcpyDtoH_v2(b, p, c_size_t(4)))",
        "e = c_void_p(); ok(cu.cuEventCreate(byref(e), 0)); ok(cu.cuEventRecord(e, None));"
        " ok(cu.cuEventSynchronize(e))",
        "ok(cu.cuDevicePrimaryCtxReset_v2(0))",
    ],
)
def test_a_call_that_waits_brings_the_output(rig: Rig, wait: str) -> None:
    """It is written before the call returns: `os._exit` leaves no time for anything after it."""
    code = (
        f"import os\nstart(); run('say', c_uint(3)); {wait}; os.write(1, b'after\\n'); os._exit(0)"
    )
    assert printed(rig, code) == lines(3) + "after\n"


def test_output_is_in_order_with_the_program_s_own(rig: Rig) -> None:
    code = """
libc = ctypes.CDLL(None); start()
for i in range(3):
    libc.printf(b'host %d\\n', i); run('say', c_uint(2)); ok(cu.cuCtxSynchronize())
"""
    assert printed(rig, code) == "".join(f"host {i}\n{lines(2)}" for i in range(3))


def test_much_output_comes_whole(rig: Rig) -> None:
    assert printed(rig, "start(); run('say', c_uint(20000)); ok(cu.cuCtxSynchronize())") == lines(
        20000
    )


def test_output_that_no_call_has_brought_comes_at_the_end(rig: Rig) -> None:
    """The driver has flushed it (another launch, an unloaded module), and the program ends by itself."""
    code = """
start(); e = c_void_p(); ok(cu.cuEventCreate(byref(e), 0)); other = module(image)
run('say', c_uint(3)); ok(cu.cuEventRecord(e, None))
while cu.cuEventQuery(e): pass
ok(cu.cuModuleUnload(other))
"""
    assert printed(rig, code) == lines(3)


def test_a_failed_assertion_is_named_on_standard_error(rig: Rig) -> None:
    done = run(rig, "start(); run('fail'); assert cu.cuCtxSynchronize() == 710")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ASSERTION)


def test_each_process_gets_its_own(rig: Rig) -> None:
    code = "start()\nfor i in range(50): run('say', c_uint({})); ok(cu.cuCtxSynchronize())"
    processes = {n: start_python(rig, KERNELS + code.format(n)) for n in (1, 2, 3, 4)}
    for count, process in processes.items():
        out, errors = process.communicate(timeout=PROGRAM_S)
        assert (process.returncode, errors) == (0, "")
        assert out == lines(count) * 50


def test_threads_of_a_process_write_whole_lines(rig: Rig) -> None:
    code = """
import threading
start(); ctx = c_void_p(); ok(cu.cuCtxGetCurrent(byref(ctx)))
def work():
    ok(cu.cuCtxSetCurrent(ctx))
    for _ in range(20): run('say', c_uint(5)); ok(cu.cuCtxSynchronize())
threads = [threading.Thread(target=work) for _ in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    out = printed(rig, code).splitlines()
    assert len(out) == 600
    assert set(out) == set(lines(5).splitlines())


def test_a_program_that_prints_nothing_pays_no_round_trip(rig: Rig) -> None:
    code = """
start(); run('quiet'); ok(cu.cuCtxSynchronize()); before = waits()
for _ in range(50): run('quiet'); ok(cu.cuCtxSynchronize())
assert waits() - before == 50, waits() - before
"""
    assert printed(rig, code) == ""


def test_a_child_process_does_not_take_its_parent_s_output(rig: Rig) -> None:
    code = """
import os
start(); run('say', c_uint(2))
child = os.fork()
if not child: raise SystemExit
os.waitpid(child, 0); ok(cu.cuCtxSynchronize())
"""
    assert printed(rig, code) == lines(2)


def test_a_standard_output_that_takes_nothing_ends_no_session(rig: Rig) -> None:
    """Closed, or non-blocking and full: the program goes on, as on a GPU of its own."""
    code = """
import os
start(); os.close(1); run('say', c_uint(3)); ok(cu.cuCtxSynchronize())
r, w = os.pipe(); os.set_blocking(w, False); os.dup2(w, 1)
run('say', c_uint(20000)); ok(cu.cuCtxSynchronize())
"""
    done = run(rig, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert rig.status().violations.count == 0


# ---- bounds ----


def files_of(rig: Rig) -> int:
    """Bytes in all files that the channel has on the host."""
    return sum(p.stat().st_size for p in rig.keeper.directory.rglob("*") if p.is_file())


FLOOD = """
start(); limit = 64 << 20
ok(cu.cuCtxSetLimit(1, c_size_t(limit)))   # CU_LIMIT_PRINTF_FIFO_SIZE
for _ in range(8): run('say', c_uint(150000))
ok(cu.cuCtxSynchronize())
"""


def test_a_flood_is_bounded_and_counted(rig: Rig) -> None:
    """More than the session keeps is lost, and said; no file of the host grows."""
    before = files_of(rig)
    process = start_python(rig, KERNELS + FLOOD + "print('up', flush=True); input()")
    assert process.stdout is not None
    out = process.stdout.readline()
    while out and not out.endswith("up\n"):
        out = process.stdout.readline()
    (session,) = (lane.session_pid for lane in rig.status().lanes)
    assert session_kib(session) < 256 << 10
    _, errors = process.communicate("\n", timeout=PROGRAM_S)
    assert process.returncode == 0
    assert "bytes that kernels printed are lost" in errors
    assert errors.count("\n") == 1
    assert files_of(rig) <= before + 4096


def session_kib(pid: int) -> int:
    """Its resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(pid)


def test_output_of_a_killed_process_goes_nowhere(rig: Rig) -> None:
    before = files_of(rig)
    code = "start(); run('say', c_uint(20000)); cu.cuStreamQuery(None); print('up', flush=True); input()"
    process = start_python(rig, f"{KERNELS}\n{code}")
    while not (line := read_line(process)).endswith("up"):
        assert line, process.communicate()
    process.kill()
    process.communicate()
    rig.wait_status(lambda s: not s.lanes, "the lane is free")
    assert files_of(rig) <= before + 4096


def test_what_a_crashing_session_says_is_in_the_log(rig: Rig) -> None:
    """The C library's reason for an abort, and a driver's, are the administrator's."""
    process = start_python(rig, f"{KERNELS}\nstart(); print('up', flush=True); input()")
    assert read_line(process) == "up"
    (session,) = (lane.session_pid for lane in rig.status().lanes)
    with Path(f"/proc/{session}/fd/2").open("wb", buffering=0) as errors:
        errors.write(b"double free or corruption \x1b[31m(test)\n")
    os.kill(session, signal.SIGABRT)
    process.communicate("\n", timeout=PROGRAM_S)
    wait_for(lambda: "double free or corruption" in rig.keeper.worker_log.read_text(), "logged")
    assert "\x1b" not in rig.keeper.worker_log.read_text()


# ---- programs ----


@pytest.mark.cuda
@pytest.mark.parametrize("words", [(), ("lines", "5000"), ("order",)])
def test_a_program_of_nvcc(rig: Rig, words: tuple[str, ...]) -> None:
    done = run_program(rig, str(build_programs(["output"])["output"]), *words)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout.startswith("PASS output")
    assert done.stderr == ""


@pytest.mark.cuda
@pytest.mark.parametrize("how", ["exit", "reset"])
def test_a_program_of_nvcc_that_ends(rig: Rig, how: str) -> None:
    done = run_program(rig, str(build_programs(["output"])["output"]), how)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{how} 7\n", "")


@pytest.mark.cuda
def test_an_assertion_of_nvcc(rig: Rig) -> None:
    done = run_program(rig, str(build_programs(["output"])["output"]), "assert")
    assert done.stdout == "PASS output assertion\n"
    (line,) = done.stderr.splitlines()
    assert line.endswith(
        "void fail(int): block: [0,0,0], thread: [0,0,0] Assertion `number == 1` failed."
    ), line
