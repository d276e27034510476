/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texture and surface objects. An object's number is its place and how often the place was used: a kernel with any other
 * number ends with an illegal address. What is read through an object is checked as every access of a kernel is.
 */
#include <stdlib.h>

#include "array.h"

enum { PLACE_BITS = 20, PLACES = 1 << PLACE_BITS };

struct object {
	uint64_t number; /* 0: a free place */
	uint64_t generation;
	uint64_t ctx_id;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
	struct ptx_image image;
	size_t next_free;
};

/* Kernels ask while drv.lock is free, so the table has a lock of its own. The first place is none. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object **objects;
static size_t n_objects = 1, size_objects, first_free;

static void unlock(int *unused)
{
	(void)unused;
	pthread_mutex_unlock(&lock);
}
#define LOCKED() CLEANUP(unlock) int locked_ = (pthread_mutex_lock(&lock), 0); (void)locked_

/* Under the lock. */
static struct object *find(uint64_t number, bool surface)
{
	size_t place = number & (PLACES - 1);
	struct object *o = place && place < n_objects ? objects[place] : NULL;

	return o && o->number == number && o->image.surface == surface ? o : NULL;
}

/* Under the lock: a place without a number yet; 0: there is none. */
static size_t take_place(void)
{
	size_t place = first_free, size = size_objects ? size_objects * 2 : 64;
	struct object **more;

	if (place) {
		first_free = objects[place]->next_free;
		return place;
	}
	if (n_objects == PLACES)
		return 0;
	if (n_objects >= size_objects) {
		more = realloc(objects, size * sizeof(*more));
		if (!more)
			return 0;
		objects = more;
		size_objects = size;
	}
	objects[n_objects] = calloc(1, sizeof(**objects));
	return objects[n_objects] ? n_objects++ : 0;
}

static void free_place(size_t place)
{
	objects[place]->number = 0;
	objects[place]->next_free = first_free;
	first_free = place;
}

static CUresult add(const struct object *made, uint64_t *number)
{
	struct object *o;
	size_t place;

	LOCKED();
	place = take_place();
	if (!place)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o = objects[place];
	uint64_t generation = o->generation + 1;
	*o = *made;
	o->generation = generation;
	*number = o->number = generation << PLACE_BITS | place;
	return CUDA_SUCCESS;
}

static CUresult take_out(const struct context *ctx, uint64_t number, bool surface)
{
	const struct object *o;

	LOCKED();
	o = find(number, surface);
	if (!o || o->ctx_id != ctx->id)
		return CUDA_ERROR_INVALID_VALUE;
	free_place(number & (PLACES - 1));
	return CUDA_SUCCESS;
}

static CUresult get(const struct context *ctx, uint64_t number, bool surface, CUDA_RESOURCE_DESC *resource, CUDA_TEXTURE_DESC *texture)
{
	const struct object *o;

	LOCKED();
	o = find(number, surface);
	if (!o || o->ctx_id != ctx->id || (!resource && !texture))
		return CUDA_ERROR_INVALID_VALUE;
	if (resource)
		*resource = o->resource;
	if (texture)
		*texture = o->texture;
	return CUDA_SUCCESS;
}

bool texture_image(void *arg, uint64_t number, struct ptx_image *out)
{
	const struct context *ctx = arg;
	const struct object *o;

	LOCKED();
	o = find(number, false);
	if (!o)
		o = find(number, true);
	if (!o || o->ctx_id != ctx->id)
		return false;
	*out = o->image;
	return true;
}

void texture_free_context(const struct context *ctx)
{
	LOCKED();
	for (size_t i = 1; i < n_objects; i++)
		if (objects[i]->number && objects[i]->ctx_id == ctx->id)
			free_place(i);
}

/* ---- what objects are made of */

static enum ptx_texel texel_of(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
		return PTX_U8;
	case CU_AD_FORMAT_UNSIGNED_INT16:
		return PTX_U16;
	case CU_AD_FORMAT_UNSIGNED_INT32:
		return PTX_U32;
	case CU_AD_FORMAT_SIGNED_INT8:
		return PTX_S8;
	case CU_AD_FORMAT_SIGNED_INT16:
		return PTX_S16;
	case CU_AD_FORMAT_SIGNED_INT32:
		return PTX_S32;
	case CU_AD_FORMAT_HALF:
		return PTX_F16;
	default:
		return PTX_F32;
	}
}

static struct ptx_level level_of(const struct array *a)
{
	return (struct ptx_level){ a->addr, a->pitch, a->slice, (uint32_t)a->shape.made.Width, (uint32_t)a->shape.rows,
				   (uint32_t)a->shape.slices };
}

static void image_of_array(const struct array *a, struct ptx_image *image)
{
	image->rank = a->shape.rank;
	image->layered = a->shape.made.Flags & CUDA_ARRAY3D_LAYERED;
	image->texel = texel_of(a->shape.made.Format);
	image->channels = a->shape.made.NumChannels;
	image->n_levels = a->n_levels ? a->n_levels : 1;
	for (unsigned i = 0; i < image->n_levels; i++)
		image->levels[i] = level_of(a->n_levels ? a->levels[i] : a);
}

