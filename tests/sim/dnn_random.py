# SPDX-License-Identifier: Apache-2.0
"""Random calls of the simulated cuDNN's backend interface: ``python -m tests.sim.dnn_random SEED CALLS``.

Most descriptors are such that plans come of them; others have a wrong attribute, type, count or pointer. Each call must
come back with a status that is documented, and the device must be well at the end.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from ctypes import byref, c_int, c_int64, c_uint64, c_void_p, create_string_buffer
from typing import Any

from tests.sim.dnn_client import (
    CONFIG,
    CONVOLUTION,
    ENGINE,
    GRAPH,
    HEURISTICS,
    KNOB_CHOICE,
    MATMUL,
    PACK,
    PLAN,
    POINTWISE,
    REDUCTION,
    T_BOOL,
    T_DESCRIPTOR,
    T_DOUBLE,
    T_FLOAT,
    T_HANDLE,
    T_INT64,
    T_POINTER,
    TENSOR,
    WIDE,
    Dnn,
)

OPERATIONS = (10, 11, 12, 13, 19, 22)
SHAPES = ((2, 2, 4, 4), (2, 2, 1, 1), (2, 2, 3, 3))
STRIDES = ((64, 16, 4, 1), (64, 1, 8, 2), (128, 64, 8, 1))
#: attributes of each type of descriptor: number, type of its elements, and what a good value is drawn of
KINDS: dict[int, tuple[tuple[int, int, Any], ...]] = {
    TENSOR: (
        (900, T_INT64, (16,)), (901, 1, (0, 0, 0, 2, 9)), (902, T_INT64, SHAPES),
        (903, T_INT64, STRIDES), (906, T_INT64, range(8)), (907, T_BOOL, (False,) * 9 + (True,)),
        (908, T_BOOL, (False,) * 9 + (True,)),
    ),
    CONVOLUTION: (
        (100, 1, (0,)), (101, 7, (0, 1)), (106, T_INT64, (2,)), (102, T_INT64, ((1, 1),)),
        (103, T_INT64, ((1, 1),)), (105, T_INT64, ((0, 0), (1, 1))), (104, T_INT64, ((0, 0), (1, 1))),
    ),
    POINTWISE: ((0, 14, (0, 1, 21, 100, 200, 300, 601)), (1, 1, (0,)), (5, T_DOUBLE, (0.5,))),
    MATMUL: ((1500, 1, (0,)),),
    REDUCTION: ((1600, 18, range(5)), (1601, 1, (0,))),
    **{
        kind: (
            (first, T_FLOAT, (1.0, 0.5)), (first + 1, T_FLOAT, (0.0, 1.0)),
            (first + 2, T_DESCRIPTOR, CONVOLUTION),
            *((first + i, T_DESCRIPTOR, TENSOR) for i in (3, 4, 5)),
        )
        for kind, first in ((10, 700), (12, 706), (11, 712))
    },
    13: (
        (750, T_DESCRIPTOR, POINTWISE),
        *((i, T_DESCRIPTOR, TENSOR) for i in (751, 752, 753, 756, 757, 758)),
        (754, T_FLOAT, (2.0,)),
    ),
    19: (*((i, T_DESCRIPTOR, TENSOR) for i in (1520, 1521, 1522)), (1523, T_DESCRIPTOR, MATMUL)),
    22: ((1610, T_DESCRIPTOR, TENSOR), (1611, T_DESCRIPTOR, TENSOR), (1612, T_DESCRIPTOR, REDUCTION)),
    GRAPH: ((800, T_HANDLE, ("handle",)), (801, T_DESCRIPTOR, OPERATIONS)),
    HEURISTICS: ((201, T_DESCRIPTOR, GRAPH), (200, 8, range(4))),
    ENGINE: ((1300, T_DESCRIPTOR, GRAPH), (1301, T_INT64, range(3))),
    KNOB_CHOICE: ((600, 9, (2,)), (601, T_INT64, range(4))),
    CONFIG: ((300, T_DESCRIPTOR, ENGINE),),
    PLAN: ((400, T_HANDLE, ("handle",)), (401, T_DESCRIPTOR, CONFIG)),
    PACK: (
        (1000, T_INT64, (tuple(range(8)),)), (1001, T_POINTER, (("memory",) * 8,)),
        (1003, T_POINTER, ("memory",)),
    ),
}  # fmt: skip
NUMBERS = (-1, 0, 1, 2, 99, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
COUNTS = (-1, 0, 1, 2, 9, 1 << 62)
DOCUMENTED = {0, 1001, 2000, 2002, 2004, 2010, 2012, 3000, 3002, 3003, 3004, 4003}


class Caller:
    """A program that has no plan."""

    def __init__(self, dnn: Dnn, seed: int) -> None:
        self.dnn, self.random = dnn, random.Random(seed)
        self.memory = dnn.alloc(1 << 20)
        self.live: list[tuple[int, int]] = []
        self.seen: Counter[tuple[str, int]] = Counter()

    def check(self, what: str, status: int) -> int:
        assert status in DOCUMENTED, (what, status)
        self.seen[what, status] += 1
        return status

    def find(self, kinds: Any) -> int:
        """A descriptor of one of the types, if there is one."""
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        return self.random.choice([d for d, kind in self.live if kind in wanted] or [0])

    def values(self, type_: int, good: Any) -> list[Any]:
        if type_ == T_DESCRIPTOR:
            n = self.random.choice((1, 1, 2, 3)) if good == OPERATIONS else 1
            return [self.find(good) for _ in range(n)]
        value = self.random.choice(good)
        values = list(value) if isinstance(value, tuple) else [value]
        names = {"handle": self.dnn.dnn_handle.value, "memory": self.memory}
        return [names.get(v, v) if isinstance(v, str) else v for v in values]

    def spoil(self, type_: int, values: list[Any]) -> list[Any]:
        """Values that are not meant to be good, for the same number of elements."""
        if type_ in (T_DESCRIPTOR, T_HANDLE):
            return [self.random.choice([0, 0x4711, *[d for d, _ in self.live]]) for _ in values]
        if type_ in (T_FLOAT, T_DOUBLE):
            return [self.random.choice((float("nan"), 1e300, -1.0)) for _ in values]
        if type_ == T_POINTER:
            return [self.random.choice((0, self.memory)) for _ in values]
        if type_ == T_INT64:
            return [self.random.choice(NUMBERS) for _ in values]
        return [self.random.choice((0, 1, 5, 99)) for _ in values]

    def set(self, descriptor: int, id_: int, type_: int, good: Any, wrong: bool) -> None:
        values = self.values(type_, good)
        count = len(values)
        if wrong and self.random.random() < 0.5:
            values = self.spoil(type_, values)
        if wrong and self.random.random() < 0.2:
            count = self.random.choice(COUNTS)
            values = (values * 9)[: max(min(count, 9), 1)]
        array = (WIDE.get(type_, c_int) * len(values))(*values)
        if wrong and self.random.random() < 0.2:
            type_ = self.random.randrange(-1, 33)
            count = min(count, 1)  # an element of any type fits into what there is
            array = (c_int64 * 2)(*[v if isinstance(v, int) else 0 for v in (values * 2)[:2]])
        lib = self.dnn.dnn
        self.check(
            "set",
            lib.cudnnBackendSetAttribute(c_void_p(descriptor), id_, type_, c_int64(count), array),
        )

    def create(self) -> None:
        kind, descriptor = (
            self.random.choice([*KINDS, TENSOR, TENSOR, *OPERATIONS, GRAPH]),
            c_void_p(),
        )
        wrong = self.random.random() < 0.15
        self.dnn.good(self.dnn.dnn.cudnnBackendCreateDescriptor(kind, byref(descriptor)))
        assert descriptor.value
        for id_, type_, good in KINDS[kind]:
            if not wrong or self.random.random() < 0.9:
                self.set(descriptor.value, id_, type_, good, wrong)
        status = self.check(f"finalize {kind}", self.dnn.dnn.cudnnBackendFinalize(descriptor))
        if status == 0 or self.random.random() < 0.02:
            self.live.append((descriptor.value, kind))
        else:
            self.dnn.good(self.dnn.dnn.cudnnBackendDestroyDescriptor(descriptor))

    def read(self) -> None:
        descriptor, kind = self.random.choice(self.live)
        id_, type_, _ = self.random.choice(
            [*KINDS[kind], (202, T_DESCRIPTOR, 0), (802, T_INT64, 0)]
        )
        count, wanted = c_int64(), c_int64(self.random.choice((-1, 0, 1, 8)))
        places: Any = create_string_buffer(64)
        if type_ == T_DESCRIPTOR:
            places = (c_void_p * 8)(*[self.random.choice(self.live)[0] for _ in range(8)])
            # a content that was read makes this one another descriptor: it is of the same type all the same
        status = self.dnn.dnn.cudnnBackendGetAttribute(
            c_void_p(descriptor), id_, type_, wanted, byref(count), places
        )
        self.check("get", status)

    def destroy(self) -> None:
        if len(self.live) > 80:
            descriptor, _ = self.live.pop(self.random.randrange(len(self.live)))
            self.dnn.good(self.dnn.dnn.cudnnBackendDestroyDescriptor(c_void_p(descriptor)))

    def execute(self) -> None:
        plan, pack = c_void_p(self.find(PLAN)), c_void_p(self.find(PACK))
        status = self.dnn.dnn.cudnnBackendExecute(self.dnn.dnn_handle, plan, pack)
        self.check("execute", status)


def main(seed: int, calls: int) -> None:
    """Call, and say what came of it."""
    dnn = Dnn()
    caller = Caller(dnn, seed)
    for _ in range(40):
        caller.create()
    steps = (
        caller.create,
        caller.create,
        caller.create,
        caller.read,
        caller.destroy,
        caller.execute,
    )
    for _ in range(calls):
        caller.random.choice(steps)()
    dnn.ok(dnn.wait())
    dnn.ok(dnn.cuda.cuMemFree_v2(c_uint64(caller.memory)))
    finished = [status for (what, status), _ in caller.seen.items() if what.startswith("finalize")]
    print(caller.seen["execute", 0], "executed,", len(set(finished)), "statuses of finalize")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
