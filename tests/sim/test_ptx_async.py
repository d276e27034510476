"""mbarrier, asynchronous copies, cache hints, and the stack."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.ptx_runner import SYNTAX, TRAP, UNSUPPORTED, Module, PtxError, compile_ptx

pytestmark = pytest.mark.native

HEADER = ".version 8.6\n.target sm_90\n.address_size 64\n"


def module(code: str) -> Module:
    """k(in, out): %r0 is the thread, %r1 shared memory, %rd0 and %rd1 the thread's 8 bytes of in and out."""
    return Module(
        f"{HEADER}.shared .align 16 .b8 s[4096]; .shared .align 8 .b64 bar;\n"
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
        ".reg .b64 %rd<12>; .reg .b32 %r<12>; .reg .b16 %h<9>; .reg .pred %p<9>;\n"
        "ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, s;\n"
        "mad.wide.u32 %rd0, %r0, 8, %rd0; mad.wide.u32 %rd1, %r0, 8, %rd1;\n"
        f"{code}\nret;\n}}\n"
    )


def run(code: str, threads: int = 1, data: list[int] | None = None, seed: int = 0) -> list[int]:
    m = module(code)
    source, out = m.upload("Q", data or [0] * threads), m.alloc(8 * threads)
    m.schedule(seed)
    m.run("k", 1, threads, "QQ", source, out)
    return [int(v) for v in m.read(out, "Q", threads)]


INIT = "setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [bar], {count}; bar.sync 0;"


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize(
    "wait",
    [
        "W{n}: mbarrier.test_wait.shared.b64 %p1, [bar], %rd{state}; @!%p1 bra W{n};",
        "W{n}: mbarrier.try_wait.acquire.cta.shared::cta.b64 %p1, [bar], %rd{state}, 100; @!%p1 bra W{n};",
        "W{n}: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], {parity}; @!%p1 bra W{n};",
    ],
)
def test_phases_separate_what_threads_write_from_what_others_read(wait: str, seed: int) -> None:
    code = INIT.format(count=96)
    # three rounds: each thread writes its place and reads that of a thread of another warp
    code += "mad.lo.u32 %r2, %r0, 4, %r1; sub.u32 %r3, 95, %r0; mad.lo.u32 %r3, %r3, 4, %r1; mov.u64 %rd5, 0;"
    for n in range(3):
        code += f"mul.lo.u32 %r4, %r0, {10**n}; st.shared.u32 [%r2], %r4;"
        code += "mbarrier.arrive.release.cta.shared::cta.b64 %rd6, [bar];"
        code += wait.format(n=2 * n, state=6, parity=0)
        code += "ld.shared.u32 %r5, [%r3]; cvt.u64.u32 %rd7, %r5; add.u64 %rd5, %rd5, %rd7;"
        code += "mbarrier.arrive.shared.b64 %rd6, [bar], 1;"
        code += wait.format(n=2 * n + 1, state=6, parity=1)
    code += "st.global.u64 [%rd1], %rd5;"
    assert run(code, 96, seed=seed) == [(95 - n) * 111 for n in range(96)]


def test_counts_of_an_mbarrier() -> None:
    code = (
        INIT.format(count=5) + "mbarrier.arrive.shared.b64 %rd2, [bar], 2;"
        "mbarrier.arrive.noComplete.shared.b64 %rd3, [bar], 1; mbarrier.arrive_drop.shared.b64 %rd4, [bar];"
        "mbarrier.test_wait.shared.b64 %p1, [bar], %rd4; selp.u32 %r2, 100, 0, %p1;"
        # the last one of the phase; the next awaits four
        "mbarrier.arrive.shared.b64 %rd5, [bar]; mbarrier.test_wait.shared.b64 %p1, [bar], %rd5;"
        " selp.u32 %r3, 1000, 0, %p1;"
        "mbarrier.arrive.shared.b64 %rd6, [bar], 4; mbarrier.test_wait.shared.b64 %p2, [bar], %rd6;"
        " selp.u32 %r4, 10000, 0, %p2;"
        "mbarrier.pending_count.b64 %r5, %rd3; mbarrier.pending_count.b64 %r6, %rd6; mad.lo.u32 %r5, %r5, 10, %r6;"
        "add.u32 %r5, %r5, %r2; add.u32 %r5, %r5, %r3; add.u32 %r5, %r5, %r4; mbarrier.inval.shared.b64 [bar];"
        "cvt.u64.u32 %rd7, %r5; st.global.u64 [%rd1], %rd7;"
    )
    assert run(code) == [34 + 1000 + 10000]


