/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linking in one call: the guest keeps the inputs until they are complete, so that no state of the driver's linker
 * outlives it, which two threads could use at once.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/worker_limits.h"
#include "image.h"

/* On the wire: the name's bytes with their NUL, then the data, stand in the upload. */
struct part {
	uint64_t bytes;
	uint32_t type, name_bytes;
};

static bool take_part(const uint8_t *blob, size_t length, size_t *at, const struct part *p, const char **name,
		      const uint8_t **data)
{
	if (!p->name_bytes || p->name_bytes > length - *at || !p->bytes || p->bytes > length - *at - p->name_bytes)
		return false;
	*name = (const char *)blob + *at;
	*data = blob + *at + p->name_bytes;
	*at += p->name_bytes + p->bytes;
	return (*name)[p->name_bytes - 1] == 0;
}

/* What has a length of its own within is looked at, as a module is; the driver is told the length of all else. */
static bool may_be_read(const struct part *p, const uint8_t *data)
{
	static const uint8_t fatbin[4] = { 0x50, 0xed, 0x55, 0xba };
	bool is_fatbin = p->bytes >= sizeof(fatbin) && !memcmp(data, fatbin, sizeof(fatbin));

	switch (p->type) {
	case CU_JIT_INPUT_PTX:
	case CU_JIT_INPUT_LIBRARY:
		return true;
	case CU_JIT_INPUT_CUBIN:
	case CU_JIT_INPUT_FATBINARY:
	case CU_JIT_INPUT_OBJECT:
		return (!wk_image_is_elf(data, p->bytes) && !is_fatbin) || wk_image_is_whole(data, p->bytes);
	default:
		return false;
	}
}

/* A copy, with zeros behind it. */
static CUresult add_part(CUlinkState state, const struct part *p, const char *name, const uint8_t *data)
{
	uint8_t *copy = calloc(1, p->bytes + 8);
	CUresult r;

	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(copy, data, p->bytes);
	r = wk_driver.cuLinkAddData_v2(state, p->type, copy, p->bytes, name, 0, NULL, NULL);
	free(copy);
	return r;
}

static CUresult add_parts(CUlinkState state, const struct vg_bytes *parts, const uint8_t *blob, size_t length)
{
	const uint8_t *data;
	struct part p;
	const char *name;
	CUresult r = parts->length % sizeof(p) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

	for (size_t i = 0, at = 0; r == CUDA_SUCCESS && i < parts->length; i += sizeof(p)) {
		memcpy(&p, (const uint8_t *)parts->data + i, sizeof(p));
		if (!take_part(blob, length, &at, &p, &name, &data))
			return CUDA_ERROR_INVALID_VALUE;
		r = may_be_read(&p, data) ? add_part(state, &p, name, data) : CUDA_ERROR_INVALID_IMAGE;
	}
	return r;
}

static CUresult link(const struct vg_image_link_request *in, struct wk_session *s, struct wk_jit *jit, const uint8_t *blob,
		     size_t length, uint64_t *bytes)
{
	CUlinkState state;
	void *cubin = NULL;
	size_t size = 0;
	CUresult r = wk_driver.cuLinkCreate_v2(jit->count, jit->option, jit->value, &state);

	if (r != CUDA_SUCCESS)
		return r;
	r = add_parts(state, &in->parts, blob, length);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuLinkComplete(state, &cubin, &size);
	if (r == CUDA_SUCCESS && !wk_image_give(s, in->upload, cubin, size))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	wk_driver.cuLinkDestroy(state);
	*bytes = size;
	return r;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

CUresult wk_do_image_link(struct wk_call *c, const struct vg_image_link_request *in, struct vg_image_link_reply *out)
{
	size_t info = smaller(in->info_log_bytes, sizeof(out->info_log));
	size_t error = smaller(in->error_log_bytes, sizeof(out->error_log));
	struct wk_jit jit = { .count = 0 };
	size_t length = 0;
	uint8_t *blob = wk_image_take(c->session, in->upload, &length);
	CUresult r = blob ? wk_jit_read(&jit, &in->options) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = wk_begin_compiling(c);
	if (r == CUDA_SUCCESS) {
		wk_jit_logs(&jit, out->info_log, info, out->error_log, error);
		r = link(in, c->session, &jit, blob, length, &out->bytes);
		vg_refund(VG_LIMIT_JIT, 1);
		out->info_log_length = wk_log_length(out->info_log, info);
		out->error_log_length = wk_log_length(out->error_log, error);
	}
	if (blob)
		vg_refund(VG_LIMIT_IMAGE_BYTES, length);
	free(blob);
	return r;
}
