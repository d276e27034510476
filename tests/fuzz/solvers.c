/* SPDX-License-Identifier: Apache-2.0 */
/* cuSOLVER as guests could call it: each function with arguments that are nearly right, and objects that are or were there. */
#include "blas_functions.h"
#include "maths.h"

static _Atomic bool called[SOLVER_FUNCTIONS];

static uint64_t make_word(struct thread *t, const struct blas_argument *a, uint64_t object)
{
	switch (a->kind) {
	case BLAS_SYEVJ:
	case BLAS_GESVDJ:
		return object;
	case BLAS_PARAMS:
		return once_in(t, 20) ? roll(t) : SOLVER_PARAMS | roll(t) % 4 << 8;
	case BLAS_SIZE:
		return once_in(t, 20) ? roll(t) : roll(t) % 8192;
	case BLAS_HOST:
		return !once_in(t, 10);
	default:
		return once_in(t, 20) ? roll(t) : roll(t) % 64;
	}
}

uint64_t make_solver(struct thread *t, uint64_t object)
{
	unsigned int place = (unsigned int)(roll(t) % SOLVER_FUNCTIONS);
	const struct blas_function *f = &solver_functions[place];

	t->length = 0;
	for (unsigned int i = 0; i < f->count; i++)
		put(t, make_word(t, &f->arguments[i], object));
	for (unsigned int i = 0; i < f->count; i++) {
		if (!blas_is_sent(&f->arguments[i], false))
			continue;
		put(t, once_in(t, 10) ? roll(t) : roll(t) % 8);
		for (int word = 1; word < 4; word++)
			put(t, roll(t));
	}
	if (once_in(t, 50))
		return roll(t) % 4;
	called[place] = true;
	return f->id;
}

unsigned int count_solvers(void)
{
	unsigned int found = 0;

	for (unsigned int i = 0; i < SOLVER_FUNCTIONS; i++)
		found += called[i];
	return found;
}
