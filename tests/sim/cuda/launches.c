/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, functions, launches, and errors that kernels make. */
#include "check.h"

static CUresult launch(CUfunction f, unsigned grid, unsigned block, void **params)
{
	return cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, NULL, params, NULL);
}

static void vector_add(void)
{
	enum { N = 1000 };
	float a[N], b[N], c[N];
	CUdeviceptr d[3];
	int n = N;
	void *params[] = { &d[0], &d[1], &d[2], &n };
	CUfunction f;

	new_context();
	f = find_kernel(load_kernels(), "vector_add");
	for (int i = 0; i < N; i++) {
		a[i] = (float)i;
		b[i] = 0.5f * (float)i;
	}
	for (int i = 0; i < 3; i++)
		OK(cuMemAlloc(&d[i], sizeof(a)));
	OK(cuMemcpyHtoD(d[0], a, sizeof(a)));
	OK(cuMemcpyHtoD(d[1], b, sizeof(b)));
	OK(launch(f, (N + 127) / 128, 128, params));
	OK(cuMemcpyDtoH(c, d[2], sizeof(c)));
	for (int i = 0; i < N; i++)
		EXPECT(c[i] == a[i] + b[i]);
}

struct mixed {
	char c;
	double d;
	short s[3];
};

static void parameters(void)
{
	struct { char a; struct mixed m; long long b; CUdeviceptr out; } packed;
	struct mixed m = { -7, 2.5, { 1, 2, -300 } };
	size_t offset, size, bytes = sizeof(packed);
	long long b = 1LL << 40;
	double out[5] = { 0 };
	CUdeviceptr p;
	char a = -3;
	void *params[] = { &a, &m, &b, &p };
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			  CU_LAUNCH_PARAM_END };
	CUfunction f;

	new_context();
	f = find_kernel(load_kernels(), "take_mixed");
	OK(cuMemAlloc(&p, sizeof(out)));
	OK(launch(f, 1, 1, params));
	OK(cuMemcpyDtoH(out, p, sizeof(out)));
	EXPECT(out[0] == -3 && out[1] == -7 && out[2] == 2.5 && out[3] == -300 && out[4] == (double)b);
	packed.a = 9;
	packed.m = m;
	packed.b = 77;
	packed.out = p;
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	OK(cuMemcpyDtoH(out, p, sizeof(out)));
	EXPECT(out[0] == 9 && out[4] == 77);
	OK(cuFuncGetParamInfo(f, 1, &offset, &size));
	EXPECT(offset == 8 && size == sizeof(m));
	OK(cuFuncGetParamInfo(f, 3, &offset, &size));
	EXPECT(offset == 40 && size == 8);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(f, 4, &offset, &size));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, launch(f, 1, 1, NULL));
	bytes = 8;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	OK(cuCtxSynchronize()); /* refused launches poison nothing */
}

static void shared_memory(void)
{
	enum { N = 4096, BLOCK = 256 };
	static int in[N];
	int sum = 0, expected = 0, blocks, max;
	CUdeviceptr d_in, d_out;
	void *params[] = { &d_in, &d_out };
	CUfunction f;

	new_context();
	f = find_kernel(load_kernels(), "reduce");
	for (int i = 0; i < N; i++)
		expected += in[i] = i % 17 - 3;
	OK(cuMemAlloc(&d_in, sizeof(in)));
	OK(cuMemAlloc(&d_out, 4));
	OK(cuMemcpyHtoD(d_in, in, sizeof(in)));
	OK(cuMemsetD32(d_out, 0, 1));
	OK(cuLaunchKernel(f, N / BLOCK, 1, 1, BLOCK, 1, 1, BLOCK * 4, NULL, params, NULL));
	OK(cuMemcpyDtoH(&sum, d_out, 4));
	EXPECT(sum == expected);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 49153, NULL, params, NULL));
	OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
	OK(cuLaunchKernel(f, 1, 1, 1, BLOCK, 1, 1, 60000, NULL, params, NULL));
	OK(cuCtxSynchronize());
	OK(cuDeviceGetAttribute(&max, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE,
		     cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, max + 1));
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, BLOCK, 0));
	EXPECT(blocks >= 1 && blocks <= 2048 / BLOCK);
	OK(cuOccupancyMaxPotentialBlockSize(&blocks, &max, f, NULL, 0, 0));
	EXPECT(max % 32 == 0 && max <= 1024 && blocks >= 1);
}

