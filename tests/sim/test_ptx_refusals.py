"""What the interpreter refuses, and that it says where: no wrong answer for unknown forms."""

from __future__ import annotations

import pytest

from tests.sim.ptx_runner import SYNTAX, TRAP, UNRESOLVED, UNSUPPORTED, Module, PtxError

pytestmark = pytest.mark.native

HEADER = ".version 8.6\n.target sm_90\n.address_size 64\n"


def kernel(code: str, name: str = "k") -> str:
    return (
        f".visible .entry {name}(.param .u64 out)\n{{\n"
        ".reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .b16 %h<9>; .reg .pred %p<9>;\n"
        f"{code}\nret;\n}}\n"
    )


def refused(text: str) -> tuple[int, str]:
    with pytest.raises(PtxError) as caught:
        Module(text)
    return caught.value.status, str(caught.value)


@pytest.mark.parametrize(
    "code",
    [
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r0}, %rd0, %rd1, 1, 1, 1, 0, 0;",
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3};",
        "tex.cube.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%rd0, {%r4,%r4,%r4,%r4}];",
        "tex.1d.v4.s32.s32 {%r0,%r1,%r2,%r3}, [%rd0, %rd1, {%r4}];",
        "tex.1d.v4.s32.s32 {%r0,%r1,%r2,%r3}, [%rd0, {%r4}], {%r5};",
        "tex.1d.v2.f16x2.f32 {%r0,%r1}, [%rd0, {%r4}];",
        "tld4.r.cube.v4.s32.f32 {%r0,%r1,%r2,%r3}, [%rd0, {%r4,%r4,%r4,%r4}];",
        "txq.channel_order.b32 %r0, [%rd0];",
        "suq.normalized_coords.b32 %r0, [%rd0];",
        "sust.p.1d.b32.trap [%rd0, {%r0}], {%r1};",
        "suld.b.1d.v4.b64.trap {%rd1,%rd2,%rd3,%rd4}, [%rd0, {%r1}];",
        "cp.async.bulk.shared::cluster.global [%r0], [%rd0], %r1, [%r2];",
        "barrier.cluster.arrive.acquire;",
        "mapa.shared::cta.u32 %r0, %r1, %r2;",
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0, {%r1}], [%r2];",
        "add.frobnicate.u32 %r0, %r1, %r2;",
        "add.rn.u32 %r0, %r1, %r2;",
        "add.sat.u32 %r0, %r1, %r2;",
        "add.ftz.f64 %rd0, %rd1, %rd2;",
        "mul.u32 %r0, %r1, %r2;",
        "shl.u32 %r0, %r1, %r2;",
        "setp.lo.s32 %p0, %r1, %r2;",
        "setp.equ.u32 %p0, %r1, %r2;",
        "cvt.s32.f32 %r0, %r1;",
        "cvt.rn.ftz.tf32.f32 %r0, %r1;",
        "cvt.rn.satfinite.e2m3x2.f32 %h0, %r1, %r2;",
        "atom.global.add.f16 %h0, [%rd0], %h1;",
        "atom.global.cas.b128 %rd0, [%rd1], %rd2, %rd3;",
        "atom.global.inc.u64 %rd0, [%rd1], %rd2;",
        "shfl.idx.b32 %r0, %r1, %r2, %r3;",
        "vote.ballot.b32 %r0, %p1;",
        "mad.f16 %h0, %h1, %h2, %h3;",
        "sin.f32 %r0, %r1;",
        "min.u8 %h0, %h1, %h2;",
        "ld.global.b128 %rd0, [%rd1];",
    ],
)
def test_unknown_forms_are_named(code: str) -> None:
    status, message = refused(HEADER + kernel(code))
    assert status == UNSUPPORTED
    assert "line 7:" in message


@pytest.mark.parametrize(
    "code",
    [
        "tex.1d.v4.s32.s32 {%r0,%r1}, [%rd0, {%r4}];",
        "tex.2d.v4.s32.s32 {%r0,%r1,%r2,%r3}, [%rd0, {%r4}];",
        "tex.1d.v4.s32.s32 {%r0,%r1,%r2,%r3}, [%rd0+8, {%r4}];",
        "tex.1d.v4.s32.s32 {%r0,%r1,%r2,%r3}, [%rd0, {%r4];",
        "suld.b.1d.v2.b32.trap {%r0}, [%rd0, {%r1}];",
        "add.u32 %r0, %r1;",
        "add.u32 %r0, %r1, %r2, %r3;",
        "add.u32 %r0, %r1, %r99;",
        "add.u32 %r0, %rd1, %r2;",
        "add.u32 5, %r1, %r2;",
        "add.u32 %r0, %r1, %p2;",
        "mov.u32 %tid.x, %r1;",
        "bra nowhere;",
        "@%r1 bra L; L: ret;",
        "L: L: ret;",
        "ld.global.u32 %r0, %r1;",
        "ld.global.v2.u32 {%r0}, [%rd1];",
        "st.const.u32 [%rd1], %r0;",
        "call foo, (%r1);",
        "add.u32 %r0, %r1, 1.5;",
        "{ add.u32 %r0, %r1, %r2;",
        "add.u32 %r0 %r1, %r2;",
        "lop3.b32 %r0, %r1, %r2, %r3, 256;",
        'mov.u32 %r0, "text";',
        "cp.async.ca.shared.global [%r0], [%rd1], 5;",
    ],
)
def test_syntax_errors(code: str) -> None:
    status, message = refused(HEADER + kernel(code))
    assert status == SYNTAX
    assert message.startswith("line ")


