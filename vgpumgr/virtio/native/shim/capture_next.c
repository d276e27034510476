/* SPDX-License-Identifier: Apache-2.0 */
/* What streams under capture depend on: lists that a program reads without a copy of its own. */
#include <pthread.h>
#include <stdlib.h>

#include "captures.h"

enum { ROOM = 16 };

/* The last answer about a stream. */
struct next {
	struct next *next;
	uint64_t context, stream;
	CUgraphNode *nodes;
	CUgraphEdgeData *edges;
	size_t room;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct next *_Atomic all;

static void free_next(struct next *n)
{
	free(n->nodes);
	free(n->edges);
	free(n);
}

void shim_capture_next_forget(uint64_t context, uint64_t stream)
{
	struct next *n = atomic_load_explicit(&all, memory_order_relaxed), *kept = NULL, *rest;

	if (!n)
		return;
	pthread_mutex_lock(&lock);
	for (n = all; n; n = rest) {
		rest = n->next;
		if (n->stream == stream || n->context == context) {
			free_next(n);
			continue;
		}
		n->next = kept;
		kept = n;
	}
	all = kept;
	pthread_mutex_unlock(&lock);
}

/* Under the lock. */
static struct next *find_or_make(uint64_t context, uint64_t stream)
{
	struct next *n = all;

	while (n && n->stream != stream)
		n = n->next;
	if (n)
		return n;
	n = calloc(1, sizeof(*n));
	if (!n)
		return NULL;
	n->context = context;
	n->stream = stream;
	n->next = all;
	all = n;
	return n;
}

static bool grow(struct next *n, size_t room)
{
	CUgraphNode *nodes = calloc(room, sizeof(*nodes));
	CUgraphEdgeData *edges = calloc(room, sizeof(*edges)); /* none of another kind can be captured here */

	if (!nodes || !edges) {
		free(nodes);
		free(edges);
		return false;
	}
	free(n->nodes);
	free(n->edges);
	n->nodes = nodes;
	n->edges = edges;
	n->room = room;
	return true;
}

bool shim_capture_next(uint64_t context, uint64_t stream, size_t room, struct shim_next *out)
{
	struct next *n;
	bool there;

	if (room < ROOM)
		room = ROOM;
	pthread_mutex_lock(&lock);
	n = find_or_make(context, stream);
	there = n && (n->room >= room || grow(n, room));
	if (there)
		*out = (struct shim_next){ n->nodes, n->edges, n->room };
	pthread_mutex_unlock(&lock);
	return there;
}
