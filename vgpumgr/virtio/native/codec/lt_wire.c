/* SPDX-License-Identifier: Apache-2.0 */
#include "lt_wire.h"

static const uint8_t descriptor[] = {
	[0] = 4, [1] = 4, [2] = 4, [3] = 4, [4] = 4, [5] = 4, [6] = 4, [7] = 4, [8] = 8, [10] = 8, [11] = 8, [12] = 8, [13] = 8,
	[14] = 8, [15] = 4, [17] = 8, [18] = 8, [19] = 8, [20] = 8, [21] = 8, [22] = 4, [23] = 8, [24] = 8, [25] = 1, [26] = 4,
	[31] = 4, [32] = 4, [33] = 4, [34] = 4, [35] = 4, [36] = 8, [37] = 4,
};
static const uint8_t layout[] = { 4, 4, 8, 8, 8, 4, 8, 8, 4 };
static const uint8_t preference[] = { [0] = 4, [1] = 8, [3] = 4, [5] = 4, [6] = 4, [7] = 4, [8] = 4, [9] = 4, [12] = 8 };
static const uint8_t transformation[] = { 4, 4, 4, 4 };

size_t lt_attribute_bytes(enum lt_object_kind kind, uint32_t number)
{
	static const struct {
		const uint8_t *bytes;
		size_t count;
	} tables[] = {
		[LT_DESCRIPTOR] = { descriptor, sizeof(descriptor) },
		[LT_LAYOUT] = { layout, sizeof(layout) },
		[LT_PREFERENCE] = { preference, sizeof(preference) },
		[LT_TRANSFORMATION] = { transformation, sizeof(transformation) },
	};

	return number < tables[kind].count ? tables[kind].bytes[number] : 0;
}

/* Bias, auxiliary matrix, scales and largest values. */
bool lt_is_address(enum lt_object_kind kind, uint32_t number)
{
	return kind == LT_DESCRIPTOR && (number == 8 || number == 11 || (number >= 17 && number <= 21) || number == 23 ||
					 number == 24 || number == 36);
}
