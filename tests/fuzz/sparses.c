/* SPDX-License-Identifier: Apache-2.0 */
/* cuSPARSE as guests could call it: each function with arguments and descriptors that are nearly right, and objects that are or
 * were there. */
#include <string.h>

#include "blas_functions.h"
#include "maths.h"
#include "sparse_wire.h"

static _Atomic bool done[SPARSE_FUNCTIONS];

static uint64_t make_word(struct thread *t, const struct blas_argument *a, bool on_device, const _Atomic uint64_t *objects)
{
	uint64_t kind = SPARSE_SPGEMM + (once_in(t, 8) ? roll(t) % SPARSE_BSRSM2 : (uint64_t)a->kind - BLAS_SPGEMM);

	if (blas_is_object(a))
		return once_in(t, 60) ? roll(t) : objects[kind];
	if (a->kind == BLAS_DESCR)
		return once_in(t, 20) ? roll(t) : SPARSE_DESCR | roll(t) % 4;
	if (a->kind == BLAS_TYPE)
		return once_in(t, 20) ? roll(t) % 300 : roll(t) % 2 * 4 + roll(t) % 2;
	if (blas_is_sent(a, on_device) || blas_is_returned(a, on_device))
		return !once_in(t, 40);
	return once_in(t, 20) ? roll(t) : roll(t) % 64;
}

/* A few that an object may keep, so that it meets them again. */
static void make_matrix(struct thread *t, struct sparse_matrix *m)
{
	static const uint8_t formats[] = { SPARSE_CSR, SPARSE_CSR, SPARSE_CSR, SPARSE_CSC, SPARSE_COO, SPARSE_BSR };

	*m = (struct sparse_matrix){ .format = formats[roll(t) % sizeof(formats)], .offsets_type = 2, .indices_type = 2, .order = 1,
				     .fill = roll(t) % 3, .diag = roll(t) % 3, .rows = 7, .cols = 7, .nnz = 7,
				     .offsets = roll(t) % 2 * 4096, .indices = 4096, .values = 4096,
				     .batch = once_in(t, 3) ? 1 + (int64_t)(roll(t) % 3) : 1, .row_block = 2, .col_block = 2 };
	if (once_in(t, 20))
		((uint8_t *)m)[roll(t) % 8] = (uint8_t)roll(t);
	if (once_in(t, 20))
		((uint64_t *)m)[1 + roll(t) % 12] = roll(t);
}

static void make_value(struct thread *t, const struct blas_argument *a, size_t bytes)
{
	union sparse_any any = { 0 };
	const uint64_t *words = (const uint64_t *)&any;

	switch (a->kind) {
	case BLAS_SPMAT:
	case BLAS_MADE:
		make_matrix(t, &any.matrix);
		break;
	case BLAS_DNMAT:
		any.dense = (struct sparse_dense){ .order = 1, .rows = 7, .cols = 7, .ld = 7, .values = roll(t) % 2 * 4096,
						   .batch = 1 + (int64_t)(roll(t) % 2) };
		if (once_in(t, 20))
			((uint64_t *)&any)[roll(t) % 7] = roll(t);
		break;
	default:
		for (size_t i = 0; i < bytes / sizeof(*words); i++)
			((uint64_t *)&any)[i] = once_in(t, 10) ? roll(t) : roll(t) % 8;
	}
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		put(t, words[i]);
}

uint64_t make_sparse(struct thread *t, bool on_device, const _Atomic uint64_t *objects)
{
	unsigned int place = (unsigned int)(roll(t) % SPARSE_FUNCTIONS);
	const struct blas_function *f = &sparse_functions[place];
	uint64_t words[BLAS_ARGUMENTS];

	t->length = 0;
	for (unsigned int i = 0; i < f->count; i++)
		put(t, words[i] = make_word(t, &f->arguments[i], on_device, objects));
	for (unsigned int i = 0; i < f->count; i++)
		if (blas_is_sent(&f->arguments[i], on_device))
			make_value(t, &f->arguments[i], blas_padded(blas_value_bytes(f, words, i)));
	if (once_in(t, 50))
		return roll(t) % 8;
	t->mark = place + 1;
	return f->id;
}

/* What is only called could stop at the first check, before there is a descriptor. */
void learn_sparse(uint64_t mark, int32_t status)
{
	if (mark && (status == SPARSE_OK || status == SPARSE_ZERO_PIVOT))
		done[mark - 1] = true;
}

unsigned int count_sparses(void)
{
	unsigned int found = 0;

	for (unsigned int i = 0; i < SPARSE_FUNCTIONS; i++)
		found += done[i];
	return found;
}
