/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: allocation and copies. Every address is checked against the ledger before the driver sees it. */
#include "vg_worker.h"

/* Refused by the ledger, the allocation is freed with its entry. */
static CUresult keep(struct wk_call *c, uint64_t address, uint64_t bytes)
{
	return wk_ledger_add(c, c->context, address, bytes);
}

CUresult wk_do_memory_allocate(struct wk_call *c, const struct vg_memory_allocate_request *in,
			       struct vg_memory_allocate_reply *out)
{
	CUdeviceptr address = 0;
	CUresult r = wk_charge(WK_MEMORY, in->bytes);

	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_MEMORY, in->bytes, WK_WITH_ROOM(wk_driver.cuMemAlloc_v2(&address, in->bytes)));
	if (r == CUDA_SUCCESS)
		r = keep(c, address, in->bytes);
	out->address = address;
	return r;
}

CUresult wk_do_memory_allocate_pitch(struct wk_call *c, const struct vg_memory_allocate_pitch_request *in,
				     struct vg_memory_allocate_pitch_reply *out)
{
	CUdeviceptr address = 0;
	uint64_t bytes, charged;
	size_t pitch = 0;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	/* no driver's rows are shorter than what they hold; the pitch is known when they are there */
	if (!__builtin_mul_overflow(in->width, in->height, &charged))
		r = wk_charge(WK_MEMORY, charged);
	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_MEMORY, charged,
			       WK_WITH_ROOM(wk_driver.cuMemAllocPitch_v2(&address, &pitch, in->width, in->height,
									 in->element)));
	if (r != CUDA_SUCCESS)
		return r;
	if (__builtin_mul_overflow(pitch, in->height, &bytes) || bytes < charged)
		bytes = charged;
	if (bytes > charged && wk_charge(WK_MEMORY, bytes - charged) != CUDA_SUCCESS) {
		wk_driver.cuMemFree_v2(address);
		wk_refund(WK_MEMORY, charged);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	out->address = address;
	out->pitch = pitch;
	return keep(c, address, bytes);
}

CUresult wk_do_memory_free(struct wk_call *c, const struct vg_memory_free_request *in)
{
	struct wk_object *memory;
	CUresult r = wk_ledger_take(c, in->address, false, &memory);

	if (r == CUDA_SUCCESS) {
		wk_ipc_withdraw(memory);
		wk_release_later(memory);
	}
	return r;
}

CUresult wk_do_memory_allocate_async(struct wk_call *c, const struct vg_memory_allocate_async_request *in,
				     struct vg_memory_allocate_async_reply *out)
{
	struct wk_object *stream WK_HELD = NULL;
	CUdeviceptr address = 0;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	if (r == CUDA_SUCCESS)
		r = wk_charge(WK_MEMORY, in->bytes);
	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_MEMORY, in->bytes,
			       WK_WITH_ROOM(wk_driver.cuMemAllocAsync(&address, in->bytes, wk_raw(stream))));
	if (r == CUDA_SUCCESS)
		r = keep(c, address, in->bytes);
	out->address = address;
	return r;
}

CUresult wk_do_memory_free_async(struct wk_call *c, const struct vg_memory_free_async_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	struct wk_object *memory;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	if (r == CUDA_SUCCESS)
		r = wk_ledger_take(c, in->address, false, &memory);
	if (r != CUDA_SUCCESS)
		return r;
	wk_ipc_withdraw(memory);
	/* a copy to the host may still be reading it on another thread; then it is freed when that ends */
	if (wk_is_last(memory)) {
		r = wk_driver.cuMemFreeAsync(memory->address, wk_raw(stream));
		if (r == CUDA_SUCCESS) {
			memory->address = 0;
			wk_freed_in_order(memory, wk_raw(stream));
		}
	}
	wk_release(memory);
	return r;
}

/* Host data stands in memory that the guest may be changing: the driver reads it, we do not. Documented for memory
 * that is not pinned: it has been read when the call returns. */
CUresult wk_do_copy_to_device(struct wk_call *c, const struct vg_copy_to_device_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	size_t bytes = c->call->bulk_in_length;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = wk_check_range(c, in->destination, bytes, 1, 1, 0);
	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemcpyHtoDAsync_v2(in->destination, c->call->bulk_in, bytes, wk_raw(stream));
	return r;
}

