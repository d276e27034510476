/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

#include "vg_worker.h"

struct wk_driver wk_driver;

static CUresult unsupported(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* An older driver lacks the newest names: those calls answer that they are not supported. */
static void *find(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	return symbol ? symbol : (void *)unsupported;
}

int wk_driver_load(const char *path, char *message, size_t size)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *name = NULL;
	CUresult r;

	if (!library) {
		snprintf(message, size, "cannot load the CUDA driver: %s", dlerror());
		return -ENODEV;
	}
#define WK_DRIVER_FUNCTION(f) *(void **)&wk_driver.f = find(library, #f);
#include "driver_names.h"
	if (!dlsym(library, "cuEventElapsedTime_v2"))
		wk_driver.cuEventElapsedTime_v2 = wk_driver.cuEventElapsedTime;
	r = wk_driver.cuInit(0);
	if (r == CUDA_SUCCESS)
		return 0;
	wk_driver.cuGetErrorName(r, &name);
	snprintf(message, size, "cuInit of %s failed with %s (%d)", path, name ? name : "an unknown error", r);
	return -ENODEV;
}
