/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management without memory: what is mapped and open may be copied to and from, and forgets its bytes when it
 * is unmapped. What only a driver can notice is refused as by a driver; what the worker must never ask ends the process.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "books.h"

enum { GRANULARITY = 2 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct space {
	struct space *next;
	CUdeviceptr address;
	size_t bytes;
	void *object; /* counted as the others are */
} *spaces;

NULL_API CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
						CUmemAllocationGranularity_flags option)
{
	ENTER;
	(void)properties;
	(void)option;
	*bytes = GRANULARITY;
	return CUDA_SUCCESS;
}

/* ---- memory */

NULL_API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
			      unsigned long long flags)
{
	ENTER;
	/* by a descriptor, which the worker's server keeps; by nothing else */
	if (flags || (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		null_abort("memory that other processes could get at");
	if (!bytes || bytes % GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > 1ull << 34)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = (CUmemGenericAllocationHandle)null_object(NULL_PHYSICAL);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	null_end(NULL_PHYSICAL, (void *)handle);
	return CUDA_SUCCESS;
}

/* ---- addresses */

NULL_API CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
				      unsigned long long flags)
{
	struct space *s;
	char *at;

	ENTER;
	(void)wish;
	if (!bytes || bytes % 4096 || alignment & (alignment - 1) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > 1ull << 36 || alignment > GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	s = malloc(sizeof(*s));
	at = mmap(NULL, bytes + GRANULARITY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!s || at == MAP_FAILED)
		null_abort("out of memory");
	pthread_mutex_lock(&lock);
	*s = (struct space){ spaces, ((CUdeviceptr)at + GRANULARITY - 1) / GRANULARITY * GRANULARITY, bytes,
			      null_object(NULL_SPACE) };
	munmap(at, s->address - (CUdeviceptr)at);
	munmap((void *)(s->address + bytes), (CUdeviceptr)at + GRANULARITY - s->address);
	spaces = s;
	*address = s->address;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
	struct space **at = &spaces, *s;

	if (null_span_any(address, bytes))
		null_abort("addresses given back where something is mapped");
	pthread_mutex_lock(&lock);
	while (*at && !((*at)->address == address && (*at)->bytes == bytes))
		at = &(*at)->next;
	s = *at;
	if (!s)
		null_abort("addresses given back that were not reserved");
	*at = s->next;
	munmap((void *)s->address, s->bytes);
	pthread_mutex_unlock(&lock);
	null_end(NULL_SPACE, s->object);
	free(s);
	return CUDA_SUCCESS;
}

static bool is_reserved(CUdeviceptr address, size_t bytes)
{
	const struct space *s;

	pthread_mutex_lock(&lock);
	for (s = spaces; s; s = s->next)
		if (address >= s->address && address - s->address < s->bytes && bytes <= s->bytes - (address - s->address))
			break;
	pthread_mutex_unlock(&lock);
	return s;
}

/* ---- mappings */

NULL_API CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
			   unsigned long long flags)
{
	ENTER;
	null_check(NULL_PHYSICAL, (void *)handle);
	if (!is_reserved(address, bytes))
		null_abort("a mapping outside of what is reserved");
	if (!bytes || address % GRANULARITY || bytes % GRANULARITY || offset || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return null_span_add(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

NULL_API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	if (!null_span_end(address, bytes))
		null_abort("an end of what is not mapped");
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	ENTER;
	(void)count;
	(void)access;
	return null_span_any(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
