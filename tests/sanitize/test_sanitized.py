"""The tests of the channel once more, with keeper, worker, agent and guest processes built under sanitizers.

The builds are kept below VGPUMGR_CACHE by a hash of the sources. Vendor-named libraries that Python loads stay as they
are (a sanitized library needs a sanitized program around it); the worker's simulated driver is sanitized too.
"""

from __future__ import annotations

import fcntl
import hashlib
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "vgpumgr" / "_lib"
NATIVE = ("vgpumgr/native", "vgpumgr/virtio/native", "vgpumgr/sim/native", "tests/native")
PROGRAMS = {
    "vgpumgr-keeper": "bin",
    "vgpumgr-worker": "bin",
    "vgpumgr-relay": "bin",
    "vgpumgr-dial": "bin",
    "vgpumgr-link": "bin",
    "vgpumgr-guestd": "guest",
    "vgpumgr-test-echo": "test",
    "vgpumgr-test-client": "test",
    "vgpumgr-test-link": "test",
    "vgpumgr-test-hostile": "test",
}
#: what runs under which sanitizer; hostile guests not under "thread", where a worker is too slow for the attack
TESTS = {
    "address,undefined": (
        "tests/unit/test_transport_faults.py",
        "tests/unit/test_calls_channel.py",
        "tests/unit/test_calls_threads.py",
        "tests/unit/test_virtual_memory.py",
        "tests/unit/test_arrays.py",
        "tests/unit/test_link.py",
        "tests/unit/test_link_attacks.py",
        "-k=not given_up",
    ),
    "thread": (
        "tests/unit/test_transport.py",
        "tests/unit/test_calls_threads.py",
        "tests/unit/test_virtual_memory.py",
        "tests/unit/test_arrays.py",
        "tests/unit/test_link.py",
        "-k=ring or calls_threads or test_link",
    ),
}
#: with thread-local variables the search of gcc 12's library crashes in a process that has loaded a driver
LEAKS = f"use_tls=0:print_suppressions=0:suppressions={Path(__file__).parent / 'leaks.supp'}"
#: said of a session that a test has killed while it was searched
KILLED = re.compile(r"^==\d+==Unable to get registers from thread \d+\.$", re.MULTILINE)
pytestmark = pytest.mark.native


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sanitizer", TESTS)
def test_the_channel_under_sanitizers(sanitizer: str, tmp_path: Path) -> None:
    library = build(sanitizer)
    reports = tmp_path / "reports"
    reports.mkdir()
    options = f"log_path={reports}/report:exitcode=99:print_stacktrace=1:halt_on_error=0"
    names = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
    env = os.environ | dict.fromkeys(names, options) | {"VGPUMGR_TEST_LIB": str(library)}
    env["LSAN_OPTIONS"] = LEAKS
    env.pop("PYTEST_XDIST_WORKER", None)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*words, *TESTS[sanitizer]], cwd=ROOT, env=env, capture_output=True, text=True, timeout=1700
    )
    found = "\n".join(path.read_text(errors="replace") for path in sorted(reports.iterdir()))
    found = KILLED.sub("", found).strip()
    assert not found, found[:6000]
    assert done.returncode == 0, done.stdout[-6000:]


def test_a_session_that_frees_not_all_is_reported(tmp_path: Path) -> None:
    code = """if True:
        from tests.unit.transport_rig import Rig, children, wait_for
        with Rig('ring') as rig:
            worker = rig.status().worker.pid
            session = set(children(worker))  # the spare one, which the client gets
            rig.check('open', 'bulk', 'close')
            # its search for leaks may outlast a keeper's patience
            wait_for(lambda: not session & set(children(worker)), 'searched')
    """
    env = os.environ | {
        "VGPUMGR_TEST_LIB": str(build("address,undefined")),
        "LSAN_OPTIONS": LEAKS,
        "ASAN_OPTIONS": f"log_path={tmp_path}/report:exitcode=99",
    }
    for leaks in (False, True):
        more = {"VGPUMGR_TEST_LEAK": "1"} if leaks else {}
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env | more, check=True)
        found = "".join(path.read_text() for path in tmp_path.glob("report.*"))
        assert ("detected memory leaks" in found, "echo_worker.c" in found) == (leaks, leaks)


