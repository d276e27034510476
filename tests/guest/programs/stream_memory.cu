/* SPDX-License-Identifier: Apache-2.0 */
/* stream_memory: a stream waits for a value that another one writes behind its kernel; reductions and writes in a batch. */
#define PROGRAM "stream_memory"
#include "driver.h"

enum { N = 1000, READY = 7 };

__global__ void fill(int *to)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < N)
		to[i] = i;
}

__global__ void twice(int *to)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < N)
		to[i] *= 2;
}

static void write_in_a_batch(unsigned *words, cudaStream_t stream)
{
	DRIVER(cuStreamBatchMemOp);
	CUstreamBatchMemOpParams p[2] = {};
	unsigned found[2];

	for (int i = 0; i < 2; i++) {
		p[i].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		p[i].writeValue.address = (CUdeviceptr)(words + i);
		p[i].writeValue.value = 40 + i;
	}
	DRIVE(drv_cuStreamBatchMemOp((CUstream)stream, 2, p, 0));
	CHECK(cudaMemcpyAsync(found, words, sizeof(found), cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	if (found[0] != 40 || found[1] != 41)
		FAIL("a batch wrote %u and %u", found[0], found[1]);
}

int main()
{
	DRIVER(cuStreamWaitValue32);
	DRIVER(cuStreamWriteValue32);
	static int host[N];
	cudaStream_t first, second;
	unsigned *flag;
	int *data;

	CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
	CHECK(cudaMalloc(&data, sizeof(host)));
	CHECK(cudaMalloc(&flag, 64));
	CHECK(cudaMemset(flag, 0, 64));
	CHECK(cudaDeviceSynchronize());
	DRIVE(drv_cuStreamWaitValue32((CUstream)second, (CUdeviceptr)flag, READY, CU_STREAM_WAIT_VALUE_EQ));
	twice<<<blocks_for(N, 128), 128, 0, second>>>(data);
	CHECK(cudaGetLastError());
	if (cudaStreamQuery(second) != cudaErrorNotReady)
		FAIL("the second stream has not waited");
	fill<<<blocks_for(N, 128), 128, 0, first>>>(data);
	DRIVE(drv_cuStreamWriteValue32((CUstream)first, (CUdeviceptr)flag, READY, 0));
	CHECK(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, second));
	CHECK(cudaStreamSynchronize(second));
	for (int i = 0; i < N; i++)
		if (host[i] != 2 * i)
			FAIL("element %d is %d", i, host[i]);
	write_in_a_batch(flag + 4, first);
	PASS("%d elements behind a wait", N);
}
