"""Whole kernels, compiled by nvcc and run by the interpreter, against plain Python."""

from __future__ import annotations

import math
import random
import struct
import threading

import pytest

from tests.sim.ptx_runner import (
    ASSERT,
    BAD_LAUNCH,
    CANCELLED,
    DEADLOCK,
    ILLEGAL_ADDRESS,
    MISALIGNED,
    STACK_OVERFLOW,
    Module,
    PtxError,
    compile_ptx,
)

pytestmark = [pytest.mark.native, pytest.mark.cuda, pytest.mark.usefixtures("engine")]


# ponytail
@pytest.fixture(params=["compute_75", "compute_80", "compute_120"], scope="module")
def text(request: pytest.FixtureRequest) -> str:
    return compile_ptx("kernels.cu", request.param)


@pytest.fixture
def module(text: str) -> Module:
    return Module(text)


def f32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def test_vector_add(module: Module) -> None:
    a = [i * 0.5 for i in range(5000)]
    b = [i * 0.25 for i in range(5000)]
    pa, pb, pc = module.upload("f", a), module.upload("f", b), module.alloc(20000)
    module.run("vector_add", 20, 256, "QQQi", pa, pb, pc, 4999)
    assert module.read(pc, "f", 5000) == [*[x + y for x, y in zip(a, b, strict=True)][:4999], 0.0]


def test_matmul(module: Module) -> None:
    n, rng = 32, random.Random(1)
    a = [float(rng.randint(-9, 9)) for _ in range(n * n)]
    b = [float(rng.randint(-9, 9)) for _ in range(n * n)]
    pa, pb, pc = module.upload("f", a), module.upload("f", b), module.alloc(4 * n * n)
    module.run("matmul", (2, 2), (16, 16), "QQQi", pa, pb, pc, n)
    want = [sum(a[y * n + k] * b[k * n + x] for k in range(n)) for y in range(n) for x in range(n)]
    assert module.read(pc, "f", n * n) == want


def test_reduce(module: Module) -> None:
    values = list(range(-500, 3000))
    data, out = module.upload("i", values), module.alloc(4)
    module.run("reduce", 3, 256, "QQi", data, out, len(values))
    assert module.read(out, "i", 1) == [sum(values)]


