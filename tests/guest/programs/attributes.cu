/* SPDX-License-Identifier: Apache-2.0 */
/* attributes [N]: of streams, which say what was set, and of kernels, which decide what a launch may ask for. */
#define PROGRAM "attributes"
#include "check.h"

#include <cstring>

__global__ void mirror(int *to, const int *from)
{
	extern __shared__ int part[];
	const int n = blockDim.x;

	for (int i = threadIdx.x; i < 16 * n; i += n)
		part[i] = from[i];
	__syncthreads();
	for (int i = threadIdx.x; i < 16 * n; i += n)
		to[i] = part[16 * n - 1 - i];
}

static void check_stream(cudaStream_t stream, void *memory, size_t bytes)
{
	cudaStreamAttrValue set = {}, found = {};
	cudaStream_t other;

	set.accessPolicyWindow.base_ptr = memory;
	set.accessPolicyWindow.num_bytes = bytes;
	set.accessPolicyWindow.hitRatio = 0.5f;
	set.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
	set.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
	CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &set));
	CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	CHECK(cudaStreamCopyAttributes(other, stream));
	CHECK(cudaStreamGetAttribute(other, cudaStreamAttributeAccessPolicyWindow, &found));
	if (found.accessPolicyWindow.base_ptr != memory || found.accessPolicyWindow.hitRatio != 0.5f)
		FAIL("a copied attribute is another one");
	set.accessPolicyWindow.hitRatio = 2;
	REFUSED(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &set), cudaErrorInvalidValue);
	std::memset(&set, 0, sizeof(set));
	set.syncPolicy = cudaSyncPolicyBlockingSync;
	CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeSynchronizationPolicy, &set));
	CHECK(cudaStreamGetAttribute(stream, cudaStreamAttributeSynchronizationPolicy, &found));
	if (found.syncPolicy != cudaSyncPolicyBlockingSync)
		FAIL("the way to wait is not what was set");
	CHECK(cudaStreamDestroy(other));
}

int main(int argc, char **argv)
{
	const int n = (int)argument(argc, argv, 1, 1024), all = 16 * n; /* above what a kernel gets without being asked for */
	const size_t bytes = all * sizeof(int);
	int *from, *to, *host = (int *)std::malloc(bytes), most;
	cudaFuncAttributes attributes;
	cudaStream_t stream;

	CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
	if ((size_t)most < bytes)
		FAIL("at most %d numbers", most / 64);
	for (int i = 0; i < all; i++)
		host[i] = i * 3;
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaMalloc(&from, bytes));
	CHECK(cudaMalloc(&to, bytes));
	CHECK(cudaMemcpy(from, host, bytes, cudaMemcpyHostToDevice));
	check_stream(stream, from, bytes);
	if (bytes > 48 << 10) {
		mirror<<<1, n, bytes, stream>>>(to, from);
		if (cudaGetLastError() != cudaErrorInvalidValue)
			FAIL("a launch gets more shared memory than the kernel may have");
	}
	CHECK(cudaFuncSetAttribute(mirror, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
	CHECK(cudaFuncSetAttribute(mirror, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
	CHECK(cudaFuncGetAttributes(&attributes, mirror));
	if (attributes.maxDynamicSharedSizeBytes != (int)bytes || attributes.preferredShmemCarveout != 100)
		FAIL("the kernel's attributes are not what was set");
	REFUSED(cudaFuncSetAttribute(mirror, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1), cudaErrorInvalidValue);
	mirror<<<1, n, bytes, stream>>>(to, from);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpyAsync(host, to, bytes, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	for (int i = 0; i < all; i++)
		if (host[i] != (all - 1 - i) * 3)
			FAIL("element %d is %d", i, host[i]);
	PASS("%zu bytes of shared memory", bytes);
}
