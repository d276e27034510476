/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batches [BLOCKS]: blocks of a cache are moved out to pinned memory and in again in another order, a batch each way, as
 * servers of language models do; a kernel changes them in between.
 */
#define PROGRAM "batches"
#include "check.h"

#include <vector>

enum { WORDS = 256, BYTES = WORDS * sizeof(int) };

__global__ void add_one(int *blocks, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		blocks[i] += 1;
}

static cudaError_t move(std::vector<void *> &to, std::vector<void *> &from, cudaStream_t stream)
{
	std::vector<size_t> sizes(to.size(), BYTES);
	cudaMemcpyAttributes attributes = {};
	size_t first = 0;

	attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
#if CUDART_VERSION >= 13000
	return cudaMemcpyBatchAsync(to.data(), (const void **)from.data(), sizes.data(), sizes.size(), &attributes, &first, 1,
				    stream);
#else
	size_t failed;

	return cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), sizes.size(), &attributes, &first, 1, &failed,
				    stream);
#endif
}

int main(int argc, char **argv)
{
	int blocks = (int)argument(argc, argv, 1, 20), n = blocks * WORDS;
	std::vector<void *> device, host, turned;
	int *cache, *pinned;
	cudaStream_t stream;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMalloc((void **)&cache, blocks * BYTES));
	CHECK(cudaMallocHost((void **)&pinned, blocks * BYTES));
	for (int i = 0; i < n; i++)
		pinned[i] = i;
	for (int b = 0; b < blocks; b++) {
		device.push_back(cache + b * WORDS);
		host.push_back(pinned + b * WORDS);
		turned.push_back(cache + (blocks - 1 - b) * WORDS);
	}
	CHECK(move(turned, host, stream));
	add_one<<<blocks_for(n, 128), 128, 0, stream>>>(cache, n);
	CHECK(move(host, device, stream));
	CHECK(cudaStreamSynchronize(stream));
	for (int i = 0; i < n; i++) {
		int expected = (blocks - 1 - i / WORDS) * WORDS + i % WORDS + 1;

		if (pinned[i] != expected)
			FAIL("word %d is %d, not %d", i, pinned[i], expected);
	}
	if (move(host, device, cudaStreamLegacy) != cudaErrorInvalidValue)
		FAIL("a batch in the legacy stream was not refused");
	PASS("%d blocks", blocks);
}
