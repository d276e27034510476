/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clusters: blocks that are there at the same time, that reach each other's shared memory, and that have a barrier in common.
 * One thread of the host runs all of a cluster's blocks, in turns. A block without a cluster is one by itself.
 */
#include "checks.h"

#include <stdlib.h>

static void free_worker(struct worker *w)
{
	for (uint32_t k = 0; w->threads && k < w->n_threads; k++) {
		free(w->threads[k].local);
		free(w->threads[k].frames);
	}
	for (uint32_t k = 0; w->warps && k * WARP < w->n_threads; k++)
		free(w->warps[k].stack);
	free(w->warps);
	free(w->threads);
	free(w->shared);
	free(w->images);
	checker_free(w->checker);
	free(w);
}

static struct worker *new_worker(struct grid *g, uint32_t index)
{
	struct worker *w = calloc(1, sizeof *w);
	uint32_t n_warps = (g->n_threads + WARP - 1) / WARP;

	if (!w)
		return NULL;
	w->grid = g;
	w->index = index % (g->launch->sm_count ? g->launch->sm_count : 1);
	w->n_threads = g->n_threads;
	w->shared_bytes = g->launch->checks ? 0 : g->shared_bytes;
	w->threads = calloc((size_t)n_warps * WARP, sizeof *w->threads);
	w->warps = calloc(n_warps, sizeof *w->warps);
	w->shared = aligned_alloc(128, (g->shared_bytes + 128u) & ~127u);
	w->checker = g->launch->checks ? checker_new(g, &insn_facts) : NULL;
	for (uint32_t k = w->n_threads; w->threads && k < n_warps * WARP; k++)
		w->threads[k] = (struct thread){ .worker = w, .state = THREAD_EXITED, .index = k, .lane = k % WARP, .warp = k / WARP };
	if (w->threads && w->warps && w->shared && (w->checker || !g->launch->checks))
		return w;
	free_worker(w);
	return NULL;
}

struct cluster *cluster_new(struct grid *g, uint32_t index)
{
	struct cluster *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->grid = g;
	for (uint32_t rank = 0; rank < g->cluster_size; rank++) {
		c->blocks[rank] = new_worker(g, index * g->cluster_size + rank);
		if (!c->blocks[rank]) {
			cluster_free(c);
			return NULL;
		}
		c->blocks[rank]->cluster = c;
		c->blocks[rank]->rank = rank;
	}
	return c;
}

void cluster_free(struct cluster *c)
{
	for (uint32_t rank = 0; rank < MAX_CLUSTER && c->blocks[rank]; rank++)
		free_worker(c->blocks[rank]);
	free(c);
}

bool cluster_place(struct cluster *c, uint64_t number)
{
	uint32_t size = c->grid->cluster_size;

	c->arrived = false;
	c->alive = size;
	for (uint32_t rank = 0; rank < size; rank++)
		if (!place_block(c->blocks[rank], number * size + rank))
			return false;
	return true;
}

/* A thread that has ended is waited for no longer. */
static bool all_arrived(const struct cluster *c)
{
	for (uint32_t rank = 0; rank < c->grid->cluster_size; rank++) {
		const struct worker *w = c->blocks[rank];

		for (uint32_t k = 0; k < w->n_threads; k++)
			if (w->threads[k].state != THREAD_EXITED && w->threads[k].phase != CLUSTER_ARRIVED)
				return false;
	}
	return true;
}

static void open_barrier(struct cluster *c)
{
	c->arrived = false;
	for (uint32_t rank = 0; rank < c->grid->cluster_size; rank++) {
		struct worker *w = c->blocks[rank];

		for (uint32_t k = 0; k < w->n_threads; k++) {
			struct thread *t = &w->threads[k];

			t->phase = CLUSTER_COMPLETE;
			if (t->state == THREAD_CLUSTER)
				t->state = THREAD_READY;
		}
		if (w->checker)
			order_all(w->checker);
	}
}

/* A block whose threads all wait may be helped by the others. */
bool cluster_turn(struct cluster *c)
{
	struct worker *waiting = NULL;
	bool progress = false;

	c->alive = 0;
	for (uint32_t rank = 0; rank < c->grid->cluster_size; rank++) {
		struct worker *w = c->blocks[rank];

		if (w->alive && !block_turn(w, &progress))
			return false;
		if (w->alive) {
			c->alive++;
			waiting = w;
		}
	}
	if (c->arrived && all_arrived(c)) {
		open_barrier(c);
		progress = true;
	}
	return progress || !waiting || deadlock(waiting);
}

bool cluster_run(struct cluster *c, uint64_t number)
{
	if (!cluster_place(c, number))
		return false;
	while (c->alive)
		if (!cluster_turn(c))
			return false;
	return !stopped(c->blocks[0]);
}