static void globals(void)
{
	int out[4], counter = 7;
	CUdeviceptr p, variable;
	void *params[] = { &p };
	CUmodule m;
	size_t size;

	new_context();
	m = load_kernels();
	OK(cuMemAlloc(&p, sizeof(out)));
	OK(launch(find_kernel(m, "use_globals"), 1, 4, params));
	OK(cuMemcpyDtoH(out, p, sizeof(out)));
	EXPECT(out[0] == 50 && out[3] == 200);
	OK(cuModuleGetGlobal(&variable, &size, m, "counter"));
	EXPECT(size == sizeof(counter));
	OK(cuMemcpyHtoD(variable, &counter, sizeof(counter)));
	OK(cuModuleGetGlobal(&variable, &size, m, "table"));
	EXPECT(size == 16);
	OK(cuMemsetD32(variable, 3, 1));
	OK(launch(find_kernel(m, "use_globals"), 1, 4, params));
	OK(cuMemcpyDtoH(out, p, sizeof(out)));
	EXPECT(out[0] == 21 && out[1] == 140);
	EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&variable, &size, m, "nowhere"));
	OK(cuModuleGetGlobal(&variable, &size, m, "counter"));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFree(variable));
	OK(cuModuleUnload(m));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(variable, &counter, sizeof(counter)));
}

static void bad_launches(void)
{
	CUlaunchAttribute cluster = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = { 2, 1, 1 } };
	CUlaunchConfig config = { 1, 1, 1, 1, 1, 1, 0, NULL, &cluster, 1 };
	CUcontext first = new_context(), second;
	CUfunction f, g;
	CUmodule m;
	int n;

	m = load_kernels();
	f = find_kernel(m, "nothing");
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 0, 1, 0, NULL, NULL, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 32, 64, 1, 0, NULL, NULL, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, launch((CUfunction)m, 1, 1, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE,
		     cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, (CUstream)&config, NULL, NULL));
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuLaunchKernelEx(&config, f, NULL, NULL));
	OK(cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
	EXPECT_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
		     cuLaunchCooperativeKernel(f, 1 << 20, 1, 1, 1, 1, 1, 0, NULL, NULL));
	config.numAttrs = 0;
	OK(cuLaunchKernelEx(&config, f, NULL, NULL));
	g = find_kernel(m, "bounded");
	OK(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, g));
	EXPECT(n == 128);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, launch(g, 1, 129, (void *[]){ &first }));
	EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f, m, "absent"));
	OK(cuCtxSynchronize());
	OK(cuCtxCreate(&second, NULL, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, launch(f = find_kernel(m, "nothing"), 1, 1, NULL));
	OK(cuCtxDestroy(second));
	OK(cuModuleUnload(m));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, launch(f, 1, 1, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(m));
}

/* After a fault everything in the context answers with it, and so does a new context: the process has lost the device. */
static void expect_sticky(CUresult expected)
{
	CUcontext ctx, other;
	CUdeviceptr p;
	CUstream s;

	OK(cuCtxGetCurrent(&ctx));
	EXPECT_ERROR(expected, cuCtxSynchronize());
	EXPECT_ERROR(expected, cuMemAlloc(&p, 4));
	EXPECT_ERROR(expected, cuStreamCreate(&s, 0));
	EXPECT_ERROR(expected, cuStreamQuery(NULL));
	EXPECT_ERROR(expected, cuCtxSynchronize());
	EXPECT_ERROR(expected, cuCtxCreate(&other, NULL, 0, 0));
	EXPECT_ERROR(expected, cuDevicePrimaryCtxRetain(&other, 0));
	EXPECT_ERROR(expected, cuMemAlloc(&p, 4));
	OK(cuCtxDestroy(ctx));
	EXPECT_ERROR(expected, cuCtxCreate(&other, NULL, 0, 0));
}

