/* SPDX-License-Identifier: Apache-2.0 */
/*
 * busy SECONDS TURNS [AT_ONCE]: kernels that fill the GPU, AT_ONCE of them in each of two streams, so that there is always
 * more work. Prints for each tenth of a second how many have ended, with the time: "TIME COUNT". TURNS says how long one is.
 */
#include "cuda_clock.h"

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 5;
	int turns = argc > 2 ? atoi(argv[2]) : 2000, at_once = argc > 3 ? atoi(argv[3]) : 4, current = 0;
	const int N = 1 << 22;
	cudaStream_t streams[2];
	cudaEvent_t events[2];
	bool begun[2] = {};
	long count = 0;
	float *x;

	CHECK(cudaMalloc(&x, N * sizeof(float)));
	CHECK(cudaMemset(x, 0, N * sizeof(float)));
	for (int i = 0; i < 2; i++) {
		CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
		CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
	}
	double start = now(CLOCK_REALTIME), next = start + 0.1;
	printf("%.3f 0\n", start);
	while (now(CLOCK_REALTIME) < start + seconds) {
		if (begun[current]) {
			CHECK(cudaEventSynchronize(events[current]));
			count += at_once;
		}
		for (int i = 0; i < at_once; i++)
			work<<<N / 256, 256, 0, streams[current]>>>(x, N, turns);
		CHECK(cudaEventRecord(events[current], streams[current]));
		begun[current] = true;
		current ^= 1;
		if (now(CLOCK_REALTIME) >= next) {
			printf("%.3f %ld\n", now(CLOCK_REALTIME), count);
			next += 0.1;
		}
	}
	CHECK(cudaDeviceSynchronize());
	return 0;
}
