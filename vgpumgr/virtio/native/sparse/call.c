/* SPDX-License-Identifier: Apache-2.0 */
/* One call: the function with its arguments, and with what descriptors among them have. */
#include <string.h>

#include "family.h"
#include "sparse.h"

enum { ALIGNMENT = 16 };

/* A call as it is about to travel; plain: the descriptors, of whose addresses only the alignment decides what the library does. */
struct call {
	struct sparse_handle *handle;
	struct sparse_object *object; /* among its arguments, or NULL */
	const struct blas_function *function;
	uint64_t words[BLAS_ARGUMENTS], plain_words[BLAS_ARGUMENTS];
	union sparse_any plain[BLAS_ARGUMENTS];
	uint8_t values[FAMILY_VALUES];
	size_t filled;
	bool on_device;
};

static uint64_t kind_of_descriptor(const struct blas_argument *a)
{
	switch (a->kind) {
	case BLAS_DNMAT:
		return SPARSE_DENSE;
	case BLAS_DNVEC:
		return SPARSE_VECTOR;
	case BLAS_SPVEC:
		return SPARSE_ENTRIES;
	default:
		return SPARSE_MATRIX;
	}
}

static void make_plain(uint64_t *address)
{
	*address = *address ? 1 + *address % ALIGNMENT : 0;
}

static void copy_plain(union sparse_any *any, const struct blas_argument *a, const void *from)
{
	memcpy(any, from, a->size);
	switch (a->kind) {
	case BLAS_DNMAT:
		make_plain(&any->dense.values);
		break;
	case BLAS_DNVEC:
		make_plain(&any->vector.values);
		break;
	case BLAS_SPVEC:
		make_plain(&any->entries.indices);
		make_plain(&any->entries.values);
		break;
	default:
		make_plain(&any->matrix.offsets);
		make_plain(&any->matrix.indices);
		make_plain(&any->matrix.values);
	}
}

/* The argument as it is known here. False: it is none. */
static bool read_one(struct call *c, unsigned int i, uint64_t word)
{
	const struct blas_argument *a = &c->function->arguments[i];
	bool there = true;

	if (a->kind == BLAS_DESCR) {
		word = sparse_settings((const void *)word);
		there = word;
	} else if (blas_is_object(a)) {
		c->object = sparse_object((const void *)word, (uint64_t)(a->kind - BLAS_SPGEMM + SPARSE_SPGEMM));
		there = c->object;
	} else if (a->kind >= BLAS_SPMAT) {
		there = sparse_descriptor((const void *)word, kind_of_descriptor(a));
	} else if (blas_is_sent(a, c->on_device) || blas_is_returned(a, c->on_device)) {
		there = word;
	}
	c->words[i] = word;
	c->plain_words[i] = blas_is_object(a) ? 0 : word;
	if (there && a->kind >= BLAS_SPMAT) {
		copy_plain(&c->plain[i], a, (const void *)word);
		c->plain_words[i] = (uintptr_t)&c->plain[i];
	}
	return there;
}

/* Under the locks of the handle and of the object, if it is SPARSE_OK. On the host a posted call that waits for another's object
 * would hold up all that the process sends, also what that other one waits for. */
static int begin(struct call *c, void *handle, const struct blas_function *f, const uint64_t *words)
{
	bool there = true;

	c->handle = sparse_handle(handle);
	c->function = f;
	if (!c->handle)
		return SPARSE_NOT_INITIALIZED;
	pthread_mutex_lock(&c->handle->lock);
	c->on_device = c->handle->mode;
	for (unsigned int i = 0; i < f->count && there; i++)
		there = read_one(c, i, words[i]);
	if (!there)
		pthread_mutex_unlock(&c->handle->lock);
	else if (c->object)
		pthread_mutex_lock(&c->object->lock);
	return there ? SPARSE_OK : SPARSE_INVALID_VALUE;
}

/* A pivot that is zero is said with where it is. */
static int end(struct call *c, int status)
{
	if (c->object)
		pthread_mutex_unlock(&c->object->lock);
	pthread_mutex_unlock(&c->handle->lock);
	if (status != SPARSE_OK && status != SPARSE_ZERO_PIVOT)
		return status;
	return family_unpack(c->function, c->words, c->on_device, c->values, c->filled) ? status : SPARSE_INTERNAL_ERROR;
}

/* The host's number for an object takes the place of its address here. What the library does with one depends on what that keeps:
 * an error that is documented for the call, as that of a solution without an analysis, must not come later. */
static int put_object(struct call *c, struct family_frame *frame)
{
	int status = c->object ? sparse_find_object(c->handle, c->object) : SPARSE_OK;

	for (unsigned int i = 0; i < c->function->count && status == SPARSE_OK; i++)
		if (blas_is_object(&c->function->arguments[i])) {
			memcpy(frame->bytes + i * sizeof(c->object->id), &c->object->id, sizeof(c->object->id));
			c->plain_words[i] = c->function->role == BLAS_PREPARES ? 0 : c->object->keeps;
		}
	return status;
}

static uint64_t kind_of(const struct call *c, uint64_t seed)
{
	return family_kind(math_hash(math_hash(seed, c->function->id), c->on_device), c->function, c->plain_words);
}

static int send(struct call *c, bool wait)
{
	struct family_frame frame;
	struct math_request request = {
		.handle = c->handle->id, .stream = c->handle->stream, .function = c->function->id, .name = c->function->name,
		.mode = c->on_device ? MATH_ON_DEVICE : 0, .arguments = frame.bytes, .values = c->values, .room = sizeof(c->values),
	};
	bool prepares = c->function->role == BLAS_PREPARES;
	int status, result;

	/* of a type that there is not */
	if (!family_pack(c->function, c->words, c->on_device, &frame))
		return SPARSE_NOT_SUPPORTED;
	status = put_object(c, &frame);
	if (status != SPARSE_OK)
		return status;
	request.length = frame.length;
	request.wait = wait || frame.answers ? MATH_ASK : prepares ? MATH_TRY : MATH_POST;
	result = math_send(&c->handle->known, &request, kind_of(c, 0));
	c->filled = request.filled;
	status = result ? sparse_status(result) : request.status;
	if (prepares)
		c->object->keeps = status == SPARSE_OK ? kind_of(c, 0) : 0;
	return status;
}

int sparse_call(void *handle, const struct blas_function *f, const uint64_t *words)
{
	struct call c = { .filled = 0 };
	int status = begin(&c, handle, f, words);

	return status == SPARSE_OK ? end(&c, send(&c, false)) : status;
}

int sparse_wait(void *handle, const struct blas_function *f, const uint64_t *words)
{
	struct call c = { .filled = 0 };
	int status = begin(&c, handle, f, words);

	return status == SPARSE_OK ? end(&c, send(&c, true)) : status;
}

int sparse_ask(void *handle, const struct blas_function *f, const uint64_t *words)
{
	struct call c = { .filled = 0 };
	uint64_t hash, check;
	int status = begin(&c, handle, f, words);

	if (status != SPARSE_OK)
		return status;
	hash = kind_of(&c, c.handle->id);
	check = kind_of(&c, ~hash);
	if (!math_recall(hash, check, c.values, &c.filled)) {
		status = send(&c, true);
		if (status == SPARSE_OK)
			math_keep(hash, check, c.values, c.filled);
	}
	return end(&c, status);
}
