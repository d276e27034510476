/* SPDX-License-Identifier: Apache-2.0 */
#include "frame.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "captures.h"
#include "output.h"
#include "trace.h"

/*
 * Answers of cached calls: entries are added and never changed or freed, so readers need no lock once they have one. So no call
 * is cached whose keys have no end.
 */
enum { CACHE_SLOTS = 1024, CACHE_PROBES = 8 };

struct answer {
	uint32_t op, epoch, channel;
	size_t key_length, length;
	uint8_t bytes[]; /* key, then reply */
};

static _Atomic(struct answer *) answers[CACHE_SLOTS];
static _Atomic uint32_t epoch;

uint32_t shim_hash(uint32_t op, const uint8_t *key, size_t length)
{
	uint32_t h = 2166136261u ^ op;

	while (length--)
		h = (h ^ *key++) * 16777619u;
	return h;
}

static struct answer *find_answer(const struct shim_frame *f)
{
	uint32_t at = shim_hash(f->op, f->key, f->size);

	for (uint32_t i = 0; i < CACHE_PROBES; i++) {
		struct answer *a = atomic_load_explicit(&answers[(at + i) % CACHE_SLOTS], memory_order_acquire);

		if (a && a->op == f->op && a->channel == f->channel && a->epoch == atomic_load(&epoch) && a->key_length == f->size &&
		    !memcmp(a->bytes, f->key, f->size))
			return a;
	}
	return NULL;
}

static void keep_answer(const struct shim_frame *f, uint32_t when)
{
	uint32_t at = shim_hash(f->op, f->key, f->size);
	struct answer *a = malloc(sizeof(*a) + f->size + f->reply.length), *none;

	if (!a)
		return;
	*a = (struct answer){ f->op, when, f->channel, f->size, f->reply.length };
	memcpy(a->bytes, f->key, f->size);
	memcpy(a->bytes + f->size, f->reply.data, f->reply.length);
	for (uint32_t i = 0; i < CACHE_PROBES; i++) {
		none = NULL;
		if (atomic_compare_exchange_strong(&answers[(at + i) % CACHE_SLOTS], &none, a))
			return;
	}
	free(a); /* the neighbourhood is full: this key is asked again */
}

void shim_cache_clear(void)
{
	atomic_fetch_add(&epoch, 1);
}

static void copy_rows(const struct shim_bulk *b, uint8_t *packed, bool out)
{
	uint8_t *host = b->host;
	size_t rows = b->pitch == b->width ? 1 : b->rows;
	size_t width = b->pitch == b->width ? b->width * b->rows : b->width;

	for (size_t i = 0; i < rows; i++) {
		if (out)
			memcpy(host + i * b->pitch, packed + i * width, width);
		else
			memcpy(packed + i * width, host + i * b->pitch, width);
	}
}

/* Room for bulk beside the frame, where the program's memory cannot be touched while a frame is made. */
static CUresult set_aside(struct shim_frame *f, size_t bytes)
{
	const struct shim_bulk *b = f->bulk;

	if (!b || !bytes || b->present || !shim_range_is_managed(b->host, b->rows > 1 ? (b->rows - 1) * b->pitch + b->width : b->width))
		return CUDA_SUCCESS;
	f->aside = malloc(bytes);
	if (!f->aside)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (b->direction == VG_BULK_TO_WORKER)
		copy_rows(b, f->aside, false);
	return CUDA_SUCCESS;
}

static void fill_bulk(const struct shim_frame *f, size_t bytes)
{
	if (f->aside)
		memcpy(f->frame.bulk, f->aside, bytes);
	else
		copy_rows(f->bulk, f->frame.bulk, false);
}

static CUresult open_frame(struct shim_frame *f)
{
	size_t bulk = f->bulk ? f->bulk->width * f->bulk->rows : 0;
	CUresult why;
	int error;

	f->conn = shim_conn(f->channel, &why);
	if (!f->conn)
		return why;
	why = set_aside(f, bulk);
	if (why != CUDA_SUCCESS)
		return why;
	error = (f->kind == SHIM_AHEAD ? vg_begin_ahead : vg_begin)(f->conn, f->op, f->size,
								    f->bulk ? f->bulk->direction : VG_BULK_NONE, bulk, &f->frame);
	if (error) {
		free(f->aside);
		return error == -EAGAIN ? CUDA_ERROR_NOT_READY : shim_frame_error(f->op, error);
	}
	if (f->bulk && f->bulk->direction == VG_BULK_TO_WORKER)
		fill_bulk(f, bulk);
	return CUDA_SUCCESS;
}

CUresult shim_begin(struct shim_frame *f, unsigned channel, uint32_t op, enum shim_send_kind kind, size_t size,
		    const struct shim_bulk *bulk)
{
	CUresult r;

	f->channel = channel;
	f->kind = kind;
	f->op = op;
	f->size = size;
	f->bulk = bulk;
	f->replied = f->has_data = f->output = false;
	f->aside = NULL;
	vg_decoder_init(&f->decoder, NULL, 0);
	if (kind == SHIM_CACHED) {
		if (size > sizeof(f->key))
			return CUDA_ERROR_INVALID_VALUE;
		vg_encoder_init(&f->encoder, f->key, size);
		return CUDA_SUCCESS;
	}
	r = open_frame(f);
	if (r == CUDA_SUCCESS)
		vg_encoder_init(&f->encoder, f->frame.payload, size);
	return r;
}

