/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices that the lanes of a warp hold together: mma, wmma, ldmatrix, stmatrix, movmatrix. */
#ifndef PTX_MATRIX_H
#define PTX_MATRIX_H

#include "rounding.h"

enum element {
	E_NONE,
	E_F16, E_BF16, E_TF32, E_F32, E_F64, E_E4M3, E_E5M2,
	E_S8, E_U8, E_S4, E_U4, E_B1, E_S32,
};

enum role { MATRIX_A, MATRIX_B, MATRIX_C };

/* A is m x k, B is k x n, C and D are m x n. */
struct shape {
	uint16_t m, n, k;
};

enum { MAX_CELLS = 8, MAX_ELEMENTS_OF_A = 16 * 256, MAX_ELEMENTS_OF_B = 256 * 8, MAX_ELEMENTS_OF_C = 256 };

/* What a lane has of a matrix: registers, and so many of them that no two hold the same elements. */
struct matrix_part {
	enum role role;
	enum element element;
	uint16_t rows, columns;
	uint32_t n, distinct;
	uint32_t cells[MAX_CELLS];
};

/* An address of a warp-wide instruction: its own fields have the operation. */
struct lane_address {
	enum space space;
	uint32_t base;
	int64_t offset;
	bool narrow; /* 32-bit */
};

uint32_t element_bits(enum element e);
bool element_integer(enum element e);
/* The next modifier that was not taken and names an element type. */
enum element take_element(struct statement *s);

/* Elements that one register holds. */
uint32_t fragment_packed(const struct matrix_part *f);
/* The place of the first element in a lane's register; the others follow along k, or along the row in C and D. */
void fragment_place(const struct matrix_part *f, uint32_t lane, uint32_t cell, uint32_t *row, uint32_t *column);
/* Sets rows, columns and the numbers of registers; `wide` is wmma, whose f16 operands have eight registers in each shape. */
void fragment_shape(struct matrix_part *f, struct shape shape, bool wide);
/* The registers of operand `n`: a vector, or one register. */
void fragment_operand(struct body *b, struct statement *s, uint32_t n, struct matrix_part *f, bool result);

double element_float(enum element e, uint64_t cell, uint32_t n);
int32_t element_int(enum element e, uint64_t cell, uint32_t n);
/* Rounds to nearest; `finite`: to the largest number instead of infinity, NaN to zero. */
uint64_t element_round(enum element e, double v, bool finite);

void take_lane_address(struct body *b, struct statement *s, uint32_t n, enum space space, struct lane_address *a);
static inline uint64_t lane_address(const struct thread *t, const struct lane_address *a)
{
	uint64_t sum = t->r[a->base] + (uint64_t)a->offset;

	return a->narrow ? (uint32_t)sum : sum;
}

static inline uint64_t get_lane(const struct thread *t, uint32_t cell)
{
	return t->r[cell];
}

static inline void put_lane(struct thread *t, uint32_t cell, uint64_t value)
{
	t->r[cell] = value;
}

/* The form of the instruction that a lane stands at. */
static inline const void *form_of(const struct thread *t)
{
	return t->pc[1].ext;
}

/* fp8.c */
float fp8_to_float(uint8_t bits, bool e5m2);
/* Overflow gives the largest number. */
uint32_t encode_fp8(long double v, bool e5m2);

/* Emits a warp-wide instruction of all 32 lanes. */
bool emit_matrix(struct body *b, struct statement *s, warp_operation *run, uint32_t flags, const void *form);

bool decode_wmma_load(struct body *b, struct statement *s, bool store);
/* The shapes of wmma (`wide`) and mma for element types of A and B; finds the row of a name such as m16n8k16. */
/* shapes.c; a number for the types that are multiplied alike */
uint8_t element_family(enum element e);
int take_shape(struct statement *s, bool wide, struct shape *shape);
bool shape_allows(int row, bool wide, enum element e);

#endif
