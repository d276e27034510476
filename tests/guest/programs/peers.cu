/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers [N]: adds vectors of all pairs of devices as the documentation has it: it asks whether one device can get at the other's
 * memory. Then kernels read it where it is, from cudaMalloc, a pool and a mapping; else it is copied between the devices.
 * peers N pool, peers N mapping: with peers, a kernel that was not let at such memory of the other device fails.
 */
#define PROGRAM "peers"
#include "driver.h"

#include <cstring>

__global__ void fill(int *to, int n, int value)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		to[i] = value + i;
}

__global__ void add(int *to, const int *from, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		to[i] += from[i];
}

static int n;

static int *filled(int *at, int device)
{
	CHECK(cudaSetDevice(device));
	fill<<<blocks_for(n, 128), 128>>>(at, n, device * 1000);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	return at;
}

/* What `from` holds is added on the device `on`, by its kernel. */
static void check_add(int on, int other, const int *from)
{
	int *sum, *host = (int *)std::malloc(n * sizeof(int));

	CHECK(cudaSetDevice(on));
	CHECK(cudaMalloc(&sum, n * sizeof(int)));
	filled(sum, on);
	add<<<blocks_for(n, 128), 128>>>(sum, from, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(host, sum, n * sizeof(int), cudaMemcpyDeviceToHost));
	for (int i = 0; i < n; i++)
		if (host[i] != 2 * i + (on + other) * 1000)
			FAIL("devices %d and %d: element %d is %d", on, other, i, host[i]);
	CHECK(cudaFree(sum));
	std::free(host);
}

/* Without the access: what the documentation calls an illegal address. Peer access of contexts is not about this memory. */
static void check_refused(int on, const int *from)
{
	int *sum;

	CHECK(cudaSetDevice(on));
	CHECK(cudaDeviceEnablePeerAccess(!on, 0));
	CHECK(cudaMalloc(&sum, n * sizeof(int)));
	add<<<blocks_for(n, 128), 128>>>(sum, from, n);
	REFUSED(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

/* Memory of a pool, which is for its own device until another one is let at it. */
static void check_pool(int on, int other, bool refused)
{
	cudaMemPoolProps properties = {};
	cudaMemAccessDesc access = {};
	cudaMemAccessFlags flags;
	cudaMemPool_t pool;
	int *at;

	properties.allocType = cudaMemAllocationTypePinned;
	properties.location.type = access.location.type = cudaMemLocationTypeDevice;
	properties.location.id = other;
	access.location.id = on;
	access.flags = cudaMemAccessFlagsProtReadWrite;
	CHECK(cudaSetDevice(other));
	CHECK(cudaMemPoolCreate(&pool, &properties));
	CHECK(cudaMallocFromPoolAsync((void **)&at, n * sizeof(int), pool, 0));
	filled(at, other);
	CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
	if (flags != cudaMemAccessFlagsProtNone)
		FAIL("device %d gets at a pool of device %d by itself", on, other);
	if (refused)
		return check_refused(on, at);
	CHECK(cudaMemPoolSetAccess(pool, &access, 1));
	CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
	if (flags != cudaMemAccessFlagsProtReadWrite)
		FAIL("the access that was set is not there");
	check_add(on, other, at);
	CHECK(cudaSetDevice(other));
	CHECK(cudaFreeAsync(at, 0));
	CHECK(cudaMemPoolDestroy(pool));
}

static void check_mapping(int on, int other, bool refused)
{
	DRIVER(cuMemGetAllocationGranularity);
	DRIVER(cuMemAddressReserve);
	DRIVER(cuMemAddressFree);
	DRIVER(cuMemCreate);
	DRIVER(cuMemMap);
	DRIVER(cuMemUnmap);
	DRIVER(cuMemRelease);
	DRIVER(cuMemSetAccess);
	CUmemAllocationProp properties = {};
	CUmemGenericAllocationHandle part;
	CUmemAccessDesc access[2] = {};
	CUdeviceptr at;
	size_t unit;

	properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	properties.location.id = other;
	CHECK(cudaSetDevice(other));
	DRIVE(drv_cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	if (unit < n * sizeof(int))
		FAIL("at most %zu numbers", unit / sizeof(int));
	DRIVE(drv_cuMemCreate(&part, unit, &properties, 0));
	DRIVE(drv_cuMemAddressReserve(&at, unit, 0, 0, 0));
	DRIVE(drv_cuMemMap(at, unit, 0, part, 0));
	DRIVE(drv_cuMemRelease(part));
	for (int i = 0; i < 2; i++) {
		access[i].location = properties.location;
		access[i].location.id = i ? on : other;
		access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	}
	DRIVE(drv_cuMemSetAccess(at, unit, access, refused ? 1 : 2));
	filled((int *)at, other);
	if (refused)
		return check_refused(on, (const int *)at);
	check_add(on, other, (const int *)at);
	DRIVE(drv_cuMemUnmap(at, unit));
	DRIVE(drv_cuMemAddressFree(at, unit));
}

static void check_direct(int on, int other, const int *from)
{
	CHECK(cudaSetDevice(on));
	CHECK(cudaDeviceEnablePeerAccess(other, 0));
	REFUSED(cudaDeviceEnablePeerAccess(other, 0), cudaErrorPeerAccessAlreadyEnabled);
	check_add(on, other, from);
	CHECK(cudaSetDevice(on));
	CHECK(cudaDeviceDisablePeerAccess(other));
	check_pool(on, other, false);
	check_mapping(on, other, false);
}

/* What the documentation says is refused is refused, and copies do it. */
static void check_copied(int on, int other, const int *from)
{
	int *copy;

	CHECK(cudaSetDevice(on));
	REFUSED(cudaDeviceEnablePeerAccess(other, 0), cudaErrorPeerAccessUnsupported);
	CHECK(cudaMalloc(&copy, n * sizeof(int)));
	CHECK(cudaMemcpyPeer(copy, on, from, other, n * sizeof(int)));
	check_add(on, other, copy);
	CHECK(cudaMemset(copy, 0, n * sizeof(int)));
	CHECK(cudaMemcpy(copy, from, n * sizeof(int), cudaMemcpyDefault)); /* addresses say whose memory it is */
	check_add(on, other, copy);
	CHECK(cudaFree(copy));
}

int main(int argc, char **argv)
{
	int count, direct = 0, copied = 0, can;

	n = (int)argument(argc, argv, 1, 5000);
	CHECK(cudaGetDeviceCount(&count));
	if (argc > 2) {
		CHECK(cudaDeviceCanAccessPeer(&can, 0, count - 1));
		if (can && !std::strcmp(argv[2], "pool"))
			check_pool(0, 1, true);
		else if (can)
			check_mapping(0, 1, true);
		PASS("%d devices, %s", count, can ? "refused" : "no peers");
	}
	for (int on = 0; on < count; on++) {
		CHECK(cudaDeviceCanAccessPeer(&can, on, on));
		if (can)
			FAIL("device %d is its own peer", on);
		for (int other = 0; other < count; other++) {
			int *memory;

			if (other == on)
				continue;
			CHECK(cudaSetDevice(other));
			CHECK(cudaMalloc(&memory, n * sizeof(int)));
			filled(memory, other);
			CHECK(cudaDeviceCanAccessPeer(&can, on, other));
			if (can)
				check_direct(on, other, memory);
			else
				check_copied(on, other, memory);
			direct += can;
			copied += !can;
			CHECK(cudaSetDevice(other));
			CHECK(cudaFree(memory));
		}
	}
	PASS("%d devices: %d pairs by access, %d by copies", count, direct, copied);
}
