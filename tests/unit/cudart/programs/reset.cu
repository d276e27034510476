/* SPDX-License-Identifier: Apache-2.0 */
/* A device can be reset and used again, also by a thread that had it current; variables start anew. */
#define PROGRAM "reset"
#include "../../../guest/programs/check.h"

#include <thread>

__device__ int counter = 40;

__global__ void increment()
{
	counter++;
}

static int count()
{
	int value = -1;

	increment<<<1, 1>>>();
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
	return value;
}

int main()
{
	int before = count(), again = count(), after, last;

	std::thread([] { CHECK(cudaDeviceReset()); }).join();
	after = count();
	CHECK(cudaDeviceReset());
	CHECK(cudaDeviceReset());
	last = count();
	if (before != 41 || again != 42 || after != 41 || last != 41)
		FAIL("counted %d %d %d %d", before, again, after, last);
	PASS("three times");
}
