/* SPDX-License-Identifier: Apache-2.0 */
/* Module images: received in pieces, and looked at only so far that the driver cannot be led beyond their end. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transport/worker_limits.h"
#include "image.h"
#include "session.h"
#include "vg_worker.h"

static struct wk_upload *find(struct wk_session *s, uint32_t number)
{
	for (int i = 0; i < WK_UPLOADS; i++)
		if (s->uploads[i].image && s->uploads[i].number == number)
			return &s->uploads[i];
	return NULL;
}

static uint64_t total(const struct wk_session *s)
{
	uint64_t sum = 0;

	for (int i = 0; i < WK_UPLOADS; i++)
		sum += s->uploads[i].image ? s->uploads[i].total : 0;
	return sum;
}

static struct wk_upload *begin(struct wk_session *s, uint32_t number, uint64_t bytes)
{
	struct wk_upload *free_one = NULL;

	for (int i = 0; i < WK_UPLOADS; i++)
		if (!s->uploads[i].image)
			free_one = &s->uploads[i];
	if (!free_one || !bytes || bytes > WK_IMAGES_BYTES || total(s) + bytes > WK_IMAGES_BYTES)
		return NULL;
	if (!vg_charge(VG_LIMIT_IMAGE_BYTES, bytes))
		return NULL;
	/* zeros beyond the end: a text without its NUL ends there */
	free_one->image = calloc(1, bytes + 8);
	if (!free_one->image) {
		vg_refund(VG_LIMIT_IMAGE_BYTES, bytes);
		return NULL;
	}
	free_one->number = number;
	free_one->filled = 0;
	free_one->total = bytes;
	return free_one;
}

/* Before the lock is taken: modules on their way out may be all that is in the way. */
static void make_room(uint64_t bytes)
{
	if (vg_limit(VG_LIMIT_IMAGE_BYTES) - vg_limit_used(VG_LIMIT_IMAGE_BYTES) < bytes)
		wk_frees_wait();
}

CUresult wk_do_image_data(struct wk_call *c, const struct vg_image_data_request *in)
{
	struct wk_session *s = c->session;
	struct wk_upload *u;
	bool bad;

	if (!in->offset)
		make_room(in->total);
	pthread_mutex_lock(&s->lock);
	u = find(s, in->upload);
	if (!u && !in->offset)
		u = begin(s, in->upload, in->total);
	bad = !u || u->total != in->total || u->filled != in->offset || c->call->bulk_in_length > u->total - u->filled;
	if (!bad) {
		memcpy(u->image + u->filled, c->call->bulk_in, c->call->bulk_in_length);
		u->filled += c->call->bulk_in_length;
	}
	pthread_mutex_unlock(&s->lock);
	return bad ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void *wk_image_take(struct wk_session *s, uint32_t number, size_t *length)
{
	struct wk_upload *u;
	void *image = NULL;

	pthread_mutex_lock(&s->lock);
	u = find(s, number);
	if (u && u->filled == u->total) {
		image = u->image;
		*length = u->total;
		*u = (struct wk_upload){ 0 };
	}
	pthread_mutex_unlock(&s->lock);
	return image;
}

bool wk_image_give(struct wk_session *s, uint32_t number, const void *image, size_t length)
{
	struct wk_upload *u;

	pthread_mutex_lock(&s->lock);
	u = find(s, number) ? NULL : begin(s, number, length);
	if (u) {
		memcpy(u->image, image, length);
		u->filled = length;
	}
	pthread_mutex_unlock(&s->lock);
	return u;
}

CUresult wk_do_image_read(struct wk_call *c, const struct vg_image_read_request *in)
{
	struct wk_session *s = c->session;
	size_t bytes = c->call->bulk_out_length;
	const struct wk_upload *u;
	bool bad;

	pthread_mutex_lock(&s->lock);
	u = find(s, in->upload);
	bad = !u || u->filled != u->total || in->offset > u->total || bytes > u->total - in->offset;
	if (!bad)
		memcpy(c->call->bulk_out, u->image + in->offset, bytes);
	pthread_mutex_unlock(&s->lock);
	if (bad)
		return CUDA_ERROR_INVALID_VALUE;
	c->bulk_filled = bytes;
	return CUDA_SUCCESS;
}

CUresult wk_do_image_drop(struct wk_call *c, const struct vg_image_drop_request *in)
{
	size_t length = 0;
	void *image = wk_image_take(c->session, in->upload, &length);

	if (image)
		vg_refund(VG_LIMIT_IMAGE_BYTES, length);
	free(image);
	return CUDA_SUCCESS;
}

void wk_uploads_drop(struct wk_session *s)
{
	for (int i = 0; i < WK_UPLOADS; i++)
		free(s->uploads[i].image);
}

static bool inside(uint64_t offset, uint64_t bytes, size_t length)
{
	return offset <= length && bytes <= length - offset;
}

static bool elf_is_whole(const uint8_t *image, size_t length)
{
	Elf64_Ehdr h;
	Elf64_Shdr s;
	Elf64_Phdr p;

	if (length < sizeof(h))
		return false;
	memcpy(&h, image, sizeof(h));
	if ((h.e_shnum && h.e_shentsize != sizeof(s)) || (h.e_phnum && h.e_phentsize != sizeof(p)) ||
	    !inside(h.e_shoff, (uint64_t)h.e_shnum * sizeof(s), length) ||
	    !inside(h.e_phoff, (uint64_t)h.e_phnum * sizeof(p), length))
		return false;
	for (unsigned int i = 0; i < h.e_shnum; i++) {
		memcpy(&s, image + h.e_shoff + i * sizeof(s), sizeof(s));
		if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL && !inside(s.sh_offset, s.sh_size, length))
			return false;
	}
	for (unsigned int i = 0; i < h.e_phnum; i++) {
		memcpy(&p, image + h.e_phoff + i * sizeof(p), sizeof(p));
		if (!inside(p.p_offset, p.p_filesz, length))
			return false;
	}
	return true;
}

