/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuGraphDebugDotPrint in terms of the calls that read a graph. Each library that has those calls includes it in one file.
 * https://graphviz.org/doc/info/lang.html
 */
#ifndef VGPUMGR_GRAPH_DOT_H
#define VGPUMGR_GRAPH_DOT_H

#include <any_node.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { DOT_FLAGS = 2 * CU_GRAPH_DEBUG_DOT_FLAGS_FABRIC_CPY_BATCH_NODE_PARAMS - 1 };

struct dot {
	FILE *file;
	unsigned int flags;
};

static inline bool dot_wants(const struct dot *d, unsigned int flag)
{
	return d->flags & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
}

static inline const char *dot_type(CUgraphNodeType type)
{
	static const char *const names[] = { "KERNEL", "MEMCPY", "MEMSET", "HOST", "GRAPH", "EMPTY", "WAIT_EVENT",
					     "EVENT_RECORD", "EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT", "MEM_ALLOC", "MEM_FREE",
					     "BATCH_MEM_OP", "CONDITIONAL" };

	return (unsigned int)type < sizeof(names) / sizeof(names[0]) ? names[type] : "OTHER";
}

/* What a name has may have a meaning in a label. */
static inline void dot_text(const struct dot *d, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', d->file);
		fputc(*text, d->file);
	}
}

static inline CUresult dot_kernel(const struct dot *d, CUgraphNode node)
{
	CUDA_KERNEL_NODE_PARAMS_v2 k;
	const char *name = "";
	CUresult r = cuGraphKernelNodeGetParams_v2(node, &k);

	if (r == CUDA_SUCCESS)
		r = cuFuncGetName(&name, k.func ? k.func : (CUfunction)k.kern);
	if (r != CUDA_SUCCESS)
		return r;
	fputs("\\n", d->file);
	dot_text(d, name);
	if (dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS))
		fprintf(d->file, "\\ngrid %u,%u,%u\\nblock %u,%u,%u\\nshared %u bytes", k.gridDimX, k.gridDimY, k.gridDimZ,
			k.blockDimX, k.blockDimY, k.blockDimZ, k.sharedMemBytes);
	if (dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
		fprintf(d->file, "\\nfunction %p", (void *)k.func);
	return CUDA_SUCCESS;
}

static inline char dot_side(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_HOST ? 'H' : type == CU_MEMORYTYPE_ARRAY ? 'A' : 'D';
}

static inline CUresult dot_copy(const struct dot *d, CUgraphNode node)
{
	CUDA_MEMCPY3D c;
	CUresult r = cuGraphMemcpyNodeGetParams(node, &c);

	if (r != CUDA_SUCCESS)
		return r;
	fprintf(d->file, "\\n%cto%c", dot_side(c.srcMemoryType), dot_side(c.dstMemoryType));
	if (dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
		fprintf(d->file, "\\n%zu x %zu x %zu bytes", c.WidthInBytes, c.Height, c.Depth);
	return CUDA_SUCCESS;
}

static inline CUresult dot_fill(const struct dot *d, CUgraphNode node)
{
	CUDA_MEMSET_NODE_PARAMS m;
	CUresult r = cuGraphMemsetNodeGetParams(node, &m);

	if (r == CUDA_SUCCESS)
		fprintf(d->file, "\\n0x%" PRIx64 " = %u\\n%zu x %zu of %u bytes", (uint64_t)m.dst, m.value, m.width, m.height,
			m.elementSize);
	return r;
}

static inline CUresult dot_host(const struct dot *d, CUgraphNode node)
{
	CUDA_HOST_NODE_PARAMS h;
	CUresult r = cuGraphHostNodeGetParams(node, &h);

	if (r == CUDA_SUCCESS)
		fprintf(d->file, "\\nfunction %p\\ndata %p", *(void **)&h.fn, h.userData);
	return r;
}

static inline CUresult dot_event(const struct dot *d, CUgraphNode node, CUgraphNodeType type)
{
	CUevent e;
	CUresult r = type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? cuGraphEventWaitNodeGetEvent(node, &e) :
							     cuGraphEventRecordNodeGetEvent(node, &e);

	if (r == CUDA_SUCCESS)
		fprintf(d->file, "\\nevent %p", (void *)e);
	return r;
}

static inline CUresult dot_memory(const struct dot *d, CUgraphNode node)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS p;
	CUresult r = cuGraphBatchMemOpNodeGetParams(node, &p);
	struct cuda_memory_operation m;

	for (unsigned int i = 0; r == CUDA_SUCCESS && i < p.count; i++) {
		r = cuda_read_memory_operation(&p.paramArray[i], false, &m);
		if (r == CUDA_SUCCESS)
			fprintf(d->file, "\\noperation %u 0x%" PRIx64 " 0x%" PRIx64, m.kind, (uint64_t)m.address, m.value);
	}
	return r;
}

