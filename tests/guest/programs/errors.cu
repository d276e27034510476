/* SPDX-License-Identifier: Apache-2.0 */
/*
 * errors [invalid|memory|address]: the codes that a GPU gives, and what becomes of the context. The illegal address comes
 * last, for nothing works in the process after it.
 */
#define PROGRAM "errors"
#include "check.h"

#include <cstring>

__global__ void store(int *where, int value)
{
	*where = value;
}

static void expect(const char *what, cudaError_t got, cudaError_t want)
{
	if (got != want)
		FAIL("%s gave %s (%d), not %s (%d)", what, cudaGetErrorName(got), (int)got, cudaGetErrorName(want),
		     (int)want);
}

/* An error that leaves the context usable: reported, remembered once, then gone. */
static void expect_passing(const char *what, cudaError_t got, cudaError_t want)
{
	expect(what, got, want);
	expect("cudaPeekAtLastError", cudaPeekAtLastError(), want);
	expect("cudaGetLastError", cudaGetLastError(), want);
	expect("cudaGetLastError again", cudaGetLastError(), cudaSuccess);
	expect("cudaDeviceSynchronize after it", cudaDeviceSynchronize(), cudaSuccess);
}

static int *allocate()
{
	int *memory;

	CHECK(cudaMalloc(&memory, 1024));
	return memory;
}

static void invalid_arguments()
{
	int *memory = allocate(), host = 0;
	cudaDeviceProp properties;

	expect_passing("copy to null", cudaMemcpy(nullptr, &host, sizeof(host), cudaMemcpyHostToDevice),
		       cudaErrorInvalidValue);
	expect_passing("copy in no direction", cudaMemcpy(memory, &host, sizeof(host), (cudaMemcpyKind)42),
		       cudaErrorInvalidMemcpyDirection);
	expect_passing("pitch below width", cudaMemcpy2D(memory, 4, &host, 4, 8, 1, cudaMemcpyHostToDevice),
		       CUDART_VERSION >= 13000 ? cudaErrorInvalidValue : cudaErrorInvalidPitchValue);
	expect_passing("no such device", cudaSetDevice(4711), cudaErrorInvalidDevice);
	expect_passing("properties of none", cudaGetDeviceProperties(&properties, -1), cudaErrorInvalidDevice);
	expect_passing("free of what was not allocated", cudaFree((char *)memory + 64), cudaErrorInvalidValue);
	expect_passing("no symbol", cudaMemcpyToSymbol(&host, &host, sizeof(host)), cudaErrorInvalidSymbol);
	store<<<1, 4096>>>(memory, 1);
	expect_passing("4096 threads in a block", cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
	store<<<0, 1>>>(memory, 1);
	expect_passing("empty grid", cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
	store<<<1, 1, 1 << 20>>>(memory, 1);
	expect_passing("1 MiB of shared memory", cudaPeekAtLastError(), cudaErrorInvalidValue);
	store<<<1, 1>>>(memory, 7);
	CHECK(cudaMemcpy(&host, memory, sizeof(host), cudaMemcpyDeviceToHost));
	if (host != 7)
		FAIL("the context does not work after errors that leave it whole");
	CHECK(cudaFree(memory));
}

static void out_of_memory()
{
	size_t free_bytes, total;
	void *memory = (void *)1;

	CHECK(cudaMemGetInfo(&free_bytes, &total));
	expect_passing("more than there is", cudaMalloc(&memory, total + (1 << 20)), cudaErrorMemoryAllocation);
	if (memory != (void *)1)
		FAIL("a refused allocation changed the pointer");
	CHECK(cudaFree(allocate()));
}

static void illegal_address()
{
	int *memory = allocate(), host;

	store<<<1, 1>>>((int *)16, 1);
	CHECK(cudaGetLastError());
	expect("wait for the fault", cudaDeviceSynchronize(), cudaErrorIllegalAddress);
	expect("the last error", cudaPeekAtLastError(), cudaErrorIllegalAddress);
	expect("another wait", cudaDeviceSynchronize(), cudaErrorIllegalAddress);
	expect("a copy", cudaMemcpy(&host, memory, sizeof(host), cudaMemcpyDeviceToHost), cudaErrorIllegalAddress);
	expect("an allocation", cudaMalloc(&memory, 16), cudaErrorIllegalAddress);
	store<<<1, 1>>>(memory, 1);
	expect("a launch", cudaGetLastError(), cudaErrorIllegalAddress);
	expect("the last error once more", cudaGetLastError(), cudaErrorIllegalAddress);
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : "";

	if (!*only || !std::strcmp(only, "invalid"))
		invalid_arguments();
	if (!*only || !std::strcmp(only, "memory"))
		out_of_memory();
	if (!*only || !std::strcmp(only, "address"))
		illegal_address();
	PASS("%s", *only ? only : "invalid memory address");
}
