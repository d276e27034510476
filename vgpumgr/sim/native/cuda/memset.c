/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemset*: rows of 1, 2 or 4 byte elements. */
#include <stdlib.h>
#include <string.h>

#include "captures.h"

struct fill_op {
	struct op op;
	uint8_t *base;
	size_t pitch, width, height, element; /* width in elements */
	size_t extent;                        /* bytes from the first to the last */
	uint32_t value;
};

static void fill_row(uint8_t *row, const struct fill_op *f)
{
	if (f->element == 1) {
		memset(row, (int)f->value, f->width);
		return;
	}
	for (size_t i = 0; i < f->width; i++)
		memcpy(row + i * f->element, &f->value, f->element); /* little-endian: the low bytes come first */
}

static CUresult run_fill(struct op *op)
{
	struct fill_op *f = (struct fill_op *)op;
	struct allocation a;

	if (!vm_contains((uint64_t)f->base, f->extent, &a))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	for (size_t y = 0; y < f->height; y++) {
		fill_row(f->base + y * f->pitch, f);
		if (drv.checks)
			check_filled((uint64_t)f->base + y * f->pitch, f->width * f->element);
	}
	return CUDA_SUCCESS;
}

static void release_fill(struct op *op)
{
	free(op);
}

static CUresult submit(const struct fill_op *fill, CUstream stream, bool async)
{
	struct fill_op *f;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	r = stream_get(ctx, stream, &s);
	if (r != CUDA_SUCCESS || !fill->width || !fill->height)
		return r;
	f = malloc(sizeof(*f));
	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*f = *fill;
	return async ? queue_submit(s, &f->op) : queue_run(s, &f->op);
}

static CUresult capture_fill(CUstream stream, const struct fill_op *f)
{
	struct graph_node made = { .type = CU_GRAPH_NODE_TYPE_MEMSET };

	if (!f->width || !f->height)
		return CUDA_SUCCESS;
	made.memset = (CUDA_MEMSET_NODE_PARAMS){
		.dst = (CUdeviceptr)f->base,
		.pitch = f->pitch,
		.value = f->value,
		.elementSize = (unsigned int)f->element,
		.width = f->width,
		.height = f->height,
	};
	return capture_put(stream, &made);
}

static CUresult fill(CUdeviceptr dst, size_t pitch, uint32_t value, size_t element, size_t width, size_t height,
		     CUstream stream, bool async)
{
	struct fill_op f = {
		.op = { .run = run_fill, .release = release_fill, .busy = true },
		.base = (uint8_t *)dst,
		.pitch = pitch,
		.width = width,
		.height = height,
		.element = element,
		.value = value,
	};
	struct allocation a;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_rows_extent(width, element, height, pitch, &f.extent);
	if (r != CUDA_SUCCESS)
		return r;
	if (dst % element || (height > 1 && pitch % element) || (f.extent && !vm_contains(dst, f.extent, &a)))
		return CUDA_ERROR_INVALID_VALUE;
	if (!async)
		CAPTURE_SAFE();
	else if (capture_takes(stream))
		return capture_fill(stream, &f);
	return submit(&f, stream, async);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n)
{
	return fill(dst, 0, value, 1, n, 1, NULL, false);
}

CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t n)
{
	return fill(dst, 0, value, 2, n, 1, NULL, false);
}

CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int value, size_t n)
{
	return fill(dst, 0, value, 4, n, 1, NULL, false);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height)
{
	return fill(dst, pitch, value, 1, width, height, NULL, false);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height)
{
	return fill(dst, pitch, value, 2, width, height, NULL, false);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height)
{
	return fill(dst, pitch, value, 4, width, height, NULL, false);
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream)
{
	return fill(dst, 0, value, 1, n, 1, stream, true);
}

CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, CUstream stream)
{
	return fill(dst, 0, value, 2, n, 1, stream, true);
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t n, CUstream stream)
{
	return fill(dst, 0, value, 4, n, 1, stream, true);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height,
			   CUstream stream)
{
	return fill(dst, pitch, value, 1, width, height, stream, true);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height,
			    CUstream stream)
{
	return fill(dst, pitch, value, 2, width, height, stream, true);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height,
			    CUstream stream)
{
	return fill(dst, pitch, value, 4, width, height, stream, true);
}