@pytest.mark.parametrize(
    "text",
    ["", "hello", ".version x", ".version 8.0\n", "\x7fELF", HEADER + ".entry", HEADER + "\x01"],
)
def test_what_is_no_ptx(text: str) -> None:
    assert refused(text)[0] == SYNTAX


def test_a_kernel_that_cannot_run_leaves_the_others() -> None:
    odd = ".func odd()\n{\nfrobnicate.u32 1, 2;\nret;\n}\n"
    store = "ld.param.u64 %rd0, [out]; mov.u32 %r0, 5; st.global.u32 [%rd0], %r0;"
    module = Module(HEADER + odd + kernel("call odd;", "broken") + kernel(store))
    out = module.alloc(4)
    module.run("k", 1, 1, "Q", out)
    assert module.read(out, "I", 1) == [5]
    assert module.info("k").refusal is None
    assert b"line 6: frobnicate.u32 is not supported" in module.info("broken").refusal
    with pytest.raises(PtxError, match=r"kernel broken: line 6: frobnicate\.u32") as caught:
        module.run("broken", 1, 1, "Q", out)
    assert caught.value.status == UNSUPPORTED


def test_unreachable_functions_may_hold_anything() -> None:
    unused = ".func odd()\n{\n.reg .b32 %r<4>;\nfrobnicate.u32 %r0, %r1;\nret;\n}\n"
    Module(HEADER + unused + kernel(""))
    status, message = refused(HEADER + unused + kernel("call odd;"))
    assert status == UNSUPPORTED
    assert "line 7:" in message
    assert "frobnicate.u32" in message


def test_a_function_whose_address_is_taken_is_reachable() -> None:
    unused = ".func odd()\n{\ntcgen05.alloc;\nret;\n}\n"
    assert refused(HEADER + unused + kernel("mov.u64 %rd0, odd;"))[0] == UNSUPPORTED
    table = ".global .align 8 .u64 table[1] = {odd};\n"
    assert refused(HEADER + unused + table + kernel(""))[0] == UNSUPPORTED


def test_unresolved_names() -> None:
    assert refused(HEADER + ".extern .func f;\n" + kernel("call f;"))[0] == UNRESOLVED
    text = HEADER + ".extern .global .u32 v;\n" + kernel("mov.u64 %rd0, v;")
    assert refused(text)[0] == UNRESOLVED
    Module(HEADER + ".extern .func f;\n.extern .global .u32 v;\n" + kernel(""))


FUNCTION = ".visible .func {returns} f({params}) {{ .reg .b64 %a; {code} ret; }}\n"
STORE = "{ .param .b64 p; .param .b64 q; st.param.b64 [p], 3; call (q), f, (p); ld.param.b64 %rd1, [q]; }\n"


