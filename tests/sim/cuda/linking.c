/* SPDX-License-Identifier: Apache-2.0 */
/* Linking at run time, and what is linked without a library: functions of the device run time. */
#include "check.h"

static int count_registers(CUmodule m)
{
	int n;

	OK(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, find_kernel(m, "vector_add")));
	return n;
}

/* What is linked under a limit has it; each load may ask for less. */
static void register_limits(void)
{
	CUjit_option option = CU_JIT_MAX_REGISTERS;
	void *most = (void *)(uintptr_t)8, *cubin;
	CUlibrary library;
	CUkernel kernel;
	CUlinkState link;
	CUmodule m;
	size_t size;
	int n;

	new_context();
	EXPECT(count_registers(load_kernels()) > 8);
	OK(cuLinkCreate(1, &option, &most, &link));
	OK(cuLinkAddFile(link, CU_JIT_INPUT_PTX, getenv("KERNELS"), 0, NULL, NULL));
	OK(cuLinkComplete(link, &cubin, &size));
	OK(cuModuleLoadData(&m, cubin));
	EXPECT(count_registers(m) == 8);
	most = (void *)(uintptr_t)16;
	OK(cuModuleLoadDataEx(&m, cubin, 1, &option, &most));
	EXPECT(count_registers(m) == 8);
	most = (void *)(uintptr_t)6;
	OK(cuModuleLoadDataEx(&m, cubin, 1, &option, &most));
	EXPECT(count_registers(m) == 6);
	OK(cuLibraryLoadData(&library, cubin, &option, &most, 1, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&kernel, library, "vector_add"));
	OK(cuKernelGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0));
	EXPECT(n == 6);
}

/* What programs without the toolkit's headers call (cuda_device_runtime_api.h): each thread reads what another block wrote. */
static const char grid_code[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 scope);\n"
	".extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);\n"
	".extern .func (.param .b32 r) cudaCGGetRank(.param .b64 thread, .param .b64 grid, .param .b64 handle);\n"
	".extern .func (.param .b32 r) cudaCGGetSize(.param .b64 threads, .param .b64 grids, .param .b64 handle);\n"
	".visible .entry k(.param .u64 p) {\n"
	".local .align 4 .b32 l[2]; .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %p<2>;\n"
	".param .b32 a; .param .b64 h; .param .b64 x; .param .b64 y; .param .b32 f; .param .b32 e; .param .b64 n;\n"
	"ld.param.u64 %d0, [p]; st.param.b32 [a], 1; call.uni (h), cudaCGGetIntrinsicHandle, (a); ld.param.b64 %d1, [h];\n"
	"mov.u64 %d2, l; cvta.local.u64 %d2, %d2; add.u64 %d3, %d2, 4; st.param.b64 [x], %d2; st.param.b64 [n], 0; st.param.b64 [y], %d1;\n"
	"call.uni (e), cudaCGGetRank, (x, n, y); ld.param.b32 %r1, [e]; ld.local.u32 %r2, [l];\n"
	"st.param.b64 [x], %d3; call.uni (e), cudaCGGetSize, (x, n, y); ld.local.u32 %r3, [l+4]; mov.u32 %r4, 0;\n"
	"L: mad.wide.u32 %d4, %r2, 4, %d0; add.u32 %r5, %r2, %r4; st.global.u32 [%d4], %r5;\n"
	"st.param.b64 [y], %d1; st.param.b32 [f], 0; call.uni (e), cudaCGSynchronize, (y, f); ld.param.b32 %r5, [e]; or.b32 %r1, %r1, %r5;\n"
	"add.u32 %r5, %r2, 40; rem.u32 %r5, %r5, %r3; mad.wide.u32 %d5, %r5, 4, %d0; ld.global.u32 %r6, [%d5]; add.u32 %r5, %r5, %r4;\n"
	"sub.u32 %r6, %r6, %r5; or.b32 %r1, %r1, %r6; st.param.b64 [y], %d1; call.uni (e), cudaCGSynchronize, (y, f);\n"
	"add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, 3; @%p0 bra L; st.global.u32 [%d4], %r1; ret; }\n";

static void grid_functions(void)
{
	unsigned found[5 * 40];
	CUdeviceptr p;
	CUfunction f;
	CUmodule m;

	new_context();
	OK(cuModuleLoadData(&m, grid_code));
	f = find_kernel(m, "k");
	OK(cuMemAlloc(&p, sizeof(found)));
	OK(cuLaunchCooperativeKernel(f, 5, 1, 1, 40, 1, 1, 0, NULL, (void *[]){ &p }));
	OK(cuMemcpyDtoH(found, p, sizeof(found)));
	for (int i = 0; i < 5 * 40; i++)
		if (found[i])
			FAIL("thread %d has %u", i, found[i]);
}

/* Objects and libraries of the host: their fat binaries' PTX; a library without any is left out. */
static void link_objects(void)
{
	CUlinkState link;
	void *cubin;
	CUmodule m;

	new_context();
	OK(cuLinkCreate(0, NULL, NULL, &link));
	OK(cuLinkAddFile(link, CU_JIT_INPUT_OBJECT, getenv("OBJECT"), 0, NULL, NULL));
	OK(cuLinkAddFile(link, CU_JIT_INPUT_LIBRARY, getenv("LIBRARY"), 0, NULL, NULL));
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)grid_code, sizeof(grid_code), "grid", 0, NULL, NULL));
	OK(cuLinkComplete(link, &cubin, NULL));
	OK(cuModuleLoadData(&m, cubin));
	find_kernel(m, "vector_add");
	find_kernel(m, "k");
	OK(cuLinkDestroy(link));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "register_limits", register_limits },
		{ "grid_functions", grid_functions },
		{ "link_objects", link_objects },
		{ NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
