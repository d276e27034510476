/* SPDX-License-Identifier: Apache-2.0 */
/* One call: what the handle has been set to since the last, then the function with its arguments. */
#include <string.h>

#include "family.h"
#include "solver.h"

static struct solver_object *object_of(const struct blas_argument *a, uint64_t word)
{
	return solver_object((void *)word, a->kind == BLAS_SYEVJ ? SOLVER_SYEVJ : SOLVER_GESVDJ);
}

/* The arguments as they are known here. False: one is none. */
static bool read(const struct blas_function *f, const uint64_t *words, uint64_t *own)
{
	for (unsigned int i = 0; i < f->count; i++) {
		const struct blas_argument *a = &f->arguments[i];

		own[i] = words[i];
		if (a->kind == BLAS_PARAMS && !solver_read_params((const void *)words[i], &own[i]))
			return false;
		if ((blas_is_object(a) && !object_of(a, words[i])) || (a->kind == BLAS_HOST && !words[i]))
			return false;
	}
	return true;
}

/* The host's number for an object takes the place of its address here. */
static int put_objects(struct solver_handle *h, const struct blas_function *f, const uint64_t *own, struct family_frame *frame)
{
	int status = SOLVER_OK;

	for (unsigned int i = 0; i < f->count && status == SOLVER_OK; i++) {
		struct solver_object *o = blas_is_object(&f->arguments[i]) ? object_of(&f->arguments[i], own[i]) : NULL;

		if (!o)
			continue;
		/* its results are the object's, whichever handle asks for them */
		if (f->arguments[i].size || !o->id || !math_channel()->alive(o->id))
			status = solver_find_object(h, o);
		memcpy(frame->bytes + i * sizeof(o->id), &o->id, sizeof(o->id));
	}
	return status;
}

static int send(struct solver_handle *h, const struct blas_function *f, struct math_request *request, uint64_t kind)
{
	int result;

	request->handle = h->id;
	request->stream = h->stream;
	request->function = f->id;
	request->name = f->name;
	result = math_send(&h->known, request, kind);
	return result ? solver_status(result) : request->status;
}

static int send_mode(struct solver_handle *h)
{
	uint64_t word = (uint64_t)h->mode;
	struct math_request request = { .arguments = &word, .length = sizeof(word), .wait = MATH_TRY };
	int status;

	if (h->mode == h->sent_mode)
		return SOLVER_OK;
	status = send(h, &solver_functions[SOLVER_SETDETERMINISTICMODE], &request, word);
	if (status == SOLVER_OK)
		h->sent_mode = h->mode;
	return status;
}

static uint64_t kind_of(const struct solver_handle *h, uint64_t seed, const struct blas_function *f, const uint64_t *own)
{
	return family_kind(math_hash(math_hash(seed, f->id), (uint64_t)h->mode), f, own);
}

/* A call's object, locked until it has been answered or sent; or NULL. On the host a posted call that waits for another's object
 * would hold up all that the process sends, also what that other one waits for. */
static struct solver_object *take_object(const struct blas_function *f, const uint64_t *own)
{
	struct solver_object *o = NULL;

	for (unsigned int i = 0; i < f->count && !o; i++)
		o = blas_is_object(&f->arguments[i]) ? object_of(&f->arguments[i], own[i]) : NULL;
	if (o)
		pthread_mutex_lock(&o->lock);
	return o;
}

/* The values that came, and how many bytes they are. */
static int call_alone(struct solver_handle *h, const struct blas_function *f, const uint64_t *own, uint8_t *values, size_t *filled)
{
	struct family_frame frame;
	struct math_request request = { .arguments = frame.bytes, .values = values, .room = FAMILY_VALUES };
	int status = send_mode(h);

	if (status == SOLVER_OK && !family_pack(f, own, false, &frame))
		status = SOLVER_INTERNAL_ERROR;
	if (status == SOLVER_OK)
		status = put_objects(h, f, own, &frame);
	if (status != SOLVER_OK)
		return status;
	request.length = frame.length;
	request.wait = frame.answers ? MATH_ASK : MATH_POST;
	status = send(h, f, &request, kind_of(h, 0, f, own));
	*filled = request.filled;
	return status;
}

static int call(struct solver_handle *h, const struct blas_function *f, const uint64_t *own, uint8_t *values, size_t *filled)
{
	struct solver_object *o = take_object(f, own);
	int status = call_alone(h, f, own, values, filled);

	if (o)
		pthread_mutex_unlock(&o->lock);
	return status;
}

static int give(const struct blas_function *f, const uint64_t *own, const uint8_t *values, size_t filled)
{
	return family_unpack(f, own, false, values, filled) ? SOLVER_OK : SOLVER_INTERNAL_ERROR;
}

int solver_call(void *handle, const struct blas_function *f, const uint64_t *words)
{
	struct solver_handle *h = solver_handle(handle);
	uint8_t values[FAMILY_VALUES];
	uint64_t own[BLAS_ARGUMENTS];
	size_t filled = 0;
	int status;

	if (!h)
		return SOLVER_NOT_INITIALIZED;
	if (!read(f, words, own))
		return SOLVER_INVALID_VALUE;
	pthread_mutex_lock(&h->lock);
	status = call(h, f, own, values, &filled);
	pthread_mutex_unlock(&h->lock);
	return status == SOLVER_OK ? give(f, own, values, filled) : status;
}

int solver_ask(void *handle, const struct blas_function *f, const uint64_t *words)
{
	struct solver_handle *h = solver_handle(handle);
	uint64_t own[BLAS_ARGUMENTS], hash, check;
	uint8_t values[FAMILY_VALUES];
	size_t filled = 0;
	int status = SOLVER_OK;

	if (!h)
		return SOLVER_NOT_INITIALIZED;
	if (!read(f, words, own))
		return SOLVER_INVALID_VALUE;
	pthread_mutex_lock(&h->lock);
	hash = kind_of(h, h->id, f, own);
	check = kind_of(h, ~hash, f, own);
	if (!math_recall(hash, check, values, &filled)) {
		status = call(h, f, own, values, &filled);
		if (status == SOLVER_OK)
			math_keep(hash, check, values, filled);
	}
	pthread_mutex_unlock(&h->lock);
	return status == SOLVER_OK ? give(f, own, values, filled) : status;
}
