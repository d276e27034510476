/* SPDX-License-Identifier: Apache-2.0 */
/* histogram [N]: counts of N bytes: atomics in shared memory for each block, then in global memory. */
#define PROGRAM "histogram"
#include "check.h"

#include <vector>

constexpr int bins = 256;

__global__ void count(const unsigned char *data, int n, unsigned *histogram)
{
	__shared__ unsigned local[bins];

	for (int i = threadIdx.x; i < bins; i += blockDim.x)
		local[i] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(&local[data[i]], 1u);
	__syncthreads();
	for (int i = threadIdx.x; i < bins; i += blockDim.x)
		if (local[i])
			atomicAdd(&histogram[i], local[i]);
}

int main(int argc, char **argv)
{
	const int n = (int)argument(argc, argv, 1, 20011);
	std::vector<unsigned char> data(n);
	std::vector<unsigned> expected(bins), result(bins);
	unsigned char *device_data;
	unsigned *device_result;
	random_numbers random(4);

	/* uneven on purpose: many threads meet in few bins */
	for (unsigned char &value : data) {
		value = (unsigned char)(random.next() % (1 + random.next() % bins));
		expected[value]++;
	}
	CHECK(cudaMalloc(&device_data, n));
	CHECK(cudaMalloc(&device_result, bins * sizeof(unsigned)));
	CHECK(cudaMemcpy(device_data, data.data(), n, cudaMemcpyHostToDevice));
	CHECK(cudaMemset(device_result, 0, bins * sizeof(unsigned)));
	count<<<6, 128>>>(device_data, n, device_result);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(result.data(), device_result, bins * sizeof(unsigned), cudaMemcpyDeviceToHost));
	for (int i = 0; i < bins; i++)
		if (result[i] != expected[i])
			FAIL("bin %d has %u, not %u", i, result[i], expected[i]);
	PASS("%d bytes", n);
}
