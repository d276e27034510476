/* SPDX-License-Identifier: Apache-2.0 */
/* The families whose arguments are those of a routine of BLAS: one call of it for each entry of a batch. */
#include <stddef.h>
#include <string.h>

#include "runs.h"

enum { MAX_PLAIN = 13 };

int bl_call_routine(struct call *c)
{
	if (c->function->family->run != run_blas)
		return bl_typed_routine(BL_R_32F, "gemm_") ? BL_SUCCESS : BL_NOT_SUPPORTED;
	c->routine = bl_routine(c->function->routine);
	return c->routine ? BL_SUCCESS : BL_NOT_SUPPORTED;
}

/* Every argument of a routine is an address. */
static void call_routine(void *routine, int n, void **p)
{
	typedef void *P;

	switch (n) {
	case 4:
		((void (*)(P, P, P, P))routine)(p[0], p[1], p[2], p[3]);
		break;
	case 5:
		((void (*)(P, P, P, P, P))routine)(p[0], p[1], p[2], p[3], p[4]);
		break;
	case 6:
		((void (*)(P, P, P, P, P, P))routine)(p[0], p[1], p[2], p[3], p[4], p[5]);
		break;
	case 7:
		((void (*)(P, P, P, P, P, P, P))routine)(p[0], p[1], p[2], p[3], p[4], p[5], p[6]);
		break;
	case 8:
		((void (*)(P, P, P, P, P, P, P, P))routine)(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]);
		break;
	case 9:
		((void (*)(P, P, P, P, P, P, P, P, P))routine)(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8]);
		break;
	case 10:
		((void (*)(P, P, P, P, P, P, P, P, P, P))routine)(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8],
								  p[9]);
		break;
	case 11:
		((void (*)(P, P, P, P, P, P, P, P, P, P, P))routine)(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7],
								     p[8], p[9], p[10]);
		break;
	case 12:
		((void (*)(P, P, P, P, P, P, P, P, P, P, P, P))routine)(p[0], p[1], p[2], p[3], p[4], p[5], p[6],
									p[7], p[8], p[9], p[10], p[11]);
		break;
	default:
		((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P))routine)(p[0], p[1], p[2], p[3], p[4], p[5], p[6],
									   p[7], p[8], p[9], p[10], p[11], p[12]);
	}
}

/* The letter of an enumeration's value; 0: the argument is no enumeration. */
static char letter_of(enum argument_kind kind, int64_t value)
{
	switch (kind) {
	case ARG_OP:
	case ARG_OPSYM:
	case ARG_OPHERM:
		return "NTC"[value];
	case ARG_FILL:
		return "LU"[value];
	case ARG_DIAG:
		return "NU"[value];
	case ARG_SIDE:
		return "LR"[value];
	default:
		return 0;
	}
}

/* One argument as the routine takes it; values have a place of their own. */
static void *lay(const struct call *c, int i, int32_t *place)
{
	enum argument_kind kind = c->function->family->args[i].kind;
	char letter = letter_of(kind, c->args[i]);

	if (kind == ARG_DEVICE || kind == ARG_IN || kind == ARG_INOUT || kind == ARG_OUT)
		return (void *)c->args[i];
	*place = (int32_t)c->args[i];
	if (letter)
		memcpy(place, &letter, 1);
	return place;
}

static void *entry_of(const struct call *c, const struct operand *o, int64_t i)
{
	char *place = (char *)c->args[o->arg];

	return o->array ? bl_entry(place, i) : place + i * o->stride * (int64_t)bl_size(o->element);
}

/* Has the call nothing to read? An operand that is an array of addresses might not be there then. */
static bool is_idle(const struct operand *o, const struct operand *end)
{
	for (; o < end; o++)
		if (o->array && (o->rows <= 0 || o->cols <= 0))
			return true;
	return false;
}

/*
 * A product with the factor 0, whose matrices need not be there. OpenBLAS's kernels for small matrices, which some
 * processors have, read them all the same; of a product over nothing they read none.
 */
static bool is_product_of_nothing(const struct call *c)
{
	const struct family *f = c->function->family;

	return (f == &family_gemm || f == &family_gemmBatched || f == &family_gemmStrided) &&
	       bl_load((void *)((const struct args_gemm *)c->args)->alpha, c->function->scalar, 0) == 0;
}

void run_blas(const struct call *c)
{
	const struct family *family = c->function->family;
	struct operand operands[MAX_OPERANDS];
	struct operand *end = family->operands(c->args, c->function, operands);
	int32_t values[MAX_PLAIN];
	void *p[MAX_PLAIN];
	bool nothing = is_product_of_nothing(c);

	if (is_idle(operands, end))
		return;
	for (int64_t k = 0; k < bl_batch(c); k++) {
		int n = 0;

		for (int i = 0; i < family->n; i++) {
			enum argument_kind kind = family->args[i].kind;

			if (kind == ARG_STRIDE || kind == ARG_BATCH)
				continue;
			p[n] = lay(c, i, &values[n]);
			for (const struct operand *o = operands; o < end; o++)
				if (o->arg == i)
					p[n] = nothing && o->unless >= 0 ? NULL : entry_of(c, o, k);
			if (nothing && i == offsetof(struct args_gemm, k) / sizeof(int64_t))
				values[n] = 0;
			n++;
		}
		call_routine(c->routine, n, p);
	}
}