def test_bytes_of_bulk_copies_end_a_phase() -> None:
    code = (
        INIT.format(count=1) + "cvta.to.global.u64 %rd2, %rd0;"
        "mbarrier.arrive.expect_tx.shared::cta.b64 %rd3, [bar], 160;"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s+64], [%rd2], 96, [bar];"
        "mbarrier.try_wait.shared.b64 %p1, [bar], %rd3; selp.u64 %rd4, 7, 0, %p1;"
        "mov.u32 %r2, 48; cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [s+160], [%rd2+96], %r2, [bar], %rd4;"
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16;"
        "W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W;"
        "fence.proxy.async.shared::cta; add.u64 %rd5, %rd4, 0; cvta.to.global.u64 %rd6, %rd1;"
        "cp.async.bulk.global.shared::cta.bulk_group [%rd6], [s+64], 144; cp.async.bulk.commit_group;"
        " cp.async.bulk.wait_group.read 0;"
        "st.global.u64 [%rd6+144], %rd5;"
    )
    data = [n * 0x0101010101010101 for n in range(18)]
    m = module(code)
    source, out = m.upload("Q", data), m.alloc(160)
    m.run("k", 1, 1, "QQ", source, out)
    assert m.read(out, "Q", 19) == [*data, 0]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("mbarrier.init.shared.b64 [bar], 0;", "an mbarrier for 0 arrivals"),
        ("mbarrier.init.shared.b64 [bar], 536870912;", "an mbarrier for 536870912 arrivals"),
        ("mbarrier.arrive.shared.b64 _, [bar];", "no mbarrier at"),
        ("mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 _, [bar], 3;"
         "", "3 arrivals at an mbarrier that awaits 2"),
        ("mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.noComplete.shared.b64 _, [bar], 2;", "2 arrivals"),
        ("mbarrier.init.shared.b64 [bar], 2; mbarrier.inval.shared.b64 [bar];"
         " mbarrier.arrive.shared.b64 _, [bar];", "no mbarrier"),
        ("mbarrier.init.shared.b64 [bar], 2; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1048576;"
         "", "awaits 1048576 bytes"),
        ("stackrestore.u64 99;", "stackrestore of 0x63"),
    ],
)  # fmt: skip
def test_misuse_stops_the_kernel(code: str, message: str) -> None:
    with pytest.raises(PtxError, match=message) as caught:
        run(code)
    assert caught.value.status == TRAP


def test_a_phase_that_nobody_ends_is_not_passed() -> None:
    code = INIT.format(count=2) + "mbarrier.arrive.shared.b64 %rd2, [bar]; mov.u32 %r2, 0;"
    code += "L: mbarrier.test_wait.shared.b64 %p1, [bar], %rd2; @%p1 trap; add.u32 %r2, %r2, 1;"
    code += "setp.lt.u32 %p2, %r2, 50; @%p2 bra L;"
    code += "mov.u64 %rd3, 5; st.global.u64 [%rd1], %rd3;"
    assert run(code) == [5]


def test_asynchronous_copies() -> None:
    code = (
        "cvta.to.global.u64 %rd2, %rd0; mov.u64 %rd9, -1; st.shared.u64 [s], %rd9;"
        " st.shared.u64 [s+8], %rd9; st.shared.u64 [s+16], %rd9;"
        "createpolicy.fractional.L2::evict_first.b64 %rd8, 0f3F800000;"
        "cp.async.cg.shared.global.L2::cache_hint.L2::128B [s], [%rd2], 16, 5, %rd8;"
        "setp.eq.u32 %p1, %r0, 0; cp.async.ca.shared::cta.global [s+16], [%rd2], 8, %p1;"
        "cp.async.ca.shared.global [s+24], [%rd2], 8, !%p1; cp.async.commit_group; cp.async.wait_group 0;"
        " cp.async.wait_all;"
        "ld.shared.u64 %rd3, [s]; ld.shared.u64 %rd4, [s+8]; ld.shared.u64 %rd5, [s+16];"
        " ld.shared.u64 %rd6, [s+24];"
        "st.global.v2.u64 [%rd1], {%rd3, %rd4}; st.global.v2.u64 [%rd1+16], {%rd5, %rd6};"
    )
    m = module(code)
    source, out = m.upload("Q", [0x1122334455667788, 99]), m.alloc(32)
    m.run("k", 1, 1, "QQ", source, out)
    assert m.read(out, "Q", 4) == [0x4455667788, 0, 0, 0x1122334455667788]


