/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma and wmma.mma: D = A * B + C. Products of floating-point elements are exact and are summed in double precision from C
 * on, in the order of k; one rounding to nearest gives D, which is within what the ISA asks for ("at least single
 * precision"). f64 is a chain of fma, rounded as the instruction says. Integers are exact and wrap, or saturate.
 */
#include "matrix.h"

#include <limits.h>

enum { FLAG_FINITE = 1, FLAG_BIT_AND = 2 };

struct mma_form {
	struct matrix_part d, a, b, c;
	struct shape shape;
	uint32_t flags;
	enum rounding rounding;
};

#define EACH_CELL(f, lane, members, cell)                                                                            \
	for (uint32_t lane = 0; lane < WARP; lane++)                                                                 \
		for (uint32_t cell = 0; (members) >> lane & 1 && cell < (f)->distinct; cell++)

/* What lanes that do not take part would hold is zero. */
static void gather_float(struct thread *lanes, uint32_t members, size_t offset, double *out)
{
	EACH_CELL((const struct matrix_part *)((const char *)form_of(&lanes[lane]) + offset), lane, members, cell)
	{
		const struct matrix_part *f = (const struct matrix_part *)((const char *)form_of(&lanes[lane]) + offset);
		uint64_t bits = get_lane(&lanes[lane], f->cells[cell]);
		uint32_t row, column, packed = fragment_packed(f);

		fragment_place(f, lane, cell, &row, &column);
		for (uint32_t n = 0; n < packed; n++)
			out[(row + (f->role == MATRIX_B ? n : 0)) * f->columns + column + (f->role == MATRIX_B ? 0 : n)] =
				element_float(f->element, bits, n);
	}
}

static void gather_int(struct thread *lanes, uint32_t members, size_t offset, int32_t *out)
{
	EACH_CELL((const struct matrix_part *)((const char *)form_of(&lanes[lane]) + offset), lane, members, cell)
	{
		const struct matrix_part *f = (const struct matrix_part *)((const char *)form_of(&lanes[lane]) + offset);
		uint64_t bits = get_lane(&lanes[lane], f->cells[cell]);
		uint32_t row, column, packed = fragment_packed(f);

		fragment_place(f, lane, cell, &row, &column);
		for (uint32_t n = 0; n < packed; n++)
			out[(row + (f->role == MATRIX_B ? n : 0)) * f->columns + column + (f->role == MATRIX_B ? 0 : n)] =
				element_int(f->element, bits, n);
	}
}

static void multiply_float(const struct mma_form *f, const double *a, const double *b, double *c)
{
	for (uint32_t row = 0; row < f->shape.m; row++)
		for (uint32_t k = 0; k < f->shape.k; k++)
			for (uint32_t column = 0; column < f->shape.n; column++)
				c[row * f->shape.n + column] += a[row * f->shape.k + k] * b[k * f->shape.n + column];
}

static void multiply_double(const struct mma_form *f, const double *a, const double *b, double *c)
{
	uint32_t flags = (uint32_t)f->rounding << FLAG_ROUND_SHIFT;

	round_begin(flags);
	for (uint32_t row = 0; row < f->shape.m; row++)
		for (uint32_t k = 0; k < f->shape.k; k++)
			for (uint32_t column = 0; column < f->shape.n; column++) {
				volatile double sum = fma(a[row * f->shape.k + k], b[k * f->shape.n + column],
							  c[row * f->shape.n + column]);

				c[row * f->shape.n + column] = sum;
			}
	round_end(flags);
}

static u32 multiply_int(const struct mma_form *f, const int32_t *a, const int32_t *b, int32_t c)
{
	int64_t sum = c;

	for (uint32_t k = 0; k < f->shape.k; k++, b += f->shape.n)
		sum += f->a.element != E_B1 ? a[k] * *b : f->flags & FLAG_BIT_AND ? a[k] & *b : a[k] ^ *b;
	if (f->flags & FLAG_FINITE)
		sum = sum > INT_MAX ? INT_MAX : sum < INT_MIN ? INT_MIN : sum;
	return (u32)sum;
}

static void run_mma_int(struct thread *lanes, uint32_t members)
{
	int32_t a[MAX_ELEMENTS_OF_A] = { 0 }, b[MAX_ELEMENTS_OF_B] = { 0 }, c[MAX_ELEMENTS_OF_C] = { 0 };

	gather_int(lanes, members, offsetof(struct mma_form, a), a);
	gather_int(lanes, members, offsetof(struct mma_form, b), b);
	gather_int(lanes, members, offsetof(struct mma_form, c), c);
	EACH_CELL(&((const struct mma_form *)form_of(&lanes[lane]))->d, lane, members, cell)
	{
		const struct mma_form *f = form_of(&lanes[lane]);
		uint32_t row, column;

		fragment_place(&f->d, lane, cell, &row, &column);
		put_lane(&lanes[lane], f->d.cells[cell],
			 multiply_int(f, &a[row * f->shape.k], &b[column], c[row * f->shape.n + column]));
	}
}

static void run_mma_float(struct thread *lanes, uint32_t members)
{
	/* elements of at least 8 bits: k is 32 at most */
	double a[16 * 32] = { 0 }, b[16 * 32] = { 0 }, c[MAX_ELEMENTS_OF_C] = { 0 };
	const struct mma_form *first = form_of(&lanes[__builtin_ctz(members)]);

	gather_float(lanes, members, offsetof(struct mma_form, a), a);
	gather_float(lanes, members, offsetof(struct mma_form, b), b);
	gather_float(lanes, members, offsetof(struct mma_form, c), c);
	if (first->d.element == E_F64)
		multiply_double(first, a, b, c);
	else
		multiply_float(first, a, b, c);
	EACH_CELL(&((const struct mma_form *)form_of(&lanes[lane]))->d, lane, members, cell)
	{
		const struct mma_form *f = form_of(&lanes[lane]);
		uint32_t row, column, packed = fragment_packed(&f->d);
		uint64_t out = 0;

		fragment_place(&f->d, lane, cell, &row, &column);
		for (uint32_t n = 0; n < packed; n++)
			out |= element_round(f->d.element, c[row * f->shape.n + column + n], f->flags & FLAG_FINITE) << 16 * n;
		put_lane(&lanes[lane], f->d.cells[cell], out);
	}
}

/* Types that fit each other; the names of the results' types come first and last in PTX. */
static bool types_fit(const struct mma_form *f, bool wide)
{
	enum element a = f->a.element, b = f->b.element, c = f->c.element, d = f->d.element;

	if (element_family(a) != element_family(b) || (wide && a != b))
		return false;
	if (element_integer(a))
		return c == E_S32 && d == E_S32;
	if (a == E_F64)
		return c == E_F64 && d == E_F64;
	if (a == E_F16 && wide)
		return (c == E_F16 || c == E_F32) && (d == E_F16 || d == E_F32);
	if (a == E_F16 || a == E_E4M3 || a == E_E5M2)
		return c == d && (c == E_F16 || c == E_F32);
	return c == E_F32 && d == E_F32;
}

/* mma.sync.aligned.shape.row.col.d.a.b.c; wmma.mma.sync.aligned.row.col.shape.d{.a.b}.c */
static void take_types(struct statement *s, struct mma_form *f, bool wide)
{
	enum element types[4];
	int n = 0;

	while (n < 4 && (types[n] = take_element(s)) != E_NONE)
		n++;
	if (n == 2 && wide) {
		f->d.element = types[0];
		f->a.element = f->b.element = E_F16;
		f->c.element = types[1];
	} else if (n == 4) {
		f->d.element = types[0];
		f->a.element = types[1];
		f->b.element = types[2];
		f->c.element = types[3];
	}
}

static bool take_layouts(struct statement *s, const struct mma_form *f, bool wide)
{
	bool any = wide && !(element_bits(f->a.element) < 8);

	if (any)
		return (take(s, "row") || take(s, "col")) && (take(s, "row") || take(s, "col"));
	return take(s, "row") && take(s, "col");
}

static bool take_bit_operation(struct statement *s, struct mma_form *f)
{
	if (f->a.element != E_B1)
		return true;
	if (take(s, "and"))
		f->flags |= FLAG_BIT_AND;
	else if (!take(s, "xor"))
		return false;
	return take(s, "popc");
}

static bool decode_multiply(struct body *b, struct statement *s, bool wide)
{
	struct mma_form *f = arena_alloc(b->arena, sizeof *f);
	int row = take_shape(s, wide, &f->shape);

	if (row < 0 || !take(s, "sync") || !take(s, "aligned"))
		return false;
	take_types(s, f, wide);
	if (!shape_allows(row, wide, f->a.element) || !types_fit(f, wide) || !take_layouts(s, f, wide) ||
	    !take_bit_operation(s, f))
		return false;
	if ((element_integer(f->a.element) ? f->a.element != E_B1 : wide && f->a.element == E_F16) && take(s, "satfinite"))
		f->flags |= FLAG_FINITE;
	if (f->a.element == E_F64)
		f->rounding = take_rounding(s);
	if (!all_taken(s))
		return false;
	operands(b, s, 4, 4);
	f->a.role = MATRIX_A;
	f->b.role = MATRIX_B;
	f->c.role = f->d.role = MATRIX_C;
	fragment_shape(&f->a, f->shape, wide);
	fragment_shape(&f->b, f->shape, wide);
	fragment_shape(&f->c, f->shape, wide);
	fragment_shape(&f->d, f->shape, wide);
	fragment_operand(b, s, 0, &f->d, true);
	fragment_operand(b, s, 1, &f->a, false);
	fragment_operand(b, s, 2, &f->b, false);
	fragment_operand(b, s, 3, &f->c, false);
	/* so that lanes with other fragments do not meet */
	return emit_matrix(b, s, element_integer(f->a.element) ? run_mma_int : run_mma_float,
			   (uint32_t)row << 10 | (uint32_t)f->a.element << 6 | (f->c.element == E_F16) << 1 | (f->d.element == E_F16), f);
}

DECODER(mma)
{
	return decode_multiply(b, s, false);
}

DECODER(wmma)
{
	if (take(s, "load"))
		return decode_wmma_load(b, s, false);
	if (take(s, "store"))
		return decode_wmma_load(b, s, true);
	return take(s, "mma") && decode_multiply(b, s, true);
}
