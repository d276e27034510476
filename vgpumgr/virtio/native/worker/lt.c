/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of cuBLASLt. Descriptors are made from what the guest has set, for one call. */
#include <string.h>

#include "blas_functions.h"
#include "lt_wire.h"
#include "mathematics.h"

struct reader {
	const uint8_t *at;
	size_t left;
	bool wrong;               /* too short, or what cannot be */
};

struct attribute {
	uint32_t number, bytes;
	uint64_t value;
};

struct attributes {
	uint32_t count;
	struct attribute at[LT_ATTRIBUTES];
};

/* Of the library. */
static void *lt(const char *name)
{
	return wk_math_function(VG_MATH_LT, name);
}

static uint64_t take_word(struct reader *r)
{
	uint64_t word = 0;

	if (r->left < sizeof(word)) {
		r->wrong = true;
		return 0;
	}
	memcpy(&word, r->at, sizeof(word));
	r->at += sizeof(word);
	r->left -= sizeof(word);
	return word;
}

static void take_words(struct reader *r, uint64_t *words, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		words[i] = take_word(r);
}

static bool has(const struct attributes *list, uint32_t number)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (list->at[i].number == number)
			return true;
	return false;
}

/*
 * Each attribute once, of the size that it has, and no value beyond that: what is read here is what the library gets. An
 * attribute that is not known here might be an address of this process.
 */
static void take_attributes(struct reader *r, enum lt_object_kind kind, struct attributes *list)
{
	uint64_t count = take_word(r);

	list->count = 0;
	if (count > LT_ATTRIBUTES)
		r->wrong = true;
	for (uint64_t i = 0; i < count && !r->wrong; i++) {
		uint64_t head = take_word(r);
		struct attribute a = { (uint32_t)head, (uint32_t)(head >> 32), take_word(r) };

		if (!a.bytes || a.bytes != lt_attribute_bytes(kind, a.number) || has(list, a.number) ||
		    (a.bytes < sizeof(a.value) && a.value >> 8 * a.bytes))
			r->wrong = true;
		list->at[list->count++] = a;
	}
}

static uint64_t value_of(const struct attributes *list, uint32_t number)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (list->at[i].number == number)
			return list->at[i].value;
	return 0;
}

/* ---- descriptors */

static const struct {
	const char *create, *set, *destroy;
} made[] = {
	[LT_DESCRIPTOR] = { "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute", "cublasLtMatmulDescDestroy" },
	[LT_LAYOUT] = { "cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutSetAttribute", "cublasLtMatrixLayoutDestroy" },
	[LT_PREFERENCE] = { "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute",
			 "cublasLtMatmulPreferenceDestroy" },
	[LT_TRANSFORMATION] = { "cublasLtMatrixTransformDescCreate", "cublasLtMatrixTransformDescSetAttribute",
			"cublasLtMatrixTransformDescDestroy" },
};

static int create(enum lt_object_kind kind, const struct attributes *list, void **object)
{
	void *function = lt(made[kind].create);

	if (!function)
		return MATH_NOT_SUPPORTED;
	switch (kind) {
	case LT_DESCRIPTOR:
		return ((int (*)(void **, int, int))function)(object, (int)value_of(list, LT_DESC_COMPUTE),
							      (int)value_of(list, LT_DESC_SCALE));
	case LT_LAYOUT:
		return ((int (*)(void **, int, uint64_t, uint64_t, int64_t))function)(
			object, (int)value_of(list, LT_LAYOUT_TYPE), value_of(list, LT_LAYOUT_ROWS),
			value_of(list, LT_LAYOUT_COLS), (int64_t)value_of(list, LT_LAYOUT_LD));
	case LT_TRANSFORMATION:
		return ((int (*)(void **, int))function)(object, (int)value_of(list, LT_TRANSFORM_SCALE));
	default:
		return ((int (*)(void **))function)(object);
	}
}

