/* SPDX-License-Identifier: Apache-2.0 */
/* What a context can be asked and told: device, flags, limits, cache preferences. */
#include "cuda_sim.h"

enum { MAX_STACK = 512 << 10 };

CUresult cuCtxGetDevice_v2(CUdevice *dev, CUcontext handle)
{
	struct context *ctx;
	CUresult r = context_of(handle, &ctx);

	if (r == CUDA_SUCCESS && !dev)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*dev = ctx->dev->ordinal;
	return r;
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
	return cuCtxGetDevice_v2(dev, NULL);
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	struct context *ctx;
	CUresult r = context_of(handle, &ctx);

	if (r == CUDA_SUCCESS && !id)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*id = ctx->id;
	return r;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
	struct context *ctx;
	CUresult r = context_of(handle, &ctx);

	if (r == CUDA_SUCCESS && !version)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*version = ctx->api_version;
	return r;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	CONTEXT_ENTER(ctx);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = ctx->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_check_context_flags(flags);
	if (r == CUDA_SUCCESS)
		ctx->flags = flags;
	return r;
}

static CUresult check_limit(CUlimit limit)
{
	switch ((int)limit) {
	case CU_LIMIT_STACK_SIZE:
	case CU_LIMIT_PRINTF_FIFO_SIZE:
	case CU_LIMIT_MALLOC_HEAP_SIZE:
	case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
	case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
	case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
	case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
		return CUDA_SUCCESS;
	default:
		return (int)limit < 0 || limit >= CU_LIMIT_MAX ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_UNSUPPORTED_LIMIT;
	}
}

/* The heap and the stack are recorded, not enforced: the interpreter bounds calls by itself. */
CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = check_limit(limit);
	if (r != CUDA_SUCCESS)
		return r;
	if (limit == CU_LIMIT_STACK_SIZE && value > MAX_STACK)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit == CU_LIMIT_STACK_SIZE)
		value = (value + 15) / 16 * 16;
	ctx->limits[limit] = value;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = check_limit(limit);
	if (r == CUDA_SUCCESS && !value)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*value = ctx->limits[limit];
	return r;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
	CONTEXT_ENTER(ctx);
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = ctx->cache;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	CONTEXT_ENTER(ctx);
	if ((int)config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	ctx->cache = config;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
	CONTEXT_ENTER(ctx);
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	return CUDA_SUCCESS;
}

/* Banks are fixed since Maxwell: the call is accepted and changes nothing. */
CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	CONTEXT_ENTER(ctx);
	return (int)config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE :
										       CUDA_SUCCESS;
}

/* Lower numbers are more urgent. The order of ready work follows them only within one stream's rules. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CONTEXT_ENTER(ctx);
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	CONTEXT_ENTER(ctx);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *param, CUexecAffinityType type)
{
	CUresult r = param ? cuda_check_exec_affinity_type(type) : CUDA_ERROR_INVALID_VALUE;

	CONTEXT_ENTER(ctx);
	return r == CUDA_SUCCESS ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : r;
}
