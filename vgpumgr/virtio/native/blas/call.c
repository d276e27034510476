/* SPDX-License-Identifier: Apache-2.0 */
/* One call: what has been set since the last, then the function with its arguments. */
#include "blas.h"
#include "family.h"

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

/* How the handle is set decides, too. */
static uint64_t kind_of(const struct blas_handle *h, const struct blas_function *f, const uint64_t *words)
{
	uint64_t kind = math_hash(f->id, (uint64_t)h->mode);

	kind = math_hash(kind, h->sent.workspace_bytes);
	kind = math_hash(kind, (uint64_t)h->sent.math << 32 | (uint32_t)h->sent.processors);
	return family_kind(math_hash(kind, (uint64_t)h->sent.atomics), f, words);
}

static int call(struct blas_handle *h, const struct blas_function *f, const uint64_t *words)
{
	uint8_t values[FAMILY_VALUES];
	struct family_frame frame;
	struct math_request request = { .stream = h->wanted.stream, .function = f->id, .name = f->name, .arguments = frame.bytes,
					.values = values, .room = sizeof(values) };
	int status = send_all_state(h);

	if (status == BLAS_OK)
		status = family_pack(f, words, h->mode, &frame) ? BLAS_OK : BLAS_NOT_SUPPORTED; /* of a type that there is not */
	if (status != BLAS_OK)
		return status;
	request.length = frame.length;
	request.mode = (h->mode ? MATH_ON_DEVICE : 0) | (h->anew ? MATH_ANEW : 0);
	request.wait = frame.answers ? MATH_ASK : MATH_POST;
	status = blas_send(h, &request, kind_of(h, f, words));
	if (status == BLAS_OK)
		h->anew = false;
	if (status == BLAS_OK && frame.answers)
		status = family_unpack(f, words, h->mode, values, request.filled) ? BLAS_OK : BLAS_INTERNAL_ERROR;
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
