# SPDX-License-Identifier: Apache-2.0
"""The simulated CUDA driver: C programs against cuda.h, kernels by nvcc."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.sim import cuda_harness as harness
from tests.sim.cuda_harness import Machine, Nvml
from vgpumgr.sim.machine import create_machine

pytestmark = [pytest.mark.native, pytest.mark.cuda]

#: programs that need nothing but a device, and those that need kernels besides
HOST_SIDE = (
    "contexts", "memory", "streams", "stream_memory", "tensor_maps", "batches", "attributes",
)  # fmt: skip
KERNELS = (
    "launches", "functions", "linking", "graphs", "graph_objects", "graph_reads", "graph_memory",
    "graph_allocations", "conditionals", "conditional_rules", "captures", "virtual", "textures",
    "texture_faults",
)  # fmt: skip
MIB = 1 << 20
SLICE_1, SLICE_2, SLICE_3 = 0, 1, 2  # NVML_GPU_INSTANCE_PROFILE_*


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    return Machine(create_machine("dgx-a100"))


@pytest.fixture
def slice_machine(machine: Machine) -> Machine:
    """All that programs see is one 1g.10gb instance."""
    (uuid,) = Nvml(machine).make_instances(0, [SLICE_1])
    return Machine(machine.directory, {"CUDA_VISIBLE_DEVICES": uuid})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("programs")
    for name in (*HOST_SIDE, *KERNELS, "devices"):
        harness.compile_program(name, out)
    return out


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kernels")
    return harness.compile_kernels(out / "kernels.ptx", "-ptx", "-arch=sm_80")


def cases(program: str) -> list[str]:
    """The names of a program's cases, out of its source."""
    source = (harness.PROGRAMS / f"{program}.c").read_text()
    return re.findall(r'\{ "(\w+)", \w+ \}', source)


SPECIAL = {
    "list",
    "no_device",
    "hold",
    "try_most",
    "print",
    "machine_code_only",
    "busy",
    "refused",
    "in_step",
    "peers",
    "limited",
    "link_objects",
    "wait_until_killed",
}


def ordinary(*programs: str) -> list[tuple[str, str]]:
    """Cases that need nothing but a device."""
    return [(p, c) for p in programs for c in cases(p) if c not in SPECIAL]


@pytest.mark.parametrize(
    ("program", "case"),
    ordinary(*HOST_SIDE),
)
def test_host_side(slice_machine: Machine, built: Path, program: str, case: str) -> None:
    slice_machine.run(built / program, case)


@pytest.mark.parametrize(
    ("program", "case"),
    ordinary(*KERNELS),
)
def test_kernels(slice_machine: Machine, built: Path, ptx: Path, program: str, case: str) -> None:
    slice_machine.run(built / program, case, KERNELS=str(ptx))


@pytest.mark.parametrize("case", ["one_inside_of_another", "one_of_many"])
def test_kernels_decide_lane_by_lane(
    slice_machine: Machine, built: Path, ptx: Path, case: str
) -> None:
    env = {"KERNELS": str(ptx), "VGPUMGR_SIM_ENGINE": "lanes"}
    slice_machine.run(built / "conditionals", case, **env)


@pytest.mark.parametrize("case", cases("devices"))
def test_two_devices(machine: Machine, built: Path, ptx: Path, case: str) -> None:
    machine.run(built / "devices", case, KERNELS=str(ptx), CUDA_VISIBLE_DEVICES="0,1")


def test_printf_reaches_stdout(slice_machine: Machine, built: Path, ptx: Path) -> None:
    out = slice_machine.run(built / "launches", "print", KERNELS=str(ptx))
    assert sorted(out.splitlines()) == ["hello 42 from 0", "hello 42 from 1"]


FATBINS = {
    "plain": ["--no-compress"],
    "lz4": ["--compress-mode=speed"],
    "zstd": ["--compress-mode=default"],
    "two architectures": ["-gencode=arch=compute_90,code=compute_90"],
}


@pytest.mark.parametrize("options", FATBINS.values(), ids=FATBINS)
@pytest.mark.parametrize("case", ["vector_add", "globals", "libraries"])
def test_fat_binaries(
    slice_machine: Machine, built: Path, tmp_path: Path, options: list[str], case: str
) -> None:
    both = "-gencode=arch=compute_80,code=[compute_80,sm_80]"
    fatbin = harness.compile_kernels(tmp_path / "k.fatbin", "-fatbin", both, *options)
    slice_machine.run(built / "launches", case, KERNELS=str(fatbin))


def test_objects_and_libraries_are_linked_by_their_ptx(
    slice_machine: Machine, built: Path, tmp_path: Path
) -> None:
    code = "-gencode=arch=compute_80,code=compute_80"
    harness.compile_kernels(tmp_path / "kernels.o", "-dc", code)
    slice_machine.run(
        built / "linking",
        "link_objects",
        OBJECT=str(tmp_path / "kernels.o"),
        LIBRARY=str(harness.cuda_include().parent / "lib/libcudadevrt.a"),
    )


