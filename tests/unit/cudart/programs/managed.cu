/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory in all its forms is refused, with a code and not with a crash; the rest of the program goes on. */
#define PROGRAM "managed"
#include "../../../guest/programs/check.h"

__managed__ int shared_counter;

__global__ void increment()
{
	shared_counter++;
}

int main()
{
	void *memory = (void *)1, *address;

	if (cudaMallocManaged(&memory, 16) != cudaErrorNotSupported || memory)
		FAIL("cudaMallocManaged");
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
