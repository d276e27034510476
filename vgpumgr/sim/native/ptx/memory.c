/* SPDX-License-Identifier: Apache-2.0 */
/* ld, st and what only looks like a memory access. Every access is bounds-checked and must be aligned. */
#include "async.h"
#include "checks.h"
#include "simd_memory.h"

static const struct insn *bad_access(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write,
				     const char *where)
{
	if (t->worker->checker)
		check_bad_access(t, i, addr, size, write, where);
	return fault(t, i, PTX_ILLEGAL_ADDRESS, "illegal address 0x%llx: %s of %u bytes%s", (unsigned long long)addr,
		     write ? "write" : "read", size, where);
}

static const struct insn *misaligned(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size)
{
	if (t->worker->checker)
		check_misaligned(t, i, addr, size);
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
	if (t->worker->checker)
		check_global(t, i, addr, size, write); /* and the next access comes here again */
	else
		*range = (struct range){ base, length, at - (addr - base), write };
	return at;
}

uint8_t *reach_global(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	struct range *range = &t->worker->cache[range_place(i)];
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

/* Shared memory of the cluster's blocks, by an address that mapa made. */
static uint8_t *reach_cluster(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	const struct worker *w = t->worker, *owner;
	uint64_t offset = CLUSTER_OFFSET(addr);
	uint32_t rank = cluster_rank(w, addr), limit = w->grid->shared_bytes;
	const char *where = " in a cluster's shared memory";

	owner = rank < w->grid->cluster_size ? w->cluster->blocks[rank] : NULL;
	if (owner && !owner->alive)
		where = " in shared memory of a block that has ended";
	if (!owner || !owner->alive || addr >> 32 || offset >= limit || size > limit - offset) {
		bad_access(t, i, addr, size, write, where);
		return NULL;
	}
	if (w->checker && owner == w)
		check_shared(t, i, offset, size, write);
	else if (w->checker)
		check_remote(owner, offset, size, write);
	return owner->shared + offset;
}

/* Beyond shared memory; or within, where a checker looks at each access. */
static uint8_t *reach_checked(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	const struct worker *w = t->worker;
	uint32_t limit = w->grid->shared_bytes;

	if (addr >> CLUSTER_SHIFT)
		return reach_cluster(t, i, addr, size, write);
	if (!w->checker || addr >= limit || size > limit - addr) {
		bad_access(t, i, addr, size, write, " in shared memory");
		return NULL;
	}
	check_shared(t, i, addr, size, write);
	return w->shared + addr;
}

static uint8_t *reach_shared(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	const struct worker *w = t->worker;

	if (addr & (size - 1)) {
		misaligned(t, i, addr, size);
		return NULL;
	}
	if (addr >= w->shared_bytes || size > w->shared_bytes - addr)
		return reach_checked(t, i, addr, size, write);
	return w->shared + addr;
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

#define WIDE_ACCESS(space)                                                                                           \
	WIDE_FORM(ld_##space##_u8, wide_load_u8) WIDE_FORM(ld_##space##_u16, wide_load_u16)                          \
	WIDE_FORM(ld_##space##_u32, wide_load_u32) WIDE_FORM(ld_##space##_u64, wide_load_u64)                        \
	WIDE_FORM(ld_##space##_s8, wide_load_s8) WIDE_FORM(ld_##space##_s16, wide_load_s16)                          \
	WIDE_FORM(ld_##space##_s32, wide_load_s32) WIDE_FORM(st_##space##_u8, wide_store_u8)                         \
	WIDE_FORM(st_##space##_u16, wide_store_u16) WIDE_FORM(st_##space##_u32, wide_store_u32)                      \
	WIDE_FORM(st_##space##_u64, wide_store_u64)
WIDE_ACCESS(global) WIDE_ACCESS(shared) WIDE_ACCESS(param) WIDE_ACCESS(generic)

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

/* The addresses are known before a register changes: one of them may hold the address. */
SIMD_INLINE const struct insn *ld_vector_wide(struct fragment *g, const struct insn *i)
{
	uint32_t n = i->flags >> FLAG_COUNT_SHIFT, size = i->size;
	struct access a;

	if (simd_reach(g, i, n * size, false, &a) == PATTERN_NONE)
		return simd_each(g, i);
	for (uint32_t e = 0; e < n; e++) {
		uint64_t *to = g->frame + cell(i, e);
		const uint8_t *from = a.memory + e * size;

		if (size == 4 && !(i->flags & FLAG_SIGNED))
			EACH_LANE(k, g->mask)
				to[k] = *(const u32 *)(const void *)(from + a.at[k]);
		else
			EACH_LANE(k, g->mask)
				to[k] = load_element(from + a.at[k], size, i->flags & FLAG_SIGNED);
	}
	return i + 1 + (n + CELLS - 1) / CELLS;
}
WIDE_FORM(ld_vector, ld_vector_wide)

SIMD_INLINE const struct insn *st_vector_wide(struct fragment *g, const struct insn *i)
{
	uint32_t n = i->flags >> FLAG_COUNT_SHIFT, size = i->size;
	struct access a;

	if (simd_reach(g, i, n * size, true, &a) == PATTERN_NONE)
		return simd_each(g, i);
	EACH_LANE(k, g->mask)
		for (uint32_t e = 0; e < n; e++)
			memcpy(a.memory + a.at[k] + e * size, &g->frame[cell(i, e) + k], size);
	return i + 1 + (n + CELLS - 1) / CELLS;
}
WIDE_FORM(st_vector, st_vector_wide)

/* `c` of a load or store: it is ordered with others, which makes it as good as an atomic one. */
enum { ORDERED = 1 };

static bool is_one_of(const struct insn *i, handler *const *list, size_t n)
{
	for (size_t k = 0; k < n; k++)
		if (list[k] == i->run)
			return true;
	return false;
}

bool is_ordered(const struct insn *i)
{
	return i->c == ORDERED && (i->run == ld_vector || i->run == st_vector ||
				   is_one_of(i, &loads[0][0][0], sizeof loads / sizeof ***loads) ||
				   is_one_of(i, &stores[0][0], sizeof stores / sizeof **stores));
}

bool store_value(const struct insn *i, const uint64_t *r, uint8_t bytes[32])
{
	uint32_t n = i->flags >> FLAG_COUNT_SHIFT;

	if (i->run == st_vector) {
		for (uint32_t k = 0; k < n; k++)
			memcpy(bytes + k * i->size, &r[cell(i, k)], i->size);
		return true;
	}
	if (!is_one_of(i, &stores[0][0], sizeof stores / sizeof **stores))
		return false;
	memcpy(bytes, &r[i->d], i->size);
	return true;
}

static bool asks_order(const struct statement *s)
{
	for (uint32_t k = 0; k < s->n_modifiers; k++)
		if (text_is(s->modifiers[k], "relaxed") || text_is(s->modifiers[k], "acquire") || text_is(s->modifiers[k], "release"))
			return true;
	return false;
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
	take_policy(b, s);
	operands(b, s, 2, 2);
	if (n == 1 && s->operands[1 - at].kind == O_VECTOR && s->operands[1 - at].n == 1)
		s->operands[1 - at] = s->operands[1 - at].elements[0];
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
	i->c = asks_order(s) ? ORDERED : 0;
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

bool decode_store(struct body *b, struct statement *s)
{
	return decode_access(b, s, false);
}