def test_copies_arrive_at_an_mbarrier() -> None:
    code = (
        INIT.format(count=2)
        + "cp.async.mbarrier.arrive.shared.b64 [bar]; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];"
        "mbarrier.arrive.shared.b64 %rd2, [bar]; mbarrier.pending_count.b64 %r2, %rd2;"
        " mbarrier.test_wait.shared.b64 %p1, [bar], %rd2;"
        "@%p1 add.u32 %r2, %r2, 10; cvt.u64.u32 %rd3, %r2; st.global.u64 [%rd1], %rd3;"
    )
    assert run(code) == [11]


def test_hints_change_nothing() -> None:
    code = (
        "cvta.to.global.u64 %rd2, %rd0;"
        " createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd8, [%rd2], 64, 128;"
        "createpolicy.fractional.L2::evict_last.L2::evict_first.b64 %rd8, 0.5; createpolicy.cvt.L2.b64 %rd9, %rd8;"
        "prefetch.global.L2::evict_last [%rd2]; applypriority.global.L2::evict_normal [%rd2], 128;"
        " griddepcontrol.wait;"
        "ld.global.nc.L1::no_allocate.L2::cache_hint.v2.b64 {%rd3, %rd4}, [%rd2], %rd8;"
        "ld.global.L1::evict_last.L2::cache_hint.L2::256B.b64 {%rd5}, [%rd2 + 16], %rd9;"
        "add.u64 %rd3, %rd3, %rd4; add.u64 %rd3, %rd3, %rd5;"
        " st.global.L1::evict_first.L2::cache_hint.b64 [ %rd1 + 0 ], { %rd3 }, %rd8;"
        "atom.global.add.L2::cache_hint.u64 %rd6, [%rd1], 1, %rd8;"
        " red.relaxed.gpu.global.add.L2::cache_hint.u64 [%rd1], %rd6, %rd8;"
        "fence.proxy.alias; fence.mbarrier_init.release.cluster; fence.acq_rel.cluster;"
        " griddepcontrol.launch_dependents;"
        "setmaxnreg.dec.sync.aligned.u32 40; pmevent 3; ld.volatile.shared.b32 {%r2}, [s];"
        " st.shared.v2.b32 [s], {%r2, %r2};"
    )
    m = module(code)
    source, out = m.upload("Q", [1, 10, 100]), m.alloc(8)
    m.run("k", 1, 1, "QQ", source, out)
    assert m.read(out, "Q", 1) == [2 * 111 + 1]


