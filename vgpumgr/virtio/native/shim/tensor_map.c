/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of tensors: the host's driver makes them; a program passes them to kernels as bytes. Programs ask for the same
 * ones before each launch, so the latest are kept here. Each has one place, where a later one takes it.
 */
#include <pthread.h>
#include <string.h>

#include "frame.h"
#include "shim.h"

enum { PLACES = 512 };

/* What a descriptor is made of: a call's words, and which call it is. */
struct key {
	uint32_t op;
	size_t length;
	uint8_t words[VG_MAX_tensor_map_request];
};
_Static_assert((int)VG_MAX_tensor_map_address_request <= (int)VG_MAX_tensor_map_request, "both calls' words are keys");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct made {
	struct key key;
	uint8_t map[sizeof(CUtensorMap)];
} known[PLACES];

static struct made *place_of(const struct key *key)
{
	return &known[shim_hash(key->op, key->words, key->length) % PLACES];
}

static bool find(const struct key *key, CUtensorMap *map)
{
	const struct made *m = place_of(key);
	bool is;

	pthread_mutex_lock(&lock);
	is = m->key.op == key->op && m->key.length == key->length && !memcmp(m->key.words, key->words, key->length);
	if (is)
		memcpy(map, m->map, sizeof(*map));
	pthread_mutex_unlock(&lock);
	return is;
}

static CUresult put(const struct key *key, const uint8_t *from, size_t length, CUtensorMap *map)
{
	struct made *m = place_of(key);

	if (length != sizeof(*map))
		return CUDA_ERROR_UNKNOWN;
	memcpy(map, from, sizeof(*map));
	pthread_mutex_lock(&lock);
	m->key = *key;
	memcpy(m->map, from, sizeof(m->map));
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* Fills in what the rank says of the arrays. */
static CUresult make(struct vg_tensor_map_request *in, const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *steps,
		     const cuuint32_t *box, const int *lower, const int *upper, CUtensorMap *map)
{
	bool given = map && sizes && steps && (strides || in->rank < 2) && (in->how == CUDA_TENSOR_TILED ? !!box : lower && upper);
	struct cuda_tensor_map m = { .how = in->how, .rank = in->rank };
	struct key key = { VG_OP_tensor_map, 0, { 0 } };
	struct vg_tensor_map_reply out;
	struct vg_encoder e;
	CUresult r = shim_enter(&in->context);

	if (r == CUDA_SUCCESS)
		r = given ? cuda_check_tensor_rank(in->how, in->rank) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	in->sizes = (struct vg_bytes){ sizes, m.rank * sizeof(*sizes) };
	in->strides = (struct vg_bytes){ strides, (m.rank - 1) * sizeof(*strides) };
	in->steps = (struct vg_bytes){ steps, m.rank * sizeof(*steps) };
	if (m.how == CUDA_TENSOR_TILED)
		in->box = (struct vg_bytes){ box, m.rank * sizeof(*box) };
	in->lower = (struct vg_bytes){ lower, cuda_tensor_corners(&m) * sizeof(*lower) };
	in->upper = (struct vg_bytes){ upper, cuda_tensor_corners(&m) * sizeof(*upper) };
	key.length = vg_size_tensor_map_request(in);
	vg_encoder_init(&e, key.words, key.length);
	vg_put_tensor_map_request(&e, in);
	if (vg_encoder_end(&e))
		return CUDA_ERROR_INVALID_VALUE;
	if (find(&key, map))
		return CUDA_SUCCESS;
	r = vg_send_tensor_map(in, &out);
	return r == CUDA_SUCCESS ? put(&key, out.map, out.map_length, map) : r;
}

SHIM_API CUresult cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
					 void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
					 const cuuint32_t *boxDim, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
					 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
	struct vg_tensor_map_request in = { .how = CUDA_TENSOR_TILED, .type = tensorDataType, .rank = tensorRank,
					    .address = (uint64_t)globalAddress, .interleave = interleave, .swizzle = swizzle,
					    .promotion = l2Promotion, .fill = oobFill };

	return make(&in, globalDim, globalStrides, elementStrides, boxDim, NULL, NULL, tensorMap);
}

SHIM_API CUresult cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
					  void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
					  const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
					  cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
					  CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
	struct vg_tensor_map_request in = { .how = CUDA_TENSOR_IM2COL, .type = tensorDataType, .rank = tensorRank,
					    .address = (uint64_t)globalAddress, .channels = channelsPerPixel, .pixels = pixelsPerColumn,
					    .interleave = interleave, .swizzle = swizzle, .promotion = l2Promotion, .fill = oobFill };

	return make(&in, globalDim, globalStrides, elementStrides, NULL, pixelBoxLowerCorner, pixelBoxUpperCorner, tensorMap);
}

SHIM_API CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
					      void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
					      int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
					      cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
					      CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
					      CUtensorMapFloatOOBfill oobFill)
{
	struct vg_tensor_map_request in = { .how = CUDA_TENSOR_IM2COL_WIDE, .type = tensorDataType, .rank = tensorRank,
					    .address = (uint64_t)globalAddress, .channels = channelsPerPixel, .pixels = pixelsPerColumn,
					    .interleave = interleave, .mode = mode, .swizzle = swizzle, .promotion = l2Promotion,
					    .fill = oobFill };

	return make(&in, globalDim, globalStrides, elementStrides, NULL, &pixelBoxLowerCornerWidth, &pixelBoxUpperCornerWidth, tensorMap);
}

SHIM_API CUresult cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
	struct vg_tensor_map_address_request in = { .address = (uint64_t)globalAddress };
	struct key key = { VG_OP_tensor_map_address, 0, { 0 } };
	struct vg_tensor_map_address_reply out;
	struct vg_encoder e;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && !tensorMap)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	in.map = (struct vg_bytes){ tensorMap, sizeof(*tensorMap) };
	key.length = vg_size_tensor_map_address_request(&in);
	vg_encoder_init(&e, key.words, key.length);
	vg_put_tensor_map_address_request(&e, &in);
	if (vg_encoder_end(&e))
		return CUDA_ERROR_INVALID_VALUE;
	if (find(&key, tensorMap))
		return CUDA_SUCCESS;
	r = vg_send_tensor_map_address(&in, &out);
	return r == CUDA_SUCCESS ? put(&key, out.map, out.map_length, tensorMap) : r;
}
