/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of 16 MiB through a CUDA library: usage is vgpumgr-bench-copies LIBRARY [COUNT]. Prints bytes a second to the
 * device, from it, and of a plain memcpy, taken in turn; the best round of each.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda.h>

enum { PIECE = 16 << 20, COUNT = 30 };
enum { TO_DEVICE, TO_HOST, PLAIN, WAYS };

static struct {
	CUresult (*init)(unsigned);
	CUresult (*create)(CUcontext *, unsigned, CUdevice);
	CUresult (*allocate)(CUdeviceptr *, size_t);
	CUresult (*to_device)(CUdeviceptr, const void *, size_t);
	CUresult (*to_host)(void *, CUdeviceptr, size_t);
	CUresult (*wait)(void);
} cuda;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *need(void *library, const char *name)
{
	void *symbol = library ? dlsym(library, name) : NULL;

	if (!symbol)
		exit(2);
	return symbol;
}

static void find(void *library)
{
	cuda.init = need(library, "cuInit");
	cuda.create = need(library, "cuCtxCreate_v2");
	cuda.allocate = need(library, "cuMemAlloc_v2");
	cuda.to_device = need(library, "cuMemcpyHtoD_v2");
	cuda.to_host = need(library, "cuMemcpyDtoH_v2");
	cuda.wait = need(library, "cuCtxSynchronize");
}

static void check(CUresult result)
{
	if (result) {
		fprintf(stderr, "CUDA error %d\n", result);
		exit(1);
	}
}

static double move(int way, uint8_t *from, uint8_t *to, CUdeviceptr device)
{
	double start = now();

	if (way == TO_DEVICE) {
		check(cuda.to_device(device, from, PIECE));
		check(cuda.wait());
	} else if (way == TO_HOST) {
		check(cuda.to_host(to, device, PIECE));
	} else {
		memcpy(to, from, PIECE);
		__asm__ volatile("" ::"r"(to) : "memory");
	}
	return now() - start;
}

int main(int argc, char **argv)
{
	double best[WAYS] = { 1e9, 1e9, 1e9 };
	int count = argc > 2 ? atoi(argv[2]) : COUNT;
	uint8_t *from = malloc(PIECE), *to = malloc(PIECE);
	CUdeviceptr device;
	CUcontext context;

	if (argc < 2 || !from || !to)
		return 2;
	find(dlopen(argv[1], RTLD_NOW));
	check(cuda.init(0));
	check(cuda.create(&context, 0, 0));
	check(cuda.allocate(&device, PIECE));
	memset(from, 1, PIECE);
	memset(to, 2, PIECE);
	check(cuda.to_device(device, from, PIECE));
	for (int i = 0; i < count; i++) {
		from[i * 4097 % PIECE]++;
		for (int way = 0; way < WAYS; way++) {
			double took = move(way, from, to, device);

			best[way] = took < best[way] ? took : best[way];
			if (way == TO_HOST && memcmp(from, to, PIECE))
				return 1;
		}
	}
	printf("%.0f %.0f %.0f\n", PIECE / best[TO_DEVICE], PIECE / best[TO_HOST], PIECE / best[PLAIN]);
	return 0;
}
