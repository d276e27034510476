/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of PTX that use arrays by texture and surface objects, and what makes those. */
#ifndef TEXTURE_KERNELS_H
#define TEXTURE_KERNELS_H

#include "check.h"

/* sample: tex.1d at x[i]; query: what is asked of texture and surface; store: sust of one word at x bytes, row y. */
static const char kernels[] =
	".version 7.0\n.target sm_80\n.address_size 64\n"
	".visible .entry sample(.param .u64 t, .param .u64 x, .param .u64 out) {\n"
	" .reg .b64 %rd<8>; .reg .f32 %f<6>; .reg .b32 %r<2>;\n"
	" ld.param.u64 %rd1, [t]; ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [out];\n"
	" mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd2, %rd2, %rd4; add.s64 %rd3, %rd3, %rd4;\n"
	" ld.global.f32 %f1, [%rd2];\n"
	" tex.1d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1}];\n"
	" st.global.f32 [%rd3], %f2; ret; }\n"
	".visible .entry query(.param .u64 t, .param .u64 s, .param .u64 out) {\n"
	" .reg .b64 %rd<4>; .reg .b32 %r<9>;\n"
	" ld.param.u64 %rd1, [t]; ld.param.u64 %rd2, [s]; ld.param.u64 %rd3, [out];\n"
	" txq.width.b32 %r1, [%rd1]; txq.height.b32 %r2, [%rd1]; txq.depth.b32 %r3, [%rd1];\n"
	" txq.normalized_coords.b32 %r4, [%rd1]; suq.width.b32 %r5, [%rd2]; suq.height.b32 %r6, [%rd2];\n"
	" st.global.v4.u32 [%rd3], {%r1, %r2, %r3, %r4}; st.global.v2.u32 [%rd3+16], {%r5, %r6}; ret; }\n"
	".visible .entry store(.param .u64 s, .param .u32 x, .param .u32 y, .param .u32 value) {\n"
	" .reg .b64 %rd<2>; .reg .b32 %r<4>;\n"
	" ld.param.u64 %rd1, [s]; ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y]; ld.param.u32 %r3, [value];\n"
	" sust.b.2d.b32.trap [%rd1, {%r1, %r2}], {%r3}; ret; }\n"
	".visible .entry cube(.param .u64 t) {\n"
	" .reg .b64 %rd<2>; .reg .f32 %f<5>;\n"
	" ld.param.u64 %rd1, [t]; mov.f32 %f1, 0f00000000;\n"
	" tex.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f1, %f1, %f1}]; ret; }\n";

static CUcontext context;
static CUfunction sampler, query, store;
static CUdeviceptr from, to; /* what sample reads and writes */

static inline void begin(void)
{
	CUmodule module;

	context = new_context();
	OK(cuModuleLoadData(&module, kernels));
	sampler = find_kernel(module, "sample");
	query = find_kernel(module, "query");
	store = find_kernel(module, "store");
	OK(cuMemAlloc(&from, 4096));
	OK(cuMemAlloc(&to, 4096));
}

static inline CUarray new_array(size_t width, size_t height, size_t depth, CUarray_format format, unsigned channels, unsigned flags)
{
	CUDA_ARRAY3D_DESCRIPTOR made = { width, height, depth, format, channels, flags };
	CUarray array;

	OK(cuArray3DCreate(&array, &made));
	return array;
}

static inline CUDA_RESOURCE_DESC of_array(CUarray array)
{
	CUDA_RESOURCE_DESC r = { .resType = CU_RESOURCE_TYPE_ARRAY };

	r.res.array.hArray = array;
	return r;
}

static inline CUtexObject new_texture(CUarray array, CUaddress_mode mode, CUfilter_mode filter, unsigned flags)
{
	CUDA_TEXTURE_DESC how = { .addressMode = { mode, mode, mode }, .filterMode = filter, .flags = flags,
				  .borderColor = { 77 } };
	CUDA_RESOURCE_DESC what = of_array(array);
	CUtexObject object;

	OK(cuTexObjectCreate(&object, &what, &how, NULL));
	return object;
}

static inline CUsurfObject new_surface(CUarray array)
{
	CUDA_RESOURCE_DESC what = of_array(array);
	CUsurfObject object;

	OK(cuSurfObjectCreate(&object, &what));
	return object;
}

/* Up to 1024 coordinates at once; the code of the kernel. */
static inline CUresult run_sample(CUtexObject t, const float *x, float *out, unsigned n)
{
	void *parameters[] = { &t, &from, &to };
	CUresult r;

	OK(cuMemcpyHtoD(from, x, n * sizeof(float)));
	OK(cuLaunchKernel(sampler, 1, 1, 1, n, 1, 1, 0, NULL, parameters, NULL));
	r = cuCtxSynchronize();
	if (r == CUDA_SUCCESS)
		OK(cuMemcpyDtoH(out, to, n * sizeof(float)));
	return r;
}

static inline CUresult run_store(CUsurfObject s, int x, int y, unsigned value)
{
	void *parameters[] = { &s, &x, &y, &value };

	OK(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	return cuCtxSynchronize();
}

#endif
