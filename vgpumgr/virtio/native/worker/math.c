/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By hand: libraries of mathematics that the host has and the guest calls. A session loads one when it is asked for it
 * first; each handle of the guest's is one of the library's, in the guest's context.
 */
#include "math.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blas_functions.h"
#include "lt_wire.h"
#include "math_channel.h"
#include "session.h"

enum { LIBRARIES = VG_MATH_LT + 1, PATH_BYTES = 256 };

static const struct {
	const char *name, *create, *destroy;
} known[LIBRARIES] = {
	[VG_MATH_BLAS] = { "libcublas.so", "cublasCreate_v2", "cublasDestroy_v2" },
	[VG_MATH_LT] = { "libcublasLt.so", "cublasLtCreate", "cublasLtDestroy" },
};
/* Newest first. */
static const int majors[] = { 13, 12 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *directories = "";
static struct {
	_Atomic(void *) handle;
	char path[PATH_BYTES];
} loaded[LIBRARIES];

void wk_math_read(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], VG_OPTION_MATH, strlen(VG_OPTION_MATH)))
			directories = argv[i] + strlen(VG_OPTION_MATH);
}

static void *open_in(const char *directory, size_t length, uint32_t library, int major, char *path)
{
	if (snprintf(path, PATH_BYTES, "%.*s%s%s.%d", (int)length, directory, length ? "/" : "", known[library].name, major) >=
	    PATH_BYTES)
		return NULL;
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* In one of the directories, then where the loader looks. */
static void *open_library(uint32_t library, char *path)
{
	for (size_t m = 0; m < sizeof(majors) / sizeof(majors[0]); m++) {
		const char *directory = directories;
		void *found;

		for (;;) {
			size_t length = strcspn(directory, ":");

			found = open_in(directory, length, library, majors[m], path);
			if (found)
				return found;
			if (!directory[length])
				break;
			directory += length + 1;
		}
		found = open_in("", 0, library, majors[m], path);
		if (found)
			return found;
	}
	return NULL;
}

static void *load(uint32_t library)
{
	void *handle;

	if (!library || library >= LIBRARIES)
		return NULL;
	handle = atomic_load(&loaded[library].handle);
	if (handle)
		return handle;
	pthread_mutex_lock(&lock);
	handle = atomic_load(&loaded[library].handle);
	if (!handle)
		handle = open_library(library, loaded[library].path);
	atomic_store(&loaded[library].handle, handle);
	pthread_mutex_unlock(&lock);
	return handle;
}

void *wk_math_find(uint32_t library, const char *name)
{
	void *handle = load(library);

	return handle ? dlsym(handle, name) : NULL;
}

bool wk_math_loaded(void)
{
	return atomic_load(&loaded[VG_MATH_BLAS].handle) || atomic_load(&loaded[VG_MATH_LT].handle);
}

void wk_math_end(struct wk_math *math)
{
	int (*destroy)(void *);

	*(void **)&destroy = wk_math_find(VG_MATH_LT, known[VG_MATH_LT].destroy);
	if (math->lt && destroy)
		destroy(math->lt);
	math->destroy(math->handle);
	pthread_mutex_destroy(&math->lock);
	free(math);
}

/* ---- the operations */

/* As CUBLAS_VERSION: the major number times 10000, the minor one times 100, the patch. */
static uint64_t ask_version(uint32_t library)
{
	static const char *const names[] = { [VG_MATH_BLAS] = "cublasGetProperty", [VG_MATH_LT] = "cublasLtGetProperty" };
	int (*ask)(int property, int *value);
	uint64_t version = 0;

	*(void **)&ask = wk_math_find(library, names[library]);
	for (int i = 0; ask && i < 3; i++) {
		int value = 0;

		if (ask(i, &value) != MATH_OK)
			return 0;
		version = version * 100 + (uint64_t)value;
	}
	return version;
}

CUresult wk_do_math_open(struct wk_call *c, const struct vg_math_open_request *in, struct vg_math_open_reply *out)
{
	(void)c;
	if (!load(in->library))
		return CUDA_ERROR_NOT_SUPPORTED;
	out->version = ask_version(in->library);
	out->path_length = (uint32_t)strlen(loaded[in->library].path);
	memcpy(out->path, loaded[in->library].path, out->path_length);
	return CUDA_SUCCESS;
}

static struct wk_math *make(uint32_t library, int *status)
{
	struct wk_math *math = calloc(1, sizeof(*math));
	int (*create)(void **);

	*status = MATH_ALLOC_FAILED;
	if (!math)
		return NULL;
	math->library = library;
	*(void **)&create = wk_math_find(library, known[library].create);
	*(void **)&math->destroy = wk_math_find(library, known[library].destroy);
	*status = create && math->destroy ? create(&math->handle) : MATH_NOT_SUPPORTED;
	if (*status == MATH_OK) {
		pthread_mutex_init(&math->lock, NULL);
		return math;
	}
	free(math);
	return NULL;
}

CUresult wk_do_math_create(struct wk_call *c, const struct vg_math_create_request *in, struct vg_math_create_reply *out)
{
	uint64_t bytes = in->library == VG_MATH_BLAS ? MATH_HANDLE_BYTES : 0;
	struct wk_math *math;
	CUresult r = load(in->library) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;

	if (r == CUDA_SUCCESS)
		r = wk_charge(WK_MATH, bytes);
	if (r != CUDA_SUCCESS)
		return r;
	math = make(in->library, &out->status);
	if (math)
		return wk_fill(c, WK_MATH, in->created, math, bytes);
	wk_refund(WK_MATH, bytes);
	return CUDA_SUCCESS;
}

CUresult wk_do_math_destroy(struct wk_call *c, const struct vg_math_destroy_request *in)
{
	return wk_remove(c, WK_MATH, in->handle);
}

static int call_library(struct math_call *call)
{
	int status;

	pthread_mutex_lock(&call->math->lock);
	if (call->function < LT_FUNCTIONS)
		status = wk_lt_call(call);
	else
		status = call->math->library == VG_MATH_BLAS ? wk_blas_call(call) : MATH_NOT_SUPPORTED;
	pthread_mutex_unlock(&call->math->lock);
	return status;
}

static CUresult run(struct wk_call *c, uint64_t handle, uint64_t stream, struct math_call *call, int *status)
{
	struct wk_object *math WK_HELD = NULL, *on WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_MATH, handle, &math);

	if (r == CUDA_SUCCESS)
		r = wk_hold(c, WK_STREAM, stream, &on);
	if (r == CUDA_SUCCESS)
		r = wk_capture_note(c, math, 1);
	if (r == CUDA_SUCCESS && math->context != c->context)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r != CUDA_SUCCESS)
		return r;
	call->math = wk_raw(math);
	call->stream = wk_raw(on);
	*status = call_library(call);
	return CUDA_SUCCESS;
}

