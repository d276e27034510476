"""Graphs, as programs of their own: what one uses, nothing else does, so that all of it is defined."""

from __future__ import annotations

import ctypes
import random
import zlib
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from tests.differential.calls import IMAGES

WORDS = 16
#: what the two programs call, by the name under which they are in sequences
GRAPH_PROGRAMS = {
    "cuGraphLaunch": [
        "cuGraphCreate", "cuGraphDestroy", "cuGraphClone", "cuGraphAddKernelNode_v2", "cuGraphAddMemcpyNode",
        "cuGraphAddMemsetNode", "cuGraphAddEmptyNode", "cuGraphAddEventRecordNode", "cuGraphAddChildGraphNode",
        "cuGraphGetNodes", "cuGraphNodeGetType", "cuGraphDestroyNode", "cuGraphInstantiateWithFlags",
        "cuGraphExecDestroy", "cuGraphExecUpdate_v2", "cuGraphNodeSetEnabled", "cuGraphAddHostNode",
        "cuGraphHostNodeSetParams", "cuGraphExecHostNodeSetParams", "cuGraphExecMemcpyNodeSetParams",
        "cuGraphAddNode_v2", "cuGraphNodeSetParams", "cuGraphExecNodeSetParams", "cuGraphKernelNodeGetParams_v2",
        "cuGraphMemsetNodeGetParams", "cuGraphMemcpyNodeGetParams", "cuGraphEventRecordNodeGetEvent",
        "cuGraphNodeGetLocalId", "cuGraphKernelNodeGetAttribute", "cuGraphKernelNodeSetAttribute",
        "cuGraphKernelNodeCopyAttributes", "cuGraphChildGraphNodeGetGraph",
        "cuGraphExecChildGraphNodeSetParams", "cuGraphAddBatchMemOpNode", "cuGraphBatchMemOpNodeGetParams",
        "cuGraphAddMemAllocNode", "cuGraphAddMemFreeNode", "cuGraphMemAllocNodeGetParams",
        "cuGraphMemFreeNodeGetParams", "cuGraphConditionalHandleCreate",
    ],
    "cuStreamEndCapture": [
        "cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", "cuGraphNodeGetDependencies",
        "cuStreamBeginCapture_v2", "cuGraphLaunch", "cuMemcpy2DAsync_v2", "cuLaunchHostFunc",
        "cuStreamBeginCaptureToGraph", "cuStreamUpdateCaptureDependencies", "cuStreamUpdateCaptureDependencies_v2",
    ],
}  # fmt: skip


FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)


class Kernel(ctypes.Structure):
    _fields_ = [
        ("func", c_void_p),
        ("shape", c_uint * 7),
        ("params", c_void_p),
        ("rest", c_void_p * 3),
    ]


class Copy(ctypes.Structure):
    _fields_ = [("sides", c_size_t * 22), ("extent", c_size_t * 3)]


class Fill(ctypes.Structure):
    _fields_ = [
        ("dst", c_uint64), ("pitch", c_size_t), ("value", c_uint), ("element", c_uint),
        ("width", c_size_t), ("height", c_size_t),
    ]  # fmt: skip


