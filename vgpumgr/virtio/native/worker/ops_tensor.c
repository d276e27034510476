/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: descriptors of tensors, which the driver makes. It reads arrays as long as the rank says: they are checked before. */
#include <cuda_rules.h>
#include <string.h>

#include "vg_worker.h"

static bool take(const struct vg_bytes *from, void *to, size_t bytes)
{
	if (from->length != bytes)
		return false;
	memcpy(to, from->data, bytes);
	return true;
}

static CUresult read_map(const struct vg_tensor_map_request *in, struct cuda_tensor_map *m)
{
	uint32_t corners;

	*m = (struct cuda_tensor_map){ .how = in->how, .rank = in->rank };
	if (cuda_check_tensor_rank(m->how, m->rank) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	corners = cuda_tensor_corners(m) * sizeof(int);
	return take(&in->sizes, m->sizes, m->rank * sizeof(uint64_t)) && take(&in->strides, m->strides, (m->rank - 1) * sizeof(uint64_t)) &&
			       take(&in->steps, m->steps, m->rank * sizeof(uint32_t)) &&
			       take(&in->box, m->box, m->how == CUDA_TENSOR_TILED ? m->rank * sizeof(uint32_t) : 0) &&
			       take(&in->lower, m->lower, corners) && take(&in->upper, m->upper, corners) ?
		       CUDA_SUCCESS :
		       CUDA_ERROR_INVALID_VALUE;
}

static CUresult make(const struct vg_tensor_map_request *in, const struct cuda_tensor_map *m, CUtensorMap *map)
{
	void *address = (void *)in->address;

	switch (m->how) {
	case CUDA_TENSOR_TILED:
		return wk_driver.cuTensorMapEncodeTiled(map, in->type, m->rank, address, m->sizes, m->strides, m->box, m->steps,
							in->interleave, in->swizzle, in->promotion, in->fill);
	case CUDA_TENSOR_IM2COL:
		return wk_driver.cuTensorMapEncodeIm2col(map, in->type, m->rank, address, m->sizes, m->strides, m->lower, m->upper,
							 in->channels, in->pixels, m->steps, in->interleave, in->swizzle,
							 in->promotion, in->fill);
	default:
		return wk_driver.cuTensorMapEncodeIm2colWide(map, in->type, m->rank, address, m->sizes, m->strides, m->lower[0],
							     m->upper[0], in->channels, in->pixels, m->steps, in->interleave, in->mode,
							     in->swizzle, in->promotion, in->fill);
	}
}

static void put_map(const CUtensorMap *map, uint8_t *to, size_t *length)
{
	memcpy(to, map, sizeof(*map));
	*length = sizeof(*map);
}

CUresult wk_do_tensor_map(struct wk_call *c, const struct vg_tensor_map_request *in, struct vg_tensor_map_reply *out)
{
	struct cuda_tensor_map m;
	CUtensorMap map = { { 0 } };
	CUresult r = read_map(in, &m);

	(void)c;
	if (r == CUDA_SUCCESS)
		r = make(in, &m, &map);
	if (r == CUDA_SUCCESS)
		put_map(&map, out->map, &out->map_length);
	return r;
}

CUresult wk_do_tensor_map_address(struct wk_call *c, const struct vg_tensor_map_address_request *in,
				  struct vg_tensor_map_address_reply *out)
{
	CUtensorMap map;
	CUresult r = take(&in->map, &map, sizeof(map)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	(void)c;
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuTensorMapReplaceAddress(&map, (void *)in->address);
	if (r == CUDA_SUCCESS)
		put_map(&map, out->map, &out->map_length);
	return r;
}
