/* SPDX-License-Identifier: Apache-2.0 */
/* One block: how its threads begin, and its warps' turns until all have ended. Every thread has a program counter of its own. */
#include "checks.h"

#include <stdlib.h>
#include <time.h>

handler run_read_special;

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Without clusters each block is one by itself. */
static uint64_t cluster_value(const struct worker *w, uint64_t number)
{
	const struct grid *g = w->grid;

	if (number >= 31 && number < 34)
		return w->clusterid[number - 31];
	if (number >= 34 && number < 37)
		return g->launch->grid[number - 34] / g->cluster[number - 34];
	if (number >= 37 && number < 40)
		return w->ctaid[number - 37] % g->cluster[number - 37];
	if (number >= 40 && number < 43)
		return g->cluster[number - 40];
	switch (number) {
	case 43:
		return w->rank;
	case 44:
		return g->cluster_size;
	case 48:
		return g->clustered;
	default:
		return 0;
	}
}

/* In the order of operand.c's list. */
uint64_t special_value(const struct thread *t, uint64_t number)
{
	const struct worker *w = t->worker;
	const struct grid *g = w->grid;
	uint32_t lane = t->lane;

	if (number < 3)
		return t->tid[number];
	if (number < 6)
		return g->launch->block[number - 3];
	if (number < 9)
		return w->ctaid[number - 6];
	if (number < 12)
		return g->launch->grid[number - 9];
	switch (number) {
	case 12:
		return lane;
	case 13:
		return t->warp;
	case 14:
		return (w->n_threads + WARP - 1) / WARP;
	case 15:
		return w->index;
	case 16:
		return g->launch->sm_count ? g->launch->sm_count : 1;
	case 17:
		return g->id;
	case 18:
		return 1u << lane;
	case 19:
		return ~(u32)0 >> (31 - lane);
	case 20:
		return (1u << lane) - 1;
	case 21:
		return (u32)(~(u32)0 << lane);
	case 22:
		return (u32)(~(u32)0 << lane << 1);
	case 23:
		return (u32)nanoseconds(CLOCK_MONOTONIC);
	case 24:
		return nanoseconds(CLOCK_MONOTONIC) >> 32;
	case 25:
		return nanoseconds(CLOCK_MONOTONIC);
	case 26:
		return nanoseconds(CLOCK_REALTIME);
	case 27:
		return (u32)nanoseconds(CLOCK_REALTIME);
	case 28:
		return nanoseconds(CLOCK_REALTIME) >> 32;
	case 29:
		return g->launch->dynamic_shared_bytes;
	case 30:
	case 46:
		return g->shared_bytes;
	case 45:
		return WARP;
	default:
		break;
	}
	if (number == SPECIAL_ENVREG + 1)
		return g->launch->workspace >> 32;
	if (number == SPECIAL_ENVREG + 2)
		return (u32)g->launch->workspace;
	return cluster_value(w, number);
}

HANDLER(run_read_special)
{
	r[i->d] = special_value(t, i->imm);
	return i + 1;
}

static void fill_frame(struct thread *t, const struct function *f)
{
	const struct grid *g = t->worker->grid;

	for (uint32_t k = 0; k < f->n_slots; k++)
		t->r[k * WARP] = 0;
	for (uint32_t k = 0; k < f->n_inits; k++) {
		const struct init *init = &f->inits[k];
		uint64_t *cell = &t->r[init->slot];

		switch (init->kind) {
		case INIT_SHARED:
			*cell = g->kernel->shared_offset[init->symbol->shared_index] + init->value;
			break;
		case INIT_FRAME:
			*cell = t->base + init->value;
			break;
		case INIT_SPECIAL:
			*cell = special_value(t, init->value);
			break;
		default:
			*cell = init->value;
		}
	}
}

/* The frames of all lanes of a warp, at the start of a block. */
static void fill_frames(struct thread *lanes, uint32_t n, const struct function *f)
{
	const struct grid *g = lanes->worker->grid;

	memset(lanes->stack, 0, (size_t)f->n_slots * WARP * sizeof *lanes->stack);
	for (uint32_t k = 0; k < f->n_inits; k++) {
		const struct init *init = &f->inits[k];
		uint64_t *cells = lanes->stack + init->slot, value = init->value;

		if (init->kind == INIT_SHARED)
			value += g->kernel->shared_offset[init->symbol->shared_index];
		for (uint32_t lane = 0; lane < WARP; lane++)
			cells[lane] = value;
		for (uint32_t lane = 0; lane < n && init->kind == INIT_SPECIAL; lane++)
			cells[lane] = special_value(&lanes[lane], init->value);
	}
}

static bool no_room(struct thread *t, const struct insn *i, const char *what)
{
	fault(t, i, PTX_STACK_OVERFLOW, "calls too deep: no more %s", what);
	return false;
}

bool grow_local(struct thread *t, const struct insn *i, uint64_t want)
{
	uint64_t capacity = t->local_capacity ? t->local_capacity : 256;
	uint8_t *memory;

	if (want <= t->local_capacity)
		return true;
	while (capacity < want)
		capacity *= 2;
	memory = want <= LOCAL_BYTES ? realloc(t->local, capacity) : NULL;
	if (!memory)
		return no_room(t, i, "local memory");
	memset(memory + t->local_capacity, 0, capacity - t->local_capacity);
	t->local = memory;
	t->local_capacity = (uint32_t)capacity;
	return true;
}

