/* SPDX-License-Identifier: Apache-2.0 */
/* All devices of the process at once: kernels on each, then what each has made goes round to the next one. */
#define PROGRAM "devices"
#include <vector>

#include "check.h"

static const int N = 1 << 18;

__global__ void fill(int *out, int n, int seed)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = i * 7 + seed;
}

__global__ void add(int *a, const int *b, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		a[i] += b[i];
}

struct device {
	cudaStream_t stream;
	cudaEvent_t filled;
	int *own, *other;
};

static void start(device &d, int number)
{
	CHECK(cudaSetDevice(number));
	CHECK(cudaStreamCreateWithFlags(&d.stream, cudaStreamNonBlocking));
	CHECK(cudaEventCreateWithFlags(&d.filled, cudaEventDisableTiming));
	CHECK(cudaMalloc(&d.own, N * sizeof(int)));
	CHECK(cudaMalloc(&d.other, N * sizeof(int)));
	fill<<<(N + 255) / 256, 256, 0, d.stream>>>(d.own, N, number);
	CHECK(cudaGetLastError());
	CHECK(cudaEventRecord(d.filled, d.stream));
}

int main()
{
	int count, wrong = 0;

	CHECK(cudaGetDeviceCount(&count));
	std::vector<device> devices(count);
	std::vector<int> back(N);
	for (int i = 0; i < count; i++)
		start(devices[i], i);
	for (int i = 0; i < count; i++) {
		device &d = devices[i], &next = devices[(i + 1) % count];

		CHECK(cudaSetDevice(i));
		CHECK(cudaStreamWaitEvent(d.stream, next.filled, 0));
		CHECK(cudaMemcpyPeerAsync(d.other, i, next.own, (i + 1) % count, N * sizeof(int), d.stream));
	}
	if (count > 1) { /* the same once more, as a box of one slice */
		cudaMemcpy3DPeerParms box = {};

		box.srcPtr = make_cudaPitchedPtr(devices[1].own, 1024, 1024, N / 256);
		box.dstPtr = make_cudaPitchedPtr(devices[0].other, 1024, 1024, N / 256);
		box.srcDevice = 1;
		box.extent = make_cudaExtent(1024, N / 256, 1);
		CHECK(cudaMemcpy3DPeer(&box));
	}
	/* all have been read before any changes */
	for (int i = 0; i < count; i++)
		CHECK(cudaStreamSynchronize(devices[i].stream));
	for (int i = 0; i < count; i++) {
		device &d = devices[i];

		CHECK(cudaSetDevice(i));
		add<<<(N + 255) / 256, 256, 0, d.stream>>>(d.own, d.other, N);
		CHECK(cudaMemcpyAsync(back.data(), d.own, N * sizeof(int), cudaMemcpyDefault, d.stream));
		CHECK(cudaStreamSynchronize(d.stream));
		for (int k = 0; k < N; k++)
			wrong += back[k] != 2 * 7 * k + i + (i + 1) % count;
		cudaDeviceProp p;
		CHECK(cudaGetDeviceProperties(&p, i));
		wrong += p.multiProcessorCount <= 0;
	}
	if (wrong)
		FAIL("%d wrong", wrong);
	PASS("%d", count);
}
