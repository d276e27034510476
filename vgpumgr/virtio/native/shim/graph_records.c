/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph's object has beside what it needs of the program: numbers, parameters that were read, child graphs. */
#include "graph_records.h"
#include "graph_memory_end.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Parameters of a node, as they were read: documented as valid until the node changes or ends. */
struct shim_kept {
	struct shim_kept *next;
	uint32_t node;
	uint64_t function; /* of a kernel, whose they are: the node may get another one meanwhile, with other parameters */
	uint32_t count;
	size_t bytes;
	void *values[]; /* pointers into the bytes behind them */
};

/* The same bytes are the same memory: two threads may read one node. */
static struct shim_kept *find(struct shim_object *graph, const struct shim_kept *like, const void *bytes)
{
	struct shim_kept **at = &graph->graph.kept, *k;

	while (*at && (*at)->node != like->node)
		at = &(*at)->next;
	k = *at;
	if (!k || (k->function == like->function && k->bytes == like->bytes && !memcmp(&k->values[k->count], bytes, k->bytes)))
		return k;
	*at = k->next;
	free(k);
	return NULL;
}

static struct shim_kept *make(const struct shim_kept *like, const struct shim_object *f, const void *bytes)
{
	struct shim_kept *k = malloc(sizeof(*k) + like->count * sizeof(void *) + like->bytes);

	if (!k)
		return NULL;
	*k = *like;
	memcpy(&k->values[k->count], bytes, k->bytes);
	for (uint32_t i = 0; i < k->count; i++)
		k->values[i] = (uint8_t *)&k->values[k->count] + f->function.parameters[i].offset;
	return k;
}

static void **keep(struct shim_object *graph, const struct shim_kept *like, const struct shim_object *f, const void *bytes)
{
	struct shim_kept *k;

	pthread_mutex_lock(&lock);
	k = find(graph, like, bytes);
	if (!k) {
		k = make(like, f, bytes);
		if (k) {
			k->next = graph->graph.kept;
			graph->graph.kept = k;
		}
	}
	pthread_mutex_unlock(&lock);
	return k ? k->values : NULL;
}

void **shim_kept(struct shim_object *graph, uint32_t node, const struct shim_object *f, const uint8_t *bytes)
{
	const struct shim_kept like = { NULL, node, f->id, f->function.parameters_count, f->function.parameters_bytes };

	return keep(graph, &like, f, bytes);
}

void *shim_kept_bytes(struct shim_object *graph, uint32_t node, const void *bytes, size_t count)
{
	const struct shim_kept like = { NULL, node, 0, 0, count };

	return keep(graph, &like, NULL, bytes);
}

/* ---- child graphs */

/* One has a handle once it was asked for, and the same ever after; `which`: of a node with several. */
struct shim_child {
	struct shim_child *next;
	uint32_t node, which;
	uint64_t graph;
};

bool shim_child_add(struct shim_object *graph, uint32_t node, uint32_t which, uint64_t child)
{
	struct shim_child *c = malloc(sizeof(*c));

	if (!c)
		return false;
	pthread_mutex_lock(&lock);
	*c = (struct shim_child){ graph->graph.children, node, which, child };
	graph->graph.children = c;
	pthread_mutex_unlock(&lock);
	return true;
}

uint64_t shim_child_find(const struct shim_object *graph, uint32_t node, uint32_t which)
{
	uint64_t found = 0;

	pthread_mutex_lock(&lock);
	for (const struct shim_child *c = graph->graph.children; c && !found; c = c->next)
		found = c->node == node && c->which == which ? c->graph : 0;
	pthread_mutex_unlock(&lock);
	return found;
}

uint64_t shim_child_take(struct shim_object *graph, uint32_t node)
{
	struct shim_child **at = &graph->graph.children, *c;
	uint64_t taken = 0;

	pthread_mutex_lock(&lock);
	while (*at && node != SHIM_EVERY_NODE && (*at)->node != node)
		at = &(*at)->next;
	c = *at;
	if (c) {
		*at = c->next;
		taken = c->graph;
	}
	pthread_mutex_unlock(&lock);
	free(c);
	return taken;
}

/* ---- a graph's own */

static void drop_kept(struct shim_object *graph)
{
	struct shim_kept *k, *next;

	pthread_mutex_lock(&lock);
	k = graph->graph.kept;
	graph->graph.kept = NULL;
	pthread_mutex_unlock(&lock);
	for (; k; k = next) {
		next = k->next;
		free(k);
	}
}

void shim_records_begin(struct shim_object *graph)
{
	static _Atomic uint32_t last;

	graph->graph.number = graph->graph.origin = atomic_fetch_add(&last, 1) + 1;
	graph->graph.parent = 0;
	graph->graph.body = graph->graph.decides = false;
	graph->graph.kept = NULL;
	graph->graph.children = NULL;
	graph->graph.blocks = (struct graph_blocks){ NULL, 0, NULL };
}

void shim_records_drop(struct shim_object *graph)
{
	drop_kept(graph);
	while (shim_child_take(graph, SHIM_EVERY_NODE))
		;
	shim_graph_memory_end(graph_blocks_drop(&graph->graph.blocks));
}