static int set_all(enum lt_object_kind kind, const struct attributes *list, void *object)
{
	int (*set)(void *, int, const void *, size_t);
	int status = MATH_OK;

	*(void **)&set = lt(made[kind].set);
	if (!set)
		return MATH_NOT_SUPPORTED;
	for (uint32_t i = 0; i < list->count && status == MATH_OK; i++)
		status = set(object, (int)list->at[i].number, &list->at[i].value, list->at[i].bytes);
	return status;
}

struct objects {
	enum lt_object_kind kind[6];
	void *at[6];
	unsigned int count;
};

static void drop(struct objects *objects)
{
	while (objects->count) {
		int (*destroy)(void *);

		objects->count--;
		*(void **)&destroy = lt(made[objects->kind[objects->count]].destroy);
		if (destroy)
			destroy(objects->at[objects->count]);
	}
}

static int add(struct objects *objects, struct reader *r, enum lt_object_kind kind, struct attributes *list)
{
	void *object = NULL;
	int status;

	take_attributes(r, kind, list);
	if (r->wrong)
		return MATH_INVALID_VALUE;
	status = create(kind, list, &object);
	if (status != MATH_OK)
		return status;
	objects->kind[objects->count] = kind;
	objects->at[objects->count++] = object;
	return set_all(kind, list, object);
}

/* The descriptor, and so many layouts. */
static int add_all(struct objects *objects, struct reader *r, enum lt_object_kind kind, unsigned int layouts, struct attributes *list)
{
	struct attributes other;
	int status = add(objects, r, kind, list);

	for (unsigned int i = 0; i < layouts && status == MATH_OK; i++)
		status = add(objects, r, LT_LAYOUT, &other);
	return status;
}

/* ---- calls */

/* A posted call has no place for an answer. */
static void give(struct math_call *call, const void *data, size_t bytes)
{
	if (!bytes || bytes > call->room - call->filled)
		return;
	memcpy(call->values + call->filled, data, bytes);
	call->filled += bytes;
}

static void give_word(struct math_call *call, uint64_t word)
{
	give(call, &word, sizeof(word));
}

struct scalars {
	_Alignas(16) uint64_t alpha[2];
	_Alignas(16) uint64_t beta[2];
	const void *at[2];
};

/* Only these modes say that a scalar is on the device; whatever else a guest says, the library gets a copy of ours. */
static void take_scalars(struct reader *r, uint64_t mode, struct scalars *s)
{
	bool both = mode == LT_MODE_DEVICE || mode == LT_MODE_DEVICE_VECTOR || mode == LT_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO;

	take_words(r, s->alpha, 2);
	take_words(r, s->beta, 2);
	s->at[0] = both || mode == LT_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST ? (const void *)s->alpha[0] : (const void *)s->alpha;
	s->at[1] = both ? (const void *)s->beta[0] : (const void *)s->beta;
}

static int multiply(struct math_call *call, void *handle, struct reader *r, struct objects *o)
{
	int (*function)(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *,
			void *, void *, void *, const uint64_t *, void *, size_t, CUstream);
	uint64_t places[4], workspace[2], has_algo, algo[LT_ALGO_WORDS] = { 0 };
	struct attributes list;
	struct scalars s;
	int status = add_all(o, r, LT_DESCRIPTOR, 4, &list);

	if (status != MATH_OK)
		return status;
	take_scalars(r, value_of(&list, LT_DESC_POINTER_MODE), &s);
	take_words(r, places, 4);
	take_words(r, workspace, 2);
	has_algo = take_word(r);
	if (has_algo)
		take_words(r, algo, LT_ALGO_WORDS);
	*(void **)&function = lt("cublasLtMatmul");
	if (r->wrong || r->left || !function)
		return function ? MATH_INVALID_VALUE : MATH_NOT_SUPPORTED;
	return function(handle, o->at[0], s.at[0], (void *)places[0], o->at[1], (void *)places[1], o->at[2], s.at[1],
			(void *)places[2], o->at[3], (void *)places[3], o->at[4], has_algo ? algo : NULL,
			(void *)workspace[0], workspace[1], call->stream);
}