class Program:
    """Its own memory, kernel, streams and events; every code that it gets is kept."""

    def __init__(self, cu: ctypes.CDLL, seed: int) -> None:
        self.cu, self.chance, self.answers = cu, random.Random(seed), list[Any]()
        self.memory, module, self.function = c_uint64(), c_void_p(), c_void_p()
        self("cuMemAlloc_v2", byref(self.memory), c_size_t(4 * WORDS))
        self("cuMemsetD8_v2", self.memory, 0, c_size_t(4 * WORDS))
        self("cuCtxSynchronize")
        self("cuModuleLoadData", byref(module), IMAGES["all"].encode())
        self("cuModuleGetFunction", byref(self.function), module, b"fill")
        self.module = module
        self.streams = [self.make("cuStreamCreate", 1) for _ in range(2)]
        self.events = [self.make("cuEventCreate", 2) for _ in range(2)]
        self.host = (c_uint * WORDS)(*range(100, 100 + WORDS))
        self.back = (c_uint * WORDS)()
        self.called, self.copies = list[int](), set[int | None]()
        self.graph_memory: list[c_uint64] = []
        self.functions = [FUNCTION(lambda _, n=n: self.call(n)) for n in range(2)]

    def __call__(self, name: str, *arguments: Any) -> int:
        code: int = getattr(self.cu, name)(*arguments)
        self.answers.append([name, code])
        return code

    def make(self, name: str, *arguments: Any) -> c_void_p:
        made = c_void_p()
        if self(name, byref(made), *arguments):
            made.value = None
        return made

    def word(self) -> c_uint64:
        return c_uint64(self.memory.value + 4 * self.chance.randrange(WORDS - 4))

    def call(self, number: int) -> None:
        """Changes what the next copy reads, and keeps what the last one wrote."""
        self.called.append(number)
        self.host[number] += 1

    def host_copy(self, down: bool) -> Copy:
        device = [0, 0, 0, 0, 2, 0, self.word().value, 0, 0, 0, 0]
        at = ctypes.addressof(self.host if down else self.back) + 4 * self.chance.randrange(
            WORDS - 2
        )
        host = [0, 0, 0, 0, 1, at, 0, 0, 0, 0, 0]
        sides = (host, device) if down else (device, host)
        return Copy((c_size_t * 22)(*sides[0], *sides[1]), (c_size_t * 3)(8, 1, 1))

    def function_node(self) -> Any:
        return (c_void_p * 2)(ctypes.cast(self.chance.choice(self.functions), c_void_p).value, None)

    def last_word(self) -> c_uint64:
        """That no stream writes to."""
        return c_uint64(self.memory.value + 4 * (WORDS - 1))

    def parameters(self) -> Any:
        """Of the kernel: some words are filled with rising numbers."""
        cells = (self.word(), c_uint(self.chance.randint(1, 4)), c_uint(self.chance.randrange(99)))
        return (c_void_p * 3)(*map(ctypes.addressof, cells)), cells

    def kernel(self) -> tuple[Kernel, Any]:
        params = self.parameters()
        shape = (c_uint * 7)(1, 1, 1, self.chance.choice((1, 32, 0)), 1, 1, 0)
        return Kernel(self.function, shape, ctypes.addressof(params[0])), params

    def copy(self) -> Copy:
        sides = [[0, 0, 0, 0, 2, 0, self.word().value, 0, 0, 0, 0] for _ in range(2)]
        return Copy((c_size_t * 22)(*sides[0], *sides[1]), (c_size_t * 3)(8, 1, 1))

    def count(self, graph: c_void_p) -> None:
        for name, lists in (
            ("cuGraphGetNodes", 1),
            ("cuGraphGetRootNodes", 1),
            ("cuGraphGetEdges", 2),
        ):
            number = c_size_t()
            self(name, graph, *[None] * lists, byref(number))
            self.answers.append(number.value)

    def run(self, graph: c_void_p) -> c_void_p:
        executable = self.make("cuGraphInstantiateWithFlags", graph, c_uint64(0))
        for _ in range(self.chance.randint(1, 3) if executable else 0):
            self("cuGraphLaunch", executable, self.chance.choice(self.streams))
        return executable

    def free_graph_memory(self) -> None:
        """What launches have left, and what is no graph's: how much there is of it. Addresses may have come again."""
        self("cuCtxSynchronize")
        codes = [self.cu.cuMemFree_v2(c_uint64(a)) for a in {m.value for m in self.graph_memory}]
        self.answers.append(codes.count(0))

    def end(self) -> list[Any]:
        back = ctypes.create_string_buffer(4 * WORDS)
        self("cuCtxSynchronize")
        self("cuMemcpyDtoH_v2", back, self.memory, c_size_t(4 * WORDS))
        self.answers.append(zlib.crc32(back.raw))
        self.answers += [
            sorted(self.called),
            zlib.crc32(bytes(self.host)),
            zlib.crc32(bytes(self.back)),
        ]
        for stream in self.streams:
            self("cuStreamDestroy_v2", stream)
        for event in self.events:
            self("cuEventDestroy_v2", event)
        self("cuModuleUnload", self.module)
        self("cuMemFree_v2", self.memory)
        return self.answers


def any_fill(fill: Fill) -> Any:
    """CUgraphNodeParams: a type, room for every kind of parameters, and zeros around them."""
    params = (c_uint64 * 32)(2)
    ctypes.memmove(ctypes.addressof(params) + 16, byref(fill), ctypes.sizeof(fill))
    return params


