/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: what the documentation lets the guest refuse is refused at the call, the rest is posted. */
#include <string.h>

#include "shim.h"

struct dims {
	unsigned int grid[3], block[3], shared;
	bool cooperative;
};

static CUresult check_dims(const struct dims *d, const struct shim_object *f)
{
	struct shim_object *c = shim_object_get(SHIM_CONTEXT, f->context);
	uint64_t threads = 1, shared;

	if (!c)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	for (int i = 0; i < 3; i++) {
		if (!d->grid[i] || !d->block[i] ||
		    d->grid[i] > (unsigned int)shim_attribute(c->ctx.device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i) ||
		    d->block[i] > (unsigned int)shim_attribute(c->ctx.device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i))
			return CUDA_ERROR_INVALID_VALUE;
		threads *= d->block[i];
	}
	if (threads > (unsigned int)shim_attribute(c->ctx.device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK))
		return CUDA_ERROR_INVALID_VALUE;
	/* a function with many registers takes smaller blocks */
	if (threads > (unsigned int)f->function.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK])
		return CUDA_ERROR_INVALID_VALUE;
	shared = (unsigned int)f->function.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
	return d->shared > shared ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* The extra form: a buffer and its length, in any order, ended by CU_LAUNCH_PARAM_END. */
static CUresult from_extra(void **extra, struct vg_bytes *parameters)
{
	const size_t *length = NULL;

	for (int i = 0; i < 4 && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			parameters->data = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			length = extra[i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (!length || !parameters->data)
		return CUDA_ERROR_INVALID_VALUE;
	parameters->length = *length;
	return CUDA_SUCCESS;
}

static CUresult pack(const struct shim_object *f, void **params, void **extra, uint8_t *room, size_t most,
		     struct vg_bytes *parameters)
{
	size_t total = f->function.parameters_bytes;
	CUresult r;

	*parameters = (struct vg_bytes){ room, total };
	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (extra) {
		r = from_extra(extra, parameters);
		if (r != CUDA_SUCCESS)
			return r;
		/* a buffer may be padded at its end, never short */
		if (parameters->length < total)
			return CUDA_ERROR_INVALID_VALUE;
		parameters->length = total;
		return CUDA_SUCCESS;
	}
	if (total > most || (total && !params))
		return CUDA_ERROR_INVALID_VALUE;
	memset(room, 0, total);
	for (uint32_t i = 0; i < f->function.parameters_count; i++) {
		if (!params[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(room + f->function.parameters[i].offset, params[i], f->function.parameters[i].size);
	}
	return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, const struct dims *d, CUstream hStream, void **params, void **extra)
{
	uint8_t room[32768];
	struct vg_launch_request in;
	struct shim_object *f;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_function_object(function, &f);
	if (r == CUDA_SUCCESS)
		r = check_dims(d, f);
	if (r == CUDA_SUCCESS)
		r = pack(f, params, extra, room, sizeof(room), &in.parameters);
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (f->context != in.context)
		return CUDA_ERROR_INVALID_HANDLE;
	in.function = atomic_load(&f->id);
	in.grid_x = d->grid[0], in.grid_y = d->grid[1], in.grid_z = d->grid[2];
	in.block_x = d->block[0], in.block_y = d->block[1], in.block_z = d->block[2];
	in.shared_bytes = d->shared;
	in.cooperative = d->cooperative;
	return vg_send_launch(&in);
}

SHIM_API CUresult cuLaunchKernel(CUfunction f, unsigned int gridX, unsigned int gridY, unsigned int gridZ,
				 unsigned int blockX, unsigned int blockY, unsigned int blockZ, unsigned int shared,
				 CUstream hStream, void **kernelParams, void **extra)
{
	struct dims d = { { gridX, gridY, gridZ }, { blockX, blockY, blockZ }, shared, false };

	return launch(f, &d, hStream, kernelParams, extra);
}

SHIM_API CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridX, unsigned int gridY, unsigned int gridZ,
				      unsigned int blockX, unsigned int blockY, unsigned int blockZ,
				      unsigned int shared, CUstream hStream, void **kernelParams, void **extra)
{
	struct dims d = { { gridX, gridY, gridZ }, { blockX, blockY, blockZ }, shared, false };

	return launch(f, &d, hStream ? hStream : CU_STREAM_PER_THREAD, kernelParams, extra);
}

SHIM_API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridX, unsigned int gridY, unsigned int gridZ,
					    unsigned int blockX, unsigned int blockY, unsigned int blockZ,
					    unsigned int shared, CUstream hStream, void **kernelParams)
{
	struct dims d = { { gridX, gridY, gridZ }, { blockX, blockY, blockZ }, shared, true };

	return launch(f, &d, hStream, kernelParams, NULL);
}

SHIM_API CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridX, unsigned int gridY,
						 unsigned int gridZ, unsigned int blockX, unsigned int blockY,
						 unsigned int blockZ, unsigned int shared, CUstream hStream,
						 void **kernelParams)
{
	struct dims d = { { gridX, gridY, gridZ }, { blockX, blockY, blockZ }, shared, true };

	return launch(f, &d, hStream ? hStream : CU_STREAM_PER_THREAD, kernelParams, NULL);
}

/* Attributes that only tune, or that say what would happen anyway, are accepted; the others are refused. */
static CUresult read_attribute(const CUlaunchAttribute *a, struct dims *d)
{
	switch ((int)a->id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		d->cooperative = a->value.cooperative;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		if (a->value.clusterDim.x == 1 && a->value.clusterDim.y == 1 && a->value.clusterDim.z == 1)
			return CUDA_SUCCESS;
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult launch_ex(const CUlaunchConfig *c, CUfunction f, void **params, void **extra, bool per_thread)
{
	CUresult r = c && (!c->numAttrs || c->attrs) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	struct dims d;

	if (r != CUDA_SUCCESS)
		return r;
	d = (struct dims){ { c->gridDimX, c->gridDimY, c->gridDimZ },
			   { c->blockDimX, c->blockDimY, c->blockDimZ },
			   c->sharedMemBytes, false };
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < c->numAttrs; i++)
		r = read_attribute(&c->attrs[i], &d);
	if (r != CUDA_SUCCESS)
		return r;
	return launch(f, &d, c->hStream || !per_thread ? c->hStream : CU_STREAM_PER_THREAD, params, extra);
}

SHIM_API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	return launch_ex(config, f, kernelParams, extra, false);
}

SHIM_API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
					void **extra)
{
	return launch_ex(config, f, kernelParams, extra, true);
}
