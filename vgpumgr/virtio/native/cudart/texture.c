/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface objects. An object is the driver's own number. */
#include <string.h>

#include "format.h"

static cudaError_t lower_resource(const struct cudaResourceDesc *p, CUDA_RESOURCE_DESC *out)
{
	memset(out, 0, sizeof(*out));
	switch (p->resType) {
	case cudaResourceTypeArray:
		out->resType = CU_RESOURCE_TYPE_ARRAY;
		out->res.array.hArray = (CUarray)p->res.array.array;
		return cudaSuccess;
	case cudaResourceTypeMipmappedArray:
		out->resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
		out->res.mipmap.hMipmappedArray = (CUmipmappedArray)p->res.mipmap.mipmap;
		return cudaSuccess;
	case cudaResourceTypeLinear:
		out->resType = CU_RESOURCE_TYPE_LINEAR;
		out->res.linear.devPtr = (CUdeviceptr)p->res.linear.devPtr;
		out->res.linear.sizeInBytes = p->res.linear.sizeInBytes;
		return rt_format(&p->res.linear.desc, &out->res.linear.format, &out->res.linear.numChannels);
	case cudaResourceTypePitch2D:
		out->resType = CU_RESOURCE_TYPE_PITCH2D;
		out->res.pitch2D.devPtr = (CUdeviceptr)p->res.pitch2D.devPtr;
		out->res.pitch2D.width = p->res.pitch2D.width;
		out->res.pitch2D.height = p->res.pitch2D.height;
		out->res.pitch2D.pitchInBytes = p->res.pitch2D.pitchInBytes;
		return rt_format(&p->res.pitch2D.desc, &out->res.pitch2D.format, &out->res.pitch2D.numChannels);
	default:
		return cudaErrorInvalidValue;
	}
}

static void raise_resource(const CUDA_RESOURCE_DESC *p, struct cudaResourceDesc *out)
{
	memset(out, 0, sizeof(*out));
	switch (p->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		out->resType = cudaResourceTypeArray;
		out->res.array.array = (cudaArray_t)p->res.array.hArray;
		return;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		out->resType = cudaResourceTypeMipmappedArray;
		out->res.mipmap.mipmap = (cudaMipmappedArray_t)p->res.mipmap.hMipmappedArray;
		return;
	case CU_RESOURCE_TYPE_LINEAR:
		out->resType = cudaResourceTypeLinear;
		out->res.linear.devPtr = (void *)p->res.linear.devPtr;
		out->res.linear.sizeInBytes = p->res.linear.sizeInBytes;
		out->res.linear.desc = rt_channels(p->res.linear.format, p->res.linear.numChannels);
		return;
	default:
		out->resType = cudaResourceTypePitch2D;
		out->res.pitch2D.devPtr = (void *)p->res.pitch2D.devPtr;
		out->res.pitch2D.width = p->res.pitch2D.width;
		out->res.pitch2D.height = p->res.pitch2D.height;
		out->res.pitch2D.pitchInBytes = p->res.pitch2D.pitchInBytes;
		out->res.pitch2D.desc = rt_channels(p->res.pitch2D.format, p->res.pitch2D.numChannels);
	}
}

/* Modes have the driver's numbers. */
static CUDA_TEXTURE_DESC lower_texture(const struct cudaTextureDesc *p)
{
	CUDA_TEXTURE_DESC out = {
		.filterMode = (CUfilter_mode)p->filterMode, .maxAnisotropy = p->maxAnisotropy,
		.mipmapFilterMode = (CUfilter_mode)p->mipmapFilterMode, .mipmapLevelBias = p->mipmapLevelBias,
		.minMipmapLevelClamp = p->minMipmapLevelClamp, .maxMipmapLevelClamp = p->maxMipmapLevelClamp,
	};

	for (int i = 0; i < 3; i++)
		out.addressMode[i] = (CUaddress_mode)p->addressMode[i];
	memcpy(out.borderColor, p->borderColor, sizeof(out.borderColor));
	out.flags = (p->readMode == cudaReadModeElementType ? CU_TRSF_READ_AS_INTEGER : 0) |
		    (p->normalizedCoords ? CU_TRSF_NORMALIZED_COORDINATES : 0) | (p->sRGB ? CU_TRSF_SRGB : 0) |
		    (p->disableTrilinearOptimization ? CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION : 0) |
		    (p->seamlessCubemap ? CU_TRSF_SEAMLESS_CUBEMAP : 0);
	return out;
}

