"""Clusters: blocks that reach each other's shared memory, and wait for each other."""

from __future__ import annotations

import pytest

from tests.sim.ptx_runner import (
    BAD_LAUNCH,
    CHECK_MEMORY,
    CHECK_RACE,
    CHECK_SYNC,
    DEADLOCK,
    ILLEGAL_ADDRESS,
    TRAP,
    Module,
    PtxError,
    compile_ptx,
)

pytestmark = pytest.mark.native

HEADER = ".version 8.6\n.target sm_90\n.address_size 64\n"
#: how threads take turns: in step, lane by lane, at random
SCHEDULES = ((0, False), (0, True), (5, False))


def module(code: str, tuning: str = "") -> Module:
    """k(out): %r0 is the thread, %r1 the block, %r2 its rank, %r3 shared memory, %rd1 the thread's 8 bytes of out."""
    return Module(
        f"{HEADER}.shared .align 16 .b8 s[4096]; .shared .align 8 .b64 bar;\n"
        f".visible .entry k(.param .u64 out) {tuning}\n{{\n"
        ".reg .b64 %rd<12>; .reg .b32 %r<16>; .reg .b16 %h<9>; .reg .pred %p<9>;\n"
        "ld.param.u64 %rd1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %cluster_ctarank;\n"
        "mov.u32 %r3, s; mov.u32 %r4, %ntid.x; mad.lo.u32 %r4, %r1, %r4, %r0; mad.wide.u32 %rd1, %r4, 8, %rd1;\n"
        f"{code}\nret;\n}}\n"
    )


def run(
    code: str,
    blocks: int,
    threads: int,
    cluster: int,
    schedule: tuple[int, bool] = SCHEDULES[0],
    tuning: str = "",
    checks: int = 0,
) -> list[int]:
    m = module(code, tuning)
    out = m.alloc(8 * blocks * threads)
    m.schedule(schedule[0])
    m.by_lane(schedule[1])
    m.check(checks)
    if cluster:
        m.cluster(cluster)
    m.run("k", blocks, threads, "Q", out)
    return [int(v) for v in m.read(out, "Q", blocks * threads)]


SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
RESULT = "cvt.u64.u32 %rd2, %r5; st.global.u64 [%rd1], %rd2;"
#: each thread writes its number, and reads that of the same thread in the next block of the cluster
EXCHANGE = (
    "mad.lo.u32 %r6, %r0, 4, %r3; mad.lo.u32 %r7, %r1, 1000, %r0; st.shared.u32 [%r6], %r7;"
    f"{SYNC} add.u32 %r8, %r2, 1; mov.u32 %r9, %cluster_nctarank; rem.u32 %r8, %r8, %r9;"
    "mapa.shared::cluster.u32 %r10, %r6, %r8; {load}" + SYNC + RESULT
)
LOADS = (
    "ld.shared::cluster.u32 %r5, [%r10];",
    "cvt.u64.u32 %rd3, %r6; cvta.shared.u64 %rd3, %rd3; mapa.u64 %rd4, %rd3, %r8; ld.u32 %r5, [%rd4];",
    "atom.shared::cluster.add.u32 %r5, [%r10], 0;",
    "ld.shared::cluster.v2.u32 {{%r5, %r11}}, [%r10];",
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("load", LOADS)
def test_blocks_read_what_the_next_block_wrote(load: str, schedule: tuple[int, bool]) -> None:
    threads = 1 if "v2" in load else 48
    found = run(
        EXCHANGE.format(load=load.replace("{{", "{").replace("}}", "}")), 8, threads, 4, schedule
    )
    want = [b // 4 * 4 + (b + 1) % 4 for b in range(8)]
    assert found == [1000 * block + n for block in want for n in range(threads)]


@pytest.mark.parametrize(
    "tuning", [".reqnctapercluster 2", ".explicitcluster .reqnctapercluster 2, 1, 1"]
)
def test_a_kernel_may_require_its_clusters(tuning: str) -> None:
    found = run(EXCHANGE.format(load=LOADS[0]), 4, 1, 0, tuning=tuning)
    assert found == [1000, 0, 3000, 2000]
    info = module("", tuning).info("k")
    assert (list(info.cluster), info.explicit_cluster) == ([2, 1, 1], "explicit" in tuning)
    with pytest.raises(PtxError, match="another cluster size") as caught:
        run("", 4, 1, 4, tuning=tuning)
    assert caught.value.status == BAD_LAUNCH


def test_special_registers() -> None:
    """A grid of 4 by 6 blocks, in clusters of 2 by 3."""
    names = ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
    code = "mov.u64 %rd2, 0;"
    for name in names:
        for dim in "xyz":
            code += f"mov.u32 %r5, %{name}.{dim}; cvt.u64.u32 %rd3, %r5; mad.lo.u64 %rd2, %rd2, 10, %rd3;"
    for word in (
        "mov.u32 %r5, %cluster_ctarank;",
        "mov.u32 %r5, %cluster_nctarank;",
        "selp.u32 %r5, 1, 0, %p1;",
    ):
        code += f"{word} cvt.u64.u32 %rd3, %r5; mad.lo.u64 %rd2, %rd2, 10, %rd3;"
    m = module(
        "mov.pred %p1, %is_explicit_cluster; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %nctaid.x;"
        "mad.lo.u32 %r5, %r5, %r6, %r1;"
        f"ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r5, 8, %rd1; {code} st.global.u64 [%rd1], %rd2;"
    )
    out = m.alloc(8 * 24)
    for cluster in ((2, 3, 1), ()):
        m.cluster(*cluster)
        m.run("k", (4, 6), 1, "Q", out)
        x, y = cluster[:2] or (1, 1)
        want = [
            f"{i // x}{j // y}0{4 // x}{6 // y}1{i % x}{j % y}0{x}{y}1{i % x + j % y * x}{x * y}{len(cluster) // 3}"
            for j in range(6)
            for i in range(4)
        ]
        assert m.read(out, "Q", 24) == [int(text) for text in want]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_mbarrier_of_another_block_ends_its_phase_with_the_bytes_that_were_sent(
    schedule: tuple[int, bool],
) -> None:
    """Every block sends 4 bytes and 8 to the first one, which waits for all of them; threads arrive there, too."""
    code = (
        "setp.eq.u32 %p0, %r2, 0; @!%p0 bra INIT; mbarrier.init.shared.b64 [bar], 5;"
        "mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 48; st.shared.u32 [s+64], 0;"
        f"INIT: fence.mbarrier_init.release.cluster; {SYNC}"
        "mov.u32 %r5, 0; mapa.shared::cluster.u32 %r6, %r3, %r5; mov.u32 %r7, bar;"
        "mapa.shared::cluster.u32 %r7, %r7, %r5;"
        "mad.lo.u32 %r8, %r2, 8, %r6; add.u32 %r9, %r1, 7;"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%r8], {%r9, %r9}, [%r7];"
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r6+64], %r9, [%r7];"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];"
        "@!%p0 bra END; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;"
        "ld.shared.u32 %r5, [s+64]; ld.shared.u32 %r10, [s+20]; mad.lo.u32 %r5, %r5, 100, %r10; END:"
        f"{SYNC} {RESULT}"
    )
    assert run(code, 4, 1, 4, schedule) == [100 * (7 + 8 + 9 + 10) + 9, 0, 0, 0]


@pytest.mark.parametrize("between", [False, True])
def test_bulk_copies_go_to_other_blocks(between: bool) -> None:
    """From a block's shared memory to the next one's; or from global memory to all blocks of a mask."""
    copy = (
        "xor.b32 %r5, %r2, 1; mapa.shared::cluster.u32 %r6, %r3, %r5; mov.u32 %r7, bar;"
        "mapa.shared::cluster.u32 %r7, %r7, %r5;"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r6+16], [%r3], 16, [%r7];"
        if between
        else "setp.ne.u32 %p2, %r2, 0; @%p2 bra W; ld.param.u64 %rd6, [out]; mov.u16 %h0, 3; mov.u32 %r7, bar;"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%r3+16], [%rd6], 16, [%r7], %h0;"
    )
    code = (
        "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 16;"
        "add.u32 %r8, %r1, 50; st.shared.u32 [s], %r8; cvt.u64.u32 %rd7, %r8;"
        f"st.global.u64 [%rd1], %rd7; {SYNC} {copy}"
        "W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W; ld.shared.u32 %r5, [s+16];"
        f"{SYNC} {RESULT}"
    )
    assert run(code, 2, 1, 2) == ([51, 50] if between else [50, 50])