/* The entries of a fat binary's body fill it exactly. */
static bool fatbin_is_whole(const uint8_t *image, size_t length)
{
	uint64_t body, payload;
	uint32_t header_bytes;
	uint16_t header;
	size_t at, end;

	if (length < 16)
		return false;
	memcpy(&header, image + 6, sizeof(header));
	memcpy(&body, image + 8, sizeof(body));
	if (header < 16 || !inside(header, body, length))
		return false;
	at = header;
	end = header + body;
	while (end - at >= 64) {
		memcpy(&header_bytes, image + at + 4, sizeof(header_bytes));
		memcpy(&payload, image + at + 8, sizeof(payload));
		if (header_bytes < 64 || !inside(header_bytes, payload, end - at))
			return false;
		at += header_bytes + payload;
	}
	return at == end || end - at < 64;
}

bool wk_image_is_elf(const void *image, size_t length)
{
	return length >= SELFMAG && !memcmp(image, ELFMAG, SELFMAG);
}

bool wk_image_is_whole(const void *image, size_t length)
{
	static const uint8_t fatbin[4] = { 0x50, 0xed, 0x55, 0xba };
	const uint8_t *bytes = image;

	if (wk_image_is_elf(bytes, length))
		return elf_is_whole(bytes, length);
	if (length >= 4 && !memcmp(bytes, fatbin, sizeof(fatbin)))
		return fatbin_is_whole(bytes, length);
	/* text: its only NUL is its last byte. A wrapper holds a pointer, and is nothing for us. */
	return length && memchr(bytes, 0, length) == bytes + length - 1;
}

/* ---- loading */

enum { JIT_PAUSE_NS = 2000000 };

void wk_jit_add(struct wk_jit *o, CUjit_option option, void *value)
{
	o->option[o->count] = option;
	o->value[o->count++] = value;
}

