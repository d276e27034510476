/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up, devices, contexts. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void before_init(void)
{
	CUcontext ctx;
	CUdeviceptr p;
	int n;

	EXPECT_ERROR(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
	EXPECT_ERROR(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&ctx));
	EXPECT_ERROR(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&p, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuInit(1));
	OK(cuDriverGetVersion(&n));
	EXPECT(n == 13000);
	OK(cuInit(0));
	OK(cuInit(0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&p, 1));
}

static void no_device(void)
{
	int n;

	EXPECT_ERROR(CUDA_ERROR_NO_DEVICE, cuInit(0));
	EXPECT_ERROR(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
}

/* Prints what the process sees, one device a line. */
static void list(void)
{
	int n = 0;

	OK(cuInit(0));
	OK(cuDeviceGetCount(&n));
	for (int i = 0; i < n; i++) {
		CUuuid gpu, uuid;
		char name[256], bus[32];
		CUdevice dev, again;
		size_t total;
		int sms, major, minor;

		OK(cuDeviceGet(&dev, i));
		OK(cuDeviceGetName(name, sizeof(name), dev));
		OK(cuDeviceGetUuid(&uuid, dev));
		OK(cuDeviceTotalMem(&total, dev));
		OK(cuDeviceGetPCIBusId(bus, sizeof(bus), dev));
		OK(cuDeviceGetByPCIBusId(&again, bus));
		OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev));
		OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev));
		OK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev));
		EXPECT(again == dev);
		printf("%s|%zu|%s|%d|%d.%d|", name, total, bus, sms, major, minor);
		for (size_t k = 0; k < sizeof(gpu.bytes); k++)
			printf("%02x", (unsigned char)uuid.bytes[k]);
		printf("\n");
	}
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&n, 99));
}

static void attributes(void)
{
	struct {
		CUdevice_attribute attribute;
		int least, most;
	} expected[] = {
		{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32, 32 },
		{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024, 1024 },
		{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152, 49152 },
		{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 65536, 1 << 20 },
		{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1, 1 },
		{ CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1, 1 },
		{ CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1, 1 },
		{ CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0, 0 },
		{ CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 100000, 10000000 },
		{ CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20, 1 << 29 },
		{ CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1, 16 },
		{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 1024, 2048 },
	};
	int v;

	OK(cuInit(0));
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		OK(cuDeviceGetAttribute(&v, expected[i].attribute, 0));
		if (v < expected[i].least || v > expected[i].most)
			FAIL("attribute %d is %d", expected[i].attribute, v);
	}
	for (int a = 1; a < CU_DEVICE_ATTRIBUTE_MAX; a++)
		OK(cuDeviceGetAttribute(&v, (CUdevice_attribute)a, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MAX, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_WARP_SIZE, -1));
}

static void context_stack(void)
{
	CUcontext a, b, c;
	unsigned version;
	CUdevice dev;

	OK(cuInit(0));
	OK(cuCtxCreate(&a, NULL, 0, 0));
	OK(cuCtxCreate(&b, NULL, CU_CTX_SCHED_YIELD, 0));
	OK(cuCtxGetCurrent(&c));
	EXPECT(c == b);
	OK(cuCtxPopCurrent(&c));
	EXPECT(c == b);
	OK(cuCtxGetCurrent(&c));
	EXPECT(c == a);
	OK(cuCtxPushCurrent(b));
	OK(cuCtxSetCurrent(a));
	OK(cuCtxGetApiVersion(a, &version));
	EXPECT(version >= 3010);
	OK(cuCtxGetDevice(&dev));
	EXPECT(dev == 0);
	OK(cuCtxDestroy(b));
	OK(cuCtxDestroy(a));
	OK(cuCtxPopCurrent(&c)); /* a was twice on the stack: the destroyed one is still there */
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent(&c));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuCtxCreate(&a, NULL, 0x80000000u, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate(&a, NULL, 0, 42));
}

/* Handles that are none: a driver on hardware believes them. */
static void wrong_contexts(void)
{
	CUcontext ctx = new_context();

	OK(cuCtxDestroy(ctx));
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(ctx));
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(ctx));
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent((CUcontext)&ctx));
}

static void *use_destroyed(void *arg)
{
	sem_t *gates = arg;
	CUdeviceptr p;

	sem_post(&gates[0]);
	sem_wait(&gates[1]);
	EXPECT_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&p, 4));
	return NULL;
}

struct shared {
	sem_t gates[2];
	CUcontext ctx;
};

static void *set_and_use(void *arg)
{
	struct shared *s = arg;

	OK(cuCtxSetCurrent(s->ctx));
	return use_destroyed(s->gates);
}

