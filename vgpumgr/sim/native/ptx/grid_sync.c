/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of cooperative groups in cuda_device_runtime_api.h of the CUDA toolkit, which programs without the toolkit's
 * headers call (numba): the handle of a grid, its size, a thread's rank, and its barrier. And the one by which kernels decide in
 * graphs.
 */
#include "control.h"
#include "ops.h"

enum { SCOPE_GRID = 1, SUCCESS = 0, INVALID_VALUE = 1, NOT_PERMITTED = 800 }; /* cudaCGScope, cudaError_t */

/* A grid that was not launched cooperatively has none. */
static HANDLER(get_handle)
{
	call_return(t, i, call_argument(t, i, 0) == SCOPE_GRID ? t->worker->grid->launch->workspace : 0);
	return i + 1;
}

/* Each block is counted once, when all of its threads that have not ended have come. */
static void count_block(struct worker *w)
{
	struct grid *g = w->grid;

	if (w->grid_counted || w->grid_arrived < w->alive)
		return;
	w->grid_counted = true;
	if (__atomic_add_fetch(&g->blocks_arrived, 1, __ATOMIC_ACQ_REL) < g->n_blocks)
		return;
	g->blocks_arrived = 0;
	__atomic_add_fetch(&g->passed, 1, __ATOMIC_RELEASE);
}

static void arrive(struct thread *t, uint64_t passed)
{
	struct worker *w = t->worker;

	if (w->grid_passed != passed || !w->grid_arrived) {
		w->grid_passed = passed;
		w->grid_arrived = 0;
		w->grid_counted = false;
	}
	t->at_grid = true;
	t->grid_passed = passed;
	w->grid_arrived++;
}

/* Runs again, turn after turn, until all blocks have come. */
static HANDLER(synchronize)
{
	uint64_t handle = call_argument(t, i, 0), passed = __atomic_load_n(&t->worker->grid->passed, __ATOMIC_ACQUIRE);

	if (!handle || handle != t->worker->grid->launch->workspace) {
		call_return(t, i, NOT_PERMITTED);
		return i + 1;
	}
	if (!t->at_grid)
		arrive(t, passed);
	count_block(t->worker);
	if (__atomic_load_n(&t->worker->grid->passed, __ATOMIC_ACQUIRE) != t->grid_passed) {
		t->at_grid = false;
		call_return(t, i, SUCCESS);
		return i + 1;
	}
	t->fuel = 0;
	t->pc = i;
	return NULL;
}

/* Two numbers, each where there is room for it. */
static const struct insn *put_two(struct thread *t, const struct insn *i, uint64_t handle, uint32_t first, uint32_t second)
{
	const uint32_t values[] = { first, second };

	if (!handle || handle != t->worker->grid->launch->workspace) {
		call_return(t, i, INVALID_VALUE);
		return i + 1;
	}
	for (uint32_t k = 0; k < 2; k++) {
		uint64_t to = call_argument(t, i, k);
		uint8_t *at = to ? reach(t, i, SPACE_GENERIC, to, sizeof *values, true) : NULL;

		if (to && !at)
			return NULL;
		if (at)
			memcpy(at, &values[k], sizeof *values);
	}
	call_return(t, i, SUCCESS);
	return i + 1;
}

static HANDLER(get_size)
{
	const struct grid *g = t->worker->grid;

	return put_two(t, i, call_argument(t, i, 2), (u32)(g->n_blocks * g->n_threads), 1);
}

static HANDLER(get_rank)
{
	const struct worker *w = t->worker;
	const uint32_t *grid = w->grid->launch->grid;
	uint64_t block = w->ctaid[0] + (uint64_t)grid[0] * (w->ctaid[1] + (uint64_t)grid[1] * w->ctaid[2]);

	return put_two(t, i, call_argument(t, i, 2), (u32)(block * w->grid->n_threads + t->index), 0);
}

/* void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value) */
static HANDLER(set_conditional)
{
	const struct ptx_host *h = &t->worker->grid->kernel->module->host;
	uint64_t handle = call_argument(t, i, 0);

	if (!h->condition || !h->condition(h->ctx, handle, (u32)call_argument(t, i, 1)))
		return fault(t, i, PTX_ILLEGAL_ADDRESS, "0x%llx is no conditional handle of this context",
			     (unsigned long long)handle);
	return i + 1;
}

handler *grid_function_named(struct text name)
{
	static const struct {
		const char *name;
		handler *run;
	} list[] = {
		{ "cudaCGGetIntrinsicHandle", get_handle }, { "cudaCGSynchronize", synchronize },
		{ "cudaCGSynchronizeGrid", synchronize },   { "cudaCGGetSize", get_size },
		{ "cudaCGGetRank", get_rank },		    { "cudaGraphSetConditional", set_conditional },
	};

	for (unsigned k = 0; k < sizeof list / sizeof *list; k++)
		if (text_is(name, list[k].name))
			return list[k].run;
	return NULL;
}
