/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface objects: what they may be made of. */
#include "cuda_rules.h"

#include <string.h>

enum {
	LINEAR_MAX = 1 << 28, PITCHED_WIDTH_MAX = 131072, PITCHED_HEIGHT_MAX = 65000, PITCH_MAX = 2097120,
	ALIGNMENT = 512, PITCH_ALIGNMENT = 32, ANISOTROPY_MAX = 16,
	KNOWN_FLAGS = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION,
	OTHER_FLAGS = CU_TRSF_SRGB | CU_TRSF_SEAMLESS_CUBEMAP,
};

static bool is_zero(const void *memory, size_t bytes)
{
	const unsigned char *at = memory;

	while (bytes && !*at)
		at++, bytes--;
	return !bytes;
}

CUresult cuda_texture_extent(const CUDA_RESOURCE_DESC *resource, uint64_t *address, size_t *bytes)
{
	size_t element;

	*address = *bytes = 0;
	if (resource->resType == CU_RESOURCE_TYPE_LINEAR) {
		*address = resource->res.linear.devPtr;
		*bytes = resource->res.linear.sizeInBytes;
		return CUDA_SUCCESS;
	}
	if (resource->resType != CU_RESOURCE_TYPE_PITCH2D)
		return CUDA_SUCCESS;
	*address = resource->res.pitch2D.devPtr;
	element = cuda_element_bytes(resource->res.pitch2D.format, resource->res.pitch2D.numChannels);
	return cuda_rows_extent(resource->res.pitch2D.width, element, resource->res.pitch2D.height,
				resource->res.pitch2D.pitchInBytes, bytes);
}

static CUresult check_linear(const CUDA_RESOURCE_DESC *resource)
{
	size_t element = cuda_element_bytes(resource->res.linear.format, resource->res.linear.numChannels);
	size_t bytes = resource->res.linear.sizeInBytes;

	if (!element || !resource->res.linear.devPtr || resource->res.linear.devPtr % ALIGNMENT || bytes < element ||
	    bytes / element > LINEAR_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult check_pitched(const CUDA_RESOURCE_DESC *resource)
{
	size_t element = cuda_element_bytes(resource->res.pitch2D.format, resource->res.pitch2D.numChannels);
	size_t width = resource->res.pitch2D.width, height = resource->res.pitch2D.height;
	size_t pitch = resource->res.pitch2D.pitchInBytes;

	if (!element || !resource->res.pitch2D.devPtr || resource->res.pitch2D.devPtr % ALIGNMENT || !width ||
	    width > PITCHED_WIDTH_MAX || !height || height > PITCHED_HEIGHT_MAX || pitch % PITCH_ALIGNMENT ||
	    pitch > PITCH_MAX || pitch < width * element)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult check_resource(const CUDA_RESOURCE_DESC *resource, const struct cuda_array *array)
{
	if (!resource || resource->flags)
		return CUDA_ERROR_INVALID_VALUE;
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_RESOURCE_TYPE_LINEAR:
		return check_linear(resource);
	case CU_RESOURCE_TYPE_PITCH2D:
		return check_pitched(resource);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUarray_format format_of(const CUDA_RESOURCE_DESC *resource, const struct cuda_array *array)
{
	return array						     ? array->made.Format
	       : resource->resType == CU_RESOURCE_TYPE_PITCH2D ? resource->res.pitch2D.format
							       : resource->res.linear.format;
}

/* Between texels only numbers can be found that are read as floating point. */
static bool may_filter(const CUDA_TEXTURE_DESC *texture, CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_HALF:
	case CU_AD_FORMAT_FLOAT:
		return true;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
		return false;
	default:
		return !(texture->flags & CU_TRSF_READ_AS_INTEGER);
	}
}

static CUresult check_reading(const CUDA_TEXTURE_DESC *texture, CUarray_format format, bool linear)
{
	if (texture->flags & ~(unsigned int)(KNOWN_FLAGS | OTHER_FLAGS) || texture->filterMode > CU_TR_FILTER_MODE_LINEAR ||
	    texture->mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR || texture->maxAnisotropy > ANISOTROPY_MAX ||
	    !is_zero(texture->reserved, sizeof(texture->reserved)))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < 3; i++)
		if (texture->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER)
			return CUDA_ERROR_INVALID_VALUE;
	if (texture->flags & OTHER_FLAGS)
		return CUDA_ERROR_NOT_SUPPORTED;
	/* a line of memory is read by number, whatever else is asked for */
	return texture->filterMode == CU_TR_FILTER_MODE_LINEAR && !linear && !may_filter(texture, format) ? CUDA_ERROR_INVALID_VALUE :
													   CUDA_SUCCESS;
}

/* Other formats and parts of a resource are not supported: a view says what the resource is, or nothing. */
CUresult cuda_check_texture(const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
			    const CUDA_RESOURCE_VIEW_DESC *view, const struct cuda_array *array)
{
	CUresult r = texture ? check_resource(resource, array) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = check_reading(texture, format_of(resource, array), resource->resType == CU_RESOURCE_TYPE_LINEAR);
	return r == CUDA_SUCCESS && view ? CUDA_ERROR_NOT_SUPPORTED : r;
}

CUresult cuda_check_surface(const CUDA_RESOURCE_DESC *resource, const struct cuda_array *array)
{
	if (!resource || resource->flags || resource->resType != CU_RESOURCE_TYPE_ARRAY || !array)
		return CUDA_ERROR_INVALID_VALUE;
	return array->made.Flags & CUDA_ARRAY3D_SURFACE_LDST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuda_read_linear_width(size_t *elements, CUarray_format format, unsigned int channels)
{
	if (!elements || !cuda_element_bytes(format, channels))
		return CUDA_ERROR_INVALID_VALUE;
	*elements = LINEAR_MAX;
	return CUDA_SUCCESS;
}
