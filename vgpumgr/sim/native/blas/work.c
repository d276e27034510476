/* SPDX-License-Identifier: Apache-2.0 */
/* Work on a stream: a host function that has it done, and a kernel that fails where memory was missing. */
#include "blas.h"

static void CUDA_CB run_posted(void *data)
{
	struct work *w = data;

	bl_runner_run(w);
	if (!w->kept)
		w->release(w);
}

static void CUDA_CB release_kept(void *data)
{
	struct work *w = data;

	w->release(w);
}

/* A graph that is being captured keeps the work: each of its instances may run it. */
static CUresult keep(struct work *w, CUgraph graph)
{
	CUuserObject object;
	CUresult r = bl_driver.cuUserObjectCreate(&object, w, release_kept, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);

	if (r != CUDA_SUCCESS)
		return r;
	w->kept = true;
	return bl_driver.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
}

static CUresult launch(struct work *w, CUstream stream)
{
	struct bl_context *c = w->context; /* the work may be gone once it is posted */
	CUdeviceptr word = (CUdeviceptr)c->word;
	void *params[] = { &word };
	CUresult r = bl_driver.cuLaunchHostFunc(stream, run_posted, w);

	if (r != CUDA_SUCCESS) {
		if (!w->kept)
			w->release(w);
		return r;
	}
	return bl_driver.cuLaunchKernel(c->touch, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

int bl_post(struct work *work, CUstream stream, bool wait)
{
	CUstreamCaptureStatus capture;
	CUgraph graph = NULL;
	CUresult r = bl_driver.cuStreamGetCaptureInfo_v2(stream, &capture, NULL, &graph, NULL, NULL);

	if (r == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		/* a result on the host cannot be waited for: the capture fails with the attempt, as on a GPU */
		r = wait ? bl_driver.cuStreamSynchronize(stream) : keep(work, graph);
	}
	if (r != CUDA_SUCCESS) {
		if (!work->kept)
			work->release(work);
		return BL_EXECUTION_FAILED;
	}
	r = launch(work, stream);
	if (r == CUDA_SUCCESS && wait)
		r = bl_driver.cuStreamSynchronize(stream);
	return r == CUDA_SUCCESS ? BL_SUCCESS : BL_EXECUTION_FAILED;
}

/* As on a GPU, an access that ends in a neighbour is none that fails. */
static bool is_there(CUdeviceptr address, uint64_t bytes, CUdeviceptr *missing)
{
	for (;;) {
		CUdeviceptr base;
		uint64_t part;
		size_t size;

		*missing = address;
		if (bl_driver.cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS)
			return false;
		part = base + size - address;
		if (part >= bytes)
			return true;
		address += part;
		bytes -= part;
	}
}

bool bl_reach(struct work *work, const void *address, int64_t bytes)
{
	CUdeviceptr missing = 0;

	if (!work->wild && bytes > 0 && !is_there((CUdeviceptr)address, (uint64_t)bytes, &missing)) {
		work->wild = true;
		*work->context->word = missing;
	}
	return !work->wild;
}
