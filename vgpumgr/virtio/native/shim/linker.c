/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linking: inputs are kept here until all are there; the host's driver links them in one call. So an input that is wrong
 * is reported when the link is completed, not when it is added.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "jit.h"
#include "shim.h"

/* One of ours, as in library.c. */
enum { LOCAL_TAG = 101, PARTS = 512, NAME_BYTES = 4096 };

/* On the wire; the name's bytes with their NUL stand before the data. */
struct part {
	uint64_t bytes;
	uint32_t type, name_bytes;
};

struct linker {
	uint64_t id;
	struct linker *next;
	struct shim_jit jit;
	struct part parts[PARTS];
	unsigned int count;
	uint8_t *inputs;
	size_t length;
	void *cubin;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct linker *linkers;
static uint32_t last;

static struct linker **find(CUlinkState state)
{
	struct linker **at = &linkers;

	while (*at && (*at)->id != (uint64_t)state)
		at = &(*at)->next;
	return at;
}

SHIM_API CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
	uint64_t context;
	struct linker *l;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS && !stateOut)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	l = calloc(1, sizeof(*l));
	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = shim_jit_read(&l->jit, numOptions, options, optionValues);
	if (r != CUDA_SUCCESS) {
		free(l);
		return r;
	}
	pthread_mutex_lock(&lock);
	l->id = vg_handle_make(LOCAL_TAG, 1, ++last);
	l->next = linkers;
	linkers = l;
	pthread_mutex_unlock(&lock);
	*stateOut = (CUlinkState)l->id;
	return CUDA_SUCCESS;
}

static CUresult append(struct linker *l, CUjitInputType type, const void *data, size_t size, const char *name)
{
	struct part p = { size, type, strnlen(name, NAME_BYTES - 1) + 1 };
	uint8_t *more;

	if (l->count == PARTS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	more = realloc(l->inputs, l->length + p.name_bytes + size);
	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	l->inputs = more;
	memcpy(more + l->length, name, p.name_bytes - 1);
	more[l->length + p.name_bytes - 1] = 0;
	memcpy(more + l->length + p.name_bytes, data, size);
	l->length += p.name_bytes + size;
	l->parts[l->count++] = p;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
				   unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	struct shim_jit jit;
	struct linker *l;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = shim_jit_read(&jit, numOptions, options, optionValues);
	if (r == CUDA_SUCCESS && (!data || !size || type >= CU_JIT_NUM_INPUT_TYPES))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && jit.count)
		r = shim_refuse("cuLinkAddData with options of one input");
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	l = *find(state);
	if (!l)
		r = CUDA_ERROR_INVALID_HANDLE;
	else
		r = l->cubin ? CUDA_ERROR_INVALID_VALUE : append(l, type, data, size, name ? name : "");
	pthread_mutex_unlock(&lock);
	return r;
}

SHIM_API CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
				   CUjit_option *options, void **optionValues)
{
	size_t length = 0;
	void *data = NULL;
	CUresult r = path ? shim_file(path, &data, &length) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = cuLinkAddData_v2(state, type, data, length, path, numOptions, options, optionValues);
	free(data);
	return r;
}

/* What the worker has linked, under the upload's number. */
static CUresult fetch(uint32_t upload, size_t bytes, uint8_t *to)
{
	CUresult why, r = CUDA_SUCCESS;
	struct vg_conn *conn = shim_conn(shim_channel(), &why);
	size_t most = conn ? vg_conn_bulk_max(conn) : 0;

	if (!conn || !most)
		return why;
	for (size_t at = 0, n; r == CUDA_SUCCESS && at < bytes; at += n) {
		struct vg_image_read_request in = { .upload = upload, .offset = at };
		struct shim_bulk bulk = { VG_BULK_TO_GUEST, to + at, 0, 1, 0, false };

		n = bytes - at < most ? bytes - at : most;
		bulk.width = bulk.pitch = n;
		r = vg_send_image_read(&in, &bulk);
	}
	return r;
}

static CUresult link_inputs(struct linker *l, struct vg_image_link_reply *out)
{
	struct shim_jit *jit = &l->jit;
	struct vg_image_link_request in = {
		.info_log_bytes = shim_jit_room(jit->info, jit->info_bytes),
		.error_log_bytes = shim_jit_room(jit->error, jit->error_bytes),
		.options = { jit->words, 16 * jit->count },
		.parts = { l->parts, l->count * sizeof(l->parts[0]) },
	};
	struct vg_image_drop_request drop;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = l->length ? shim_upload(l->inputs, l->length, &in.upload) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	r = vg_send_image_link(&in, out);
	shim_jit_log(out->info_log, out->info_log_length, jit->info, jit->info_bytes);
	shim_jit_log(out->error_log, out->error_log_length, jit->error, jit->error_bytes);
	if (r != CUDA_SUCCESS)
		return r;
	/* zeros behind it: a text ends there */
	l->cubin = calloc(1, out->bytes + 8);
	r = l->cubin ? fetch(in.upload, out->bytes, l->cubin) : CUDA_ERROR_OUT_OF_MEMORY;
	drop.upload = in.upload;
	vg_send_image_drop(&drop);
	return r;
}

SHIM_API CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
	struct vg_image_link_reply *out = calloc(1, sizeof(*out));
	struct linker *l;
	CUresult r = out ? shim_ready() : CUDA_ERROR_OUT_OF_MEMORY;

	if (r != CUDA_SUCCESS) {
		free(out);
		return r;
	}
	pthread_mutex_lock(&lock);
	l = *find(state);
	if (!l)
		r = CUDA_ERROR_INVALID_HANDLE;
	else
		r = l->cubin ? CUDA_ERROR_INVALID_VALUE : link_inputs(l, out);
	if (r == CUDA_SUCCESS && cubinOut)
		*cubinOut = l->cubin;
	if (r == CUDA_SUCCESS && sizeOut)
		*sizeOut = out->bytes;
	pthread_mutex_unlock(&lock);
	free(out);
	return r;
}

SHIM_API CUresult cuLinkDestroy(CUlinkState state)
{
	struct linker **at, *l;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	at = find(state);
	l = *at;
	if (l)
		*at = l->next;
	pthread_mutex_unlock(&lock);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	free(l->inputs);
	free(l->cubin);
	free(l);
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuLinkCreate(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
	return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

SHIM_API CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
				unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

SHIM_API CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
				CUjit_option *options, void **optionValues)
{
	return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}
