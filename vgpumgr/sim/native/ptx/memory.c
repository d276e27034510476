/* SPDX-License-Identifier: Apache-2.0 */
/* ld, st and what only looks like a memory access. Every access is bounds-checked and must be aligned. */
#include "ops.h"

static const struct insn *bad_access(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write,
				     const char *where)
{
	return fault(t, i, PTX_ILLEGAL_ADDRESS, "illegal address 0x%llx: %s of %u bytes%s", (unsigned long long)addr,
		     write ? "write" : "read", size, where);
}

static const struct insn *misaligned(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size)
{
	return fault(t, i, PTX_MISALIGNED, "misaligned address 0x%llx for %u bytes", (unsigned long long)addr, size);
}

static uint8_t *reach_slowly(struct thread *t, const struct insn *i, struct range *range, uint64_t addr, uint32_t size,
			     bool write)
{
	const struct ptx_host *h = &t->worker->grid->kernel->module->host;
	uint64_t base = addr, length = size;
	uint8_t *at = NULL;

	if (addr >> WINDOW_SHIFT == WINDOW_GLOBAL)
		at = h->translate(h->ctx, addr, size, write, &base, &length);
	if (!at) {
		bad_access(t, i, addr, size, write, "");
		return NULL;
	}
	*range = (struct range){ base, length, at - (addr - base), write };
	return at;
}

/* Each instruction tends to stay within one allocation: the cache is looked up by instruction. */
uint8_t *reach_global(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	struct range *range = &t->worker->cache[((uintptr_t)i >> 3) % CACHE];
	uint64_t offset = addr - range->base;

	if (addr & (size - 1)) {
		misaligned(t, i, addr, size);
		return NULL;
	}
	if (offset < range->length && size <= range->length - offset && (range->write || !write))
		return range->at + offset;
	return reach_slowly(t, i, range, addr, size, write);
}

static inline uint8_t *reach_window(struct thread *t, const struct insn *i, uint8_t *memory, uint64_t limit, uint64_t addr,
				    uint32_t size, bool write, const char *where)
{
	if (addr & (size - 1)) {
		misaligned(t, i, addr, size);
		return NULL;
	}
	if (addr >= limit || size > limit - addr) {
		bad_access(t, i, addr, size, write, where);
		return NULL;
	}
	return memory + addr;
}

static uint8_t *reach_shared(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	return reach_window(t, i, t->worker->shared, t->worker->shared_bytes, addr, size, write, " in shared memory");
}

static uint8_t *reach_local(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	return reach_window(t, i, t->local, t->local_used, addr, size, write, " in local memory");
}

static uint8_t *reach_param(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	const struct grid *g = t->worker->grid;

	if (write) {
		bad_access(t, i, addr, size, write, " in kernel parameters");
		return NULL;
	}
	return reach_window(t, i, (uint8_t *)g->launch->params, g->kernel->param_bytes, addr, size, write,
			    " in kernel parameters");
}

static uint8_t *reach_generic(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	uint64_t offset = addr & (WINDOW(1) - 1);

	switch (addr >> WINDOW_SHIFT) {
	case WINDOW_SHARED:
		return reach_shared(t, i, offset, size, write);
	case WINDOW_LOCAL:
		return reach_local(t, i, offset, size, write);
	case WINDOW_PARAM:
		return reach_param(t, i, offset, size, write);
	default:
		return reach_global(t, i, addr, size, write);
	}
}

uint8_t *reach(struct thread *t, const struct insn *i, enum space space, uint64_t addr, uint32_t size, bool write)
{
	switch (space) {
	case SPACE_GLOBAL:
	case SPACE_CONST:
		return reach_global(t, i, addr, size, write);
	case SPACE_SHARED:
		return reach_shared(t, i, addr, size, write);
	case SPACE_LOCAL:
		return reach_local(t, i, addr, size, write);
	case SPACE_PARAM:
		return reach_param(t, i, addr, size, write);
	default:
		return reach_generic(t, i, addr, size, write);
	}
}