def test_the_stack_grows_and_is_given_back() -> None:
    code = (
        ".local .align 4 .b32 mine; mov.u32 %r2, 7; st.local.u32 [mine], %r2; stacksave.u64 %rd2;"
        "alloca.u64 %rd3, 12; alloca.u64 %rd4, 24, 64; mov.u32 %r3, 5; st.local.u32 [%rd3+8], %r3;"
        " st.local.u32 [%rd4+20], %r3;"
        "stackrestore.u64 %rd2; stacksave.u64 %rd5; alloca.u64 %rd6, 12;"
        # the same memory again; an aligned one lies behind it
        "ld.local.u32 %r4, [%rd6+8]; ld.local.u32 %r5, [mine]; mad.lo.u32 %r4, %r4, 10, %r5;"
        "sub.u64 %rd5, %rd5, %rd2; sub.u64 %rd6, %rd6, %rd3; and.b64 %rd4, %rd4, 63;"
        " add.u64 %rd4, %rd4, %rd5; add.u64 %rd4, %rd4, %rd6;"
        "cvt.u64.u32 %rd7, %r4; mad.lo.u64 %rd4, %rd4, 1000, %rd7; st.global.u64 [%rd1], %rd4;"
    )
    assert run(code) == [57]
    with pytest.raises(PtxError, match="illegal address 0x18: write of 4 bytes in local memory"):
        run(
            "stacksave.u64 %rd2; alloca.u64 %rd3, 20; stackrestore.u64 %rd2; alloca.u64 %rd3, 24;"
            " st.local.u32 [%rd3+24], %r0;"
        )
    with pytest.raises(PtxError, match="no more local memory"):
        run("mov.u64 %rd2, -8; alloca.u64 %rd3, %rd2;")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (UNSUPPORTED, "mbarrier.init.global.b64 [%rd0], 1;"),
        (UNSUPPORTED, "mbarrier.arrive.expect_tx.noComplete.shared.b64 %rd0, [%r0], 1;"),
        (UNSUPPORTED, "mbarrier.frobnicate.shared.b64 [%r0], 1;"),
        (UNSUPPORTED, "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.multicast::cluster"
         " [%r0], [%rd0], 16, [%r1], %h0;"),
        (UNSUPPORTED, "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
         " [%r0], [%rd0, {%r1}], [%r2];"),
        (UNSUPPORTED, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [%r0], 16;"),
        (UNSUPPORTED, "createpolicy.fractional.b64 %rd0;"),
        (UNSUPPORTED, "fence.proxy.frobnicate;"),
        (UNSUPPORTED, "griddepcontrol.frobnicate;"),
        (UNSUPPORTED, "alloca.u16 %h0, 4;"),
        (SYNTAX, "mbarrier.init.shared.b64 [%r0];"),
        (SYNTAX, "mbarrier.test_wait.shared.b64 %r1, [%r0], %rd0;"),
        (SYNTAX, "mbarrier.test_wait.parity.shared.b64 %p0, [%r0], %rd0;"),
        (SYNTAX, "mbarrier.try_wait.shared.b64 %p0, %r0, %rd0;"),
        (SYNTAX, "ld.global.L2::cache_hint.u32 %r0, [%rd0];"),
        (SYNTAX, "ld.global.L2::cache_hint.u32 %r0, [%rd0], %r1;"),
        (SYNTAX, "ld.global.u32 {%r0, %r1}, [%rd0];"),
        (SYNTAX, "ld.global.u32 %r0, [%rd0], %rd1;"),
        (SYNTAX, "createpolicy.range.L2::evict_last.b64 %rd0, [%rd1], 4;"),
        (SYNTAX, "alloca.u64 %rd0, 4, 3;"),
        (SYNTAX, "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r0], [%rd0], 16;"),
    ],
)  # fmt: skip
def test_other_forms_are_refused(status: int, code: str) -> None:
    registers = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %h<9>; .reg .pred %p<9>;"
    with pytest.raises(PtxError, match=r"line 5: ") as caught:
        Module(f"{HEADER}.visible .entry k() {{{registers}\n{code}\nret; }}\n")
    assert caught.value.status == status


@pytest.mark.cuda
@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("arch", ["compute_80", "compute_90"])
@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("pipeline", lambda data, n: data[255 - n] + data[n]),
        ("barrier", lambda data, n: 3 * data[255 - n] + 3),
        ("primitives", lambda data, n: data[255 - n] + 1000 * (n % 3)),
        ("groups", lambda data, n: sum(data[n // 32 * 32 :][:32]) + max(data[n // 32 * 32 :][:32])),
        ("stack", lambda data, n: sum(i * data[i] for i in range(n % 40 + 1))),
    ],
)
def test_programs_as_nvcc_compiles_them(
    name: str, want: Callable[[list[int], int], int], arch: str, seed: int
) -> None:
    data = [n * n % 1009 for n in range(256)]
    m = Module(compile_ptx("async.cu", arch))
    source, out = m.upload("i", data), m.alloc(1024)
    m.schedule(seed)
    m.run(name, 1, 256, "QQ", out, source)
    assert m.read(out, "i", 256) == [want(data, n) for n in range(256)]