static inline CUresult dot_allocation(const struct dot *d, CUgraphNode node)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p;
	CUresult r = cuGraphMemAllocNodeGetParams(node, &p);

	if (r == CUDA_SUCCESS)
		fprintf(d->file, "\\n0x%" PRIx64 "\\n%zu bytes", (uint64_t)p.dptr, p.bytesize);
	return r;
}

static inline CUresult dot_free(const struct dot *d, CUgraphNode node)
{
	CUdeviceptr address;
	CUresult r = cuGraphMemFreeNodeGetParams(node, &address);

	if (r == CUDA_SUCCESS)
		fprintf(d->file, "\\n0x%" PRIx64, (uint64_t)address);
	return r;
}

static inline CUresult dot_conditional(const struct dot *d, CUgraphNode node)
{
	static const char *const kinds[] = { "IF", "WHILE", "SWITCH" };
	CUDA_CONDITIONAL_NODE_PARAMS p;
	CUresult r = conditional_get(node, &p);

	if (r == CUDA_SUCCESS)
		fprintf(d->file, "\\n%s of %u\\nhandle 0x%" PRIx64, p.type < 3 ? kinds[p.type] : "OTHER", p.size,
			(uint64_t)p.handle);
	return r;
}

/* Beside its type. */
static inline CUresult dot_known(const struct dot *d, CUgraphNode node, CUgraphNodeType type)
{
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return dot_kernel(d, node);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return dot_copy(d, node);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS) ? dot_fill(d, node) : CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_HOST:
		return dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS) ? dot_host(d, node) : CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS) ? dot_event(d, node, type) : CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS) ? dot_allocation(d, node) : CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS) ? dot_free(d, node) : CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS) ? dot_memory(d, node) : CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS) ? dot_conditional(d, node) : CUDA_SUCCESS;
	default:
		return CUDA_SUCCESS;
	}
}

/*
 * A node is in the picture without what cannot be read of it: a library's, one whose event or function has been destroyed, a
 * copy of a form that has no name here. Only what ends the picture as a whole is an error.
 */
static inline CUresult dot_allow(CUresult r)
{
	return r == CUDA_ERROR_NOT_SUPPORTED || r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_INVALID_HANDLE ? CUDA_SUCCESS : r;
}

static inline CUresult dot_contents(const struct dot *d, CUgraphNode node, CUgraphNodeType type)
{
	return dot_allow(dot_known(d, node, type));
}

static inline CUresult dot_graph(const struct dot *d, CUgraph graph);

static inline CUresult dot_bodies(const struct dot *d, CUgraphNode node)
{
	CUDA_CONDITIONAL_NODE_PARAMS p;
	CUresult r = conditional_get(node, &p);

	if (r != CUDA_SUCCESS)
		return dot_allow(r);
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < p.size; i++)
		r = dot_graph(d, p.phGraph_out[i]);
	return r;
}

