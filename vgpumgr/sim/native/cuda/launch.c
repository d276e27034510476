/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches: checks at the call, parameters copied, execution by the interpreter on the stream's thread. */
#include <stdlib.h>
#include <string.h>

#include "cuda_sim.h"

enum { MAX_GRID_YZ = 65535, MAX_BLOCK_Z = 64 };

struct launch_op {
	struct op op;
	struct ptx_kernel *kernel;
	struct ptx_launch launch;
	unsigned char params[]; /* param_bytes */
};

static CUresult run_launch(struct op *op)
{
	struct launch_op *l = (struct launch_op *)op;
	struct ptx_error error;
	CUresult r = ptx_to_cuda(ptx_run(l->kernel, &l->launch, &error));

	if (r != CUDA_SUCCESS)
		log_line("launch: %s", error.message);
	return r;
}

static void release_launch(struct op *op)
{
	free(op);
}

static bool bad_dimensions(const struct function *f, const CUlaunchConfig *c)
{
	uint64_t threads = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;

	if (!c->gridDimX || !c->gridDimY || !c->gridDimZ || !threads)
		return true;
	if (c->gridDimX > INT32_MAX || c->gridDimY > MAX_GRID_YZ || c->gridDimZ > MAX_GRID_YZ)
		return true;
	if (c->blockDimX > MAX_THREADS_PER_BLOCK || c->blockDimY > MAX_THREADS_PER_BLOCK || c->blockDimZ > MAX_BLOCK_Z)
		return true;
	return threads > f->info.max_threads;
}

static CUresult check_launch(const struct function *f, const CUlaunchConfig *c)
{
	size_t fixed = f->info.static_shared_bytes;
	size_t most = f->max_dynamic_shared ? (size_t)f->max_dynamic_shared : fixed < SHARED_PER_BLOCK ?
					      SHARED_PER_BLOCK - fixed : 0;

	if (bad_dimensions(f, c))
		return CUDA_ERROR_INVALID_VALUE;
	return c->sharedMemBytes > most ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* The two documented ways to pass parameters; exactly one unless the kernel takes none. */
static CUresult gather_extra(const struct ptx_kernel_info *info, void **extra, unsigned char *out)
{
	const void *buffer = NULL;
	size_t size = 0;

	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(const size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (size < info->param_bytes || (info->param_bytes && !buffer))
		return CUDA_ERROR_INVALID_VALUE;
	if (info->param_bytes)
		memcpy(out, buffer, info->param_bytes);
	return CUDA_SUCCESS;
}

static CUresult gather(const struct ptx_kernel_info *info, void **params, void **extra, unsigned char *out)
{
	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (extra)
		return gather_extra(info, extra, out);
	if (info->n_params && !params)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < info->n_params; i++) {
		if (!params[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(out + info->params[i].offset, params[i], info->params[i].size);
	}
	return CUDA_SUCCESS;
}

static CUresult op_create(const struct function *f, const CUlaunchConfig *c, void **params, void **extra,
			  uint32_t sm_count, struct launch_op **out)
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
	};
	r = gather(&f->info, params, extra, l->params);
	if (r == CUDA_SUCCESS)
		*out = l;
	else
		free(l);
	return r;
}

/* Hints that change no result are accepted; what changes meaning is refused. */
static CUresult check_attributes(const CUlaunchConfig *c)
{
	if (c->numAttrs && !c->attrs)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < c->numAttrs; i++) {
		const CUlaunchAttribute *a = &c->attrs[i];

		switch (a->id) {
		case CU_LAUNCH_ATTRIBUTE_IGNORE:
		case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: /* full serialisation is allowed */
			break;
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
			if (a->value.clusterDim.x != 1 || a->value.clusterDim.y != 1 || a->value.clusterDim.z != 1)
				return CUDA_ERROR_NOT_SUPPORTED;
			break;
		case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
			if (a->value.cooperative)
				return CUDA_ERROR_NOT_SUPPORTED;
			break;
		default:
			return CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	return CUDA_SUCCESS;
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
		free(l);
		return r;
	}
	return queue_submit(s, &l->op);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction handle, void **params, void **extra)
{
	struct launch_op *l;
	struct function *f;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	r = check_attributes(config);
	if (r == CUDA_SUCCESS)
		r = function_get(handle, ctx, &f);
	if (r == CUDA_SUCCESS)
		r = check_launch(f, config);
	if (r == CUDA_SUCCESS)
		r = op_create(f, config, params, extra, ctx->dev->sm_count, &l);
	return r == CUDA_SUCCESS ? submit(ctx, config->hStream, l) : r;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
			CUstream stream, void **params, void **extra)
{
	CUlaunchConfig config = { grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, NULL, 0 };

	return cuLaunchKernelEx(&config, f, params, extra);
}

/*
 * Blocks run one after another, so a kernel that waits for another block never ends. The devices say so
 * (CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH is 0), and the call is refused.
 */
CUresult cuLaunchCooperativeKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
				   unsigned int block_x, unsigned int block_y, unsigned int block_z,
				   unsigned int shared, CUstream stream, void **params)
{
	CUlaunchConfig config = { grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, NULL, 0 };
	struct function *f;
	CUresult r;

	(void)params;
	CONTEXT_ENTER(ctx);
	r = function_get(handle, ctx, &f);
	if (r == CUDA_SUCCESS)
		r = check_launch(f, &config);
	return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r;
}