def any_batch(p: Program) -> tuple[Any, Any]:
    """CUgraphNodeParams of operations in memory: writes, additions, and waits for what is there already."""
    count = p.chance.choice((1, 1, 2, 3, 0))
    words = (c_uint64 * (6 * max(1, count)))()
    for at in range(0, 6 * count, 6):
        words[at] = p.chance.choice((1, 2, 2, 5, 8, 8, 3))
        if words[at] == 8:  # reduction of 32 bits
            words[at + 1], words[at + 2] = p.chance.choice((6, 6, 9)) | 14 << 32, p.word().value
            words[at + 3] = p.chance.randrange(99)
        else:  # a wait that nothing which is written keeps from ending; 64 bits are not always aligned
            words[at + 1] = p.word().value
            wait = words[at] == 1
            words[at + 2], words[at + 3] = (0, 3) if wait else (p.chance.randrange(99), 0)
    params = (c_uint64 * 32)(12)
    params[3], params[4] = count, ctypes.addressof(words)
    params[5] = p.chance.choice((0,) * 9 + (1,))
    return params, words


def _add_memory(p: Program, graph: c_void_p, where: tuple[Any, ...], nodes: list[Any]) -> None:
    """A node that allocates, one that uses the memory, and sometimes one that frees it."""
    params = (c_uint64 * 15)(p.chance.choice((1,) * 9 + (3,)), 1)
    params[13] = p.chance.choice((4, 100, 5000, 0))
    made = p.make("cuGraphAddMemAllocNode", *where, params)
    if not made:
        return
    address = c_uint64(params[14])
    p.graph_memory.append(address)
    fill = Fill(address, 0, 7, 4, 1, 1)
    use = p.make("cuGraphAddMemsetNode", graph, byref(made), c_size_t(1), byref(fill), None)
    nodes += [made, use]
    if p.chance.random() < 0.6:
        free = p.make("cuGraphAddMemFreeNode", graph, byref(use), c_size_t(1), address)
        nodes += [free] if free else []


def _add_conditional(p: Program, graph: c_void_p, where: tuple[Any, ...]) -> c_void_p:
    """A node that decides by a default, with bodies of fills; sometimes of a handle or a size that is wrong."""
    handle, kind = c_uint64(), p.chance.choice((0, 0, 2, 2, 2, 3))
    value, flags = p.chance.randrange(4), p.chance.choice((1,) * 9 + (2,))
    p("cuGraphConditionalHandleCreate", byref(handle), graph, None, value, flags)
    size = p.chance.choice((1, 2, 2, 3, 0))
    params = (c_uint64 * 32)(13)
    params[2], params[3] = handle, kind | size << 32
    node = p.make("cuGraphAddNode", *where, byref(params))
    bodies = (c_void_p * size).from_address(params[4]) if node else ()
    for body in bodies:
        fill = Fill(p.word(), 0, p.chance.randrange(200), 1, 2, 1)
        inner = p.make("cuGraphAddMemsetNode", body, None, c_size_t(0), byref(fill), None)
        if inner and p.chance.random() < 0.3:
            p(
                "cuGraphAddHostNode",
                byref(c_void_p()),
                body,
                byref(inner),
                c_size_t(1),
                byref(p.function_node()),
            )
            p("cuGraphDestroy", c_void_p(body))
            other = p.chance.choice((graph, c_void_p(body)))
            p("cuGraphAddChildGraphNode", byref(c_void_p()), graph, None, c_size_t(0), other)
    if node:
        p.answers.append([params[3] == kind | size << 32, len(bodies)])
    return node


