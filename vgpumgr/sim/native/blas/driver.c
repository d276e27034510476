/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the CUDA driver. Where the process has one already, from whatever path, it is found by its SONAME. */
#include <dlfcn.h>
#include <pthread.h>

#include "blas.h"

struct bl_driver bl_driver;
static int status = BL_NOT_INITIALIZED;

static const struct {
	const char *name;
	void *place;
} wanted[] = {
#define WANTED(function) { #function, &bl_driver.function }
	WANTED(cuInit),
	WANTED(cuDevicePrimaryCtxRetain),
	WANTED(cuCtxGetCurrent),
	WANTED(cuCtxSetCurrent),
	WANTED(cuCtxGetId),
	WANTED(cuCtxSynchronize),
	WANTED(cuModuleLoadData),
	WANTED(cuModuleGetFunction),
	WANTED(cuMemAlloc_v2),
	WANTED(cuMemFree_v2),
	WANTED(cuMemHostAlloc),
	WANTED(cuMemGetAddressRange_v2),
	WANTED(cuStreamSynchronize),
	WANTED(cuThreadExchangeStreamCaptureMode),
	WANTED(cuStreamGetCaptureInfo_v2),
	WANTED(cuLaunchHostFunc),
	WANTED(cuLaunchKernel),
	WANTED(cuUserObjectCreate),
	WANTED(cuGraphRetainUserObject),
};

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library)
		return;
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		*(void **)wanted[i].place = dlsym(library, wanted[i].name);
		if (!*(void **)wanted[i].place)
			return;
	}
	if (bl_driver.cuInit(0) == CUDA_SUCCESS)
		status = BL_SUCCESS;
}

int bl_driver_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return status;
}
