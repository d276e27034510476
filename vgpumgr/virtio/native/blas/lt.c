/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of cuBLASLt: products are posted; what algorithms there are is asked once for each question. */
#include <stdlib.h>
#include <string.h>

#include "lt_objects.h"

enum { WORDS = 256, REPLY_BYTES = 4096, ALIGNMENT = 256 };

struct words {
	uint64_t at[WORDS];
	size_t count;
	uint64_t kind;            /* a hash of what decides whether the library does it */
	bool full;
};

static void put(struct words *w, uint64_t word)
{
	if (w->count == WORDS)
		w->full = true;
	else
		w->at[w->count++] = word;
}

/* A word that decides, too. */
static void put_kind(struct words *w, uint64_t word)
{
	put(w, word);
	w->kind = math_hash(w->kind, word);
}

static void put_algo(struct words *w, const uint64_t *algo)
{
	for (int i = 0; i < LT_ALGO_WORDS; i++)
		put_kind(w, algo[i]);
}

/* An address: that it is none, and its alignment, may decide. */
static uint64_t kind_of_address(uint64_t address)
{
	return address ? 1 + address % ALIGNMENT : 0;
}

static void put_address(struct words *w, const void *address)
{
	put(w, (uintptr_t)address);
	w->kind = math_hash(w->kind, kind_of_address((uintptr_t)address));
}

/* Values of attributes decide. */
static void hash_attributes(struct words *w, enum lt_object_kind kind, const uint64_t *packed)
{
	for (uint64_t i = 0; i < packed[0]; i++) {
		uint64_t head = packed[1 + 2 * i], value = packed[2 + 2 * i];

		w->kind = math_hash(w->kind, head);
		w->kind = math_hash(w->kind, lt_is_address(kind, (uint32_t)head) ? kind_of_address(value) : value);
	}
}

/* False: it is no such object. */
static bool put_object(struct words *w, void *opaque, enum lt_object_kind kind)
{
	const struct lt_object *o = lt_object(opaque, kind);
	size_t count = o ? lt_pack(o, w->at + w->count, WORDS - w->count) : 0;

	if (!o)
		return false;
	w->full |= !count;
	if (count)
		hash_attributes(w, kind, w->at + w->count);
	w->count += count;
	return true;
}

/* The descriptor and the layouts of a product; a layout that is the result's, too, may be missing. */
static bool put_product(struct words *w, void *desc, void *const layouts[4])
{
	bool right = put_object(w, desc, LT_DESCRIPTOR);

	for (int i = 0; i < 4 && right; i++)
		right = put_object(w, layouts[i], LT_LAYOUT);
	return right;
}

static size_t scale_bytes(uint64_t type)
{
	switch (type) {
	case 2: case 14: /* CUDA_R_16F, CUDA_R_16BF */
		return 2;
	case 1: case 4:  /* CUDA_R_64F, CUDA_C_32F */
		return 8;
	case 5:          /* CUDA_C_64F */
		return 16;
	default:
		return 4;
	}
}

static void put_scalar(struct words *w, const void *scalar, bool on_host, uint64_t type)
{
	uint64_t value[2] = { 0 };

	if (on_host)
		memcpy(value, scalar, scale_bytes(type));
	put(w, on_host ? value[0] : (uintptr_t)scalar);
	put(w, value[1]);
	/* only without a third matrix does it decide whether it is 0 */
	w->kind = math_hash(w->kind, on_host ? value[0] || value[1] : 2);
}

/* False: one that is needed is missing. */
static bool put_scalars(struct words *w, const void *alpha, const void *beta, uint64_t mode, uint64_t type)
{
	bool alpha_here = mode == LT_MODE_HOST, beta_here = alpha_here || mode == LT_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;

	if (!alpha || (!beta && mode != LT_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO))
		return false;
	put_scalar(w, alpha, alpha_here, type);
	put_scalar(w, beta, beta_here, type);
	return true;
}

static const char *name_of(uint64_t function)
{
	static const char *const names[LT_FUNCTIONS] = {
		[LT_MATMUL] = "cublasLtMatmul", [LT_HEURISTIC] = "cublasLtMatmulAlgoGetHeuristic",
		[LT_ALGO_INIT] = "cublasLtMatmulAlgoInit", [LT_ALGO_CHECK] = "cublasLtMatmulAlgoCheck",
		[LT_ALGO_IDS] = "cublasLtMatmulAlgoGetIds", [LT_ALGO_CAP] = "cublasLtMatmulAlgoCapGetAttribute",
		[LT_ALGO_CONFIG] = "cublasLtMatmulAlgoConfigGetAttribute",
		[LT_ALGO_SET] = "cublasLtMatmulAlgoConfigSetAttribute", [LT_TRANSFORM] = "cublasLtMatrixTransform",
	};

	return names[function];
}

