/* SPDX-License-Identifier: Apache-2.0 */
/* Which matrices mma and wmma multiply: shapes, and types of elements that each has. */
#include "matrix.h"

/* The shapes of mma and wmma.mma by what A and B are made of. */
enum { F16 = 1, BF16 = 2, TF32 = 4, F64 = 8, FP8 = 16, INT8 = 32, INT4 = 64, BIT = 128 };
static const struct {
	const char *name;
	struct shape shape;
	uint8_t narrow, wide; /* for mma, for wmma */
} shapes[] = {
	{ "m16n8k4", { 16, 8, 4 }, TF32 | F64, 0 },
	{ "m16n8k8", { 16, 8, 8 }, F16 | BF16 | TF32 | F64, 0 },
	{ "m16n8k16", { 16, 8, 16 }, F16 | BF16 | F64 | INT8 | FP8, 0 },
	{ "m16n8k32", { 16, 8, 32 }, INT8 | INT4 | FP8, 0 },
	{ "m16n8k64", { 16, 8, 64 }, INT4, 0 },
	{ "m16n8k128", { 16, 8, 128 }, BIT, 0 },
	{ "m16n8k256", { 16, 8, 256 }, BIT, 0 },
	{ "m8n8k4", { 8, 8, 4 }, F64, F64 },
	{ "m8n8k16", { 8, 8, 16 }, INT8, 0 },
	{ "m8n8k32", { 8, 8, 32 }, INT4, INT4 },
	{ "m8n8k128", { 8, 8, 128 }, BIT, BIT },
	{ "m16n16k16", { 16, 16, 16 }, 0, F16 | BF16 | INT8 },
	{ "m32n8k16", { 32, 8, 16 }, 0, F16 | BF16 | INT8 },
	{ "m8n32k16", { 8, 32, 16 }, 0, F16 | BF16 | INT8 },
	{ "m16n16k8", { 16, 16, 8 }, 0, TF32 },
};

uint8_t element_family(enum element e)
{
	static const uint8_t families[] = {
		[E_F16] = F16, [E_BF16] = BF16, [E_TF32] = TF32, [E_F64] = F64, [E_E4M3] = FP8, [E_E5M2] = FP8,
		[E_S8] = INT8, [E_U8] = INT8, [E_S4] = INT4, [E_U4] = INT4, [E_B1] = BIT, [E_S32] = 0,
	};

	return families[e];
}

int take_shape(struct statement *s, bool wide, struct shape *shape)
{
	for (int row = 0; row < (int)(sizeof shapes / sizeof *shapes); row++)
		if ((wide ? shapes[row].wide : shapes[row].narrow) && take(s, shapes[row].name)) {
			*shape = shapes[row].shape;
			return row;
		}
	return -1;
}

bool shape_allows(int row, bool wide, enum element e)
{
	return (wide ? shapes[row].wide : shapes[row].narrow) & element_family(e);
}