static void destroyed_elsewhere(void)
{
	struct shared s = { .ctx = new_context() };
	pthread_t t;

	sem_init(&s.gates[0], 0, 0);
	sem_init(&s.gates[1], 0, 0);
	pthread_create(&t, NULL, set_and_use, &s);
	sem_wait(&s.gates[0]);
	OK(cuCtxDestroy(s.ctx));
	sem_post(&s.gates[1]);
	pthread_join(t, NULL);
}

static void primary(void)
{
	CUcontext a, b;
	unsigned flags;
	int active;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EXPECT(!active);
	OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
	OK(cuDevicePrimaryCtxRetain(&a, 0));
	OK(cuDevicePrimaryCtxRetain(&b, 0));
	EXPECT(a == b);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EXPECT(active && flags == CU_CTX_SCHED_BLOCKING_SYNC);
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(a));
	OK(cuDevicePrimaryCtxRelease(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EXPECT(active);
	OK(cuDevicePrimaryCtxRelease(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EXPECT(!active);
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
	OK(cuDevicePrimaryCtxReset(0));
}

static void limits(void)
{
	CUfunc_cache cache;
	int least, greatest;
	size_t v;

	new_context();
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	OK(cuCtxGetLimit(&v, CU_LIMIT_STACK_SIZE));
	EXPECT(v == 4096);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuCtxSetLimit(CU_LIMIT_MAX, 1));
	OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
	OK(cuCtxGetCacheConfig(&cache));
	EXPECT(cache == CU_FUNC_CACHE_PREFER_L1);
	OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	EXPECT(least == 0 && greatest < 0);
}

static void after_fork(void)
{
	int status;
	pid_t child;

	new_context();
	child = fork();
	if (!child) {
		CUdeviceptr p;
		int n;

		EXPECT_ERROR(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
		EXPECT_ERROR(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&p, 4));
		EXPECT_ERROR(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
		_exit(0);
	}
	EXPECT(waitpid(child, &status, 0) == child);
	EXPECT(WIFEXITED(status) && !WEXITSTATUS(status));
	OK(cuCtxSynchronize());
}

static void fork_before_init(void)
{
	int status;
	pid_t child = fork();

	if (!child) {
		new_context();
		_exit(0);
	}
	EXPECT(waitpid(child, &status, 0) == child);
	EXPECT(WIFEXITED(status) && !WEXITSTATUS(status));
	new_context();
}

static void entry_points(void)
{
	CUdriverProcAddressQueryResult status;
	CUuuid table = { { 0x6b, (char)0xd5, (char)0xfb, 0x6c } };
	const void *unused;
	void *v2, *v3, *v4, *plain, *own;
	int newest;

	OK(cuDriverGetVersion(&newest));
	OK(cuGetProcAddress("cuCtxCreate", &v2, 4000, 0, &status));
	EXPECT(status == CU_GET_PROC_ADDRESS_SUCCESS);
	OK(cuGetProcAddress("cuCtxCreate", &v3, 12040, 0, NULL));
	OK(cuGetProcAddress("cuCtxCreate", &v4, newest, 0, NULL));
	EXPECT(v2 != v3 && v3 != v4 && v4 == (void *)cuCtxCreate);
	OK(cuGetProcAddress("cuMemcpyHtoD", &plain, 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL));
	OK(cuGetProcAddress("cuMemcpyHtoD", &own, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	EXPECT(plain == (void *)cuMemcpyHtoD && own != plain);
	OK(cuGetProcAddress("cuMemAlloc", &own, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	EXPECT(own == (void *)cuMemAlloc);
	EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuLibraryLoadData", &own, 11080, 0, &status));
	EXPECT(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT && !own);
	OK(cuGetProcAddress("cuProfilerStart", &own, 13000, 0, &status));
	EXPECT(((CUresult (*)(void))own)() != CUDA_ERROR_NOT_SUPPORTED);
	EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNothing", &own, 13000, 0, &status));
	EXPECT(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuGetExportTable(&unused, &table));
	table.bytes[0] = 1;
	EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&unused, &table));
}

static void unimplemented(void)
{
	OK(cuInit(0));
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuDestroyExternalMemory(NULL));
}

static void error_texts(void)
{
	const char *text;

	OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
	EXPECT(!strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
	OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
	EXPECT(!strcmp(text, "out of memory"));
	OK(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text));
	EXPECT(!strcmp(text, "invalid argument"));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
	EXPECT(!text);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "before_init", before_init }, { "no_device", no_device },
		{ "list", list }, { "attributes", attributes },
		{ "context_stack", context_stack }, { "wrong_contexts", wrong_contexts }, { "destroyed_elsewhere", destroyed_elsewhere },
		{ "primary", primary }, { "limits", limits },
		{ "after_fork", after_fork }, { "fork_before_init", fork_before_init },
		{ "entry_points", entry_points }, { "unimplemented", unimplemented },
		{ "error_texts", error_texts }, { NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