def _add_node(p: Program, graph: c_void_p, nodes: list[Any], child: c_void_p) -> None:
    some = p.chance.choices(nodes, k=p.chance.randint(0, 2)) if nodes else []
    where = (graph, (c_void_p * max(1, len(some)))(*[n.value for n in some]), c_size_t(len(some)))
    # a child with copies of host memory may be in a graph once only, when forwarded
    kind = p.chance.choice((*range(6), 9, 9)) if graph is child else p.chance.randrange(13)
    if kind == 0:
        kernel, _kept = p.kernel()
        node = p.make("cuGraphAddKernelNode_v2", *where, byref(kernel))
    elif kind == 1:
        node = p.make("cuGraphAddMemcpyNode", *where, byref(p.copy()), None)
    elif kind == 2:
        fill = Fill(p.word(), 0, p.chance.randrange(200), p.chance.choice((1, 2, 4, 3)), 2, 1)
        params, nodes_before, count = any_fill(fill), *where[1:]
        edges = (ctypes.c_ubyte * (8 * 2))(*[int(p.chance.random() < 0.05)])
        ways: list[tuple[Any, ...]] = [
            ("cuGraphAddMemsetNode", *where, byref(fill), None), ("cuGraphAddNode", *where, byref(params)),
            ("cuGraphAddNode_v2", graph, nodes_before, p.chance.choice((None, edges)), count, byref(params)),
        ]  # fmt: skip
        node = p.make(*p.chance.choice(ways))
    elif kind == 3:
        node = p.make("cuGraphAddEventRecordNode", *where, p.events[0])
    elif kind in (6, 7):
        node = p.make("cuGraphAddMemcpyNode", *where, byref(p.host_copy(kind == 6)), None)
        p.copies.add(node.value)
    elif kind == 8:
        node = p.make("cuGraphAddHostNode", *where, byref(p.function_node()))
    elif kind == 11:
        _add_memory(p, graph, where, nodes)
        return
    elif kind == 12:
        node = _add_conditional(p, graph, where)
    elif kind > 8:
        params, _kept = any_batch(p)
        batch = (c_uint64 * 4).from_buffer(params, 16)
        add = ("cuGraphAddBatchMemOpNode", *where, byref(batch))
        node = p.make(*p.chance.choice((add, ("cuGraphAddNode", *where, byref(params)))))
    else:
        node = (
            p.make("cuGraphAddEmptyNode", *where)
            if kind == 4
            else p.make("cuGraphAddChildGraphNode", *where, child)
        )
    if node:
        nodes.append(node)


class _KernelRead(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", c_void_p), ("shape", c_uint * 7), ("values", c_void_p), ("extra", c_void_p),
        ("kernel", c_void_p), ("context", c_void_p),
    )  # fmt: skip


def _read_node(p: Program, node: c_void_p, kind: int) -> None:
    """What a node does, of whatever type it is asked for; and what it is known by."""
    kernel, fill = _KernelRead(), Fill()
    if not p("cuGraphKernelNodeGetParams_v2", node, byref(kernel)):
        count = len(p.kernel()[1][0])
        values = (c_void_p * count).from_address(kernel.values or 0)
        # the first one is an address, which each driver chooses
        p.answers += [*kernel.shape, *[c_uint.from_address(v or 0).value for v in values[1:]]]
    if not p("cuGraphMemsetNodeGetParams", node, byref(fill)):
        p.answers += [fill.value, fill.element, fill.width, fill.height]
    batch = (c_uint64 * 4)()
    if not p("cuGraphBatchMemOpNodeGetParams", node, batch):
        found = (c_uint64 * (6 * (batch[1] & 0xFF))).from_address(batch[2])
        p.answers += [batch[1] & 0xFFFFFFFF, *[word & 0xFFFFFFFF for word in found[::6]]]
    copy = (c_uint64 * 25)()
    if not p("cuGraphMemcpyNodeGetParams", node, copy):
        p.answers += list(copy[-3:])
    memory = (c_uint64 * 15)()
    if not p("cuGraphMemAllocNodeGetParams", node, memory):
        p.answers.append(list(memory[:14]))
    p("cuGraphMemFreeNodeGetParams", node, byref(c_uint64()))
    one, value = c_uint(), (c_uint64 * 8)()
    p("cuGraphEventRecordNodeGetEvent", node, byref(c_void_p()))
    p("cuGraphNodeGetLocalId", node, byref(one))
    for attribute in (2, 8, p.chance.randrange(20)):
        p("cuGraphKernelNodeGetAttribute", node, attribute, value)
    value[0] = p.chance.randrange(3)
    p("cuGraphKernelNodeSetAttribute", node, p.chance.choice((2, 8, 10)), value)
    p("cuGraphKernelNodeCopyAttributes", node, node)
    inner, count = c_void_p(), c_size_t()
    if kind == 4 and not p("cuGraphChildGraphNodeGetGraph", node, byref(inner)):
        p("cuGraphGetNodes", inner, None, byref(count))
        p.answers.append(count.value)


