/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of arrays, textures and surfaces share. */
#ifndef IMAGES_H
#define IMAGES_H

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* the older copies, which runtimes still have */
#include "check.h"

#include <cstdint>
#include <cstring>
#include <vector>

static inline cudaTextureDesc reading(cudaTextureAddressMode mode, bool linear, bool normalized,
			       cudaTextureReadMode read = cudaReadModeElementType)
{
	cudaTextureDesc t{};

	for (auto &m : t.addressMode)
		m = mode;
	t.filterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint;
	t.readMode = read;
	t.normalizedCoords = normalized;
	t.borderColor[0] = 7.25f;
	return t;
}

static inline cudaTextureObject_t texture_of(cudaArray_t array, const cudaTextureDesc &t)
{
	cudaTextureObject_t object;
	cudaResourceDesc r{};

	r.resType = cudaResourceTypeArray;
	r.res.array.array = array;
	CHECK(cudaCreateTextureObject(&object, &r, &t, nullptr));
	return object;
}

static inline cudaSurfaceObject_t surface_of(cudaArray_t array)
{
	cudaSurfaceObject_t object;
	cudaResourceDesc r{};

	r.resType = cudaResourceTypeArray;
	r.res.array.array = array;
	CHECK(cudaCreateSurfaceObject(&object, &r));
	return object;
}

template <typename T> struct device_memory {
	T *at;
	size_t n;

	explicit device_memory(size_t count) : n(count) { CHECK(cudaMalloc(&at, n * sizeof(T))); }
	explicit device_memory(const std::vector<T> &from) : device_memory(from.size())
	{
		CHECK(cudaMemcpy(at, from.data(), n * sizeof(T), cudaMemcpyHostToDevice));
	}
	~device_memory() { cudaFree(at); }
	std::vector<T> read() const
	{
		std::vector<T> out(n);

		CHECK(cudaGetLastError());
		CHECK(cudaMemcpy(out.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
		return out;
	}
};

#endif
