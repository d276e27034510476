/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holdmem MIB SECONDS [spin [TURNS]]: holds MIB MiB of device memory for SECONDS, asleep or inside one kernel. Prints
 * "HOLD" when it holds them, for tests that look at it or kill it meanwhile, and PASS at the end. SIGUSR1 ends the time.
 */
#define PROGRAM "holdmem"
#include "check.h"

#include <csignal>
#include <cstring>
#include <unistd.h>

/* A signal with a handler ends sleep(). */
static void let_go(int) {}

/* Turns until the host lets go by a copy in another stream, or at most `most` times. */
__global__ void spin(volatile int *stop, unsigned long long most, unsigned long long *turns)
{
	unsigned long long n = 0;

	while (!*stop && n < most)
		n++;
	*turns = n;
}

static void spin_for(unsigned seconds, unsigned long long most, unsigned long long *turns)
{
	int *stop, *one;
	cudaStream_t kernels, copies;

	CHECK(cudaMalloc(&stop, sizeof(int)));
	CHECK(cudaMemset(stop, 0, sizeof(int)));
	CHECK(cudaMallocHost(&one, sizeof(int)));
	*one = 1;
	CHECK(cudaStreamCreateWithFlags(&kernels, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
	CHECK(cudaDeviceSynchronize());
	spin<<<1, 1, 0, kernels>>>(stop, most, turns);
	CHECK(cudaGetLastError());
	std::printf("HOLD spinning\n");
	std::fflush(stdout);
	sleep(seconds);
	CHECK(cudaMemcpyAsync(stop, one, sizeof(int), cudaMemcpyHostToDevice, copies));
	CHECK(cudaStreamSynchronize(kernels));
}

int main(int argc, char **argv)
{
	const size_t bytes = (size_t)argument(argc, argv, 1, 64) << 20;
	const unsigned seconds = (unsigned)argument(argc, argv, 2, 1);
	unsigned long long *memory;

	std::signal(SIGUSR1, let_go);
	CHECK(cudaMalloc(&memory, bytes));
	if (argc > 3 && !std::strcmp(argv[3], "spin")) {
		spin_for(seconds, argc > 4 ? (unsigned long long)argument(argc, argv, 4, 1) : 1ull << 40, memory);
	} else {
		std::printf("HOLD %zu bytes\n", bytes);
		std::fflush(stdout);
		sleep(seconds);
	}
	/* a free waits for no answer: a device that is gone would not be noticed */
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaFree(memory));
	PASS("%zu bytes for %u s", bytes, seconds);
}
