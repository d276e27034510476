/* SPDX-License-Identifier: Apache-2.0 */
/* redux.sync.{min,max}{.abs}{.NaN}.f32. A NaN loses against a number unless .NaN asks for it; -0 is less than +0. */
#include "ops.h"

enum { REDUX_MAX = 0x100 };

static float pick(float a, float b, uint32_t flags)
{
	bool max = flags & REDUX_MAX;

	if (a != a || b != b)
		return flags & FLAG_NAN || (a != a && b != b) ? NAN : a != a ? b : a;
	if (a == b)
		return (signbit(a) != 0) == max ? b : a;
	return (a < b) == max ? b : a;
}

static void redux_float(struct thread *lanes, uint32_t members)
{
	uint32_t first = (uint32_t)__builtin_ctz(members);
	float result = 0;

	for (uint32_t k = first; k < WARP; k++) {
		float v;

		if (!(members >> k & 1))
			continue;
		v = get_f32(lanes[k].r[lanes[k].pc->a]);
		v = lanes[k].pc->flags & FLAG_ABS ? fabsf(v) : v;
		result = k == first ? v : pick(result, v, lanes[k].pc->flags);
	}
	for (uint32_t k = first; k < WARP; k++)
		if (members >> k & 1)
			lanes[k].r[lanes[k].pc->d] = put_f32_result(result);
}

bool decode_redux_float(struct body *b, struct statement *s)
{
	struct warp_form f = { .run = redux_float };
	bool max = take(s, "max");

	if ((!max && !take(s, "min")) || !take(s, "sync"))
		return false;
	f.flags = (uint16_t)((max ? REDUX_MAX : 0) | (take(s, "abs") ? FLAG_ABS : 0) | (take(s, "NaN") ? FLAG_NAN : 0));
	operands(b, s, 3, 3);
	f.a = src(b, s, 1, T_F32);
	f.mask = src(b, s, 2, T_B32);
	f.d = dst(b, s, 0, T_F32);
	f.second = b->sink;
	return emit_warp(b, s, &f);
}
