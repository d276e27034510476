/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vectoradd12 [N]: vectoradd's kernel in a C program for the runtime of CUDA 12. It hands its fat binary (FATBIN, a file
 * made by nvcc) to the runtime as compiled programs do, and launches through the public call. A graph of it then decides.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

/* Of the compiler's crt/host_runtime.h: what every program made by nvcc calls at its start. */
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit, void *tid,
			    void *bid, void *block, void *grid, int *warp);

__asm__(".section .nv_fatbin, \"a\"\n.balign 8\nimage: .incbin \"" FATBIN "\"\n.text");
extern const char image[];

static const struct {
	int magic, version;
	const void *container, *file;
} wrapper = { 0x466243b1, 1, image, NULL };

static void add(void) {} /* the kernel's host stub: only its address counts */

#define CHECK(call)                                                                                \
	do {                                                                                       \
		cudaError_t error = (call);                                                        \
		if (error != cudaSuccess) {                                                        \
			printf("FAIL vectoradd12 %s: %s\n", #call, cudaGetErrorName(error));       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static float *on_device(const float *values, size_t bytes)
{
	void *memory;

	CHECK(cudaMalloc(&memory, bytes));
	CHECK(cudaMemcpy(memory, values, bytes, cudaMemcpyHostToDevice));
	return memory;
}

/* By its default, without a kernel: the body fills a word. */
static unsigned int decide(void)
{
	struct cudaGraphNodeParams params = { .type = cudaGraphNodeTypeConditional };
	struct cudaMemsetParams fill = { .value = 12, .elementSize = 4, .width = 1, .height = 1 };
	cudaGraphConditionalHandle handle;
	unsigned int word = 0;
	cudaGraphNode_t node;
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	CHECK(cudaMalloc(&fill.dst, 4));
	CHECK(cudaMemset(fill.dst, 0, 4));
	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
	params.conditional.handle = handle, params.conditional.type = cudaGraphCondTypeIf, params.conditional.size = 1;
	CHECK(cudaGraphAddNode(&node, graph, NULL, 0, &params));
	CHECK(cudaGraphAddMemsetNode(&node, params.conditional.phGraph_out[0], NULL, 0, &fill));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, 0));
	CHECK(cudaMemcpy(&word, fill.dst, 4, cudaMemcpyDeviceToHost));
	return word;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 5003;
	size_t bytes = n * sizeof(float);
	float *a = malloc(bytes), *b = malloc(bytes), *c = calloc(n, sizeof(float));
	void **handle = __cudaRegisterFatBinary((void *)&wrapper);
	float *da, *db, *dc;
	void *args[] = { &da, &db, &dc, &n };
	struct cudaDeviceProp properties;

	__cudaRegisterFunction(handle, (const char *)add, (char *)add, "_Z3addPKfS0_Pfi", -1, NULL, NULL, NULL, NULL,
			       NULL);
	__cudaRegisterFatBinaryEnd(handle);
	CHECK(cudaGetDeviceProperties(&properties, 0));
	for (int i = 0; i < n; i++) {
		a[i] = 0.5f * i;
		b[i] = 3.0f - i;
	}
	da = on_device(a, bytes);
	db = on_device(b, bytes);
	dc = on_device(c, bytes);
	CHECK(cudaLaunchKernel((const void *)add, (dim3){ (n + 127) / 128, 1, 1 }, (dim3){ 128, 1, 1 }, args, 0, NULL));
	CHECK(cudaMemcpy(c, dc, bytes, cudaMemcpyDeviceToHost));
	for (int i = 0; i < n; i++) {
		if (c[i] != a[i] + b[i]) {
			printf("FAIL vectoradd12 element %d is %g, not %g\n", i, c[i], a[i] + b[i]);
			return 1;
		}
	}
	CHECK(cudaFree(da));
	CHECK(cudaFree(db));
	CHECK(cudaFree(dc));
	__cudaUnregisterFatBinary(handle);
	if (decide() != 12) {
		printf("FAIL vectoradd12 a graph has not decided\n");
		return 1;
	}
	printf("PASS vectoradd12 %d elements on compute capability %d.%d\n", n, properties.major, properties.minor);
	return 0;
}
