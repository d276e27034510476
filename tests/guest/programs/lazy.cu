/* SPDX-License-Identifier: Apache-2.0 */
/* lazy [N]: kernels that are loaded when they are used first, or before, as the program asks for: both give right results. */
#define PROGRAM "lazy"
#include "driver.h"

/* Of a driver that has them; CUDA 13's. */
template <typename F> static F *recent(const char *name)
{
	cudaDriverEntryPointQueryResult found;
	void *function = nullptr;

	CHECK(cudaGetDriverEntryPointByVersion(name, &function, 13000, cudaEnableDefault, &found));
	if (!function || found != cudaDriverEntryPointSuccess)
		FAIL("the driver has no %s", name);
	return (F *)function;
}
#define RECENT(name) static const auto drv_##name = recent<decltype(name)>(#name)

__device__ int seen = 5;

__global__ void first(int *at)
{
	*at = seen + 1;
}

__global__ void second(int *at)
{
	*at = *at * 10 + seen;
}

int main(int argc, char **argv)
{
	const int rounds = (int)argument(argc, argv, 1, 3);
	CUmoduleLoadingMode mode;
	CUfunctionLoadingState state;
	cudaFunction_t function;
	int *at, value, set = 7;

	setenv("CUDA_MODULE_LOADING", "LAZY", 1);
	CHECK(cudaFree(nullptr));
	RECENT(cuModuleGetLoadingMode);
	RECENT(cuFuncIsLoaded);
	RECENT(cuFuncLoad);
	DRIVE(drv_cuModuleGetLoadingMode(&mode));
	if (mode != CU_MODULE_LAZY_LOADING && mode != CU_MODULE_EAGER_LOADING)
		FAIL("loading has mode %d", (int)mode);
	CHECK(cudaGetFuncBySymbol(&function, (const void *)second));
	DRIVE(drv_cuFuncIsLoaded(&state, (CUfunction)function));
	if (mode == CU_MODULE_EAGER_LOADING && state != CU_FUNCTION_LOADING_STATE_LOADED)
		FAIL("a kernel is not loaded, though loading is eager");
	DRIVE(drv_cuFuncLoad((CUfunction)function));
	DRIVE(drv_cuFuncIsLoaded(&state, (CUfunction)function));
	if (state != CU_FUNCTION_LOADING_STATE_LOADED)
		FAIL("a kernel is not loaded after it was asked for");
	CHECK(cudaMalloc(&at, sizeof(int)));
	CHECK(cudaMemcpyToSymbol(seen, &set, sizeof(set))); /* the variable, before any kernel of its module */
	for (int round = 0; round < rounds; round++) {
		first<<<1, 1>>>(at);
		second<<<1, 1>>>(at);
		CHECK(cudaGetLastError());
		CHECK(cudaMemcpy(&value, at, sizeof(value), cudaMemcpyDeviceToHost));
		if (value != 87)
			FAIL("round %d gives %d", round, value);
	}
	PASS("%d rounds, %s", rounds, mode == CU_MODULE_LAZY_LOADING ? "lazily" : "eagerly");
}