static void image_of_memory(const CUDA_RESOURCE_DESC *resource, struct ptx_image *image)
{
	struct ptx_level *l = &image->levels[0];

	image->n_levels = 1;
	l->height = l->depth = 1;
	if (resource->resType == CU_RESOURCE_TYPE_LINEAR) {
		image->linear = true;
		image->rank = 1;
		image->texel = texel_of(resource->res.linear.format);
		image->channels = resource->res.linear.numChannels;
		l->base = resource->res.linear.devPtr;
		l->width = (uint32_t)(resource->res.linear.sizeInBytes / (image->channels * ptx_texel_bytes(image->texel)));
		return;
	}
	image->rank = 2;
	image->texel = texel_of(resource->res.pitch2D.format);
	image->channels = resource->res.pitch2D.numChannels;
	l->base = resource->res.pitch2D.devPtr;
	l->pitch = resource->res.pitch2D.pitchInBytes;
	l->width = (uint32_t)resource->res.pitch2D.width;
	l->height = (uint32_t)resource->res.pitch2D.height;
}

static void image_reading(const CUDA_TEXTURE_DESC *texture, struct ptx_image *image)
{
	bool small = ptx_texel_bytes(image->texel) < 4 && image->texel != PTX_F16;

	image->normalized = texture->flags & CU_TRSF_NORMALIZED_COORDINATES;
	image->filtered = texture->filterMode == CU_TR_FILTER_MODE_LINEAR;
	image->fractions = small && !(texture->flags & CU_TRSF_READ_AS_INTEGER);
	image->between_levels = texture->mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
	image->bias = texture->mipmapLevelBias;
	image->least = texture->minMipmapLevelClamp;
	image->most = texture->maxMipmapLevelClamp;
	for (int i = 0; i < 3; i++)
		image->address[i] = (enum ptx_address)texture->addressMode[i];
	for (int i = 0; i < 4; i++)
		image->border[i] = texture->borderColor[i];
}

/* With drv.lock held. NULL: there is no such array, or the resource is none. */
static const struct array *array_of(const CUDA_RESOURCE_DESC *resource)
{
	if (resource && resource->resType == CU_RESOURCE_TYPE_ARRAY)
		return array_find(resource->res.array.hArray);
	if (resource && resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
		return mipmap_find(resource->res.mipmap.hMipmappedArray);
	return NULL;
}

static CUresult check_memory(const CUDA_RESOURCE_DESC *resource)
{
	struct allocation a;
	uint64_t address;
	size_t bytes;
	CUresult r = cuda_texture_extent(resource, &address, &bytes);

	if (r != CUDA_SUCCESS || !address)
		return r;
	return vm_contains(address, bytes, &a) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectCreate(CUtexObject *out, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
			   const CUDA_RESOURCE_VIEW_DESC *view)
{
	struct object o = { 0 };
	const struct array *a;
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	a = array_of(resource);
	r = out ? cuda_check_texture(resource, texture, view, a ? &a->shape : NULL) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = check_memory(resource);
	if (r != CUDA_SUCCESS)
		return r;
	o.ctx_id = ctx->id;
	o.resource = *resource;
	o.texture = *texture;
	if (a)
		image_of_array(a, &o.image);
	else
		image_of_memory(resource, &o.image);
	image_reading(texture, &o.image);
	return add(&o, (uint64_t *)out);
}

CUresult cuSurfObjectCreate(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource)
{
	struct object o = { 0 };
	const struct array *a;
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	a = array_of(resource);
	r = out ? cuda_check_surface(resource, a ? &a->shape : NULL) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	o.ctx_id = ctx->id;
	o.resource = *resource;
	o.image.surface = true;
	image_of_array(a, &o.image);
	return add(&o, (uint64_t *)out);
}

CUresult cuTexObjectDestroy(CUtexObject object)
{
	CONTEXT_ENTER(ctx);
	return take_out(ctx, object, false);
}

CUresult cuSurfObjectDestroy(CUsurfObject object)
{
	CONTEXT_ENTER(ctx);
	return take_out(ctx, object, true);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *out, CUtexObject object)
{
	CONTEXT_ENTER(ctx);
	return get(ctx, object, false, out, NULL);
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *out, CUtexObject object)
{
	CONTEXT_ENTER(ctx);
	return get(ctx, object, false, NULL, out);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *out, CUsurfObject object)
{
	CONTEXT_ENTER(ctx);
	return get(ctx, object, true, out, NULL);
}

/* No object is made with a view. */
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *out, CUtexObject object)
{
	(void)out;
	(void)object;
	CONTEXT_ENTER(ctx);
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *out, CUarray_format format, unsigned channels, CUdevice dev)
{
	DRIVER_CHECK();
	return device_find(dev) ? cuda_read_linear_width(out, format, channels) : CUDA_ERROR_INVALID_DEVICE;
}