static int transform(struct math_call *call, void *handle, struct reader *r, struct objects *o)
{
	int (*function)(void *, void *, const void *, const void *, void *, const void *, const void *, void *, void *, void *,
			CUstream);
	struct attributes list;
	struct scalars s;
	uint64_t places[3];
	int status = add_all(o, r, LT_TRANSFORMATION, 3, &list);

	if (status != MATH_OK)
		return status;
	take_scalars(r, value_of(&list, LT_TRANSFORM_POINTER_MODE), &s);
	take_words(r, places, 3);
	*(void **)&function = lt("cublasLtMatrixTransform");
	if (r->wrong || r->left || !function)
		return function ? MATH_INVALID_VALUE : MATH_NOT_SUPPORTED;
	return function(handle, o->at[0], s.at[0], (void *)places[0], o->at[1], s.at[1], (void *)places[1], o->at[2],
			(void *)places[2], o->at[3], call->stream);
}

static int find_algorithms(struct math_call *call, void *handle, struct reader *r, struct objects *o)
{
	int (*function)(void *, void *, void *, void *, void *, void *, void *, int, uint64_t *, int *);
	uint64_t results[LT_RESULTS * LT_RESULT_WORDS] = { 0 }, wanted;
	struct attributes list;
	int count = 0, status = add_all(o, r, LT_DESCRIPTOR, 4, &list);

	if (status == MATH_OK)
		status = add(o, r, LT_PREFERENCE, &list);
	if (status != MATH_OK)
		return status;
	wanted = take_word(r);
	*(void **)&function = lt("cublasLtMatmulAlgoGetHeuristic");
	if (r->wrong || r->left || !wanted || wanted > LT_RESULTS || !function)
		return function ? MATH_INVALID_VALUE : MATH_NOT_SUPPORTED;
	status = function(handle, o->at[0], o->at[1], o->at[2], o->at[3], o->at[4], o->at[5], (int)wanted, results,
			  &count);
	if (status == MATH_OK && count >= 0 && count <= LT_RESULTS) {
		give_word(call, (uint64_t)count);
		give(call, results, (size_t)count * LT_RESULT_WORDS * sizeof(uint64_t));
	}
	return status;
}

static int check_algorithm(struct math_call *call, void *handle, struct reader *r, struct objects *o)
{
	int (*function)(void *, void *, void *, void *, void *, void *, const uint64_t *, uint64_t *);
	uint64_t algo[LT_ALGO_WORDS], result[LT_RESULT_WORDS] = { 0 };
	struct attributes list;
	int status = add_all(o, r, LT_DESCRIPTOR, 4, &list);

	if (status != MATH_OK)
		return status;
	take_words(r, algo, LT_ALGO_WORDS);
	*(void **)&function = lt("cublasLtMatmulAlgoCheck");
	if (r->wrong || r->left || !function)
		return function ? MATH_INVALID_VALUE : MATH_NOT_SUPPORTED;
	status = function(handle, o->at[0], o->at[1], o->at[2], o->at[3], o->at[4], algo, result);
	if (status == MATH_OK)
		give(call, result, sizeof(result));
	return status;
}

static int init_algorithm(struct math_call *call, void *handle, struct reader *r)
{
	int (*function)(void *, int, int, int, int, int, int, int, uint64_t *);
	uint64_t w[7], algo[LT_ALGO_WORDS] = { 0 };
	int status;

	take_words(r, w, 7);
	*(void **)&function = lt("cublasLtMatmulAlgoInit");
	if (r->wrong || r->left || !function)
		return function ? MATH_INVALID_VALUE : MATH_NOT_SUPPORTED;
	status = function(handle, (int)w[0], (int)w[1], (int)w[2], (int)w[3], (int)w[4], (int)w[5], (int)w[6], algo);
	if (status == MATH_OK)
		give(call, algo, sizeof(algo));
	return status;
}

