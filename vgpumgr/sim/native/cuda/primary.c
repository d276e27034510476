/* SPDX-License-Identifier: Apache-2.0 */
/* The primary context of each device: shared by all that retain it, gone when the last one releases it. */
#include "cuda_sim.h"

static CUresult primary_enter(CUdevice dev, struct device **out)
{
	CUresult r = driver_check();

	if (r != CUDA_SUCCESS)
		return r;
	*out = device_find(dev);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	struct device *d;
	CUresult r = primary_enter(dev, &d);

	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	if (!d->primary)
		r = context_create(d, d->primary_flags, true, &d->primary);
	if (r != CUDA_SUCCESS)
		return r;
	d->primary_refs++;
	*out = (CUcontext)d->primary;
	return CUDA_SUCCESS;
}

/* Takes the context out of its device; the caller destroys it without the lock. */
static struct context *take_primary(struct device *d)
{
	struct context *ctx = d->primary;

	d->primary = NULL;
	d->primary_refs = 0;
	return ctx;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	struct context *ctx = NULL;
	struct device *d;
	CUresult r = primary_enter(dev, &d);

	if (r != CUDA_SUCCESS)
		return r;
	drv_lock();
	if (!d->primary_refs)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (!--d->primary_refs)
		ctx = take_primary(d);
	drv_unlock();
	if (ctx)
		context_destroy(ctx);
	return r;
}

/* Destroys the context, however many retain it; the next retain makes a new one, unless a kernel has failed (context_create). */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	struct context *ctx;
	struct device *d;
	CUresult r = primary_enter(dev, &d);

	if (r != CUDA_SUCCESS)
		return r;
	drv_lock();
	ctx = take_primary(d);
	drv_unlock();
	if (ctx)
		context_destroy(ctx);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	struct device *d;
	CUresult r = primary_enter(dev, &d);

	if (r == CUDA_SUCCESS)
		r = cuda_check_context_flags(flags);
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	d->primary_flags = flags;
	if (d->primary)
		d->primary->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	struct device *d;
	CUresult r = primary_enter(dev, &d);

	if (r != CUDA_SUCCESS)
		return r;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	*flags = d->primary ? d->primary->flags : d->primary_flags;
	*active = d->primary != NULL;
	return CUDA_SUCCESS;
}
