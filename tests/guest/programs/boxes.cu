/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boxes: what the runtime has got since 13.0: copies of boxes, alone and in a batch, advice in batches, captures into a graph
 * that is there, host functions that say how to wait, answers about atomics and arrays.
 */
#define PROGRAM "boxes"
#include "check.h"

#if CUDART_VERSION >= 13020
enum { W = 4, H = 3, D = 2, ALL = W * H * D };

__device__ int variable[2];

__global__ void add(int *to, int much)
{
	*to += much;
}

static cudaMemcpy3DOperand place(int *at, size_t row, size_t rows)
{
	cudaMemcpy3DOperand o = {};

	o.type = cudaMemcpyOperandTypePointer;
	o.op.ptr.ptr = at, o.op.ptr.rowLength = row * sizeof(int), o.op.ptr.layerHeight = rows;
	return o;
}

static cudaMemcpy3DBatchOp box(int *to, int *from, size_t row)
{
	cudaMemcpy3DBatchOp o = {};

	o.src = place(from, row, H), o.dst = place(to, W, H);
	o.extent = make_cudaExtent(W * sizeof(int), H, D);
	o.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
	return o;
}

/* Out of rows that are twice as long. */
static void copy_boxes(cudaStream_t stream)
{
	static int in[2 * ALL], out[2][ALL];
	int *wide, *narrow;

	for (int i = 0; i < 2 * ALL; i++)
		in[i] = i;
	CHECK(cudaMalloc(&wide, sizeof(in)));
	CHECK(cudaMalloc(&narrow, sizeof(out)));
	CHECK(cudaMemcpy(wide, in, sizeof(in), cudaMemcpyHostToDevice));
	cudaMemcpy3DBatchOp one = box(narrow, wide, 2 * W), two[] = { box(narrow + ALL, wide + W, 2 * W), one };
	CHECK(cudaMemcpy3DWithAttributesAsync(&one, 0, stream));
	CHECK(cudaMemcpy3DBatchAsync(1, two, 0, stream));
	CHECK(cudaMemcpyAsync(out, narrow, sizeof(out), cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	for (int i = 0; i < ALL; i++)
		for (int j = 0; j < 2; j++)
			if (out[j][i] != i / W * 2 * W + i % W + j * W)
				FAIL("element %d of box %d is %d", i, j, out[j][i]);
	two[0].extent.depth = 0;
	REFUSED(cudaMemcpy3DBatchAsync(1, two, 0, stream), cudaErrorInvalidValue);
	CHECK(cudaFree(wide));
	CHECK(cudaFree(narrow));
}

/* Changes nothing that is read, but for what is given up. */
static void advise(cudaStream_t stream)
{
	cudaMemLocation device = {}, nowhere = {};
	size_t sizes[] = { 4096, 4096 }, first = 0;
	void *memory[2];

	device.type = cudaMemLocationTypeDevice;
	nowhere.type = cudaMemLocationTypeDevice, nowhere.id = 77;
	for (void *&m : memory)
		CHECK(cudaMallocManaged(&m, 4096));
	*(volatile int *)memory[0] = 5;
	CHECK(cudaMemPrefetchBatchAsync(memory, sizes, 2, &device, &first, 1, 0, stream));
	CHECK(cudaMemDiscardBatchAsync(memory + 1, sizes, 1, 0, stream));
	CHECK(cudaMemDiscardAndPrefetchBatchAsync(memory + 1, sizes, 1, &device, &first, 1, 0, stream));
	CHECK(cudaStreamSynchronize(stream));
	if (*(volatile int *)memory[0] != 5)
		FAIL("a prefetch changed memory");
	REFUSED(cudaMemPrefetchBatchAsync(memory, sizes, 2, &nowhere, &first, 1, 0, stream), cudaErrorInvalidDevice);
	for (void *m : memory)
		CHECK(cudaFree(m));
}

static void count(void *data)
{
	++*(int *)data;
}

static void capture(cudaStream_t stream)
{
	static int called;
	int much = 5, *to, in = 3, out = 0, other = 0;
	void *params[] = { &to, &much };
	cudaGraphNode_t nodes[8], copied;
	cudaGraphNodeParams p = {};
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	size_t n = 8;

	CHECK(cudaMalloc(&to, 4));
	CHECK(cudaMemset(to, 0, 4));
	CHECK(cudaMemcpyToSymbol(variable, &in, 4, 4));
	CHECK(cudaGraphCreate(&graph, 0));
	p.type = cudaGraphNodeTypeKernel;
	CHECK(cudaGetKernel(&p.kernel.kern, (const void *)add));
	p.kernel.functionType = cudaKernelFunctionTypeKernel;
	p.kernel.gridDim.x = p.kernel.gridDim.y = p.kernel.gridDim.z = 1;
	p.kernel.blockDim.x = p.kernel.blockDim.y = p.kernel.blockDim.z = 1;
	p.kernel.kernelParams = params;
	CHECK(cudaGraphAddNode(&nodes[0], graph, nullptr, nullptr, 0, &p));
	CHECK(cudaGraphAddMemcpyNodeFromSymbol(&copied, graph, nullptr, 0, &out, variable, 4, 0, cudaMemcpyDeviceToHost));
	CHECK(cudaStreamBeginCaptureToGraph(stream, graph, nodes, nullptr, 1, cudaStreamCaptureModeGlobal));
	add<<<1, 1, 0, stream>>>(to, 10);
	CHECK(cudaStreamUpdateCaptureDependencies(stream, &copied, nullptr, 1, cudaStreamAddCaptureDependencies));
	CHECK(cudaLaunchHostFunc_v2(stream, count, &called, 0));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &n));
	if (n != 3)
		FAIL("%zu edges", n);
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphExecMemcpyNodeSetParamsFromSymbol(exec, copied, &out, variable, 4, 4, cudaMemcpyDeviceToHost));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaMemcpy(&other, to, 4, cudaMemcpyDeviceToHost));
	if (other != 15 || out != 3 || called != 1)
		FAIL("%d, %d, called %d times", other, out, called);
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaFree(to));
}

static void ask()
{
	cudaAtomicOperation add_integers = cudaAtomicOperationIntegerAdd;
	cudaChannelFormatDesc words = cudaCreateChannelDesc<int>();
	cudaArraySparseProperties sparse;
	cudaArray_t array, plane;
	unsigned found = 77;

	CHECK(cudaDeviceGetHostAtomicCapabilities(&found, &add_integers, 1, 0));
	CHECK(cudaMallocArray(&array, &words, 16, 16));
	if (cudaArrayGetPlane(&plane, array, 0) == cudaSuccess || cudaArrayGetSparseProperties(&sparse, array) == cudaSuccess)
		FAIL("an array of words has planes, or is sparse");
	cudaGetLastError();
	CHECK(cudaFreeArray(array));
}

int main()
{
	cudaStream_t stream;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	copy_boxes(stream);
	advise(stream);
	capture(stream);
	ask();
	PASS("%d words", ALL);
}
#else
int main()
{
	PASS("nothing: the runtime is older");
}
#endif
