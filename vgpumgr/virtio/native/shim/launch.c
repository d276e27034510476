/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: what the documentation lets the guest refuse is refused at the call, the rest is posted. */
#include <string.h>

#include "graph.h"
#include "managed.h"

enum { PORTABLE_CLUSTER = 8 };

/* Takes a device's limits, and those of a function with many registers or much static shared memory. */
static CUresult check_limits(const CUlaunchConfig *c, const struct shim_object *f)
{
	struct cuda_launch_limits limits = f->function.limits;

	limits.shared = shim_function_attribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
	return cuda_check_launch(c, &limits);
}

static CUresult check(const CUlaunchConfig *c, const struct shim_object *f)
{
	return shim_object_get(SHIM_CONTEXT, f->context) ? check_limits(c, f) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Without a launch that says which. */
static bool wants_clusters(const struct shim_object *f)
{
	return shim_function_attribute(f, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) |
	       shim_function_attribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) |
	       shim_function_attribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT) |
	       shim_function_attribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
}

/* A cluster of more than 8 blocks is for functions that a program allows it for. */
CUresult shim_check_clusters(const CUlaunchConfig *c, const struct shim_object *f, struct cuda_launch_options *options)
{
	struct cuda_cluster_limits limits = { .must_be_set = shim_function_attribute(f, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) };
	struct shim_object *context;
	CUresult r;

	if (!options->cluster[0] && !wants_clusters(f))
		return CUDA_SUCCESS;
	context = shim_object_get(SHIM_CONTEXT, f->context);
	if (!context)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	for (int i = 0; i < 3; i++)
		limits.required[i] = shim_function_attribute(f, (CUfunction_attribute)(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i));
	if (shim_attribute(context->ctx.device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH))
		limits.most = shim_function_attribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) ? UINT16_MAX : PORTABLE_CLUSTER;
	r = cuda_check_clusters(c, &limits, options);
	if (!limits.most) /* of one block each: what a device without clusters does anyway */
		memset(options->cluster, 0, sizeof(options->cluster));
	return r;
}

/* Most are pointers and numbers. */
static inline void put_parameter(uint8_t *at, const void *value, size_t size)
{
	if (size == sizeof(uint64_t))
		memcpy(at, value, sizeof(uint64_t));
	else if (size == sizeof(uint32_t))
		memcpy(at, value, sizeof(uint32_t));
	else
		memcpy(at, value, size);
}

static CUresult pack(const struct shim_object *f, void **params, void **extra, uint8_t *room, size_t most,
		     struct vg_bytes *parameters)
{
	size_t total = f->function.parameters_bytes;
	const void *buffer;
	CUresult r = cuda_read_parameters(params, extra, total, &buffer);

	if (r != CUDA_SUCCESS)
		return r;
	*parameters = (struct vg_bytes){ buffer ? buffer : room, total };
	if (!total || (buffer && !shim_range_is_managed(buffer, total)))
		return CUDA_SUCCESS;
	if (total > most)
		return CUDA_ERROR_INVALID_VALUE;
	if (buffer) {
		parameters->data = memcpy(room, buffer, total);
		return CUDA_SUCCESS;
	}
	/* room is words: no call of the C library for a few of them */
	for (size_t i = 0; i < total; i += sizeof(uint64_t))
		memset(room + i, 0, sizeof(uint64_t));
	for (uint32_t i = 0; i < f->function.parameters_count; i++) {
		if (!params[i])
			return CUDA_ERROR_INVALID_VALUE;
		put_parameter(room + f->function.parameters[i].offset, params[i], f->function.parameters[i].size);
	}
	return CUDA_SUCCESS;
}

/* Parameters that no frame holds travel beside it. */
static CUresult send_large(const struct vg_launch_request *in)
{
	struct shim_bulk bulk = {
		.direction = VG_BULK_TO_WORKER,
		.host = (void *)in->parameters.data,
		.width = in->parameters.length,
		.rows = 1,
		.pitch = in->parameters.length,
	};
	struct vg_launch_large_request large = {
		.context = in->context,
		.function = in->function,
		.grid_x = in->grid_x,
		.grid_y = in->grid_y,
		.grid_z = in->grid_z,
		.block_x = in->block_x,
		.block_y = in->block_y,
		.block_z = in->block_z,
		.shared_bytes = in->shared_bytes,
		.cooperative = in->cooperative,
		.stream = in->stream,
	};

	return vg_send_launch_large(&large, &bulk);
}

/* Answered here, as by the driver: all blocks of such a grid are on the device at once. */
static CUresult check_cooperative(CUfunction function, const CUlaunchConfig *c)
{
	int blocks, threads = (int)(c->blockDimX * c->blockDimY * c->blockDimZ);
	CUdevice device;
	CUresult r = cuCtxGetDevice(&device);

	if (r == CUDA_SUCCESS)
		r = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, function, threads, c->sharedMemBytes, 0);
	if (r != CUDA_SUCCESS)
		return r;
	blocks *= shim_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	return (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ > (uint64_t)blocks ?
		       CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE :
		       CUDA_SUCCESS;
}

CUresult shim_pack_launch(const CUlaunchConfig *c, CUfunction function, void **params, void **extra, uint8_t *room,
			  size_t most, uint64_t *id, struct vg_bytes *parameters)
{
	struct cuda_launch_options none = { 0 };
	struct shim_object *f;
	CUresult r = shim_function_object(function, &f);

	if (r == CUDA_SUCCESS)
		r = check(c, f);
	if (r == CUDA_SUCCESS)
		r = shim_check_clusters(c, f, &none);
	if (r == CUDA_SUCCESS)
		r = pack(f, params, extra, room, most, parameters);
	if (r == CUDA_SUCCESS)
		*id = atomic_load(&f->id);
	return r;
}

