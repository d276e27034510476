/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A synchronous CUDA call that every driver has to answer (cuMemGetInfo), in a loop, through whatever libcuda.so.1 the
 * loader finds. usage: vgpumgr-bench-cuda [CALLS]; prints nanoseconds a call, of the best block of calls: on a machine
 * that does other things too, a long run measures those.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cuda.h>

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

enum { BLOCK = 500 };

static void *need(void *library, const char *name)
{
	void *symbol = library ? dlsym(library, name) : NULL;

	if (!symbol) {
		fprintf(stderr, "%s: %s\n", name, dlerror());
		exit(1);
	}
	return symbol;
}

int main(int argc, char **argv)
{
	unsigned calls = argc > 1 ? (unsigned)atoi(argv[1]) : 100000;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult (*init)(unsigned) = need(library, "cuInit");
	CUresult (*retain)(CUcontext *, CUdevice) = need(library, "cuDevicePrimaryCtxRetain");
	CUresult (*set_current)(CUcontext) = need(library, "cuCtxSetCurrent");
	CUresult (*get_info)(size_t *, size_t *) = need(library, "cuMemGetInfo_v2");
	CUcontext context;
	size_t free_bytes, total_bytes;
	double best = 1e12;

	if (init(0) || retain(&context, 0) || set_current(context) || get_info(&free_bytes, &total_bytes)) {
		fprintf(stderr, "no CUDA device\n");
		return 1;
	}
	for (unsigned done = 0; done < calls; done += BLOCK) {
		double start = now_ns(), took;

		for (unsigned i = 0; i < BLOCK; i++)
			if (get_info(&free_bytes, &total_bytes))
				return 1;
		took = (now_ns() - start) / BLOCK;
		best = took < best ? took : best;
	}
	printf("%.1f\n", best);
	return 0;
}
