/* SPDX-License-Identifier: Apache-2.0 */
/*
 * busy SECONDS TURNS [AT_ONCE]: kernels that fill the GPU, AT_ONCE of them in each of two streams, so that there is always
 * more work. Prints for each tenth of a second how many have ended, with the time: "TIME COUNT". TURNS says how long one is.
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(call)                                                                 \
	do {                                                                        \
		cudaError_t e_ = (call);                                            \
		if (e_) {                                                           \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)); \
			exit(1);                                                    \
		}                                                                   \
	} while (0)

__global__ void work(float *x, int n, int turns)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float v = i < n ? x[i] : 0;

	for (int k = 0; k < turns; k++)
		v = fmaf(v, 1.0001f, 0.5f);
	if (i < n)
		x[i] = v;
}

static double now()
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

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
	double start = now(), next = start + 0.1;
	printf("%.3f 0\n", start);
	while (now() < start + seconds) {
		if (begun[current]) {
			CHECK(cudaEventSynchronize(events[current]));
			count += at_once;
		}
		for (int i = 0; i < at_once; i++)
			work<<<N / 256, 256, 0, streams[current]>>>(x, N, turns);
		CHECK(cudaEventRecord(events[current], streams[current]));
		begun[current] = true;
		current ^= 1;
		if (now() >= next) {
			printf("%.3f %ld\n", now(), count);
			next += 0.1;
		}
	}
	CHECK(cudaDeviceSynchronize());
	return 0;
}
