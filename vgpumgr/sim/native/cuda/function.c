/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of modules and kernels of libraries: what they are, and their settings. */
#include "cuda_sim.h"

#include <string.h>

/* A GPU thread can have 255 registers; PTX names as many as it likes, so the count is only an upper bound. */
enum { MAX_REGISTERS = 64 };

int function_registers(const struct function *f)
{
	return (int)(f->info.registers < MAX_REGISTERS ? f->info.registers : MAX_REGISTERS);
}

CUresult function_info(const void *handle, struct function **out)
{
	CUresult r = driver_check();

	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	*out = (struct function *)handle;
	return handle_is(handle, HANDLE_FUNCTION) || handle_is(handle, HANDLE_KERNEL) ? CUDA_SUCCESS :
										       CUDA_ERROR_INVALID_HANDLE;
}

CUresult function_get(CUfunction handle, struct context *ctx, struct function **out)
{
	struct function *f;
	struct module *m;
	CUresult r = function_info(handle, &f);

	if (r != CUDA_SUCCESS)
		return r;
	if (f->module) {
		*out = f;
		return f->module->ctx == ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	}
	r = library_module(f->library, ctx, &m);
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	*out = module_function(m, f->info.name);
	if (!*out)
		return CUDA_ERROR_NOT_FOUND;
	/* what was set on the kernel holds in every context */
	if (f->max_dynamic_shared > (*out)->max_dynamic_shared)
		(*out)->max_dynamic_shared = f->max_dynamic_shared;
	(*out)->large_clusters |= f->large_clusters;
	if (f->cluster[0])
		memcpy((*out)->cluster, f->cluster, sizeof(f->cluster));
	return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel)
{
	struct function *f;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	r = function_get((CUfunction)kernel, ctx, &f);
	if (r == CUDA_SUCCESS)
		*out = (CUfunction)f;
	return r;
}

CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel kernel)
{
	struct function *f;
	CUresult r = function_info(kernel, &f);

	if (r == CUDA_SUCCESS && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*out = (CUlibrary)f->library;
	return r;
}

/* Of the code, or else as the program has set it. */
static int required_cluster(const struct function *f, int dimension)
{
	return f->info.cluster[0] ? (int)f->info.cluster[dimension] : f->cluster[dimension];
}

void function_clusters(const struct function *f, const struct device *dev, struct cuda_cluster_limits *out)
{
	uint32_t most = f->large_clusters ? LARGE_CLUSTER : PORTABLE_CLUSTER;

	for (int i = 0; i < 3; i++)
		out->required[i] = (unsigned int)required_cluster(f, i);
	out->must_be_set = f->info.explicit_cluster;
	if (f->info.max_cluster && f->info.max_cluster < most)
		most = f->info.max_cluster;
	out->most = dev->info.cc_major >= CLUSTERS_FROM_CC ? most : 0;
}

static CUresult get_attribute(const struct function *f, CUfunction_attribute attribute, int *value)
{
	const struct ptx_kernel_info *i = &f->info;

	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)i->max_threads;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = (int)i->static_shared_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*value = (int)i->const_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = (int)i->local_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = function_registers(f);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = (int)i->target;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = f->max_dynamic_shared ? f->max_dynamic_shared : SHARED_PER_BLOCK - (int)i->static_shared_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*value = f->carveout;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
		*value = i->explicit_cluster;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		*value = required_cluster(f, attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*value = f->large_clusters;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*value = f->cluster_policy;
		return CUDA_SUCCESS;
	default:
		*value = 0; /* caches */
		return (int)attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	}
}

static CUresult set_attribute(struct function *f, CUfunction_attribute attribute, int value, const struct device *dev)
{
	int most = arch_limits(dev)->shared_optin - (int)f->info.static_shared_bytes;

	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || value > most)
			return CUDA_ERROR_INVALID_VALUE;
		f->max_dynamic_shared = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		f->carveout = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		if (f->info.cluster[0])
			return CUDA_ERROR_NOT_PERMITTED;
		if (value < 0)
			return CUDA_ERROR_INVALID_VALUE;
		f->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		f->large_clusters = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		if (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
			return CUDA_ERROR_INVALID_VALUE;
		f->cluster_policy = value;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
	struct function *f;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = function_info(handle, &f);
	if (r == CUDA_SUCCESS && !value)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? get_attribute(f, attribute, value) : r;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
	struct function *f;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = function_info(handle, &f);
	return r == CUDA_SUCCESS ? set_attribute(f, attribute, value, ctx->dev) : r;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice dev)
{
	struct function *f;
	CUresult r = function_info(kernel, &f);

	if (r == CUDA_SUCCESS && !value)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && !device_find(dev))
		r = CUDA_ERROR_INVALID_DEVICE;
	return r == CUDA_SUCCESS ? get_attribute(f, attribute, value) : r;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice dev)
{
	struct device *d = device_find(dev);
	struct function *f;
	CUresult r = function_info(kernel, &f);

	if (r == CUDA_SUCCESS && !d)
		r = CUDA_ERROR_INVALID_DEVICE;
	return r == CUDA_SUCCESS ? set_attribute(f, attribute, value, d) : r;
}

/* Preferences for the cache are recorded; nothing depends on them. */
CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
	struct function *f;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = function_info(handle, &f);
	if (r == CUDA_SUCCESS && ((int)config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		f->cache = config;
	return r;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	return device_find(dev) ? cuFuncSetCacheConfig((CUfunction)kernel, config) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
	struct function *f;

	if ((int)config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	return function_info(handle, &f);
}

CUresult cuFuncGetModule(CUmodule *out, CUfunction handle)
{
	struct function *f;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	r = function_get(handle, ctx, &f);
	if (r == CUDA_SUCCESS)
		*out = (CUmodule)f->module;
	return r;
}

CUresult cuFuncGetName(const char **name, CUfunction handle)
{
	struct function *f;
	CUresult r = function_info(handle, &f);

	if (r == CUDA_SUCCESS && !name)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*name = f->info.name;
	return r;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
	return cuFuncGetName(name, (CUfunction)kernel);
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
	struct function *f;
	CUresult r = function_info(handle, &f);

	if (r == CUDA_SUCCESS && (!offset || index >= f->info.n_params))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	*offset = f->info.params[index].offset;
	if (size)
		*size = f->info.params[index].size;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
	return cuFuncGetParamInfo((CUfunction)kernel, index, offset, size);
}

CUresult cuFuncGetParamCount(CUfunction handle, size_t *count)
{
	struct function *f;
	CUresult r = function_info(handle, &f);

	if (r == CUDA_SUCCESS && !count)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*count = f->info.n_params;
	return r;
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count)
{
	return cuFuncGetParamCount((CUfunction)kernel, count);
}

/* Everything is loaded with its module. */
CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
	struct function *f;
	CUresult r = function_info(handle, &f);

	if (r == CUDA_SUCCESS && !state)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return r;
}

CUresult cuFuncLoad(CUfunction handle)
{
	struct function *f;

	CONTEXT_ENTER(ctx);
	return function_get(handle, ctx, &f);
}
