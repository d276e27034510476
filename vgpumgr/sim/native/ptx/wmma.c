/* SPDX-License-Identifier: Apache-2.0 */
/* wmma.load and wmma.store: matrices between memory and fragments. Each lane moves its own elements. */
#include "matrix.h"

struct wmma_form {
	struct matrix_part fragment;
	struct lane_address at;
	bool by_column, has_stride;
	uint32_t stride; /* cell; in elements from one row (or column) to the next */
};

/* Where element (row, column) begins, in bits. */
static uint64_t bit_offset(const struct thread *t, const struct wmma_form *f, uint32_t row, uint32_t column)
{
	uint64_t stride = f->by_column ? f->fragment.rows : f->fragment.columns;

	if (f->has_stride)
		stride = (u32)get_lane(t, f->stride);
	return (f->by_column ? column * stride + row : row * stride + column) * element_bits(f->fragment.element);
}

/* Elements of less than a byte are contiguous along k, so that they move by registers. */
static bool move_cell(struct thread *t, const struct wmma_form *f, uint32_t cell, bool store)
{
	const struct matrix_part *g = &f->fragment;
	uint32_t bits = element_bits(g->element), packed = bits < 8 ? 1 : fragment_packed(g), size = bits < 8 ? 4 : bits / 8;
	uint64_t value = store ? get_lane(t, g->cells[cell]) : 0, from = lane_address(t, &f->at);
	uint32_t row, column;

	fragment_place(g, t->lane, cell, &row, &column);
	for (uint32_t n = 0; n < packed; n++) {
		uint64_t at = from + bit_offset(t, f, row, column) / 8, part = 0;
		uint8_t *memory = reach(t, t->pc, f->at.space, at, size, store);

		if (!memory)
			return false;
		if (store) {
			part = value >> (n * bits);
			memcpy(memory, &part, size);
		} else {
			memcpy(&part, memory, size);
			value |= part << (n * bits);
		}
		row += g->role == MATRIX_B;
		column += g->role != MATRIX_B;
	}
	if (!store)
		put_lane(t, g->cells[cell], value);
	return true;
}

static void move_all(struct thread *lanes, uint32_t members, bool store)
{
	for (uint32_t lane = 0; lane < WARP; lane++) {
		const struct wmma_form *f = members >> lane & 1 ? form_of(&lanes[lane]) : NULL;

		for (uint32_t cell = 0; f && cell < f->fragment.n; cell++)
			if (!move_cell(&lanes[lane], f, cell, store))
				return;
	}
}

static void run_load(struct thread *lanes, uint32_t members)
{
	move_all(lanes, members, false);
}

static void run_store(struct thread *lanes, uint32_t members)
{
	move_all(lanes, members, true);
}

/* C and D of a shape hold sums of what A and B may be there. */
static bool sum_allowed(int row, enum element e)
{
	static const enum element sources[][4] = {
		[E_F16] = { E_F16 }, [E_F32] = { E_F16, E_BF16, E_TF32 }, [E_F64] = { E_F64 }, [E_S32] = { E_S8, E_S4, E_B1 },
	};

	if (e != E_F16 && e != E_F32 && e != E_F64 && e != E_S32)
		return false;
	for (int k = 0; k < 4; k++)
		if (sources[e][k] && shape_allows(row, true, sources[e][k]))
			return true;
	return false;
}

bool decode_wmma_load(struct body *b, struct statement *s, bool store)
{
	static const char *const roles[] = { "a", "b", "c", NULL };
	struct wmma_form *f = arena_alloc(b->arena, sizeof *f);
	int role = store ? (take(s, "d") ? MATRIX_C : -1) : take_one(s, roles), row;
	enum space space = take_space(s);
	struct shape shape;
	bool by_row = take(s, "row");

	f->by_column = !by_row && take(s, "col");
	row = take_shape(s, true, &shape);
	f->fragment.role = (enum role)role;
	f->fragment.element = take_element(s);
	if (role < 0 || row < 0 || by_row == f->by_column || !take(s, "sync") || !take(s, "aligned") || !all_taken(s) ||
	    (space != SPACE_GLOBAL && space != SPACE_SHARED && space != SPACE_GENERIC) ||
	    !(role == MATRIX_C ? sum_allowed(row, f->fragment.element) : shape_allows(row, true, f->fragment.element)))
		return false;
	if (element_bits(f->fragment.element) < 8 && f->by_column != (role == MATRIX_B))
		return false;
	operands(b, s, 2, 3);
	fragment_shape(&f->fragment, shape, true);
	fragment_operand(b, s, store ? 1 : 0, &f->fragment, !store);
	take_lane_address(b, s, store ? 0 : 1, space, &f->at);
	f->has_stride = s->n == 3;
	if (f->has_stride)
		f->stride = src(b, s, 2, T_U32);
	return emit_matrix(b, s, store ? run_store : run_load,
			   (uint32_t)row << 8 | (uint32_t)f->fragment.element << 3 | (uint32_t)role, f);
}
