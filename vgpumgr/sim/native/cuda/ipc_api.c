/* SPDX-License-Identifier: Apache-2.0 */
/* cuIpc: handles of memory and events for other processes; ipc_opened.c has what a process has opened, shareable.c the rest. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "captures.h"
#include "ipc.h"

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr addr)
{
	struct ipc_handle handle;
	struct allocation a;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	if (!out || !vm_find(addr, &a) || !vm_is_lendable(&a))
		return CUDA_ERROR_INVALID_VALUE;
	r = ipc_make(IPC_MEMORY, a.id, &handle);
	if (r == CUDA_SUCCESS)
		memcpy(out, &handle, sizeof(handle));
	return r;
}

static CUresult borrow(struct context *ctx, const struct ipc_handle *handle, uint64_t *addr)
{
	struct ipc_offer offer;
	int file, line;
	CUresult r = ipc_ask(handle, &offer, &file, &line);

	if (r != CUDA_SUCCESS)
		return r;
	if (offer.gpu != ctx->dev->gpu || offer.gi_id != ctx->dev->gi_id || offer.ci_id != ctx->dev->ci_id) {
		close(line); /* of another device */
		r = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	} else {
		r = vm_borrow(ctx, &offer, file, line, addr);
	}
	close(file);
	return r;
}

static CUresult open_memory(struct context *ctx, const struct ipc_handle *handle, CUdeviceptr *out)
{
	struct ipc_opened *o = ipc_opened_new();
	uint64_t addr;
	CUresult r = o ? borrow(ctx, handle, &addr) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r != CUDA_SUCCESS) {
		free(o);
		return r;
	}
	DRV_LOCKED();
	ipc_opened_add(o, handle, ctx, addr);
	*out = addr;
	return CUDA_SUCCESS;
}

CUresult ipc_open_memory(struct context *ctx, const struct ipc_handle *handle, CUdeviceptr *out, bool *first)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* who opens the same handle twice gets one address */
	bool again;
	CUresult r;

	pthread_mutex_lock(&one);
	drv_lock();
	again = ipc_opened_again(handle, ctx, out);
	drv_unlock();
	*first = !again;
	r = again ? CUDA_SUCCESS : open_memory(ctx, handle, out);
	pthread_mutex_unlock(&one);
	return r;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle raw, unsigned int flags)
{
	struct ipc_handle handle;
	bool unused;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	memcpy(&handle, &raw, sizeof(handle));
	if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle.kind != IPC_MEMORY)
		return CUDA_ERROR_INVALID_HANDLE;
	if (ipc_is_own(&handle))
		return CUDA_ERROR_INVALID_CONTEXT;
	return ipc_open_memory(ctx, &handle, out, &unused);
}

/* The older form: the same in every context. */
CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	return cuIpcOpenMemHandle_v2(out, handle, flags);
}

static bool is_borrowed(const struct allocation *a)
{
	return a->borrowed;
}

/* Waits for the context's work, which may use it. */
CUresult cuIpcCloseMemHandle(CUdeviceptr addr)
{
	struct allocation a;
	bool found, last;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	r = context_drain(ctx);
	if (r != CUDA_SUCCESS)
		return r;
	found = ipc_close_memory(ctx, addr, IPC_MEMORY, &last);
	if (last)
		vm_remove(addr, is_borrowed, &a);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
	struct ipc_handle handle;
	uint64_t id;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	r = event_shared(event, &id);
	if (r == CUDA_SUCCESS)
		r = ipc_make(IPC_EVENT, id, &handle);
	if (r == CUDA_SUCCESS)
		memcpy(out, &handle, sizeof(handle));
	return r;
}

CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle raw)
{
	struct shared_event *shared;
	struct ipc_handle handle;
	struct ipc_offer offer;
	int file, line;
	CUresult r;

	CONTEXT_ENTER(ctx);
	memcpy(&handle, &raw, sizeof(handle));
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle.kind != IPC_EVENT)
		return CUDA_ERROR_INVALID_HANDLE;
	if (ipc_is_own(&handle))
		return CUDA_ERROR_INVALID_CONTEXT;
	r = ipc_ask(&handle, &offer, &file, &line);
	if (r != CUDA_SUCCESS)
		return r;
	shared = shared_event_of(file, line, offer.who);
	if (!shared) {
		close(file);
		close(line);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return event_open(ctx, shared, out);
}

/* ---- what this process lends */

static void *lend_memory(uint64_t id, struct ipc_offer *offer, int *file)
{
	return vm_lend(id, false, offer, file);
}

static void *lend_pooled(uint64_t id, struct ipc_offer *offer, int *file)
{
	return vm_lend(id, true, offer, file);
}

static void take_memory_back(void *lent, uint64_t who)
{
	(void)who;
	vm_take_back(lent);
}

static void *lend_event(uint64_t id, struct ipc_offer *offer, int *file)
{
	(void)offer;
	DRV_LOCKED();
	return shared_event_lend(id, file);
}

static void take_event_back(void *lent, uint64_t who)
{
	DRV_LOCKED();
	shared_event_gone(lent, who);
	shared_event_unref(lent);
}

static void *lend_physical(uint64_t id, struct ipc_offer *offer, int *file)
{
	DRV_LOCKED();
	return physical_lend(id, offer, file);
}

static void take_physical_back(void *lent, uint64_t who)
{
	(void)who;
	DRV_LOCKED();
	physical_take_back(lent);
}

static void *lend_pool(uint64_t id, struct ipc_offer *offer, int *file)
{
	(void)file;
	DRV_LOCKED();
	return pool_lend(id, offer);
}

static void take_pool_back(void *lent, uint64_t who)
{
	(void)who;
	DRV_LOCKED();
	pool_take_back(lent);
}

void ipc_init(void)
{
	static const struct ipc_lender memory = { lend_memory, take_memory_back }, events = { lend_event, take_event_back },
				       pooled = { lend_pooled, take_memory_back }, pools = { lend_pool, take_pool_back },
				       physical = { lend_physical, take_physical_back };
	static const struct ipc_lender *lenders[IPC_KINDS] = {
		[IPC_MEMORY] = &memory, [IPC_EVENT] = &events, [IPC_PHYSICAL] = &physical, [IPC_POOL] = &pools, [IPC_POOLED] = &pooled,
	};

	ipc_start(lenders);
}
