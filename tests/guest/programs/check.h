/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the test programs share: each computes on the device, compares with the CPU, prints one line
 * "PASS name ..." or "FAIL name ..." and exits 0 or 1. They run on any driver: a GPU's, a forwarded one, a simulated one.
 */
#ifndef CHECK_H
#define CHECK_H

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#ifndef PROGRAM
#define PROGRAM "program"
#endif

[[noreturn]] static inline void fail_call(const char *call, cudaError_t error, int line)
{
	std::printf("FAIL %s line %d: %s: %s (%d)\n", PROGRAM, line, call, cudaGetErrorName(error), (int)error);
	std::exit(1);
}

#define CHECK(call)                                        \
	do {                                               \
		cudaError_t error_ = (call);               \
		if (error_ != cudaSuccess)                 \
			fail_call(#call, error_, __LINE__);\
	} while (0)

#define FAIL(...)                                          \
	do {                                               \
		std::printf("FAIL %s: ", PROGRAM);         \
		std::printf(__VA_ARGS__);                  \
		std::printf("\n");                         \
		std::exit(1);                              \
	} while (0)

/* The call answers that code. */
#define REFUSED(call, code)                                                                             \
	do {                                                                                            \
		cudaError_t error_ = (call);                                                            \
		if (error_ != (code))                                                                   \
			FAIL("line %d: %s: %d", __LINE__, #call, (int)error_);                          \
		cudaGetLastError();                                                                     \
	} while (0)

#define PASS(...)                                          \
	do {                                               \
		std::printf("PASS %s ", PROGRAM);          \
		std::printf(__VA_ARGS__);                  \
		std::printf("\n");                         \
		return 0;                                  \
	} while (0)

/* The i-th positive number on the command line, or what the program does by itself. */
static inline long argument(int argc, char **argv, int i, long otherwise)
{
	long value = argc > i ? std::strtol(argv[i], nullptr, 0) : otherwise;

	if (value <= 0)
		FAIL("argument %d must be a positive number", i);
	return value;
}

static inline unsigned blocks_for(long n, unsigned threads)
{
	return (unsigned)((n + threads - 1) / threads);
}

/* A small generator, the same everywhere. */
struct random_numbers {
	unsigned long long state;

	explicit random_numbers(unsigned long long seed) : state(seed * 2 + 1) {}
	unsigned next()
	{
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		return (unsigned)(state >> 33);
	}
	float unit() { return (float)(next() & 0xffffff) / 0x1000000; }
};

#endif
