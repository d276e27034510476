/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_block.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cuda_rules.h"

enum { DEVICES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph_block *blocks;
static _Atomic unsigned int blocks_count;
/* Of each device, in bytes; both attributes' highest values are reset by themselves. */
static struct {
	cuuint64_t now, used_high, reserved_high;
} memory[DEVICES];

CUresult cuda_check_graph_allocation(const CUDA_MEM_ALLOC_NODE_PARAMS *p, CUdevice own, int devices)
{
	struct cuda_reach reach = { own, devices, UINT32_C(1) << own, UINT32_C(1) << own };
	CUresult r = p && p->bytesize ? cuda_check_pool_properties(&p->poolProps) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS && p->poolProps.handleTypes) /* documented: no other process gets at it */
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS && (p->poolProps.location.id < 0 || p->poolProps.location.id >= devices))
		r = CUDA_ERROR_INVALID_DEVICE;
	if (r == CUDA_SUCCESS && p->accessDescCount > (size_t)devices)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && p->poolProps.location.id != own) /* CUDA permits it; here memory belongs to the current context */
		r = CUDA_ERROR_NOT_SUPPORTED;
	return r == CUDA_SUCCESS ? cuda_set_pool_access(p->accessDescs, p->accessDescCount, &reach) : r;
}

/* ---- under the lock */

static void count_bytes(const struct graph_block *b)
{
	if (b->device < 0 || b->device >= DEVICES)
		return;
	memory[b->device].now += b->bytes;
	if (memory[b->device].used_high < memory[b->device].now)
		memory[b->device].used_high = memory[b->device].now;
	if (memory[b->device].reserved_high < memory[b->device].now)
		memory[b->device].reserved_high = memory[b->device].now;
}

static void uncount_bytes(const struct graph_block *b)
{
	if (b->device >= 0 && b->device < DEVICES)
		memory[b->device].now -= b->bytes;
}

static struct graph_block *find(uint64_t address)
{
	struct graph_block *b = blocks;

	while (b && (b->address != address || b->lost))
		b = b->next;
	return b;
}

/* Takes it off the list if neither a graph nor a program has it. */
static bool end(struct graph_block *b)
{
	struct graph_block **at = &blocks;

	if (b->nodes || b->live)
		return false;
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	b->next = NULL;
	atomic_fetch_sub(&blocks_count, 1);
	if (!b->lost)
		uncount_bytes(b);
	return true;
}

/* Freed within the graph that allocates it: outside that it is never usable. */
static bool is_inner(const struct graph_block *b)
{
	return b->freed_in == b->home;
}

static CUresult add(struct graph_blocks *g, struct graph_block *b, uint32_t node, bool frees)
{
	struct graph_use *more = realloc(g->at, (g->count + 1) * sizeof(*more));

	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->at = more;
	more[g->count++] = (struct graph_use){ b, node, frees };
	b->nodes++;
	b->frees += frees;
	return CUDA_SUCCESS;
}

/* ---- nodes */

CUresult graph_blocks_allocate(struct graph_blocks *g, uint64_t graph, uint32_t node, const struct graph_block *what)
{
	struct graph_block *b = malloc(sizeof(*b));
	CUresult r;

	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*b = (struct graph_block){ .context = what->context, .address = what->address, .bytes = what->bytes,
				   .device = what->device, .home = graph };
	pthread_mutex_lock(&lock);
	r = add(g, b, node, false);
	if (r == CUDA_SUCCESS) {
		b->next = blocks;
		blocks = b;
		atomic_fetch_add(&blocks_count, 1);
		count_bytes(b);
	}
	pthread_mutex_unlock(&lock);
	if (r != CUDA_SUCCESS)
		free(b);
	return r;
}

