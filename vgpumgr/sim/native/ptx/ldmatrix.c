/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ldmatrix, stmatrix and movmatrix: matrices of eight rows, each 16 bytes in shared memory. Lanes 0 to 7 have the addresses
 * of the first matrix' rows, 8 to 15 those of the second, and so on. A lane holds two neighbours of a row, or, with
 * .trans, of a column.
 */
#include "matrix.h"

struct move_form {
	struct lane_address at;
	uint32_t n, cells[4];
	bool transposed;
};

typedef u16 matrix[8][8];

static u32 read_matrix(matrix m, uint32_t lane, bool transposed)
{
	uint32_t line = lane / 4, first = lane % 4 * 2;

	if (transposed)
		return m[first][line] | (u32)m[first + 1][line] << 16;
	return m[line][first] | (u32)m[line][first + 1] << 16;
}

static void write_matrix(matrix m, uint32_t lane, bool transposed, u32 value)
{
	uint32_t line = lane / 4, first = lane % 4 * 2;

	if (transposed) {
		m[first][line] = (u16)value;
		m[first + 1][line] = (u16)(value >> 16);
	} else {
		m[line][first] = (u16)value;
		m[line][first + 1] = (u16)(value >> 16);
	}
}

/* A row of matrix n, at the address that its lane has; a lane that does not take part has none. */
static bool move_row(struct thread *lanes, uint32_t members, uint32_t n, uint32_t row, u16 *line, bool store)
{
	uint32_t lane = 8 * n + row;
	const struct move_form *f;
	uint8_t *at;

	if (!(members >> lane & 1))
		return true;
	f = form_of(&lanes[lane]);
	at = reach(&lanes[lane], lanes[lane].pc, f->at.space, lane_address(&lanes[lane], &f->at), 16, store);
	if (at)
		memcpy(store ? (void *)at : line, store ? (void *)line : at, 16);
	return at;
}

static void run_ldmatrix(struct thread *lanes, uint32_t members)
{
	const struct move_form *first = form_of(&lanes[__builtin_ctz(members)]);
	matrix m[4] = { { { 0 } } };

	for (uint32_t n = 0; n < first->n; n++)
		for (uint32_t row = 0; row < 8; row++)
			if (!move_row(lanes, members, n, row, m[n][row], false))
				return;
	for (uint32_t lane = 0; lane < WARP; lane++) {
		const struct move_form *f = members >> lane & 1 ? form_of(&lanes[lane]) : NULL;

		for (uint32_t n = 0; f && n < f->n; n++)
			put_lane(&lanes[lane], f->cells[n], read_matrix(m[n], lane, f->transposed));
	}
}

static void run_stmatrix(struct thread *lanes, uint32_t members)
{
	const struct move_form *first = form_of(&lanes[__builtin_ctz(members)]);
	matrix m[4] = { { { 0 } } };

	for (uint32_t lane = 0; lane < WARP; lane++) {
		const struct move_form *f = members >> lane & 1 ? form_of(&lanes[lane]) : NULL;

		for (uint32_t n = 0; f && n < f->n; n++)
			write_matrix(m[n], lane, f->transposed, (u32)get_lane(&lanes[lane], f->cells[n]));
	}
	for (uint32_t n = 0; n < first->n; n++)
		for (uint32_t row = 0; row < 8; row++)
			if (!move_row(lanes, members, n, row, m[n][row], true))
				return;
}

static void run_movmatrix(struct thread *lanes, uint32_t members)
{
	matrix m = { { 0 } };

	for (uint32_t lane = 0; lane < WARP; lane++)
		if (members >> lane & 1)
			write_matrix(m, lane, false, (u32)get_lane(&lanes[lane], lanes[lane].pc->a));
	for (uint32_t lane = 0; lane < WARP; lane++)
		if (members >> lane & 1)
			put_lane(&lanes[lane], lanes[lane].pc->d, read_matrix(m, lane, true));
}

/* ldmatrix; variant 1 is stmatrix */
DECODER(ldmatrix)
{
	static const char *const counts[] = { "x1", "x2", "x4", NULL };
	struct move_form *f = arena_alloc(b->arena, sizeof *f);
	int count = take_one(s, counts);
	uint32_t list = s->variant ? 1 : 0;
	enum space space = take_space(s);
	const struct operand *o;

	if (count < 0 || !take(s, "sync") || !take(s, "aligned") || !take(s, "m8n8") || !take(s, "b16") ||
	    (space != SPACE_SHARED && space != SPACE_GENERIC))
		return false;
	f->transposed = take(s, "trans");
	f->n = 1u << count;
	operands(b, s, 2, 2);
	o = &s->operands[list];
	if (o->kind == O_VECTOR ? o->n != f->n : f->n != 1)
		fail(b->parser, PTX_SYNTAX, s->line, "operand %u: a vector of %u registers is expected", list + 1, f->n);
	for (uint32_t k = 0; k < f->n; k++) {
		const struct operand *e = o->kind == O_VECTOR ? &o->elements[k] : o;

		f->cells[k] = s->variant ? operand_src(b, s, e, T_B32, false) : operand_dst(b, s, e, T_B32, false);
	}
	take_lane_address(b, s, 1 - list, space, &f->at);
	return emit_matrix(b, s, s->variant ? run_stmatrix : run_ldmatrix, f->n << 1 | f->transposed, f);
}

DECODER(movmatrix)
{
	struct warp_form f = { .run = run_movmatrix };

	if (!take(s, "sync") || !take(s, "aligned") || !take(s, "m8n8") || !take(s, "trans") || !take(s, "b16"))
		return false;
	operands(b, s, 2, 2);
	f.a = src(b, s, 1, T_B32);
	f.d = dst(b, s, 0, T_B32);
	f.second = b->sink;
	f.mask = slot_const(b, INIT_VALUE, 0xffffffff, NULL);
	return emit_warp(b, s, &f);
}
