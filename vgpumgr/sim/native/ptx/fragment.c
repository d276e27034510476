/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which lane holds which element of a matrix (PTX ISA 9.7.14.5, "Matrix Fragments for mma"). Every shape is made of
 * blocks that have one register in each lane: eight rows by 128 bits along k for A, the same by eight columns for B, eight
 * by eight elements for C and D, where a lane has two neighbours of a row. The fragments of wmma are not documented; here
 * they are made of the same blocks.
 */
#include "matrix.h"

#include <float.h>

uint32_t element_bits(enum element e)
{
	static const uint8_t bits[] = {
		[E_F16] = 16, [E_BF16] = 16, [E_TF32] = 32, [E_F32] = 32, [E_F64] = 64, [E_E4M3] = 8, [E_E5M2] = 8,
		[E_S8] = 8, [E_U8] = 8, [E_S4] = 4, [E_U4] = 4, [E_B1] = 1, [E_S32] = 32,
	};

	return bits[e];
}

bool element_integer(enum element e)
{
	return e >= E_S8;
}

enum element take_element(struct statement *s)
{
	static const char *const names[] = { "", "f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2",
					     "s8", "u8", "s4", "u4", "b1", "s32" };

	for (uint32_t k = 0; k < s->n_modifiers; k++)
		for (uint32_t e = E_F16; e <= E_S32; e++)
			if (!(s->used & 1u << k) && text_is(s->modifiers[k], names[e])) {
				s->used |= 1u << k;
				return (enum element)e;
			}
	return E_NONE;
}

uint32_t fragment_packed(const struct matrix_part *f)
{
	uint32_t bits = element_bits(f->element);

	return bits < 32 ? 32 / bits : 1;
}

void fragment_place(const struct matrix_part *f, uint32_t lane, uint32_t cell, uint32_t *row, uint32_t *column)
{
	uint32_t group = lane / 4, in_group = lane % 4, packed = fragment_packed(f), blocks;

	cell %= f->distinct;
	switch (f->role) {
	case MATRIX_A:
		blocks = f->rows / 8u;
		*row = group + 8 * (cell % blocks);
		*column = (cell / blocks * 4 + in_group) * packed;
		break;
	case MATRIX_B:
		blocks = f->rows / (4 * packed);
		*row = (cell % blocks * 4 + in_group) * packed;
		*column = group + 8 * (cell / blocks);
		break;
	default:
		blocks = f->rows / 8u;
		cell *= packed;
		*row = group + 8 * (cell / 2 % blocks);
		*column = 8 * (cell / 2 / blocks) + 2 * in_group + cell % 2;
	}
}

void fragment_shape(struct matrix_part *f, struct shape shape, bool wide)
{
	f->rows = f->role == MATRIX_B ? shape.k : shape.m;
	f->columns = f->role == MATRIX_A ? shape.k : shape.n;
	f->distinct = f->rows * f->columns / (WARP * fragment_packed(f));
	f->n = wide && f->role != MATRIX_C && f->element == E_F16 ? MAX_CELLS : f->distinct;
}

void fragment_operand(struct body *b, struct statement *s, uint32_t n, struct matrix_part *f, bool result)
{
	enum type type = f->element == E_F64 ? T_B64 : T_B32;
	const struct operand *o = &s->operands[n];

	if (o->kind != O_VECTOR && f->n == 1) {
		f->cells[0] = result ? operand_dst(b, s, o, type, false) : operand_src(b, s, o, type, false);
		return;
	}
	if (o->kind != O_VECTOR || o->n != f->n)
		fail(b->parser, PTX_SYNTAX, s->line, "operand %u: a vector of %u registers is expected", n + 1, f->n);
	for (uint32_t k = 0; k < f->n; k++)
		f->cells[k] = result ? operand_dst(b, s, &o->elements[k], type, false) :
				       operand_src(b, s, &o->elements[k], type, false);
}

double element_float(enum element e, uint64_t cell, uint32_t n)
{
	switch (e) {
	case E_F16:
		return (double)half_to_float((u16)(cell >> 16 * n));
	case E_BF16:
		return (double)get_f32(((u32)(cell >> 16 * n) & 0xffff) << 16);
	case E_TF32: /* the lowest 13 bits do not count */
		return (double)get_f32(cell & 0xffffe000);
	case E_F64:
		return get_f64(cell);
	case E_E4M3:
	case E_E5M2:
		return (double)fp8_to_float((u8)(cell >> 8 * n), e == E_E5M2);
	default:
		return (double)get_f32(cell);
	}
}

int32_t element_int(enum element e, uint64_t cell, uint32_t n)
{
	switch (e) {
	case E_S8:
		return (s8)(cell >> 8 * n);
	case E_U8:
		return (u8)(cell >> 8 * n);
	case E_S4:
		return (s32)((u32)(cell >> 4 * n) << 28) >> 28;
	case E_U4:
		return cell >> 4 * n & 15;
	case E_B1:
		return cell >> n & 1;
	default:
		return (s32)cell;
	}
}

uint64_t element_round(enum element e, double v, bool finite)
{
	if (finite && v != v)
		return 0;
	if (e == E_F16)
		return encode_float((long double)v, 10, 5, ROUND_RN, finite);
	if (e == E_F64)
		return put_f64(v);
	if (finite)
		v = v > (double)FLT_MAX ? (double)FLT_MAX : v < (double)-FLT_MAX ? (double)-FLT_MAX : v;
	return put_f32_result((float)v);
}

void take_lane_address(struct body *b, struct statement *s, uint32_t n, enum space space, struct lane_address *a)
{
	struct insn at = { .run = NULL };

	address(b, s, n, &at);
	a->space = space;
	a->base = at.a;
	a->offset = at.offset;
	a->narrow = at.flags & FLAG_ADDRESS32;
}

bool emit_matrix(struct body *b, struct statement *s, warp_operation *run, uint32_t flags, const void *form)
{
	struct warp_form f = { .run = run, .flags = (uint16_t)flags, .ext = form, .d = b->sink, .second = b->sink };

	f.mask = slot_const(b, INIT_VALUE, 0xffffffff, NULL);
	return emit_warp(b, s, &f);
}