static CUresult may_free(uint64_t address, struct graph_block **b)
{
	*b = find(address);
	return *b && !(*b)->freed_in ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_blocks_may_free(uint64_t address)
{
	struct graph_block *b;
	CUresult r;

	pthread_mutex_lock(&lock);
	r = may_free(address, &b);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult graph_blocks_free(struct graph_blocks *g, uint64_t graph, uint32_t node, uint64_t address)
{
	struct graph_block *b;
	CUresult r;

	pthread_mutex_lock(&lock);
	r = may_free(address, &b);
	if (r == CUDA_SUCCESS)
		r = add(g, b, node, true);
	if (r == CUDA_SUCCESS)
		b->freed_in = graph;
	pthread_mutex_unlock(&lock);
	return r;
}

bool graph_blocks_find(const struct graph_blocks *g, uint32_t node, bool *frees, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < g->count && !found; i++) {
		const struct graph_block *b = g->at[i].block;

		if (g->at[i].node != node)
			continue;
		found = true;
		*frees = g->at[i].frees;
		*params = (CUDA_MEM_ALLOC_NODE_PARAMS){ .bytesize = b->bytes, .dptr = b->address };
		params->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
		params->poolProps.location = (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_DEVICE };
		params->poolProps.location.id = b->device;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* ---- executable graphs */

CUresult graph_blocks_instantiate(struct graph_blocks *exec, struct graph_blocks *g)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (g->count && g->twin)
		r = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; r == CUDA_SUCCESS && i < g->count; i++)
		r = add(exec, g->at[i].block, g->at[i].node, g->at[i].frees);
	if (r == CUDA_SUCCESS && g->count) {
		exec->twin = g;
		g->twin = exec;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult graph_blocks_may_launch(const struct graph_blocks *exec, bool again)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; r == CUDA_SUCCESS && i < exec->count; i++) {
		const struct graph_block *b = exec->at[i].block;

		if (exec->at[i].frees ? !b->live && !is_inner(b) : b->live && !again)
			r = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void graph_blocks_launched(struct graph_blocks *exec)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < exec->count; i++) {
		struct graph_block *b = exec->at[i].block;

		b->live = !exec->at[i].frees && !is_inner(b);
	}
	pthread_mutex_unlock(&lock);
}

struct graph_block *graph_blocks_drop(struct graph_blocks *g)
{
	struct graph_block *ended = NULL;

	if (!g->count)
		return NULL;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < g->count; i++) {
		struct graph_block *b = g->at[i].block;

		b->nodes--;
		b->frees -= g->at[i].frees;
		if (!b->frees)
			b->freed_in = 0;
		if (end(b)) {
			b->next = ended;
			ended = b;
		}
	}
	if (g->twin)
		g->twin->twin = NULL;
	free(g->at);
	*g = (struct graph_blocks){ NULL, 0, NULL };
	pthread_mutex_unlock(&lock);
	return ended;
}

/* ---- beside graphs */

bool graph_block_any(void)
{
	return atomic_load_explicit(&blocks_count, memory_order_relaxed);
}

bool graph_block_free(uint64_t address, CUresult *r, struct graph_block **ended)
{
	struct graph_block *b;

	*ended = NULL;
	if (!graph_block_any())
		return false;
	pthread_mutex_lock(&lock);
	b = find(address);
	if (b) {
		*r = b->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
		b->live = false;
		*ended = *r == CUDA_SUCCESS && end(b) ? b : NULL;
	}
	pthread_mutex_unlock(&lock);
	return b;
}

void graph_blocks_forget(uint64_t context)
{
	struct graph_block *b, *next;

	if (!graph_block_any())
		return;
	pthread_mutex_lock(&lock);
	for (b = blocks; b; b = next) {
		next = b->next;
		if (b->context != context || b->lost)
			continue;
		uncount_bytes(b);
		b->lost = true;
		b->live = false;
		if (end(b))
			free(b);
	}
	pthread_mutex_unlock(&lock);
}

CUresult graph_memory_attribute(CUdevice device, CUgraphMem_attribute attribute, bool set, void *value)
{
	cuuint64_t *high, *number = value;
	CUresult r = CUDA_SUCCESS;

	if (!value || device < 0 || device >= DEVICES)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH	? &memory[device].used_high :
	       attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH ? &memory[device].reserved_high :
								  NULL;
	if (!high && attribute != CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
		r = CUDA_ERROR_INVALID_VALUE;
	else if (!set)
		*number = high ? *high : memory[device].now;
	else if (!high || *number) /* documented: only a reset to zero */
		r = CUDA_ERROR_INVALID_VALUE;
	else
		*high = memory[device].now;
	pthread_mutex_unlock(&lock);
	return r;
}
