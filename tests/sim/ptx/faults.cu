/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that go wrong. */
#undef NDEBUG
#include <cassert>

extern "C" {

__global__ void asserts(int n)
{
	assert(threadIdx.x != n);
}

__device__ __noinline__ int deeper(int n, volatile int *stop)
{
	int keep[16];

	for (int i = 0; i < 16; i++)
		keep[i] = n + i;
	if (*stop)
		return keep[n & 15];
	return deeper(n + 1, stop) + keep[*stop + (n & 15)];
}

__global__ void bottomless(int *out, int n)
{
	*out = deeper(n, out);
}

}