static CUresult send_clusters(const struct vg_launch_request *in, const unsigned int cluster[3])
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_launch_clusters_request wide = {
		.context = in->context,
		.function = in->function,
		.grid_x = in->grid_x,
		.grid_y = in->grid_y,
		.grid_z = in->grid_z,
		.block_x = in->block_x,
		.block_y = in->block_y,
		.block_z = in->block_z,
		.shared_bytes = in->shared_bytes,
		.cooperative = in->cooperative,
		.cluster_x = cluster[0],
		.cluster_y = cluster[1],
		.cluster_z = cluster[2],
		.stream = in->stream,
		.parameters = in->parameters,
	};

	if (vg_size_launch_clusters_request(&wide) <= VG_PAYLOAD_RING_MAX)
		return vg_send_launch_clusters(&wide);
	/* clusters of one block are a launch without */
	if (cluster[0] * cluster[1] * cluster[2] > 1)
		return shim_unsupported("a launch in clusters with parameters of this size", &told);
	return send_large(in);
}

static CUresult launch(CUfunction function, const CUlaunchConfig *c, struct cuda_launch_options options, void **params,
		       void **extra)
{
	bool asked = options.cluster[0]; /* else the worker's driver reads it from the code */
	uint8_t room[32768];
	struct vg_launch_request in;
	struct shim_object *f;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_function_object(function, &f);
	/* the current one is alive */
	if (r == CUDA_SUCCESS)
		r = f->context == in.context ? check_limits(c, f) : check(c, f);
	if (r == CUDA_SUCCESS && (asked || wants_clusters(f)))
		r = shim_check_clusters(c, f, &options);
	if (r == CUDA_SUCCESS && options.cooperative)
		r = check_cooperative(function, c);
	if (r == CUDA_SUCCESS)
		r = pack(f, params, extra, room, sizeof(room), &in.parameters);
	if (r == CUDA_SUCCESS)
		r = shim_stream(c->hStream, &in.context, &in.stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (f->context != in.context)
		return CUDA_ERROR_INVALID_HANDLE;
	r = shim_managed_launch();
	if (r != CUDA_SUCCESS)
		return r;
	in.function = atomic_load(&f->id);
	in.grid_x = c->gridDimX, in.grid_y = c->gridDimY, in.grid_z = c->gridDimZ;
	in.block_x = c->blockDimX, in.block_y = c->blockDimY, in.block_z = c->blockDimZ;
	in.shared_bytes = c->sharedMemBytes;
	in.cooperative = options.cooperative;
	if (asked && options.cluster[0])
		return send_clusters(&in, options.cluster);
	return vg_size_launch_request(&in) <= VG_PAYLOAD_RING_MAX ? vg_send_launch(&in) : send_large(&in);
}

SHIM_API CUresult cuLaunchKernel(CUfunction f, unsigned int gridX, unsigned int gridY, unsigned int gridZ,
				 unsigned int blockX, unsigned int blockY, unsigned int blockZ, unsigned int shared,
				 CUstream hStream, void **kernelParams, void **extra)
{
	CUlaunchConfig c = { gridX, gridY, gridZ, blockX, blockY, blockZ, shared,
			     hStream, NULL, 0 };

	return launch(f, &c, (struct cuda_launch_options){ 0 }, kernelParams, extra);
}

SHIM_API CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridX, unsigned int gridY, unsigned int gridZ,
				      unsigned int blockX, unsigned int blockY, unsigned int blockZ,
				      unsigned int shared, CUstream hStream, void **kernelParams, void **extra)
{
	CUlaunchConfig c = { gridX, gridY, gridZ, blockX, blockY, blockZ, shared,
			     hStream ? hStream : CU_STREAM_PER_THREAD, NULL, 0 };

	return launch(f, &c, (struct cuda_launch_options){ 0 }, kernelParams, extra);
}

SHIM_API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridX, unsigned int gridY, unsigned int gridZ,
					    unsigned int blockX, unsigned int blockY, unsigned int blockZ,
					    unsigned int shared, CUstream hStream, void **kernelParams)
{
	CUlaunchConfig c = { gridX, gridY, gridZ, blockX, blockY, blockZ, shared,
			     hStream, NULL, 0 };

	return launch(f, &c, (struct cuda_launch_options){ .cooperative = true }, kernelParams, NULL);
}

SHIM_API CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridX, unsigned int gridY,
						 unsigned int gridZ, unsigned int blockX, unsigned int blockY,
						 unsigned int blockZ, unsigned int shared, CUstream hStream,
						 void **kernelParams)
{
	CUlaunchConfig c = { gridX, gridY, gridZ, blockX, blockY, blockZ, shared,
			     hStream ? hStream : CU_STREAM_PER_THREAD, NULL, 0 };

	return launch(f, &c, (struct cuda_launch_options){ .cooperative = true }, kernelParams, NULL);
}

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction f, void **params, void **extra, CUstream otherwise)
{
	struct cuda_launch_options options;
	CUresult r = cuda_read_launch_attributes(config, &options);
	CUlaunchConfig c;

	if (r != CUDA_SUCCESS)
		return r;
	c = *config;
	if (!c.hStream)
		c.hStream = otherwise;
	return launch(f, &c, options, params, extra);
}

SHIM_API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	return launch_ex(config, f, kernelParams, extra, NULL);
}

SHIM_API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
					void **extra)
{
	return launch_ex(config, f, kernelParams, extra, CU_STREAM_PER_THREAD);
}
