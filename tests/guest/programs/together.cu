/* SPDX-License-Identifier: Apache-2.0 */
/*
 * together [BLOCKS [ROUNDS]]: a cooperative launch. In each round every block reads what all others wrote in the round
 * before, after a barrier of the whole grid; a grid that is too large to be on the device at once is refused.
 */
#define PROGRAM "together"
#include "check.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

enum { THREADS = 64 };

/* values[round % 2] of a block becomes the sum of all blocks' values of the round before, plus its number. */
__global__ void rounds(unsigned *values, unsigned count)
{
	cg::grid_group grid = cg::this_grid();
	__shared__ unsigned sum;

	for (unsigned round = 0; round < count; round++) {
		const unsigned *before = values + (round + 1) % 2 * gridDim.x;

		if (!threadIdx.x)
			sum = blockIdx.x;
		__syncthreads();
		for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x)
			atomicAdd(&sum, before[b]);
		__syncthreads();
		if (!threadIdx.x)
			values[round % 2 * gridDim.x + blockIdx.x] = sum;
		grid.sync();
	}
}

/* A barrier in two parts: what stands between them needs no other block. */
__global__ void split(unsigned *values)
{
	cg::grid_group grid = cg::this_grid();
	cg::grid_group::arrival_token token = (values[grid.block_rank()] = 1, grid.barrier_arrive());

	grid.barrier_wait(static_cast<cg::grid_group::arrival_token &&>(token));
	if (!grid.thread_rank()) {
		unsigned sum = 0;

		for (unsigned b = 0; b < grid.num_blocks(); b++)
			sum += values[b];
		values[0] = sum;
	}
}

static void expect_rounds(const unsigned *found, unsigned blocks, unsigned count)
{
	unsigned *now = new unsigned[blocks](), sum = 0;

	for (unsigned round = 0; round < count; round++) {
		unsigned next = 0;

		for (unsigned b = 0; b < blocks; b++)
			next += now[b] = sum + b;
		sum = next;
	}
	for (unsigned b = 0; b < blocks; b++)
		if (found[b] != now[b])
			FAIL("block %u has %u, not %u", b, found[b], now[b]);
	delete[] now;
}

int main(int argc, char **argv)
{
	unsigned blocks = (unsigned)argument(argc, argv, 1, 24), count = (unsigned)argument(argc, argv, 2, 5);
	unsigned *values, *host = new unsigned[blocks];
	void *args[] = { &values, &count };
	cudaDeviceProp properties;
	int per_sm;

	CHECK(cudaGetDeviceProperties(&properties, 0));
	if (!properties.cooperativeLaunch)
		FAIL("the device takes no cooperative launches");
	CHECK(cudaMalloc(&values, 2 * blocks * sizeof(unsigned)));
	CHECK(cudaMemset(values, 0, 2 * blocks * sizeof(unsigned)));
	CHECK(cudaLaunchCooperativeKernel((void *)rounds, dim3(blocks), dim3(THREADS), args, 0, 0));
	CHECK(cudaMemcpy(host, values + (count + 1) % 2 * blocks, blocks * sizeof(unsigned), cudaMemcpyDeviceToHost));
	expect_rounds(host, blocks, count);
	CHECK(cudaLaunchCooperativeKernel((void *)split, dim3(blocks), dim3(THREADS), args, 0, 0));
	CHECK(cudaMemcpy(host, values, sizeof(unsigned), cudaMemcpyDeviceToHost));
	if (host[0] != blocks)
		FAIL("%u blocks had arrived, not %u", host[0], blocks);
	CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, rounds, THREADS, 0));
	blocks = (unsigned)(per_sm * properties.multiProcessorCount + 1);
	if (cudaLaunchCooperativeKernel((void *)rounds, dim3(blocks), dim3(THREADS), args, 0, 0) !=
	    cudaErrorCooperativeLaunchTooLarge)
		FAIL("a grid of %u blocks was not refused", blocks);
	cudaGetLastError();
	CHECK(cudaDeviceSynchronize());
	delete[] host;
	PASS("%u rounds", count);
}
