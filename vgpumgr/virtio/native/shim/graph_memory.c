/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that wait for values in memory, write values and reduce them. */
#include <string.h>

#include "graph_place.h"
#include "graph_reads.h"
#include "graph_records.h"
#include "stream_memory.h"

static CUresult put(const struct shim_place *p, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, CUgraphNode *out)
{
	uint64_t words[CUDA_MEMORY_OPERATIONS][VG_MEMORY_WORDS];
	struct vg_graph_memory_request in = { SHIM_PLACE(p) };
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_memory_reply reply;
	CUresult r;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	if (params->ctx && (uint64_t)params->ctx != p->context)
		return shim_object_get(SHIM_CONTEXT, (uint64_t)params->ctx) ?
			       shim_unsupported("operations in memory in a graph, of another context than the current one,", &told) :
			       CUDA_ERROR_INVALID_VALUE;
	r = shim_pack_memory_operations(params->paramArray, params->count, params->flags, false, words, &in.operations);
	if (r != CUDA_SUCCESS)
		return r;
	r = vg_send_graph_memory(&in, &reply);
	return shim_place_finish(p, r, reply.added, out);
}

SHIM_API CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					   size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct shim_place p;
	CUresult r = shim_place_add(&p, phGraphNode, hGraph, dependencies, numDependencies);

	return r == CUDA_SUCCESS ? put(&p, nodeParams, phGraphNode) : r;
}

SHIM_API CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct shim_place p;
	CUresult r = shim_place_set(&p, SHIM_SET, NULL, hNode);

	return r == CUDA_SUCCESS ? put(&p, nodeParams, NULL) : r;
}

SHIM_API CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						     const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct shim_place p;
	CUresult r = shim_place_set(&p, SHIM_SET_EXEC, hGraphExec, hNode);

	return r == CUDA_SUCCESS ? put(&p, nodeParams, NULL) : r;
}

SHIM_API CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
	CUstreamBatchMemOpParams list[CUDA_MEMORY_OPERATIONS], *kept;
	struct vg_graph_node_read_reply out;
	uint64_t word[VG_MEMORY_WORDS];
	struct shim_object *graph;
	struct shim_node node;
	unsigned int count;
	CUresult r = shim_node_read(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out, &node, &out,
				    &(struct shim_host){ 0 });

	if (r != CUDA_SUCCESS)
		return r;
	count = out.parameters_length / sizeof(word);
	if (count > CUDA_MEMORY_OPERATIONS)
		return CUDA_ERROR_UNKNOWN;
	for (unsigned int i = 0; i < count; i++) {
		memcpy(word, out.parameters + i * sizeof(word), sizeof(word));
		vg_unpack_memory_operation(word, &list[i]);
	}
	graph = shim_object_get(SHIM_GRAPH, node.graph);
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	kept = shim_kept_bytes(graph, node.number, list, count * sizeof(list[0]));
	if (!kept)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*nodeParams_out = (CUDA_BATCH_MEM_OP_NODE_PARAMS){ (CUcontext)out.object, count, kept, 0 };
	return CUDA_SUCCESS;
}
