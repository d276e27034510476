/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clusters: a histogram over the shared memory of clusters, whose size the launch says or the code, also in a graph; what
 * the driver says of clusters; and what it refuses. On a device that has none, that it refuses them.
 */
#define PROGRAM "clusters"
#include "check.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

enum { BLOCKS = 24, THREADS = 64, ITEMS = BLOCKS * THREADS };

/* Each block of a cluster has a part of the cluster's THREADS bins per block; out: a histogram for each cluster. */
__device__ void count(unsigned *out, const unsigned *in)
{
#if __CUDA_ARCH__ >= 900
	__shared__ unsigned bins[THREADS];
	cg::cluster_group cluster = cg::this_cluster();
	unsigned bin = in[blockIdx.x * THREADS + threadIdx.x] % cluster.num_threads();

	bins[threadIdx.x] = 0;
	cluster.sync();
	atomicAdd(cluster.map_shared_rank(bins, bin / THREADS) + bin % THREADS, 1);
	cluster.sync();
	out[blockIdx.x * THREADS + threadIdx.x] = bins[threadIdx.x];
#endif
}

__global__ void asked(unsigned *out, const unsigned *in)
{
	count(out, in);
}

#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)
#define REQUIRED(n) __cluster_dims__(n, 1, 1)
#else
#define REQUIRED(n)
#endif

__global__ void REQUIRED(2) required(unsigned *out, const unsigned *in)
{
	count(out, in);
}

static unsigned item(unsigned i)
{
	return i * i % 1009;
}

static void expect(unsigned *out, unsigned cluster, const char *what)
{
	unsigned want[ITEMS] = { 0 }, found[ITEMS], bins = cluster * THREADS;

	for (unsigned i = 0; i < ITEMS; i++)
		want[i / bins * bins + item(i) % bins]++;
	CHECK(cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost));
	CHECK(cudaMemset(out, 0, sizeof found));
	for (unsigned i = 0; i < ITEMS; i++)
		if (found[i] != want[i])
			FAIL("%s, clusters of %u: bin %u has %u, not %u", what, cluster, i, found[i], want[i]);
}

struct launch {
	cudaLaunchAttribute attribute;
	cudaLaunchConfig_t config;

	explicit launch(unsigned cluster, cudaStream_t stream = NULL) : attribute(), config()
	{
		attribute.id = cudaLaunchAttributeClusterDimension;
		attribute.val.clusterDim = { cluster, 1, 1 };
		config.gridDim = BLOCKS;
		config.blockDim = THREADS;
		config.stream = stream;
		config.attrs = &attribute;
		config.numAttrs = 1;
	}
};

static void refuses(cudaError_t want, unsigned cluster, void (*kernel)(unsigned *, const unsigned *))
{
	launch l(cluster);
	cudaError_t e = cudaLaunchKernelEx(&l.config, kernel, (unsigned *)NULL, (const unsigned *)NULL);

	if (e != want)
		FAIL("clusters of %u: %s, not %s", cluster, cudaGetErrorName(e), cudaGetErrorName(want));
	cudaGetLastError();
}

static void in_graph(unsigned *out, const unsigned *in)
{
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	CHECK(cudaStreamCreate(&stream));
	launch l(3, stream);
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	CHECK(cudaLaunchKernelEx(&l.config, asked, out, in));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 2; i++) {
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaStreamSynchronize(stream));
		expect(out, 3, "captured");
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaStreamDestroy(stream));
}

static void describe()
{
	cudaFuncAttributes attributes;
	launch l(4);
	int size = 0, clusters = 0;

	CHECK(cudaOccupancyMaxPotentialClusterSize(&size, asked, &l.config));
	CHECK(cudaOccupancyMaxActiveClusters(&clusters, asked, &l.config));
	if (size < 8 || clusters < 1)
		FAIL("clusters of %d at most, %d of 4 blocks at once", size, clusters);
	CHECK(cudaFuncGetAttributes(&attributes, required));
	if (attributes.requiredClusterWidth != 2 || attributes.requiredClusterDepth != 1)
		FAIL("the code requires clusters of %d", attributes.requiredClusterWidth);
}

int main()
{
	unsigned *in, *out, *host = new unsigned[ITEMS];
	cudaDeviceProp properties;

	CHECK(cudaGetDeviceProperties(&properties, 0));
	CHECK(cudaMalloc(&in, ITEMS * sizeof *in));
	CHECK(cudaMalloc(&out, ITEMS * sizeof *out));
	if (!properties.clusterLaunch) {
		launch one(1);

		refuses(cudaErrorNotSupported, 2, asked);
		CHECK(cudaLaunchKernelEx(&one.config, asked, out, (const unsigned *)in));
		CHECK(cudaDeviceSynchronize());
		PASS("the device has none, and refuses them");
	}
	for (unsigned i = 0; i < ITEMS; i++)
		host[i] = item(i);
	CHECK(cudaMemcpy(in, host, ITEMS * sizeof *in, cudaMemcpyHostToDevice));
	for (unsigned cluster : { 1, 2, 3, 8 }) {
		launch l(cluster);

		CHECK(cudaLaunchKernelEx(&l.config, asked, out, (const unsigned *)in));
		expect(out, cluster, "asked for");
	}
	required<<<BLOCKS, THREADS>>>(out, in);
	CHECK(cudaGetLastError());
	expect(out, 2, "required");
	in_graph(out, in);
	describe();
	refuses(cudaErrorInvalidClusterSize, 5, asked);    /* no divisor of the grid */
	refuses(cudaErrorInvalidClusterSize, 12, asked);   /* more than the device allows unasked */
	refuses(cudaErrorInvalidClusterSize, 4, required); /* another one than the code says */
	CHECK(cudaFuncSetAttribute(asked, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
	launch l(12);
	CHECK(cudaLaunchKernelEx(&l.config, asked, out, (const unsigned *)in));
	expect(out, 12, "allowed");
	PASS("%d blocks of %d threads", BLOCKS, THREADS);
}
