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
		.cluster = { k->req_cluster[0], k->req_cluster[1], k->req_cluster[2] },
		.explicit_cluster = k->explicit_cluster,
		.max_cluster = k->max_cluster,
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

static void *work(void *arg)
{
	struct cluster *c = arg;
	struct grid *g = c->grid;
	uint64_t number;

	while (!g->stop && (number = __atomic_fetch_add(&g->next_cluster, 1, __ATOMIC_RELAXED)) < g->n_clusters)
		if (!cluster_run(c, number))
			break;
	return NULL;
}

static uint32_t worker_count(const struct grid *g)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t n = g->n_clusters < MAX_WORKERS ? g->n_clusters : MAX_WORKERS;

	if (cpus < 2 || g->launch->checks || g->n_blocks * g->n_threads < PARALLEL_THREADS)
		return 1;
	return (uint32_t)n;
}

/* ---- all blocks at once: host threads take turns at some of them each */

struct crew {
	struct grid *grid;
	struct cluster **clusters;
	uint64_t first, step;
};

static void *work_together(void *arg)
{
	struct crew *c = arg;
	bool alive = true;

	while (alive && !c->grid->stop) {
		alive = false;
		for (uint64_t n = c->first; n < c->grid->n_clusters; n += c->step) {
			if (!c->clusters[n]->alive)
				continue;
			alive = true;
			if (!cluster_turn(c->clusters[n]))
				return NULL;
		}
	}
	return NULL;
}

static bool place_all(struct grid *g, struct cluster **clusters)
{
	for (uint64_t n = 0; n < g->n_clusters; n++) {
		clusters[n] = cluster_new(g, (uint32_t)n);
		if (!clusters[n] || !cluster_place(clusters[n], n))
			return false;
	}
	return true;
}

static void run_crew(struct grid *g, struct cluster **clusters)
{
	struct crew crews[2] = { { g, clusters, 0, 2 }, { g, clusters, 1, 2 } };
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
	struct cluster **clusters = calloc(g->n_clusters, sizeof *clusters);
	int status = PTX_NO_MEMORY;

	if (clusters && place_all(g, clusters)) {
		run_crew(g, clusters);
		status = PTX_OK;
	}
	for (uint64_t n = 0; clusters && n < g->n_clusters && clusters[n]; n++)
		cluster_free(clusters[n]);
	free(clusters);
	return g->error->status ? (int)g->error->status : status;
}

/* ---- one cluster, or block, after the other */

/* The caller is a worker itself; a helper that cannot be had is done without. */
static int run_grid(struct grid *g)
{
	struct cluster *workers[MAX_WORKERS] = { cluster_new(g, 0) };
	pthread_t threads[MAX_WORKERS];
	uint32_t n = 1;

	if (!workers[0])
		return PTX_NO_MEMORY;
	for (; n < worker_count(g); n++) {
		workers[n] = cluster_new(g, n);
		if (!workers[n])
			break;
		if (pthread_create(&threads[n], NULL, work, workers[n])) {
			cluster_free(workers[n]);
			break;
		}
	}
	work(workers[0]);
	for (uint32_t k = 1; k < n; k++)
		pthread_join(threads[k], NULL);
	for (uint32_t k = 0; k < n; k++)
		cluster_free(workers[k]);
	return g->error->status;
}

/* What the launch asks for, or the kernel. */
static int take_clusters(struct grid *g)
{
	const uint32_t *asked = g->launch->cluster[0] ? g->launch->cluster : g->kernel->req_cluster;
	uint64_t size = 1;

	g->clustered = asked[0];
	for (int d = 0; d < 3; d++) {
		g->cluster[d] = g->clustered ? asked[d] : 1;
		if (!g->cluster[d] || g->launch->grid[d] % g->cluster[d])
			return refuse(g->error, "the grid is not made of whole clusters");
		if (g->kernel->req_cluster[d] && g->kernel->req_cluster[d] != g->cluster[d])
			return refuse(g->error, "the kernel requires another cluster size");
		size *= g->cluster[d] < MAX_CLUSTER ? g->cluster[d] : MAX_CLUSTER + 1;
	}
	if (size > MAX_CLUSTER)
		return refuse(g->error, "too many blocks in a cluster");
	g->cluster_size = (uint32_t)size;
	g->n_clusters = g->n_blocks / size;
	return PTX_OK;
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
	if (status == PTX_OK)
		status = take_clusters(&g);
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
