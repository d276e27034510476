/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual [PARTS [ROUNDS]]: a vector that grows in place. Addresses are reserved once, memory is mapped behind what is there,
 * and kernels use all of it as one; then the memory is given back while the addresses stay, and other memory takes its place.
 */
#define PROGRAM "virtual"
#include "driver.h"

#define FAILS(call)                                                   \
	do {                                                            \
		if ((call) == CUDA_SUCCESS)                             \
			FAIL("line %d: %s succeeded", __LINE__, #call); \
	} while (0)

__global__ void fill(unsigned *to, unsigned long n, unsigned value)
{
	for (unsigned long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		to[i * 512] = value + (unsigned)i;
}

__global__ void sum(unsigned long long *to, const unsigned *from, unsigned long n)
{
	for (unsigned long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(to, (unsigned long long)from[i * 512]);
}

static CUmemAllocationProp properties;
static size_t unit;

/* One more part behind what is mapped. Its handle goes at once: the mapping keeps the memory. */
static void grow(CUdeviceptr at)
{
	DRIVER(cuMemCreate);
	DRIVER(cuMemMap);
	DRIVER(cuMemRelease);
	DRIVER(cuMemSetAccess);
	CUmemAccessDesc access = {};
	CUmemGenericAllocationHandle part;

	access.location = properties.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	DRIVE(drv_cuMemCreate(&part, unit, &properties, 0));
	DRIVE(drv_cuMemMap(at, unit, 0, part, 0));
	DRIVE(drv_cuMemRelease(part));
	FAILS(drv_cuMemRelease(part));
	DRIVE(drv_cuMemSetAccess(at, unit, &access, 1));
}

/* Every 512th word, all parts as one. */
static void check_sum(unsigned *at, size_t bytes, unsigned value)
{
	const unsigned long n = bytes / 2048;
	const unsigned long long expected = (unsigned long long)n * value + (unsigned long long)n * (n - 1) / 2;
	unsigned long long *total, found = 0;
	cudaStream_t stream;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMalloc(&total, sizeof(*total)));
	CHECK(cudaMemsetAsync(total, 0, sizeof(*total), stream));
	fill<<<8, 64, 0, stream>>>(at, n, value);
	sum<<<8, 64, 0, stream>>>(total, at, n);
	CHECK(cudaMemcpyAsync(&found, total, sizeof(found), cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	if (found != expected)
		FAIL("%lu words sum up to %llu, not to %llu", n, found, expected);
	CHECK(cudaFree(total));
	CHECK(cudaStreamDestroy(stream));
}

/* A copy over the border of two parts, by unified addresses. */
static void check_border(char *border)
{
	char in[8192], out[8192];

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (char)(i * 7 + i / 256);
	CHECK(cudaMemcpy(border - sizeof(in) / 2, in, sizeof(in), cudaMemcpyDefault));
	CHECK(cudaMemcpy(out, border - sizeof(in) / 2, sizeof(in), cudaMemcpyDefault));
	for (size_t i = 0; i < sizeof(in); i++)
		if (in[i] != out[i])
			FAIL("byte %zu of what lies around a border is %d", i, out[i]);
}

static size_t used(size_t before)
{
	size_t now, total;

	CHECK(cudaMemGetInfo(&now, &total));
	return before - now;
}

int main(int argc, char **argv)
{
	const size_t parts = (size_t)argument(argc, argv, 1, 4), rounds = (size_t)argument(argc, argv, 2, 3);
	size_t before, total, bytes;
	CUdeviceptr at;
	int able = 0;

	CHECK(cudaSetDevice(0));
	CHECK(cudaFree(nullptr));
	DRIVER(cuDeviceGetAttribute);
	DRIVER(cuMemGetAllocationGranularity);
	DRIVER(cuMemAddressReserve);
	DRIVER(cuMemAddressFree);
	DRIVER(cuMemUnmap);
	DRIVE(drv_cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	if (!able)
		FAIL("the device says that it has no virtual memory management");
	properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	DRIVE(drv_cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	bytes = parts * unit;
	DRIVE(drv_cuMemAddressReserve(&at, bytes, 0, 0, 0));
	check_sum(nullptr, 0, 0); /* what the first kernels take is taken */
	CHECK(cudaMemGetInfo(&before, &total));
	for (size_t round = 0; round < rounds; round++) {
		for (size_t part = 0; part < parts; part++) {
			grow(at + part * unit);
			check_sum((unsigned *)at, (part + 1) * unit, (unsigned)(round * 31 + part));
		}
		if (parts > 1)
			check_border((char *)(at + unit));
		if (used(before) < bytes)
			FAIL("%zu bytes are mapped, and only %zu are used", bytes, used(before));
		FAILS(drv_cuMemUnmap(at, unit / 2));
		FAILS(drv_cuMemAddressFree(at, bytes));
		CHECK(cudaDeviceSynchronize());
		DRIVE(drv_cuMemUnmap(at, bytes));
		DRIVE(drv_cuMemUnmap(at, bytes)); /* nothing is mapped there: as on a GPU */
		if (used(before) > unit)
			FAIL("%zu bytes are used still", used(before));
	}
	DRIVE(drv_cuMemAddressFree(at, bytes));
	PASS("%zu parts of %zu KiB, %zu rounds", parts, unit >> 10, rounds);
}