static CUresult send_call(struct shim_frame *f)
{
	int error = vg_call_send(f->conn, &f->frame, &f->reply);

	if (error != -EAGAIN)
		return error ? shim_channel_error(error) : CUDA_SUCCESS;
	free(f->aside);
	return CUDA_ERROR_NOT_READY;
}

CUresult shim_await(struct shim_frame *f)
{
	uint64_t since = shim_traces ? shim_trace_now() : 0;
	int error = vg_call_wait(f->conn, &f->reply);

	if (since)
		shim_trace_wait(f->op, since);
	if (error)
		return shim_channel_error(error);
	f->replied = true;
	f->has_data = f->reply.length > 0;
	f->output = f->reply.output;
	vg_decoder_init(&f->decoder, f->reply.data, f->reply.length);
	if (f->reply.status != CUDA_SUCCESS || !f->bulk || f->bulk->direction != VG_BULK_TO_GUEST)
		return f->reply.status;
	if (f->reply.bulk_length != f->bulk->width * f->bulk->rows)
		return CUDA_ERROR_UNKNOWN;
	if (f->aside)
		memcpy(f->aside, f->reply.bulk, f->reply.bulk_length);
	else
		copy_rows(f->bulk, (uint8_t *)f->reply.bulk, true);
	return CUDA_SUCCESS;
}

static CUresult call(struct shim_frame *f)
{
	CUresult r = send_call(f);

	return r == CUDA_SUCCESS ? shim_await(f) : r;
}

static CUresult cached(struct shim_frame *f)
{
	const struct answer *a = find_answer(f);
	uint32_t when = atomic_load(&epoch);
	CUresult r;

	if (a) {
		vg_decoder_init(&f->decoder, a->bytes + a->key_length, a->length);
		f->has_data = a->length > 0;
		return CUDA_SUCCESS;
	}
	r = open_frame(f);
	if (r != CUDA_SUCCESS)
		return r;
	memcpy(f->frame.payload, f->key, f->size);
	r = call(f);
	if (r == CUDA_SUCCESS)
		keep_answer(f, when);
	return r;
}

struct shim_told shim_exchange(unsigned channel, uint32_t op, const uint64_t *request, size_t request_size,
			       uint64_t *reply, size_t reply_size)
{
	struct vg_words words = { .at = reply, .room = reply_size };
	struct shim_told told;
	struct vg_conn *conn = shim_conn(channel, &told.result);
	uint64_t since = shim_traces ? shim_trace_now() : 0;
	int error = conn ? vg_exchange(conn, op, request, request_size, &words) : 0;

	if (since && conn)
		shim_trace_wait(op, since);
	if (!conn)
		return (struct shim_told){ told.result, false };
	if (__builtin_expect(words.output, 0))
		shim_output_fetch(channel);
	told.result = error ? shim_frame_error(op, error) : (CUresult)words.status;
	told.has_data = !error && words.length && words.length == reply_size;
	/* data of another size, or none where there must be some */
	if (!error && words.length != reply_size && (words.length || told.result == CUDA_SUCCESS))
		told.result = CUDA_ERROR_UNKNOWN;
	if (told.result != CUDA_SUCCESS)
		shim_note(channel, told.result);
	return told;
}

/* A call without an answer may have failed in a capture, which is asked here. */
static inline CUresult settle(unsigned channel)
{
	return atomic_load_explicit(&shim_captures, memory_order_relaxed) ? shim_capture_settle(channel) : CUDA_SUCCESS;
}

CUresult shim_post(unsigned channel, uint32_t op, const uint64_t *request, size_t size)
{
	CUresult r;
	struct vg_conn *conn = shim_conn(channel, &r);
	int error;

	if (!conn)
		return r;
	error = vg_post_words(conn, op, request, size);
	r = __builtin_expect(!error, 1) ? settle(channel) : shim_frame_error(op, error);
	if (r != CUDA_SUCCESS)
		shim_note(channel, r);
	return r;
}

CUresult shim_send(struct shim_frame *f)
{
	int error;

	if (vg_encoder_end(&f->encoder)) {
		if (f->kind != SHIM_CACHED)
			vg_cancel(f->conn, &f->frame);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (f->kind == SHIM_CACHED)
		return cached(f);
	if (f->kind == SHIM_SYNC)
		return call(f);
	if (f->kind != SHIM_QUIET)
		return send_call(f);
	error = vg_post(f->conn, &f->frame);
	return error ? shim_channel_error(error) : settle(f->channel);
}

CUresult shim_end(struct shim_frame *f, CUresult r, bool decodes)
{
	if (decodes && f->has_data && vg_decoder_end(&f->decoder))
		r = CUDA_ERROR_UNKNOWN;
	if (decodes && r == CUDA_SUCCESS && !f->has_data)
		r = CUDA_ERROR_UNKNOWN;
	if (f->replied)
		vg_reply_done(f->conn, &f->reply);
	if (f->output)
		shim_output_fetch(f->channel);
	if (f->aside && r == CUDA_SUCCESS && f->bulk->direction == VG_BULK_TO_GUEST)
		copy_rows(f->bulk, f->aside, true);
	free(f->aside);
	if (r != CUDA_SUCCESS)
		shim_note(f->channel, r);
	return r;
}
