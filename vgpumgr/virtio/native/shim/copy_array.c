/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in which an array takes part. With the program's memory: piece by piece, each part of one slice or layer. */
#include "arrays.h"
#include "captures.h"
#include "copies.h"

/* One copy: its sides, and what they are. */
struct transfer {
	const struct cuda_copy *copy;
	uint64_t context, stream;
	struct cuda_array to, from; /* where that side is an array */
	bool to_array, from_array, to_device, from_device;
};

static CUresult check_side(const struct cuda_copy *copy, const struct cuda_side *side, struct cuda_array *array,
			   bool *is_array, bool *is_device)
{
	size_t bytes;
	CUresult r;

	*is_device = false;
	*is_array = side->type == CU_MEMORYTYPE_ARRAY;
	if (*is_array) {
		r = shim_array(side->array, array);
		return r == CUDA_SUCCESS ? cuda_check_region(array, side, copy) : r;
	}
	*is_device = side->type == CU_MEMORYTYPE_DEVICE || (side->type == CU_MEMORYTYPE_UNIFIED && shim_is_device(side->base));
	r = cuda_copy_extent(copy, side, &bytes);
	if (r != CUDA_SUCCESS)
		return r;
	if (*is_device)
		return shim_check_range(side->base, bytes, 1, 1, 0);
	return side->base + bytes < side->base ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- with the program's memory */

/* A piece that fits into a frame: rows of one slice; x counts bytes. */
static CUresult move_piece(const struct transfer *t, const struct cuda_side *at, uint8_t *host, size_t pitch, size_t width,
			   size_t rows)
{
	struct shim_bulk bulk = { t->to_array ? VG_BULK_TO_WORKER : VG_BULK_TO_GUEST, host, width, rows, pitch, false };
	struct vg_copy_to_array_request down = { .context = t->context, .array = (uint64_t)at->array, .x = at->x, .y = at->y,
						 .z = at->z, .width = width, .height = rows, .stream = t->stream };
	struct vg_copy_from_array_request up = { .context = t->context, .array = (uint64_t)at->array, .x = at->x, .y = at->y,
						 .z = at->z, .width = width, .height = rows, .stream = t->stream };

	return t->to_array ? vg_send_copy_to_array(&down, &bulk) : vg_send_copy_from_array(&up, &bulk);
}

static CUresult move_row(const struct transfer *t, struct cuda_side at, uint8_t *host, size_t width, size_t most)
{
	CUresult r = CUDA_SUCCESS;

	for (size_t n; r == CUDA_SUCCESS && width; width -= n, host += n, at.x += n) {
		n = width < most ? width : most;
		r = move_piece(t, &at, host, n, n, 1);
	}
	return r;
}

static CUresult move_slice(const struct transfer *t, struct cuda_side at, uint8_t *host, size_t pitch, size_t most)
{
	size_t width = t->copy->width, rows = t->copy->rows, step = width > most ? 1 : most / width;
	CUresult r = CUDA_SUCCESS;

	for (size_t n; r == CUDA_SUCCESS && rows; rows -= n, host += n * pitch, at.y += n) {
		n = rows < step ? rows : step;
		r = width > most ? move_row(t, at, host, width, most) : move_piece(t, &at, host, pitch, width, n);
	}
	return r;
}

static CUresult move_host(const struct transfer *t)
{
	const struct cuda_side *host = t->to_array ? &t->copy->from : &t->copy->to;
	struct cuda_side at = t->to_array ? t->copy->to : t->copy->from;
	size_t most = shim_piece(shim_channel_of(t->context)), element = t->to_array ? t->to.element : t->from.element;
	CUresult r = CUDA_SUCCESS;

	most -= most % element;
	for (size_t z = 0; r == CUDA_SUCCESS && z < t->copy->slices; z++, at.z++)
		r = move_slice(t, at, (uint8_t *)host->base + z * host->slice, host->pitch, most);
	return r;
}

/* ---- within the device */

static CUresult move_device(const struct transfer *t)
{
	const struct cuda_side *array = t->to_array ? &t->copy->to : &t->copy->from;
	const struct cuda_side *memory = t->to_array ? &t->copy->from : &t->copy->to;
	struct vg_copy_array_device_request in = {
		.context = t->context, .array = (uint64_t)array->array, .x = array->x, .y = array->y, .z = array->z,
		.address = memory->base, .pitch = memory->pitch, .slice = memory->slice, .width = t->copy->width,
		.rows = t->copy->rows, .slices = t->copy->slices, .to_array = t->to_array, .stream = t->stream,
	};

	return vg_send_copy_array_device(&in);
}

static CUresult move_arrays(const struct transfer *t)
{
	const struct cuda_side *to = &t->copy->to, *from = &t->copy->from;
	struct vg_copy_arrays_request in = {
		.context = t->context, .destination = (uint64_t)to->array, .destination_x = to->x, .destination_y = to->y,
		.destination_z = to->z, .source = (uint64_t)from->array, .source_x = from->x, .source_y = from->y,
		.source_z = from->z, .width = t->copy->width, .rows = t->copy->rows, .slices = t->copy->slices,
		.stream = t->stream,
	};

	return vg_send_copy_arrays(&in);
}

CUresult shim_copy_array(const struct cuda_copy *copy, CUstream hStream)
{
	struct transfer t = { .copy = copy };
	CUresult r = shim_enter(&t.context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &t.context, &t.stream);
	if (r == CUDA_SUCCESS)
		r = check_side(copy, &copy->to, &t.to, &t.to_array, &t.to_device);
	if (r == CUDA_SUCCESS)
		r = check_side(copy, &copy->from, &t.from, &t.from_array, &t.from_device);
	if (r == CUDA_SUCCESS)
		r = SHIM_CAPTURE_REFUSE(t.context, t.stream, "a copy with an array in a captured stream");
	if (r != CUDA_SUCCESS)
		return r;
	if (t.to_array && t.from_array)
		return move_arrays(&t);
	return t.to_device || t.from_device ? move_device(&t) : move_host(&t);
}

/* ---- the old calls, which count bytes of the first row */

static CUresult copy_line(CUarray to, size_t to_offset, CUarray from, size_t from_offset, CUmemorytype flat, uint64_t base,
			  size_t bytes, CUstream stream)
{
	struct cuda_copy copy;
	uint64_t context;
	CUresult r = cuda_read_array_line(to, to_offset, from, from_offset, flat, base, bytes, &copy);

	if (r == CUDA_SUCCESS && !bytes)
		return shim_enter(&context);
	return r == CUDA_SUCCESS ? shim_copy_array(&copy, stream) : r;
}

static CUresult to_array(CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream)
{
	return to ? copy_line(to, offset, NULL, 0, CU_MEMORYTYPE_UNIFIED, (uint64_t)from, bytes, stream) :
		    CUDA_ERROR_INVALID_VALUE;
}

static CUresult from_array(void *to, CUarray from, size_t offset, size_t bytes, CUstream stream)
{
	return from ? copy_line(NULL, 0, from, offset, CU_MEMORYTYPE_UNIFIED, (uint64_t)to, bytes, stream) :
		      CUDA_ERROR_INVALID_VALUE;
}

static CUresult device_to_array(CUarray to, size_t offset, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return to ? copy_line(to, offset, NULL, 0, CU_MEMORYTYPE_DEVICE, from, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult array_to_device(CUdeviceptr to, CUarray from, size_t offset, size_t bytes, CUstream stream)
{
	return from ? copy_line(NULL, 0, from, offset, CU_MEMORYTYPE_DEVICE, to, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult array_to_array(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes, CUstream stream)
{
	return to && from ? copy_line(to, to_offset, from, from_offset, 0, 0, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

/* A blocking call, under its two names. */
#define BLOCKING(name, parameters, how, ...)                                                                           \
	SHIM_API CUresult name parameters                                                                              \
	{                                                                                                              \
		CUresult r = shim_capture_safe();                                                                      \
                                                                                                                       \
		return r == CUDA_SUCCESS ? how(__VA_ARGS__, CU_STREAM_LEGACY) : r;                                     \
	}                                                                                                              \
	SHIM_API CUresult name##_ptds parameters                                                                       \
	{                                                                                                              \
		CUresult r = shim_capture_safe();                                                                      \
                                                                                                                       \
		return r == CUDA_SUCCESS ? how(__VA_ARGS__, CU_STREAM_PER_THREAD) : r;                                 \
	}

BLOCKING(cuMemcpyHtoA_v2, (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount), to_array, dstArray,
	 dstOffset, srcHost, ByteCount)
BLOCKING(cuMemcpyAtoH_v2, (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount), from_array, dstHost, srcArray,
	 srcOffset, ByteCount)
BLOCKING(cuMemcpyDtoA_v2, (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount), device_to_array,
	 dstArray, dstOffset, srcDevice, ByteCount)
BLOCKING(cuMemcpyAtoD_v2, (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount), array_to_device,
	 dstDevice, srcArray, srcOffset, ByteCount)
BLOCKING(cuMemcpyAtoA_v2,
	 (CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount), array_to_array, dstArray,
	 dstOffset, srcArray, srcOffset, ByteCount)

SHIM_API CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
				       CUstream hStream)
{
	return to_array(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

SHIM_API CUresult cuMemcpyHtoAAsync_v2_ptsz(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
					    CUstream hStream)
{
	return to_array(dstArray, dstOffset, srcHost, ByteCount, hStream ? hStream : CU_STREAM_PER_THREAD);
}

SHIM_API CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream)
{
	return from_array(dstHost, srcArray, srcOffset, ByteCount, hStream);
}

SHIM_API CUresult cuMemcpyAtoHAsync_v2_ptsz(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
					    CUstream hStream)
{
	return from_array(dstHost, srcArray, srcOffset, ByteCount, hStream ? hStream : CU_STREAM_PER_THREAD);
}