static void fault(const char *kernel, CUresult expected, void **params)
{
	new_context();
	OK(launch(find_kernel(load_kernels(), kernel), 1, 1, params));
	expect_sticky(expected);
}

static void illegal_address(void)
{
	CUdeviceptr p = 0x1000;
	unsigned value = 1;

	fault("store", CUDA_ERROR_ILLEGAL_ADDRESS, (void *[]){ &p, &value });
}

/* One element behind the end, though the page is there. */
static void out_of_bounds(void)
{
	CUdeviceptr p;
	unsigned value = 1;
	CUfunction f;

	new_context();
	f = find_kernel(load_kernels(), "store");
	OK(cuMemAlloc(&p, 4));
	p += 4;
	OK(launch(f, 1, 1, (void *[]){ &p, &value }));
	expect_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void use_after_free(void)
{
	CUdeviceptr p;
	unsigned value = 1;
	CUfunction f;

	new_context();
	f = find_kernel(load_kernels(), "store");
	OK(cuMemAlloc(&p, 8 << 20));
	OK(launch(f, 1, 1, (void *[]){ &p, &value }));
	OK(cuMemFree(p)); /* waits for the kernel */
	OK(launch(f, 1, 1, (void *[]){ &p, &value }));
	expect_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void trap(void)
{
	fault("trap_now", CUDA_ERROR_LAUNCH_FAILED, NULL);
}

static void failed_assert(void)
{
	int x = 2;

	fault("assert_now", CUDA_ERROR_ASSERT, (void *[]){ &x });
}

static void misaligned(void)
{
	CUdeviceptr p;

	new_context();
	OK(cuMemAlloc(&p, 64));
	OK(launch(find_kernel(load_kernels(), "misaligned"), 1, 1, (void *[]){ &p }));
	expect_sticky(CUDA_ERROR_MISALIGNED_ADDRESS);
}

static void primary_is_lost(void)
{
	CUcontext ctx, fresh;
	CUdeviceptr p;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(launch(find_kernel(load_kernels(), "trap_now"), 1, 1, NULL));
	EXPECT_ERROR(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
	OK(cuDevicePrimaryCtxReset(0));
	EXPECT_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&p, 4));
	EXPECT_ERROR(CUDA_ERROR_LAUNCH_FAILED, cuDevicePrimaryCtxRetain(&fresh, 0));
}

/* Kernels of one stream run in order, and see pinned host memory under its own address. */
static void order(void)
{
	unsigned expected = 0, value, *host;
	CUdeviceptr p;
	CUfunction f;
	void *mapped;

	new_context();
	f = find_kernel(load_kernels(), "add_to");
	OK(cuMemAllocHost(&mapped, 4));
	host = mapped;
	*host = 0;
	p = (CUdeviceptr)mapped;
	for (value = 0; value < 200; value++) {
		OK(launch(f, 1, 1, (void *[]){ &p, &value }));
		expected = expected * 3 + value;
	}
	OK(cuStreamSynchronize(NULL));
	EXPECT(*host == expected);
}

/* A kernel runs while the host goes on; the host ends it through pinned memory. */
static void asynchronous(void)
{
	CUdeviceptr p;
	CUstream s, t;
	CUmodule m;
	void *mapped;
	CUevent e;

	new_context();
	m = load_kernels();
	OK(cuMemAllocHost(&mapped, 4));
	*(volatile unsigned *)mapped = 0;
	p = (CUdeviceptr)mapped;
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&e, 0));
	OK(cuLaunchKernel(find_kernel(m, "spin"), 1, 1, 1, 1, 1, 1, 0, s, (void *[]){ &p }, NULL));
	OK(cuEventRecord(e, s));
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuEventQuery(e));
	OK(cuLaunchKernel(find_kernel(m, "nothing"), 4, 1, 1, 32, 1, 1, 0, t, NULL, NULL));
	OK(cuStreamSynchronize(t)); /* beside the endless one */
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	__atomic_store_n((unsigned *)mapped, 1, __ATOMIC_SEQ_CST);
	OK(cuEventSynchronize(e));
}

