/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: checks, staging of pageable memory, execution. */
#include <stdlib.h>
#include <string.h>

#include "captures.h"

size_t plane_extent(const struct plane *p, const struct copy *c)
{
	struct cuda_copy shape = { .width = c->width, .rows = c->height, .slices = c->depth };
	struct cuda_side side = { .pitch = p->pitch, .slice = p->slice };
	size_t bytes;

	return cuda_copy_extent(&shape, &side, &bytes) == CUDA_SUCCESS ? bytes : SIZE_MAX;
}

CUresult plane_device(struct plane *p, uint64_t addr, const struct copy *c)
{
	struct allocation a;
	size_t extent = plane_extent(p, c);

	p->base = (uint8_t *)addr;
	if (!extent)
		return CUDA_SUCCESS;
	if (!vm_contains(addr, extent, &a))
		return CUDA_ERROR_INVALID_VALUE;
	p->host = is_host_memory(&a);
	p->pinned = p->host;
	return CUDA_SUCCESS;
}

void plane_host(struct plane *p, const void *addr, const struct copy *c)
{
	struct allocation a;
	size_t extent = plane_extent(p, c);

	p->base = (uint8_t *)addr;
	p->host = true;
	p->pinned = extent && vm_contains((uint64_t)addr, extent, &a);
}

CUresult plane_any(struct plane *p, uint64_t addr, const struct copy *c)
{
	struct allocation a;

	if (vm_is_device_range(addr) || vm_find(addr, &a))
		return plane_device(p, addr, c);
	plane_host(p, (const void *)addr, c);
	return CUDA_SUCCESS;
}

struct copy_op {
	struct op op;
	struct copy copy;
	void *staged;
};

static void copy_bytes(const struct copy *c)
{
	for (size_t z = 0; z < c->depth; z++) {
		for (size_t y = 0; y < c->height; y++)
			memmove(c->dst.base + z * c->dst.slice + y * c->dst.pitch,
				c->src.base + z * c->src.slice + y * c->src.pitch, c->width);
	}
}

/* Rows without gaps become one row: the usual copy is one memmove. */
static void flatten(struct copy *c)
{
	if (c->dst.pitch == c->width && c->src.pitch == c->width && c->depth == 1) {
		c->width *= c->height;
		c->height = 1;
	}
}

/* The memory may have been freed since the call by a mistaken program: on a GPU an illegal access. */
static bool still_there(const struct plane *p, const struct copy *c)
{
	struct allocation a;

	return p->host || vm_contains((uint64_t)p->base, plane_extent(p, c), &a);
}

static CUresult run_copy(struct op *op)
{
	struct copy_op *c = (struct copy_op *)op;

	if (!still_there(&c->copy.dst, &c->copy) || (!c->staged && !still_there(&c->copy.src, &c->copy)))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	copy_bytes(&c->copy);
	if (drv.checks)
		check_copied(&c->copy);
	return CUDA_SUCCESS;
}

static void release_copy(struct op *op)
{
	free(((struct copy_op *)op)->staged);
	free(op);
}

/* Takes the source's bytes along, so that the caller may change them at once. */
static bool stage(struct copy_op *c)
{
	struct copy take = c->copy;
	size_t row = take.width, slice = row * take.height;

	c->staged = malloc(slice * take.depth);
	if (!c->staged)
		return false;
	take.dst = (struct plane){ .base = c->staged, .pitch = row, .slice = slice, .host = true };
	copy_bytes(&take);
	c->copy.src = take.dst;
	return true;
}

/*
 * CUDA's "API synchronization behavior": an asynchronous copy from pageable memory returns when the source has been
 * taken over, one to pageable memory when it is done; with page-locked or device memory at once.
 */
static CUresult submit(struct stream *s, struct copy_op *c, bool async)
{
	bool from_pageable = c->copy.src.host && !c->copy.src.pinned;
	bool to_pageable = c->copy.dst.host && !c->copy.dst.pinned;

	if (!async || to_pageable)
		return queue_run(s, &c->op);
	if (!from_pageable)
		return queue_submit(s, &c->op);
	if (queue_idle(s) || !stage(c))
		return queue_run(s, &c->op);
	return queue_submit(s, &c->op);
}

/* A side as a program would describe it. Rows without gaps are as good as those with. */
static void describe(const struct plane *p, CUmemorytype *type, const void **host, CUdeviceptr *device, size_t *pitch,
		     size_t *height)
{
	*type = p->host && !p->pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
	*host = *type == CU_MEMORYTYPE_HOST ? p->base : NULL;
	*device = *type == CU_MEMORYTYPE_HOST ? 0 : (CUdeviceptr)p->base;
	*pitch = p->pitch;
	*height = p->pitch ? p->slice / p->pitch : 0;
}

static CUresult capture_copy(CUstream stream, const struct copy *copy)
{
	struct graph_node made = { .type = CU_GRAPH_NODE_TYPE_MEMCPY };
	CUDA_MEMCPY3D *m = &made.copy;
	const void *to;

	if (!copy->width || !copy->height || !copy->depth)
		return CUDA_SUCCESS;
	made.copy = (CUDA_MEMCPY3D){ .WidthInBytes = copy->width, .Height = copy->height, .Depth = copy->depth };
	describe(&copy->src, &m->srcMemoryType, &m->srcHost, &m->srcDevice, &m->srcPitch, &m->srcHeight);
	describe(&copy->dst, &m->dstMemoryType, &to, &m->dstDevice, &m->dstPitch, &m->dstHeight);
	m->dstHost = (void *)to;
	return capture_put(stream, &made);
}

CUresult copy_submit(CUstream stream, const struct copy *copy, bool async)
{
	struct copy_op *c;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!async)
		CAPTURE_SAFE();
	else if (capture_takes(stream))
		return capture_copy(stream, copy);
	drv_lock();
	r = stream_get(ctx, stream, &s);
	if (r != CUDA_SUCCESS || !copy->width || !copy->height || !copy->depth) {
		drv_unlock();
		return r;
	}
	c = calloc(1, sizeof(*c));
	r = CUDA_ERROR_OUT_OF_MEMORY;
	if (c) {
		*c = (struct copy_op){ { .run = run_copy, .release = release_copy, .busy = true }, *copy, NULL };
		flatten(&c->copy);
		r = submit(s, c, async);
	}
	drv_unlock();
	if (!async)
		context_flush_print(ctx);
	return r;
}
