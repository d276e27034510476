/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's functions, from the libcuda.so.1 of the process. */
#include "cuda_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#if defined(__x86_64__)
/* As in the runtime library: loads on glibc 2.28, too. */
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#endif

struct cuda_calls cu;

static bool complete;

#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
#define FIND(name)                                                 \
	*(void **)&cu.name = dlsym(library, TEXT(name));           \
	complete = complete && cu.name;

static void find(void)
{
	/* Never closed: its threads outlive any use of ours. */
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	complete = library != NULL;
	if (library) {
		CUDA_CALLS(FIND)
	}
}

bool cuda_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find);
	return complete;
}

CUresult cuda_current(CUcontext *context)
{
	CUresult r = cu.cuInit(0);

	*context = NULL;
	if (r == CUDA_SUCCESS)
		r = cu.cuCtxGetCurrent(context);
	if (r != CUDA_SUCCESS || *context)
		return r;
	math_ask_runtime(); /* a program of the runtime's has none before its first call */
	r = cu.cuCtxGetCurrent(context);
	if (r == CUDA_SUCCESS && !*context)
		r = cu.cuDevicePrimaryCtxRetain(context, 0);
	return r;
}
