/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that the library keeps what it has found in. The host has one once it is used here; it ends with the program's, or with
 * its context. None is used for another: what it was used for cannot be taken back. */
#include <stdlib.h>

#include "sparse.h"

/* Above an object's kind, so that what is none is noticed. */
#define MARK 0x7667737100000000

static const char *const names[] = {
	[SPARSE_SPGEMM] = "cusparseSpGEMM_createDescr", [SPARSE_SPSV] = "cusparseSpSV_createDescr",
	[SPARSE_SPSM] = "cusparseSpSM_createDescr", [SPARSE_BSRSV2] = "cusparseCreateBsrsv2Info",
	[SPARSE_BSRSM2] = "cusparseCreateBsrsm2Info",
};

struct sparse_object *sparse_object(const void *object, uint64_t kind)
{
	struct sparse_object *o = (void *)object;

	return o && o->kind == (MARK | kind) ? o : NULL;
}

static int make(struct sparse_handle *h, struct sparse_object *o)
{
	uint64_t nothing = 0, kind = o->kind & ~MARK;
	struct math_request request = { .handle = h->id, .function = kind, .wait = MATH_ASK, .arguments = &nothing, .values = &nothing,
					.room = sizeof(nothing), .name = names[kind] };
	int result = math_channel()->make(&request, &o->id);
	int status = result ? sparse_status(result) : request.status;

	o->keeps = 0;
	if (status != SPARSE_OK)
		o->id = 0;
	return status;
}

int sparse_find_object(struct sparse_handle *h, struct sparse_object *o)
{
	if (!o->id || !math_channel()->alive(o->id)) /* the first time, or it has ended with its context */
		return make(h, o);
	return SPARSE_OK;
}

static int create(void **object, uint64_t kind)
{
	struct sparse_object *o = object ? calloc(1, sizeof(*o)) : NULL;

	if (!object)
		return SPARSE_INVALID_VALUE;
	*object = o;
	if (!o)
		return SPARSE_ALLOC_FAILED;
	o->kind = MARK | kind;
	pthread_mutex_init(&o->lock, NULL);
	return SPARSE_OK;
}

static int destroy(void *object, uint64_t kind)
{
	struct sparse_object *o = sparse_object(object, kind);

	if (!o)
		return object ? SPARSE_INVALID_VALUE : SPARSE_OK;
	if (o->id && math_channel() && math_channel()->alive(o->id))
		math_channel()->destroy(o->id);
	o->kind = 0;
	pthread_mutex_destroy(&o->lock);
	free(o);
	return SPARSE_OK;
}

#define OBJECT(created, ended, kind)                      \
	SPARSE_FUNCTION(int, created, void **object)      \
	{                                                 \
		return create(object, kind);              \
	}                                                 \
	SPARSE_FUNCTION(int, ended, void *object)         \
	{                                                 \
		return destroy(object, kind);             \
	}

OBJECT(cusparseSpGEMM_createDescr, cusparseSpGEMM_destroyDescr, SPARSE_SPGEMM)
OBJECT(cusparseSpSV_createDescr, cusparseSpSV_destroyDescr, SPARSE_SPSV)
OBJECT(cusparseSpSM_createDescr, cusparseSpSM_destroyDescr, SPARSE_SPSM)
OBJECT(cusparseCreateBsrsv2Info, cusparseDestroyBsrsv2Info, SPARSE_BSRSV2)
OBJECT(cusparseCreateBsrsm2Info, cusparseDestroyBsrsm2Info, SPARSE_BSRSM2)
