/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of kernels and copies on a few words of memory. */
#include "check.h"

static CUfunction add_to __attribute__((unused));
static CUdeviceptr word __attribute__((unused));
static CUcontext context __attribute__((unused));
static int called __attribute__((unused));

/* A host function that counts. */
static inline void call(void *data)
{
	called += (int)(intptr_t)data;
}

static inline void begin(void)
{
	context = new_context();
	add_to = find_kernel(load_kernels(), "add_to");
	OK(cuMemAlloc(&word, 4096));
	OK(cuMemsetD8(word, 0, 4096));
	/* streams that do not wait for the default one are to find it done */
	OK(cuCtxSynchronize());
}

static inline CUstream stream(unsigned flags)
{
	CUstream s;

	OK(cuStreamCreate(&s, flags));
	return s;
}

static inline CUevent event(void)
{
	CUevent e;

	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	return e;
}

static inline unsigned value(int at)
{
	unsigned v;

	OK(cuMemcpyDtoH(&v, word + 4 * at, 4));
	return v;
}

static inline void add(int at, unsigned much, CUstream s)
{
	CUdeviceptr p = word + 4 * at;
	void *params[] = { &p, &much };

	OK(cuLaunchKernel(add_to, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static inline CUDA_KERNEL_NODE_PARAMS adding(CUdeviceptr *p, unsigned *much, void **params)
{
	params[0] = p;
	params[1] = much;
	return (CUDA_KERNEL_NODE_PARAMS){ .func = add_to, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
					  .blockDimY = 1, .blockDimZ = 1, .kernelParams = params };
}

static inline CUgraphNode add_node(CUgraph g, const CUgraphNode *deps, size_t n, int at, unsigned much)
{
	CUdeviceptr p = word + 4 * at;
	void *params[2];
	CUDA_KERNEL_NODE_PARAMS k = adding(&p, &much, params);
	CUgraphNode node;

	OK(cuGraphAddKernelNode(&node, g, deps, n, &k));
	return node;
}

static inline CUgraphNode copy_node(CUgraph g, const CUgraphNode *deps, size_t n, int to, int from)
{
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = word + 4 * from,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = word + 4 * to,
			       .WidthInBytes = 4, .Height = 1, .Depth = 1 };
	CUgraphNode node;

	OK(cuGraphAddMemcpyNode(&node, g, deps, n, &copy, context));
	return node;
}

static inline CUgraphNode fill_node(CUgraph g, const CUgraphNode *deps, size_t n, int at, unsigned what)
{
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = word + 4 * at, .value = what, .elementSize = 4, .width = 1, .height = 1 };
	CUgraphNode node;

	OK(cuGraphAddMemsetNode(&node, g, deps, n, &fill, context));
	return node;
}

static inline CUgraphExec instantiate(CUgraph g)
{
	CUgraphExec e;

	OK(cuGraphInstantiate(&e, g, 0));
	return e;
}

static inline CUgraph end(CUstream s)
{
	CUgraph g = NULL;

	OK(cuStreamEndCapture(s, &g));
	EXPECT(g);
	return g;
}
