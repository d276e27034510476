/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perthread [THREADS]: compiled for a default stream of each thread's own. Work of one thread's default stream does not wait for
 * another's, which is held up meanwhile, and the streams of all of them give right results.
 */
#define PROGRAM "perthread"
#include "check.h"

#include <atomic>
#include <thread>
#include <vector>

static std::atomic<bool> go;

static void CUDART_CB hold(void *unused)
{
	(void)unused;
	while (!go)
		std::this_thread::yield();
}

__global__ void step(int *at, int n, int more)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		at[i] = at[i] * 2 + more;
}

static void work(int number)
{
	const int n = 3000, steps = 5;
	std::vector<int> host(n, number);
	int *at, expected = number;

	CHECK(cudaMallocAsync(&at, n * sizeof(int), cudaStreamPerThread));
	CHECK(cudaMemcpyAsync(at, host.data(), n * sizeof(int), cudaMemcpyHostToDevice)); /* in the default stream */
	for (int i = 0; i < steps; i++) {
		step<<<blocks_for(n, 128), 128>>>(at, n, i);
		expected = expected * 2 + i;
	}
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpyAsync(host.data(), at, n * sizeof(int), cudaMemcpyDeviceToHost));
	CHECK(cudaStreamSynchronize(0));
	for (int i = 0; i < n; i++)
		if (host[i] != expected)
			FAIL("thread %d: element %d is %d instead of %d", number, i, host[i], expected);
	CHECK(cudaFreeAsync(at, 0));
	CHECK(cudaStreamSynchronize(cudaStreamPerThread));
}

int main(int argc, char **argv)
{
	const int count = (int)argument(argc, argv, 1, 4);
	std::vector<std::thread> threads;

	CHECK(cudaFree(nullptr));
	CHECK(cudaLaunchHostFunc(0, hold, nullptr)); /* this thread's default stream stands still */
	if (cudaStreamQuery(0) != cudaErrorNotReady)
		FAIL("the default stream does not wait for its host function");
	for (int i = 1; i <= count; i++)
		threads.emplace_back(work, i);
	for (std::thread &thread : threads)
		thread.join(); /* a default stream of all threads would wait here for ever */
	go = true;
	CHECK(cudaStreamSynchronize(0));
	PASS("%d threads", count);
}