static int list_algorithms(struct math_call *call, void *handle, struct reader *r)
{
	int (*function)(void *, int, int, int, int, int, int, int, int *, int *);
	int ids[LT_IDS] = { 0 }, count = 0, status;
	uint64_t w[7];

	take_words(r, w, 7);
	*(void **)&function = lt("cublasLtMatmulAlgoGetIds");
	if (r->wrong || r->left || !w[6] || w[6] > LT_IDS || !function)
		return function ? MATH_INVALID_VALUE : MATH_NOT_SUPPORTED;
	status = function(handle, (int)w[0], (int)w[1], (int)w[2], (int)w[3], (int)w[4], (int)w[5], (int)w[6], ids,
			  &count);
	if (status == MATH_OK && count >= 0 && count <= LT_IDS) {
		give_word(call, (uint64_t)count);
		for (int i = 0; i < count; i++)
			give_word(call, (uint64_t)ids[i]);
	}
	return status;
}

static int ask_algorithm(struct math_call *call, struct reader *r, const char *name)
{
	int (*function)(const uint64_t *, int, void *, size_t, size_t *);
	_Alignas(8) uint8_t value[LT_CAP_BYTES] = { 0 };
	uint64_t algo[LT_ALGO_WORDS], attribute, room;
	size_t written = 0;
	int status;

	take_words(r, algo, LT_ALGO_WORDS);
	attribute = take_word(r);
	room = take_word(r);
	*(void **)&function = lt(name);
	if (r->wrong || r->left || room > sizeof(value) || !function)
		return function ? MATH_INVALID_VALUE : MATH_NOT_SUPPORTED;
	status = function(algo, (int)attribute, room ? value : NULL, room, &written);
	if (status == MATH_OK) {
		give_word(call, written);
		give(call, value, written < room ? written : room);
	}
	return status;
}

static int set_algorithm(struct math_call *call, struct reader *r)
{
	int (*function)(uint64_t *, int, const void *, size_t);
	uint64_t algo[LT_ALGO_WORDS], attribute, bytes, value;
	int status;

	take_words(r, algo, LT_ALGO_WORDS);
	attribute = take_word(r);
	bytes = take_word(r);
	value = take_word(r);
	*(void **)&function = lt("cublasLtMatmulAlgoConfigSetAttribute");
	if (r->wrong || r->left || bytes > sizeof(value) || !function)
		return function ? MATH_INVALID_VALUE : MATH_NOT_SUPPORTED;
	status = function(algo, (int)attribute, &value, bytes);
	if (status == MATH_OK)
		give(call, algo, sizeof(algo));
	return status;
}

static void *find_handle(struct wk_math *math)
{
	int (*create)(void **);

	if (math->library == VG_MATH_LT)
		return math->handle;
	*(void **)&create = lt("cublasLtCreate");
	if (!math->lt && create && create(&math->lt) != MATH_OK)
		math->lt = NULL;
	return math->lt;
}

int wk_lt_call(struct math_call *call)
{
	struct reader r = { call->arguments, call->length, false };
	struct objects objects = { .count = 0 };
	void *handle = find_handle(call->math);
	int status = MATH_NOT_SUPPORTED;

	if (!handle)
		return MATH_NOT_SUPPORTED;

	switch (call->function) {
	case LT_MATMUL:
		status = multiply(call, handle, &r, &objects);
		break;
	case LT_HEURISTIC:
		status = find_algorithms(call, handle, &r, &objects);
		break;
	case LT_ALGO_INIT:
		status = init_algorithm(call, handle, &r);
		break;
	case LT_ALGO_CHECK:
		status = check_algorithm(call, handle, &r, &objects);
		break;
	case LT_ALGO_IDS:
		status = list_algorithms(call, handle, &r);
		break;
	case LT_ALGO_CAP:
		status = ask_algorithm(call, &r, "cublasLtMatmulAlgoCapGetAttribute");
		break;
	case LT_ALGO_CONFIG:
		status = ask_algorithm(call, &r, "cublasLtMatmulAlgoConfigGetAttribute");
		break;
	case LT_ALGO_SET:
		status = set_algorithm(call, &r);
		break;
	case LT_TRANSFORM:
		status = transform(call, handle, &r, &objects);
		break;
	default:
		break;
	}
	drop(&objects);
	return status;
}
