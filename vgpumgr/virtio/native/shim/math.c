/* SPDX-License-Identifier: Apache-2.0 */
/* For the guest's libraries of mathematics: handles of the host's, and calls of their functions. */
#include <math_channel.h>
#include <string.h>

#include "captures.h"
#include "managed.h"
#include "trace.h"

SHIM_API math_open_fn vgpumgr_math_open;
SHIM_API math_create_fn vgpumgr_math_create;
SHIM_API math_destroy_fn vgpumgr_math_destroy;
SHIM_API math_call_fn vgpumgr_math_call;
SHIM_API math_make_fn vgpumgr_math_make;
SHIM_API math_alive_fn vgpumgr_math_alive;

/* As the library does for a program of the driver's that has made no context: its device's own. */
static CUresult enter(uint64_t *context)
{
	CUcontext primary;
	CUresult r = cuInit(0);

	if (r == CUDA_SUCCESS)
		r = shim_enter(context);
	if (r != CUDA_ERROR_INVALID_CONTEXT)
		return r;
	r = cuDevicePrimaryCtxRetain(&primary, 0);
	if (r == CUDA_SUCCESS)
		r = cuCtxSetCurrent(primary);
	return r == CUDA_SUCCESS ? shim_enter(context) : r;
}

int vgpumgr_math_open(uint32_t library, struct math_library *out)
{
	struct vg_math_open_request in = { .library = library };
	struct vg_math_open_reply reply;
	CUresult r = cuInit(0); /* a question needs no context */

	memset(out, 0, sizeof(*out));
	if (r == CUDA_SUCCESS)
		r = vg_send_math_open(&in, &reply);
	if (r != CUDA_SUCCESS)
		return (int)r;
	out->version = reply.version;
	memcpy(out->path, reply.path, reply.path_length < sizeof(out->path) ? reply.path_length : sizeof(out->path) - 1);
	return CUDA_SUCCESS;
}

int vgpumgr_math_create(uint32_t library, uint64_t *handle, int *status)
{
	struct vg_math_create_request in = { .library = library };
	struct vg_math_create_reply out = { .status = 0 };
	struct shim_object *o;
	CUresult r = enter(&in.context);

	*status = 0;
	if (r != CUDA_SUCCESS)
		return (int)r;
	o = shim_object_new(SHIM_MATH, in.context, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = vg_send_math_create(&in, &out);
	*status = out.status;
	if (r != CUDA_SUCCESS || out.status) {
		shim_object_recycle(SHIM_MATH, in.created);
		return (int)r;
	}
	shim_object_publish(o, in.created);
	*handle = in.created;
	return CUDA_SUCCESS;
}

bool vgpumgr_math_alive(uint64_t handle)
{
	return shim_object_get(SHIM_MATH, handle);
}

int vgpumgr_math_destroy(uint64_t handle)
{
	struct shim_object *o = shim_object_get(SHIM_MATH, handle);
	struct vg_math_destroy_request in = { .handle = handle };
	CUresult r;

	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	in.context = o->context;
	if (!shim_object_retire(o, handle))
		return CUDA_ERROR_INVALID_HANDLE;
	r = vg_send_math_destroy(&in);
	shim_object_recycle(SHIM_MATH, handle);
	return (int)r;
}

static CUresult ask(struct math_request *request, uint64_t context, uint64_t stream)
{
	struct vg_math_ask_request in = {
		.context = context, .handle = request->handle, .stream = stream, .function = request->function,
		.mode = request->mode, .arguments = { request->arguments, request->length },
	};
	struct vg_math_ask_reply out;
	CUresult r = vg_send_math_ask(&in, &out);

	if (r != CUDA_SUCCESS)
		return r;
	request->status = out.status;
	request->filled = out.values_length < request->room ? out.values_length : request->room;
	memcpy(request->values, out.values, request->filled);
	return CUDA_SUCCESS;
}

static CUresult try(struct math_request *request, uint64_t context, uint64_t stream)
{
	struct vg_math_try_request in = {
		.context = context, .handle = request->handle, .stream = stream, .function = request->function,
		.mode = request->mode, .arguments = { request->arguments, request->length },
	};
	struct vg_math_try_reply out = { .status = 0 };
	CUresult r = vg_send_math_try(&in, &out);

	request->status = out.status;
	return r;
}

static CUresult post(struct math_request *request, uint64_t context, uint64_t stream)
{
	struct vg_math_call_request in = {
		.context = context, .handle = request->handle, .stream = stream, .function = request->function,
		.mode = request->mode, .arguments = { request->arguments, request->length },
	};

	return vg_send_math_call(&in);
}

static CUresult send(struct math_request *request, uint64_t context, uint64_t stream)
{
	CUresult r;

	shim_trace_of(request->name);
	r = (CUresult (*const[])(struct math_request *, uint64_t, uint64_t)){
		[MATH_POST] = post, [MATH_TRY] = try, [MATH_ASK] = ask }[request->wait](request, context, stream);
	shim_trace_of(NULL);
	return r;
}

int vgpumgr_math_call(struct math_request *request)
{
	struct shim_object *o = shim_object_get(SHIM_MATH, request->handle);
	uint64_t context, stream, own;
	CUresult r = shim_enter(&context);

	request->status = 0;
	request->filled = 0;
	if (r == CUDA_SUCCESS && !o)
		r = CUDA_ERROR_INVALID_HANDLE;
	if (r != CUDA_SUCCESS)
		return (int)r;
	own = context = o->context;
	r = shim_stream(request->stream, &context, &stream);
	if (r == CUDA_SUCCESS && context != own)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS)
		r = shim_managed_launch();
	if (r != CUDA_SUCCESS)
		return (int)r;
	return (int)send(request, own, stream);
}

int vgpumgr_math_make(struct math_request *request, uint64_t *made)
{
	struct vg_math_make_request in = { .handle = request->handle, .function = request->function,
					   .arguments = { request->arguments, request->length } };
	struct shim_object *o = shim_object_get(SHIM_MATH, request->handle), *new;
	struct vg_math_make_reply out;
	CUresult r = shim_enter(&in.context);

	request->status = 0;
	request->filled = 0;
	if (r == CUDA_SUCCESS && !o)
		r = CUDA_ERROR_INVALID_HANDLE;
	if (r != CUDA_SUCCESS)
		return (int)r;
	in.context = o->context;
	new = shim_object_new(SHIM_MATH, in.context, &in.created);
	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	shim_trace_of(request->name);
	r = vg_send_math_make(&in, &out);
	shim_trace_of(NULL);
	if (r != CUDA_SUCCESS || out.status) {
		request->status = r == CUDA_SUCCESS ? out.status : 0;
		shim_object_recycle(SHIM_MATH, in.created);
		return (int)r;
	}
	shim_object_publish(new, in.created);
	*made = in.created;
	request->filled = out.values_length < request->room ? out.values_length : request->room;
	memcpy(request->values, out.values, request->filled);
	return CUDA_SUCCESS;
}