/* Options whose value is a plain number; all others hold pointers, or belong to a linker. */
static bool allowed(uint64_t option)
{
	switch (option) {
	case CU_JIT_MAX_REGISTERS:
	case CU_JIT_THREADS_PER_BLOCK:
	case CU_JIT_WALL_TIME:
	case CU_JIT_OPTIMIZATION_LEVEL:
	case CU_JIT_TARGET_FROM_CUCONTEXT:
	case CU_JIT_TARGET:
	case CU_JIT_FALLBACK_STRATEGY:
	case CU_JIT_GENERATE_DEBUG_INFO:
	case CU_JIT_LOG_VERBOSE:
	case CU_JIT_GENERATE_LINE_INFO:
	case CU_JIT_CACHE_MODE:
		return true;
	default:
		return false;
	}
}

CUresult wk_jit_read(struct wk_jit *o, const struct vg_bytes *options)
{
	uint64_t pair[2];

	if (options->length % sizeof(pair))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t at = 0; at < options->length; at += sizeof(pair)) {
		memcpy(pair, (const uint8_t *)options->data + at, sizeof(pair));
		if (!allowed(pair[0]))
			return CUDA_ERROR_NOT_SUPPORTED;
		wk_jit_add(o, pair[0], (void *)(uintptr_t)(uint32_t)pair[1]);
	}
	return CUDA_SUCCESS;
}

void wk_jit_logs(struct wk_jit *o, uint8_t *info, size_t info_bytes, uint8_t *error, size_t error_bytes)
{
	wk_jit_add(o, CU_JIT_INFO_LOG_BUFFER, info);
	wk_jit_add(o, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, (void *)info_bytes);
	wk_jit_add(o, CU_JIT_ERROR_LOG_BUFFER, error);
	wk_jit_add(o, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, (void *)error_bytes);
}

size_t wk_log_length(const uint8_t *log, size_t room)
{
	return room ? strnlen((const char *)log, room - 1) + 1 : 0;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

CUresult wk_begin_compiling(const struct wk_call *c)
{
	struct timespec pause = { .tv_nsec = JIT_PAUSE_NS };
	uint64_t paused = vg_watch_pause();
	bool granted;

	while (!(granted = vg_charge_quietly(VG_LIMIT_JIT, 1)) && !vg_lane_closing(c->lane))
		nanosleep(&pause, NULL);
	vg_watch_resume(paused);
	return granted ? CUDA_SUCCESS : CUDA_ERROR_DEINITIALIZED;
}

/* The image's bytes stand for the device's memory that the module takes. */
static CUresult load(const struct wk_call *c, CUmodule *module, const void *image, size_t length, struct wk_jit *o)
{
	bool compiles = !wk_image_is_elf(image, length);
	CUresult r = wk_charge(WK_MODULE, length);

	if (r != CUDA_SUCCESS)
		return r;
	r = compiles ? wk_begin_compiling(c) : CUDA_SUCCESS;
	compiles = compiles && r == CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		r = WK_WITH_ROOM(wk_driver.cuModuleLoadDataEx(module, image, o->count, o->option, o->value));
	if (compiles)
		vg_refund(VG_LIMIT_JIT, 1);
	return wk_charged(WK_MODULE, length, r);
}

CUresult wk_do_module_load(struct wk_call *c, const struct vg_module_load_request *in,
			   struct vg_module_load_reply *out)
{
	size_t info = smaller(in->info_log_bytes, sizeof(out->info_log));
	size_t error = smaller(in->error_log_bytes, sizeof(out->error_log));
	struct wk_jit options = { .count = 0 };
	size_t length = 0;
	void *image = wk_image_take(c->session, in->upload, &length);
	CUmodule module;
	CUresult r = wk_jit_read(&options, &in->options);

	if (r == CUDA_SUCCESS && (!image || !wk_image_is_whole(image, length)))
		r = CUDA_ERROR_INVALID_IMAGE;
	if (r == CUDA_SUCCESS) {
		wk_jit_logs(&options, out->info_log, info, out->error_log, error);
		r = load(c, &module, image, length, &options);
		out->info_log_length = wk_log_length(out->info_log, info);
		out->error_log_length = wk_log_length(out->error_log, error);
	}
	free(image);
	if (r == CUDA_SUCCESS)
		return wk_fill(c, WK_MODULE, in->created, module, length);
	if (image)
		vg_refund(VG_LIMIT_IMAGE_BYTES, length);
	return r;
}
