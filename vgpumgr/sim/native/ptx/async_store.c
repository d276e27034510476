/* SPDX-License-Identifier: Apache-2.0 */
/* st and red; and st.async and red.async, which tell an mbarrier how many bytes have come. They are done at once. */
#include "async.h"

static bool decode_async(struct body *b, struct statement *s, bool decode(struct body *b, struct statement *s))
{
	struct statement plain = *s;
	enum type type = type_named(s->modifiers[s->n_modifiers - 1]);
	uint32_t n;

	if (!take(&plain, "async") || !take(&plain, "mbarrier::complete_tx::bytes") ||
	    type == T_NONE)
		return false;
	operands(b, s, 3, 3);
	n = s->operands[1].kind == O_VECTOR ? s->operands[1].n : 1;
	plain.n = 2;
	if (!decode(b, &plain))
		return false;
	s->used = plain.used;
	return decode_complete(b, s, 2, n * type_size(type));
}

static bool is_async(const struct statement *s)
{
	return s->n_modifiers && text_is(s->modifiers[0], "async");
}

DECODER(st)
{
	return is_async(s) ? decode_async(b, s, decode_store) : decode_store(b, s);
}

DECODER(red)
{
	return is_async(s) ? decode_async(b, s, decode_reduction) : decode_reduction(b, s);
}