static inline CUresult dot_node(const struct dot *d, unsigned int graph, CUgraphNode node)
{
	CUgraphNodeType type;
	unsigned int number;
	CUgraph child;
	CUresult r = cuGraphNodeGetType(node, &type);

	if (r == CUDA_SUCCESS)
		r = cuGraphNodeGetLocalId(node, &number);
	if (r != CUDA_SUCCESS)
		return r;
	fprintf(d->file, "\t\"graph_%u_node_%u\" [shape=box, label=\"%u\\n%s", graph, number, number, dot_type(type));
	r = dot_contents(d, node, type);
	if (dot_wants(d, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
		fprintf(d->file, "\\nnode %p", (void *)node);
	fputs("\"];\n", d->file);
	if (r == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return dot_bodies(d, node);
	if (r != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_GRAPH)
		return r;
	r = cuGraphChildGraphNodeGetGraph(node, &child);
	return r == CUDA_SUCCESS ? dot_graph(d, child) : dot_allow(r);
}

static inline CUresult dot_edge(const struct dot *d, unsigned int graph, CUgraphNode from, CUgraphNode to)
{
	unsigned int a, b;
	CUresult r = cuGraphNodeGetLocalId(from, &a);

	if (r == CUDA_SUCCESS)
		r = cuGraphNodeGetLocalId(to, &b);
	if (r == CUDA_SUCCESS)
		fprintf(d->file, "\t\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";\n", graph, a, graph, b);
	return r;
}

static inline CUresult dot_nodes(const struct dot *d, CUgraph graph, unsigned int number)
{
	CUgraphNode *nodes;
	size_t count = 0;
	CUresult r = cuGraphGetNodes(graph, NULL, &count);

	if (r != CUDA_SUCCESS || !count)
		return r;
	nodes = calloc(count, sizeof(*nodes));
	r = nodes ? cuGraphGetNodes(graph, nodes, &count) : CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = dot_node(d, number, nodes[i]);
	free(nodes);
	return r;
}

static inline CUresult dot_edges(const struct dot *d, CUgraph graph, unsigned int number)
{
	CUgraphNode *ends;
	size_t count = 0, room;
	CUresult r = cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &count);

	if (r != CUDA_SUCCESS || !count)
		return r;
	room = count;
	ends = calloc(2 * room, sizeof(*ends));
	r = ends ? cuGraphGetEdges_v2(graph, ends, ends + room, NULL, &count) : CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = dot_edge(d, number, ends[i], ends[room + i]);
	free(ends);
	return r;
}

static inline CUresult dot_graph(const struct dot *d, CUgraph graph)
{
	unsigned int number;
	CUresult r = cuGraphGetId(graph, &number);

	if (r != CUDA_SUCCESS)
		return r;
	fprintf(d->file, "\tsubgraph cluster_%u {\n\tlabel=\"graph_%u\";\n", number, number);
	r = dot_nodes(d, graph, number);
	if (r == CUDA_SUCCESS)
		r = dot_edges(d, graph, number);
	fputs("\t}\n", d->file);
	return r;
}

static inline CUresult dot_print(CUgraph graph, const char *path, unsigned int flags)
{
	struct dot d = { .flags = flags };
	unsigned int number;
	CUresult r = path && !(flags & ~(unsigned int)DOT_FLAGS) ? cuGraphGetId(graph, &number) : CUDA_ERROR_INVALID_VALUE;

	if (r != CUDA_SUCCESS)
		return r;
	d.file = fopen(path, "we");
	if (!d.file)
		return CUDA_ERROR_OPERATING_SYSTEM;
	fputs("digraph dot {\n", d.file);
	r = dot_graph(&d, graph);
	fputs("}\n", d.file);
	if (ferror(d.file) && r == CUDA_SUCCESS)
		r = CUDA_ERROR_OPERATING_SYSTEM;
	return fclose(d.file) && r == CUDA_SUCCESS ? CUDA_ERROR_OPERATING_SYSTEM : r;
}

#endif