@pytest.mark.parametrize("code", ["sm_80", "compute_90"])
def test_nothing_for_this_device(
    slice_machine: Machine, built: Path, tmp_path: Path, code: str
) -> None:
    arch = f"-gencode=arch={code.replace('sm', 'compute')},code={code}"
    fatbin = harness.compile_kernels(tmp_path / "k.fatbin", "-fatbin", arch)
    slice_machine.run(built / "launches", "machine_code_only", KERNELS=str(fatbin))


def test_the_library_is_silent_and_logs_where_told(
    slice_machine: Machine, built: Path, ptx: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    done = subprocess.run(
        [built / "launches", "out_of_bounds"], capture_output=True, text=True, check=True,
        env=slice_machine.environment(KERNELS=str(ptx), VGPUMGR_SIM_LOG=str(log)),
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")
    assert log.read_text().startswith("launch: ")
    assert "store" in log.read_text()


def test_a_failed_assertion_is_printed(slice_machine: Machine, built: Path, ptx: Path) -> None:
    done = subprocess.run(
        [built / "launches", "failed_assert"], capture_output=True, text=True, check=True,
        env=slice_machine.environment(KERNELS=str(ptx)),
    )  # fmt: skip
    place, _, said = done.stderr.partition(": void assert_now(int): ")
    assert re.fullmatch(r".*/kernels\.cu:\d+", place)
    assert said == "block: [0,0,0], thread: [0,0,0] Assertion `x == 1` failed.\n"


def test_kernels_reach_the_memory_of_peers(machine: Machine, built: Path, ptx: Path) -> None:
    machine.run(built / "launches", "peers", KERNELS=str(ptx))


def test_the_order_of_threads_can_be_random(slice_machine: Machine, built: Path, ptx: Path) -> None:
    def right(schedule: str) -> int:
        env = {"KERNELS": str(ptx), "VGPUMGR_SIM_SCHEDULE": schedule}
        return int(slice_machine.run(built / "launches", "in_step", **env))

    assert right("") == 32
    assert (
        int(
            slice_machine.run(
                built / "launches", "in_step", KERNELS=str(ptx), VGPUMGR_SIM_ENGINE="lanes"
            )
        )
        == 32
    )
    assert right("random:7") == right("random:7") < 32
    assert right("random") < 32


def test_a_refused_kernel_is_named(slice_machine: Machine, built: Path, ptx: Path) -> None:
    done = subprocess.run(
        [built / "launches", "refused"], capture_output=True, text=True, check=True,
        env=slice_machine.environment(KERNELS=str(ptx)),
    )  # fmt: skip
    line, other = done.stderr.splitlines()
    assert other.startswith(
        "simulated GPU: kernels cannot launch kernels: "
        "line 4: function __cudaCDP2LaunchDeviceV2 is declared and defined nowhere"
    )
    assert line.startswith("simulated GPU: kernel sparse cannot be launched: line ")
    assert "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 is not supported" in line


def test_exports_every_name_of_the_header() -> None:
    typedefs = harness.cuda_include() / "cudaTypedefs.h"
    shown = subprocess.run(
        ["gcc", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{typedefs.parent}", typedefs],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    declared = set(re.findall(r"\bCUresult\s+(cu\w+)\s*\(", shown))
    assert len(declared) > 650
    profiler = {"cuProfilerStart", "cuProfilerStop"}  # of cudaProfiler.h
    assert harness.exported(harness.LIB / "libcuda.so.1") == declared | profiler


def test_cuda_without_a_machine(tmp_path: Path, built: Path) -> None:
    Machine(tmp_path / "absent").run(built / "contexts", "no_device")


# --- which devices a process sees


def seen(machine: Machine, built: Path, visible: str | None) -> list[list[str]]:
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return [line.split("|") for line in machine.run(built / "contexts", "list", **env).splitlines()]


def gpu_uuids(machine: Machine) -> list[str]:
    code = (
        "for i in range(n.nvmlDeviceGetCount()):\n"
        "    print(n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(i)))"
    )
    return Nvml(machine).call(code).split()


def plain(uuid: str) -> str:
    return uuid.partition("-")[2].replace("-", "").lower()


def test_all_gpus_without_a_list(machine: Machine, built: Path) -> None:
    devices = seen(machine, built, None)
    assert [d[5] for d in devices] == [plain(u) for u in gpu_uuids(machine)]
    assert {d[0] for d in devices} == {"NVIDIA A100-SXM4-80GB"}
    assert {d[3] for d in devices} == {"108"}
    assert {d[4] for d in devices} == {"8.0"}


def test_lists_of_gpus(machine: Machine, built: Path) -> None:
    uuids = gpu_uuids(machine)

    def order(visible: str) -> list[str]:
        return [d[5] for d in seen(machine, built, visible)]

    assert order("2,0") == [plain(uuids[2]), plain(uuids[0])]
    assert order("1,-1,0") == [plain(uuids[1])]
    assert order("1,99,0") == [plain(uuids[1])]
    assert order(f"{uuids[3]},{uuids[1]}") == [plain(uuids[3]), plain(uuids[1])]
    assert order(uuids[4][:20]) == [plain(uuids[4])]
    for nothing in ("", "-1", "GPU-", "GPU-ffff", "0,0", "MIG-0000", "nonsense"):
        machine.run(built / "contexts", "no_device", CUDA_VISIBLE_DEVICES=nothing)


def test_mig_instances_are_devices(machine: Machine, built: Path) -> None:
    migs = Nvml(machine).make_instances(1, [SLICE_3, SLICE_1])
    (big,) = seen(machine, built, migs[0])
    (small,) = seen(machine, built, migs[1])
    assert big[0] == "NVIDIA A100-SXM4-80GB MIG 3g.40gb"
    assert small[0] == "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
    assert (big[3], small[3]) == ("42", "14")
    assert int(big[1]) > 3 * int(small[1])
    assert [big[5], small[5]] == [plain(migs[0]), plain(migs[1])]
    # one MIG device for each process; a GPU in MIG mode stands for its first one
    assert seen(machine, built, ",".join(reversed(migs))) == [small]
    assert seen(machine, built, "1") == [big]
    # without a list: the GPUs that are not in MIG mode
    assert len(seen(machine, built, None)) == 7


def test_only_mig_left(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    machine = Machine(create_machine("a30-pair"))
    first = Nvml(machine).make_instances(0, [SLICE_1, SLICE_1])
    Nvml(machine).make_instances(1, [SLICE_2])
    (device,) = seen(machine, built, None)
    assert device[5] == plain(first[0])


# --- processes that share an instance


def test_processes_share_the_capacity(slice_machine: Machine, built: Path) -> None:
    holder = slice_machine.start(built / "memory", "hold")
    assert holder.stdout
    available = int(holder.stdout.readline())
    error, left = slice_machine.run(built / "memory", "try_most").split()
    assert error == "CUDA_ERROR_OUT_OF_MEMORY"
    assert int(left) < available // 4
    assert holder.communicate()[0] == ""
    assert holder.returncode == 0
    error, left = slice_machine.run(built / "memory", "try_most").split()
    assert (error, int(left)) == ("CUDA_SUCCESS", available)


def test_a_machine_bounds_the_memory_of_its_programs(machine: Machine, built: Path) -> None:
    (machine.directory / "memory").write_text(f"{1 << 30}\n")
    machine.run(built / "memory", "limited")


def test_a_killed_process_leaves_nothing(slice_machine: Machine, built: Path) -> None:
    holder = slice_machine.start(built / "memory", "hold")
    assert holder.stdout
    available = int(holder.stdout.readline())
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    error, left = slice_machine.run(built / "memory", "try_most").split()
    assert (error, int(left)) == ("CUDA_SUCCESS", available)
    holder.communicate()


def test_instances_of_one_gpu_do_not_share(machine: Machine, built: Path) -> None:
    first, second = Nvml(machine).make_instances(0, [SLICE_1, SLICE_1])
    holder = machine.start(built / "memory", "hold", CUDA_VISIBLE_DEVICES=first)
    assert holder.stdout
    available = int(holder.stdout.readline())
    out = machine.run(built / "memory", "try_most", CUDA_VISIBLE_DEVICES=second)
    assert out.split() == ["CUDA_SUCCESS", str(available)]
    holder.communicate()


def test_nvml_shows_the_process_and_its_memory(machine: Machine, built: Path) -> None:
    holder = machine.start(built / "memory", "hold", CUDA_VISIBLE_DEVICES="0")
    assert holder.stdout
    available = int(holder.stdout.readline())
    code = (
        "h = n.nvmlDeviceGetHandleByIndex(0)\n"
        "for p in n.nvmlDeviceGetComputeRunningProcesses(h):\n"
        "    print(p.pid, p.usedGpuMemory)\n"
    )
    pid, used = map(int, Nvml(machine).call(code).split())
    assert pid == holder.pid
    assert used > available // 4 * 3
    holder.communicate()
    assert Nvml(machine).call(code) == ""


def test_nvml_shows_work_as_utilisation(machine: Machine, built: Path, ptx: Path) -> None:
    worker = machine.start(built / "launches", "busy", CUDA_VISIBLE_DEVICES="0", KERNELS=str(ptx))
    code = """
import time
h = n.nvmlDeviceGetHandleByIndex(0)
for _ in range(600):
    if n.nvmlDeviceGetUtilizationRates(h).gpu:
        break
    time.sleep(0.1)
print(n.nvmlDeviceGetUtilizationRates(h).gpu > 0)
print(n.nvmlDeviceGetUtilizationRates(n.nvmlDeviceGetHandleByIndex(1)).gpu)
"""
    assert Nvml(machine).call(code).split() == ["True", "0"]
    worker.communicate()
    assert worker.returncode == 0
