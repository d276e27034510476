/* SPDX-License-Identifier: Apache-2.0 */
/* libraries: a program loads device code by itself, lists its kernels, and uses them where it would name kernels of its own. */
#define PROGRAM "libraries"
#include "driver.h"

#include <string>

static const char CODE[] = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 offset = 5;
.visible .entry add(.param .u64 a, .param .u32 n) {
 .reg .u64 %p<3>; .reg .u32 %r<4>; .reg .pred %q;
 ld.param.u64 %p0, [a]; ld.param.u32 %r0, [n];
 mov.u32 %r1, %tid.x; setp.ge.u32 %q, %r1, %r0; @%q bra end;
 mul.wide.u32 %p1, %r1, 4; add.u64 %p0, %p0, %p1;
 ld.global.u32 %r2, [%p0]; ld.global.u32 %r3, [offset]; add.u32 %r2, %r2, %r3; st.global.u32 [%p0], %r2;
end: ret; }
.visible .entry nothing() { ret; }
)";

__global__ void own(int *to)
{
	*to = 4711;
}

static void check_names(cudaLibrary_t library)
{
	cudaKernel_t kernels[4] = {};
	std::string names;
	unsigned count;

	CHECK(cudaLibraryGetKernelCount(&count, library));
	if (count != 2)
		FAIL("%u kernels", count);
	CHECK(cudaLibraryEnumerateKernels(kernels, 4, library));
	for (unsigned i = 0; i < count; i++) {
		const char *name;

		CHECK(cudaFuncGetName(&name, (const void *)kernels[i]));
		names += name;
	}
	if ((names != "addnothing" && names != "nothingadd") || kernels[2])
		FAIL("kernels %s", names.c_str());
}

/* Kernels of a library that only the driver knows: their handles are the runtime's, too. */
static void check_driver_kernels(int *device)
{
	DRIVER(cuLibraryLoadData);
	DRIVER(cuLibraryGetKernel);
	DRIVER(cuLibraryUnload);
	int n = 32, host[32];
	void *parameters[] = { &device, &n };
	cudaFuncAttributes attributes;
	CUlibrary library;
	CUkernel kernel;
	const char *name;

	DRIVE(drv_cuLibraryLoadData(&library, CODE, nullptr, nullptr, 0, nullptr, nullptr, 0));
	DRIVE(drv_cuLibraryGetKernel(&kernel, library, "add"));
	CHECK(cudaMemset(device, 0, sizeof(host)));
	CHECK(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(32), parameters, 0, nullptr));
	CHECK(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 32; i++)
		if (host[i] != 5)
			FAIL("element %d by the driver's kernel is %d", i, host[i]);
	CHECK(cudaFuncGetName(&name, (const void *)kernel));
	if (std::string(name) != "add")
		FAIL("the driver's kernel is %s", name);
	CHECK(cudaFuncGetAttributes(&attributes, (const void *)kernel));
	DRIVE(drv_cuLibraryUnload(library));
}

int main()
{
	cudaFuncAttributes attributes;
	cudaLibrary_t library;
	cudaKernel_t add, again, mine;
	int host[32], *device, n = 30, added = 7, result = 0;
	void *parameters[] = { &device, &n }, *variable;
	size_t bytes;

	CHECK(cudaMalloc(&device, sizeof(host)));
	CHECK(cudaMemset(device, 0, sizeof(host)));
	CHECK(cudaLibraryLoadData(&library, CODE, nullptr, nullptr, 0, nullptr, nullptr, 0));
	CHECK(cudaLibraryGetKernel(&add, library, "add"));
	CHECK(cudaLibraryGetKernel(&again, library, "add"));
	if (add != again)
		FAIL("two handles of one kernel");
	CHECK(cudaLaunchKernel((const void *)add, dim3(1), dim3(32), parameters, 0, nullptr));
	CHECK(cudaLibraryGetGlobal(&variable, &bytes, library, "offset"));
	if (bytes != 4)
		FAIL("a variable of %zu bytes", bytes);
	CHECK(cudaMemcpy(variable, &added, 4, cudaMemcpyHostToDevice));
	CHECK(cudaLaunchKernel((const void *)add, dim3(1), dim3(32), parameters, 0, nullptr));
	CHECK(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 32; i++)
		if (host[i] != (i < n ? 12 : 0))
			FAIL("element %d is %d", i, host[i]);
	check_names(library);
	CHECK(cudaKernelSetAttributeForDevice(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024, 0));
	CHECK(cudaFuncGetAttributes(&attributes, (const void *)add));
	if (attributes.maxDynamicSharedSizeBytes != 1024)
		FAIL("%d bytes of shared memory", attributes.maxDynamicSharedSizeBytes);
	REFUSED(cudaLibraryGetKernel(&again, library, "absent"), cudaErrorSymbolNotFound);
	REFUSED(cudaLibraryGetManaged(&variable, &bytes, library, "absent"), cudaErrorSymbolNotFound);
	REFUSED(cudaKernelSetAttributeForDevice(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024, 9), cudaErrorInvalidDevice);
	CHECK(cudaGetKernel(&mine, (const void *)own));
	void *one[] = { &device };
	CHECK(cudaLaunchKernel((const void *)mine, dim3(1), dim3(1), one, 0, nullptr));
	CHECK(cudaMemcpy(&result, device, 4, cudaMemcpyDeviceToHost));
	if (result != 4711)
		FAIL("its own kernel gave %d", result);
	CHECK(cudaLibraryUnload(library));
	REFUSED(cudaLaunchKernel((const void *)add, dim3(1), dim3(32), parameters, 0, nullptr), cudaErrorInvalidDeviceFunction);
	REFUSED(cudaLibraryUnload(library), cudaErrorInvalidResourceHandle);
	REFUSED(cudaLibraryLoadFromFile(&library, "/nowhere", nullptr, nullptr, 0, nullptr, nullptr, 0), cudaErrorFileNotFound);
	check_driver_kernels(device);
	CHECK(cudaFree(device));
	PASS("2 kernels of a library and one of its own");
}
