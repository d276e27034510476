/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries that a program loads by itself, and their kernels. A kernel's handle may stand wherever the runtime takes the host
 * stub of one, also one that the driver gave; and the stub of a registered kernel is its handle, which only the runtime knows.
 */
#include "registry.h"
#include "runtime.h"

typedef CUresult load_fn(CUlibrary *library, const void *what, CUjit_option *jit, void **jit_values, unsigned int jit_count,
			 CUlibraryOption *options, void **values, unsigned int count);

/* The options have the driver's numbers. */
static cudaError_t load(cudaLibrary_t *library, load_fn *how, const void *what, enum cudaJitOption *jit, void **jit_values,
			unsigned int jit_count, enum cudaLibraryOption *options, void **values, unsigned int count)
{
	cudaError_t error = library ? rt_enter() : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		error = rt_error(how(library, what, (CUjit_option *)jit, jit_values, jit_count, (CUlibraryOption *)options, values, count));
	if (error != cudaSuccess || registry_add_library(*library))
		return error;
	error = rt_error(CU(cuLibraryUnload, *library));
	return error == cudaSuccess ? cudaErrorMemoryAllocation : error;
}

static CUresult load_data(CUlibrary *library, const void *what, CUjit_option *jit, void **jit_values, unsigned int jit_count,
			  CUlibraryOption *options, void **values, unsigned int count)
{
	return CU(cuLibraryLoadData, library, what, jit, jit_values, jit_count, options, values, count);
}

static CUresult load_file(CUlibrary *library, const void *what, CUjit_option *jit, void **jit_values, unsigned int jit_count,
			  CUlibraryOption *options, void **values, unsigned int count)
{
	return CU(cuLibraryLoadFromFile, library, what, jit, jit_values, jit_count, options, values, count);
}

API cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jitOptions, void **jitOptionsValues,
				    unsigned int numJitOptions, enum cudaLibraryOption *libraryOptions, void **libraryOptionValues,
				    unsigned int numLibraryOptions)
{
	return rt_done(load(library, load_data, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
			    numLibraryOptions));
}

API cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *fileName, enum cudaJitOption *jitOptions,
					void **jitOptionsValues, unsigned int numJitOptions, enum cudaLibraryOption *libraryOptions,
					void **libraryOptionValues, unsigned int numLibraryOptions)
{
	return rt_done(load(library, load_file, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
			    libraryOptionValues, numLibraryOptions));
}

static cudaError_t unload(cudaLibrary_t library)
{
	struct image *image = registry_find_library(library);
	cudaError_t error = RT_CALL(cuLibraryUnload, library);

	if (error == cudaSuccess)
		registry_remove_image(image);
	return error;
}

API cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
	return rt_done(unload(library));
}

static cudaError_t get_kernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
	cudaError_t error = kernel ? RT_CALL(cuLibraryGetKernel, kernel, library, name) : cudaErrorInvalidValue;

	return error == cudaSuccess ? rt_error(registry_add_library_kernel(library, *kernel)) : error;
}

API cudaError_t cudaLibraryGetKernel(cudaKernel_t *pKernel, cudaLibrary_t library, const char *name)
{
	return rt_done(get_kernel(pKernel, library, name));
}

API cudaError_t cudaLibraryGetKernelCount(unsigned int *count, cudaLibrary_t lib)
{
	return rt_done(RT_CALL(cuLibraryGetKernelCount, count, lib));
}

static cudaError_t enumerate(cudaKernel_t *kernels, unsigned int most, cudaLibrary_t library)
{
	unsigned int count = 0;
	cudaError_t error = RT_CALL(cuLibraryEnumerateKernels, kernels, most, library);

	if (error == cudaSuccess)
		error = rt_error(CU(cuLibraryGetKernelCount, &count, library));
	for (unsigned int i = 0; error == cudaSuccess && i < most && i < count; i++)
		error = rt_error(registry_add_library_kernel(library, kernels[i]));
	return error;
}

API cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t *kernels, unsigned int numKernels, cudaLibrary_t lib)
{
	return rt_done(enumerate(kernels, numKernels, lib));
}

API cudaError_t cudaLibraryGetGlobal(void **dptr, size_t *bytes, cudaLibrary_t library, const char *name)
{
	return rt_done(RT_CALL(cuLibraryGetGlobal, (CUdeviceptr *)dptr, bytes, library, name));
}

API cudaError_t cudaLibraryGetManaged(void **dptr, size_t *bytes, cudaLibrary_t library, const char *name)
{
	return rt_done(RT_CALL(cuLibraryGetManaged, (CUdeviceptr *)dptr, bytes, library, name));
}

static cudaError_t kernel_of(cudaKernel_t *kernel, const void *host)
{
	CUfunction function;
	cudaError_t error = kernel ? registry_function(host, &function) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		*kernel = (cudaKernel_t)host;
	return error;
}

API cudaError_t cudaGetKernel(cudaKernel_t *kernelPtr, const void *entryFuncAddr)
{
	return rt_done(kernel_of(kernelPtr, entryFuncAddr));
}

static cudaError_t set_attribute(cudaKernel_t kernel, enum cudaFuncAttribute attribute, int value, int device)
{
	CUfunction function;
	CUcontext primary;
	cudaError_t popped, error = rt_init();

	if (error == cudaSuccess)
		error = rt_primary(device, &primary);
	if (error == cudaSuccess)
		error = rt_error(CU(cuCtxPushCurrent, primary));
	if (error != cudaSuccess)
		return error;
	error = registry_function(kernel, &function);
	if (error == cudaSuccess)
		error = rt_error(CU(cuFuncSetAttribute, function, (CUfunction_attribute)attribute, value));
	popped = rt_error(CU(cuCtxPopCurrent, &primary));
	return error == cudaSuccess ? popped : error;
}

API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attr, int value, int device)
{
	return rt_done(set_attribute(kernel, attr, value, device));
}
