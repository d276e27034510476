/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap [N [STREAMS]]: copies and kernels of STREAMS chunks of N integers, each chunk in its own stream from pinned
 * memory, joined by events; a host function counts the chunks that are done.
 */
#define PROGRAM "overlap"
#include "check.h"

#include <atomic>
#include <vector>

__global__ void scale(int *data, int n, int factor)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		data[i] = data[i] * factor + i;
}

__global__ void add_up(const int *data, int n, int chunks, int *sums)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;

	for (int chunk = 0; i < n && chunk < chunks; chunk++)
		sum += data[chunk * n + i];
	if (i < n)
		sums[i] = sum;
}

static std::atomic<int> done;

static void CUDART_CB count(void *)
{
	done++;
}

int main(int argc, char **argv)
{
	const int n = (int)argument(argc, argv, 1, 2003), chunks = (int)argument(argc, argv, 2, 4);
	std::vector<cudaStream_t> streams(chunks);
	std::vector<cudaEvent_t> events(chunks);
	int *host, *device, *sums;
	cudaEvent_t start, end;
	cudaStream_t joined;
	float ms = -1;

	CHECK(cudaMallocHost(&host, (size_t)(chunks + 1) * n * sizeof(int)));
	CHECK(cudaMalloc(&device, (size_t)chunks * n * sizeof(int)));
	CHECK(cudaMalloc(&sums, n * sizeof(int)));
	CHECK(cudaEventCreate(&start));
	CHECK(cudaEventCreate(&end));
	CHECK(cudaStreamCreateWithFlags(&joined, cudaStreamNonBlocking));
	CHECK(cudaEventRecord(start, joined));
	for (int i = 0; i < chunks * n; i++)
		host[i] = i % 1009;
	for (int c = 0; c < chunks; c++) {
		int *from = host + (size_t)c * n, *to = device + (size_t)c * n;

		CHECK(cudaStreamCreateWithFlags(&streams[c], cudaStreamNonBlocking));
		CHECK(cudaEventCreateWithFlags(&events[c], cudaEventDisableTiming));
		CHECK(cudaMemcpyAsync(to, from, n * sizeof(int), cudaMemcpyHostToDevice, streams[c]));
		scale<<<blocks_for(n, 128), 128, 0, streams[c]>>>(to, n, c + 2);
		CHECK(cudaGetLastError());
		CHECK(cudaLaunchHostFunc(streams[c], count, nullptr));
		CHECK(cudaEventRecord(events[c], streams[c]));
		CHECK(cudaStreamWaitEvent(joined, events[c], 0));
	}
	add_up<<<blocks_for(n, 128), 128, 0, joined>>>(device, n, chunks, sums);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpyAsync(host + (size_t)chunks * n, sums, n * sizeof(int), cudaMemcpyDeviceToHost, joined));
	CHECK(cudaEventRecord(end, joined));
	CHECK(cudaEventSynchronize(end));
	CHECK(cudaEventQuery(end));
	CHECK(cudaEventElapsedTime(&ms, start, end));
	CHECK(cudaDeviceSynchronize());
	for (int i = 0; i < n; i++) {
		int expected = 0;

		for (int c = 0; c < chunks; c++)
			expected += host[(size_t)c * n + i] * (c + 2) + i;
		if (host[(size_t)chunks * n + i] != expected)
			FAIL("element %d is %d, not %d", i, host[(size_t)chunks * n + i], expected);
	}
	if (done != chunks)
		FAIL("%d host functions ran, not %d", (int)done, chunks);
	if (ms < 0)
		FAIL("negative time between events: %g ms", ms);
	for (int c = 0; c < chunks; c++) {
		CHECK(cudaEventDestroy(events[c]));
		CHECK(cudaStreamDestroy(streams[c]));
	}
	CHECK(cudaFreeHost(host));
	PASS("%d streams of %d elements", chunks, n);
}
