/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuSPARSE: what calls have beside plain arguments (blas.c). A descriptor is made of what came with the call, and ends with it;
 * those that an object was used with stay the object's, as the library may know them from one call to the next. All sizes in
 * a descriptor are the library's to judge: nothing here computes with them.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "blas_functions.h"
#include "mathematics.h"
#include "sparse_wire.h"

/* Looked up once, by the literal. */
#define SPARSE(name) wk_math_function(VG_MATH_SPARSE, name)

enum { KEPT = 3 };

/* ---- descriptors */

static bool is_wrong(const struct sparse_matrix *m)
{
	return m->base > 1 || m->fill > 2 || m->diag > 2 || m->rows < 0 || m->cols < 0 || m->nnz < 0 || m->batch < 1 || m->batch > INT_MAX;
}

static int set_attribute(void *descriptor, int attribute, int value)
{
	int (*set)(void *, int, void *, size_t);

	*(void **)&set = SPARSE("cusparseSpMatSetAttribute");
	return set ? set(descriptor, attribute, &value, sizeof(value)) : SPARSE_NOT_SUPPORTED;
}

static int set_batch(void *descriptor, const struct sparse_matrix *m)
{
	int (*two)(void *, int, int64_t, int64_t), (*one)(void *, int, int64_t), (*three)(void *, int, int64_t, int64_t, int64_t);

	*(void **)&two = SPARSE("cusparseCsrSetStridedBatch");
	*(void **)&one = SPARSE("cusparseCooSetStridedBatch");
	*(void **)&three = SPARSE("cusparseBsrSetStridedBatch");
	if (m->format == SPARSE_CSR && two)
		return two(descriptor, (int)m->batch, m->offsets_stride, m->values_stride);
	if (m->format == SPARSE_COO && one)
		return one(descriptor, (int)m->batch, m->values_stride);
	if (m->format == SPARSE_BSR && three)
		return three(descriptor, (int)m->batch, m->offsets_stride, m->cols_stride, m->values_stride);
	return SPARSE_NOT_SUPPORTED;
}

static int create_format(void **descriptor, const struct sparse_matrix *m)
{
	int (*offsets)(void **, int64_t, int64_t, int64_t, void *, void *, void *, int, int, int, int);
	int (*pairs)(void **, int64_t, int64_t, int64_t, void *, void *, void *, int, int, int);
	int (*blocks)(void **, int64_t, int64_t, int64_t, int64_t, int64_t, void *, void *, void *, int, int, int, int, int);
	void *o = (void *)m->offsets, *i = (void *)m->indices, *v = (void *)m->values;

	switch (m->format) {
	case SPARSE_CSR:
	case SPARSE_CSC:
		*(void **)&offsets = m->format == SPARSE_CSR ? SPARSE("cusparseCreateCsr") : SPARSE("cusparseCreateCsc");
		return offsets ? offsets(descriptor, m->rows, m->cols, m->nnz, o, i, v, m->offsets_type, m->indices_type, m->base, m->type) :
				 SPARSE_NOT_SUPPORTED;
	case SPARSE_COO:
		*(void **)&pairs = SPARSE("cusparseCreateCoo");
		return pairs ? pairs(descriptor, m->rows, m->cols, m->nnz, o, i, v, m->indices_type, m->base, m->type) : SPARSE_NOT_SUPPORTED;
	case SPARSE_BSR:
		*(void **)&blocks = SPARSE("cusparseCreateBsr");
		return blocks ? blocks(descriptor, m->rows, m->cols, m->nnz, m->row_block, m->col_block, o, i, v, m->offsets_type,
				       m->indices_type, m->base, m->type, m->order) : SPARSE_NOT_SUPPORTED;
	default:
		return SPARSE_INVALID_VALUE;
	}
}

static int create_matrix(void **descriptor, const struct sparse_matrix *m)
{
	int status = is_wrong(m) ? SPARSE_INVALID_VALUE : create_format(descriptor, m);

	if (status == SPARSE_OK && m->batch > 1)
		status = set_batch(*descriptor, m);
	if (status == SPARSE_OK && m->fill)
		status = set_attribute(*descriptor, 0, m->fill - 1);
	if (status == SPARSE_OK && m->diag)
		status = set_attribute(*descriptor, 1, m->diag - 1);
	return status;
}

