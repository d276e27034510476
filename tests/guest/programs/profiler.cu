/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profiler [N]: a program that a profiler is told about, that reads the driver's log, and that asks for green contexts, which not
 * every device has: what is refused is refused clearly, and the program goes on.
 */
#define PROGRAM "profiler"
#include "driver.h"

#include <cstring>

/* Of cuda_profiler_api.h, which comes in a package of its own. */
extern "C" cudaError_t CUDARTAPI cudaProfilerStart(void);
extern "C" cudaError_t CUDARTAPI cudaProfilerStop(void);

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

__global__ void twice(int *at, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		at[i] *= 2;
}

static unsigned messages;

static void CUDART_CB heard(void *data, CUlogLevel level, char *message, size_t length)
{
	(void)level;
	messages += data == &messages && length && message[0];
}

/* Either the device has them and a context is made of all of it, or the one answer is that there are none. */
static bool has_green_contexts(void)
{
	RECENT(cuDeviceGetDevResource);
	RECENT(cuDevResourceGenerateDesc);
	RECENT(cuGreenCtxCreate);
	RECENT(cuGreenCtxDestroy);
	CUdevResource all;
	CUdevResourceDesc description;
	CUgreenCtx context;
	CUresult r = drv_cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM);

	if (r == CUDA_ERROR_NOT_SUPPORTED)
		return false;
	DRIVE(r);
	DRIVE(drv_cuDevResourceGenerateDesc(&description, &all, 1));
	DRIVE(drv_cuGreenCtxCreate(&context, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	DRIVE(drv_cuGreenCtxDestroy(context));
	return true;
}

int main(int argc, char **argv)
{
	const int n = (int)argument(argc, argv, 1, 1000);
	int *at, *host = (int *)std::malloc(n * sizeof(int));
	CUlogsCallbackHandle callback;
	CUlogIterator iterator;
	char text[4096];
	size_t length = sizeof(text);

	setenv("VGPUMGR_QUIET", "1", 1); /* the refusal is expected: nothing on standard error */
	CHECK(cudaFree(nullptr));
	RECENT(cuLogsRegisterCallback);
	RECENT(cuLogsUnregisterCallback);
	RECENT(cuLogsCurrent);
	RECENT(cuLogsDumpToMemory);
	DRIVE(drv_cuLogsCurrent(&iterator, 0));
	DRIVE(drv_cuLogsRegisterCallback(heard, &messages, &callback));
	CHECK(cudaProfilerStart());
	bool green = has_green_contexts();
	for (int i = 0; i < n; i++)
		host[i] = i;
	CHECK(cudaMalloc(&at, n * sizeof(int)));
	CHECK(cudaMemcpy(at, host, n * sizeof(int), cudaMemcpyHostToDevice));
	twice<<<blocks_for(n, 128), 128>>>(at, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(host, at, n * sizeof(int), cudaMemcpyDeviceToHost));
	CHECK(cudaProfilerStop());
	DRIVE(drv_cuLogsDumpToMemory(&iterator, text, &length, 0));
	if (messages && !length)
		FAIL("%u messages were heard, and the log has none", messages);
	DRIVE(drv_cuLogsUnregisterCallback(callback));
	for (int i = 0; i < n; i++)
		if (host[i] != 2 * i)
			FAIL("element %d is %d", i, host[i]);
	PASS("%d numbers, green contexts: %s", n, green ? "yes" : "no");
}
