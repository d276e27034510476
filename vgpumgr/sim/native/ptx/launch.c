/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: what is known of them, and how a grid's blocks are shared out. */
#include "checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_WORKERS = 2, PARALLEL_THREADS = 2048 };

size_t ptx_module_kernel_count(const struct ptx_module *module)
{
	return module->n_kernels;
}

struct ptx_kernel *ptx_module_kernel_at(struct ptx_module *module, size_t index)
{
	return index < module->n_kernels ? &module->kernels[index] : NULL;
}

struct ptx_kernel *ptx_module_kernel(struct ptx_module *module, const char *name)
{
	for (uint32_t k = 0; k < module->n_kernels; k++)
		if (!strcmp(module->kernels[k].name, name))
			return &module->kernels[k];
	return NULL;
}

bool ptx_module_variable(struct ptx_module *module, const char *name, uint64_t *addr, uint64_t *size)
{
	const struct symbol *s = module_find(module, (struct text){ name, strlen(name) });

	if (!s || s->kind != SYMBOL_VARIABLE || !s->address)
		return false;
	*addr = s->address;
	*size = s->size;
	return true;
}

/* A register of a GPU holds 32 bits, and a thread has at most 255. */
static uint32_t count_registers(const struct ptx_kernel *k)
{
	uint32_t most = k->max_registers && k->max_registers < 255 ? k->max_registers : 255;

	return k->function->n_slots < most ? k->function->n_slots : most;
}

void ptx_kernel_info(const struct ptx_kernel *k, struct ptx_kernel_info *info)
{
	*info = (struct ptx_kernel_info){
		.name = k->name,
		.n_params = k->function->n_params,
		.params = k->params,
		.param_bytes = k->param_bytes,
		.static_shared_bytes = k->static_shared,
		.local_bytes = k->local_bytes,
		.const_bytes = k->module->const_bytes,
		.registers = count_registers(k),
		.max_threads = k->max_threads < MAX_BLOCK ? k->max_threads : MAX_BLOCK,
		.ptx_version = k->module->version,
		.target = k->module->target,
		.refusal = k->refusal,
	};
}

static int refuse(struct ptx_error *err, const char *message)
{
	err->status = PTX_BAD_LAUNCH;
	snprintf(err->message, sizeof err->message, "%s", message);
	return PTX_BAD_LAUNCH;
}

static int check_launch(const struct ptx_kernel *k, const struct ptx_launch *l, struct ptx_error *err)
{
	uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];

	if (k->refusal) {
		err->status = PTX_UNSUPPORTED;
		snprintf(err->message, sizeof err->message, "kernel %.100s: %s", k->name, k->refusal);
		return PTX_UNSUPPORTED;
	}
	for (int d = 0; d < 3; d++) {
		if (!l->grid[d] || !l->block[d])
			return refuse(err, "a dimension is zero");
		if (l->grid[d] > (d ? 65535u : 0x7fffffffu) || l->block[d] > (d == 2 ? 64u : 1024u))
			return refuse(err, "a dimension is beyond the limit");
		if (k->req[d] && k->req[d] != l->block[d])
			return refuse(err, "the kernel requires another block size");
	}
	if (threads > MAX_BLOCK || threads > k->max_threads)
		return refuse(err, "too many threads in a block");
	if ((uint64_t)k->shared_offset[k->module->n_shared] + l->dynamic_shared_bytes > MAX_SHARED)
		return refuse(err, "too much shared memory");
	return PTX_OK;
}

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
	w->index = index;
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

static void *work(void *arg)
{
	struct worker *w = arg;
	struct grid *g = w->grid;
	uint64_t block;

	while (!g->stop && (block = __atomic_fetch_add(&g->next_block, 1, __ATOMIC_RELAXED)) < g->n_blocks)
		if (!run_block(w, block))
			break;
	return NULL;
}

static uint32_t worker_count(const struct grid *g)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t n = g->n_blocks < MAX_WORKERS ? g->n_blocks : MAX_WORKERS;

	if (cpus < 2 || g->launch->checks || g->n_blocks * g->n_threads < PARALLEL_THREADS)
		return 1;
	return (uint32_t)n;
}

