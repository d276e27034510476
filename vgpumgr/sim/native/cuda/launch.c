/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches: checks at the call, parameters copied, execution by the interpreter on the stream's thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captures.h"

#include <cuda_log.h>

enum { MAX_GRID_YZ = 65535, MAX_BLOCK_Z = 64, WORKSPACE_BYTES = 64 };

/*
 * VGPUMGR_SIM_SCHEDULE=random[:SEED] runs threads in a random order, to find what lacks synchronisation. Every launch has an
 * order of its own, which the seed repeats. 0: the lanes of warps run in step.
 */
static uint64_t schedule_seed(void)
{
	static uint64_t launches;
	const char *wish = getenv("VGPUMGR_SIM_SCHEDULE");
	uint64_t seed;

	if (!wish || strncmp(wish, "random", 6) || (wish[6] && wish[6] != ':'))
		return 0;
	seed = wish[6] ? strtoull(wish + 7, NULL, 0) : clock_ns();
	seed = (seed << 20) + __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
	return seed ? seed : 1;
}

/* VGPUMGR_SIM_ENGINE=lanes runs each instruction for one lane of a warp after the other; results are the same. */
static bool wish_lanes(void)
{
	const char *wish = getenv("VGPUMGR_SIM_ENGINE");

	return wish && !strcmp(wish, "lanes");
}

struct launch_op {
	struct op op;
	struct ptx_kernel *kernel;
	struct ptx_launch launch;
	unsigned char params[]; /* param_bytes */
};

static CUresult run_launch(struct op *op)
{
	struct launch_op *l = (struct launch_op *)op;
	struct device *dev = op->stream->ctx->dev;
	struct ptx_error error;
	CUresult r;

	clock_begin(dev, &l->launch);
	r = ptx_to_cuda(ptx_run(l->kernel, &l->launch, &error));
	clock_end(dev, &l->launch);

	if (r != CUDA_SUCCESS)
		log_line("launch: %s", error.message);
	if (r == CUDA_ERROR_ASSERT)
		fprintf(stderr, "%s\n", error.assertion);
	return r;
}

static bool is_any(const struct allocation *a)
{
	return a;
}

static void release_launch(struct op *op)
{
	struct launch_op *l = (struct launch_op *)op;
	struct allocation workspace;

	if (l->launch.workspace)
		vm_remove(l->launch.workspace, is_any, &workspace);
	free(l);
}

static CUresult check_launch(const struct device *dev, const struct function *f, const CUlaunchConfig *c,
			     struct cuda_launch_options *options)
{
	struct cuda_cluster_limits clusters;
	CUresult r;
	size_t fixed = f->info.static_shared_bytes;
	struct cuda_launch_limits limits = {
		.grid = { INT32_MAX, MAX_GRID_YZ, MAX_GRID_YZ },
		.block = { MAX_THREADS_PER_BLOCK, MAX_THREADS_PER_BLOCK, MAX_BLOCK_Z },
		.threads = f->info.max_threads,
		.shared = fixed < SHARED_PER_BLOCK ? SHARED_PER_BLOCK - fixed : 0,
	};

	if (f->max_dynamic_shared)
		limits.shared = (uint64_t)f->max_dynamic_shared;
	r = cuda_check_launch(c, &limits);
	function_clusters(f, dev, &clusters);
	return r == CUDA_SUCCESS ? cuda_check_clusters(c, &clusters, options) : r;
}

