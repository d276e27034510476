/* SPDX-License-Identifier: Apache-2.0 */
/* The other half of linked.cu: each has names that the other has, too. */
#include <cuda_runtime.h>

__device__ int counter;

template <typename T> __device__ __noinline__ T plus_one(T x)
{
	return x + 1;
}

static __device__ __noinline__ int own(int x)
{
	return 5 * x;
}

__device__ int twice(int x)
{
	return plus_one(2 * x) + own(1);
}

__global__ void read_counter(int *to)
{
	*to = counter;
}

void read_counter_on_device(int *to)
{
	read_counter<<<1, 1>>>(to);
}