/* ---- all blocks at once: host threads take turns at some of them each */

struct crew {
	struct grid *grid;
	struct worker **blocks;
	uint64_t first, step;
};

static void *work_together(void *arg)
{
	struct crew *c = arg;
	bool alive = true;

	while (alive && !c->grid->stop) {
		alive = false;
		for (uint64_t b = c->first; b < c->grid->n_blocks; b += c->step) {
			if (!c->blocks[b]->alive)
				continue;
			alive = true;
			if (!block_turn(c->blocks[b]))
				return NULL;
		}
	}
	return NULL;
}

static bool place_blocks(struct grid *g, struct worker **blocks)
{
	uint32_t sms = g->launch->sm_count ? g->launch->sm_count : 1;

	for (uint64_t b = 0; b < g->n_blocks; b++) {
		blocks[b] = new_worker(g, (uint32_t)(b % sms));
		if (!blocks[b] || !place_block(blocks[b], b))
			return false;
	}
	return true;
}

static void run_crew(struct grid *g, struct worker **blocks)
{
	struct crew crews[2] = { { g, blocks, 0, 2 }, { g, blocks, 1, 2 } };
	pthread_t helper;

	if (worker_count(g) < 2 || pthread_create(&helper, NULL, work_together, &crews[1])) {
		crews[0].step = 1;
		work_together(&crews[0]);
		return;
	}
	work_together(&crews[0]);
	pthread_join(helper, NULL);
}

static int run_cooperative(struct grid *g)
{
	struct worker **blocks = calloc(g->n_blocks, sizeof *blocks);
	int status = PTX_NO_MEMORY;

	if (blocks && place_blocks(g, blocks)) {
		run_crew(g, blocks);
		status = PTX_OK;
	}
	for (uint64_t b = 0; blocks && b < g->n_blocks && blocks[b]; b++)
		free_worker(blocks[b]);
	free(blocks);
	return g->error->status ? (int)g->error->status : status;
}

/* ---- one block after the other */

/* The caller is a worker itself; a helper that cannot be had is done without. */
static int run_grid(struct grid *g)
{
	struct worker *workers[MAX_WORKERS] = { new_worker(g, 0) };
	pthread_t threads[MAX_WORKERS];
	uint32_t n = 1;

	if (!workers[0])
		return PTX_NO_MEMORY;
	for (; n < worker_count(g); n++) {
		workers[n] = new_worker(g, n);
		if (!workers[n])
			break;
		if (pthread_create(&threads[n], NULL, work, workers[n])) {
			free_worker(workers[n]);
			break;
		}
	}
	work(workers[0]);
	for (uint32_t k = 1; k < n; k++)
		pthread_join(threads[k], NULL);
	for (uint32_t k = 0; k < n; k++)
		free_worker(workers[k]);
	return g->error->status;
}

int ptx_run(struct ptx_kernel *kernel, const struct ptx_launch *launch, struct ptx_error *err)
{
	static uint64_t grids;
	struct ptx_launch checked = *launch;
	struct grid g = {
		.kernel = kernel,
		.launch = launch->checks ? &checked : launch,
		.error = err,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.n_blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2],
		.n_threads = launch->block[0] * launch->block[1] * launch->block[2],
		.id = __atomic_add_fetch(&grids, 1, __ATOMIC_RELAXED),
	};
	int status;

	checked.by_lane = true;
	*err = (struct ptx_error){ PTX_OK, "" };
	status = check_launch(kernel, launch, err);
	if (status)
		return status;
	g.dynamic_offset = kernel->shared_offset[kernel->module->n_shared];
	g.shared_bytes = (launch->dynamic_shared_bytes ? g.dynamic_offset : kernel->static_shared) + launch->dynamic_shared_bytes;
	status = launch->workspace ? run_cooperative(&g) : run_grid(&g);
	if (status == PTX_NO_MEMORY) {
		err->status = PTX_NO_MEMORY;
		snprintf(err->message, sizeof err->message, "no memory to run the kernel");
	}
	findings_print(&g);
	pthread_mutex_destroy(&g.lock);
	return status;
}
