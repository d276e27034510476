/* SPDX-License-Identifier: Apache-2.0 */
/* Relocatable device code: the kernel's function and variable lie in linked_part.cu. */
#define PROGRAM "linked"
#include "../../../guest/programs/check.h"

extern __device__ int twice(int value);
extern __device__ int offset;

__global__ void compute(int *out)
{
	out[threadIdx.x] = twice(threadIdx.x) + offset;
}

int main()
{
	int *device, result[32];

	CHECK(cudaMalloc(&device, sizeof(result)));
	compute<<<1, 32>>>(device);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(result, device, sizeof(result), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 32; i++)
		if (result[i] != 2 * i + 5)
			FAIL("element %d is %d", i, result[i]);
	PASS("32 elements");
}
