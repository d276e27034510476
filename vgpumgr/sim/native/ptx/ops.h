/* SPDX-License-Identifier: Apache-2.0 */
/* How handlers are written: `r` is the frame, `i` the instruction, `t` the thread. */
#ifndef PTX_OPS_H
#define PTX_OPS_H

#include "decode.h"
#include "simd.h"

#include <math.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

#define HANDLER(name)                                                                                                \
	const struct insn *name(__attribute__((unused)) struct thread *t, __attribute__((unused)) uint64_t *r,       \
				__attribute__((unused)) const struct insn *i)
/* A handler that always goes on to the next instruction, and touches nothing but its lane's cells; and its wide form. */
#define OP(name, ...)                                                                                                \
	static HANDLER(name)                                                                                         \
	{                                                                                                            \
		__VA_ARGS__;                                                                                         \
		return i + 1;                                                                                        \
	}                                                                                                            \
	WIDE_LANES(name, __VA_ARGS__)
/* One that writes its destination only. */
#define PURE(name, ...)                                                                                              \
	static HANDLER(name)                                                                                         \
	{                                                                                                            \
		__VA_ARGS__;                                                                                         \
		return i + 1;                                                                                        \
	}                                                                                                            \
	WIDE_PURE(name, __VA_ARGS__)
#define BINARY(name, T, expr) PURE(name##_##T, T a = (T)r[i->a]; T b = (T)r[i->b]; r[i->d] = (uint64_t)(expr))
/* Where signedness does not matter. */
#define BINARY_UNSIGNED(name, expr) BINARY(name, u16, expr) BINARY(name, u32, expr) BINARY(name, u64, expr)
#define BINARY_ALL(name, expr)                                                                                       \
	BINARY_UNSIGNED(name, expr) BINARY(name, s16, expr) BINARY(name, s32, expr) BINARY(name, s64, expr)
#define INTEGER_TABLE(name)                                                                                          \
	[T_U16] = name##_u16, [T_U32] = name##_u32, [T_U64] = name##_u64, [T_S16] = name##_s16,                      \
	[T_S32] = name##_s32, [T_S64] = name##_s64
#define INTEGER_TABLE_UNSIGNED(name)                                                                                 \
	[T_U16] = name##_u16, [T_U32] = name##_u32, [T_U64] = name##_u64, [T_S16] = name##_u16,                      \
	[T_S32] = name##_u32, [T_S64] = name##_u64
#define BITS_TABLE(name) [T_B16] = name##_u16, [T_B32] = name##_u32, [T_B64] = name##_u64

static inline float get_f32(uint64_t cell)
{
	uint32_t bits = (uint32_t)cell;
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static inline uint64_t put_f32(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static inline double get_f64(uint64_t cell)
{
	double f;

	memcpy(&f, &cell, sizeof f);
	return f;
}

static inline uint64_t put_f64(double f)
{
	uint64_t bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

/*
 * The address of a memory instruction: the register's value plus the offset. The sum of a 32-bit register and its offset is
 * of 32 bits as well (PTX ISA 6.4.1, "Addresses as Operands": address arithmetic is integer arithmetic of the address's
 * size).
 */
static inline uint64_t effective(const uint64_t *r, const struct insn *i)
{
	uint64_t sum = r[i->a] + (uint64_t)i->offset;

	return i->flags & FLAG_ADDRESS32 ? (uint32_t)sum : sum;
}

/* The NaN that single-precision instructions make. */
static inline uint64_t put_f32_result(float f)
{
	uint32_t bits = (uint32_t)put_f32(f); /* asked as a number, which makes no branch */

	return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : bits;
}

bool decode_carry_out(struct body *b, struct statement *s, enum type type, uint32_t op);
bool decode_mad_carry(struct body *b, struct statement *s, enum type type, int part, bool in, bool out);
bool decode_fma_of(struct body *b, struct statement *s, enum type type);
bool decode_warp_barrier(struct body *b, struct statement *s);

/* A warp-wide instruction's operands: cells, and in `ext` what does not fit. Lanes with equal `run` and `flags` meet. */
struct warp_form {
	warp_operation *run;
	uint16_t flags;
	uint32_t a, b, c, d, second, mask;
	const void *ext;
};
bool emit_warp(struct body *b, struct statement *s, const struct warp_form *f);

#endif