/* Keeps a kernel running until standard input closes. */
static void busy(void)
{
	CUdeviceptr p;
	void *mapped;

	new_context();
	OK(cuMemAllocHost(&mapped, 4));
	*(volatile unsigned *)mapped = 0;
	p = (CUdeviceptr)mapped;
	OK(launch(find_kernel(load_kernels(), "spin"), 1, 1, (void *[]){ &p }));
	while (getchar() != EOF)
		;
	__atomic_store_n((unsigned *)mapped, 1, __ATOMIC_SEQ_CST);
	OK(cuCtxSynchronize());
}

static void print(void)
{
	int n = 42;

	new_context();
	OK(launch(find_kernel(load_kernels(), "say"), 1, 2, (void *[]){ &n }));
	OK(cuCtxSynchronize());
}

static void libraries(void)
{
	unsigned value = 5, result = 0, count;
	CUkernel kernels[32], kernel;
	CUdeviceptr p, variable, other;
	CUlibrary library;
	CUcontext second;
	CUfunction f;
	CUmodule m;
	size_t size;

	OK(cuInit(0)); /* no context yet */
	OK(cuLibraryLoadFromFile(&library, getenv("KERNELS"), NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&kernel, library, "store"));
	EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&kernels[0], library, "absent"));
	OK(cuLibraryGetKernelCount(&count, library));
	EXPECT(count >= 10 && count <= 32);
	OK(cuLibraryEnumerateKernels(kernels, count, library));
	OK(cuKernelGetParamInfo(kernel, 1, &size, NULL));
	EXPECT(size == 8);
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuLibraryGetModule(&m, library));
	new_context();
	OK(cuMemAlloc(&p, 4));
	OK(launch((CUfunction)kernel, 1, 1, (void *[]){ &p, &value }));
	OK(cuMemcpyDtoH(&result, p, 4));
	EXPECT(result == 5);
	OK(cuKernelGetFunction(&f, kernel));
	value = 6;
	OK(launch(f, 1, 1, (void *[]){ &p, &value }));
	OK(cuMemcpyDtoH(&result, p, 4));
	EXPECT(result == 6);
	OK(cuLibraryGetGlobal(&variable, &size, library, "counter"));
	EXPECT(size == 4);
	OK(cuCtxCreate(&second, NULL, 0, 0)); /* a module of its own there */
	OK(cuLibraryGetGlobal(&other, &size, library, "counter"));
	EXPECT(other != variable);
	OK(cuCtxPopCurrent(&second));
	OK(cuLibraryUnload(library));
	OK(cuCtxPushCurrent(second));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(other, 0, 1)); /* gone in both */
	OK(cuCtxDestroy(second));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(variable, 0, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, launch((CUfunction)kernel, 1, 1, (void *[]){ &p, &value }));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library));
}

static void enumerate(void)
{
	CUfunction functions[32];
	const char *name;
	unsigned n;
	CUmodule m, of;
	bool found = false;

	new_context();
	m = load_kernels();
	OK(cuModuleGetFunctionCount(&n, m));
	EXPECT(n <= 32);
	OK(cuModuleEnumerateFunctions(functions, n, m));
	for (unsigned i = 0; i < n; i++) {
		OK(cuFuncGetName(&name, functions[i]));
		found |= !strcmp(name, "vector_add");
		OK(cuFuncGetModule(&of, functions[i]));
		EXPECT(of == m);
	}
	EXPECT(found);
}

static void bad_images(void)
{
	static const char unknown[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n"
				      "{\n\tnotaninstruction.u32 %r1, %r2;\n\tret;\n}\n";
	char log[512] = "", small[4] = "xxx";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	CUmodule m;

	new_context();
	EXPECT_ERROR(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, "not an image at all"));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&m, NULL));
	EXPECT_ERROR(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&m, "/nonexistent/file"));
	EXPECT_ERROR(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&m, unknown, 2, options, values));
	if (!strstr(log, "notaninstruction"))
		FAIL("the log does not name the instruction: '%s'", log);
	EXPECT((size_t)values[1] == strlen(log));
	values[0] = small;
	values[1] = (void *)3;
	EXPECT_ERROR(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&m, unknown, 2, options, values));
	EXPECT(strlen(small) == 2);
	OK(cuCtxSynchronize());
}

