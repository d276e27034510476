"""Random kernels through both engines of the simulated driver's interpreter, and through its random schedule.

    ./run python -m tests.sim.ptx_random [COUNT] [SEED]

A kernel is free of races, so that no order of threads changes what it computes: registers are a thread's own, shared
memory is exchanged between barriers, atomic operations commute. Some kernels have an access out of bounds: then both
engines must tell the same of the same thread.
"""

from __future__ import annotations

import random
import struct
import sys
from dataclasses import dataclass, field

from tests.sim.ptx_runner import Module, PtxError

HEADER = ".version 8.6\n.target sm_90\n.address_size 64\n"
FUNCTION = """
.func (.param .b32 result) mix(.param .b32 x, .param .b32 y)
{
    .reg .b32 %a<6>; .reg .pred %p<2>;
    ld.param.b32 %a0, [x]; ld.param.b32 %a1, [y]; and.b32 %a2, %a0, 7;
L:  setp.eq.u32 %p0, %a2, 0; @%p0 bra E;
    mad.lo.u32 %a1, %a1, 5, %a0; add.u32 %a2, %a2, -1;
    setp.eq.u32 %p1, %a1, 77; @%p1 bra R;
    bra L;
R:  xor.b32 %a1, %a1, 0x5555; st.param.b32 [result], %a1; ret;
E:  st.param.b32 [result], %a1; ret;
}
"""
#: two and three operands of each type, by kind of register
BINARY = {
    "r": [
        "add.u32",
        "sub.u32",
        "mul.lo.u32",
        "mul.hi.u32",
        "mul.hi.s32",
        "min.s32",
        "max.s32",
        "min.u32",
        "max.u32",
        "and.b32",
        "or.b32",
        "xor.b32",
        "shl.b32",
        "shr.u32",
        "shr.s32",
        "div.u32",
        "rem.u32",
        "div.s32",
        "rem.s32",
        "add.sat.s32",
        "bmsk.clamp.b32",
        "mul24.lo.s32",
        "add.cc.u32",
        "addc.cc.u32",
        "subc.u32",
    ],
    "f": [
        "add.f32",
        "sub.f32",
        "mul.f32",
        "div.rn.f32",
        "min.f32",
        "max.f32",
        "add.rz.f32",
        "mul.ftz.f32",
        "sub.sat.f32",
        "min.NaN.f32",
        "copysign.f32",
        "add.rm.ftz.f32",
    ],
    "d": [
        "add.u64",
        "sub.u64",
        "mul.lo.u64",
        "and.b64",
        "or.b64",
        "xor.b64",
        "min.s64",
        "max.u64",
        "mul.hi.u64",
    ],
    "g": ["add.f64", "sub.f64", "mul.f64", "min.f64", "max.f64", "div.rn.f64"],
}
TERNARY = {
    "r": [
        "mad.lo.u32",
        "mad.hi.s32",
        "sad.s32",
        "bfe.u32",
        "bfe.s32",
        "prmt.b32",
        "shf.l.wrap.b32",
        "shf.r.clamp.b32",
        "dp4a.u32.s32",
        "fns.b32",
        "mad24.hi.u32",
        "madc.lo.u32",
    ],
    "f": ["fma.rn.f32", "fma.rn.ftz.f32", "fma.rp.f32", "mad.rn.f32"],
    "d": ["mad.lo.u64", "mad.hi.u64"],
    "g": ["fma.rn.f64"],
}
UNARY = {
    "r": [
        "not.b32",
        "neg.s32",
        "abs.s32",
        "popc.b32",
        "clz.b32",
        "brev.b32",
        "cnot.b32",
        "bfind.u32",
    ],
    "f": [
        "neg.f32",
        "abs.f32",
        "sqrt.rn.f32",
        "rcp.rn.f32",
        "ex2.approx.f32",
        "abs.ftz.f32",
        "sin.approx.f32",
    ],
    "d": ["not.b64", "neg.s64", "abs.s64"],
    "g": ["neg.f64", "abs.f64"],
}
CONVERSIONS = [
    ("r", "f", "cvt.rzi.s32.f32"),
    ("r", "f", "cvt.rni.u32.f32"),
    ("f", "r", "cvt.rn.f32.s32"),
    ("f", "r", "cvt.rn.f32.u32"),
    ("d", "r", "cvt.s64.s32"),
    ("d", "r", "cvt.u64.u32"),
    ("r", "d", "cvt.u32.u64"),
    ("r", "r", "cvt.s32.s8"),
    ("r", "r", "cvt.sat.u8.s32"),
    ("f", "g", "cvt.rn.f32.f64"),
    ("g", "f", "cvt.f64.f32"),
    ("g", "r", "cvt.rn.f64.s32"),
    ("d", "g", "cvt.rzi.s64.f64"),
    ("r", "f", "mov.b32"),
    ("f", "r", "mov.b32"),
    ("g", "d", "mov.b64"),
    ("d", "g", "mov.b64"),
    ("d", "r", "mul.wide.s32"),
    ("d", "r", "mul.wide.u32"),
]
COMPARISONS = {
    "r": ["eq.s32", "ne.u32", "lt.s32", "le.u32", "gt.s32", "ge.u32", "hi.u32"],
    "f": ["eq.f32", "ne.f32", "lt.f32", "geu.f32", "gt.f32", "nan.f32", "ltu.ftz.f32"],
    "d": ["eq.u64", "lt.s64", "ge.u64"],
    "g": ["lt.f64", "equ.f64", "num.f64"],
}
KINDS = "rrrrffffdg"
COUNTS = {"r": 8, "f": 6, "d": 4, "g": 3, "p": 4}
THREADS = (1, 7, 32, 33, 64, 96, 100, 128)
IN_BYTES = 128 * 64


