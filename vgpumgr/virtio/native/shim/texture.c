/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texture and surface objects. A program gives an object's number to its kernels, by value and in memory, where nobody could
 * exchange it: so it is the driver's own, and only what this library and the worker say to each other uses a handle. Numbers
 * are of a context.
 */
#include "textures.h"

#include <stdlib.h>

#include "arrays.h"
#include "shim.h"

/* What the object is made of, where that is an array. */
static CUresult find_array(const CUDA_RESOURCE_DESC *resource, struct cuda_array *array, bool *found)
{
	CUresult r;

	*found = resource && (resource->resType == CU_RESOURCE_TYPE_ARRAY || resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY);
	if (!*found)
		return CUDA_SUCCESS;
	r = resource->resType == CU_RESOURCE_TYPE_ARRAY ? shim_array(resource->res.array.hArray, array) :
							  shim_mipmap(resource->res.mipmap.hMipmappedArray, array);
	return r == CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_memory(const CUDA_RESOURCE_DESC *resource)
{
	uint64_t address;
	size_t bytes;
	CUresult r = cuda_texture_extent(resource, &address, &bytes);

	return r == CUDA_SUCCESS && address ? shim_check_range(address, bytes, 1, 1, 0) : r;
}

static void put_resource(const CUDA_RESOURCE_DESC *resource, struct vg_texture_create_request *in)
{
	in->resource = resource->resType;
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		in->array = (uint64_t)resource->res.array.hArray;
		break;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		in->mipmap = (uint64_t)resource->res.mipmap.hMipmappedArray;
		break;
	case CU_RESOURCE_TYPE_LINEAR:
		in->address = resource->res.linear.devPtr;
		in->bytes = resource->res.linear.sizeInBytes;
		in->format = resource->res.linear.format;
		in->channels = resource->res.linear.numChannels;
		break;
	default:
		in->address = resource->res.pitch2D.devPtr;
		in->width = resource->res.pitch2D.width;
		in->height = resource->res.pitch2D.height;
		in->pitch = resource->res.pitch2D.pitchInBytes;
		in->format = resource->res.pitch2D.format;
		in->channels = resource->res.pitch2D.numChannels;
	}
}

static void put_texture(const CUDA_TEXTURE_DESC *texture, struct vg_texture_create_request *in)
{
	in->address_x = texture->addressMode[0], in->address_y = texture->addressMode[1], in->address_z = texture->addressMode[2];
	in->filter = texture->filterMode;
	in->flags = texture->flags;
	in->anisotropy = texture->maxAnisotropy;
	in->mipmap_filter = texture->mipmapFilterMode;
	in->mipmap_bias = texture->mipmapLevelBias;
	in->mipmap_least = texture->minMipmapLevelClamp;
	in->mipmap_most = texture->maxMipmapLevelClamp;
	in->border_r = texture->borderColor[0], in->border_g = texture->borderColor[1];
	in->border_b = texture->borderColor[2], in->border_a = texture->borderColor[3];
}

/* A handle and room for what it stands for. */
static CUresult begin(bool surface, uint64_t context, uint64_t *id, struct shim_texture **out)
{
	*out = calloc(1, sizeof(**out));
	if (!*out || !shim_object_new(shim_texture_table(surface), context, id)) {
		free(*out);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	(*out)->context = context;
	(*out)->id = *id;
	(*out)->surface = surface;
	return CUDA_SUCCESS;
}

static CUresult end(CUresult r, struct shim_texture *o, uint64_t number)
{
	if (r == CUDA_SUCCESS) {
		shim_texture_add(o, number);
		return r;
	}
	shim_object_recycle(shim_texture_table(o->surface), o->id);
	free(o);
	return r;
}

SHIM_API CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
				    const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_texture_create_request in = { 0 };
	struct vg_texture_create_reply out = { 0 };
	struct cuda_array array;
	struct shim_texture *o;
	bool has_array;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = find_array(pResDesc, &array, &has_array);
	if (r == CUDA_SUCCESS)
		r = pTexObject ? cuda_check_texture(pResDesc, pTexDesc, pResViewDesc, has_array ? &array : NULL) :
				 CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_ERROR_NOT_SUPPORTED)
		return shim_unsupported("a texture with sRGB, seamless cubemaps or a resource view", &told);
	if (r == CUDA_SUCCESS)
		r = check_memory(pResDesc);
	if (r == CUDA_SUCCESS)
		r = begin(false, in.context, &in.created, &o);
	if (r != CUDA_SUCCESS)
		return r;
	o->resource = *pResDesc;
	o->texture = *pTexDesc;
	put_resource(pResDesc, &in);
	put_texture(pTexDesc, &in);
	r = vg_send_texture_create(&in, &out);
	r = end(r, o, out.number);
	if (r == CUDA_SUCCESS)
		*pTexObject = out.number;
	return r;
}

SHIM_API CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
	struct vg_surface_create_request in = { 0 };
	struct vg_surface_create_reply out = { 0 };
	struct cuda_array array;
	struct shim_texture *o;
	bool has_array;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = find_array(pResDesc, &array, &has_array);
	if (r == CUDA_SUCCESS)
		r = pSurfObject ? cuda_check_surface(pResDesc, has_array ? &array : NULL) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = begin(true, in.context, &in.created, &o);
	if (r != CUDA_SUCCESS)
		return r;
	o->resource = *pResDesc;
	in.array = (uint64_t)pResDesc->res.array.hArray;
	r = vg_send_surface_create(&in, &out);
	r = end(r, o, out.number);
	if (r == CUDA_SUCCESS)
		*pSurfObject = out.number;
	return r;
}

/* ---- afterwards */

static CUresult destroy(uint64_t number, bool surface)
{
	struct vg_texture_destroy_request texture;
	struct vg_surface_destroy_request in;
	struct shim_texture *o;
	uint64_t context;
	CUresult r = shim_enter(&context);

	if (r != CUDA_SUCCESS)
		return r;
	o = shim_texture_take(context, number, surface);
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	texture.texture = in.surface = o->id;
	r = surface ? vg_send_surface_destroy(&in) : vg_send_texture_destroy(&texture);
	shim_object_recycle(shim_texture_table(surface), o->id);
	free(o);
	return r;
}

SHIM_API CUresult cuTexObjectDestroy(CUtexObject texObject)
{
	return destroy(texObject, false);
}

SHIM_API CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
	return destroy(surfObject, true);
}

static CUresult get(uint64_t number, bool surface, CUDA_RESOURCE_DESC *resource, CUDA_TEXTURE_DESC *texture)
{
	uint64_t context;
	bool found;
	CUresult r = shim_enter(&context);

	if (r != CUDA_SUCCESS)
		return r;
	found = shim_texture_look(context, number, surface, resource, texture);
	return found && (resource || texture) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
	return get(texObject, false, pResDesc, NULL);
}

SHIM_API CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
	return get(texObject, false, NULL, pTexDesc);
}

SHIM_API CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
	return get(surfObject, true, pResDesc, NULL);
}

/* No object is made with a view. */
SHIM_API CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc, CUtexObject texObject)
{
	uint64_t context;
	CUresult r = shim_enter(&context);

	(void)pResViewDesc;
	(void)texObject;
	return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : r;
}

SHIM_API CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, CUarray_format format, unsigned numChannels,
						     CUdevice dev)
{
	const struct shim_device *device;
	CUresult r = shim_device(dev, &device);

	return r == CUDA_SUCCESS ? cuda_read_linear_width(maxWidthInElements, format, numChannels) : r;
}
