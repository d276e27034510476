/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that graphs allocate and free, as CUDA documents it: its address is that of its node, whatever is instantiated and
 * launched; a launch makes it usable, which a free node, a free by the program or the next launch ends. The guest's libcuda and
 * the simulated driver have the same books. Both let such memory have its bytes as long as a node or the program has it, so that
 * a node is nothing but its place in the order.
 */
#ifndef VGPUMGR_GRAPH_BLOCK_H
#define VGPUMGR_GRAPH_BLOCK_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct graph_block {
	struct graph_block *next;
	uint64_t context, address;
	size_t bytes;
	CUdevice device;
	uint64_t home, freed_in; /* graphs: that allocates it; that frees it, as long as there are such nodes, else 0 */
	unsigned int nodes;      /* of graphs and executable graphs, that allocate or free it */
	unsigned int frees;      /* of these, that free it */
	bool live;               /* launched and not freed since */
	bool lost;               /* its context is no more */
};

/* What the nodes of a graph, or of an executable one, allocate and free. All zero: nothing. */
struct graph_blocks {
	struct graph_use {
		struct graph_block *block;
		uint32_t node;
		bool frees;
	} *at;
	size_t count;
	struct graph_blocks *twin; /* of a graph its executable one, and the other way round: there is one at a time */
};

/* What a node is to allocate on device `own`, one of `devices`. */
CUresult cuda_check_graph_allocation(const CUDA_MEM_ALLOC_NODE_PARAMS *p, CUdevice own, int devices);
/* A new node that allocates, of the graph with that number, which is not 0. `what`: context, address, bytes, device. */
CUresult graph_blocks_allocate(struct graph_blocks *g, uint64_t graph, uint32_t node, const struct graph_block *what);
/* Whether a node may free it; and such a node. */
CUresult graph_blocks_may_free(uint64_t address);
CUresult graph_blocks_free(struct graph_blocks *g, uint64_t graph, uint32_t node, uint64_t address);
/* What a node does, as its parameters; false: it neither allocates nor frees. */
bool graph_blocks_find(const struct graph_blocks *g, uint32_t node, bool *frees, CUDA_MEM_ALLOC_NODE_PARAMS *params);
/* An executable graph of it; there may be one. */
CUresult graph_blocks_instantiate(struct graph_blocks *exec, struct graph_blocks *g);
/* Before a launch, and once it is one; `again`: what the last one left is freed by this one. */
CUresult graph_blocks_may_launch(const struct graph_blocks *exec, bool again);
void graph_blocks_launched(struct graph_blocks *exec);
/* It has none from now on. The caller gives back the memory of those that it gets, if it is not lost, and frees them. */
struct graph_block *graph_blocks_drop(struct graph_blocks *g);
/*
 * The program frees memory; false: it is no graph's. *r says whether it may. *ended: one that no graph and no program has any more, as by
 * graph_blocks_drop(); NULL: its graph still has it.
 */
bool graph_block_free(uint64_t address, CUresult *r, struct graph_block **ended);
/* Whether there are any. */
bool graph_block_any(void);
/* A context is no more, and so is its memory. */
void graph_blocks_forget(uint64_t context);
/* cuDeviceGetGraphMemAttribute and cuDeviceSetGraphMemAttribute, of a device that there is. */
CUresult graph_memory_attribute(CUdevice device, CUgraphMem_attribute attribute, bool set, void *value);

#endif