static int create_dense(void **descriptor, const struct sparse_dense *m)
{
	int (*create)(void **, int64_t, int64_t, int64_t, void *, int, int), (*batch)(void *, int, int64_t), status;

	*(void **)&create = SPARSE("cusparseCreateDnMat");
	*(void **)&batch = SPARSE("cusparseDnMatSetStridedBatch");
	if (!create || !batch)
		return SPARSE_NOT_SUPPORTED;
	if (m->rows < 0 || m->cols < 0 || m->batch < 1 || m->batch > INT_MAX)
		return SPARSE_INVALID_VALUE;
	status = create(descriptor, m->rows, m->cols, m->ld, (void *)m->values, m->type, m->order);
	return status == SPARSE_OK && m->batch > 1 ? batch(*descriptor, (int)m->batch, m->stride) : status;
}

static int create_vector(void **descriptor, const struct sparse_vector *v)
{
	int (*create)(void **, int64_t, void *, int);

	*(void **)&create = SPARSE("cusparseCreateDnVec");
	return create ? create(descriptor, v->size, (void *)v->values, v->type) : SPARSE_NOT_SUPPORTED;
}

static int create_entries(void **descriptor, const struct sparse_entries *v)
{
	int (*create)(void **, int64_t, int64_t, void *, void *, int, int, int);

	*(void **)&create = SPARSE("cusparseCreateSpVec");
	if (!create)
		return SPARSE_NOT_SUPPORTED;
	return create(descriptor, v->size, v->nnz, (void *)v->indices, (void *)v->values, v->indices_type, v->base, v->type);
}

static int (*find_end(uint8_t kind))(void *)
{
	int (*end)(void *);

	switch (kind) {
	case BLAS_DESCR:
		*(void **)&end = SPARSE("cusparseDestroyMatDescr");
		break;
	case BLAS_DNMAT:
		*(void **)&end = SPARSE("cusparseDestroyDnMat");
		break;
	case BLAS_DNVEC:
		*(void **)&end = SPARSE("cusparseDestroyDnVec");
		break;
	case BLAS_SPVEC:
		*(void **)&end = SPARSE("cusparseDestroySpVec");
		break;
	default:
		*(void **)&end = SPARSE("cusparseDestroySpMat");
	}
	return end;
}

/* Ends it where not all of it could be set. */
static int create_any(void **descriptor, uint8_t kind, const union sparse_any *of)
{
	int (*end)(void *) = find_end(kind), status;

	*descriptor = NULL;
	if (!end)
		return SPARSE_NOT_SUPPORTED;
	switch (kind) {
	case BLAS_DNMAT:
		status = create_dense(descriptor, &of->dense);
		break;
	case BLAS_DNVEC:
		status = create_vector(descriptor, &of->vector);
		break;
	case BLAS_SPVEC:
		status = create_entries(descriptor, &of->entries);
		break;
	default:
		status = create_matrix(descriptor, &of->matrix);
	}
	if (status != SPARSE_OK && *descriptor) {
		end(*descriptor);
		*descriptor = NULL;
	}
	return status;
}

/* ---- objects */

struct object {
	void *handle;             /* cusparseSpGEMMDescr_t, cusparseSpSVDescr_t, cusparseSpSMDescr_t, bsrsv2Info_t, bsrsm2Info_t */
	int (*end)(void *handle);
	struct kept {             /* the descriptors of its last call, in the order of the arguments */
		void *descriptor;
		uint8_t kind;
		union sparse_any of;
	} kept[KEPT];
};

static void drop(struct kept *k)
{
	if (k->descriptor)
		find_end(k->kind)(k->descriptor);
	memset(k, 0, sizeof(*k));
}

static int end_object(void *object)
{
	struct object *o = object;
	int status = o->handle ? o->end(o->handle) : SPARSE_OK;

	for (int i = 0; i < KEPT; i++)
		drop(&o->kept[i]);
	free(o);
	return status;
}

static int make_object(struct object *o, uint64_t kind)
{
	int (*create)(void **);

	switch (kind) {
	case SPARSE_SPGEMM:
		*(void **)&create = SPARSE("cusparseSpGEMM_createDescr"), *(void **)&o->end = SPARSE("cusparseSpGEMM_destroyDescr");
		break;
	case SPARSE_SPSV:
		*(void **)&create = SPARSE("cusparseSpSV_createDescr"), *(void **)&o->end = SPARSE("cusparseSpSV_destroyDescr");
		break;
	case SPARSE_SPSM:
		*(void **)&create = SPARSE("cusparseSpSM_createDescr"), *(void **)&o->end = SPARSE("cusparseSpSM_destroyDescr");
		break;
	case SPARSE_BSRSV2:
		*(void **)&create = SPARSE("cusparseCreateBsrsv2Info"), *(void **)&o->end = SPARSE("cusparseDestroyBsrsv2Info");
		break;
	default:
		*(void **)&create = SPARSE("cusparseCreateBsrsm2Info"), *(void **)&o->end = SPARSE("cusparseDestroyBsrsm2Info");
	}
	return create && o->end ? create(&o->handle) : SPARSE_NOT_SUPPORTED;
}