static struct cudaTextureDesc raise_texture(const CUDA_TEXTURE_DESC *p)
{
	struct cudaTextureDesc out = {
		.filterMode = (enum cudaTextureFilterMode)p->filterMode, .maxAnisotropy = p->maxAnisotropy,
		.mipmapFilterMode = (enum cudaTextureFilterMode)p->mipmapFilterMode, .mipmapLevelBias = p->mipmapLevelBias,
		.minMipmapLevelClamp = p->minMipmapLevelClamp, .maxMipmapLevelClamp = p->maxMipmapLevelClamp,
		.readMode = p->flags & CU_TRSF_READ_AS_INTEGER ? cudaReadModeElementType : cudaReadModeNormalizedFloat,
		.normalizedCoords = !!(p->flags & CU_TRSF_NORMALIZED_COORDINATES), .sRGB = !!(p->flags & CU_TRSF_SRGB),
		.disableTrilinearOptimization = !!(p->flags & CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION),
		.seamlessCubemap = !!(p->flags & CU_TRSF_SEAMLESS_CUBEMAP),
	};

	for (int i = 0; i < 3; i++)
		out.addressMode[i] = (enum cudaTextureAddressMode)p->addressMode[i];
	memcpy(out.borderColor, p->borderColor, sizeof(out.borderColor));
	return out;
}

static cudaError_t make_texture(cudaTextureObject_t *out, const struct cudaResourceDesc *resource,
				const struct cudaTextureDesc *texture, const struct cudaResourceViewDesc *view)
{
	CUDA_RESOURCE_DESC what;
	CUDA_TEXTURE_DESC how;
	CUtexObject object;
	cudaError_t error = out && resource && texture ? lower_resource(resource, &what) : cudaErrorInvalidValue;

	if (error == cudaSuccess && view)
		error = cudaErrorNotSupported;
	if (error != cudaSuccess)
		return error;
	how = lower_texture(texture);
	error = RT_CALL(cuTexObjectCreate, &object, &what, &how, NULL);
	if (error == cudaSuccess)
		*out = object;
	return error;
}

API cudaError_t cudaCreateTextureObject(cudaTextureObject_t *pTexObject, const struct cudaResourceDesc *pResDesc,
					const struct cudaTextureDesc *pTexDesc, const struct cudaResourceViewDesc *pResViewDesc)
{
	return rt_done(make_texture(pTexObject, pResDesc, pTexDesc, pResViewDesc));
}

API cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texObject)
{
	return rt_done(RT_CALL(cuTexObjectDestroy, texObject));
}

static cudaError_t make_surface(cudaSurfaceObject_t *out, const struct cudaResourceDesc *resource)
{
	CUDA_RESOURCE_DESC what;
	CUsurfObject object;
	cudaError_t error = out && resource ? lower_resource(resource, &what) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		error = RT_CALL(cuSurfObjectCreate, &object, &what);
	if (error == cudaSuccess)
		*out = object;
	return error;
}

API cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t *pSurfObject, const struct cudaResourceDesc *pResDesc)
{
	return rt_done(make_surface(pSurfObject, pResDesc));
}

API cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t surfObject)
{
	return rt_done(RT_CALL(cuSurfObjectDestroy, surfObject));
}

API cudaError_t cudaGetTextureObjectResourceDesc(struct cudaResourceDesc *pResDesc, cudaTextureObject_t texObject)
{
	CUDA_RESOURCE_DESC what;
	cudaError_t error = pResDesc ? RT_CALL(cuTexObjectGetResourceDesc, &what, texObject) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		raise_resource(&what, pResDesc);
	return rt_done(error);
}

API cudaError_t cudaGetTextureObjectTextureDesc(struct cudaTextureDesc *pTexDesc, cudaTextureObject_t texObject)
{
	CUDA_TEXTURE_DESC how;
	cudaError_t error = pTexDesc ? RT_CALL(cuTexObjectGetTextureDesc, &how, texObject) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		*pTexDesc = raise_texture(&how);
	return rt_done(error);
}

API cudaError_t cudaGetSurfaceObjectResourceDesc(struct cudaResourceDesc *pResDesc, cudaSurfaceObject_t surfObject)
{
	CUDA_RESOURCE_DESC what;
	cudaError_t error = pResDesc ? RT_CALL(cuSurfObjectGetResourceDesc, &what, surfObject) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		raise_resource(&what, pResDesc);
	return rt_done(error);
}

API cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, const struct cudaChannelFormatDesc *fmtDesc,
						     int device)
{
	CUarray_format format;
	unsigned int channels;
	CUdevice dev;
	cudaError_t error = maxWidthInElements && fmtDesc ? rt_format(fmtDesc, &format, &channels) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		error = rt_device(device, &dev);
	if (error == cudaSuccess)
		error = rt_error(CU(cuDeviceGetTexture1DLinearMaxWidth, maxWidthInElements, format, channels, dev));
	return rt_done(error);
}
