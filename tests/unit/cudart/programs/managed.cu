/* SPDX-License-Identifier: Apache-2.0 */
/* Managed variables are refused, with a code and not with a crash; the rest of the program goes on, with managed memory. */
#define PROGRAM "managed"
#include "../../../guest/programs/check.h"

__managed__ int shared_counter;

__global__ void increment()
{
	shared_counter++;
}

int main()
{
	void *memory, *address;

	CHECK(cudaMallocManaged(&memory, 16));
	*(int *)memory = 1;
	CHECK(cudaFree(memory));
	if (cudaGetSymbolAddress(&address, shared_counter) != cudaErrorNotSupported)
		FAIL("address of a managed variable");
	(void)cudaGetLastError();
	increment<<<1, 1>>>();
	if (cudaGetLastError() != cudaErrorNotSupported)
		FAIL("launch of a kernel beside a managed variable");
	CHECK(cudaMalloc(&memory, 16));
	CHECK(cudaDeviceSynchronize());
	PASS("refused");
}
