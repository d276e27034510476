/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linked [N [ROUNDS]]: a program of two parts, which the driver links when it starts (nvcc -rdc=true), computes with N
 * threads. Then it links PTX itself, ROUNDS times: names that both inputs keep to themselves, that both may define, that one
 * has for the other; and inputs that do not fit.
 */
#define PROGRAM "linked"
#include "check.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstring>
#include <string>

extern __device__ int twice(int x);
extern __device__ int counter;
void read_counter_on_device(int *to);

template <typename T> __device__ __noinline__ T plus_one(T x)
{
	return x + 1;
}

static __device__ __noinline__ int own(int x)
{
	return 10 * x;
}

__global__ void compute(int *to, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		to[i] = twice(plus_one(i)) + own(1);
		atomicAdd(&counter, 1);
	}
}

static void run_parts(int n)
{
	int *device, count, *host = new int[n];

	CHECK(cudaMalloc(&device, n * sizeof(int)));
	compute<<<blocks_for(n, 64), 64>>>(device, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(host, device, n * sizeof(int), cudaMemcpyDeviceToHost));
	for (int i = 0; i < n; i++)
		if (host[i] != 2 * (i + 1) + 1 + 5 + 10)
			FAIL("element %d is %d", i, host[i]);
	read_counter_on_device(device);
	CHECK(cudaMemcpy(&count, device, sizeof(int), cudaMemcpyDeviceToHost));
	if (count != n)
		FAIL("%d threads counted %d", n, count);
	CHECK(cudaFree(device));
	delete[] host;
}

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"
#define FUNCTION(name) ".func (.param .b32 r) " name " (.param .b32 x)\n"
#define BODY(what) "{ .reg .b32 %a; ld.param.b32 %a, [x]; " what " st.param.b32 [r], %a; ret; }\n"
#define CALL(name) "{ .param .b32 p; .param .b32 q; st.param.b32 [p], %v; call (q), " name ", (p); ld.param.b32 %v, [q]; }\n"

static const char first[] = HEAD
	".extern " FUNCTION("of_the_second") ";\n"
	".extern .global .align 4 .u32 offset;\n"
	FUNCTION("private") BODY("add.u32 %a, %a, 100;")
	".weak " FUNCTION("shared") BODY("mul.lo.u32 %a, %a, 3;")
	".visible .entry kernel (.param .u64 to)\n"
	"{ .reg .b32 %v, %o; .reg .b64 %d; mov.u32 %v, %tid.x;\n"
	CALL("shared") CALL("private") CALL("of_the_second")
	"ld.global.u32 %o, [offset]; add.u32 %v, %v, %o;\n"
	"ld.param.u64 %d, [to]; st.global.u32 [%d], %v; ret; }\n";

static const char second[] = HEAD
	".visible .global .align 4 .u32 offset = 7;\n"
	FUNCTION("private") BODY("add.u32 %a, %a, 1000;")
	".weak " FUNCTION("shared") BODY("mul.lo.u32 %a, %a, 3;")
	".visible " FUNCTION("of_the_second")
	"{ .reg .b32 %v; ld.param.b32 %v, [x];\n"
	CALL("private") CALL("shared")
	"st.param.b32 [r], %v; ret; }\n";

static struct {
	decltype(&cuLinkCreate) create;
	decltype(&cuLinkAddData) add;
	decltype(&cuLinkComplete) complete;
	decltype(&cuLinkDestroy) destroy;
	decltype(&cuModuleLoadData) load;
	decltype(&cuModuleUnload) unload;
	decltype(&cuModuleGetFunction) function;
	decltype(&cuLaunchKernel) launch;
} driver;

static void find_driver()
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library)
		FAIL("%s", dlerror());
	*(void **)&driver.create = dlsym(library, "cuLinkCreate_v2");
	*(void **)&driver.add = dlsym(library, "cuLinkAddData_v2");
	*(void **)&driver.complete = dlsym(library, "cuLinkComplete");
	*(void **)&driver.destroy = dlsym(library, "cuLinkDestroy");
	*(void **)&driver.load = dlsym(library, "cuModuleLoadData");
	*(void **)&driver.unload = dlsym(library, "cuModuleUnload");
	*(void **)&driver.function = dlsym(library, "cuModuleGetFunction");
	*(void **)&driver.launch = dlsym(library, "cuLaunchKernel");
}

static void expect(CUresult got, CUresult wanted, const char *what)
{
	if (got != wanted)
		FAIL("%s answers %d, not %d", what, (int)got, (int)wanted);
}