@dataclass
class Writer:
    """The text of one kernel, grown statement by statement."""

    chance: random.Random
    lines: list[str] = field(default_factory=list)
    labels: int = 0
    statements: int = 0

    def register(self, kind: str) -> str:
        """One of this kind."""
        return f"%{kind}{self.chance.randrange(COUNTS[kind])}"

    def source(self, kind: str) -> str:
        """A register, or sometimes a literal."""
        if self.chance.random() < 0.8:
            return self.register(kind)
        bits = self.chance.choice((0, 1, 3, 7, 255, 2**31, self.chance.getrandbits(32)))
        if kind == "f":
            return f"0f{self.chance.choice((0, 0x3F800000, 0x7F800000, 0x00000001, 0xBF000000, bits)):08X}"
        if kind == "g":
            return f"0d{self.chance.choice((0, 0x3FF0000000000000, 0x4024000000000000)):016X}"
        return str(bits)

    def label(self) -> str:
        """A new one."""
        self.labels += 1
        return f"L{self.labels}"

    def put(self, text: str) -> None:
        """A statement, sometimes under a guard."""
        guard = ""
        if self.chance.random() < 0.15:
            guard = f"@{self.chance.choice(('', '!'))}{self.register('p')} "
        self.lines.append(f"    {guard}{text};")

    def simple(self) -> None:
        """An instruction that goes on to the next one, anywhere."""
        chance = self.chance
        kind = chance.choice(KINDS)
        which = chance.randrange(11)
        if which < 3:
            self.put(
                f"{chance.choice(BINARY[kind])} {self.register(kind)}, {self.source(kind)}, {self.source(kind)}"
            )
        elif which < 5:
            words = ", ".join(self.source(kind) for _ in range(3))
            self.put(f"{chance.choice(TERNARY[kind])} {self.register(kind)}, {words}")
        elif which == 5:
            self.put(f"{chance.choice(UNARY[kind])} {self.register(kind)}, {self.source(kind)}")
        elif which == 6:
            to, source, name = chance.choice(CONVERSIONS)
            more = f", {self.source('r')}" if name.startswith("mul") else ""
            self.put(f"{name} {self.register(to)}, {self.register(source)}{more}")
        elif which == 7:
            self.compare()
        elif which == 8:
            type_ = {"r": "b32", "f": "f32", "d": "b64", "g": "f64"}[kind]
            self.put(
                f"selp.{type_} {self.register(kind)}, {self.source(kind)}, {self.source(kind)}, {self.register('p')}"
            )
        elif which == 9:
            self.put(
                f"lop3.b32 {self.register('r')}, {self.source('r')}, {self.source('r')}, {self.source('r')},"
                f" {chance.randrange(256)}"
            )
        else:
            self.memory()

    def compare(self) -> None:
        """A predicate, or two, perhaps combined with another."""
        kind = self.chance.choice(KINDS)
        comparison, _, type_ = self.chance.choice(COMPARISONS[kind]).rpartition(".")
        to = self.register("p")
        words = f"{self.source(kind)}, {self.source(kind)}"
        which = self.chance.randrange(4)
        if which == 0:
            comparison, _, ftz = comparison.partition(".")
            self.put(
                f"setp.{comparison}.{self.chance.choice(('and', 'or', 'xor'))}{'.' + ftz if ftz else ''}.{type_}"
                f" {to}|{self.register('p')}, {words}, {self.register('p')}"
            )
        else:
            self.put(f"setp.{comparison}.{type_} {to}, {words}")

    def memory(self) -> None:
        """Input at any place, the thread's own scratch and local memory, atomic operations that commute."""
        chance = self.chance
        which = chance.randrange(8)
        size, type_, kind = chance.choice(
            (
                (1, "u8", "r"),
                (1, "s8", "r"),
                (2, "u16", "r"),
                (2, "s16", "r"),
                (4, "b32", "r"),
                (4, "f32", "f"),
                (8, "b64", "d"),
                (8, "f64", "g"),
            )
        )
        if which < 3:
            self.lines.append(f"    and.b32 %x0, {self.register('r')}, {(IN_BYTES - 32) & -size};")
            self.lines.append("    cvt.u64.u32 %y0, %x0; add.u64 %y0, %y0, %in;")
            self.put(
                f"ld.{chance.choice(('global.', 'global.nc.', ''))}{type_} {self.register(kind)},"
                f" [%y0+{chance.randrange(4) * size}]"
            )
        elif which == 3:
            self.lines.append(
                f"    and.b32 %x0, {self.register('r')}, {(IN_BYTES - 64) & -32};"
                " cvt.u64.u32 %y0, %x0; add.u64 %y0, %y0, %in;"
            )
            words = ", ".join(f"%r{n}" for n in chance.sample(range(COUNTS["r"]), 4))
            self.put(f"ld.global.v4.u32 {{{words}}}, [%y0]")
        elif which == 4:
            self.put(
                f"st.{chance.choice(('global.', ''))}{type_.replace('s', 'u')}"
                f" [%own+{8 * chance.randrange(8)}], {self.register(kind)}"
            )
            self.put(f"ld.global.{type_} {self.register(kind)}, [%own+{8 * chance.randrange(8)}]")
        elif which == 5:
            self.put(
                f"st.local.{type_.replace('s', 'u')} [stack+{8 * chance.randrange(4)}], {self.register(kind)}"
            )
            self.put(f"ld.local.{type_} {self.register(kind)}, [stack+{8 * chance.randrange(4)}]")
        elif which == 6:
            op = chance.choice(("add.u32", "xor.b32", "max.u32", "min.s32", "or.b32"))
            place = {"add": 0, "xor": 4, "max": 8, "min": 12, "or": 16}[op.split(".")[0]]
            self.put(f"red.global.{op} [%sums+{place}], {self.register('r')}")
        else:
            self.put(
                f"st.global.v2.u32 [%own+{16 * chance.randrange(4)}], {{{self.register('r')}, {self.register('r')}}}"
            )

    def block(self, depth: int, together: bool) -> None:
        """Some statements. `together`: all threads of the block run them."""
        for _ in range(self.chance.randint(1, 6)):
            self.statements += 1
            which = self.chance.randrange(24)
            if which < 14 or depth == 0 or self.statements > 90:
                self.simple()
            elif which < 16:
                self.condition(depth)
            elif which < 18:
                self.loop(depth, together)
            elif which == 18:
                self.switch(depth)
            elif which == 19:
                self.jumps(depth)
            elif which == 20:
                self.call()
            elif not together:
                self.simple()
            elif which == 21:
                self.partly()
            elif which == 22:
                self.exchange()
            else:
                self.vote()

    def condition(self, depth: int) -> None:
        """If, perhaps with else; else may stand behind everything, as compilers place what is rare."""
        other, end = self.label(), self.label()
        self.compare()
        self.lines.append(f"    @{self.register('p')} bra {other};")
        self.block(depth - 1, False)
        self.lines.append(f"    bra {end};\n{other}:")
        if self.chance.random() < 0.6:
            self.block(depth - 1, False)
        self.lines.append(f"{end}:")

    def loop(self, depth: int, together: bool) -> None:
        """Up to 7 turns, as many for each thread as its register says, or the same for all; perhaps left early."""
        start, end = self.label(), self.label()
        counter = f"%n{depth}"
        alike = together and self.chance.random() < 0.5
        count = str(self.chance.randint(1, 5)) if alike else self.register("r")
        self.lines.append(f"    and.b32 {counter}, {count}, 7;\n{start}:")
        self.lines.append(
            f"    setp.eq.u32 %q, {counter}, 0; @%q bra {end}; add.u32 {counter}, {counter}, -1;"
        )
        self.block(depth - 1, alike)
        if not alike and self.chance.random() < 0.5:
            self.lines.append(f"    @{self.register('p')} bra {self.chance.choice((start, end))};")
            self.block(depth - 1, False)
        self.lines.append(f"    bra {start};\n{end}:")

    def switch(self, depth: int) -> None:
        """brx.idx."""
        ways = [self.label() for _ in range(self.chance.randint(2, 4))]
        end, table = self.label(), self.label()
        self.lines.append(f"    rem.u32 %x1, {self.register('r')}, {len(ways)};")
        self.lines.append(f"{table}: .branchtargets {', '.join(ways)};\n    brx.idx %x1, {table};")
        for way in ways:
            self.lines.append(f"{way}:")
            self.block(depth - 1, False)
            if self.chance.random() < 0.7:
                self.lines.append(f"    bra {end};")
        self.lines.append(f"{end}:")

    def jumps(self, depth: int) -> None:
        """Forward jumps that no structured program has."""
        labels = [self.label() for _ in range(3)]
        for label in labels:
            self.lines.append(
                f"    @{self.register('p')} bra {self.chance.choice(labels[labels.index(label) :])};"
            )
            self.block(depth - 1, False)
            self.lines.append(f"{label}:")

    def call(self) -> None:
        """A function with a loop of its own and two ways out."""
        a, b, to = self.register("r"), self.register("r"), self.register("r")
        self.lines.append(
            f"    {{ .param .b32 p0; .param .b32 p1; .param .b32 q0; st.param.b32 [p0], {a}; st.param.b32 [p1], {b};"
            f" call (q0), mix, (p0, p1); ld.param.b32 {to}, [q0]; }}"
        )

    def partly(self) -> None:
        """Lanes that know of each other, inside a branch."""
        p, end = self.register("p"), self.label()
        self.lines.append(f"    vote.sync.ballot.b32 %x2, {p}, %members; @!{p} bra {end};")
        self.lines.append(
            f"    redux.sync.{self.chance.choice(('add.u32', 'max.s32', 'xor.b32'))} {self.register('r')},"
            f" {self.register('r')}, %x2;"
        )
        self.lines.append(
            f"    match.any.sync.b32 {self.register('r')}, {self.register('r')}, %x2;\n{end}:"
        )

    def exchange(self) -> None:
        """Through shared memory, or by shuffles."""
        if self.chance.random() < 0.5:
            self.lines.append(
                f"    bar.sync 0; st.shared.u32 [%mine], {self.register('r')}; bar.sync 0;"
            )
            self.lines.append(
                f"    add.u32 %x0, %tid.x, {self.chance.randrange(9)}; rem.u32 %x0, %x0, %ntid.x;"
                " shl.b32 %x0, %x0, 2; mov.u32 %x1, s; add.u32 %x0, %x0, %x1;"
            )
            self.lines.append(
                f"    ld.shared.u32 {self.register('r')}, [%x0]; red.shared.add.u32 [total], {self.register('r')};"
            )
            self.lines.append(
                f"    bar.sync 0; ld.shared.u32 {self.register('r')}, [total]; bar.sync 0;"
            )
            return
        mode = self.chance.choice(("up", "down", "bfly", "idx"))
        control = 0 if mode == "up" else 31
        self.lines.append(
            f"    shfl.sync.{mode}.b32 {self.register('r')}|{self.register('p')}, {self.register('r')},"
            f" {self.chance.choice((str(self.chance.randrange(32)), self.register('r')))},"
            f" {self.chance.choice((control, control | 0x1800))}, %members;"
        )

    def vote(self) -> None:
        """Of the warp or of the block."""
        which = self.chance.randrange(3)
        if which == 0:
            self.lines.append(
                f"    vote.sync.{self.chance.choice(('all', 'any', 'uni'))}.pred {self.register('p')},"
                f" {self.register('p')}, %members;"
            )
        elif which == 1:
            self.lines.append(
                f"    vote.sync.ballot.b32 {self.register('r')}, {self.register('p')}, %members;"
            )
        else:
            self.lines.append(
                f"    barrier.sync.aligned 1; bar.red.popc.u32 {self.register('r')}, 0, {self.register('p')};"
            )


