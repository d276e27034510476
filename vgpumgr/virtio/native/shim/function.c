/* SPDX-License-Identifier: Apache-2.0 */
/* Functions: what came with them answers all questions about them. */
#include "shim.h"

CUresult shim_function_object(CUfunction function, struct shim_object **object)
{
	CUfunction resolved = function;
	CUresult r = shim_is_kernel(function) ? shim_kernel_function((CUkernel)function, &resolved) : CUDA_SUCCESS;

	if (r != CUDA_SUCCESS)
		return r;
	*object = shim_object_get(SHIM_FUNCTION, (uint64_t)resolved);
	return *object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult shim_function(CUfunction function, uint64_t *context, uint64_t *id)
{
	struct shim_object *o;
	CUresult r = shim_function_object(function, &o);

	if (r != CUDA_SUCCESS)
		return r;
	*context = o->context;
	*id = atomic_load(&o->id);
	return CUDA_SUCCESS;
}

static CUresult find(CUfunction function, const void *out, struct shim_object **object)
{
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? shim_function_object(function, object) : r;
}

SHIM_API CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	struct shim_object *o;
	CUresult r = find(hfunc, pi, &o);

	if (r == CUDA_SUCCESS && (attrib < 0 || (uint32_t)attrib >= o->function.attributes_count))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*pi = (int)shim_function_attribute(o, attrib);
	return r;
}

SHIM_API CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	struct vg_cuFuncSetAttribute_request in = { .attrib = attrib, .value = value };
	struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = find(hfunc, &o, &o);
	if (r == CUDA_SUCCESS && (attrib < 0 || (uint32_t)attrib >= o->function.attributes_count))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_function(hfunc, &in.context, &in.hfunc);
	if (r == CUDA_SUCCESS)
		r = vg_send_cuFuncSetAttribute(&in);
	if (r != CUDA_SUCCESS)
		return r;
	__atomic_store_n(&o->function.attributes[attrib], value, __ATOMIC_RELAXED);
	shim_cache_clear(); /* occupancy depends on it */
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
	struct shim_object *o;
	CUresult r = find(hfunc, hmod, &o);

	if (r == CUDA_SUCCESS)
		*hmod = (CUmodule)o->function.module;
	return r;
}

SHIM_API CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
	struct shim_object *o;
	CUresult r = find(hfunc, name, &o);

	if (r == CUDA_SUCCESS)
		*name = o->function.name;
	return r;
}

SHIM_API CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	struct shim_object *o;
	CUresult r = find(func, paramOffset, &o);

	if (r == CUDA_SUCCESS && paramIndex >= o->function.parameters_count)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	*paramOffset = o->function.parameters[paramIndex].offset;
	if (paramSize)
		*paramSize = o->function.parameters[paramIndex].size;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuFuncGetParamCount(CUfunction func, size_t *paramCount)
{
	struct shim_object *o;
	CUresult r = find(func, paramCount, &o);

	if (r == CUDA_SUCCESS)
		*paramCount = o->function.parameters_count;
	return r;
}

SHIM_API CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
	struct shim_object *o;
	CUresult r = find(function, state, &o);

	if (r == CUDA_SUCCESS)
		*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return r;
}

SHIM_API CUresult cuFuncLoad(CUfunction function)
{
	struct shim_object *o;

	return find(function, &o, &o);
}

/* ---- a kernel is its function in the current context */

static CUresult find_on(CUkernel kernel, CUdevice dev, CUfunction *function)
{
	const struct shim_device *d;
	CUresult r = cuKernelGetFunction(function, kernel);

	return r == CUDA_SUCCESS ? shim_device(dev, &d) : r;
}

SHIM_API CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
	CUfunction f;
	CUresult r = find_on(kernel, dev, &f);

	return r == CUDA_SUCCESS ? cuFuncGetAttribute(pi, attrib, f) : r;
}

SHIM_API CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
	CUfunction f;
	CUresult r = find_on(kernel, dev, &f);

	return r == CUDA_SUCCESS ? cuFuncSetAttribute(f, attrib, val) : r;
}

SHIM_API CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	CUfunction f;
	CUresult r = find_on(kernel, dev, &f);

	return r == CUDA_SUCCESS ? cuFuncSetCacheConfig(f, config) : r;
}

SHIM_API CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
	CUfunction f;
	CUresult r = cuKernelGetFunction(&f, kernel);

	return r == CUDA_SUCCESS ? cuFuncGetParamInfo(f, index, offset, size) : r;
}

SHIM_API CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count)
{
	CUfunction f;
	CUresult r = cuKernelGetFunction(&f, kernel);

	return r == CUDA_SUCCESS ? cuFuncGetParamCount(f, count) : r;
}

/* ---- occupancy */

SHIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
							      size_t dynamicSMemSize)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

/* The block size with the most threads resident on a multiprocessor; the larger one where two are equal. */
SHIM_API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
							    CUoccupancyB2DSize sizeToShared, size_t shared,
							    int limit, unsigned int flags)
{
	int most, best = 0, best_size = 0, warp, sms, blocks = 0;
	struct shim_object *o, *context = shim_current_object();
	CUresult r = find(func, minGridSize, &o);

	if (r == CUDA_SUCCESS && (!blockSize || limit < 0 || !context))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	warp = shim_attribute(context->ctx.device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
	sms = shim_attribute(context->ctx.device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	most = o->function.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
	if (limit && limit < most)
		most = limit;
	if (warp <= 0)
		return CUDA_ERROR_UNKNOWN;
	for (int size = most; size > 0; size = size % warp ? size - size % warp : size - warp) {
		r = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
			&blocks, func, size, sizeToShared ? sizeToShared(size) : shared, flags);
		if (r != CUDA_SUCCESS)
			return r;
		if (blocks * size > best) {
			best = blocks * size;
			best_size = size;
			*minGridSize = blocks * sms;
		}
	}
	*blockSize = best_size;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
						   CUoccupancyB2DSize sizeToShared, size_t shared, int limit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, sizeToShared, shared, limit, 0);
}
