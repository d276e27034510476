/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays: what they may be made of, how large they are, and which parts of them copies name. */
#include "cuda_rules.h"

/* Of compute capabilities 5.0 to 12.0: CUDA C++ programming guide, "Technical Specifications per Compute Capability". */
enum { WIDTH_MAX = 131072, HEIGHT_MAX = 65536, SIDE_3D_MAX = 16384, LAYERED_MAX = 32768, LAYERS_MAX = 2048 };

enum {
	KNOWN_FLAGS = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_TEXTURE_GATHER,
	OTHER_FLAGS = CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT |
		      CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE,
};

size_t cuda_element_bytes(CUarray_format format, unsigned int channels)
{
	size_t bytes = 0;

	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		bytes = 1;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		bytes = 2;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		bytes = 4;
		break;
	default:
		break;
	}
	return channels == 1 || channels == 2 || channels == 4 ? bytes * channels : 0;
}

/* Video and compressed formats exist, but not here. */
static CUresult check_element(const CUDA_ARRAY3D_DESCRIPTOR *made)
{
	if (!made->Format)
		return CUDA_ERROR_INVALID_VALUE;
	if (!cuda_element_bytes(made->Format, 1))
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuda_element_bytes(made->Format, made->NumChannels) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_sides(const CUDA_ARRAY3D_DESCRIPTOR *made, unsigned int rank)
{
	bool layered = made->Flags & CUDA_ARRAY3D_LAYERED;
	size_t width = WIDTH_MAX, height = HEIGHT_MAX, depth = 0;

	if (layered) {
		width = height = LAYERED_MAX;
		depth = LAYERS_MAX;
	} else if (rank == 3) {
		width = height = depth = SIDE_3D_MAX;
	}
	if (made->Flags & CUDA_ARRAY3D_TEXTURE_GATHER && rank != 2)
		return CUDA_ERROR_INVALID_VALUE;
	return made->Width <= width && made->Height <= height && made->Depth <= depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuda_read_array(const CUDA_ARRAY3D_DESCRIPTOR *made, struct cuda_array *array)
{
	bool layered;
	CUresult r;

	if (!made || !made->Width || made->Flags & ~(unsigned int)(KNOWN_FLAGS | OTHER_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	if (made->Flags & OTHER_FLAGS)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = check_element(made);
	if (r != CUDA_SUCCESS)
		return r;
	layered = made->Flags & CUDA_ARRAY3D_LAYERED;
	if (layered != (made->Depth != 0) && (layered || !made->Height))
		return CUDA_ERROR_INVALID_VALUE;
	*array = (struct cuda_array){ .made = *made, .element = cuda_element_bytes(made->Format, made->NumChannels) };
	array->rank = !made->Height ? 1 : layered || !made->Depth ? 2 : 3;
	r = check_sides(made, array->rank);
	if (r != CUDA_SUCCESS)
		return r;
	array->row = made->Width * array->element;
	array->rows = made->Height ? made->Height : 1;
	array->slices = made->Depth ? made->Depth : 1;
	return CUDA_SUCCESS;
}

CUresult cuda_read_array_2d(const CUDA_ARRAY_DESCRIPTOR *made, struct cuda_array *array)
{
	CUDA_ARRAY3D_DESCRIPTOR same;

	if (!made)
		return CUDA_ERROR_INVALID_VALUE;
	same = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = made->Width, .Height = made->Height, .Format = made->Format,
					  .NumChannels = made->NumChannels };
	return cuda_read_array(&same, array);
}

static size_t half(size_t side, unsigned int level)
{
	return side && !(side >> level) ? 1 : side >> level;
}

CUresult cuda_read_level(const struct cuda_array *whole, unsigned int level, unsigned int levels, struct cuda_array *array)
{
	CUDA_ARRAY3D_DESCRIPTOR made = whole->made;

	if (level >= levels)
		return CUDA_ERROR_INVALID_VALUE;
	made.Width = half(made.Width, level);
	made.Height = half(made.Height, level);
	if (!(made.Flags & CUDA_ARRAY3D_LAYERED))
		made.Depth = half(made.Depth, level);
	return cuda_read_array(&made, array);
}

CUresult cuda_check_levels(const struct cuda_array *whole, unsigned int levels)
{
	size_t side = whole->made.Width > whole->made.Height ? whole->made.Width : whole->made.Height;
	unsigned int most = 1;

	if (whole->rank == 3 && whole->made.Depth > side)
		side = whole->made.Depth;
	for (; side > 1; side >>= 1)
		most++;
	return levels && levels <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool fits(size_t at, size_t count, size_t size)
{
	return at <= size && count <= size - at;
}

CUresult cuda_check_region(const struct cuda_array *array, const struct cuda_side *side, const struct cuda_copy *copy)
{
	if (!fits(side->x, copy->width, array->row) || !fits(side->y, copy->rows, array->rows) ||
	    !fits(side->z, copy->slices, array->slices))
		return CUDA_ERROR_INVALID_VALUE;
	return side->x % array->element || copy->width % array->element ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* The old calls count bytes of an array's first row. */
CUresult cuda_read_array_line(CUarray to, size_t to_offset, CUarray from, size_t from_offset, CUmemorytype flat, uint64_t base,
			      size_t bytes, struct cuda_copy *copy)
{
	struct cuda_side memory = { .type = flat, .base = base, .pitch = bytes, .slice = bytes };

	*copy = (struct cuda_copy){ .width = bytes, .rows = 1, .slices = 1 };
	if (!bytes)
		return CUDA_SUCCESS;
	if ((!to || !from) && !base)
		return CUDA_ERROR_INVALID_VALUE;
	copy->to = to ? (struct cuda_side){ .type = CU_MEMORYTYPE_ARRAY, .array = to, .x = to_offset } : memory;
	copy->from = from ? (struct cuda_side){ .type = CU_MEMORYTYPE_ARRAY, .array = from, .x = from_offset } : memory;
	return CUDA_SUCCESS;
}