def test_where_an_address_lies() -> None:
    code = (
        "mov.u32 %r5, 1; mapa.shared::cluster.u32 %r6, %r3, %r5; getctarank.shared::cluster.u32 %r7, %r6;"
        "getctarank.shared::cluster.u32 %r8, %r3; cvt.u64.u32 %rd3, %r6; cvta.shared::cluster.u64 %rd3, %rd3;"
        "isspacep.shared::cta %p1, %rd3; isspacep.shared::cluster %p2, %rd3; getctarank.u64 %r9, %rd3;"
        "mad.lo.u32 %r5, %r7, 10, %r8; mad.lo.u32 %r5, %r5, 10, %r9;"
        "selp.u32 %r10, 100, 0, %p1; selp.u32 %r11, 1000, 0, %p2;"
        "mad.lo.u32 %r5, %r5, 10, %r10; add.u32 %r5, %r5, %r11;" + RESULT
    )
    ranks = [1000 + 10 * (100 + 10 * own + 1) + 100 * own for own in (0, 1)]
    assert run(code, 2, 1, 2) == ranks


#: the address of %r3 in the block of rank %r5
MAP = "mapa.shared::cluster.u32 %r5, %r3, %r5; ld.shared::cluster.u32 %r6, "


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (ILLEGAL_ADDRESS, "cluster's shared memory", f"mov.u32 %r5, 2; {MAP}[%r5];"),
        (ILLEGAL_ADDRESS, "cluster's shared memory", f"mov.u32 %r5, 1; {MAP}[%r5+8192];"),
        (
            ILLEGAL_ADDRESS,
            "has ended",
            f"setp.eq.u32 %p1, %r2, 0; @%p1 exit; mov.u32 %r5, 0; {MAP}[%r5];",
        ),
        (TRAP, "without a wait", "barrier.cluster.arrive; barrier.cluster.arrive;"),
        (TRAP, "without an arrival", "barrier.cluster.wait;"),
        (
            DEADLOCK,
            "of the cluster",
            "setp.eq.u32 %p1, %r0, 0; @%p1 bra C; bar.sync 0;"
            "C: barrier.cluster.arrive; barrier.cluster.wait;",
        ),
    ],
)
def test_mistakes_end_the_kernel_with_a_sentence(status: int, text: str, code: str) -> None:
    with pytest.raises(PtxError, match=text) as caught:
        run(code, 2, 2, 2)
    assert caught.value.status == status


@pytest.mark.parametrize(("blocks", "cluster"), [(3, 2), (34, 17)])
def test_grids_are_made_of_whole_clusters_of_a_size_that_there_is(
    blocks: int, cluster: int
) -> None:
    with pytest.raises(PtxError, match=r"clusters|blocks in a cluster") as caught:
        run("", blocks, 1, cluster)
    assert caught.value.status == BAD_LAUNCH


def test_threads_that_have_ended_are_waited_for_no_longer() -> None:
    # thread 1 arrives and ends; the last block ends without coming
    code = (
        "setp.eq.u32 %p1, %r2, 2; @%p1 exit; barrier.cluster.arrive; setp.eq.u32 %p1, %r0, 1; @%p1 exit;"
        "barrier.cluster.wait; mov.u32 %r5, 1;" + RESULT
    )
    assert run(code, 3, 3, 3) == [1, 0, 1, 1, 0, 1, 0, 0, 0]


def test_right_programs_have_no_findings(capfd: pytest.CaptureFixture[str]) -> None:
    checks = CHECK_MEMORY | CHECK_RACE | CHECK_SYNC
    found = run(EXCHANGE.format(load=LOADS[2]), 4, 40, 2, checks=checks)
    assert found[:2] == [1000, 1001]
    assert capfd.readouterr().err == ""


@pytest.mark.cuda
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_programs_as_nvcc_compiles_them(schedule: tuple[int, bool]) -> None:
    """A histogram over the shared memory of a cluster, and a barrier of several phases (cooperative_groups)."""
    m = Module(compile_ptx("async.cu", "compute_90"))
    data = [n * n % 1009 for n in range(256)]
    source, out = m.upload("i", data), m.alloc(1024)
    m.schedule(schedule[0])
    m.by_lane(schedule[1])
    m.run("cluster_histogram", 4, 64, "QQ", out, source)
    want = [sum(v % 256 == n for v in data) for n in range(256)]
    assert m.read(out, "i", 256) == want
    m.cluster(4)
    m.run("cluster_ring", 4, 64, "QQ", out, source)
    assert m.read(out, "i", 256) == [
        sum(data[(n + 64 * k) % 256] for k in range(4)) for n in range(256)
    ]