static int send(struct blas_handle *h, uint64_t function, const struct words *w, void *stream)
{
	struct math_request request = { .stream = stream, .function = function, .name = name_of(function), .wait = MATH_POST,
					.arguments = w->at, .length = w->count * sizeof(w->at[0]) };
	int status;

	if (w->full)
		return BLAS_NOT_SUPPORTED;
	pthread_mutex_lock(&h->lock);
	status = blas_send(h, &request, math_hash(w->kind, function));
	pthread_mutex_unlock(&h->lock);
	return status;
}

/* ---- questions: the answer depends on the words alone */

static uint64_t hash_all(const struct words *w, uint64_t hash)
{
	for (size_t i = 0; i < w->count; i++)
		hash = math_hash(hash, w->at[i]);
	return hash;
}

static int ask(struct blas_handle *h, uint64_t function, const struct words *w, uint8_t *reply, size_t *length)
{
	struct math_request request = { .handle = h->id, .function = function, .name = name_of(function), .wait = MATH_ASK,
					.arguments = w->at, .length = w->count * sizeof(w->at[0]), .values = reply, .room = REPLY_BYTES };
	uint64_t hash = hash_all(w, math_hash(h->id, function)), check = hash_all(w, math_hash(hash, ~function));
	int result;

	if (w->full)
		return BLAS_NOT_SUPPORTED;
	if (math_recall(hash, check, reply, length))
		return BLAS_OK;
	result = math_channel()->call(&request);
	if (result)
		return blas_status(result);
	*length = request.filled;
	if (request.status == BLAS_OK)
		math_keep(hash, check, reply, *length);
	return request.status;
}

/* The same for an answer that is so many words. */
static int ask_words(struct blas_handle *h, uint64_t function, const struct words *w, uint64_t *answer, size_t count)
{
	uint8_t reply[REPLY_BYTES];
	size_t length = 0;
	int status = ask(h, function, w, reply, &length);

	if (status != BLAS_OK)
		return status;
	if (length != count * sizeof(*answer))
		return BLAS_INTERNAL_ERROR;
	memcpy(answer, reply, length);
	return BLAS_OK;
}

/* ---- the functions */

BLAS_API int cublasLtCreate(void **handle);
int cublasLtCreate(void **handle)
{
	return blas_create(VG_MATH_LT, handle);
}

BLAS_API int cublasLtDestroy(void *handle);
int cublasLtDestroy(void *handle)
{
	return blas_destroy(handle);
}

BLAS_API size_t cublasLtGetVersion(void);
size_t cublasLtGetVersion(void)
{
	return math_version(VG_MATH_LT);
}

BLAS_API int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
			    void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
			    const uint64_t *algo, void *workspace, size_t bytes, void *stream);
int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout,
		   const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const uint64_t *algo,
		   void *workspace, size_t bytes, void *stream)
{
	void *const layouts[] = { a_layout, b_layout, c_layout, d_layout };
	const void *const places[] = { a, b, c, d };
	struct blas_handle *h = blas_handle(handle);
	const struct lt_object *o = lt_object(desc, LT_DESCRIPTOR);
	struct words w = { .count = 0 };

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if (!put_product(&w, desc, layouts))
		return BLAS_INVALID_VALUE;
	if (!put_scalars(&w, alpha, beta, lt_value(o, LT_DESC_POINTER_MODE, 0), lt_value(o, LT_DESC_SCALE, 0)))
		return BLAS_INVALID_VALUE;
	for (int i = 0; i < 4; i++)
		put_address(&w, places[i]);
	put_address(&w, workspace);
	put_kind(&w, bytes);
	put_kind(&w, algo ? 1 : 0);
	if (algo)
		put_algo(&w, algo);
	return send(h, LT_MATMUL, &w, stream);
}

BLAS_API int cublasLtMatrixTransform(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
				     const void *beta, const void *b, void *b_layout, void *c, void *c_layout, void *stream);