def build_graph(cu: ctypes.CDLL, seed: int) -> list[Any]:
    """Nodes and edges at random, circles included; what can be run is run, changed, and run again."""
    p = Program(cu, seed)
    graph, child = p.make("cuGraphCreate", 0), p.make("cuGraphCreate", 0)
    nodes: list[Any] = []
    _add_node(p, child, [], child)
    for _ in range(p.chance.randint(1, 8)):
        _add_node(p, graph, nodes, child)
    for _ in range(3 if nodes else 0):
        pair = [byref(c_void_p(p.chance.choice(nodes).value)) for _ in range(2)]
        change = p.chance.choice(("cuGraphAddDependencies", "cuGraphRemoveDependencies"))
        p(change, graph, *pair, c_size_t(1))
    p.count(graph)
    executable = p.run(graph)
    kind, result = c_uint(), (c_void_p * 3)()
    for node in nodes:
        p("cuGraphNodeGetType", node, byref(kind))
        p.answers.append(kind.value)
        _read_node(p, node, kind.value)
        if executable and p.chance.random() < 0.3:
            other = any_fill(Fill(p.word(), 0, p.chance.randrange(200), 1, 2, 1))
            p("cuGraphExecNodeSetParams", executable, node, byref(other))
            p("cuGraphExecChildGraphNodeSetParams", executable, node, child)
            p("cuGraphNodeSetParams", node, byref(other))
            params, _kept = any_batch(p)
            p("cuGraphExecNodeSetParams", executable, node, byref(params))
            p("cuGraphNodeSetParams", node, byref(params))
            p("cuGraphExecHostNodeSetParams", executable, node, byref(p.function_node()))
            p("cuGraphHostNodeSetParams", node, byref(p.function_node()))
    if executable and nodes:
        node = p.chance.choice(nodes)  # not a copy with host memory: that is refused when forwarded
        if node.value not in p.copies:
            p("cuGraphNodeSetEnabled", executable, node, 0)
        p("cuGraphLaunch", executable, p.streams[0])
    copy = p.make("cuGraphClone", graph)
    if nodes and p.chance.random() < 0.5:
        p("cuGraphDestroyNode", nodes.pop())
    if executable:
        p("cuGraphExecUpdate_v2", executable, p.chance.choice((graph, copy)), result)
        p.answers.append((result[0] or 0) & 0xFFFFFFFF)
        p("cuGraphLaunch", executable, p.streams[1])
        p("cuGraphExecDestroy", executable)
    for each in (graph, copy, child):
        p("cuGraphDestroy", each)
    p.free_graph_memory()
    return p.end()


def _ask_dependencies(p: Program, stream: c_void_p) -> None:
    """How many nodes the stream's next one depends on, and how many each of these does."""
    status, nodes, count = c_uint(), c_void_p(), c_size_t()
    words = (byref(status), None, None, byref(nodes), None, byref(count))
    if p("cuStreamGetCaptureInfo_v3", stream, *words) or status.value != 1:
        return
    found = []
    for node in (c_void_p * count.value).from_address(nodes.value or 0) if count.value else ():
        p("cuGraphNodeGetDependencies", c_void_p(node), None, byref(count))
        found.append(count.value)
    p.answers.append(sorted(found))


def _steer(p: Program, stream: c_void_p) -> None:
    """A node of the program's own, and what the stream's next one waits for."""
    status, graph, nodes, count = c_uint(), c_void_p(), c_void_p(), c_size_t()
    words = (byref(graph), byref(nodes), None, byref(count))
    if p("cuStreamGetCaptureInfo_v3", stream, byref(status), None, *words) or status.value != 1:
        p("cuStreamUpdateCaptureDependencies", stream, None, c_size_t(0), 1)
        return
    fill = Fill(p.word(), 0, p.chance.randrange(200), 1, 2, 1)
    last = (c_void_p * max(1, count.value)).from_buffer_copy(
        bytes((c_void_p * count.value).from_address(nodes.value or 0)) if count.value else bytes(8)
    )
    node = p.make("cuGraphAddMemsetNode", graph, last, count, byref(fill), None)
    p("cuGraphMemsetNodeGetParams", node, byref(fill))
    p("cuGraphGetNodes", graph, None, byref(count))
    p.answers.append([fill.value, count.value])
    flags = p.chance.choice((0, 1, 1, 3))
    p("cuStreamUpdateCaptureDependencies_v2", stream, byref(node), None, c_size_t(1), flags)


