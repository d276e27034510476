# ruff: noqa: N802  # a method for each function of CUDA's
"""``python -m tests.differential.program LIBRARY``: runs sequences, each in a process of its own.

Reads one JSON document a line, and answers with one line each: what every call gave, in the order of the steps.
Nothing in it depends on the machine: handles are numbers of objects, addresses are offsets.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import sys
import tempfile
import threading
import zlib
from ctypes import byref, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ushort, c_void_p
from typing import Any

from tests.differential.arrays import run_arrays
from tests.differential.calls import CALLS, IMAGES, KERNELS, KINDS, PADDING
from tests.differential.graphs import build_graph, capture_graph
from tests.differential.tensors import run_tensors
from tests.differential.virtual import run_virtual
from tests.differential.waits import run_waits

NUMBERS: dict[str, Any] = {
    "z": c_size_t, "u": c_uint, "i": c_int, "d": c_int, "f": c_float, "b": c_ubyte, "h": c_ushort,
}  # fmt: skip
HOST_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
LOG_BYTES = 512


class Copy2D(ctypes.Structure):
    _fields_ = [
        (end + name, kind)
        for end in ("src", "dst")
        for name, kind in (
            ("X", c_size_t), ("Y", c_size_t), ("Type", c_uint), ("Host", c_void_p),
            ("Device", c_uint64), ("Array", c_void_p), ("Pitch", c_size_t),
        )
    ] + [("width", c_size_t), ("height", c_size_t)]  # fmt: skip


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig, whose attributes are 64 bytes behind 8 of their own."""

    _fields_ = [
        ("shape", c_uint * 7), ("stream", c_void_p), ("attributes", c_void_p), ("count", c_uint),
    ]  # fmt: skip


CLUSTER_DIMENSION = 4


