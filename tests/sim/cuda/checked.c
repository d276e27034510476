/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes for VGPUMGR_SIM_CHECK to find; each case ends as it would without. Kernels: ptx/checks.cu. */
#include "check.h"

enum { N = 64, BYTES = N * sizeof(int) };

static CUresult launch(CUmodule m, const char *name, unsigned block, CUdeviceptr out, int n)
{
	void *params[] = { &out, &n };
	CUresult r = cuLaunchKernel(find_kernel(m, name), 1, 1, 1, block, 1, 1, 0, NULL, params, NULL);

	return r == CUDA_SUCCESS ? cuCtxSynchronize() : r;
}

static CUdeviceptr allocate(size_t bytes)
{
	CUdeviceptr p;

	OK(cuMemAlloc(&p, bytes));
	return p;
}

static void right(void)
{
	CUcontext ctx = new_context();
	CUdeviceptr out = allocate(BYTES);
	CUmodule m = load_kernels();

	OK(cuMemsetD32(out, 0, N));
	OK(launch(m, "race_rounds", N, out, 1));
	OK(cuMemFree(out));
	OK(cuCtxDestroy(ctx));
}

static void race(void)
{
	CUcontext ctx = new_context();
	CUdeviceptr out = allocate(BYTES);
	CUmodule m = load_kernels();

	for (int i = 0; i < 3; i++)
		OK(launch(m, "race_warp", 32, out, 0));
	OK(cuMemFree(out));
	OK(cuCtxDestroy(ctx));
}

static void beyond(void)
{
	CUmodule m;
	CUdeviceptr out;

	new_context();
	out = allocate(124);
	m = load_kernels();
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, launch(m, "memory_global", 32, out, 33));
}

static void misaligned(void)
{
	CUmodule m;
	CUdeviceptr out;

	new_context();
	out = allocate(100);
	m = load_kernels();
	EXPECT_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, launch(m, "memory_misaligned", 1, out, 2));
}

/* Another allocation would have the freed one's place. */
static void freed(void)
{
	CUmodule m;
	CUdeviceptr out;

	new_context();
	out = allocate(BYTES);
	m = load_kernels();
	OK(cuMemFree(out));
	allocate(BYTES);
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, launch(m, "memory_global", 32, out, 31));
}

/* All but the last number are written: by a copy, by the device, by a kernel. */
static void unwritten(void)
{
	int numbers[8] = { 0 };
	CUcontext ctx = new_context();
	CUdeviceptr out = allocate(BYTES), other = allocate(BYTES);
	CUmodule m = load_kernels();

	OK(cuMemcpyHtoD(out, numbers, sizeof(numbers)));
	OK(cuMemsetD32(other, 0, 24));
	OK(cuMemcpyDtoD(out + 32, other, 96));
	OK(launch(m, "memory_global", 32, out + 128, 30));
	OK(launch(m, "memory_read", N - 1, out, 0));
	OK(launch(m, "memory_read", N, out, 0));
	OK(cuMemFree(out));
	OK(cuMemFree(other));
	OK(cuCtxDestroy(ctx));
}

static void left(void)
{
	CUcontext ctx = new_context();

	allocate(100);
	allocate(28);
	OK(cuCtxDestroy(ctx));
}

static void refused(void)
{
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuInit(0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuInit(0));
}

static const struct test_case cases[] = {
	{ "right", right },	    { "race", race },	{ "beyond", beyond }, { "misaligned", misaligned },
	{ "freed", freed },	    { "unwritten", unwritten }, { "left", left }, { "refused", refused },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	return run_case(cases, argc, argv);
}
