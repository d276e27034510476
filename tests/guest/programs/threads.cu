/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads [THREADS [ROUNDS]]: many host threads on all devices at once, each with a stream and memory of its own; their
 * first launches meet while the module is being loaded. Each also makes an error, which no other thread may see.
 */
#define PROGRAM "threads"
#include "check.h"

#include <string>
#include <thread>
#include <vector>

__device__ int total;

__global__ void accumulate(int *data, int n, int value)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		data[i] += value;
	if (i == 0)
		atomicAdd(&total, value);
}

#define TRY(call)                                                                  \
	do {                                                                       \
		cudaError_t error_ = (call);                                       \
		if (error_ != cudaSuccess)                                         \
			return std::string(#call ": ") + cudaGetErrorName(error_); \
	} while (0)

static std::string work(int device, int value, int rounds)
{
	constexpr int n = 200;
	int *data, result[n];
	cudaStream_t stream;

	TRY(cudaSetDevice(device));
	TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	TRY(cudaMalloc(&data, sizeof(result)));
	TRY(cudaMemsetAsync(data, 0, sizeof(result), stream));
	for (int i = 0; i < rounds; i++) {
		accumulate<<<2, 128, 0, stream>>>(data, n, value);
		TRY(cudaGetLastError());
	}
	if (cudaMemcpy(data, result, 4, (cudaMemcpyKind)(100 + value)) != cudaErrorInvalidMemcpyDirection)
		return "a bad copy was accepted";
	TRY(cudaMemcpyAsync(result, data, sizeof(result), cudaMemcpyDeviceToHost, stream));
	TRY(cudaStreamSynchronize(stream));
	for (int i = 0; i < n; i++)
		if (result[i] != value * rounds)
			return "element " + std::to_string(i) + " is " + std::to_string(result[i]);
	if (cudaGetLastError() != cudaErrorInvalidMemcpyDirection || cudaGetLastError() != cudaSuccess)
		return "the thread's own error was lost";
	TRY(cudaFree(data));
	TRY(cudaStreamDestroy(stream));
	return "";
}

int main(int argc, char **argv)
{
	const int count = (int)argument(argc, argv, 1, 8), rounds = (int)argument(argc, argv, 2, 5);
	std::vector<std::thread> threads;
	std::vector<std::string> problems(count);
	std::vector<int> expected;
	int devices;

	CHECK(cudaGetDeviceCount(&devices));
	expected.resize(devices);
	for (int t = 0; t < count; t++) {
		expected[t % devices] += (t + 1) * rounds;
		threads.emplace_back([&problems, t, devices, rounds] { problems[t] = work(t % devices, t + 1, rounds); });
	}
	for (std::thread &thread : threads)
		thread.join();
	for (int t = 0; t < count; t++)
		if (!problems[t].empty())
			FAIL("thread %d: %s", t, problems[t].c_str());
	CHECK(cudaPeekAtLastError());
	for (int device = 0; device < devices && device < count; device++) {
		int sum = 0;

		CHECK(cudaSetDevice(device));
		CHECK(cudaMemcpyFromSymbol(&sum, total, sizeof(sum)));
		if (sum != expected[device])
			FAIL("device %d counted %d, not %d", device, sum, expected[device]);
	}
	PASS("%d threads on %d devices", count, devices);
}