class Run:
    """The objects of one sequence, by kind and number."""

    def __init__(self, cu: ctypes.CDLL) -> None:
        self.cu = cu
        self.objects: dict[tuple[str, int], int] = {}
        self.kept: list[object] = []
        self.order: dict[str, list[int]] = {}
        self.lock = threading.Lock()

    def find(self, kind: str, number: int | None) -> int:
        return 0 if number is None else self.objects.get((kind, number), 0)

    def name(self, kind: str, value: int) -> int | None:
        """The latest object with that handle; None for no handle."""
        with self.lock:
            found = [n for (k, n), v in self.objects.items() if k == kind and v == value]
        return max(found) if value and found else (-1 if value else None)

    def put(self, kind: str, number: int, value: int) -> None:
        with self.lock:
            self.objects[kind, number] = value

    def address(self, where: list[int]) -> c_uint64:
        number, offset = where
        return c_uint64((self.find("mem", number) + offset) % (1 << 64))

    # ---- calls by their forms

    def step(self, name: str, arguments: list[Any]) -> list[Any]:
        if name in CALLS:
            return self.call(name, CALLS[name].split(), list(arguments))
        return list(getattr(self, name)(*arguments))

    def call(self, name: str, forms: list[str], given: list[Any]) -> list[Any]:
        passed: list[Any] = []
        after = []
        for form in forms:
            if form[0] in "ox" and form != "out":
                kind = NUMBERS.get(form[1:], c_void_p)
                cell = kind(0)
                passed.append(byref(cell))
                if form[0] == "o":
                    after.append((form[1:], cell, None))
                continue
            value = given.pop(0)
            if form[0] == "+":
                cell = c_uint64(0)
                passed.append(byref(cell))
                after.append((form, cell, value))
            elif form == "mem":
                passed.append(self.address(value))
            elif form in NUMBERS:
                passed.append(NUMBERS[form](value))
            elif form == "str":
                passed.append(value.encode())
            elif form == "in":
                passed.append(self._fill(*value))
            elif form == "out":
                buffer = ctypes.create_string_buffer(max(1, value))
                passed.append(buffer)
                after.append(("bytes", buffer, None))
            else:
                passed.append(self._handle(form, value))
        code = getattr(self.cu, name)(*passed)
        return [code, *(self._read(code, *one) for one in after)]

    def _handle(self, form: str, value: Any) -> Any:
        kind = form.lstrip("-")
        found = self.find(kind, value)
        return c_uint64(found) if kind == "mem" else c_void_p(found)

    def _fill(self, length: int, first: int) -> ctypes.Array[ctypes.c_char]:
        data = bytes((first + i) & 255 for i in range(min(length, 256))) * (length // 256 + 1)
        buffer = ctypes.create_string_buffer(data[:length], max(1, length))
        self.kept.append(buffer)  # a copy may still read it
        return buffer

    def _read(self, code: int, form: str, cell: Any, number: int | None) -> Any:
        if form == "bytes":
            return zlib.crc32(cell.raw) if code == 0 else None
        if number is not None:
            self.put(form[1:], number, cell.value if code == 0 else 0)
            return bool(cell.value) if code == 0 else None
        if form in KINDS:
            return self.name(form, cell.value or 0) if code == 0 else None
        return cell.value if code == 0 else None

    # ---- calls by hand

    def cuModuleLoadData(self, number: int, image: str) -> list[Any]:
        cell = c_void_p()
        code = self.cu.cuModuleLoadData(byref(cell), IMAGES[image].encode())
        self.put("mod", number, cell.value or 0 if code == 0 else 0)
        return [code]

    def cuModuleLoadDataEx(self, number: int, image: str, log_bytes: int) -> list[Any]:
        cell = c_void_p()
        logs = [ctypes.create_string_buffer(LOG_BYTES) for _ in range(2)]
        kinds = (c_int * 4)(3, 4, 5, 6)  # info log, its size, error log, its size
        values = (c_void_p * 4)(
            ctypes.addressof(logs[0]), log_bytes, ctypes.addressof(logs[1]), log_bytes
        )
        code = self.cu.cuModuleLoadDataEx(byref(cell), IMAGES[image].encode(), 4, kinds, values)
        self.put("mod", number, cell.value or 0 if code == 0 else 0)
        return [code, *(log.value.decode(errors="replace") for log in logs), values[1], values[3]]

    def cuLinkComplete(self, number: int, *images: str) -> list[Any]:
        """A module of what was linked; whether an input is refused at once or at the end is left to each driver."""
        state, cubin, module, size = c_void_p(), c_void_p(), c_void_p(), c_size_t()
        code = self.cu.cuLinkCreate_v2(0, None, None, byref(state))
        none = (0, None, None)
        for image in images:
            text = IMAGES[image].encode()
            kept = (c_size_t(len(text)), image.encode(), *none)
            code = code or self.cu.cuLinkAddData_v2(state, 1, text, *kept)
        code = code or self.cu.cuLinkComplete(state, byref(cubin), byref(size))
        length = size.value if code == 0 else None
        code = code or self.cu.cuModuleLoadData(byref(module), cubin)
        self.put("mod", number, module.value or 0 if code == 0 else 0)
        return [code, length, self.cu.cuLinkDestroy(state)]

    def cuLibraryLoadData(self, number: int, image: str) -> list[Any]:
        cell = c_void_p()
        more = (None, None, 0)
        code = self.cu.cuLibraryLoadData(byref(cell), IMAGES[image].encode(), *more, *more)
        self.put("lib", number, cell.value or 0 if code == 0 else 0)
        return [code]

    def cuArray3DCreate_v2(self, seed: int) -> list[Any]:
        return [0, *run_arrays(self.cu, seed)]

    def cuMemMap(self, seed: int) -> list[Any]:
        return [0, *run_virtual(self.cu, seed)]

    def cuTensorMapEncodeTiled(self, seed: int) -> list[Any]:
        return [0, *run_tensors(self.cu, seed)]

    def cuStreamBatchMemOp_v2(self, seed: int) -> list[Any]:
        return [0, *run_waits(self.cu, seed)]

    def cuGraphLaunch(self, seed: int) -> list[Any]:
        return [0, *build_graph(self.cu, seed)]

    def cuStreamEndCapture(self, seed: int) -> list[Any]:
        return [0, *capture_graph(self.cu, seed)]

    def cuMemPoolCreate(self, number: int, kind: int) -> list[Any]:
        cell, properties = c_void_p(), (c_uint64 * 16)()
        # CUmemPoolProps: the type, no handles for others, then a device, number 0
        properties[0], properties[1] = kind, 1
        code = self.cu.cuMemPoolCreate(byref(cell), properties)
        self.put("pol", number, cell.value or 0 if code == 0 else 0)
        return [code]

    def cuMemPoolGetAttribute(self, pool: int, attribute: int) -> list[Any]:
        value = c_uint64(0)
        handle = c_void_p(self.find("pol", pool))
        code = self.cu.cuMemPoolGetAttribute(handle, attribute, byref(value))
        return [code, value.value if code == 0 else None]

    def cuMemPoolSetAttribute(self, pool: int, attribute: int, value: int) -> list[Any]:
        handle, given = c_void_p(self.find("pol", pool)), c_uint64(value)
        return [self.cu.cuMemPoolSetAttribute(handle, attribute, byref(given))]

    def cuLaunchKernel(self, function: int, kernel: str, shape: list[int], *rest: Any) -> list[Any]:
        handle, flow, pointers, _kept = self._prepare(function, kernel, *rest)
        return [self.cu.cuLaunchKernel(handle, *shape, flow, pointers, None)]

    def cuLaunchKernelEx(
        self,
        function: int,
        kernel: str,
        shape: list[int],
        stream: int | None,
        values: list[Any],
        cluster: list[int],
    ) -> list[Any]:
        handle, flow, pointers, _kept = self._prepare(function, kernel, stream, values)
        config = self._configure(shape, cluster)
        config.stream = flow
        return [self.cu.cuLaunchKernelEx(byref(config), handle, pointers, None)]

    def cuOccupancyMaxActiveClusters(self, *given: Any) -> list[Any]:
        return self._count_clusters("cuOccupancyMaxActiveClusters", *given)

    def cuOccupancyMaxPotentialClusterSize(self, *given: Any) -> list[Any]:
        return self._count_clusters("cuOccupancyMaxPotentialClusterSize", *given)

    def _count_clusters(
        self, name: str, function: int, shape: list[int], cluster: list[int]
    ) -> list[Any]:
        value, handle = c_int(), c_void_p(self.find("fun", function))
        code = getattr(self.cu, name)(byref(value), handle, byref(self._configure(shape, cluster)))
        return [code, value.value if code == 0 else None]

    def _configure(self, shape: list[int], cluster: list[int]) -> LaunchConfig:
        attribute = (c_uint * 18)(CLUSTER_DIMENSION, 0, *cluster)
        self.kept.append(attribute)
        where = ctypes.addressof(attribute)
        return LaunchConfig((c_uint * 7)(*shape), None, where, int(cluster != [0, 0, 0]))

    def cuStreamSetAttribute(
        self, stream: int | None, attribute: int, words: list[int]
    ) -> list[Any]:
        """And what is read then."""
        given, read = (c_int * 16)(*words), (c_int * 16)()
        flow = c_void_p(self.find("stm", stream))
        code = self.cu.cuStreamSetAttribute(flow, attribute, given)
        again = self.cu.cuStreamGetAttribute(flow, attribute, read)
        return [code, again, list(read) if again == 0 else None]

    def _prepare(
        self, function: int, kernel: str, stream: int | None, values: list[Any]
    ) -> tuple[c_void_p, c_void_p, Any, list[Any]]:
        """Function, stream and parameters of a launch, and what must stay until then."""
        cells: list[Any] = []
        for form, value in zip(KERNELS[kernel], values, strict=True):
            cells.append(self.address(value) if form == "p" else c_uint(value))
        if kernel in PADDING:
            cells.append(ctypes.create_string_buffer(b"\x07" * PADDING[kernel], PADDING[kernel]))
        pointers = (c_void_p * max(1, len(cells)))(*map(ctypes.addressof, cells))
        handle = c_void_p(self.find("fun", function))
        return handle, c_void_p(self.find("stm", stream)), pointers, cells

    def cuLaunchHostFunc(self, stream: int | None, group: str, mark: int) -> list[Any]:
        order = self.order.setdefault(group, [])
        function = HOST_FUNCTION(lambda _data: order.append(mark))
        self.kept.append(function)
        return [self.cu.cuLaunchHostFunc(c_void_p(self.find("stm", stream)), function, None)]

    def cuMemcpyDtoHAsync_v2(self, where: list[int], length: int, stream: int | None) -> list[Any]:
        buffer = ctypes.create_string_buffer(max(1, length))
        self.kept.append(buffer)
        flow = c_void_p(self.find("stm", stream))
        code = self.cu.cuMemcpyDtoHAsync_v2(buffer, self.address(where), c_size_t(length), flow)
        waited = self.cu.cuStreamSynchronize(flow)
        return [code, waited, zlib.crc32(buffer.raw) if code == waited == 0 else None]

    def cuMemcpy2D_v2(self, to_device: bool, where: list[int], shape: list[int]) -> list[Any]:
        host_pitch, device_pitch, width, height = shape
        length = max(1, min(1 << 20, host_pitch * height + width))
        host = self._fill(length, 5)
        sides = ("dst", "src") if to_device else ("src", "dst")
        fields = {
            f"{sides[0]}Type": 2, f"{sides[0]}Device": self.address(where).value,
            f"{sides[0]}Pitch": device_pitch, f"{sides[1]}Type": 1,
            f"{sides[1]}Host": ctypes.addressof(host), f"{sides[1]}Pitch": host_pitch,
        }  # fmt: skip
        copy = Copy2D(**fields, width=width, height=height)
        code = self.cu.cuMemcpy2D_v2(byref(copy))
        return [code, zlib.crc32(host.raw) if code == 0 else None]

    def cuMemGetAddressRange_v2(self, where: list[int]) -> list[Any]:
        base, size = c_uint64(), c_size_t()
        given = self.address(where)
        code = self.cu.cuMemGetAddressRange_v2(byref(base), byref(size), given)
        return [code, *((given.value - base.value, size.value) if code == 0 else ())]

    def cuPointerGetAttribute(self, attribute: int, where: list[int]) -> list[Any]:
        value = c_uint64(0)
        code = self.cu.cuPointerGetAttribute(byref(value), attribute, self.address(where))
        return [code, value.value & 0xFFFFFFFF if code == 0 else None]

    def settle(self, contexts: list[int]) -> list[Any]:
        """All work of these contexts is done."""
        codes = []
        for number in contexts:
            pushed = self.cu.cuCtxPushCurrent_v2(c_void_p(self.find("ctx", number)))
            codes += [pushed, self.cu.cuCtxSynchronize() if pushed == 0 else None]
            if pushed == 0:
                self.cu.cuCtxPopCurrent_v2(byref(c_void_p()))
        return codes


class Threads:
    """One thread for each number; in turns they run one call at a time, else all at once."""

    def __init__(self, run: Run, count: int) -> None:
        self.run, self.answers = run, dict[int, list[Any]]()
        self.queues: list[queue.Queue[Any]] = [queue.Queue() for _ in range(count)]
        self.done: queue.Queue[int] = queue.Queue()
        self.threads = [threading.Thread(target=self._serve, args=(q,)) for q in self.queues]
        for thread in self.threads:
            thread.start()

    def _serve(self, steps: queue.Queue[Any]) -> None:
        while (item := steps.get()) is not None:
            position, name, arguments = item
            self.answers[position] = self.run.step(name, arguments)
            self.done.put(position)

    def play(self, steps: list[Any], in_turns: bool) -> list[Any]:
        for position, (thread, name, arguments) in enumerate(steps):
            self.queues[thread].put((position, name, arguments))
            if in_turns:
                self.done.get()
        for steps_of in self.queues:
            steps_of.put(None)
        for thread in self.threads:
            thread.join()
        return [self.answers.get(i) for i in range(len(steps))]


def play(library: str, sequence: dict[str, Any]) -> dict[str, Any]:
    cu = ctypes.CDLL(library)
    run = Run(cu)
    begun = cu.cuInit(0)
    threads = Threads(run, sequence["threads"])
    answers = threads.play(sequence["steps"], sequence["in_turns"])
    run.settle([number for kind, number in run.objects if kind == "ctx"])
    return {"init": begun, "answers": answers, "order": run.order}


def capture(library: str, sequence: dict[str, Any]) -> dict[str, Any]:
    """What it gave, and what its kernels printed. Which stream prints first is open."""
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)
        answer = play(library, sequence)
        ctypes.CDLL(None).fflush(None)
        printed.seek(0)
        return answer | {"printed": sorted(printed.read().decode(errors="replace").splitlines())}


def main(library: str) -> None:
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            answer = json.dumps(capture(library, json.loads(line)))
            with os.fdopen(writing, "w") as out:
                out.write(answer)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as back:
            text = back.read()
        status = os.waitpid(child, 0)[1]
        print(text if status == 0 else json.dumps({"died": status}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
