/* SPDX-License-Identifier: Apache-2.0 */
/* __device__ and __constant__ variables by their host symbols. */
#include "runtime.h"

/* The device address of [offset, offset + count) of a variable. */
static cudaError_t find_range(const void *symbol, size_t offset, size_t count, void **out)
{
	CUdeviceptr address;
	size_t size;
	cudaError_t error = registry_variable(symbol, &address, &size);

	if (error != cudaSuccess)
		return error;
	if (offset > size || count > size - offset)
		return cudaErrorInvalidValue;
	*out = (void *)(address + offset);
	return cudaSuccess;
}

cudaError_t rt_to_symbol(const void *symbol, size_t offset, size_t count, enum cudaMemcpyKind kind, void **out)
{
	if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
		return cudaErrorInvalidMemcpyDirection;
	return find_range(symbol, offset, count, out);
}

cudaError_t rt_from_symbol(const void *symbol, size_t offset, size_t count, enum cudaMemcpyKind kind, void **out)
{
	if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
		return cudaErrorInvalidMemcpyDirection;
	return find_range(symbol, offset, count, out);
}

static cudaError_t to_symbol(const void *symbol, const void *src, size_t count, size_t offset,
			     enum cudaMemcpyKind kind, struct lane lane)
{
	void *dst;
	cudaError_t error = rt_to_symbol(symbol, offset, count, kind, &dst);

	return error != cudaSuccess ? error : rt_copy(dst, src, count, kind, lane);
}

static cudaError_t from_symbol(void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind,
			       struct lane lane)
{
	void *src;
	cudaError_t error = rt_from_symbol(symbol, offset, count, kind, &src);

	return error != cudaSuccess ? error : rt_copy(dst, src, count, kind, lane);
}

BLOCKING_API(cudaMemcpyToSymbol,
	     (const void *symbol, const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind),
	     to_symbol(symbol, src, count, offset, kind, lane))
ASYNC_API(cudaMemcpyToSymbolAsync,
	  (const void *symbol, const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind,
	   cudaStream_t stream),
	  to_symbol(symbol, src, count, offset, kind, lane))
BLOCKING_API(cudaMemcpyFromSymbol,
	     (void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind),
	     from_symbol(dst, symbol, count, offset, kind, lane))
ASYNC_API(cudaMemcpyFromSymbolAsync,
	  (void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream),
	  from_symbol(dst, symbol, count, offset, kind, lane))

API cudaError_t cudaGetSymbolAddress(void **devPtr, const void *symbol)
{
	return rt_done(devPtr ? find_range(symbol, 0, 0, devPtr) : cudaErrorInvalidValue);
}

static cudaError_t symbol_size(size_t *size, const void *symbol)
{
	CUdeviceptr address;

	return size ? registry_variable(symbol, &address, size) : cudaErrorInvalidValue;
}

API cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
	return rt_done(symbol_size(size, symbol));
}
