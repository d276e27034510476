/* SPDX-License-Identifier: Apache-2.0 */
/* What documents leave open and the simulated driver must decide: asked of a GPU. Prints a line for each answer. */
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>
#include <vector>

#define CHECK(call)                                                                                            \
	do {                                                                                                   \
		cudaError_t e_ = (call);                                                                       \
		if (e_)                                                                                        \
			printf("  line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(e_));                \
	} while (0)

__global__ void read1d(cudaTextureObject_t t, const float *at, float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = tex1D<float>(t, at[i]);
}

/* The weight of the upper texel, in 256ths, by the fraction of the coordinate in 4096ths. */
static void ask_weights(bool normalized)
{
	const int N = 4096;
	float texels[4] = { 0, 0, 256, 256 };
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	std::vector<float> at(N), out(N);
	cudaResourceDesc resource = {};
	cudaTextureDesc how = {};
	cudaTextureObject_t t;
	cudaArray_t array;
	float *a, *o;

	CHECK(cudaMallocArray(&array, &format, 4, 0));
	CHECK(cudaMemcpy2DToArray(array, 0, 0, texels, 16, 16, 1, cudaMemcpyHostToDevice));
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	how.addressMode[0] = cudaAddressModeClamp;
	how.filterMode = cudaFilterModeLinear;
	how.normalizedCoords = normalized;
	CHECK(cudaCreateTextureObject(&t, &resource, &how, NULL));
	for (int i = 0; i < N; i++)
		at[i] = (1.5f + (float)i / N) / (normalized ? 4 : 1);
	CHECK(cudaMalloc(&a, N * 4));
	CHECK(cudaMalloc(&o, N * 4));
	CHECK(cudaMemcpy(a, at.data(), N * 4, cudaMemcpyHostToDevice));
	read1d<<<N / 256, 256>>>(t, a, o, N);
	CHECK(cudaMemcpy(out.data(), o, N * 4, cudaMemcpyDeviceToHost));
	printf("weights%s:", normalized ? ", normalized" : "");
	float last = -1;
	for (int i = 0; i < N; i++)
		if (out[i] != last) {
			if (i < 100 || i > N - 60 || (i > 2000 && i < 2100))
				printf(" %d:%g", i, out[i]);
			last = out[i];
		}
	printf("\n");
}

static void ask_runtime()
{
	void *p = NULL;
	char host[16], *memory;

	printf("cudaMallocManaged(0): %d\n", cudaMallocManaged(&p, 0));
	printf("  pointer %p\n", p);
	printf("cudaMallocManaged(flags 99): %d\n", cudaMallocManaged(&p, 64, 99));
	printf("cudaMallocManaged(flags 0): %d\n", cudaMallocManaged(&p, 64, 0));
	CHECK(cudaMalloc(&memory, 4096));
	printf("cudaMemcpy2D, pitch below width, to the device: %d\n", cudaMemcpy2D(memory, 4, host, 4, 8, 1, cudaMemcpyHostToDevice));
	printf("cudaMemcpy2D, destination's pitch: %d\n", cudaMemcpy2D(memory, 4, host, 8, 8, 1, cudaMemcpyHostToDevice));
	printf("cudaMemcpy2D, source's pitch: %d\n", cudaMemcpy2D(memory, 8, host, 4, 8, 1, cudaMemcpyHostToDevice));
	printf("cudaMemcpy2D, device to device: %d\n", cudaMemcpy2D(memory, 4, memory + 1024, 4, 8, 1, cudaMemcpyDeviceToDevice));
	printf("cudaMemset2D: %d\n", cudaMemset2D(memory, 4, 0, 8, 2));
	printf("last error: %d\n", cudaGetLastError());
}

static const char part[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }\n";

static void ask_link(size_t length, bool options)
{
	CUjit_option keys[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	static char log[512];
	void *values[] = { log, (void *)sizeof(log) };
	CUlinkState state;
	void *cubin = NULL;
	size_t size = 0;

	printf("cuLinkCreate: %d", cuLinkCreate(options ? 2 : 0, keys, values, &state));
	printf(" add: %d", cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)part, length, "a part", 0, NULL, NULL));
	printf(" complete: %d", cuLinkComplete(state, &cubin, &size));
	printf(" %p, %zu bytes; log: %s", cubin, size, log);
	printf(" destroy: %d\n", cuLinkDestroy(state));
}

static void ask_virtual()
{
	CUmemAllocationProp properties = {};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	size_t unit;

	properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	printf("granularity %zu; reserve: %d", unit, cuMemAddressReserve(&at, 4 * unit, 0, 0, 0));
	printf("; unmap what was never mapped: %d", cuMemUnmap(at, 4 * unit));
	printf("; create: %d", cuMemCreate(&handle, unit, &properties, 0));
	printf("; map the second: %d", cuMemMap(at + unit, unit, 0, handle, 0));
	printf("; unmap the first: %d", cuMemUnmap(at, unit));
	printf("; unmap all four: %d", cuMemUnmap(at, 4 * unit));
	printf("; again: %d", cuMemUnmap(at, 4 * unit));
	printf("; beyond the reservation: %d", cuMemUnmap(at, 8 * unit));
	printf("; half a unit: %d", cuMemUnmap(at, unit / 2));
	printf("; release: %d", cuMemRelease(handle));
	printf("; free: %d", cuMemAddressFree(at, 4 * unit));
	printf("; unmap after it: %d\n", cuMemUnmap(at, 4 * unit));
}

static void ask_device()
{
	CUdevice device;
	int value;

	cuDeviceGet(&device, 0);
	printf("attributes:");
	for (int i = 1; i < 160; i++)
		if (cuDeviceGetAttribute(&value, (CUdevice_attribute)i, device) == CUDA_SUCCESS)
			printf(" %d=%d", i, value);
	printf("\n");
}

int main()
{
	CHECK(cudaFree(0));
	ask_device();
	ask_weights(false);
	ask_weights(true);
	ask_runtime();
	ask_link(strlen(part), false);
	ask_link(strlen(part) + 1, false);
	ask_link(strlen(part), true);
	ask_link(strlen(part) + 1, true);
	ask_virtual();
	return 0;
}