@pytest.mark.parametrize(
    ("returns", "params", "code", "given"),
    [
        ("(.param .b64 r)", ".param .b64 x", "ld.param.b64 %a, [x]; st.param.b64 [r], %a;", 3),
        ("(.param .b32 r)", ".param .b64 x", "st.param.b32 [r], 5;", None),
        ("", ".param .b64 x", "", None),
        ("(.param .b64 r)", "", "st.param.b64 [r], 5;", 5),
        ("(.param .b64 r)", ".param .b32 x", "st.param.b64 [r], 5;", 5),
        ("(.param .b64 r)", ".param .b64 w, .param .b64 x", "st.param.b64 [r], 5;", 5),
        ("(.param .align 8 .b8 r[64])", ".param .b64 x", "st.param.b64 [r+56], 5;", None),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_what_two_parts_do_not_agree_on_is_undefined_and_nothing_worse(
    returns: str, params: str, code: str, given: int | None, first: bool
) -> None:
    declared = ".extern .func (.param .b64 r) f(.param .b64 x);\n"
    caller = (
        HEADER + declared + kernel(STORE + "ld.param.u64 %rd0, [out]; st.global.u64 [%rd0], %rd1;")
    )
    defined = HEADER + FUNCTION.format(returns=returns, params=params, code=code)
    module = Module(defined + caller if first else caller + defined)
    out = module.alloc(8)
    module.run("k", 1, 1, "Q", out)
    if given is not None:
        assert module.read(out, "Q", 1) == [given]


def test_parts_of_a_linked_module() -> None:
    own = ".func own() { ret; }\n.global .u32 mine = 1;\n.weak .func both() { ret; }\n.weak .global .u32 two = 2;\n"
    Module((HEADER + own) * 3 + HEADER + kernel(""))
    for twice in (".visible .func f() { ret; }\n", ".visible .global .u32 v = 1;\n", kernel("")):
        assert refused((HEADER + twice) * 2)[0] == SYNTAX
    strong = own.replace(".weak", ".visible")
    assert refused(HEADER + own + HEADER + strong)[0] == SYNTAX
    hidden = HEADER + own + HEADER + ".extern .func own;\n" + kernel("call own;")
    assert refused(hidden)[0] == UNRESOLVED


def test_lanes_outside_their_own_mask() -> None:
    module = Module(HEADER + kernel("bar.warp.sync 2;"))
    with pytest.raises(PtxError) as caught:
        module.run("k", 1, 1, "Q", 0)
    assert caught.value.status == TRAP


def test_calls_of_no_function() -> None:
    code = "P: .callprototype _ ();\nmov.u64 %rd0, 1234;\ncall %rd0, P;\n"
    module = Module(HEADER + kernel(code))
    with pytest.raises(PtxError, match="which is no function"):
        module.run("k", 1, 1, "Q", 0)


def test_addresses_in_initial_values() -> None:
    text = HEADER + (
        ".global .u32 data[4] = {1, 2, 3};\n"
        ".global .align 8 .u64 at[2] = {generic(data)+4, data};\n"
        ".global .align 8 .b8 bytes[2] = {0xFF(data), 0xFF00(generic(data))};\n"
        ".const .f32 half = 0.5;\n"
    )
    module = Module(text + kernel(""))
    data = module.variable("data")[0]
    assert module.read(data, "I", 4) == [1, 2, 3, 0]
    assert module.read(module.variable("at")[0], "Q", 2) == [data + 4, data]
    assert module.read(module.variable("bytes")[0], "B", 2) == [data & 255, data >> 8 & 255]
    assert module.read(module.variable("half")[0], "f", 1) == [0.5]


def test_scopes_hide_names() -> None:
    code = """
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, 1;
    { .reg .b32 %r<2>; mov.u32 %r0, 2; bra L;
      st.global.u32 [%rd0+8], %r0; L: st.global.u32 [%rd0], %r0; }
    st.global.u32 [%rd0+4], %r0;
    """
    module = Module(HEADER + kernel(code))
    out = module.alloc(12)
    module.run("k", 1, 1, "Q", out)
    assert module.read(out, "I", 3) == [2, 1, 0]


def test_directives_without_blanks_between_them() -> None:
    # NVIDIA's cuda_fp16.hpp writes {.reg.b32 c; ...} in its inline assembly
    text = HEADER + (
        ".global.align 4 .b8 g[4] = {5, 0, 0, 0};\n.shared.align 16 .b8 s[16];\n"
        ".func(.param.b32 back) twice(.param.b32 value)\n"
        "{.reg.b32 a; ld.param.b32 a, [value]; add.u32 a, a, a; st.param.b32 [back], a; ret;}\n"
        ".visible.entry k(.param.u64 out)\n"
        "{.reg.b64 p<2>;.reg.b32 r<3>;.local.align 4 .b8 l[4]; ld.param.u64 p0, [out];\n"
        "mov.u64 p1, g; ld.global.b32 r0, [p1]; {.param.b32 a;.param.b32 b; st.param.b32 [a], r0;\n"
        "call.uni (b), twice, (a); ld.param.b32 r1, [b];}\n"
        "st.local.b32 [l], r1; ld.local.b32 r2, [l]; st.global.b32 [p0], r2; ret;}\n"
    )
    module = Module(text)
    out = module.alloc(4)
    module.run("k", 1, 1, "Q", out)
    assert module.read(out, "I", 1) == [10]


def test_branch_tables() -> None:
    code = """
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd0, %r0, 4, %rd0;
    T: .branchtargets A, B, C;
    brx.idx %r0, T;
    A: mov.u32 %r1, 10; bra E;
    B: mov.u32 %r1, 20; bra E;
    C: mov.u32 %r1, 30;
    E: st.global.u32 [%rd0], %r1;
    """
    module = Module(HEADER + kernel(code))
    out = module.alloc(16)
    module.run("k", 1, 3, "Q", out)
    assert module.read(out, "I", 3) == [10, 20, 30]
    with pytest.raises(PtxError, match="branch index 3 of 3"):
        module.run("k", 1, 4, "Q", out)
