/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By hand: physical memory and pools between processes of one guest. The driver's handles of these are descriptors, which never
 * leave the host: the worker's server keeps them, and the guest gets tokens, as it does for what is in ops_ipc.c.
 */
#include <stdatomic.h>
#include <string.h>

#include "ipc.h"
#include "transport/util.h"

static const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

static void *handle_of(int file)
{
	return (void *)(uintptr_t)file;
}

/* ---- physical memory */

CUresult wk_do_virtual_export(struct wk_call *c, const struct vg_virtual_export_request *in, struct vg_virtual_export_reply *out)
{
	struct wk_object *physical WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_PHYSICAL, in->physical, &physical);

	if (r != CUDA_SUCCESS)
		return r;
	IPC_LOCKED(WK_IPC_MADE);
	return wk_ipc_export(physical, VG_EXPORT_PHYSICAL, 0, &out->token_length, out->token);
}

/* Its maker is charged for it. */
CUresult wk_do_virtual_import(struct wk_call *c, const struct vg_virtual_import_request *in, struct vg_virtual_import_reply *out)
{
	CUmemGenericAllocationHandle handle;
	struct vg_export_answer answer;
	struct wk_object *o;
	int file VG_FD = -1;
	CUresult r = wk_ipc_ask(VG_EXPORT_PHYSICAL, 0, &in->token, &answer, &file);

	if (r != CUDA_SUCCESS)
		return r;
	r = wk_driver.cuMemImportFromShareableHandle(&handle, handle_of(file), type);
	o = r == CUDA_SUCCESS ? wk_ipc_new(NULL, WK_PHYSICAL, (void *)handle, &answer, &in->token) : NULL;
	if (!o) {
		if (r == CUDA_SUCCESS)
			wk_driver.cuMemRelease(handle);
		wk_ipc_tell(VG_EXPORT_CLOSE, answer.id);
		return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
	}
	o->bytes = answer.bytes;
	out->bytes = answer.bytes;
	return wk_put(c, in->created, o);
}

/* ---- pools */

CUresult wk_do_pool_export(struct wk_call *c, const struct vg_pool_export_request *in, struct vg_pool_export_reply *out)
{
	struct wk_object *pool WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_POOL, in->pool, &pool);

	if (r != CUDA_SUCCESS)
		return r;
	IPC_LOCKED(WK_IPC_MADE);
	return wk_ipc_export(pool, VG_EXPORT_POOL, 0, &out->token_length, out->token);
}

CUresult wk_do_pool_import(struct wk_call *c, const struct vg_pool_import_request *in)
{
	struct vg_export_answer answer;
	struct wk_object *o;
	CUmemoryPool pool;
	int file VG_FD = -1;
	CUresult r = wk_ipc_ask(VG_EXPORT_POOL, 0, &in->token, &answer, &file);

	if (r != CUDA_SUCCESS)
		return r;
	r = wk_driver.cuMemPoolImportFromShareableHandle(&pool, handle_of(file), type, 0);
	o = r == CUDA_SUCCESS ? wk_ipc_new(NULL, WK_POOL, pool, &answer, &in->token) : NULL;
	if (!o) {
		if (r == CUDA_SUCCESS)
			wk_driver.cuMemPoolDestroy(pool);
		wk_ipc_tell(VG_EXPORT_CLOSE, answer.id);
		return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
	}
	return wk_put(c, in->created, o);
}

/* Of a pool that others have, and of that one only. */
CUresult wk_do_pool_memory_export(struct wk_call *c, const struct vg_pool_memory_export_request *in,
				  struct vg_pool_memory_export_reply *out)
{
	struct wk_object *memory WK_HELD = wk_ledger_hold(c, in->address), *pool WK_HELD = NULL;
	const struct wk_shared *s;
	CUresult r = wk_hold(c, WK_POOL, in->pool, &pool);

	if (r != CUDA_SUCCESS)
		return r;
	if (!memory || memory->pool != pool->number)
		return CUDA_ERROR_INVALID_VALUE;
	IPC_LOCKED(WK_IPC_MADE);
	s = atomic_load(&pool->shared);
	if (!s || s->opens || !s->id)
		return CUDA_ERROR_INVALID_VALUE;
	return wk_ipc_export(memory, VG_EXPORT_POOLED, s->id, &out->token_length, out->token);
}

static CUresult import_first(struct wk_call *c, const struct wk_object *pool, const struct vg_bytes *token,
			     struct vg_pool_memory_import_reply *out)
{
	struct vg_export_answer answer;
	struct wk_object *o;
	CUdeviceptr address = 0;
	int file VG_FD = -1;
	CUresult r = wk_ipc_ask(VG_EXPORT_POOLED, atomic_load(&pool->shared)->id, token, &answer, &file);

	if (r != CUDA_SUCCESS)
		return r;
	r = wk_driver.cuMemPoolImportPointer(&address, pool->driver, (CUmemPoolPtrExportData *)answer.handle);
	explicit_bzero(answer.handle, sizeof(answer.handle));
	o = r == CUDA_SUCCESS ? wk_ipc_new(c->context, WK_MEMORY, NULL, &answer, token) : NULL;
	if (!o) {
		if (r == CUDA_SUCCESS)
			wk_driver.cuMemFree_v2(address);
		wk_ipc_tell(VG_EXPORT_CLOSE, answer.id);
		return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
	}
	o->address = address;
	o->bytes = answer.bytes;
	o->pool = pool->number;
	out->address = address;
	out->bytes = answer.bytes;
	return wk_ledger_enter(c, o);
}

CUresult wk_do_pool_memory_import(struct wk_call *c, const struct vg_pool_memory_import_request *in,
				  struct vg_pool_memory_import_reply *out)
{
	struct wk_object *memory WK_HELD = NULL, *pool WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_POOL, in->pool, &pool);

	if (r == CUDA_SUCCESS && (in->token.length != VG_EXPORT_BYTES || !wk_ipc_is_opened(pool)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	IPC_LOCKED(WK_IPC_OPENED);
	memory = wk_ledger_search(c, wk_ipc_is_of_token, in->token.data);
	if (!memory)
		return import_first(c, pool, &in->token, out);
	if (memory->pool != pool->number)
		return CUDA_ERROR_INVALID_VALUE;
	memory->shared->opens++;
	out->address = memory->address;
	out->bytes = memory->bytes;
	return CUDA_SUCCESS;
}