/* What nobody waits for fails as a launch does. */
static CUresult as_result(int status)
{
	switch (status) {
	case MATH_OK:
		return CUDA_SUCCESS;
	case MATH_INVALID_VALUE:
		return CUDA_ERROR_INVALID_VALUE;
	case MATH_ALLOC_FAILED:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case MATH_NOT_SUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_LAUNCH_FAILED;
	}
}

static struct math_call read_call(uint64_t function, uint32_t mode, const struct vg_bytes *arguments)
{
	return (struct math_call){ .function = function, .on_device = mode & MATH_ON_DEVICE, .anew = mode & MATH_ANEW,
				   .arguments = arguments->data, .length = arguments->length };
}

CUresult wk_do_math_call(struct wk_call *c, const struct vg_math_call_request *in)
{
	struct math_call call = read_call(in->function, in->mode, &in->arguments);
	int status = MATH_OK;
	CUresult r = run(c, in->handle, in->stream, &call, &status);

	return r == CUDA_SUCCESS ? as_result(status) : r;
}

CUresult wk_do_math_try(struct wk_call *c, const struct vg_math_try_request *in, struct vg_math_try_reply *out)
{
	struct math_call call = read_call(in->function, in->mode, &in->arguments);

	return run(c, in->handle, in->stream, &call, &out->status);
}

CUresult wk_do_math_ask(struct wk_call *c, const struct vg_math_ask_request *in, struct vg_math_ask_reply *out)
{
	struct math_call call = read_call(in->function, in->mode, &in->arguments);
	CUresult r;

	call.values = out->values;
	call.room = sizeof(out->values);
	r = run(c, in->handle, in->stream, &call, &out->status);
	out->values_length = call.filled;
	return r;
}
