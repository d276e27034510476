/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches without outputs as fast as one thread can make them. Prints calls a second, the final synchronise included,
 * and the waits of that part. Arguments: the library, the number of calls.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int launch_fn(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
		      void **);

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *find(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	if (!symbol)
		exit(2);
	return symbol;
}

static void check(int result)
{
	if (result) {
		fprintf(stderr, "CUDA error %d\n", result);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	void *cuda = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW), *context, *module, *function;
	int calls = argc > 2 ? atoi(argv[2]) : 1000000, value = 2;
	uint64_t first = 1, third = 3, before;
	void *parameters[] = { &first, &value, &third };
	launch_fn *launch = (launch_fn *)find(cuda, "cuLaunchKernel");
	int (*sync)(void) = (int (*)(void))find(cuda, "cuCtxSynchronize");
	uint64_t (*waits)(void) = (uint64_t(*)(void))find(cuda, "vgpumgr_channel_waits");
	double start, took;

	check(((int (*)(unsigned))find(cuda, "cuInit"))(0));
	check(((int (*)(void **, int))find(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0));
	check(((int (*)(void *))find(cuda, "cuCtxSetCurrent"))(context));
	check(((int (*)(void **, const void *))find(cuda, "cuModuleLoadData"))(&module, "any text"));
	check(((int (*)(void **, void *, const char *))find(cuda, "cuModuleGetFunction"))(&function, module, "kernel"));
	for (int i = 0; i < 10000; i++)
		check(launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
	check(sync());
	before = waits();
	start = now();
	for (int i = 0; i < calls; i++)
		check(launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
	check(sync());
	took = now() - start;
	printf("%.0f %llu\n", calls / took, (unsigned long long)(waits() - before));
	return 0;
}