/* The result of linking the texts; an input may be refused when it is added, or when all are there. */
static CUresult link(const char *const *texts, int count, CUlinkState *state, void **cubin, size_t *size, char *log,
		     size_t log_bytes)
{
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	/* the driver keeps it until the end */
	static void *values[2];
	CUresult r;

	values[0] = log;
	values[1] = (void *)log_bytes;
	memset(log, 0, log_bytes);
	expect(driver.create(2, options, values, state), CUDA_SUCCESS, "cuLinkCreate");
	for (int i = 0; i < count; i++) {
		/* without a NUL: the length is said */
		std::string text = texts[i];

		r = driver.add(*state, CU_JIT_INPUT_PTX, &text[0], text.size(), "a part", 0, nullptr, nullptr);
		std::fill(text.begin(), text.end(), 'x');
		if (r != CUDA_SUCCESS)
			return r;
	}
	return driver.complete(*state, cubin, size);
}

static void run_linked(const void *cubin)
{
	unsigned *device, host;
	CUfunction kernel;
	CUmodule module;
	void *arguments[] = { &device };

	expect(driver.load(&module, cubin), CUDA_SUCCESS, "cuModuleLoadData");
	expect(driver.function(&kernel, module, "kernel"), CUDA_SUCCESS, "cuModuleGetFunction");
	CHECK(cudaMalloc(&device, sizeof(*device)));
	expect(driver.launch(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), CUDA_SUCCESS, "cuLaunchKernel");
	CHECK(cudaMemcpy(&host, device, sizeof(host), cudaMemcpyDeviceToHost));
	if (host != (0 * 3 + 100 + 1000) * 3 + 7)
		FAIL("the linked kernel computes %u", host);
	CHECK(cudaFree(device));
	expect(driver.unload(module), CUDA_SUCCESS, "cuModuleUnload");
}

static void link_twice()
{
	static const char *const texts[] = { first, second }, *const swapped[] = { second, first };
	CUlinkState state;
	char log[512];
	void *cubin;
	size_t size;

	for (auto both : { texts, swapped }) {
		expect(link(both, 2, &state, &cubin, &size, log, sizeof(log)), CUDA_SUCCESS, "cuLinkComplete");
		if (!cubin || !size)
			FAIL("nothing was linked: %zu bytes at %p; %s", size, cubin, log);
		/* a copy of the length that was said is as good */
		std::string copy((char *)cubin, size);
		run_linked(cubin);
		expect(driver.destroy(state), CUDA_SUCCESS, "cuLinkDestroy");
		run_linked(copy.data());
	}
}

static void refuse(const char *what, const char *const *texts, int count)
{
	CUlinkState state;
	char log[512];
	void *cubin = nullptr;
	size_t size = 0;

	if (link(texts, count, &state, &cubin, &size, log, sizeof(log)) == CUDA_SUCCESS)
		FAIL("%s was linked", what);
	if (count && !log[0])
		FAIL("the log does not say what is wrong with %s", what);
	expect(driver.destroy(state), CUDA_SUCCESS, "cuLinkDestroy");
}

static void misuse()
{
	static const char *const alone[] = { first }, *const twice_the_same[] = { first, second, second };
	static const char *const wrong[] = { first, HEAD "nonsense" };
	CUlinkState state;
	char byte = 1;

	refuse("a part without the other", alone, 1);
	refuse("a name that is defined twice", twice_the_same, 3);
	refuse("a text that is no PTX", wrong, 2);
	refuse("nothing", alone, 0);
	expect(driver.create(0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE, "cuLinkCreate for nobody");
	expect(driver.create(0, nullptr, nullptr, &state), CUDA_SUCCESS, "cuLinkCreate");
	expect(driver.add(state, CU_JIT_INPUT_PTX, nullptr, 1, "", 0, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE, "no data");
	expect(driver.add(state, CU_JIT_INPUT_PTX, &byte, 0, "", 0, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE, "no length");
	expect(driver.add(state, (CUjitInputType)99, &byte, 1, "", 0, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE, "no type");
	expect(driver.destroy(state), CUDA_SUCCESS, "cuLinkDestroy");
	expect(driver.destroy(state), CUDA_ERROR_INVALID_HANDLE, "a second cuLinkDestroy");
	expect(driver.add(state, CU_JIT_INPUT_PTX, &byte, 1, "", 0, nullptr, nullptr), CUDA_ERROR_INVALID_HANDLE, "after it");
}

int main(int argc, char **argv)
{
	int n = argument(argc, argv, 1, 1000), rounds = argument(argc, argv, 2, 3);

	find_driver();
	run_parts(n);
	for (int i = 0; i < rounds; i++)
		link_twice();
	misuse();
	PASS("of %d elements, %d times two parts", n, rounds);
}