def test_the_programs_really_are_sanitized() -> None:
    for sanitizer, symbol in (("address,undefined", "__asan_init"), ("thread", "__tsan_init")):
        for name, place in PROGRAMS.items():
            program = build(sanitizer) / place / name
            assert symbol.encode() in program.read_bytes(), program


def test_builders_at_the_same_time_never_miss_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[__name__]
    monkeypatch.setenv("VGPUMGR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "hash_sources", lambda: "same")
    monkeypatch.setattr(module, "compile_programs", lambda _, target: target.mkdir())
    # two checkouts that share a cache
    places = [tmp_path / name for name in ("one", "other")]
    for place in places:
        for name in ("bin/null", "guest", "sim", "test"):
            (place / name).mkdir(parents=True)
            (place / name / "program").touch()
    fork = multiprocessing.get_context("fork")
    start = fork.Barrier(4)

    def build_often(place: Path) -> None:
        monkeypatch.setattr(module, "LIB", place)
        start.wait(30)
        for _ in range(200):
            library = build.__wrapped__("thread")
            assert all((library / name / "program").exists() for name in ("guest", "sim", "test"))

    builders = [fork.Process(target=build_often, args=(places[i % 2],)) for i in range(4)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(60)
    assert [builder.exitcode for builder in builders] == [0] * 4


@cache
def build(sanitizer: str) -> Path:
    """A directory like vgpumgr/_lib with the sanitized programs in it."""
    store = Path(os.environ.get("VGPUMGR_CACHE", ROOT / ".cache")) / "sanitize"
    target = store / f"{sanitizer.replace(',', '-')}-{hash_sources()}"
    store.mkdir(parents=True, exist_ok=True)
    # two tests of one run may want the same at once
    with (store / f"{sanitizer}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "done").exists():
            shutil.rmtree(target, ignore_errors=True)
            for old in sorted(store.glob(f"{sanitizer.replace(',', '-')}-*"))[:-2]:
                shutil.rmtree(old, ignore_errors=True)
            compile_programs(sanitizer, target)
            (target / "done").touch()
        link_unsanitized(target / "lib")
    return target / "lib"


def link_unsanitized(library: Path) -> None:
    """What is not sanitized is this tree's. A link is replaced at once: another run may be using it."""
    for name in ("bin/null", "guest", "sim", "test"):
        for source in (LIB / name).iterdir():
            link = library / name / source.name
            if link.is_symlink() and link.readlink() == source:
                continue
            if link.is_symlink() or not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                new = link.with_name(f"{link.name}.new")
                new.unlink(missing_ok=True)
                new.symlink_to(source)
                new.rename(link)


def hash_sources() -> str:
    """What the programs are made from."""
    digest = hashlib.sha256()
    places = [ROOT / "CMakeLists.txt", *(ROOT / "cmake").iterdir()]
    for directory in NATIVE:
        places += [p for p in sorted((ROOT / directory).rglob("*")) if p.is_file()]
    for path in places:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def compile_programs(sanitizer: str, target: Path) -> None:
    """Configures with the headers of the usual build, and compiles."""
    cache_file = (ROOT / "build" / "CMakeCache.txt").read_text()
    headers = [
        f"-D{line}"
        for line in cache_file.splitlines()
        if line.startswith("VGPUMGR_") and "=/" in line
    ]
    work = target / "build"
    configure = ["cmake", "-S", ROOT, "-B", work, f"-DVGPUMGR_SANITIZE={sanitizer}", *headers]
    targets = [*PROGRAMS, "simcuda", "guest_cuda"]
    for command in (configure, ["cmake", "--build", work, "-j2", "--target", *targets]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    for name, place in PROGRAMS.items():
        (target / "lib" / place).mkdir(parents=True, exist_ok=True)
        (found,) = (p for p in work.rglob(name) if p.is_file())
        shutil.copy2(found, target / "lib" / place / name)
    (target / "lib" / "sim").mkdir()
    (driver,) = (p for p in work.glob("vgpumgr/sim/native/cuda/libcuda.so.1") if p.is_file())
    shutil.copy2(driver, target / "lib" / "sim" / "libcuda.so.1")
    # for programs that are sanitized themselves: see test_guest_library.py
    (guest,) = (p for p in work.glob("vgpumgr/virtio/native/shim/libcuda.so.1") if p.is_file())
    (target / "lib" / "guest-sanitized").mkdir()
    shutil.copy2(guest, target / "lib" / "guest-sanitized" / "libcuda.so.1")
    shutil.rmtree(work)
