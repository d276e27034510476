/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that nvcc writes into programs: registration at start-up, and the launch syntax. Prototypes as in the
 * compiler's crt/host_runtime.h and crt/device_functions.h. They fill local tables and touch no driver.
 */
#include <stdlib.h>

#include "registry.h"
#include "runtime.h"

API void **__cudaRegisterFatBinary(void *fatCubin)
{
	return (void **)registry_add_image(fatCubin);
}

API void __cudaRegisterFatBinaryEnd(void **fatCubinHandle)
{
	(void)fatCubinHandle; /* nothing waits for completeness: loading is lazy */
}

API void __cudaUnregisterFatBinary(void **fatCubinHandle)
{
	registry_remove_image((struct image *)fatCubinHandle);
}

API void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun, const char *deviceName,
				int thread_limit, uint3 *tid, uint3 *bid, dim3 *bDim, dim3 *gDim, int *wSize)
{
	(void)deviceFun, (void)thread_limit, (void)tid, (void)bid, (void)bDim, (void)gDim, (void)wSize;
	registry_add_kernel((struct image *)fatCubinHandle, hostFun, deviceName);
}

API void __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress, const char *deviceName, int ext,
			   size_t size, int constant, int global)
{
	(void)deviceAddress, (void)ext, (void)size, (void)constant, (void)global;
	registry_add_variable((struct image *)fatCubinHandle, hostVar, deviceName);
}

API void __cudaRegisterManagedVar(void **fatCubinHandle, void **hostVarPtrAddress, char *deviceAddress,
				  const char *deviceName, int ext, size_t size, int constant, int global)
{
	(void)deviceAddress, (void)ext, (void)size, (void)constant, (void)global;
	registry_add_managed((struct image *)fatCubinHandle, hostVarPtrAddress, deviceName);
}

/* Asked before the host touches a managed variable; there are none that it could touch. */
API char __cudaInitModule(void **fatCubinHandle)
{
	(void)fatCubinHandle;
	return 0;
}

/* A kernel's host stub serves as its handle: it is known in every context, and never dangles. */
API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *hostFun)
{
	if (!registry_has_function(hostFun))
		return rt_done(cudaErrorInvalidDeviceFunction);
	*kernel = (cudaKernel_t)hostFun;
	return cudaSuccess;
}

struct configuration {
	dim3 grid, block;
	size_t shared;
	cudaStream_t stream;
};

/* Arguments of a launch may launch themselves, so configurations nest; as deep as this is no program. */
enum { MAX_NESTED = 32 };
static __thread struct configuration pushed[MAX_NESTED];
static __thread int n_pushed;

/* Not 0: no launch. */
API unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, struct CUstream_st *stream)
{
	if (n_pushed == MAX_NESTED)
		return 1;
	pushed[n_pushed++] = (struct configuration){ gridDim, blockDim, sharedMem, stream };
	return 0;
}

API cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem, void *stream)
{
	const struct configuration *top;

	if (!n_pushed)
		return rt_done(cudaErrorMissingConfiguration);
	top = &pushed[--n_pushed];
	*gridDim = top->grid;
	*blockDim = top->block;
	*sharedMem = top->shared;
	*(cudaStream_t *)stream = top->stream;
	return cudaSuccess;
}
