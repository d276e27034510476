/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: any image will do, and every name is a function of three parameters. Their linking. */
#include "books.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

NULL_API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
				     void **values)
{
	ENTER;
	for (unsigned int i = 0; i + 1 < count; i++)
		if (options[i] == CU_JIT_INFO_LOG_BUFFER && (size_t)values[i + 1] > 16)
			snprintf(values[i], (size_t)values[i + 1], "null: %.4s", (const char *)image);
	*module = null_object(NULL_MODULE);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuModuleUnload(CUmodule module)
{
	null_end(NULL_MODULE, module);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	ENTER;
	null_check(NULL_MODULE, module);
	if (!strcmp(name, "missing"))
		return CUDA_ERROR_NOT_FOUND;
	*function = (CUfunction)module;
	return CUDA_SUCCESS;
}

/* A module's functions are all the module. */
enum { MODULE_FUNCTIONS = 3 };

NULL_API CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
	ENTER;
	null_check(NULL_MODULE, module);
	*count = MODULE_FUNCTIONS;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
	ENTER;
	null_check(NULL_MODULE, module);
	for (unsigned int i = 0; i < count && i < MODULE_FUNCTIONS; i++)
		functions[i] = (CUfunction)module;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuFuncGetName(const char **name, CUfunction function)
{
	ENTER;
	null_check(NULL_MODULE, function);
	*name = "kernel";
	return CUDA_SUCCESS;
}

NULL_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
	ENTER;
	if (!strcmp(name, "missing"))
		return CUDA_ERROR_NOT_FOUND;
	*address = null_variable(module);
	*bytes = NULL_VARIABLE_BYTES;
	return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

NULL_API CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
	static const size_t sizes[] = { 8, 4, 8 }, offsets[] = { 0, 8, 16 };

	ENTER;
	null_check(NULL_MODULE, function);
	if (index >= 3)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = offsets[index];
	*size = sizes[index];
	return CUDA_SUCCESS;
}

NULL_API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
	ENTER;
	null_check(NULL_MODULE, function);
	*value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 :
		 attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? 49152 : 0;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	ENTER;
	null_check(NULL_MODULE, function);
	(void)attribute;
	(void)value;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
	ENTER;
	null_check(NULL_MODULE, function);
	(void)config;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int size,
								       size_t shared, unsigned int flags)
{
	ENTER;
	null_check(NULL_MODULE, function);
	(void)shared;
	(void)flags;
	if (size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = 2048 / size;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
				 unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
				 CUstream stream, void **parameters, void **extra)
{
	volatile char sum = 0;

	ENTER;
	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
	null_check(NULL_MODULE, function);
	null_check_stream(stream);
	sum += ((char *)parameters[0])[7] + ((char *)parameters[1])[3] + ((char *)parameters[2])[7];
	return CUDA_SUCCESS;
}

NULL_API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
					    unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
					    CUstream stream, void **parameters)
{
	return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, NULL);
}

NULL_API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **parameters, void **extra)
{
	volatile unsigned int sum = 0;

	for (unsigned int i = 0; i < c->numAttrs; i++)
		sum += c->attrs[i].id + c->attrs[i].value.clusterDim.z;
	return cuLaunchKernel(function, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
			      c->sharedMemBytes, c->hStream, parameters, extra);
}

static CUresult count_clusters(int *value, CUfunction function, const CUlaunchConfig *config)
{
	ENTER;
	null_check(NULL_MODULE, function);
	*value = config->numAttrs ? 4 : 8;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config)
{
	return count_clusters(clusters, function, config);
}

NULL_API CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function, const CUlaunchConfig *config)
{
	return count_clusters(size, function, config);
}

/* ---- linking: inputs are read whole, and what comes out is always the same */

NULL_API CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *state)
{
	ENTER;
	for (unsigned int i = 0; i + 1 < count; i++)
		if (options[i] == CU_JIT_INFO_LOG_BUFFER && (size_t)values[i + 1] > 16)
			snprintf(values[i], (size_t)values[i + 1], "null: linked");
	*state = null_object(NULL_LINKER);
	return CUDA_SUCCESS;
}

/* Every byte is read: a sanitizer sees what is not there. */
NULL_API CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
				   unsigned int count, CUjit_option *options, void **values)
{
	uint8_t sum = (uint8_t)strlen(name);

	(void)type;
	(void)count;
	(void)options;
	(void)values;
	ENTER;
	null_check(NULL_LINKER, state);
	for (size_t i = 0; i < size; i++)
		sum += ((const uint8_t *)data)[i];
	null_mark(state, sum);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuLinkComplete(CUlinkState state, void **cubin, size_t *size)
{
	static char linked[] = "what the null driver links";

	ENTER;
	null_check(NULL_LINKER, state);
	*cubin = linked;
	*size = sizeof(linked);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuLinkDestroy(CUlinkState state)
{
	null_end(NULL_LINKER, state);
	return CUDA_SUCCESS;
}
