/* SPDX-License-Identifier: Apache-2.0 */
/* For the programs here: a call that must succeed, and the time. */
#ifndef CUDA_CLOCK_H
#define CUDA_CLOCK_H

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(call)                                                                 \
	do {                                                                        \
		cudaError_t e_ = (call);                                            \
		if (e_) {                                                           \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)); \
			exit(1);                                                    \
		}                                                                   \
	} while (0)

/* Seconds; of CLOCK_REALTIME the same in all processes. */
static inline double now(clockid_t clock = CLOCK_MONOTONIC)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* One element for each thread, `turns` operations on it: how long a kernel is, `turns` says. */
static __global__ void work(float *x, int n, int turns)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float v = i < n ? x[i] : 0;

	for (int k = 0; k < turns; k++)
		v = fmaf(v, 1.0001f, 0.5f);
	if (i < n)
		x[i] = v;
}

#endif