def make_kernel(seed: int) -> tuple[str, int, int]:
    """Its text, and the blocks and threads to run."""
    chance = random.Random(seed)
    w = Writer(chance)
    w.block(3, True)
    if chance.random() < 0.03:
        w.lines.append(f"    setp.eq.u32 %q, %tid.x, {chance.randrange(32)};")
        w.lines.append(f"    @%q ld.global.u32 %r0, [%in+{chance.choice((1, 2**40, 2**33 + 4))}];")
    w.block(3, True)
    stores = "".join(f"    st.global.u32 [%out+{4 * n}], %r{n};\n" for n in range(COUNTS["r"]))
    stores += "".join(
        f"    st.global.f32 [%out+{32 + 4 * n}], %f{n};\n" for n in range(COUNTS["f"])
    )
    stores += "".join(
        f"    st.global.u64 [%out+{56 + 8 * n}], %d{n};\n" for n in range(COUNTS["d"])
    )
    stores += "".join(
        f"    st.global.f64 [%out+{88 + 8 * n}], %g{n};\n" for n in range(COUNTS["g"])
    )
    stores += "".join(
        f"    selp.u32 %x0, 1, 0, %p{n}; st.global.u8 [%out+{112 + n}], %x0;\n"
        for n in range(COUNTS["p"])
    )
    loads = "".join(f"    ld.global.u32 %r{n}, [%y0+{4 * n}];\n" for n in range(COUNTS["r"]))
    loads += "".join(f"    ld.global.f32 %f{n}, [%y0+{32 + 4 * n}];\n" for n in range(COUNTS["f"]))
    loads += "".join(f"    ld.global.u64 %d{n}, [%y0+{8 * n}];\n" for n in range(COUNTS["d"]))
    loads += "".join(f"    cvt.rn.f64.s32 %g{n}, %r{n};\n" for n in range(COUNTS["g"]))
    loads += "".join(f"    setp.gt.s32 %p{n}, %r{n}, %r{n + 1};\n" for n in range(COUNTS["p"]))
    body = "\n".join(w.lines)
    text = f"""{HEADER}{FUNCTION}
.visible .entry k(.param .u64 input, .param .u64 output, .param .u64 scratch, .param .u64 common)
{{
    .reg .b32 %r<{COUNTS["r"]}>; .reg .f32 %f<{COUNTS["f"]}>; .reg .b64 %d<{COUNTS["d"]}>; .reg .f64 %g<{COUNTS["g"]}>;
    .reg .pred %p<{COUNTS["p"]}>; .reg .pred %q; .reg .b32 %x<4>; .reg .b32 %n<4>; .reg .b64 %y<2>;
    .reg .b64 %in; .reg .b64 %out; .reg .b64 %own; .reg .b64 %sums; .reg .b32 %mine; .reg .b32 %members; .reg .b32 %id;
    .shared .align 4 .b8 s[512]; .shared .align 4 .b8 total[4]; .local .align 8 .b8 stack[64];
    ld.param.u64 %in, [input]; ld.param.u64 %out, [output]; ld.param.u64 %own, [scratch]; ld.param.u64 %sums, [common];
    mov.u32 %x0, %ctaid.x; mov.u32 %x1, %ntid.x; mov.u32 %id, %tid.x; mad.lo.u32 %id, %x0, %x1, %id;
    mad.wide.u32 %out, %id, 120, %out; mad.wide.u32 %own, %id, 64, %own;
    mov.u32 %x0, %tid.x; shl.b32 %x1, %x0, 2; mov.u32 %mine, s; add.u32 %mine, %mine, %x1;
    sub.u32 %x1, %x1, %x1; and.b32 %x2, %x0, -32; mov.u32 %x3, %ntid.x; sub.u32 %x3, %x3, %x2; min.u32 %x3, %x3, 32;
    bmsk.clamp.b32 %members, 0, %x3;
    mad.wide.u32 %y0, %x0, 64, %in;
{loads}{body}
{stores}    ret;
}}
"""
    return text, chance.randint(1, 2), chance.choice(THREADS)