def test_histogram(module: Module) -> None:
    values = [random.Random(2).randrange(256) ** 2 // 256 for _ in range(4000)]
    values = [(v * 7 + i) % 256 for i, v in enumerate(values)]
    data, bins = module.upload("B", values), module.alloc(1024)
    module.run("histogram", 8, 256, "QQi", data, bins, len(values))
    assert module.read(bins, "I", 256) == [values.count(v) for v in range(256)]


def test_softmax(module: Module) -> None:
    rows, n = 3, 100
    values = [f32(random.Random(3 + i).uniform(-5, 5)) for i in range(rows * n)]
    data, out = module.upload("f", values), module.alloc(4 * rows * n)
    module.run("softmax", rows, 32, "QQi", data, out, n, shared=4 * n)
    got = module.read(out, "f", rows * n)
    for r in range(rows):
        row = values[r * n : r * n + n]
        e = [math.exp(v - max(row)) for v in row]
        assert got[r * n : r * n + n] == pytest.approx([x / sum(e) for x in e], rel=2e-6)


def test_double_math(module: Module) -> None:
    values = [0.0, 1.0, -1.0, 0.1, 3.5, -20.25, 1e-5, 7.7, 100.125, -0.75]
    data, out = module.upload("d", values), module.alloc(64 * len(values))
    module.run("double_math", 1, 32, "QQi", data, out, len(values))
    got = module.read(out, "d", 8 * len(values))
    for i, v in enumerate(values):
        want = [
            math.sin(v),
            math.exp(v),
            math.pow(abs(v), 1.7),
            math.log(abs(v) + 1),
            math.cos(v * 1e6),
            math.tanh(v),
            math.copysign(abs(v) ** (1 / 3), v),
            v / 3.0,
        ]
        assert got[8 * i : 8 * i + 8] == pytest.approx(want, rel=1e-14, abs=1e-300)
        assert got[8 * i + 7] == v / 3.0


def test_float_math(module: Module) -> None:
    values = [0.0, 1.0, -1.0, 0.125, 3.5, -20.25, 7.75, 80.0]
    data, out = module.upload("f", values), module.alloc(32 * len(values))
    module.run("float_math", 1, 32, "QQi", data, out, len(values))
    got = module.read(out, "f", 8 * len(values))
    for i, v in enumerate(values):
        want = [
            math.sin(v),
            math.exp(v),
            math.pow(abs(v), f32(1.7)),
            math.log(abs(v) + 1),
            math.cos(v * 1e5),
            math.tanh(v),
            math.sqrt(abs(v)),
            math.sin(v),
        ]
        assert got[8 * i : 8 * i + 8] == pytest.approx(want, rel=4e-6, abs=1e-6)


def test_recursion(module: Module) -> None:
    out = module.alloc(64)
    module.run("recursion", 1, 16, "Q", out)
    want = [0, 1]
    while len(want) < 16:
        want.append(want[-1] + want[-2])
    assert module.read(out, "i", 16) == want


def test_function_pointers(module: Module) -> None:
    out = module.alloc(24)
    module.run("pointers", 1, 6, "Qii", out, 20, 3)
    assert module.read(out, "i", 6) == [23, 17, 60] * 2


def test_printf(module: Module) -> None:
    module.run("print", 1, 4, "i", 2)
    assert module.printed == (
        "thread 0 of 4:  0.00 text 0x123456789abc x%\nthread 1 of 4:  1.50 text 0x123456789abc x%\n"
    )


def test_switch(module: Module) -> None:
    out = module.alloc(48)
    module.run("switches", 1, 12, "Q", out)
    assert module.read(out, "i", 12) == [17, 4, -5, 48, 99, 125, 994, -8, 42, 0, 0, 0]


def test_structs_by_value(module: Module) -> None:
    out = module.alloc(48 * 2)
    data = struct.pack("<dd5i8s4x", 1.5, 2.5, 2, 30, 40, 50, 60, b"abcdefgh")
    module.run("structs", 1, 2, "sQi", data, out, 3)
    got = module.read(out, "d", 2)
    assert got == [51.5, -47.5]
    assert module.read(out + 16, "i", 5) == [2, 30, 7, 50, 60]
    assert bytes(module.read(out + 36, "B", 8)) == b"dbcdefgh"
    assert bytes(module.read(out + 48 + 36, "B", 8)) == b"aecdefgh"


def test_scan(module: Module) -> None:
    values = [(i * 37) % 11 - 4 for i in range(256)]
    data, out = module.upload("i", values), module.alloc(1024)
    module.run("scan", 1, 256, "QQ", data, out)
    assert module.read(out, "i", 256) == [sum(values[: i + 1]) for i in range(256)]


def test_bitonic_sort(module: Module) -> None:
    values = [random.Random(i).getrandbits(32) for i in range(256)]
    data = module.upload("I", values)
    module.run("bitonic", 1, 256, "Q", data)
    assert module.read(data, "I", 256) == sorted(values)


def test_divide64(module: Module) -> None:
    a = [7, -7, 2**63 - 1, -(2**63), 123456789012345, 5]
    b = [2, 2, -3, 7, -1000003, -(2**40)]
    pa, pb, out = module.upload("q", a), module.upload("q", b), module.alloc(32 * len(a))
    module.run("divide64", 1, 32, "QQQi", pa, pb, out, len(a))
    got = module.read(out, "q", 4 * len(a))
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        unsigned = (x % 2**64) // (y % 2**64)
        unsigned -= 2**64 if unsigned >= 2**63 else 0
        assert got[4 * i : 4 * i + 4] == [q, x - q * y, unsigned, x * y >> 64]


def words128(values: list[int]) -> list[int]:
    return [v >> s & (2**64 - 1) for v in values for s in (0, 64)]


def test_divide128(module: Module) -> None:
    rng, whole = random.Random(5), 2**128
    pairs = [
        (rng.getrandbits(rng.randint(1, 128)), rng.getrandbits(rng.randint(1, 128)) + 1)
        for _ in range(256)
    ]
    pairs = [(a, b % whole or 1) for a, b in pairs]
    a, b = (module.upload("Q", words128(list(side))) for side in zip(*pairs, strict=True))
    out = module.alloc(64 * len(pairs))
    module.run("divide128", 1, len(pairs), "QQQ", a, b, out)
    got = module.read(out, "Q", 8 * len(pairs))
    for i, (x, y) in enumerate(pairs):
        sx, sy = (v - whole if v >> 127 else v for v in (x, y))
        q = abs(sx) // abs(sy) * (1 if (sx < 0) == (sy < 0) else -1)
        want = [x // y, x % y, q % whole, (sx - q * sy) % whole]
        assert got[8 * i : 8 * i + 8] == words128(want), (x, y)


def test_compaction(module: Module) -> None:
    values = [(i * i) % 31 for i in range(128)]
    data, out, count = module.upload("i", values), module.alloc(512), module.alloc(4)
    module.run("compact", 1, 128, "QQQ", data, out, count)
    keep = [v for v in values if v % 3 == 0]
    assert module.read(count, "i", 1) == [len(keep)]
    assert sorted(module.read(out, "i", len(keep))) == sorted(keep)


def test_activemask(module: Module) -> None:
    count, masks = module.alloc(4), module.alloc(4 * 40)
    module.run("aggregated", 1, 40, "QQ", count, masks)
    got = module.read(masks, "I", 40)
    want = [i for i in range(40) if i % 3]
    assert module.read(count, "i", 1) == [len(want)]
    for i in want:
        assert got[i] == sum(1 << k % 32 for k in want if k // 32 == i // 32)


def test_constants_and_globals(module: Module) -> None:
    out = module.alloc(32)
    module.run("constants", 1, 8, "Q", out)
    assert module.read(out, "i", 8) == [5, -10, 15, -20, 25, -30, 35, -40]
    address, size = module.variable("coefficients")
    assert size == 32
    module.write(address, struct.pack("<i", 100))
    module.run("constants", 1, 8, "Q", out)
    assert module.read(out, "i", 1) == [500]


def test_local_arrays(module: Module) -> None:
    out, n = module.alloc(32), 50
    module.run("local_arrays", 1, 8, "Qi", out, n)
    want = []
    for t in range(8):
        a = [i * t for i in range(64)]
        for i in range(n):
            k = (a[i] + i) & 63
            a[k] ^= a[63 - i]
        want.append(a[n & 63])
    assert module.read(out, "i", 8) == want


def test_spin_lock_within_a_warp(module: Module) -> None:
    mutex, value = module.alloc(4), module.alloc(4)
    module.run("lock", 2, 64, "QQ", mutex, value)
    assert module.read(value, "i", 1) == [128]


def exchanged(values: list[int]) -> list[int]:
    total = sum(values)
    counts = [lane % 5 + (total % 7 if lane % 3 else 0) for lane in range(32)]
    return [counts[(lane + 9) % 32] * total for lane in range(32)]


def test_lanes_run_in_step(module: Module) -> None:
    values = [(i * 37) % 19 for i in range(32)]
    for name in ("in_step", "synchronised"):
        data, out = module.upload("i", values), module.alloc(128)
        module.run(name, 1, 32, "QQ", data, out)
        assert module.read(out, "i", 32) == exchanged(values)


def test_random_order_finds_what_is_not_synchronised(module: Module) -> None:
    values, wrong = [(i * 37) % 19 for i in range(32)], []
    for seed in range(1, 21):
        module.schedule(seed)
        for name in ("in_step", "synchronised"):
            data, out = module.upload("i", values), module.alloc(128)
            module.run(name, 1, 32, "QQ", data, out)
            if module.read(out, "i", 32) != exchanged(values):
                wrong.append(name)
    assert set(wrong) == {"in_step"}
    assert len(wrong) > 10


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_synchronised_kernels_in_random_order(module: Module, seed: int) -> None:
    module.schedule(seed)
    for test in (test_reduce, test_scan, test_bitonic_sort, test_compaction, test_matmul):
        test(module)
    test_spin_lock_within_a_warp(module)
    test_heap(module)
    test_barrier_votes(module, 17, 0, 1)
    test_deadlock_is_found(module)
    test_recursion(module)


def test_heap(module: Module) -> None:
    keep, out = module.alloc(64), module.alloc(32)
    module.run("heap", 1, 8, "QQ", keep, out)
    assert module.read(out, "i", 8) == [28 * ((t + 1) % 8) for t in range(8)]


@pytest.mark.parametrize(("positive", "all_", "any_"), [(0, 0, 0), (17, 0, 1), (70, 1, 1)])
def test_barrier_votes(module: Module, positive: int, all_: int, any_: int) -> None:
    data = module.upload("i", [1] * positive + [0] * (70 - positive))
    out = module.alloc(280)
    module.run("barrier_votes", 1, 70, "QQ", data, out)
    assert module.read(out, "i", 70) == [positive * 4 + all_ * 2 + any_] * 70


def test_special_registers(module: Module) -> None:
    out = module.alloc(16 * 8 * 72)
    module.run("special", (2, 2, 2), (4, 3, 6), "Q", out)
    got = module.read(out, "I", 4 * 8 * 72)
    for i in range(8 * 72):
        lane = i % 72 % 32
        assert got[4 * i : 4 * i + 4] == [lane, i % 72 // 32, (1 << lane) - 1, 8]


def status_of(call: object, *arguments: object, **options: object) -> tuple[int, str]:
    with pytest.raises(PtxError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    return caught.value.status, str(caught.value)


def test_illegal_address_names_the_thread(module: Module) -> None:
    data = module.alloc(400)
    status, message = status_of(module.run, "out_of_bounds", 1, 1, "Qi", data, 100)
    assert status == ILLEGAL_ADDRESS
    assert f"0x{data + 400:x}" in message
    assert "kernel out_of_bounds, block (0,0,0), thread (0,0,0)" in message


def test_misaligned(module: Module) -> None:
    status, _ = status_of(module.run, "out_of_bounds", 1, 1, "Qi", module.alloc(400) + 2, 0)
    assert status == MISALIGNED


def test_null_pointer(module: Module) -> None:
    assert status_of(module.run, "out_of_bounds", 1, 1, "Qi", 0, 0)[0] == ILLEGAL_ADDRESS


def test_deadlock_is_found(module: Module) -> None:
    status, _ = status_of(module.run, "half_deadlock", 1, 32, "Q", module.alloc(4))
    assert status == DEADLOCK


def test_cancel(module: Module) -> None:
    timer = threading.Timer(0.2, module.cancel)
    timer.start()
    status, _ = status_of(module.run, "endless", 4, 1024, "Q", module.alloc(4))
    timer.join()
    assert status == CANCELLED


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [(0, 1, 0), (1, 1025, 0), (1, (32, 32, 2), 0), ((1, 65536), 1, 0), (1, 1, 1 << 20)],
)
def test_bad_launches(module: Module, grid: object, block: object, shared: int) -> None:
    status, _ = status_of(module.run, "recursion", grid, block, "Q", 0, shared=shared)
    assert status == BAD_LAUNCH


def test_kernel_info(module: Module) -> None:
    info = module.info("matmul")
    assert info.static_shared_bytes == 4 * (16 * 16 + 16 * 17)
    assert info.n_params == 4
    assert [tuple(info.params[i]) for i in range(4)] == [
        (0, 8, 8),
        (8, 8, 8),
        (16, 8, 8),
        (24, 4, 4),
    ]
    assert info.param_bytes == 28
    assert module.info("softmax").static_shared_bytes == 0


def test_registers_are_limited_by_kernel_and_by_unit() -> None:
    """``.maxnreg``, and what the driver writes behind a text whose compiler was given a limit."""
    code = "".join(f"add.u32 %r{n + 1}, %r{n}, {n};" for n in range(30))
    unit = ".version 8.0\n.target sm_80\n.address_size 64\n"

    def kernel(name: str, tuning: str = "") -> str:
        return f".visible .entry {name}() {tuning} {{ .reg .b32 %r<40>; {code} ret; }}\n"

    text = (
        unit + kernel("first") + kernel("least", ".maxnreg 20")
        + '.pragma "max_registers 24";\n'
        + unit + kernel("other") + '.pragma "max_registers many";\n.pragma "nounroll";\n'
    )  # fmt: skip
    module = Module(text)
    counts = {name: module.info(name).registers for name in ("first", "least", "other")}
    assert (counts["first"], counts["least"]) == (24, 20)
    assert counts["other"] > 30


def test_assertions_and_deep_recursion() -> None:
    module = Module(compile_ptx("faults.cu"))
    status, message = status_of(module.run, "asserts", 1, 4, "i", 2)
    assert status == ASSERT
    assert "threadIdx.x != n" in message
    assert "thread (2,0,0)" in message
    assert status_of(module.run, "bottomless", 1, 1, "Qi", module.alloc(4), 1)[0] == STACK_OVERFLOW


def test_half_precision() -> None:
    module = Module(compile_ptx("halves.cu"))
    values = [0.5, 1.25, -3.0, 1000.5, 65504.0, 1e-6, -0.1, 2.0]
    data, out = module.upload("f", values), module.alloc(16 * len(values))
    module.run("halves", 1, len(values), "QQ", data, out)
    got = module.read(out, "f", 4 * len(values))

    def half(v: float) -> float:
        try:
            return struct.unpack("<e", struct.pack("<e", v))[0]
        except OverflowError:
            return math.copysign(math.inf, v)

    for i, v in enumerate(values):
        h = half(v)
        assert got[4 * i] == h
        assert got[4 * i + 1] == half(half(h * h) + h) or got[4 * i + 1] == half(h * h + h)
        assert got[4 * i + 2] == half(h + 1)
        bits = struct.unpack("<I", struct.pack("<f", v))[0]
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        assert got[4 * i + 3] == struct.unpack("<f", struct.pack("<I", bits))[0]