int cublasLtMatrixTransform(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *beta,
			    const void *b, void *b_layout, void *c, void *c_layout, void *stream)
{
	struct blas_handle *h = blas_handle(handle);
	const struct lt_object *o = lt_object(desc, LT_TRANSFORMATION);
	struct words w = { .count = 0 };

	if (!h)
		return BLAS_NOT_INITIALIZED;
	/* without a second operand its layout is the first one's */
	if (!put_object(&w, desc, LT_TRANSFORMATION) || !put_object(&w, a_layout, LT_LAYOUT) ||
	    !put_object(&w, b_layout ? b_layout : a_layout, LT_LAYOUT) || !put_object(&w, c_layout, LT_LAYOUT))
		return BLAS_INVALID_VALUE;
	if (!put_scalars(&w, alpha, beta ? beta : b ? NULL : alpha, lt_value(o, LT_TRANSFORM_POINTER_MODE, 0),
			 lt_value(o, LT_TRANSFORM_SCALE, 0)))
		return BLAS_INVALID_VALUE;
	put_address(&w, a);
	put_address(&w, b);
	put_address(&w, c);
	return send(h, LT_TRANSFORM, &w, stream);
}

BLAS_API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
					    int wanted, uint64_t *results, int *count);
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,
				   uint64_t *results, int *count)
{
	void *const layouts[] = { a, b, c, d };
	struct blas_handle *h = blas_handle(handle);
	struct words w = { .count = 0 };
	uint8_t reply[REPLY_BYTES];
	uint64_t found = 0;
	size_t length = 0;
	int status;

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if (!results || !count || wanted <= 0 || !put_product(&w, desc, layouts) ||
	    !put_object(&w, preference, LT_PREFERENCE))
		return BLAS_INVALID_VALUE;
	put(&w, wanted < LT_RESULTS ? (uint64_t)wanted : LT_RESULTS);
	*count = 0;
	status = ask(h, LT_HEURISTIC, &w, reply, &length);
	if (status != BLAS_OK)
		return status;
	memcpy(&found, reply, sizeof(found));
	if (found > (uint64_t)wanted || length < sizeof(found) + found * LT_RESULT_WORDS * sizeof(uint64_t))
		return BLAS_INTERNAL_ERROR;
	memcpy(results, reply + sizeof(found), found * LT_RESULT_WORDS * sizeof(uint64_t));
	*count = (int)found;
	return BLAS_OK;
}

BLAS_API int cublasLtMatmulAlgoCheck(void *handle, void *desc, void *a, void *b, void *c, void *d, const uint64_t *algo,
				     uint64_t *result);
int cublasLtMatmulAlgoCheck(void *handle, void *desc, void *a, void *b, void *c, void *d, const uint64_t *algo,
			    uint64_t *result)
{
	void *const layouts[] = { a, b, c, d };
	struct blas_handle *h = blas_handle(handle);
	struct words w = { .count = 0 };

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if (!algo || !result || !put_product(&w, desc, layouts))
		return BLAS_INVALID_VALUE;
	put_algo(&w, algo);
	return ask_words(h, LT_ALGO_CHECK, &w, result, LT_RESULT_WORDS);
}

/* Types of a product, and a number. */
static void put_types(struct words *w, const int types[6], int number)
{
	for (int i = 0; i < 6; i++)
		put(w, (uint64_t)types[i]);
	put(w, (uint64_t)number);
}

BLAS_API int cublasLtMatmulAlgoInit(void *handle, int compute, int scale, int a, int b, int c, int d, int id, uint64_t *algo);
int cublasLtMatmulAlgoInit(void *handle, int compute, int scale, int a, int b, int c, int d, int id, uint64_t *algo)
{
	struct blas_handle *h = blas_handle(handle);
	struct words w = { .count = 0 };

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if (!algo)
		return BLAS_INVALID_VALUE;
	put_types(&w, (const int[]){ compute, scale, a, b, c, d }, id);
	return ask_words(h, LT_ALGO_INIT, &w, algo, LT_ALGO_WORDS);
}

BLAS_API int cublasLtMatmulAlgoGetIds(void *handle, int compute, int scale, int a, int b, int c, int d, int wanted, int *ids,
				      int *count);