struct wk_math *wk_sparse_object(struct math_call *call, int *status)
{
	struct wk_math *math = calloc(1, sizeof(*math));
	struct object *o = calloc(1, sizeof(*o));

	*status = math && o ? make_object(o, call->function) : SPARSE_ALLOC_FAILED;
	if (*status == SPARSE_OK) {
		math->library = MATH_SPGEMM + (uint32_t)call->function - SPARSE_SPGEMM;
		math->handle = o;
		math->destroy = end_object;
		pthread_mutex_init(&math->lock, NULL);
		return math;
	}
	free(o);
	free(math);
	return NULL;
}

/* The object is held and locked by the call. */
static int take_object(const struct math_call *call, const struct blas_argument *a, uint64_t *word)
{
	if (!call->plan || call->plan->library != (uint32_t)(MATH_SPGEMM + a->kind - BLAS_SPGEMM))
		return SPARSE_INVALID_VALUE;
	*word = (uintptr_t)((struct object *)call->plan->handle)->handle;
	return SPARSE_OK;
}

/* ---- calls */

/* Sets the addresses; false: it cannot. Of blocks there is a function for the values only. */
static bool set_matrix(void *descriptor, const struct sparse_matrix *m, bool values_only)
{
	int (*all)(void *, void *, void *, void *) = NULL, (*values)(void *, void *);

	if (m->format == SPARSE_CSR)
		*(void **)&all = SPARSE("cusparseCsrSetPointers");
	else if (m->format == SPARSE_CSC)
		*(void **)&all = SPARSE("cusparseCscSetPointers");
	else if (m->format == SPARSE_COO)
		*(void **)&all = SPARSE("cusparseCooSetPointers");
	if (all)
		return all(descriptor, (void *)m->offsets, (void *)m->indices, (void *)m->values) == SPARSE_OK;
	*(void **)&values = SPARSE("cusparseSpMatSetValues");
	return values_only && values && values(descriptor, (void *)m->values) == SPARSE_OK;
}

static bool set_values(void *descriptor, void *function, uint64_t values)
{
	int (*set)(void *, void *);

	*(void **)&set = function;
	return set && set(descriptor, (void *)values) == SPARSE_OK;
}

/* Only where it lies has changed: it stays the descriptor that the library may know from the object's last call. */
static bool move(struct kept *k, const union sparse_any *of)
{
	union sparse_any moved = k->of;
	bool values_only, done;

	switch (k->kind) {
	case BLAS_DNMAT:
		moved.dense.values = of->dense.values;
		done = !memcmp(&moved, of, sizeof(moved)) && set_values(k->descriptor, SPARSE("cusparseDnMatSetValues"), of->dense.values);
		break;
	case BLAS_DNVEC:
		moved.vector.values = of->vector.values;
		done = !memcmp(&moved, of, sizeof(moved)) && set_values(k->descriptor, SPARSE("cusparseDnVecSetValues"), of->vector.values);
		break;
	case BLAS_SPVEC: /* no function with an object has one */
		return false;
	default:
		moved.matrix.values = of->matrix.values;
		values_only = !memcmp(&moved, of, sizeof(moved));
		moved.matrix.offsets = of->matrix.offsets;
		moved.matrix.indices = of->matrix.indices;
		done = !memcmp(&moved, of, sizeof(moved)) && set_matrix(k->descriptor, &of->matrix, values_only);
	}
	if (done)
		k->of = moved;
	return done;
}

/* What an object was used with before is used again where it is the same. Else the new one is made before that ends, so that the
 * library takes neither for the other by its address. */
static int take_kept(struct kept *k, uint8_t kind, const union sparse_any *of, void **descriptor)
{
	bool same = k->descriptor && find_end(k->kind) == find_end(kind);
	void *made;
	int status;

	if (!same || (memcmp(&k->of, of, sizeof(*of)) && !move(k, of))) {
		status = create_any(&made, kind, of);
		if (status != SPARSE_OK)
			return status;
		drop(k);
		k->descriptor = made;
		k->kind = kind;
		k->of = *of;
	}
	*descriptor = k->descriptor;
	return SPARSE_OK;
}

static int lend(struct sparse_lent *lent, uint8_t kind, void *descriptor)
{
	lent->at[lent->count].descriptor = descriptor;
	lent->at[lent->count++].end = find_end(kind);
	return SPARSE_OK;
}

static int take_descriptor(const struct math_call *call, const struct blas_argument *a, unsigned int place, uint64_t *word,
			   struct sparse_lent *lent)
{
	struct object *o = call->plan ? call->plan->handle : NULL;
	union sparse_any of = { 0 };
	void *descriptor = NULL;
	int status;

