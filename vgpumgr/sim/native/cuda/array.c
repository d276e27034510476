/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays. */
#include <stdlib.h>

#include "array.h"

enum { ROW_ALIGNMENT = 64 };

struct array *array_find(CUarray handle)
{
	return handle_is(handle, HANDLE_ARRAY) ? (struct array *)handle : NULL;
}

struct array *mipmap_find(CUmipmappedArray handle)
{
	return handle_is(handle, HANDLE_MIPMAP) ? (struct array *)handle : NULL;
}

static bool is_ours(const struct allocation *a)
{
	return a->of_module;
}

/* With drv.lock held. */
static void array_free(struct array *a)
{
	struct allocation memory;

	if (!a)
		return;
	for (unsigned i = 0; i < a->n_levels; i++)
		array_free(a->levels[i]);
	free(a->levels);
	if (a->addr)
		vm_remove(a->addr, is_ours, &memory);
	handle_remove(a);
	free(a);
}

static struct array *array_new(struct context *ctx, const struct cuda_array *shape)
{
	struct array *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->ctx = ctx;
	a->shape = *shape;
	a->pitch = (shape->row + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT * ROW_ALIGNMENT;
	a->slice = a->pitch * shape->rows;
	return a;
}

/* On shortage, what streams are about to free is waited for, as for other memory. */
static CUresult array_fill(struct array *a)
{
	size_t bytes;
	CUresult r;

	if (__builtin_mul_overflow(a->slice, a->shape.slices, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = vm_alloc(a->ctx, bytes, true, &a->addr);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && bytes <= a->ctx->dev->total_bytes) {
		context_drain(a->ctx);
		r = vm_alloc(a->ctx, bytes, true, &a->addr);
	}
	return r;
}

static void array_enter(struct array *a)
{
	a->next = a->ctx->arrays;
	a->ctx->arrays = a;
}

static CUresult array_create(struct context *ctx, const struct cuda_array *shape, struct array **out)
{
	struct array *a = array_new(ctx, shape);
	CUresult r = a ? array_fill(a) : CUDA_ERROR_OUT_OF_MEMORY;

	DRV_LOCKED();
	if (r == CUDA_SUCCESS && ctx->destroyed)
		r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (r == CUDA_SUCCESS && handle_add(a, HANDLE_ARRAY))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		array_free(a);
		return r;
	}
	array_enter(a);
	*out = a;
	return CUDA_SUCCESS;
}

static CUresult create_of(CUarray *out, CUresult read, const struct cuda_array *shape)
{
	struct array *a;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	r = out ? read : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = array_create(ctx, shape, &a);
	if (r == CUDA_SUCCESS)
		*out = (CUarray)a;
	return r;
}

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *made)
{
	struct cuda_array shape;
	CUresult r = cuda_read_array_2d(made, &shape);

	return create_of(out, r, &shape);
}

CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *made)
{
	struct cuda_array shape;
	CUresult r = cuda_read_array(made, &shape);

	return create_of(out, r, &shape);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray handle)
{
	const struct array *a;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	a = array_find(handle);
	if (!out || !a)
		return a ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	*out = a->shape.made;
	return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *out, CUarray handle)
{
	CUDA_ARRAY3D_DESCRIPTOR made;
	CUresult r = out ? cuArray3DGetDescriptor_v2(&made, handle) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		*out = (CUDA_ARRAY_DESCRIPTOR){ .Width = made.Width, .Height = made.Height, .Format = made.Format,
						.NumChannels = made.NumChannels };
	return r;
}

/* Waits for the work of the array's context: it may use it. */
static CUresult end(const void *handle, enum handle_kind kind)
{
	struct array *a = (struct array *)handle, **at;
	struct context *owner;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	drv_lock();
	owner = handle_is(a, kind) && !a->whole ? a->ctx : NULL;
	drv_unlock();
	if (!owner)
		return CUDA_ERROR_INVALID_HANDLE;
	r = context_drain(owner);
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	if (!handle_is(a, kind) || a->ctx != owner)
		return CUDA_ERROR_INVALID_HANDLE;
	for (at = &owner->arrays; *at && *at != a; at = &(*at)->next)
		;
	if (*at)
		*at = a->next;
	array_free(a);
	return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray handle)
{
	return end(handle, HANDLE_ARRAY);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
	return end(handle, HANDLE_MIPMAP);
}

/* ---- mipmapped arrays */

static CUresult add_level(struct array *whole, unsigned level)
{
	struct cuda_array shape;
	CUresult r = cuda_read_level(&whole->shape, level, whole->n_levels, &shape);
	struct array *a = r == CUDA_SUCCESS ? array_new(whole->ctx, &shape) : NULL;

	if (!a)
		return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
	whole->levels[level] = a;
	a->whole = whole;
	return array_fill(a);
}

static CUresult enter_levels(struct array *whole)
{
	DRV_LOCKED();
	if (whole->ctx->destroyed)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	for (unsigned i = 0; i < whole->n_levels; i++)
		if (handle_add(whole->levels[i], HANDLE_ARRAY))
			return CUDA_ERROR_OUT_OF_MEMORY;
	if (handle_add(whole, HANDLE_MIPMAP))
		return CUDA_ERROR_OUT_OF_MEMORY;
	array_enter(whole);
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *made, unsigned int levels)
{
	struct cuda_array shape;
	struct array *whole;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	r = out ? cuda_read_array(made, &shape) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = cuda_check_levels(&shape, levels);
	if (r != CUDA_SUCCESS)
		return r;
	whole = array_new(ctx, &shape);
	if (!whole)
		return CUDA_ERROR_OUT_OF_MEMORY;
	whole->levels = calloc(levels, sizeof(struct array *));
	whole->n_levels = whole->levels ? levels : 0;
	r = whole->levels ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; r == CUDA_SUCCESS && i < levels; i++)
		r = add_level(whole, i);
	if (r == CUDA_SUCCESS)
		r = enter_levels(whole);
	if (r == CUDA_SUCCESS) {
		*out = (CUmipmappedArray)whole;
		return r;
	}
	DRV_LOCKED();
	array_free(whole);
	return r;
}

CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray handle, unsigned int level)
{
	const struct array *whole;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	whole = mipmap_find(handle);
	if (!whole)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!out || level >= whole->n_levels)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUarray)whole->levels[level];
	return CUDA_SUCCESS;
}

/* ---- what others need */

void array_free_context(struct context *ctx)
{
	while (ctx->arrays) {
		struct array *a = ctx->arrays;

		ctx->arrays = a->next;
		array_free(a);
	}
}

CUresult array_plane(struct plane *p, const struct cuda_side *side, const struct cuda_copy *copy)
{
	const struct array *a;
	CUresult r;

	DRV_LOCKED();
	a = array_find(side->array);
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	r = cuda_check_region(&a->shape, side, copy);
	*p = (struct plane){ .pitch = a->pitch, .slice = a->slice };
	p->base = (uint8_t *)(a->addr + side->z * a->slice + side->y * a->pitch + side->x);
	return r;
}