/* The lanes of a warp share a stack: where it moves, all of them go with it. */
static void place_stack(struct thread *lanes, struct warp *warp, uint64_t *stack)
{
	for (uint32_t k = 0; k < WARP; k++) {
		struct thread *t = &lanes[k];

		t->r = stack + k + (t->r ? t->r - t->stack : 0);
		t->stack = stack + k;
	}
	free(warp->stack);
	warp->stack = stack;
}

static bool grow_stack(struct thread *t, const struct insn *i, uint64_t want)
{
	struct warp *warp = &t->worker->warps[t->warp];
	uint64_t capacity = warp->capacity ? warp->capacity : want;
	uint64_t *stack;

	if (want <= warp->capacity)
		return true;
	while (capacity < want)
		capacity *= 2;
	stack = want <= STACK_SLOTS ? aligned_alloc(64, capacity * WARP * sizeof *stack) : NULL;
	if (!stack)
		return no_room(t, i, "registers");
	if (warp->capacity)
		memcpy(stack, warp->stack, warp->capacity * WARP * sizeof *stack);
	place_stack(t - t->lane, warp, stack);
	warp->capacity = (uint32_t)capacity;
	return true;
}

static bool grow_frames(struct thread *t, const struct insn *i)
{
	uint32_t capacity = t->frames_capacity ? 2 * t->frames_capacity : 8;
	struct call_frame *frames;

	if (t->depth < t->frames_capacity)
		return true;
	frames = realloc(t->frames, capacity * sizeof *frames);
	if (!frames)
		return no_room(t, i, "memory");
	t->frames = frames;
	t->frames_capacity = capacity;
	return true;
}

bool push_frame(struct thread *t, const struct insn *i, const struct function *f)
{
	uint64_t base = ((uint64_t)t->local_used + 31) & ~(uint64_t)31;

	if (!grow_local(t, i, base + f->frame_bytes) || !grow_stack(t, i, (uint64_t)t->stack_used + f->n_slots) ||
	    !grow_frames(t, i))
		return false;
	t->frames[t->depth++] = (struct call_frame){ i + 1, NULL, t->function, (uint32_t)(t->r - t->stack), t->base };
	t->base = (uint32_t)base;
	t->local_used = (uint32_t)base + f->frame_bytes;
	t->r = t->stack + (size_t)t->stack_used * WARP;
	t->stack_used += f->n_slots;
	t->function = f;
	fill_frame(t, f);
	return true;
}

static bool start_thread(struct worker *w, uint32_t index)
{
	const uint32_t *block = w->grid->launch->block;
	const struct function *f = w->grid->kernel->function;
	struct thread *t = &w->threads[index];

	t->worker = w;
	t->index = index;
	t->lane = index % WARP;
	t->warp = index / WARP;
	t->tid[0] = index % block[0];
	t->tid[1] = index / block[0] % block[1];
	t->tid[2] = index / block[0] / block[1];
	t->state = THREAD_READY;
	t->carry = false;
	t->phase = CLUSTER_NONE;
	t->at_grid = false;
	t->depth = t->base = 0;
	t->function = f;
	t->pc = f->code;
	if (!grow_local(t, f->code, f->frame_bytes) || !grow_stack(t, f->code, f->n_slots))
		return false;
	t->local_used = f->frame_bytes;
	t->stack_used = f->n_slots;
	t->r = t->stack;
	return true;
}

bool place_block(struct worker *w, uint64_t index)
{
	const struct grid *g = w->grid;
	uint64_t cluster = index / g->cluster_size;
	uint32_t rank = w->rank;

	w->random = (g->launch->seed + index) * 0x9e3779b97f4a7c15u;
	for (int d = 0; d < 3; d++) {
		uint32_t clusters = g->launch->grid[d] / g->cluster[d];

		w->clusterid[d] = (uint32_t)(cluster % clusters);
		w->ctaid[d] = w->clusterid[d] * g->cluster[d] + rank % g->cluster[d];
		cluster /= clusters;
		rank /= g->cluster[d];
	}
	w->alive = w->n_threads;
	memset(w->barriers, 0, sizeof w->barriers);
	memset(w->shared, 0, w->grid->shared_bytes);
	for (uint32_t k = 0; k < w->n_threads; k++)
		if (!start_thread(w, k))
			return false;
	for (uint32_t warp = 0; warp * WARP < w->n_threads; warp++) {
		fill_frames(&w->threads[warp * WARP], warp_lanes(w, warp), w->grid->kernel->function);
		simd_start(w, warp);
	}
	if (w->checker)
		checker_start(w);
	return true;
}

bool deadlock(struct worker *w)
{
	if (w->checker)
		check_stuck(w);
	for (uint32_t k = 0; k < w->n_threads; k++) {
		struct thread *t = &w->threads[k];

		if (t->state != THREAD_EXITED) {
			fault(t, t->pc, PTX_DEADLOCK, w->grid->cluster_size > 1 ? "no thread of the cluster can go on; this one waits here" :
							    "no thread of the block can go on; this one waits here");
			break;
		}
	}
	return false;
}

static bool run_turn(struct worker *w, bool *progress)
{
	if (w->grid->launch->seed)
		return random_turn(w, progress);
	for (uint32_t warp = 0; warp * WARP < w->n_threads; warp++)
		if (!(w->grid->launch->by_lane ? warp_turn : simd_turn)(w, warp, progress))
			return false;
	return true;
}

bool block_turn(struct worker *w, bool *progress)
{
	if (!run_turn(w, progress))
		return false;
	barriers_check(w);
	return true;
}
