/* SPDX-License-Identifier: Apache-2.0 */
/* One call: what has been set since the last, then the function with its arguments. */
#include <string.h>

#include "blas.h"

enum { BYTES_MAX = 2048, VALUES_MAX = 4096, ALIGNMENT = 16 };

int blas_send(struct blas_handle *h, struct math_request *request, uint64_t kind)
{
	int result;

	request->handle = h->id;
	result = math_send(&h->known, request, kind);
	return result ? blas_status(result) : request->status;
}

/* ---- what has been set */

static int send_state(struct blas_handle *h, unsigned int place, const uint64_t *words)
{
	const struct blas_function *f = &blas_functions[place];
	struct math_request request = { .stream = h->wanted.stream, .function = f->id, .name = f->name, .mode = h->anew ? MATH_ANEW : 0,
					.wait = MATH_TRY, .arguments = words, .length = f->count * sizeof(*words) };
	int status;

	request.handle = h->id;
	status = blas_status(math_channel()->call(&request));
	if (status == BLAS_OK)
		status = request.status;
	if (status == BLAS_OK)
		h->anew = false;
	return status;
}

static int send_number(struct blas_handle *h, unsigned int place, int wanted, int *sent)
{
	uint64_t word = (uint64_t)wanted;
	int status;

	if (wanted == *sent)
		return BLAS_OK;
	status = send_state(h, place, &word);
	if (status == BLAS_OK)
		*sent = wanted;
	return status;
}

/* Setting a stream has the library take its own workspace again, as documented; most programs then give it theirs. */
static int send_workspace(struct blas_handle *h)
{
	const struct blas_state *w = &h->wanted;
	struct blas_state *s = &h->sent;
	uint64_t words[] = { (uintptr_t)w->workspace, w->workspace_bytes };
	int status;

	if (s->workspace && (w->stream != s->stream || !w->workspace)) {
		h->anew = h->anew || !w->workspace;
		s->workspace = NULL;
		s->workspace_bytes = 0;
	}
	s->stream = w->stream;
	if (w->workspace == s->workspace && w->workspace_bytes == s->workspace_bytes)
		return BLAS_OK;
	status = send_state(h, BLAS_SETWORKSPACE_V2, words);
	if (status == BLAS_OK) {
		s->workspace = w->workspace;
		s->workspace_bytes = w->workspace_bytes;
	}
	return status;
}

int blas_send_numbers(struct blas_handle *h)
{
	int status = send_number(h, BLAS_SETMATHMODE, h->wanted.math, &h->sent.math);

	if (status == BLAS_OK)
		status = send_number(h, BLAS_SETATOMICSMODE, h->wanted.atomics, &h->sent.atomics);
	return status == BLAS_OK ? send_number(h, BLAS_SETSMCOUNTTARGET, h->wanted.processors, &h->sent.processors) : status;
}

static int send_all_state(struct blas_handle *h)
{
	int status = send_workspace(h);

	return status == BLAS_OK ? blas_send_numbers(h) : status;
}

/* ---- a function */

struct frame {
	_Alignas(8) uint8_t bytes[BYTES_MAX];
	size_t length;
	bool answers;
	uint64_t kind;
};

static bool is_value(const struct blas_argument *a, bool on_device)
{
	return blas_is_sent(a, on_device) || blas_is_returned(a, on_device);
}

/* Sizes and types decide what the library does, how the handle is set, and of addresses of matrices their alignment. */
static uint64_t kind_of(const struct blas_handle *h, const struct blas_function *f, const uint64_t *words)
{
	uint64_t kind = math_hash(f->id, (uint64_t)h->mode);

	kind = math_hash(kind, h->sent.workspace_bytes);
	kind = math_hash(kind, (uint64_t)h->sent.math << 32 | (uint32_t)h->sent.processors);
	kind = math_hash(kind, (uint64_t)h->sent.atomics);
	for (unsigned int i = 0; i < f->count; i++) {
		enum blas_kind what = f->arguments[i].kind;
		uint64_t address = what == BLAS_DEVICE && words[i] ? 1 + words[i] % ALIGNMENT : words[i] != 0;

		kind = math_hash(kind, what < BLAS_DEVICE ? words[i] : address);
	}
	return kind;
}

static int pack(const struct blas_handle *h, const struct blas_function *f, const uint64_t *words, struct frame *frame)
{
	bool on_device = h->mode;

	memcpy(frame->bytes, words, f->count * sizeof(*words));
	frame->length = f->count * sizeof(*words);
	frame->answers = false;
	for (unsigned int i = 0; i < f->count; i++) {
		const struct blas_argument *a = &f->arguments[i];
		size_t bytes;

		if (!is_value(a, on_device))
			continue;
		bytes = blas_value_bytes(f, words, i);
		frame->answers |= blas_is_returned(a, on_device);
		if (!bytes) /* of a type that there is not */
			return BLAS_NOT_SUPPORTED;
		if (!blas_is_sent(a, on_device))
			continue;
		memset(frame->bytes + frame->length, 0, blas_padded(bytes));
		if (words[i])
			memcpy(frame->bytes + frame->length, (const void *)words[i], bytes);
		frame->length += blas_padded(bytes);
	}
	frame->kind = kind_of(h, f, words);
	return BLAS_OK;
}

static int unpack(const struct blas_function *f, const uint64_t *words, int mode, const uint8_t *values, size_t length)
{
	for (unsigned int i = 0; i < f->count; i++) {
		size_t bytes = blas_value_bytes(f, words, i), padded = blas_padded(bytes);

		if (!blas_is_returned(&f->arguments[i], mode))
			continue;
		if (padded > length)
			return BLAS_INTERNAL_ERROR;
		if (words[i])
			memcpy((void *)words[i], values, bytes);
		values += padded;
		length -= padded;
	}
	return BLAS_OK;
}

static int call(struct blas_handle *h, const struct blas_function *f, const uint64_t *words)
{
	uint8_t values[VALUES_MAX];
	struct frame frame;
	struct math_request request = { .stream = h->wanted.stream, .function = f->id, .name = f->name, .arguments = frame.bytes,
					.values = values, .room = sizeof(values) };
	int status = send_all_state(h);

	if (status == BLAS_OK)
		status = pack(h, f, words, &frame);
	if (status != BLAS_OK)
		return status;
	request.length = frame.length;
	request.mode = (h->mode ? MATH_ON_DEVICE : 0) | (h->anew ? MATH_ANEW : 0);
	request.wait = frame.answers ? MATH_ASK : MATH_POST;
	status = blas_send(h, &request, frame.kind);
	if (status == BLAS_OK)
		h->anew = false;
	if (status == BLAS_OK && frame.answers)
		status = unpack(f, words, h->mode, values, request.filled);
	return status;
}

int blas_call(void *handle, const struct blas_function *f, const uint64_t *words)
{
	struct blas_handle *h = blas_handle(handle);
	int status;

	if (!h || h->library != VG_MATH_BLAS)
		return BLAS_NOT_INITIALIZED;
	pthread_mutex_lock(&h->lock);
	status = call(h, f, words);
	pthread_mutex_unlock(&h->lock);
	return status;
}
