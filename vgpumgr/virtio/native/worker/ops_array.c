/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By hand: arrays, and the copies in which they take part. What an array is made of is kept here, so every copy is checked
 * before the driver sees it. A level of a mipmapped array is owned by it, and ends with it.
 */
#include <stdlib.h>

#include "array.h"

enum { ROW_UNIT = 64, ROWS_UNIT = 8 };

static uint64_t round_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/* Drivers keep arrays in blocks of this size or larger ones. The largest array is of 2^58 bytes. */
static uint64_t cost(const struct cuda_array *shape)
{
	return round_up(shape->row, ROW_UNIT) * round_up(shape->rows, shape->rank > 1 ? ROWS_UNIT : 1) * shape->slices;
}

static uint64_t cost_of_levels(const struct cuda_array *whole, uint32_t levels)
{
	struct cuda_array shape;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < levels && cuda_read_level(whole, i, levels, &shape) == CUDA_SUCCESS; i++)
		bytes += cost(&shape);
	return bytes;
}

/* NULL: out of memory. The charge is then still the caller's to give back. */
static struct wk_object *new_array(struct wk_call *c, enum wk_kind kind, struct wk_object *owner, void *driver,
				   const struct cuda_array *shape, uint64_t bytes)
{
	struct wk_session *s = c->session;
	struct cuda_array *kept = malloc(sizeof(*kept));
	struct wk_object *o = kept ? wk_object_new(kind, owner, driver, 0) : NULL;

	if (!o) {
		free(kept);
		return NULL;
	}
	*kept = *shape;
	o->array = kept;
	o->bytes = bytes;
	o->session = s;
	pthread_mutex_lock(&s->lock);
	s->physical_bytes += bytes;
	wk_account(s);
	pthread_mutex_unlock(&s->lock);
	return o;
}

CUresult wk_do_array_create(struct wk_call *c, const struct vg_array_create_request *in)
{
	CUDA_ARRAY3D_DESCRIPTOR made = { .Width = in->width, .Height = in->height, .Depth = in->depth,
					 .Format = (CUarray_format)in->format, .NumChannels = in->channels, .Flags = in->flags };
	struct cuda_array shape;
	struct wk_object *o;
	CUarray array;
	CUresult r = cuda_read_array(&made, &shape);

	if (r == CUDA_SUCCESS)
		r = wk_charge(WK_ARRAY, cost(&shape));
	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_ARRAY, cost(&shape), wk_driver.cuArray3DCreate_v2(&array, &made));
	if (r != CUDA_SUCCESS)
		return r;
	o = new_array(c, WK_ARRAY, c->context, array, &shape, cost(&shape));
	if (o)
		return wk_put(c, in->created, o);
	wk_driver.cuArrayDestroy(array);
	wk_refund(WK_ARRAY, cost(&shape));
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult wk_do_array_destroy(struct wk_call *c, const struct vg_array_destroy_request *in)
{
	struct wk_object *array WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_ARRAY, in->array, &array);

	if (r == CUDA_SUCCESS && array->owner->kind == WK_MIPMAP)
		r = CUDA_ERROR_INVALID_HANDLE;
	return r == CUDA_SUCCESS ? wk_remove(c, WK_ARRAY, in->array) : r;
}