static void peers(void)
{
	CUcontext own, other;
	CUdeviceptr p;
	unsigned value = 77, got = 0;
	CUfunction f;
	int can = -1;

	OK(cuInit(0));
	OK(cuDeviceCanAccessPeer(&can, 0, 1));
	EXPECT(can == 1);
	OK(cuDeviceCanAccessPeer(&can, 1, 1));
	EXPECT(can == 0);
	OK(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
	EXPECT(can == 1);
	OK(cuCtxCreate(&other, NULL, 0, 1));
	OK(cuMemAlloc(&p, 4));
	OK(cuCtxCreate(&own, NULL, 0, 0));
	f = find_kernel(load_kernels(), "store");
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(own, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess(other, 1));
	EXPECT_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(other));
	OK(cuCtxEnablePeerAccess(other, 0));
	EXPECT_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(other, 0));
	OK(launch(f, 1, 1, (void *[]){ &p, &value }));
	OK(cuMemcpyDtoH(&got, p, 4));
	EXPECT(got == 77);
	OK(cuCtxDisablePeerAccess(other));
	OK(launch(f, 1, 1, (void *[]){ &p, &value }));
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

/* Says how many lanes saw what their neighbours had stored. */
static void in_step(void)
{
	unsigned got[32], right = 0;
	CUdeviceptr p;

	new_context();
	OK(cuMemAlloc(&p, sizeof(got)));
	OK(launch(find_kernel(load_kernels(), "shift_in_step"), 1, 32, (void *[]){ &p }));
	OK(cuMemcpyDtoH(got, p, sizeof(got)));
	for (unsigned i = 0; i < 32; i++)
		right += got[i] == (i + 1) % 32 + (i + 31) % 32;
	printf("%u\n", right);
}

/* As nvcc -rdc=true makes it of a kernel that launches one. */
static const char device_launch[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 parameters, .param .b64 stream);\n"
	".visible .entry parent() { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], 0; st.param.b64 [b], 0;\n"
	"call.uni (r), __cudaCDP2LaunchDeviceV2, (a, b); ret; }\n";

static void refused(void)
{
	CUmodule m;
	CUfunction f;
	CUdeviceptr p;
	void *params[] = { &p };

	new_context();
	m = load_kernels();
	OK(cuMemAlloc(&p, 128));
	f = find_kernel(m, "sparse");
	EXPECT_ERROR(CUDA_ERROR_INVALID_PTX, launch(f, 1, 32, params));
	EXPECT_ERROR(CUDA_ERROR_INVALID_PTX, launch(f, 1, 32, params));
	OK(launch(find_kernel(m, "nothing"), 1, 1, NULL));
	OK(cuCtxSynchronize());
	for (int i = 0; i < 2; i++)
		EXPECT_ERROR(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, cuModuleLoadData(&m, device_launch));
}

/* The file has only machine code. */
static void machine_code_only(void)
{
	CUmodule m;

	new_context();
	EXPECT_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoad(&m, getenv("KERNELS")));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "vector_add", vector_add }, { "parameters", parameters }, { "shared_memory", shared_memory },
		{ "globals", globals }, { "bad_launches", bad_launches }, { "illegal_address", illegal_address },
		{ "out_of_bounds", out_of_bounds }, { "use_after_free", use_after_free }, { "trap", trap },
		{ "failed_assert", failed_assert }, { "misaligned", misaligned },
		{ "primary_is_lost", primary_is_lost }, { "order", order }, { "asynchronous", asynchronous },
		{ "print", print }, { "busy", busy }, { "libraries", libraries }, { "enumerate", enumerate },
		{ "bad_images", bad_images }, { "refused", refused },
		{ "in_step", in_step }, { "peers", peers }, { "machine_code_only", machine_code_only }, { NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