/* The copy that the driver has, or has refused with `r`. */
static CUresult arrived(struct wk_call *c, struct wk_object *stream, CUresult r)
{
	if (r == CUDA_SUCCESS)
		r = wk_wait_stream(c, wk_raw(stream));
	c->started = c->unfinished;
	if (r == CUDA_SUCCESS)
		c->bulk_filled = c->call->bulk_out_length;
	return r;
}

/* The stream may have been destroyed meanwhile; its work is still waited for. */
static CUresult arrived_later(struct wk_call *c, struct wk_object *stream, CUresult r)
{
	if (r != CUDA_SUCCESS)
		wk_driver.cuCtxSynchronize();
	return arrived(c, stream, r);
}

CUresult wk_do_cuStreamSynchronize(struct wk_call *c, const struct vg_cuStreamSynchronize_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_STREAM, in->hStream, &stream);

	/* what the legacy stream waits for of other streams, only the wait knows */
	c->unfinished = r == CUDA_SUCCESS && c->reader && !stream;
	return r == CUDA_SUCCESS && !c->unfinished ? wk_wait_stream(c, wk_raw(stream)) : r;
}

CUresult wk_do_cuEventSynchronize(struct wk_call *c, const struct vg_cuEventSynchronize_request *in)
{
	struct wk_object *event WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_EVENT, in->hEvent, &event);

	return r == CUDA_SUCCESS ? wk_wait_event(c, wk_raw(event)) : r;
}

CUresult wk_do_copy_to_host(struct wk_call *c, const struct vg_copy_to_host_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	size_t bytes = c->call->bulk_out_length;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	void *target;

	if (c->call->started)
		return arrived_later(c, stream, r);
	target = wk_window_target(c);
	if (c->unfinished)
		return CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		r = wk_check_range(c, in->source, bytes, 1, 1, 0);
	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemcpyDtoHAsync_v2(target, in->source, bytes, wk_raw(stream));
	return arrived(c, stream, r);
}

CUresult wk_do_copy_device(struct wk_call *c, const struct vg_copy_device_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = wk_check_range(c, in->destination, in->bytes, 1, 1, 0);
	if (r == CUDA_SUCCESS)
		r = wk_check_range(c, in->source, in->bytes, 1, 1, 0);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemcpyDtoDAsync_v2(in->destination, in->source, in->bytes, wk_raw(stream));
	return r;
}

/* Bulk holds the rows packed: exactly width x height bytes. */
static CUresult check_packed(uint64_t width, uint64_t height, size_t bytes)
{
	uint64_t needed;

	if (__builtin_mul_overflow(width, height, &needed) || needed != bytes)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult wk_do_copy_to_device_2d(struct wk_call *c, const struct vg_copy_to_device_2d_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = c->call->bulk_in,
		.srcPitch = in->width,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = in->destination,
		.dstPitch = in->pitch,
		.WidthInBytes = in->width,
		.Height = in->height,
	};
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = check_packed(in->width, in->height, c->call->bulk_in_length);
	if (r == CUDA_SUCCESS)
		r = wk_check_range(c, in->destination, in->width, 1, in->height, in->pitch);
	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	return r == CUDA_SUCCESS ? wk_driver.cuMemcpy2DAsync_v2(&copy, wk_raw(stream)) : r;
}

CUresult wk_do_copy_to_host_2d(struct wk_call *c, const struct vg_copy_to_host_2d_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = in->source,
		.srcPitch = in->pitch,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstPitch = in->width,
		.WidthInBytes = in->width,
		.Height = in->height,
	};
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (c->call->started)
		return arrived_later(c, stream, r);
	copy.dstHost = wk_window_target(c);
	if (c->unfinished)
		return CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		r = check_packed(in->width, in->height, c->call->bulk_out_length);
	if (r == CUDA_SUCCESS)
		r = wk_check_range(c, in->source, in->width, 1, in->height, in->pitch);
	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemcpy2DAsync_v2(&copy, wk_raw(stream));
	return arrived(c, stream, r);
}

CUresult wk_do_copy_device_2d(struct wk_call *c, const struct vg_copy_device_2d_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = in->source,
		.srcPitch = in->source_pitch,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = in->destination,
		.dstPitch = in->destination_pitch,
		.WidthInBytes = in->width,
		.Height = in->height,
	};
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = wk_check_range(c, in->destination, in->width, 1, in->height, in->destination_pitch);
	if (r == CUDA_SUCCESS)
		r = wk_check_range(c, in->source, in->width, 1, in->height, in->source_pitch);
	return r == CUDA_SUCCESS ? wk_driver.cuMemcpy2DAsync_v2(&copy, wk_raw(stream)) : r;
}