static CUresult gather(const struct ptx_kernel_info *info, void **params, void **extra, unsigned char *out)
{
	const void *buffer;
	CUresult r = cuda_read_parameters(params, extra, info->param_bytes, &buffer);

	if (r == CUDA_SUCCESS && buffer && info->param_bytes)
		memcpy(out, buffer, info->param_bytes);
	for (uint32_t i = 0; r == CUDA_SUCCESS && !buffer && i < info->n_params; i++) {
		if (!params[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(out + info->params[i].offset, params[i], info->params[i].size);
	}
	return r;
}

static CUresult op_create(const struct function *f, const CUlaunchConfig *c, const struct cuda_launch_options *options,
			  void **params, void **extra, uint32_t sm_count, struct launch_op **out)
{
	struct launch_op *l = calloc(1, sizeof(*l) + f->info.param_bytes);
	CUresult r;

	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	l->op = (struct op){ .run = run_launch, .release = release_launch, .busy = true };
	l->kernel = f->kernel;
	l->launch = (struct ptx_launch){
		.grid = { c->gridDimX, c->gridDimY, c->gridDimZ },
		.block = { c->blockDimX, c->blockDimY, c->blockDimZ },
		.dynamic_shared_bytes = c->sharedMemBytes,
		.params = l->params,
		.sm_count = sm_count,
		.seed = schedule_seed(),
		.by_lane = wish_lanes(),
		.cluster = { options->cluster[0], options->cluster[1], options->cluster[2] },
		.checks = drv.checks,
	};
	r = gather(&f->info, params, extra, l->params);
	if (r == CUDA_SUCCESS)
		*out = l;
	else
		free(l);
	return r;
}

/* A kernel with an instruction that the interpreter does not know: said once, as nobody would look for it elsewhere. */
static CUresult check_refusal(struct function *f)
{
	if (!f->info.refusal)
		return CUDA_SUCCESS;
	if (!__atomic_exchange_n(&f->told, true, __ATOMIC_RELAXED))
		fprintf(stderr, "simulated GPU: kernel %s cannot be launched: %s\n", f->info.name, f->info.refusal);
	cuda_log(CU_LOG_LEVEL_ERROR, "kernel %s cannot be launched: %s", f->info.name, f->info.refusal);
	log_line("launch: kernel %s: %s", f->info.name, f->info.refusal);
	return ptx_to_cuda(PTX_UNSUPPORTED);
}

/*
 * Blocks of such a grid may wait for each other, so all must be on the device at once. What they share is as the toolkit's
 * cooperative_groups expect it of a driver (details/driver_abi.h). Drops the operation if it cannot be.
 */
static CUresult make_cooperative(struct context *ctx, const struct function *f, struct launch_op *l)
{
	const uint32_t *grid = l->launch.grid, *block = l->launch.block;
	int per_sm = 0;
	CUresult r = occupancy_blocks(ctx->dev, f, (int)(block[0] * block[1] * block[2]), l->launch.dynamic_shared_bytes,
				      &per_sm);

	if (r == CUDA_SUCCESS && (uint64_t)grid[0] * grid[1] * grid[2] > (uint64_t)per_sm * ctx->dev->sm_count)
		r = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	if (r == CUDA_SUCCESS)
		r = vm_alloc(ctx, WORKSPACE_BYTES, true, &l->launch.workspace);
	if (r == CUDA_SUCCESS)
		memset((void *)l->launch.workspace, 0, WORKSPACE_BYTES);
	else
		free(l);
	return r;
}

static CUresult submit(struct context *ctx, CUstream stream, struct launch_op *l)
{
	struct stream *s;
	CUresult r;

	DRV_LOCKED();
	r = stream_get(ctx, stream, &s);
	if (r == CUDA_SUCCESS && s->ctx != ctx)
		r = CUDA_ERROR_INVALID_HANDLE;
	if (r != CUDA_SUCCESS) {
		release_launch(&l->op);
		return r;
	}
	return queue_submit(s, &l->op);
}

CUresult make_launch(CUfunction handle, const CUlaunchConfig *c, struct cuda_launch_options options, void **params,
		     void **extra, struct graph_node *made)
{
	struct function *f;
	unsigned char *bytes;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = function_get(handle, ctx, &f);
	if (r == CUDA_SUCCESS)
		r = check_refusal(f);
	if (r == CUDA_SUCCESS)
		r = check_launch(ctx->dev, f, c, &options);
	if (r != CUDA_SUCCESS)
		return r;
	*made = (struct graph_node){ .type = CU_GRAPH_NODE_TYPE_KERNEL };
	made->kernel = (struct graph_kernel){
		.function = handle,
		.grid = { c->gridDimX, c->gridDimY, c->gridDimZ },
		.block = { c->blockDimX, c->blockDimY, c->blockDimZ },
		.shared = c->sharedMemBytes,
		.options = options,
		.carveout = (unsigned int)CU_SHAREDMEM_CARVEOUT_DEFAULT,
		.n_params = f->info.n_params,
		.bytes = f->info.param_bytes,
		.params = calloc(1, f->info.n_params * sizeof(void *) + f->info.param_bytes + 1),
	};
	cuda_stream_attributes_init(&made->kernel.tuning, 0);
	if (!made->kernel.params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	bytes = (unsigned char *)&made->kernel.params[f->info.n_params];
	for (uint32_t i = 0; i < f->info.n_params; i++)
		made->kernel.params[i] = bytes + f->info.params[i].offset;
	r = gather(&f->info, params, extra, bytes);
	if (r != CUDA_SUCCESS)
		node_clear(made);
	return r;
}

static CUresult capture_launch(const CUlaunchConfig *config, CUfunction handle, struct cuda_launch_options options,
			       void **params, void **extra)
{
	struct graph_node made;
	CUresult r = make_launch(handle, config, options, params, extra, &made);

	return r == CUDA_SUCCESS ? capture_put(config->hStream, &made) : r;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction handle, void **params, void **extra)
{
	struct launch_op *l;
	struct function *f;
	struct cuda_launch_options options;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_read_launch_attributes(config, &options);
	if (r == CUDA_SUCCESS && capture_takes(config->hStream))
		return capture_launch(config, handle, options, params, extra);
	if (r == CUDA_SUCCESS)
		r = function_get(handle, ctx, &f);
	if (r == CUDA_SUCCESS)
		r = check_refusal(f);
	if (r == CUDA_SUCCESS)
		r = check_launch(ctx->dev, f, config, &options);
	if (r == CUDA_SUCCESS)
		r = op_create(f, config, &options, params, extra, ctx->dev->sm_count, &l);
	if (r == CUDA_SUCCESS && options.cooperative)
		r = make_cooperative(ctx, f, l);
	return r == CUDA_SUCCESS ? submit(ctx, config->hStream, l) : r;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
			CUstream stream, void **params, void **extra)
{
	CUlaunchConfig config = { grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, NULL, 0 };

	return cuLaunchKernelEx(&config, f, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
				   unsigned int block_x, unsigned int block_y, unsigned int block_z,
				   unsigned int shared, CUstream stream, void **params)
{
	CUlaunchAttribute cooperative = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 };
	CUlaunchConfig config = { grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, &cooperative, 1 };

	return cuLaunchKernelEx(&config, f, params, NULL);
}