CUresult wk_do_mipmap_create(struct wk_call *c, const struct vg_mipmap_create_request *in)
{
	CUDA_ARRAY3D_DESCRIPTOR made = { .Width = in->width, .Height = in->height, .Depth = in->depth,
					 .Format = (CUarray_format)in->format, .NumChannels = in->channels, .Flags = in->flags };
	CUmipmappedArray mipmap;
	struct cuda_array shape;
	struct wk_object *o;
	uint64_t bytes = 0;
	CUresult r = cuda_read_array(&made, &shape);

	if (r == CUDA_SUCCESS)
		r = cuda_check_levels(&shape, in->levels);
	if (r == CUDA_SUCCESS) {
		bytes = cost_of_levels(&shape, in->levels);
		r = wk_charge(WK_MIPMAP, bytes);
	}
	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_MIPMAP, bytes, wk_driver.cuMipmappedArrayCreate(&mipmap, &made, in->levels));
	if (r != CUDA_SUCCESS)
		return r;
	o = new_array(c, WK_MIPMAP, c->context, mipmap, &shape, bytes);
	if (o) {
		o->number = in->levels;
		return wk_put(c, in->created, o);
	}
	wk_driver.cuMipmappedArrayDestroy(mipmap);
	wk_refund(WK_MIPMAP, bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult wk_do_mipmap_level(struct wk_call *c, const struct vg_mipmap_level_request *in)
{
	struct wk_object *mipmap WK_HELD = NULL;
	struct cuda_array shape;
	struct wk_object *o;
	CUarray array;
	CUresult r = wk_hold(c, WK_MIPMAP, in->mipmap, &mipmap);

	if (r == CUDA_SUCCESS)
		r = cuda_read_level(mipmap->array, in->level, (unsigned int)mipmap->number, &shape);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMipmappedArrayGetLevel(&array, mipmap->driver, in->level);
	if (r != CUDA_SUCCESS)
		return r;
	o = new_array(c, WK_ARRAY, mipmap, array, &shape, 0);
	return o ? wk_put(c, in->created, o) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult wk_do_mipmap_destroy(struct wk_call *c, const struct vg_mipmap_destroy_request *in)
{
	return wk_remove(c, WK_MIPMAP, in->mipmap);
}

/* ---- copies */

/* A part of an array, as a side of a copy. */
struct part {
	struct wk_object *array;
	uint64_t x, y, z;
};

static CUresult hold_part(struct wk_call *c, uint64_t handle, struct part *p, const CUDA_MEMCPY3D *copy)
{
	struct cuda_copy shape = { .width = copy->WidthInBytes, .rows = copy->Height, .slices = copy->Depth };
	struct cuda_side side = { .x = p->x, .y = p->y, .z = p->z };
	CUresult r = wk_hold(c, WK_ARRAY, handle, &p->array);

	if (r == CUDA_SUCCESS && cuda_copy_is_empty(&shape))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? cuda_check_region(p->array->array, &side, &shape) : r;
}

static void put_from(CUDA_MEMCPY3D *copy, const struct part *p)
{
	copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
	copy->srcArray = wk_raw(p->array);
	copy->srcXInBytes = p->x, copy->srcY = p->y, copy->srcZ = p->z;
}

static void put_to(CUDA_MEMCPY3D *copy, const struct part *p)
{
	copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
	copy->dstArray = wk_raw(p->array);
	copy->dstXInBytes = p->x, copy->dstY = p->y, copy->dstZ = p->z;
}

static CUresult check_packed(const CUDA_MEMCPY3D *copy, size_t bytes)
{
	size_t needed;

	return __builtin_mul_overflow(copy->WidthInBytes, copy->Height, &needed) || needed != bytes ? CUDA_ERROR_INVALID_VALUE :
												     CUDA_SUCCESS;
}

/* The driver reads what the guest may be changing, we do not. */
CUresult wk_do_copy_to_array(struct wk_call *c, const struct vg_copy_to_array_request *in)
{
	CUDA_MEMCPY3D copy = { .WidthInBytes = in->width, .Height = in->height, .Depth = 1, .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = c->call->bulk_in, .srcPitch = in->width, .srcHeight = in->height };
	struct wk_object *stream WK_HELD = NULL;
	struct part to = { NULL, in->x, in->y, in->z };
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = check_packed(&copy, c->call->bulk_in_length);
	if (r == CUDA_SUCCESS)
		r = hold_part(c, in->array, &to, &copy);
	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	put_to(&copy, &to);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemcpy3DAsync_v2(&copy, wk_raw(stream));
	wk_release_held(&to.array);
	return r;
}

CUresult wk_do_copy_from_array(struct wk_call *c, const struct vg_copy_from_array_request *in)
{
	CUDA_MEMCPY3D copy = { .WidthInBytes = in->width, .Height = in->height, .Depth = 1, .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .dstHost = c->call->bulk_out, .dstPitch = in->width, .dstHeight = in->height };
	struct wk_object *stream WK_HELD = NULL;
	struct part from = { NULL, in->x, in->y, in->z };
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = check_packed(&copy, c->call->bulk_out_length);
	if (r == CUDA_SUCCESS)
		r = hold_part(c, in->array, &from, &copy);
	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	put_from(&copy, &from);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemcpy3DAsync_v2(&copy, wk_raw(stream));
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuStreamSynchronize(wk_raw(stream));
	if (r == CUDA_SUCCESS)
		c->bulk_filled = c->call->bulk_out_length;
	wk_release_held(&from.array);
	return r;
}

CUresult wk_do_copy_array_device(struct wk_call *c, const struct vg_copy_array_device_request *in)
{
	CUDA_MEMCPY3D copy = { .WidthInBytes = in->width, .Height = in->rows, .Depth = in->slices };
	struct wk_box box = { .address = in->address, .pitch = in->pitch, .slice = in->slice, .width = in->width,
			      .rows = in->rows, .slices = in->slices };
	uint64_t pitch = in->pitch ? in->pitch : in->width, height = in->slices > 1 && in->pitch ? in->slice / in->pitch : in->rows;
	struct wk_object *stream WK_HELD = NULL;
	struct part part = { NULL, in->x, in->y, in->z };
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = hold_part(c, in->array, &part, &copy);
	if (r == CUDA_SUCCESS)
		r = wk_check_box(c, &box);
	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	if (in->to_array) {
		put_to(&copy, &part);
		copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
		copy.srcDevice = in->address, copy.srcPitch = pitch, copy.srcHeight = height;
	} else {
		put_from(&copy, &part);
		copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
		copy.dstDevice = in->address, copy.dstPitch = pitch, copy.dstHeight = height;
	}
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemcpy3DAsync_v2(&copy, wk_raw(stream));
	wk_release_held(&part.array);
	return r;
}

CUresult wk_do_copy_arrays(struct wk_call *c, const struct vg_copy_arrays_request *in)
{
	CUDA_MEMCPY3D copy = { .WidthInBytes = in->width, .Height = in->rows, .Depth = in->slices };
	struct wk_object *stream WK_HELD = NULL;
	struct part to = { NULL, in->destination_x, in->destination_y, in->destination_z };
	struct part from = { NULL, in->source_x, in->source_y, in->source_z };
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = hold_part(c, in->destination, &to, &copy);
	if (r == CUDA_SUCCESS)
		r = hold_part(c, in->source, &from, &copy);
	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	put_to(&copy, &to);
	put_from(&copy, &from);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemcpy3DAsync_v2(&copy, wk_raw(stream));
	wk_release_held(&to.array);
	wk_release_held(&from.array);
	return r;
}