/* Atomic accesses: other blocks may run at the same time. */
#define LOAD(space, T)                                                                                               \
	static HANDLER(ld_##space##_##T)                                                                             \
	{                                                                                                            \
		T *at = (T *)(void *)reach_##space(t, i, effective(r, i), sizeof(T), false);                         \
                                                                                                                     \
		if (!at)                                                                                             \
			return NULL;                                                                                 \
		r[i->d] = (u64)__atomic_load_n(at, __ATOMIC_RELAXED);                                                \
		return i + 1;                                                                                        \
	}
#define STORE(space, T)                                                                                              \
	static HANDLER(st_##space##_##T)                                                                             \
	{                                                                                                            \
		T *at = (T *)(void *)reach_##space(t, i, effective(r, i), sizeof(T), true);                          \
                                                                                                                     \
		if (!at)                                                                                             \
			return NULL;                                                                                 \
		__atomic_store_n(at, (T)r[i->d], __ATOMIC_RELAXED);                                                  \
		return i + 1;                                                                                        \
	}
#define ACCESS(space)                                                                                                \
	LOAD(space, u8) LOAD(space, u16) LOAD(space, u32) LOAD(space, u64) LOAD(space, s8) LOAD(space, s16)          \
	LOAD(space, s32) STORE(space, u8) STORE(space, u16) STORE(space, u32) STORE(space, u64)
ACCESS(global) ACCESS(shared) ACCESS(local) ACCESS(param) ACCESS(generic)

/* [type's size as a power of two][signed] */
#define LOADS(space)                                                                                                 \
	{ { ld_##space##_u8, ld_##space##_s8 }, { ld_##space##_u16, ld_##space##_s16 },                              \
	  { ld_##space##_u32, ld_##space##_s32 }, { ld_##space##_u64, ld_##space##_u64 } }
#define STORES(space) { st_##space##_u8, st_##space##_u16, st_##space##_u32, st_##space##_u64 }
static handler *const loads[][4][2] = {
	[SPACE_GLOBAL] = LOADS(global), [SPACE_CONST] = LOADS(global), [SPACE_SHARED] = LOADS(shared),
	[SPACE_LOCAL] = LOADS(local), [SPACE_PARAM] = LOADS(param), [SPACE_GENERIC] = LOADS(generic),
};
static handler *const stores[][4] = {
	[SPACE_GLOBAL] = STORES(global), [SPACE_CONST] = STORES(global), [SPACE_SHARED] = STORES(shared),
	[SPACE_LOCAL] = STORES(local), [SPACE_PARAM] = STORES(param), [SPACE_GENERIC] = STORES(generic),
};

static u64 load_element(const uint8_t *at, uint32_t size, bool is_signed)
{
	switch (size) {
	case 1:
		return is_signed ? (u64)(s8)*at : *at;
	case 2:
		return is_signed ? (u64)*(const s16 *)(const void *)at : *(const u16 *)(const void *)at;
	case 4:
		return is_signed ? (u64)*(const s32 *)(const void *)at : *(const u32 *)(const void *)at;
	default:
		return *(const u64 *)(const void *)at;
	}
}

/* Vectors: the registers' cells follow in instructions that never run. flags above FLAG_BASE: signed. */
enum { FLAG_SIGNED = 4, FLAG_COUNT_SHIFT = 8, CELLS = 4 };

static uint32_t cell(const struct insn *i, uint32_t n)
{
	const struct insn *list = i + 1 + n / CELLS;
	const uint32_t cells[CELLS] = { list->d, list->a, list->b, list->c };

	return cells[n % CELLS];
}

static HANDLER(ld_vector)
{
	uint32_t n = i->flags >> FLAG_COUNT_SHIFT;
	const uint8_t *at = reach(t, i, (enum space)i->space, effective(r, i), n * i->size, false);
	u64 values[8];

	if (!at)
		return NULL;
	for (uint32_t k = 0; k < n; k++)
		values[k] = load_element(at + k * i->size, i->size, i->flags & FLAG_SIGNED);
	for (uint32_t k = 0; k < n; k++)
		r[cell(i, k)] = values[k];
	return i + 1 + (n + CELLS - 1) / CELLS;
}

static HANDLER(st_vector)
{
	uint32_t n = i->flags >> FLAG_COUNT_SHIFT;
	uint8_t *at = reach(t, i, (enum space)i->space, effective(r, i), n * i->size, true);

	if (!at)
		return NULL;
	for (uint32_t k = 0; k < n; k++)
		memcpy(at + k * i->size, &r[cell(i, k)], i->size);
	return i + 1 + (n + CELLS - 1) / CELLS;
}

/* Cache operators and the memory model's qualifiers change no result here: every access is seen by all at once. */
static void take_hints(struct statement *s)
{
	static const char *const hints[] = {
		"weak", "volatile", "relaxed", "acquire", "release", "cta", "gpu", "sys", "ca", "cg", "cs", "lu", "cv",
		"nc", "wb", "wt", "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
		"L1::no_allocate", "L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::64B", "L2::128B", "L2::256B", NULL,
	};

	while (take_one(s, hints) >= 0)
		;
}

static enum space param_space(const struct body *b, const struct operand *o)
{
	return b->function->entry && o->base != O_FRAME ? SPACE_PARAM : SPACE_LOCAL;
}

static uint32_t take_vector(struct statement *s)
{
	static const char *const names[] = { "v2", "v4", "v8", NULL };
	int n = take_one(s, names);

	return n < 0 ? 1 : 2u << n;
}

static bool memory_type(enum type type)
{
	return (type >= T_B8 && type <= T_B64) || (type >= T_U8 && type <= T_S64) || type == T_F32 || type == T_F64;
}

static bool decode_vector(struct body *b, struct statement *s, struct insn *i, enum type type, uint32_t n, bool load)
{
	const struct operand *v = &s->operands[load ? 0 : 1];
	uint32_t slots[8] = { 0 };

	if (v->kind != O_VECTOR || v->n != n)
		bad_operand(b, s, load ? 0 : 1, "a vector of this length");
	if (n * type_size(type) > 32)
		return false;
	for (uint32_t k = 0; k < n; k++)
		slots[k] = load ? operand_dst(b, s, &v->elements[k], type, true) :
				  operand_src(b, s, &v->elements[k], type, true);
	i->run = load ? ld_vector : st_vector;
	i->flags |= (uint16_t)(n << FLAG_COUNT_SHIFT | (type_signed(type) && !type_float(type) ? FLAG_SIGNED : 0));
	for (uint32_t k = 0; k < n; k += CELLS) {
		struct insn *list = emit_visible(b, s, run_unsupported);

		list->d = slots[k];
		list->a = slots[k + 1];
		list->b = slots[k + 2];
		list->c = slots[k + 3];
	}
	return true;
}

static bool decode_access(struct body *b, struct statement *s, bool load)
{
	enum space space = take_space(s);
	uint32_t n = take_vector(s), at = load ? 1 : 0, power;
	enum type type = take_type(s);
	struct insn *i;

	take_hints(s);
	if (!memory_type(type))
		return false;
	operands(b, s, 2, 2);
	if (space == SPACE_PARAM)
		space = param_space(b, &s->operands[at]);
	if (!load && (space == SPACE_CONST || space == SPACE_PARAM))
		bad_operand(b, s, 0, "memory that can be written");
	if (s->operands[at].kind == O_ADDRESS && s->operands[at].base == O_FRAME && space == SPACE_GENERIC)
		space = SPACE_LOCAL;
	power = (uint32_t)__builtin_ctz(type_size(type));
	i = emit_visible(b, s, load ? loads[space][power][type_signed(type) && !type_float(type)] : stores[space][power]);
	i->space = (uint8_t)space;
	i->size = (uint8_t)type_size(type);
	address(b, s, at, i);
	if (n > 1)
		return decode_vector(b, s, i, type, n, load);
	if (s->operands[1 - at].kind == O_VECTOR)
		bad_operand(b, s, 1 - at, "a register");
	i->d = load ? dst_wide(b, s, 0, type) : src_wide(b, s, 1, type);
	return true;
}

DECODER(ld)
{
	if (s->variant && !text_is(s->modifiers[0], "global"))
		return false;
	return decode_access(b, s, true);
}

DECODER(st)
{
	return decode_access(b, s, false);
}

/* prefetch, prefetchu, discard.L2: hints without a result (discard may leave the data as it is) */
DECODER(prefetch)
{
	static const char *const levels[] = { "L1", "L2", "L2::evict_last", "L2::evict_normal", "128", NULL };

	(void)b;
	if (take_space(s) == SPACE_SHARED)
		return false;
	while (take_one(s, levels) >= 0)
		;
	return true;
}

/* cp.async.{ca,cg}.shared.global [d], [s], size{, bytes to read}: copied at once, the rest is zero */
static HANDLER(cp_async)
{
	uint64_t from = effective(r, i + 1);
	uint32_t read = i->b ? (u32)r[i->b] : i->size;
	uint8_t *to = reach_shared(t, i, effective(r, i), i->size, true), *at = NULL;

	if (!to)
		return NULL;
	if (read > i->size)
		return fault(t, i, PTX_ILLEGAL_ADDRESS, "cp.async reads more than it copies");
	if (read && from & (i->size - 1u))
		return misaligned(t, i, from, i->size);
	if (read && !(at = reach_slowly(t, i, &(struct range){ 0 }, from, read, false)))
		return NULL;
	memset(to, 0, i->size);
	if (read)
		memcpy(to, at, read);
	return i + 2;
}

static bool decode_copy(struct body *b, struct statement *s)
{
	uint32_t read = 0;
	struct insn *i;

	if (!(take(s, "ca") || take(s, "cg")) || !(take(s, "shared") || take(s, "shared::cta")) || !take(s, "global"))
		return false;
	take_hints(s);
	operands(b, s, 3, 4);
	if (s->operands[2].kind != O_INT || (s->operands[2].bits != 4 && s->operands[2].bits != 8 && s->operands[2].bits != 16))
		bad_operand(b, s, 2, "4, 8 or 16");
	if (s->n == 4)
		read = src(b, s, 3, T_U32);
	i = emit_visible(b, s, cp_async);
	i->size = (uint8_t)s->operands[2].bits;
	i->b = read;
	address(b, s, 0, i);
	address(b, s, 1, emit_visible(b, s, run_unsupported));
	return true;
}

DECODER(cp_async)
{
	if (!take(s, "async"))
		return false;
	if (take(s, "commit_group") || take(s, "wait_all"))
		return s->n == 0;
	if (take(s, "wait_group"))
		return s->n == 1;
	return decode_copy(b, s);
}

DECODER(fence)
{
	static const char *const kinds[] = { "sc", "acq_rel", "acquire", "release", "cta", "gpu", "sys", "gl", NULL };

	(void)b;
	while (take_one(s, kinds) >= 0)
		;
	return s->n == 0;
}
