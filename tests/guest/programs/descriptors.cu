/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptors [N [ROUNDS]]: one process makes memory that it can share, physical memory and memory of a pool; another gets both by
 * descriptors over a socket, as the documentation has it, and they compute on it in turn.
 */
#define PROGRAM "descriptors"
#include "driver.h"

#include <cstring>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int line; /* to the other process */

static void tell(const void *what, size_t bytes)
{
	if (write(line, what, bytes) != (ssize_t)bytes)
		FAIL("the other process has gone");
}

static void hear(void *what, size_t bytes)
{
	if (read(line, what, bytes) != (ssize_t)bytes)
		FAIL("the other process says nothing");
}

/* A byte, and the descriptor that goes with it. */
static void pass(int file)
{
	char control[CMSG_SPACE(sizeof(int))] = {}, byte = 0;
	struct iovec part = { &byte, 1 };
	struct msghdr message = {};

	message.msg_iov = &part;
	message.msg_iovlen = 1;
	message.msg_control = control;
	message.msg_controllen = sizeof(control);
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	std::memcpy(CMSG_DATA(c), &file, sizeof(file));
	if (sendmsg(line, &message, 0) != 1)
		FAIL("no descriptor can be sent");
	close(file);
}

static int take(void)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec part = { &byte, 1 };
	struct msghdr message = {};
	int file = -1;

	message.msg_iov = &part;
	message.msg_iovlen = 1;
	message.msg_control = control;
	message.msg_controllen = sizeof(control);
	if (recvmsg(line, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		FAIL("no descriptor has come");
	std::memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(file));
	return file;
}

__global__ void turn(unsigned *at, int n, unsigned factor, unsigned more)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		at[i] = at[i] * factor + more;
}

static size_t unit;

static unsigned *map(CUmemGenericAllocationHandle part)
{
	DRIVER(cuMemAddressReserve);
	DRIVER(cuMemMap);
	DRIVER(cuMemSetAccess);
	CUmemAccessDesc access = {};
	CUdeviceptr at;

	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	DRIVE(drv_cuMemAddressReserve(&at, unit, 0, 0, 0));
	DRIVE(drv_cuMemMap(at, unit, 0, part, 0));
	DRIVE(drv_cuMemSetAccess(at, unit, &access, 1));
	return (unsigned *)at;
}

static void compute(unsigned *at, int n, unsigned factor, unsigned more)
{
	turn<<<blocks_for(n, 128), 128>>>(at, n, factor, more);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
}

static void prepare(void)
{
	DRIVER(cuMemGetAllocationGranularity);
	CUmemAllocationProp properties = {};

	CHECK(cudaFree(nullptr));
	properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	DRIVE(drv_cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

static int import_it(int n, int rounds)
{
	DRIVER(cuMemImportFromShareableHandle);
	DRIVER(cuMemRelease);
	cudaMemPoolPtrExportData data;
	CUmemGenericAllocationHandle part;
	cudaMemPool_t pool;
	unsigned *mapped, *pooled;
	void *none;
	char word = 1;

	prepare();
	int file = take(), pool_file = take();
	hear(&data, sizeof(data));
	DRIVE(drv_cuMemImportFromShareableHandle(&part, (void *)(uintptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(file); /* what was imported stays */
	mapped = map(part);
	DRIVE(drv_cuMemRelease(part));
	CHECK(cudaMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)pool_file, cudaMemHandleTypePosixFileDescriptor, 0));
	close(pool_file);
	CHECK(cudaMemPoolImportPointer((void **)&pooled, pool, &data));
	REFUSED(cudaMallocFromPoolAsync(&none, 512, pool, 0), cudaErrorInvalidValue);
	for (int round = 0; round < rounds; round++) {
		hear(&word, 1);
		compute(mapped, n, 3, 7u + round);
		compute(pooled, n, 5, 1u + round);
		tell(&word, 1);
	}
	CHECK(cudaFreeAsync(pooled, 0)); /* before its maker does */
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemPoolDestroy(pool));
	tell(&word, 1);
	return 0;
}

static unsigned expect(unsigned value, int rounds, unsigned mine, unsigned factor, unsigned more)
{
	for (int round = 0; round < rounds; round++)
		value = (value * mine + (unsigned)round) * factor + more + (unsigned)round;
	return value;
}

static void check(const unsigned *at, int n, int rounds, unsigned mine, unsigned factor, unsigned more)
{
	unsigned *host = (unsigned *)std::malloc(n * sizeof(*host));

	CHECK(cudaMemcpy(host, at, n * sizeof(*host), cudaMemcpyDeviceToHost));
	for (int i = 0; i < n; i++)
		if (host[i] != expect(0, rounds, mine, factor, more))
			FAIL("element %d is %u", i, host[i]);
	std::free(host);
}

static cudaMemPool_t make_pool(int *file)
{
	cudaMemPoolProps properties = {};
	cudaMemPool_t pool;

	properties.allocType = cudaMemAllocationTypePinned;
	properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
	properties.location.type = cudaMemLocationTypeDevice;
	CHECK(cudaMemPoolCreate(&pool, &properties));
	CHECK(cudaMemPoolExportToShareableHandle(file, pool, cudaMemHandleTypePosixFileDescriptor, 0));
	return pool;
}

static CUmemGenericAllocationHandle make_part(int *file)
{
	DRIVER(cuMemCreate);
	DRIVER(cuMemExportToShareableHandle);
	CUmemAllocationProp properties = {};
	CUmemGenericAllocationHandle part;

	properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	DRIVE(drv_cuMemCreate(&part, unit, &properties, 0));
	DRIVE(drv_cuMemExportToShareableHandle(file, part, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return part;
}

int main(int argc, char **argv)
{
	int n = (int)argument(argc, argv, 1, 20000), rounds = (int)argument(argc, argv, 2, 5), pair[2], status = 0, file;
	cudaMemPoolPtrExportData data;
	unsigned *mapped, *pooled;
	char word = 1;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		FAIL("no sockets");
	pid_t child = fork(); /* before CUDA starts */
	line = pair[child ? 0 : 1];
	close(pair[child ? 1 : 0]);
	if (!child)
		return import_it(n, rounds);
	DRIVER(cuMemRelease);
	prepare();
	CUmemGenericAllocationHandle part = make_part(&file);
	mapped = map(part);
	DRIVE(drv_cuMemRelease(part)); /* the mapping keeps it */
	pass(file);
	cudaMemPool_t pool = make_pool(&file);
	pass(file);
	if ((size_t)n * sizeof(*mapped) > unit)
		FAIL("at most %zu numbers", unit / sizeof(*mapped));
	CHECK(cudaMallocFromPoolAsync((void **)&pooled, n * sizeof(*pooled), pool, 0));
	CHECK(cudaMemsetAsync(pooled, 0, n * sizeof(*pooled), 0));
	CHECK(cudaMemset(mapped, 0, n * sizeof(*mapped)));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemPoolExportPointer(&data, pooled));
	tell(&data, sizeof(data));
	for (int round = 0; round < rounds; round++) {
		compute(mapped, n, 11, round);
		compute(pooled, n, 13, round);
		tell(&word, 1);
		hear(&word, 1);
	}
	check(mapped, n, rounds, 11, 3, 7);
	check(pooled, n, rounds, 13, 5, 1);
	hear(&word, 1); /* it has freed it */
	CHECK(cudaFreeAsync(pooled, 0));
	CHECK(cudaMemPoolDestroy(pool));
	if (waitpid(child, &status, 0) != child || status)
		FAIL("the other process ended with %d", status);
	PASS("%d rounds of two processes on %d numbers", rounds, n);
}