int cublasLtMatmulAlgoGetIds(void *handle, int compute, int scale, int a, int b, int c, int d, int wanted, int *ids, int *count)
{
	struct blas_handle *h = blas_handle(handle);
	struct words w = { .count = 0 };
	uint64_t reply[REPLY_BYTES / sizeof(uint64_t)];
	size_t length = 0;
	int status;

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if (!ids || !count || wanted <= 0)
		return BLAS_INVALID_VALUE;
	put_types(&w, (const int[]){ compute, scale, a, b, c, d }, wanted < LT_IDS ? wanted : LT_IDS);
	status = ask(h, LT_ALGO_IDS, &w, (uint8_t *)reply, &length);
	if (status != BLAS_OK)
		return status;
	if (!length || reply[0] > (uint64_t)wanted || length < (1 + reply[0]) * sizeof(reply[0]))
		return BLAS_INTERNAL_ERROR;
	*count = (int)reply[0];
	for (int i = 0; i < *count; i++)
		ids[i] = (int)reply[1 + i];
	return BLAS_OK;
}

/* These take an algorithm only: any handle of the process will do, and one that is made for it if there is none. */
static struct blas_handle *any_handle(void)
{
	static _Atomic(void *) mine;
	void *fresh, *none = NULL;

	if (blas_handle(mine))
		return mine;
	none = mine;
	if (blas_create(VG_MATH_LT, &fresh) != BLAS_OK)
		return NULL;
	if (!atomic_compare_exchange_strong(&mine, &none, fresh))
		blas_destroy(fresh);
	return blas_handle(mine);
}

static int ask_algo(uint64_t function, const uint64_t *algo, int number, void *value, size_t bytes, size_t *written)
{
	struct blas_handle *h = any_handle();
	struct words w = { .count = 0 };
	uint8_t reply[REPLY_BYTES];
	uint64_t told = 0;
	size_t length = 0;
	int status;

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if (!algo || (bytes && !value))
		return BLAS_INVALID_VALUE;
	put_algo(&w, algo);
	put(&w, (uint64_t)number);
	put(&w, bytes < LT_CAP_BYTES ? bytes : LT_CAP_BYTES);
	status = ask(h, function, &w, reply, &length);
	if (status != BLAS_OK)
		return status;
	if (length < sizeof(told))
		return BLAS_INTERNAL_ERROR;
	memcpy(&told, reply, sizeof(told));
	if (written)
		*written = told;
	length -= sizeof(told);
	memcpy(value, reply + sizeof(told), length < bytes ? length : bytes);
	return BLAS_OK;
}

BLAS_API int cublasLtMatmulAlgoCapGetAttribute(const uint64_t *algo, int number, void *value, size_t bytes, size_t *written);
int cublasLtMatmulAlgoCapGetAttribute(const uint64_t *algo, int number, void *value, size_t bytes, size_t *written)
{
	return ask_algo(LT_ALGO_CAP, algo, number, value, bytes, written);
}

BLAS_API int cublasLtMatmulAlgoConfigGetAttribute(const uint64_t *algo, int number, void *value, size_t bytes, size_t *written);
int cublasLtMatmulAlgoConfigGetAttribute(const uint64_t *algo, int number, void *value, size_t bytes, size_t *written)
{
	return ask_algo(LT_ALGO_CONFIG, algo, number, value, bytes, written);
}

BLAS_API int cublasLtMatmulAlgoConfigSetAttribute(uint64_t *algo, int number, const void *value, size_t bytes);
int cublasLtMatmulAlgoConfigSetAttribute(uint64_t *algo, int number, const void *value, size_t bytes)
{
	struct blas_handle *h = any_handle();
	struct words w = { .count = 0 };
	uint64_t word = 0;

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if (!algo || !value || bytes > sizeof(word))
		return BLAS_INVALID_VALUE;
	memcpy(&word, value, bytes);
	put_algo(&w, algo);
	put(&w, (uint64_t)number);
	put(&w, bytes);
	put(&w, word);
	return ask_words(h, LT_ALGO_SET, &w, algo, LT_ALGO_WORDS);
}

/* The host's library has a cache of its own; so do we, of another size. */
static _Atomic size_t capacity = MATH_ANSWERS;

BLAS_API int cublasLtHeuristicsCacheGetCapacity(size_t *out);
int cublasLtHeuristicsCacheGetCapacity(size_t *out)
{
	if (!out)
		return BLAS_INVALID_VALUE;
	*out = capacity;
	return BLAS_OK;
}

BLAS_API int cublasLtHeuristicsCacheSetCapacity(size_t wanted);
int cublasLtHeuristicsCacheSetCapacity(size_t wanted)
{
	capacity = wanted;
	return BLAS_OK;
}
