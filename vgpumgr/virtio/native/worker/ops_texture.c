/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By hand: texture and surface objects. The driver's own number of an object goes to the guest, which gives it to kernels;
 * calls name it by a handle, as everything else. A number that a kernel makes up can reach no further than an address that
 * it makes up: what the driver has of this session's context.
 */
#include "array.h"

static CUresult put_object(struct wk_call *c, enum wk_kind kind, uint64_t handle, uint64_t number)
{
	return wk_fill(c, kind, handle, (void *)number, 0);
}

static CUresult read_resource(const struct vg_texture_create_request *in, CUDA_RESOURCE_DESC *resource)
{
	resource->resType = (CUresourcetype)in->resource;
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_LINEAR:
		resource->res.linear.devPtr = in->address;
		resource->res.linear.format = (CUarray_format)in->format;
		resource->res.linear.numChannels = in->channels;
		resource->res.linear.sizeInBytes = in->bytes;
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_PITCH2D:
		resource->res.pitch2D.devPtr = in->address;
		resource->res.pitch2D.format = (CUarray_format)in->format;
		resource->res.pitch2D.numChannels = in->channels;
		resource->res.pitch2D.width = in->width;
		resource->res.pitch2D.height = in->height;
		resource->res.pitch2D.pitchInBytes = in->pitch;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUDA_TEXTURE_DESC read_texture(const struct vg_texture_create_request *in)
{
	return (CUDA_TEXTURE_DESC){
		.addressMode = { (CUaddress_mode)in->address_x, (CUaddress_mode)in->address_y, (CUaddress_mode)in->address_z },
		.filterMode = (CUfilter_mode)in->filter,
		.flags = in->flags,
		.maxAnisotropy = in->anisotropy,
		.mipmapFilterMode = (CUfilter_mode)in->mipmap_filter,
		.mipmapLevelBias = in->mipmap_bias,
		.minMipmapLevelClamp = in->mipmap_least,
		.maxMipmapLevelClamp = in->mipmap_most,
		.borderColor = { in->border_r, in->border_g, in->border_b, in->border_a },
	};
}

/* The array is of the call's context: the driver's objects are, too. */
static CUresult hold_array(struct wk_call *c, enum wk_kind kind, uint64_t handle, struct wk_object **array)
{
	CUresult r = wk_hold(c, kind, handle, array);

	return r == CUDA_SUCCESS && (*array)->context != c->context ? CUDA_ERROR_INVALID_CONTEXT : r;
}

static CUresult check_memory(struct wk_call *c, const CUDA_RESOURCE_DESC *resource)
{
	uint64_t address;
	size_t bytes;
	CUresult r = cuda_texture_extent(resource, &address, &bytes);

	return r == CUDA_SUCCESS ? wk_check_range(c, address, bytes, 1, 1, 0) : r;
}

CUresult wk_do_texture_create(struct wk_call *c, const struct vg_texture_create_request *in,
			      struct vg_texture_create_reply *out)
{
	CUDA_TEXTURE_DESC texture = read_texture(in);
	struct wk_object *array WK_HELD = NULL;
	CUDA_RESOURCE_DESC resource = { 0 };
	CUtexObject number = 0;
	CUresult r = read_resource(in, &resource);

	if (r == CUDA_SUCCESS && resource.resType == CU_RESOURCE_TYPE_ARRAY)
		r = hold_array(c, WK_ARRAY, in->array, &array);
	if (r == CUDA_SUCCESS && resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
		r = hold_array(c, WK_MIPMAP, in->mipmap, &array);
	if (r == CUDA_SUCCESS)
		r = cuda_check_texture(&resource, &texture, NULL, array ? array->array : NULL);
	if (r == CUDA_SUCCESS && !array)
		r = check_memory(c, &resource);
	if (r != CUDA_SUCCESS)
		return r;
	if (resource.resType == CU_RESOURCE_TYPE_ARRAY)
		resource.res.array.hArray = array->driver;
	if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
		resource.res.mipmap.hMipmappedArray = array->driver;
	r = wk_driver.cuTexObjectCreate(&number, &resource, &texture, NULL);
	out->number = number;
	return r == CUDA_SUCCESS ? put_object(c, WK_TEXTURE, in->created, number) : r;
}

CUresult wk_do_texture_destroy(struct wk_call *c, const struct vg_texture_destroy_request *in)
{
	return wk_remove(c, WK_TEXTURE, in->texture);
}

CUresult wk_do_surface_create(struct wk_call *c, const struct vg_surface_create_request *in,
			      struct vg_surface_create_reply *out)
{
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_ARRAY };
	struct wk_object *array WK_HELD = NULL;
	CUsurfObject number = 0;
	CUresult r = hold_array(c, WK_ARRAY, in->array, &array);

	if (r == CUDA_SUCCESS)
		r = cuda_check_surface(&resource, array->array);
	if (r != CUDA_SUCCESS)
		return r;
	resource.res.array.hArray = array->driver;
	r = wk_driver.cuSurfObjectCreate(&number, &resource);
	out->number = number;
	return r == CUDA_SUCCESS ? put_object(c, WK_SURFACE, in->created, number) : r;
}

CUresult wk_do_surface_destroy(struct wk_call *c, const struct vg_surface_destroy_request *in)
{
	return wk_remove(c, WK_SURFACE, in->surface);
}