def _capture_something(p: Program) -> None:
    stream, event = p.chance.choice(p.streams), p.chance.choice(p.events)
    kind = p.chance.randrange(28)
    if kind < 6:
        _kept, params = p.kernel()
        shape = (1, 1, 1, 32, 1, 1, 0)
        p("cuLaunchKernel", p.function, *shape, stream, params[0], None)
    elif kind < 10:
        p("cuMemsetD32Async", p.word(), p.chance.randrange(99), c_size_t(2), stream)
    elif kind < 13:
        p("cuMemcpyDtoDAsync_v2", p.word(), p.word(), c_size_t(8), stream)
    elif kind < 16:
        p("cuEventRecord", event, stream)
    elif kind < 20:
        p("cuStreamWaitEvent", stream, event, 0)
    elif kind == 24:
        memory = c_uint64()
        p("cuMemAllocAsync", byref(memory), c_size_t(p.chance.choice((8, 3000, 0))), stream)
        if memory:
            p("cuMemsetD32Async", memory, 3, c_size_t(2), stream)
            p.graph_memory.append(memory)
        if p.graph_memory and p.chance.random() < 0.6:
            p("cuMemFreeAsync", p.graph_memory[-1], stream)
    elif kind == 23:
        value = c_uint(p.chance.randrange(99))
        p("cuStreamWriteValue32_v2", stream, p.word(), value, p.chance.choice((0,) * 9 + (1,)))
        p("cuStreamWaitValue32_v2", stream, p.word(), c_uint(0), 3)
    elif kind == 20:
        at = ctypes.addressof(p.chance.choice((p.host, p.back)))
        p("cuMemcpyHtoDAsync_v2", p.word(), c_void_p(at), c_size_t(8), stream)
        p("cuLaunchHostFunc", stream, p.chance.choice(p.functions), None)
        p(
            "cuMemcpyDtoHAsync_v2",
            c_void_p(ctypes.addressof(p.back) + 16),
            p.word(),
            c_size_t(8),
            stream,
        )
        p("cuMemcpyAsync", p.word(), c_uint64(at), c_size_t(4), stream)
    elif kind == 21:
        status = c_uint()
        p("cuStreamIsCapturing", stream, byref(status))
        p.answers.append(status.value)
        _ask_dependencies(p, stream)
    elif kind == 22:
        _steer(p, stream)
    elif p.chance.random() < 0.3:
        wrong: list[tuple[Any, ...]] = [
            ("cuStreamSynchronize", stream), ("cuEventSynchronize", event), ("cuStreamBeginCapture_v2", stream, 2),
            ("cuCtxSynchronize",), ("cuMemsetD8_v2", p.last_word(), 1, c_size_t(4)),
        ]  # fmt: skip
        p(*p.chance.choice(wrong))


def capture_graph(cu: ctypes.CDLL, seed: int) -> list[Any]:
    """Work for two streams while one of them is captured; whatever comes of it is run."""
    p = Program(cu, seed)
    graphs = []
    mode, given = p.chance.choice((0, 1, 2)), c_void_p()
    if p.chance.random() < 0.3:
        given = p.make("cuGraphCreate", 0)
        fill = Fill(p.word(), 0, 7, 4, 2, 1)
        first = p.make("cuGraphAddMemsetNode", given, None, c_size_t(0), byref(fill), None)
        p(
            "cuStreamBeginCaptureToGraph",
            p.streams[0],
            given,
            byref(first),
            None,
            c_size_t(1),
            mode,
        )
    else:
        p("cuStreamBeginCapture_v2", p.streams[0], mode)
    for _ in range(p.chance.randint(1, 14)):
        _capture_something(p)
    for stream in (*p.streams, p.streams[0]):
        graph = c_void_p()
        if not p("cuStreamEndCapture", stream, byref(graph)):
            graphs.append(graph)
    p("cuCtxSynchronize")
    for graph in graphs:
        p.count(graph)
        executable = p.run(graph)
        p("cuCtxSynchronize")
        p("cuGraphDestroy", graph)
        p("cuGraphExecDestroy", executable)
    if given and given.value not in [g.value for g in graphs]:
        p.count(given)
        p("cuGraphDestroy", given)
    p.free_graph_memory()
    return p.end()
