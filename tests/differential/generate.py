# ruff: noqa: N802  # a method for each function of CUDA's
"""Random programs that know what they have: most calls are right, some are wrong in ways that CUDA has an answer for.

What CUDA leaves open is not generated: a call has at most one thing wrong, for which of two errors comes first is
not said. Memory is written before it is read, each piece of memory is used in one stream (or in the default stream,
which waits for it), a stream is waited for before it is destroyed, and a handle that ended is used again only as long
as no other of its kind has been made.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.differential.calls import BY_HAND, CALLS, IMAGES, KERNELS
from tests.differential.devices import DEVICE_CALLS
from tests.differential.launches import LAUNCH_CALLS
from tests.differential.pools import POOL_CALLS
from tests.differential.things import SkipError, Thing
from tests.differential.values import (
    GOOD,
    IN_CONTEXT,
    NONE,
    NUMBERS,
    ODD_RATE,
    OWN,
    PLAIN,
    SIZES,
    STEPS,
    WEIGHTS,
)


@dataclass
class Generator:
    """One sequence in the making. Threads take turns and share everything, or run at once and share nothing."""

    seed: int
    in_turns: bool
    threads: int
    devices: int = 1
    steps: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed}-{self.in_turns}")
        self.choose_device = random.Random(f"device-{self.seed}")
        self.things: list[Thing] = []
        self.stacks: list[list[int]] = [[] for _ in range(self.threads)]
        self.made: dict[str, int] = {}
        self.ended: dict[str, tuple[int, int]] = {}
        self.thread = 0
        self.spoilt = False
        self.names = [*CALLS, *BY_HAND]
        self.weights = [WEIGHTS.get(n, 1.0) for n in self.names]

    # ---- what there is

    @property
    def current(self) -> int | None:
        return self.stacks[self.thread][-1] if self.stacks[self.thread] else None

    def own(self, kind: str, *, here: bool = True) -> list[Thing]:
        found = [t for t in self.things if t.kind == kind and t.alive]
        if not self.in_turns:
            found = [t for t in found if t.thread == self.thread]
        if here and kind in IN_CONTEXT:
            found = [t for t in found if t.context == self.current]
        return found

    def add(self, kind: str, **more: Any) -> Thing:
        number = self.made.get(kind, 0)
        self.made[kind] = number + 1
        self.ended.pop(kind, None)
        if kind not in ("lib", "ctx", "pol") and self.current is None:
            more["alive"] = False
        thing = Thing(kind, number, self.thread, context=self.current, **more)
        self.things.append(thing)
        return thing

    def end(self, thing: Thing) -> None:
        thing.alive = False
        self.ended[thing.kind] = (thing.number, self.made[thing.kind])

    def odd(self) -> bool:
        """Whether something is to be wrong, once a call; a call without a context has that."""
        if self.spoilt or self.chance.random() >= ODD_RATE:
            return False
        self.spoilt = True
        return True

    def spoil(self) -> None:
        if self.spoilt:
            raise SkipError
        self.spoilt = True

    def emit(self, name: str, *arguments: Any) -> None:
        self.steps.append([self.thread, name, list(arguments)])

    # ---- arguments

    def handle(self, kind: str) -> int | None:
        found = self.own(kind)
        if kind == "stm" and (not found or self.chance.random() < 0.3):
            return None
        if not found or self.odd():
            if not found:
                self.spoil()
            if kind == "hst":
                raise SkipError
            number, made = self.ended.get(kind, (0, -1))
            stale = self.in_turns and made == self.made.get(kind) and self.chance.random() < 0.5
            return number if stale else None
        return self.chance.choice(found).number

    def number(self, form: str, name: str) -> int:
        usual, odd = NUMBERS.get(name, {}).get(form, PLAIN[form])
        return self.chance.choice(odd if self.odd() else usual)

    def length(self, thing: Thing, offset: int, unit: int = 1) -> int:
        room = max(0, thing.size - offset) // unit
        if self.odd():
            return self.chance.choice((0, room + 1, 1 << 40, (1 << 63) // unit))
        return self.chance.randint(0, room) if room else 0

    def piece(self, *, writable: bool = True) -> tuple[Thing | None, list[int]]:
        """Memory of this context, and an address in it: [number, offset]."""
        found = [t for t in self.own("mem") if t.size or not writable]
        if not found:
            self.spoil()
            return None, [NONE, 8]
        thing = self.chance.choice(found)
        offset = 0 if self.chance.random() < 0.6 else self.chance.randrange(thing.size or 1) & ~3
        if self.odd():
            offset = self.chance.choice((1, thing.size, thing.size + 64, (1 << 64) - 8))
        return thing, [thing.number, offset]

    # ---- one call

    def choose(self) -> None:
        name = self.chance.choices(self.names, self.weights)[0]
        self.spoilt = self.current is None
        if self.spoilt and self.chance.random() < 0.7:
            name = self.chance.choice(("cuCtxCreate_v2", "cuCtxSetCurrent"))
        make = getattr(self, f"make_{name}", None)
        if make:
            make()
        elif name in OWN:
            self.make_own(name)
        elif make := (POOL_CALLS | LAUNCH_CALLS | DEVICE_CALLS).get(name):
            make(self)
        elif name.startswith(("cuMemset", "cuMemcpy")):
            self.fill_or_copy(name)
        else:
            self.plain(name)

    def plain(self, name: str) -> None:
        forms = CALLS[name].split()
        arguments: list[Any] = []
        for form in forms:
            if form[0] in "ox":
                continue
            if form[0] == "+":
                arguments.append(self.made.get(form[1:], 0))
            elif form in "zuidbh":
                arguments.append(self.number(form, name))
            elif form == "mem":
                arguments.append(self.piece()[1])
            else:
                arguments.append(self.handle(form.lstrip("-")))
        for form in forms:
            if form[0] == "+":
                self.add(form[1:], alive=not self.spoilt)
        self.emit(name, *arguments)
        for form, value in zip([f for f in forms if f[0] not in "ox"], arguments, strict=True):
            if form[0] == "-" and value is not None:
                self.forget(form[1:], value)

    def forget(self, kind: str, number: int) -> None:
        for thing in self.things:
            if (thing.kind, thing.number) == (kind, number) and thing.alive:
                self.end(thing)

    # ---- programs of their own, of a seed; a capture forbids other threads some calls

    def make_own(self, name: str) -> None:
        if self.in_turns and self.current is not None:
            self.emit(name, self.chance.randrange(1 << 30))

    def make_cuMemMap(self) -> None:
        if self.devices == 1:  # what is mapped is of device 0
            self.make_own("cuMemMap")

    # ---- contexts: each thread has a stack

    def device(self) -> int:
        return self.choose_device.randrange(self.devices)

    def make_cuCtxCreate_v2(self) -> None:
        flags, device = self.chance.choice((0, 0, 1, 2, 4)), 99 if self.odd() else self.device()
        if len(self.own("ctx")) > 3 or self.odd():
            flags, device = 99, 0
        thing = self.add("ctx")
        self.emit("cuCtxCreate_v2", thing.number, flags, device)
        if flags in (3, 99) or device == 99:
            thing.alive = False
        else:
            self.stacks[self.thread].append(thing.number)

    def make_cuDevicePrimaryCtxRetain(self) -> None:
        if not self.in_turns:
            return  # there is one of it, and another thread may end it
        thing = self.add("ctx", is_primary=True)
        self.emit("cuDevicePrimaryCtxRetain", thing.number, 0)

    def make_cuDevicePrimaryCtxRelease_v2(self) -> None:
        """Too often, too; the last release ends its objects, which are then used no more."""
        primaries = [t for t in self.own("ctx") if t.is_primary]
        if primaries and self.in_turns:
            self.settle()
            self.emit("cuDevicePrimaryCtxRelease_v2", 0)
            self.end(primaries[-1])
            if len(primaries) == 1:
                same = {t.number for t in self.things if t.kind == "ctx" and t.is_primary}
                self.lose(same)
        elif not primaries and self.in_turns:
            self.emit("cuDevicePrimaryCtxRelease_v2", 0)

    def lose(self, contexts: set[int]) -> None:
        for thing in self.things:
            if thing.kind in IN_CONTEXT and thing.context in contexts:
                thing.alive = False
        self.stacks = [[n for n in stack if n not in contexts] for stack in self.stacks]
        # what is current now is asked for, and set again, in every thread
        for number in range(self.threads):
            self.thread = number
            self.emit("cuCtxSetCurrent", self.current)

    def make_cuCtxDestroy_v2(self) -> None:
        found = [t for t in self.own("ctx") if not t.is_primary]
        if not found:
            self.spoil()
            return self.emit("cuCtxDestroy_v2", None)
        thing = self.chance.choice(found)
        if not self.in_turns and thing.number in self.stacks[self.thread][:1]:
            return None
        self.settle()
        self.emit("cuCtxDestroy_v2", thing.number)
        self.end(thing)
        if self.in_turns:
            return self.lose({thing.number})
        stack = self.stacks[self.thread]
        for other in self.things:
            if other.context == thing.number and other.kind in IN_CONTEXT:
                other.alive = False
        self.stacks[self.thread] = [n for n in stack if n != thing.number]
        return self.emit("cuCtxSetCurrent", self.current)

    def make_cuCtxPushCurrent_v2(self) -> None:
        number = self.handle("ctx")
        self.emit("cuCtxPushCurrent_v2", number)
        if any(t.number == number for t in self.own("ctx")) and number is not None:
            self.stacks[self.thread].append(number)

    def make_cuCtxPopCurrent_v2(self) -> None:
        if len(self.stacks[self.thread]) > 1:
            self.emit("cuCtxPopCurrent_v2")
            self.stacks[self.thread].pop()

    def make_cuCtxSetCurrent(self) -> None:
        found = self.own("ctx")
        if found:
            number = self.chance.choice(found).number
            self.emit("cuCtxSetCurrent", number)
            self.stacks[self.thread][-1:] = [number]

    def settle(self) -> None:
        self.emit("settle", [t.number for t in self.own("ctx")])

    make_settle = settle

    def make_cuDevicePrimaryCtxSetFlags_v2(self) -> None:
        if self.in_turns:
            self.plain("cuDevicePrimaryCtxSetFlags_v2")

    def make_cuDevicePrimaryCtxGetState(self) -> None:
        if self.in_turns:
            self.plain("cuDevicePrimaryCtxGetState")

    # ---- memory

    def define(self, thing: Thing) -> None:
        """What it holds is known from now on."""
        self.emit("cuMemsetD8_v2", [thing.number, 0], self.chance.randrange(256), thing.size)

    def make_cuMemAlloc_v2(self) -> None:
        size = self.chance.choice((0, 1 << 50, (1 << 64) - 1) if self.odd() else SIZES)
        streams = [t for t in self.own("stm") if t.home is None and t.size]
        home = (
            self.chance.choice(streams).number if streams and self.chance.random() < 0.5 else None
        )
        thing = self.add(
            "mem", size=size if size < 1 << 40 else 0, home=home, alive=0 < size < 1 << 40
        )
        self.emit("cuMemAlloc_v2", thing.number, size)
        if thing.size and self.current is not None:
            self.define(thing)

    def make_cuMemAllocAsync(self) -> None:
        size = self.chance.choice(SIZES)
        thing = self.add("mem", size=size)
        self.emit("cuMemAllocAsync", thing.number, size, None)
        if self.current is not None:
            self.define(thing)

    def make_cuMemAllocPitch_v2(self) -> None:
        width, height = (
            self.chance.choice(SIZES[:6]),
            0 if self.odd() else self.chance.choice((1, 3, 8)),
        )
        element = 5 if self.odd() else self.chance.choice((4, 8, 16))
        good = height > 0 and element != 5
        thing = self.add("mem", size=width * height if good else 0, alive=good)
        self.emit("cuMemAllocPitch_v2", thing.number, width, height, element)
        if thing.size and self.current is not None:
            self.define(thing)

    def make_cuMemFreeAsync(self) -> None:
        found = self.own("mem")
        number = self.handle("mem") if self.odd() or not found else self.chance.choice(found).number
        self.settle()
        self.emit("cuMemFreeAsync", number, None)
        if number is not None:
            self.forget("mem", number)

    def make_cuMemFree_v2(self) -> None:
        found = [t for t in self.own("mem") if t.owner is None]
        if found:
            thing = self.chance.choice(found)
            self.settle()
            self.emit("cuMemFree_v2", thing.number)
            self.end(thing)
        elif self.current is not None:
            self.emit("cuMemFree_v2", None)

    def fill_or_copy(self, name: str) -> None:
        thing, where = self.piece()
        if thing is None:
            return
        home = [thing.home] if "Async" in name else []
        unit = 4 if "32" in name else 2 if "16" in name else 1
        if name.startswith("cuMemsetD2D"):
            height = self.chance.choice((0, 1, 2, 5))
            width = self.length(thing, where[1], unit * max(1, height))
            pitch = max(0, width * unit - 1) if self.odd() else width * unit
            self.emit(name, where, pitch, self.number("b", name), width, height, *home)
        elif name.startswith("cuMemset"):
            self.emit(
                name, where, self.number("b", name), self.length(thing, where[1], unit), *home
            )
        elif "DtoD" in name:
            others = [
                t for t in self.own("mem") if t.home == thing.home and t is not thing and t.size
            ]
            if others:
                other = self.chance.choice(others)
                length = min(self.length(thing, where[1]), self.length(other, 0))
                self.emit(name, where, [other.number, 0], length, *home)
        else:
            length = min(self.length(thing, where[1]), thing.size + 4)
            if "HtoD" in name:
                self.emit(name, where, [length, self.chance.randrange(256)], length, *home)
            else:
                self.emit(name, length, where, length)

    def make_cuMemcpyDtoHAsync_v2(self) -> None:
        thing, where = self.piece()
        if thing:
            length = min(self.length(thing, where[1]), thing.size + 4)
            self.emit("cuMemcpyDtoHAsync_v2", where, length, thing.home)

    def make_cuMemcpy2D_v2(self) -> None:
        thing, where = self.piece()
        if thing is None:
            return
        height = self.chance.choice((0, 1, 2, 7))
        width = min(thing.size, self.length(thing, where[1], max(1, height)))
        pitches = [
            max(0, width - 1) if self.odd() else width + 3 * (side == host)
            for side, host in ((0, 0), (1, 0))
        ]
        self.emit("cuMemcpy2D_v2", self.chance.random() < 0.5, where, [*pitches, width, height])

    def asked(self) -> list[int]:
        """What lies behind an allocation may be a variable of a module: there is no right answer."""
        thing, place = self.piece(writable=False)
        return place if thing is None or place[1] < max(1, thing.size) else [NONE, 8]

    def make_cuMemGetAddressRange_v2(self) -> None:
        self.emit("cuMemGetAddressRange_v2", self.asked())

    def make_cuPointerGetAttribute(self) -> None:
        self.emit("cuPointerGetAttribute", self.chance.choice((2, 9)), self.asked())

    # ---- streams

    def make_cuStreamCreate(self) -> None:
        flags = 2 if self.odd() else self.chance.choice((0, 0, 1))
        thing = self.add(
            "stm", size=int(flags == 0), alive=flags != 2
        )  # a size: memory may live in it
        self.emit("cuStreamCreate", thing.number, flags)

    def make_cuStreamDestroy_v2(self) -> None:
        found = self.own("stm")
        if not found:
            self.spoil()
            return self.emit("cuStreamDestroy_v2", None)
        thing = self.chance.choice(found)
        self.settle()
        self.emit("cuStreamDestroy_v2", thing.number)
        self.end(thing)
        for other in self.things:
            if other.home == thing.number:
                other.home = None
        return None

    def make_cuLaunchHostFunc(self) -> None:
        stream = self.handle("stm")
        group = f"thread {self.thread}, context {self.current}, stream {stream}"
        self.emit("cuLaunchHostFunc", stream, group, len(self.steps))

    def make_cuEventElapsedTime_v2(self) -> None:
        """Mostly of events that have been recorded."""
        first, second = self.handle("evt"), self.handle("evt")
        for event in (first, second):
            if event is not None and self.chance.random() < 0.9:
                self.emit("cuEventRecord", event, None)
                self.emit("cuEventSynchronize", event)
        self.emit("cuEventElapsedTime_v2", first, second)

    # ---- modules

    def make_cuModuleLoadData(self) -> None:
        image = "all" if not self.odd() else self.chance.choice(sorted(IMAGES))
        thing = self.add("mod", image=image, alive=image in GOOD)
        self.emit("cuModuleLoadData", thing.number, image)

    def make_cuModuleLoadDataEx(self) -> None:
        image = self.chance.choice(sorted(IMAGES)) if self.odd() else "all"
        thing = self.add("mod", image=image, alive=image in GOOD)
        self.emit("cuModuleLoadDataEx", thing.number, image, self.chance.choice((0, 1, 20, 512)))

    def make_cuLinkComplete(self) -> None:
        images = ["all"] if not self.odd() else self.chance.choices(sorted(IMAGES), k=2)
        thing = self.add("mod", image="all", alive=images == ["all"])
        self.emit("cuLinkComplete", thing.number, *images)

    def make_cuLibraryLoadData(self) -> None:
        image = (
            "empty" if self.odd() else "all"
        )  # what is damaged is found when it is used: docs/guest-driver.md
        thing = self.add("lib", image=image)
        self.emit("cuLibraryLoadData", thing.number, image)

    def make_cuModuleGetFunction(self) -> None:
        self.look_up("cuModuleGetFunction", "fun", "mod")

    def make_cuLibraryGetKernel(self) -> None:
        self.look_up("cuLibraryGetKernel", "ker", "lib")

    def look_up(self, call: str, kind: str, of: str) -> None:
        found = [t for t in self.own(of) if t.image == "all"]
        kernel = self.chance.choice(sorted(KERNELS))
        name = "missing" if self.odd() else kernel
        owner = self.chance.choice(found).number if found else self.handle(of)
        right = name == kernel and owner is not None and any(t.number == owner for t in found)
        thing = self.add(kind, owner=owner, kernel=kernel, alive=right)
        self.emit(call, thing.number, owner, name)

    def make_cuKernelGetFunction(self) -> None:
        found = [t for t in self.own("ker") if t.kernel]
        if found and self.current is not None:
            source = self.chance.choice(found)
            thing = self.add("fun", kernel=source.kernel)
            self.emit("cuKernelGetFunction", thing.number, source.number)

    def make_cuModuleGetGlobal_v2(self) -> None:
        found = [t for t in self.own("mod") if t.image == "all"]
        if not found:
            self.spoil()
        owner = self.chance.choice(found).number if found else None
        name = "missing" if self.odd() else "counter"
        good = owner is not None and name == "counter"
        thing = self.add("mem", size=64 if good else 0, owner=owner, alive=good)
        self.emit("cuModuleGetGlobal_v2", thing.number, owner, name)

    def unload(self, call: str, kind: str) -> None:
        found = self.own(kind)
        if not found:
            self.spoil()
            return self.emit(call, None)
        thing = self.chance.choice(found)
        self.settle()
        self.emit(call, thing.number)
        self.end(thing)
        for other in self.things:
            if other.owner == thing.number and other.kind in ("fun", "ker", "mem"):
                other.alive = False
            if kind == "lib" and other.kind == "fun" and other.owner is None:
                other.alive = False  # of one of its kernels, perhaps
        return None

    def make_cuModuleUnload(self) -> None:
        self.unload("cuModuleUnload", "mod")

    def make_cuLibraryUnload(self) -> None:
        self.unload("cuLibraryUnload", "lib")

    def prepare_launch(self) -> None:
        """What a launch needs; each call of it may be the one with something wrong."""
        for kind, make in (
            ("mod", self.make_cuModuleLoadData),
            ("fun", self.make_cuModuleGetFunction),
            ("mem", self.make_cuMemAlloc_v2),
        ):
            if not self.own(kind) and self.current is not None:
                make()
                self.spoilt = False

    def make_cuLaunchKernel(self) -> None:
        self.prepare_launch()
        found = [t for t in self.own("fun") if t.kernel]
        if not found:
            return
        function = self.chance.choice(found)
        pieces = [t for t in self.own("mem") if t.size >= 4 and t.owner is None]
        if not pieces and KERNELS[function.kernel]:
            return
        shape = [
            self.chance.choice((1, 1, 2, 3)),
            1,
            1,
            self.chance.choice((1, 32, 33, 64)),
            1,
            1,
            0,
        ]
        if self.odd():
            shape[self.chance.randrange(7)] = self.chance.choice((0, 1 << 31, 2000, 1 << 20))
        home, values = None, list[Any]()
        if pieces:
            first = self.chance.choice(pieces)
            same = [t for t in pieces if t.home == first.home]
            used = [first, self.chance.choice(same)]
            home, most = first.home, min(t.size for t in used) // 4
            count = {"p": 0, "u": 0}
            for form in KERNELS[function.kernel]:
                if form == "p":
                    value: Any = [used[count["p"]].number, 0]
                else:
                    value = (
                        self.chance.randint(0, most)
                        if not count["u"]
                        else self.chance.randrange(99)
                    )
                values.append(value)
                count[form] += 1
        self.emit("cuLaunchKernel", function.number, function.kernel, shape, home, values)


def generate(seed: int, devices: int = 1) -> dict[str, Any]:
    """The sequence of a seed. Two of three take turns, and share what they have."""
    in_turns = seed % 3 != 0
    made = Generator(seed, in_turns, 1 + seed % 4, devices)
    for thread in range(made.threads):
        made.thread = thread
        if not in_turns or thread == 0 or made.chance.random() < 0.5:
            make = made.add("ctx")
            made.emit("cuCtxCreate_v2", make.number, 0, made.device())
            made.stacks[thread].append(make.number)
            make.context = make.number
    while len(made.steps) < STEPS:
        made.thread = made.chance.randrange(made.threads)
        with suppress(SkipError):
            made.choose()
    for thread in range(made.threads):
        made.thread = thread
        made.settle()
    return {"seed": seed, "in_turns": in_turns, "threads": made.threads, "steps": made.steps}
