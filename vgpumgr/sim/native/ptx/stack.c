/* SPDX-License-Identifier: Apache-2.0 */
/* alloca, stacksave and stackrestore: local memory behind the frame of a call, which ends with the call. */
#include "ops.h"

enum { ALLOCA_ALIGN = 8 };

static HANDLER(run_alloca)
{
	uint64_t mask = i->imm - 1, at = (t->local_used + mask) & ~mask, size = r[i->a];

	if (i->size == 4)
		size = (u32)size;
	if (size > LOCAL_BYTES)
		size = LOCAL_BYTES + 1; /* more than there is */
	if (!grow_local(t, i, at + size))
		return NULL;
	t->local_used = (uint32_t)(at + size);
	r[i->d] = at;
	return i + 1;
}

static HANDLER(run_stacksave)
{
	r[i->d] = t->local_used;
	return i + 1;
}

static HANDLER(run_stackrestore)
{
	uint64_t to = i->size == 4 ? (u32)r[i->a] : r[i->a];

	if (to > t->local_used || to < (uint64_t)t->base + t->function->frame_bytes)
		return fault(t, i, PTX_TRAP, "stackrestore of 0x%llx, which is not of this call", (unsigned long long)to);
	t->local_used = (uint32_t)to;
	return i + 1;
}

static enum type take_size(struct statement *s)
{
	enum type type = take_type(s);

	return type == T_U32 || type == T_U64 ? type : T_NONE;
}

/* alloca.type d, size{, alignment} */
DECODER(alloca)
{
	enum type type = take_size(s);
	uint64_t align = ALLOCA_ALIGN;
	struct insn *i;

	if (!type)
		return false;
	operands(b, s, 2, 3);
	if (s->n == 3) {
		align = s->operands[2].bits;
		if (s->operands[2].kind != O_INT || !align || align & (align - 1) || align > 1 << 16)
			bad_operand(b, s, 2, "a power of two");
	}
	i = emit_visible(b, s, run_alloca);
	i->imm = align;
	i->size = (uint8_t)type_size(type);
	i->a = src(b, s, 1, type);
	i->d = dst(b, s, 0, type);
	return true;
}

/* variant 1 is stackrestore */
DECODER(stacksave)
{
	enum type type = take_size(s);
	struct insn *i;

	if (!type)
		return false;
	operands(b, s, 1, 1);
	i = emit_visible(b, s, s->variant ? run_stackrestore : run_stacksave);
	i->size = (uint8_t)type_size(type);
	if (s->variant)
		i->a = src(b, s, 0, type);
	else
		i->d = dst(b, s, 0, type);
	return true;
}
