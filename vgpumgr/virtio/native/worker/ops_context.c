/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: snapshots, contexts, destroying streams and events. */
#include <stdio.h>
#include <string.h>

#include <cuda_rules.h>

#include "share.h"
#include "transport/worker_limits.h"
#include "vg_worker.h"

enum { ATTRIBUTES = 160 };

CUresult wk_do_snapshot(struct wk_call *c, struct vg_snapshot_reply *out)
{
	int version = 0, count = 0;
	CUresult r = wk_driver.cuDriverGetVersion(&version);

	(void)c;
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuDeviceGetCount(&count);
	out->driver_version = version;
	out->device_count = count;
	return r;
}

CUresult wk_do_device_snapshot(struct wk_call *c, const struct vg_device_snapshot_request *in,
			       struct vg_device_snapshot_reply *out)
{
	int attributes[ATTRIBUTES] = { 0 };
	char name[256] = "", bus[32] = "";
	size_t total = 0;
	CUdevice device;
	CUuuid uuid = { { 0 } };
	CUresult r = wk_driver.cuDeviceGet(&device, in->ordinal);

	(void)c;
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuDeviceGetName(name, sizeof(name), device);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuDeviceTotalMem_v2(&total, device);
	if (r != CUDA_SUCCESS)
		return r;
	wk_driver.cuDeviceGetUuid_v2(&uuid, device);
	wk_driver.cuDeviceGetPCIBusId(bus, sizeof(bus), device);
	/* what an older driver does not know stays 0, which means "no" throughout */
	for (int i = 1; i < ATTRIBUTES; i++)
		if (wk_driver.cuDeviceGetAttribute(&attributes[i], i, device) != CUDA_SUCCESS)
			attributes[i] = 0;
	out->total_bytes = total < vg_limit(VG_LIMIT_DEVICE_MEMORY) ? total : vg_limit(VG_LIMIT_DEVICE_MEMORY);
	out->name_length = snprintf((char *)out->name, sizeof(out->name), "%s", name);
	out->pci_bus_id_length = snprintf((char *)out->pci_bus_id, sizeof(out->pci_bus_id), "%s", bus);
	out->uuid_length = sizeof(uuid);
	memcpy(out->uuid, &uuid, sizeof(uuid));
	out->attributes_length = sizeof(attributes);
	memcpy(out->attributes, attributes, sizeof(attributes));
	return CUDA_SUCCESS;
}

void wk_rehearse(void)
{
	static const struct vg_device_snapshot_request first = { 0 };
	struct vg_device_snapshot_reply device;
	struct vg_snapshot_reply all;

	if (wk_do_snapshot(NULL, &all) == CUDA_SUCCESS && all.device_count)
		wk_do_device_snapshot(NULL, &first, &device);
}

CUresult wk_do_device_use(struct wk_call *c, struct vg_device_use_reply *out)
{
	struct vg_lane_use uses[sizeof(out->processes) / sizeof(struct vg_lane_use)];
	size_t count = vg_lane_uses(c->lane, uses, sizeof(uses) / sizeof(uses[0]));

	out->processes_length = count * sizeof(uses[0]);
	memcpy(out->processes, uses, out->processes_length);
	return CUDA_SUCCESS;
}

/* Each guest process has contexts of its own, its primary one too: an error of one is none of another's. */
CUresult wk_do_context_create(struct wk_call *c, const struct vg_context_create_request *in,
			      struct vg_context_create_reply *out)
{
	unsigned int flags = in->flags & (CU_CTX_SCHED_MASK | CU_CTX_LMEM_RESIZE_TO_MAX);
	CUcontext driver;
	CUdevice device;
	CUresult r = wk_driver.cuDeviceGet(&device, in->ordinal);

	/* threads that wait here sleep: guests must not be able to burn the host's cores */
	flags = (flags & ~CU_CTX_SCHED_MASK) | CU_CTX_SCHED_BLOCKING_SYNC;
	if (r == CUDA_SUCCESS)
		r = wk_charge(WK_CONTEXT, WK_CONTEXT_BYTES);
	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_CONTEXT, WK_CONTEXT_BYTES,
			       WK_WITH_ROOM(wk_driver.cuCtxCreate_v2(&driver, flags, device)));
	if (r != CUDA_SUCCESS)
		return r;
	wk_driver.cuCtxGetApiVersion(driver, &out->api_version);
	wk_driver.cuCtxGetStreamPriorityRange(&out->least_priority, &out->greatest_priority);
	r = wk_fill(c, WK_CONTEXT, in->created, driver, WK_CONTEXT_BYTES);
	wk_driver.cuCtxPopCurrent_v2(&driver);
	wk_forget_current();
	return r;
}

CUresult wk_do_context_destroy(struct wk_call *c, const struct vg_context_destroy_request *in)
{
	struct wk_object *context;
	CUresult r = wk_hold(c, WK_CONTEXT, in->target, &context);

	if (r == CUDA_SUCCESS) {
		wk_share_forget(c, context);
		wk_release(context);
		r = wk_remove(c, WK_CONTEXT, in->target);
		wk_capture_gone(c);
		wk_share_end(c);
	}
	return r == CUDA_SUCCESS ? r : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult wk_do_cuStreamDestroy_v2(struct wk_call *c, const struct vg_cuStreamDestroy_v2_request *in)
{
	return wk_remove(c, WK_STREAM, in->hStream);
}

/* How a thread waits is the guest's own affair. */
CUresult wk_do_stream_attribute(struct wk_call *c, const struct vg_stream_attribute_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	struct cuda_stream_attributes any;
	CUstreamAttrValue value;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (in->value.length != sizeof(value) || in->attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&value, in->value.data, sizeof(value));
	r = cuda_stream_attribute_set(&any, in->attribute, &value);
	return r == CUDA_SUCCESS ? wk_driver.cuStreamSetAttribute(wk_raw(stream), in->attribute, &value) : r;
}

CUresult wk_do_cuEventDestroy_v2(struct wk_call *c, const struct vg_cuEventDestroy_v2_request *in)
{
	return wk_remove(c, WK_EVENT, in->hEvent);
}
