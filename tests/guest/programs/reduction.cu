/* SPDX-License-Identifier: Apache-2.0 */
/* reduction [N]: the sum and the maximum of N integers, by warp shuffles, then shared memory, then one atomic. */
#define PROGRAM "reduction"
#include "check.h"

#include <vector>

constexpr unsigned full_warp = 0xffffffff;

__device__ int warp_sum(int value)
{
	for (int step = 16; step > 0; step /= 2)
		value += __shfl_down_sync(full_warp, value, step);
	return value;
}

__device__ int warp_max(int value)
{
	for (int step = 16; step > 0; step /= 2)
		value = max(value, __shfl_xor_sync(full_warp, value, step));
	return value;
}

__global__ void reduce(const int *values, int n, int *sum, int *most)
{
	__shared__ int sums[32], maxima[32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
	int total = 0, largest = -0x7fffffff;

	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
		total += values[i];
		largest = max(largest, values[i]);
	}
	total = warp_sum(total);
	largest = warp_max(largest);
	if (lane == 0) {
		sums[warp] = total;
		maxima[warp] = largest;
	}
	__syncthreads();
	if (warp == 0) {
		total = warp_sum(lane < warps ? sums[lane] : 0);
		largest = warp_max(lane < warps ? maxima[lane] : -0x7fffffff);
		if (lane == 0) {
			atomicAdd(sum, total);
			atomicMax(most, largest);
		}
	}
}

int main(int argc, char **argv)
{
	const int n = (int)argument(argc, argv, 1, 20011);
	const int start[2] = { 0, -0x7fffffff };
	std::vector<int> values(n);
	int expected = 0, largest = start[1], result[2], *device_values, *device_result;
	random_numbers random(3);

	for (int &value : values) {
		value = (int)(random.next() % 2001) - 1000;
		expected += value;
		largest = value > largest ? value : largest;
	}
	CHECK(cudaMalloc(&device_values, n * sizeof(int)));
	CHECK(cudaMalloc(&device_result, sizeof(result)));
	CHECK(cudaMemcpy(device_values, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(device_result, start, sizeof(start), cudaMemcpyHostToDevice));
	reduce<<<8, 128>>>(device_values, n, device_result, device_result + 1);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(result, device_result, sizeof(result), cudaMemcpyDeviceToHost));
	if (result[0] != expected || result[1] != largest)
		FAIL("sum %d and maximum %d, not %d and %d", result[0], result[1], expected, largest);
	PASS("%d elements, sum %d", n, expected);
}
