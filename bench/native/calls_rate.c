/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches without outputs as fast as one thread can make them. Prints calls a second, the final synchronise included,
 * and the waits of that part. Arguments: the library, the number of calls. With a third, a number of kernels: the same of
 * launches of a graph that has captured so many. With "steps" for the number: the instructions of one launch.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "steps.h"

typedef int launch_fn(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
		      void **);

enum { LAUNCHES = 101 };

static void *cuda;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *find(const char *name)
{
	void *symbol = dlsym(cuda, name);

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

static void launch(void *function, void *stream)
{
	static launch_fn *call;
	int value = 2;
	uint64_t first = 1, third = 3;
	void *parameters[] = { &first, &value, &third };

	if (!call)
		call = (launch_fn *)find("cuLaunchKernel");
	check(call(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

/* A graph of so many launches, and its stream. */
static void *capture(void *function, int kernels, void **stream)
{
	void *graph, *exec;

	check(((int (*)(void **, unsigned))find("cuStreamCreate"))(stream, 1));
	check(((int (*)(void *, int))find("cuStreamBeginCapture_v2"))(*stream, 0));
	for (int i = 0; i < kernels; i++)
		launch(function, *stream);
	check(((int (*)(void *, void **))find("cuStreamEndCapture"))(*stream, &graph));
	check(((int (*)(void **, void *, uint64_t))find("cuGraphInstantiateWithFlags"))(&exec, graph, 0));
	return exec;
}

/* The library with a context; a kernel that has been launched often. */
static void *prepare(const char *library)
{
	void *context, *module, *function;

	cuda = dlopen(library, RTLD_NOW);
	if (!cuda)
		exit(2);
	check(((int (*)(unsigned))find("cuInit"))(0));
	check(((int (*)(void **, int))find("cuDevicePrimaryCtxRetain"))(&context, 0));
	check(((int (*)(void *))find("cuCtxSetCurrent"))(context));
	check(((int (*)(void **, const void *))find("cuModuleLoadData"))(&module, "any text"));
	check(((int (*)(void **, void *, const char *))find("cuModuleGetFunction"))(&function, module, "kernel"));
	for (int i = 0; i < 10000; i++)
		launch(function, NULL);
	return function;
}

/* Launches one by one, each with an idle channel. */
static void launch_marked(const char *library)
{
	void *function = prepare(library);
	int (*sync)(void) = (int (*)(void))find("cuCtxSynchronize");

	for (int i = 0; i < LAUNCHES; i++) {
		check(sync());
		steps_mark();
		launch(function, NULL);
		steps_mark();
	}
}

int main(int argc, char **argv)
{
	int calls = argc > 2 ? atoi(argv[2]) : 1000000, kernels = argc > 3 ? atoi(argv[3]) : 0;
	void *function, *exec = NULL, *stream = NULL;
	int (*launch_graph)(void *, void *), (*sync)(void);
	uint64_t (*waits)(void), before;
	double start, took;

	if (argc > 2 && !strcmp(argv[2], "steps")) {
		printf("%ld\n", steps_count(launch_marked, argv[1], LAUNCHES));
		return 0;
	}
	function = prepare(argc > 1 ? argv[1] : "libcuda.so.1");
	launch_graph = (int (*)(void *, void *))find("cuGraphLaunch");
	sync = (int (*)(void))find("cuCtxSynchronize");
	waits = (uint64_t(*)(void))find("vgpumgr_channel_waits");
	if (kernels)
		exec = capture(function, kernels, &stream);
	check(sync());
	before = waits();
	start = now();
	for (int i = 0; i < calls && !exec; i++)
		launch(function, NULL);
	for (int i = 0; i < calls && exec; i++)
		check(launch_graph(exec, stream));
	check(sync());
	took = now() - start;
	printf("%.0f %llu\n", calls / took, (unsigned long long)(waits() - before));
	return 0;
}
