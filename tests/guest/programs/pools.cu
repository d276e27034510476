/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pools [N [ROUNDS]]: ROUNDS times in each of three streams, memory comes from a pool in the order of the stream, is used
 * by kernels, and goes back without the host waiting. Pools keep what they are told to keep, and count what they hold.
 */
#define PROGRAM "pools"
#include "check.h"

enum { STREAMS = 3 };

__global__ void fill(int *to, int n, int value)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		to[i] = value + i;
}

__global__ void add_to(int *sums, const int *from, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		sums[i] += from[i];
}

static unsigned long long ask(cudaMemPool_t pool, cudaMemPoolAttr attribute)
{
	unsigned long long value = 0;

	CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

static cudaMemPool_t make_pool(void)
{
	cudaMemPoolProps properties = {};
	unsigned long long threshold = 64 << 20;
	cudaMemPool_t pool;

	properties.allocType = cudaMemAllocationTypePinned;
	properties.location.type = cudaMemLocationTypeDevice;
	properties.location.id = 0;
	CHECK(cudaMemPoolCreate(&pool, &properties));
	CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
	if (ask(pool, cudaMemPoolAttrReleaseThreshold) != threshold)
		FAIL("the release threshold is not what was set");
	return pool;
}

static void run_rounds(cudaMemPool_t pool, cudaStream_t stream, int *sums, int n, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		int *part;

		if (round % 2)
			CHECK(cudaMallocFromPoolAsync((void **)&part, n * sizeof(int), pool, stream));
		else
			CHECK(cudaMallocAsync((void **)&part, n * sizeof(int), stream));
		fill<<<blocks_for(n, 128), 128, 0, stream>>>(part, n, round);
		add_to<<<blocks_for(n, 128), 128, 0, stream>>>(sums, part, n);
		CHECK(cudaFreeAsync(part, stream));
	}
}

static void check_counts(cudaMemPool_t pool, size_t bytes)
{
	void *held;

	CHECK(cudaMallocFromPoolAsync(&held, bytes, pool, 0));
	CHECK(cudaDeviceSynchronize());
	if (ask(pool, cudaMemPoolAttrUsedMemCurrent) < bytes || ask(pool, cudaMemPoolAttrUsedMemHigh) < bytes)
		FAIL("the pool does not count what it holds");
	CHECK(cudaFreeAsync(held, 0));
	CHECK(cudaDeviceSynchronize());
	if (ask(pool, cudaMemPoolAttrUsedMemCurrent))
		FAIL("the pool still counts what has been freed");
	CHECK(cudaMemPoolTrimTo(pool, 0));
	if (ask(pool, cudaMemPoolAttrReservedMemCurrent))
		FAIL("the pool keeps memory that it was told to give back");
}

int main(int argc, char **argv)
{
	const int n = (int)argument(argc, argv, 1, 3001), rounds = (int)argument(argc, argv, 2, 6);
	cudaMemPool_t pool = make_pool(), initial, current;
	cudaStream_t streams[STREAMS];
	int *sums[STREAMS], *host = (int *)malloc(n * sizeof(int));

	CHECK(cudaDeviceGetDefaultMemPool(&initial, 0));
	CHECK(cudaDeviceGetMemPool(&current, 0));
	if (current != initial || current == pool)
		FAIL("the device does not begin with its own pool");
	for (int s = 0; s < STREAMS; s++) {
		CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
		CHECK(cudaMallocAsync((void **)&sums[s], n * sizeof(int), streams[s]));
		CHECK(cudaMemsetAsync(sums[s], 0, n * sizeof(int), streams[s]));
	}
	CHECK(cudaDeviceSetMemPool(0, pool));
	for (int s = 0; s < STREAMS; s++)
		run_rounds(pool, streams[s], sums[s], n, rounds + s);
	for (int s = 0; s < STREAMS; s++) {
		CHECK(cudaMemcpyAsync(host, sums[s], n * sizeof(int), cudaMemcpyDeviceToHost, streams[s]));
		CHECK(cudaStreamSynchronize(streams[s]));
		for (int i = 0, r = rounds + s; i < n; i++)
			if (host[i] != r * (r - 1) / 2 + r * i)
				FAIL("stream %d, element %d is %d", s, i, host[i]);
		CHECK(cudaFreeAsync(sums[s], streams[s]));
		CHECK(cudaStreamDestroy(streams[s]));
	}
	check_counts(pool, 1 << 20);
	CHECK(cudaMemPoolDestroy(pool));
	CHECK(cudaDeviceGetMemPool(&current, 0));
	if (current != initial)
		FAIL("the device still allocates from a pool that was destroyed");
	free(host);
	PASS("%d streams, %d elements", STREAMS, n);
}
