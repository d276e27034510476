/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of kernels, and how many fit. */
#include <string.h>

#include "runtime.h"

struct field {
	CUfunction_attribute attribute;
	uint16_t offset, size;
};

#define FIELD(member, name)                                                                   \
	{                                                                                     \
		CU_FUNC_ATTRIBUTE_##name, offsetof(struct cudaFuncAttributes, member),        \
			sizeof(((struct cudaFuncAttributes *)NULL)->member)                   \
	}

static const struct field fields[] = {
	FIELD(sharedSizeBytes, SHARED_SIZE_BYTES),
	FIELD(constSizeBytes, CONST_SIZE_BYTES),
	FIELD(localSizeBytes, LOCAL_SIZE_BYTES),
	FIELD(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
	FIELD(numRegs, NUM_REGS),
	FIELD(ptxVersion, PTX_VERSION),
	FIELD(binaryVersion, BINARY_VERSION),
	FIELD(cacheModeCA, CACHE_MODE_CA),
	FIELD(maxDynamicSharedSizeBytes, MAX_DYNAMIC_SHARED_SIZE_BYTES),
	FIELD(preferredShmemCarveout, PREFERRED_SHARED_MEMORY_CARVEOUT),
	FIELD(clusterDimMustBeSet, CLUSTER_SIZE_MUST_BE_SET),
	FIELD(requiredClusterWidth, REQUIRED_CLUSTER_WIDTH),
	FIELD(requiredClusterHeight, REQUIRED_CLUSTER_HEIGHT),
	FIELD(requiredClusterDepth, REQUIRED_CLUSTER_DEPTH),
	FIELD(clusterSchedulingPolicyPreference, CLUSTER_SCHEDULING_POLICY_PREFERENCE),
	FIELD(nonPortableClusterSizeAllowed, NON_PORTABLE_CLUSTER_SIZE_ALLOWED),
};

static void store(struct cudaFuncAttributes *attributes, const struct field *field, int value)
{
	char *member = (char *)attributes + field->offset;

	if (field->size == sizeof(int))
		memcpy(member, &value, sizeof(value));
	else
		memcpy(member, &(size_t){ (size_t)value }, sizeof(size_t));
}

static cudaError_t get_attributes(struct cudaFuncAttributes *out, const void *host)
{
	CUfunction function;
	cudaError_t error = out ? registry_function(host, &function) : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]) && error == cudaSuccess; i++) {
		int value = 0;
		CUresult result = CU(cuFuncGetAttribute, &value, fields[i].attribute, function);

		/* cluster attributes are younger than the rest: unknown ones are 0 */
		if (result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_NOT_SUPPORTED)
			error = rt_error(result);
		store(out, &fields[i], value);
	}
	return error;
}

API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func)
{
	return rt_done(get_attributes(attr, func));
}

/* One driver call on the function behind a host symbol. */
#define FUNCTION_CALL(func, name, ...)                                                                     \
	({                                                                                                 \
		CUfunction function;                                                                       \
		cudaError_t found_ = registry_function(func, &function);                                   \
		found_ != cudaSuccess ? found_ : rt_error(CU(name, __VA_ARGS__));                          \
	})

API cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
	return rt_done(FUNCTION_CALL(func, cuFuncSetAttribute, function, (CUfunction_attribute)attr, value));
}

API cudaError_t cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache cacheConfig)
{
	return rt_done(FUNCTION_CALL(func, cuFuncSetCacheConfig, function, (CUfunc_cache)cacheConfig));
}

API cudaError_t cudaFuncSetSharedMemConfig(const void *func, enum cudaSharedMemConfig config)
{
	return rt_done(FUNCTION_CALL(func, cuFuncSetSharedMemConfig, function, (CUsharedconfig)config));
}

API cudaError_t cudaFuncGetName(const char **name, const void *func)
{
	return rt_done(name ? registry_function_name(func, name) : cudaErrorInvalidValue);
}

API cudaError_t cudaFuncGetParamInfo(const void *func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	return rt_done(FUNCTION_CALL(func, cuFuncGetParamInfo, function, paramIndex, paramOffset, paramSize));
}

#if CUDART_VERSION >= 13000
/* The driver has had a count of its own only since 13.2; an index past the end is refused in all versions. */
static cudaError_t parameter_count(const void *func, size_t *count)
{
	size_t offset;
	CUfunction function;
	CUresult result = CUDA_SUCCESS;
	cudaError_t error = count ? registry_function(func, &function) : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	for (*count = 0; result == CUDA_SUCCESS; ++*count)
		result = CU(cuFuncGetParamInfo, function, *count, &offset, NULL);
	--*count;
	return result == CUDA_ERROR_INVALID_VALUE ? cudaSuccess : rt_error(result);
}

API cudaError_t cudaFuncGetParamCount(const void *func, size_t *paramCount)
{
	return rt_done(parameter_count(func, paramCount));
}
#endif

static cudaError_t function_by_symbol(cudaFunction_t *out, const void *symbol)
{
	CUfunction function;
	cudaError_t error = out ? registry_function(symbol, &function) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		*out = (cudaFunction_t)function;
	return error;
}

API cudaError_t cudaGetFuncBySymbol(cudaFunction_t *functionPtr, const void *symbolPtr)
{
	return rt_done(function_by_symbol(functionPtr, symbolPtr));
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, const void *func, int blockSize,
							      size_t dynamicSMemSize)
{
	return rt_done(FUNCTION_CALL(func, cuOccupancyMaxActiveBlocksPerMultiprocessor, numBlocks, function, blockSize,
				     dynamicSMemSize));
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, const void *func, int blockSize,
									size_t dynamicSMemSize, unsigned int flags)
{
	return rt_done(FUNCTION_CALL(func, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, numBlocks, function,
				     blockSize, dynamicSMemSize, flags));
}

API cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, const void *func, int numBlocks,
							  int blockSize)
{
	return rt_done(FUNCTION_CALL(func, cuOccupancyAvailableDynamicSMemPerBlock, dynamicSmemSize, function,
				     numBlocks, blockSize));
}

static CUlaunchConfig lower(const cudaLaunchConfig_t *config)
{
	return (CUlaunchConfig){
		.gridDimX = config->gridDim.x, .gridDimY = config->gridDim.y, .gridDimZ = config->gridDim.z,
		.blockDimX = config->blockDim.x, .blockDimY = config->blockDim.y, .blockDimZ = config->blockDim.z,
		.sharedMemBytes = (unsigned int)config->dynamicSmemBytes, .hStream = config->stream,
		.attrs = (CUlaunchAttribute *)config->attrs, .numAttrs = config->numAttrs,
	};
}

API cudaError_t cudaOccupancyMaxPotentialClusterSize(int *clusterSize, const void *func,
						     const cudaLaunchConfig_t *launchConfig)
{
	CUlaunchConfig config;

	if (!launchConfig)
		return rt_done(cudaErrorInvalidValue);
	config = lower(launchConfig);
	return rt_done(FUNCTION_CALL(func, cuOccupancyMaxPotentialClusterSize, clusterSize, function, &config));
}

API cudaError_t cudaOccupancyMaxActiveClusters(int *numClusters, const void *func,
					       const cudaLaunchConfig_t *launchConfig)
{
	CUlaunchConfig config;

	if (!launchConfig)
		return rt_done(cudaErrorInvalidValue);
	config = lower(launchConfig);
	return rt_done(FUNCTION_CALL(func, cuOccupancyMaxActiveClusters, numClusters, function, &config));
}