def outcome(
    module: Module, addresses: tuple[int, ...], blocks: int, threads: int
) -> tuple[object, ...]:
    """What memory holds afterwards, or the error."""
    _, out, scratch, sums = addresses
    sizes = (out, 120 * blocks * threads), (scratch, 64 * blocks * threads), (sums, 20)
    for address, size in sizes:
        module.write(address, bytes(size))
    try:
        module.run("k", blocks, threads, "QQQQ", *addresses)
    except PtxError as error:
        return error.status, str(error)
    return tuple(bytes(module.read(address, "B", size)) for address, size in sizes)  # type: ignore[arg-type]


def run_kernel(seed: int) -> tuple[list[str], bool]:
    """What differs between engines and schedules, and whether the kernel ran to its end."""
    text, blocks, threads = make_kernel(seed)
    module = Module(text)
    chance = random.Random(~seed)
    special = (0, 1, 0x7F800000, 0xFF800000, 0x7FC00001, 0x80000000, 1, 0x3F800000, 0xFFFFFFFF)
    words = [
        chance.choice(special) if chance.random() < 0.2 else chance.getrandbits(32)
        for _ in range(IN_BYTES // 4)
    ]
    addresses = (
        module.upload("I", words),
        module.alloc(120 * blocks * threads),
        module.alloc(64 * blocks * threads),
        module.alloc(20),
    )
    module.by_lane(True)
    want = outcome(module, addresses, blocks, threads)
    ended = isinstance(want[0], bytes)
    differences = []
    module.by_lane(False)
    if (got := outcome(module, addresses, blocks, threads)) != want:
        differences.append(f"seed {seed}, warp-wide: {describe(want, got)}")
    if ended:
        module.schedule(seed + 1)
        if (got := outcome(module, addresses, blocks, threads)) != want:
            differences.append(f"seed {seed}, random order: {describe(want, got)}")
    module.close()
    return differences, ended


def describe(want: tuple[object, ...], got: tuple[object, ...]) -> str:
    """The first difference."""
    if not isinstance(want[0], bytes) or not isinstance(got[0], bytes):
        return f"{want!r:.300} against {got!r:.300}"
    for place, (a, b) in enumerate(zip(want, got, strict=True)):
        assert isinstance(a, bytes)
        assert isinstance(b, bytes)
        for at, (x, y) in enumerate(zip(a, b, strict=True)):
            if x != y:
                size = (120, 64, 20)[place]
                start = at & -4
                return (
                    f"{('output', 'scratch', 'sums')[place]}, thread {at // size}, byte {at % size}:"
                    f" {struct.unpack_from('<I', a, start)[0]:#x} against {struct.unpack_from('<I', b, start)[0]:#x}"
                )
    return "nothing"


def run_kernels(first: int, count: int) -> tuple[list[str], int]:
    """All differences of `count` kernels from seed `first` on, and how many kernels ran to their end."""
    differences, ended = [], 0
    for seed in range(first, first + count):
        found, end = run_kernel(seed)
        differences += found
        ended += end
    return differences, ended


def main() -> int:
    """Run, and print what differs."""
    count, first = (int(word) for word in (sys.argv[1:] + ["10000", "1"][len(sys.argv) - 1 :])[:2])
    ended = 0
    bad = 0
    for start in range(first, first + count, 100):
        found, end = run_kernels(start, min(100, first + count - start))
        ended += end
        bad += len(found)
        for line in found:
            print(line, flush=True)
        if start // 1000 != (start + 100) // 1000:
            print(f"to seed {start + 99}: {bad} differences", flush=True)
    print(f"{count} kernels from seed {first} on, {ended} ran to their end, {bad} differences")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