	if (!*word || place >= (o ? KEPT : SPARSE_LENT))
		return SPARSE_INVALID_VALUE;
	memcpy(&of, (const void *)*word, a->size);
	if (o) {
		status = take_kept(&o->kept[place], a->kind, &of, &descriptor);
	} else {
		status = create_any(&descriptor, a->kind, &of);
		if (status == SPARSE_OK)
			status = lend(lent, a->kind, descriptor);
	}
	*word = (uintptr_t)descriptor;
	return status;
}

static int set_one(void *descriptor, void *function, int value)
{
	int (*set)(void *, int);

	*(void **)&set = function;
	return set ? set(descriptor, value) : SPARSE_NOT_SUPPORTED;
}

static int take_descr(uint64_t *word, struct sparse_lent *lent)
{
	int (*create)(void **), (*end)(void *) = find_end(BLAS_DESCR), status;
	uint64_t set = *word;
	void *descriptor = NULL;

	*(void **)&create = SPARSE("cusparseCreateMatDescr");
	if (!create || !end)
		return SPARSE_NOT_SUPPORTED;
	if (!(set & SPARSE_DESCR) || lent->count == SPARSE_LENT)
		return SPARSE_INVALID_VALUE;
	status = create(&descriptor);
	if (status != SPARSE_OK)
		return status;
	lend(lent, BLAS_DESCR, descriptor);
	status = set_one(descriptor, SPARSE("cusparseSetMatType"), (int)(set >> SPARSE_DESCR_TYPE & 0xff));
	if (status == SPARSE_OK)
		status = set_one(descriptor, SPARSE("cusparseSetMatFillMode"), (int)(set >> SPARSE_DESCR_FILL & 0xff));
	if (status == SPARSE_OK)
		status = set_one(descriptor, SPARSE("cusparseSetMatDiagType"), (int)(set >> SPARSE_DESCR_DIAG & 0xff));
	if (status == SPARSE_OK)
		status = set_one(descriptor, SPARSE("cusparseSetMatIndexBase"), (int)(set >> SPARSE_DESCR_BASE & 0xff));
	*word = (uintptr_t)descriptor;
	return status;
}

int wk_sparse_begin(struct math_call *call, const struct blas_function *f, uint64_t *words, struct sparse_lent *lent)
{
	unsigned int place = 0;
	int status = SPARSE_OK;

	/* first of all whether the object is one of that kind: what it keeps is used below */
	for (unsigned int i = 0; i < f->count && status == SPARSE_OK; i++)
		if (blas_is_object(&f->arguments[i]))
			status = take_object(call, &f->arguments[i], &words[i]);
	for (unsigned int i = 0; i < f->count && status == SPARSE_OK; i++) {
		const struct blas_argument *a = &f->arguments[i];

		if (a->kind == BLAS_MADE) {
			lent->made_place = i;
			status = words[i] && call->values ? SPARSE_OK : SPARSE_INVALID_VALUE;
		}
		if (status == SPARSE_OK && a->kind >= BLAS_SPMAT)
			status = take_descriptor(call, a, place++, &words[i], lent);
		else if (a->kind == BLAS_DESCR)
			status = take_descr(&words[i], lent);
		else if (blas_is_sent(a, call->on_device) || blas_is_returned(a, call->on_device))
			/* the library would read or write there */
			status = words[i] && (call->values || !blas_is_returned(a, call->on_device)) ? status : SPARSE_INVALID_VALUE;
		if (a->kind == BLAS_MADE)
			lent->made = status == SPARSE_OK ? (void *)words[i] : NULL;
	}
	return status;
}

/* The library counts entries in the descriptor; the guest's has them then, and so has the object's. */
static int count_entries(struct math_call *call, const struct sparse_lent *lent, struct sparse_matrix *m)
{
	int (*ask)(void *, int64_t *, int64_t *, int64_t *), status;
	struct object *o = call->plan->handle;

	*(void **)&ask = SPARSE("cusparseSpMatGetSize");
	status = ask ? ask(lent->made, &m->rows, &m->cols, &m->nnz) : SPARSE_NOT_SUPPORTED;
	for (int i = 0; i < KEPT && status == SPARSE_OK; i++)
		if (o->kept[i].descriptor == lent->made)
			o->kept[i].of.matrix.nnz = m->nnz;
	return status;
}

int wk_sparse_finish(struct math_call *call, struct sparse_lent *lent, void *matrix, int status)
{
	if (status == SPARSE_OK && lent->made)
		status = count_entries(call, lent, matrix);
	for (unsigned int i = 0; i < lent->count; i++)
		lent->at[i].end(lent->at[i].descriptor);
	return status;
}
