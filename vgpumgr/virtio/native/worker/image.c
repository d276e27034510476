/* SPDX-License-Identifier: Apache-2.0 */
/* Module images: received in pieces, and looked at only so far that the driver cannot be led beyond their end. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transport/worker_limits.h"
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

static struct wk_upload *begin(struct wk_session *s, const struct vg_image_data_request *in)
{
	struct wk_upload *free_one = NULL;

	for (int i = 0; i < WK_UPLOADS; i++)
		if (!s->uploads[i].image)
			free_one = &s->uploads[i];
	if (!free_one || !in->total || in->total > WK_IMAGES_BYTES || total(s) + in->total > WK_IMAGES_BYTES)
		return NULL;
	if (!vg_charge(VG_LIMIT_IMAGE_BYTES, in->total))
		return NULL;
	/* zeros beyond the end: a text without its NUL ends there */
	free_one->image = calloc(1, in->total + 8);
	if (!free_one->image) {
		vg_refund(VG_LIMIT_IMAGE_BYTES, in->total);
		return NULL;
	}
	free_one->number = in->upload;
	free_one->filled = 0;
	free_one->total = in->total;
	return free_one;
}

CUresult wk_do_image_data(struct wk_call *c, const struct vg_image_data_request *in)
{
	struct wk_session *s = c->session;
	struct wk_upload *u;
	bool bad;

	pthread_mutex_lock(&s->lock);
	u = find(s, in->upload);
	if (!u && !in->offset)
		u = begin(s, in);
	bad = !u || u->total != in->total || u->filled != in->offset || c->call->bulk_in_length > u->total - u->filled;
	if (!bad) {
		memcpy(u->image + u->filled, c->call->bulk_in, c->call->bulk_in_length);
		u->filled += c->call->bulk_in_length;
	}
	pthread_mutex_unlock(&s->lock);
	return bad ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* The upload's image, now the caller's; NULL: not there or not complete. */
static void *take_image(struct wk_session *s, uint32_t number, size_t *length)
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

static bool is_elf(const void *image, size_t length)
{
	return length >= SELFMAG && !memcmp(image, ELFMAG, SELFMAG);
}

bool wk_image_is_whole(const void *image, size_t length)
{
	static const uint8_t fatbin[4] = { 0x50, 0xed, 0x55, 0xba };
	const uint8_t *bytes = image;

	if (is_elf(bytes, length))
		return elf_is_whole(bytes, length);
	if (length >= 4 && !memcmp(bytes, fatbin, sizeof(fatbin)))
		return fatbin_is_whole(bytes, length);
	/* text: its only NUL is its last byte. A wrapper holds a pointer, and is nothing for us. */
	return length && memchr(bytes, 0, length) == bytes + length - 1;
}

/* ---- loading */

enum { JIT_PAUSE_NS = 2000000 };

struct options {
	CUjit_option option[72];
	void *value[72];
	unsigned int count;
};

static void add(struct options *o, CUjit_option option, void *value)
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

static CUresult read_options(struct options *o, const struct vg_module_load_request *in)
{
	uint64_t pair[2];

	if (in->options.length % sizeof(pair))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t at = 0; at < in->options.length; at += sizeof(pair)) {
		memcpy(pair, (const uint8_t *)in->options.data + at, sizeof(pair));
		if (!allowed(pair[0]))
			return CUDA_ERROR_NOT_SUPPORTED;
		add(o, pair[0], (void *)(uintptr_t)(uint32_t)pair[1]);
	}
	return CUDA_SUCCESS;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Of the loads that may compile only so many go on at once; the others wait, on threads that nobody else waits for. */
static CUresult begin_compiling(const struct wk_call *c)
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
static CUresult load(const struct wk_call *c, CUmodule *module, const void *image, size_t length, struct options *o)
{
	bool compiles = !is_elf(image, length);
	CUresult r = wk_charge(WK_MODULE, length);

	if (r != CUDA_SUCCESS)
		return r;
	r = compiles ? begin_compiling(c) : CUDA_SUCCESS;
	compiles = compiles && r == CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuModuleLoadDataEx(module, image, o->count, o->option, o->value);
	if (compiles)
		vg_refund(VG_LIMIT_JIT, 1);
	return wk_charged(WK_MODULE, length, r);
}

CUresult wk_do_module_load(struct wk_call *c, const struct vg_module_load_request *in,
			   struct vg_module_load_reply *out)
{
	size_t info = smaller(in->info_log_bytes, sizeof(out->info_log));
	size_t error = smaller(in->error_log_bytes, sizeof(out->error_log));
	struct options options = { .count = 0 };
	size_t length = 0;
	void *image = take_image(c->session, in->upload, &length);
	CUmodule module;
	CUresult r = read_options(&options, in);

	if (r == CUDA_SUCCESS && (!image || !wk_image_is_whole(image, length)))
		r = CUDA_ERROR_INVALID_IMAGE;
	if (r == CUDA_SUCCESS) {
		add(&options, CU_JIT_INFO_LOG_BUFFER, out->info_log);
		add(&options, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, (void *)info);
		add(&options, CU_JIT_ERROR_LOG_BUFFER, out->error_log);
		add(&options, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, (void *)error);
		r = load(c, &module, image, length, &options);
		out->info_log_length = info ? strnlen((char *)out->info_log, info - 1) + 1 : 0;
		out->error_log_length = error ? strnlen((char *)out->error_log, error - 1) + 1 : 0;
	}
	free(image);
	if (r == CUDA_SUCCESS)
		return wk_fill(c, WK_MODULE, in->created, module, length);
	if (image)
		vg_refund(VG_LIMIT_IMAGE_BYTES, length);
	return r;
}
