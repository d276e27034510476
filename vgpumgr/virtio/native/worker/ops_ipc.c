/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By hand: memory and events between processes of one guest. The driver's handles never leave the host: the worker's server keeps
 * them, and the guest gets tokens (transport/worker_exports.h). What a process has opened is charged to the one that has
 * made it, or, when that has freed it or ended, to the VM.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc.h"
#include "transport/util.h"
#include "session.h"
#include "vg_worker.h"

_Static_assert(sizeof(CUipcMemHandle) == VG_EXPORT_BYTES && sizeof(CUipcEventHandle) == VG_EXPORT_BYTES, "handles");

static CUresult result_of(int error)
{
	switch (error) {
	case 0:
		return CUDA_SUCCESS;
	case -ENOENT:
		return CUDA_ERROR_INVALID_HANDLE;
	case -EDEADLK:
		return CUDA_ERROR_INVALID_CONTEXT;
	case -ENOSPC:
		return CUDA_ERROR_OUT_OF_MEMORY;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* ---- what this process lets others have */

static CUresult make(struct wk_object *o, const struct vg_export_request *request, int *file, struct wk_shared **made)
{
	struct vg_export_answer answer;
	CUresult r = result_of(vg_exports_ask_with(request, &answer, file));
	struct wk_shared *s = r == CUDA_SUCCESS ? calloc(1, sizeof(*s)) : NULL;

	if (r != CUDA_SUCCESS)
		return r;
	if (!s) {
		wk_ipc_tell(VG_EXPORT_WITHDRAW, answer.id);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->id = answer.id;
	memcpy(s->token, answer.token, sizeof(s->token));
	atomic_store(&o->shared, s);
	*made = s;
	return CUDA_SUCCESS;
}

/* The driver's handle, or its descriptor. */
static CUresult get_handle(const struct wk_object *o, struct vg_export_request *request, int *file)
{
	const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

	switch (request->kind) {
	case VG_EXPORT_MEMORY:
		return wk_driver.cuIpcGetMemHandle((CUipcMemHandle *)request->handle, o->address);
	case VG_EXPORT_EVENT:
		return wk_driver.cuIpcGetEventHandle((CUipcEventHandle *)request->handle, o->driver);
	case VG_EXPORT_PHYSICAL:
		return wk_driver.cuMemExportToShareableHandle(file, (CUmemGenericAllocationHandle)o->driver, type, 0);
	case VG_EXPORT_POOL:
		return wk_driver.cuMemPoolExportToShareableHandle(file, o->driver, type, 0);
	default:
		return wk_driver.cuMemPoolExportPointer((CUmemPoolPtrExportData *)request->handle, o->address);
	}
}

/* What was opened is its maker's to hand on. */
CUresult wk_ipc_export(struct wk_object *o, enum vg_export_kind kind, uint64_t of, size_t *length, uint8_t *token)
{
	struct vg_export_request request = { .what = VG_EXPORT_MAKE, .kind = kind, .id = of, .bytes = o->bytes };
	struct wk_shared *s = o->shared;
	CUresult r = CUDA_SUCCESS;
	int file = -1, sent;

	if (s && (s->opens || !s->id))
		return kind == VG_EXPORT_EVENT ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	if (!s) {
		r = get_handle(o, &request, &file);
		sent = file;
		if (r == CUDA_SUCCESS)
			r = make(o, &request, &file, &s);
		vg_close_fd(&sent);
	}
	if (r != CUDA_SUCCESS)
		return r;
	*length = sizeof(s->token);
	memcpy(token, s->token, sizeof(s->token));
	return CUDA_SUCCESS;
}

CUresult wk_do_ipc_memory_export(struct wk_call *c, const struct vg_ipc_memory_export_request *in,
				 struct vg_ipc_memory_export_reply *out)
{
	struct wk_object *memory WK_HELD = wk_ledger_hold(c, in->address);

	if (!memory || wk_is_variable(memory) || memory->pool)
		return CUDA_ERROR_INVALID_VALUE;
	IPC_LOCKED(WK_IPC_MADE);
	return wk_ipc_export(memory, VG_EXPORT_MEMORY, 0, &out->token_length, out->token);
}

CUresult wk_do_ipc_event_export(struct wk_call *c, const struct vg_ipc_event_export_request *in,
				struct vg_ipc_event_export_reply *out)
{
	struct wk_object *event WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_EVENT, in->event, &event);

	if (r != CUDA_SUCCESS)
		return r;
	IPC_LOCKED(WK_IPC_MADE);
	return wk_ipc_export(event, VG_EXPORT_EVENT, 0, &out->token_length, out->token);
}

/* ---- what others let this process have */

CUresult wk_ipc_ask(enum vg_export_kind kind, uint64_t of, const struct vg_bytes *token, struct vg_export_answer *answer, int *file)
{
	struct vg_export_request request = { .what = VG_EXPORT_OPEN, .kind = kind, .id = of };

	*file = -1;
	if (token->length != sizeof(request.token))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(request.token, token->data, sizeof(request.token));
	return result_of(vg_exports_ask_with(&request, answer, file));
}

static CUresult ask_for(enum vg_export_kind kind, const struct vg_bytes *token, struct vg_export_answer *answer)
{
	int file VG_FD = -1;

	return wk_ipc_ask(kind, 0, token, answer, &file);
}

struct wk_object *wk_ipc_new(struct wk_object *owner, enum wk_kind kind, void *driver, const struct vg_export_answer *answer,
			     const struct vg_bytes *token)
{
	struct wk_object *o = wk_object_new(kind, owner, driver, 0);
	struct wk_shared *s = o ? calloc(1, sizeof(*s)) : NULL;

	if (!s) {
		if (o)
			wk_release(o->owner);
		free(o);
		return NULL;
	}
	s->id = answer->id;
	atomic_init(&s->opens, 1);
	memcpy(s->token, token->data, sizeof(s->token));
	atomic_store(&o->shared, s);
	return o;
}

bool wk_ipc_is_of_token(const struct wk_object *o, const void *token)
{
	const struct wk_shared *s = atomic_load(&o->shared);

	return s && s->opens && !memcmp(s->token, token, sizeof(s->token));
}

static CUresult open_first(struct wk_call *c, const struct vg_bytes *token, struct vg_ipc_memory_open_reply *out)
{
	struct vg_export_answer answer;
	CUipcMemHandle handle;
	struct wk_object *o;
	CUdeviceptr address;
	CUresult r = ask_for(VG_EXPORT_MEMORY, token, &answer);

	if (r != CUDA_SUCCESS)
		return r;
	memcpy(&handle, answer.handle, sizeof(handle));
	r = wk_driver.cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	explicit_bzero(&handle, sizeof(handle));
	explicit_bzero(answer.handle, sizeof(answer.handle));
	if (r != CUDA_SUCCESS) {
		wk_ipc_tell(VG_EXPORT_CLOSE, answer.id);
		return r;
	}
	o = wk_ipc_new(c->context, WK_MEMORY, NULL, &answer, token);
	if (!o) {
		wk_driver.cuIpcCloseMemHandle(address);
		wk_ipc_tell(VG_EXPORT_CLOSE, answer.id);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->address = address;
	o->bytes = answer.bytes;
	out->address = address;
	out->bytes = answer.bytes;
	return wk_ledger_enter(c, o);
}

CUresult wk_do_ipc_memory_open(struct wk_call *c, const struct vg_ipc_memory_open_request *in,
			       struct vg_ipc_memory_open_reply *out)
{
	struct wk_object *memory WK_HELD = NULL;

	if (in->token.length != VG_EXPORT_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	IPC_LOCKED(WK_IPC_OPENED);
	memory = wk_ledger_search(c, wk_ipc_is_of_token, in->token.data);
	if (!memory)
		return open_first(c, &in->token, out);
	memory->shared->opens++;
	out->address = memory->address;
	out->bytes = memory->bytes;
	return CUDA_SUCCESS;
}

/* Also what is from another process's pool. With the last close it is out of the ledger; what uses it meanwhile keeps it open. */
CUresult wk_do_ipc_memory_close(struct wk_call *c, const struct vg_ipc_memory_close_request *in)
{
	struct wk_object *held WK_HELD = wk_ledger_hold(c, in->address), *taken = NULL;
	CUresult r = CUDA_SUCCESS;

	if (!held || held->address != in->address || !wk_ipc_is_opened(held))
		return CUDA_ERROR_INVALID_VALUE;
	{
		IPC_LOCKED(WK_IPC_OPENED);
		if (held->shared->opens > 1)
			held->shared->opens--;
		else
			r = wk_ledger_take(c, in->address, true, &taken);
	}
	if (taken)
		wk_release(taken);
	return r;
}

CUresult wk_do_ipc_event_open(struct wk_call *c, const struct vg_ipc_event_open_request *in)
{
	struct vg_export_answer answer;
	CUipcEventHandle handle;
	struct wk_object *o;
	CUevent event;
	CUresult r = ask_for(VG_EXPORT_EVENT, &in->token, &answer);

	if (r != CUDA_SUCCESS)
		return r;
	memcpy(&handle, answer.handle, sizeof(handle));
	r = wk_charge(WK_EVENT, 0);
	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_EVENT, 0, wk_driver.cuIpcOpenEventHandle(&event, handle));
	if (r != CUDA_SUCCESS) {
		wk_ipc_tell(VG_EXPORT_CLOSE, answer.id);
		return r;
	}
	o = wk_ipc_new(c->context, WK_EVENT, event, &answer, &in->token);
	if (o)
		return wk_put(c, in->created, o);
	wk_driver.cuEventDestroy_v2(event);
	wk_refund(WK_EVENT, 0);
	wk_ipc_tell(VG_EXPORT_CLOSE, answer.id);
	return CUDA_ERROR_OUT_OF_MEMORY;
}
