/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mbarrier: barriers in shared memory, 64 bits that programs pass on but do not read. A phase ends when all its arrivals
 * have come and no bytes are awaited any more. A thread whose test fails lets others run.
 */
#include "async.h"
#include "checks.h"

/*
 * The bits of an mbarrier, and of the state that an arrival returns: the mbarrier as it was before. The ISA has counts of 20
 * bits. NVIDIA's awbarrier of compute capability 8.0 has larger ones and awaits no bytes: such an mbarrier is a wide one.
 */
enum { COUNT_BITS = 20, TX_BITS = 21, WIDE_BITS = 29, TX_AT = 2 * COUNT_BITS, PHASE_AT = 61, WIDE_AT = 62, VALID_AT = 63 };
enum { MAX_COUNT = (1 << COUNT_BITS) - 1, MAX_WIDE = (1 << WIDE_BITS) - 1, TX_ZERO = 1 << (TX_BITS - 1) };

struct counts {
	uint32_t pending, expected;
	int32_t tx;
	bool phase, wide;
};

static struct counts unpack(u64 bits)
{
	struct counts c = { .phase = bits >> PHASE_AT & 1, .wide = bits >> WIDE_AT & 1 };

	c.pending = bits & (c.wide ? MAX_WIDE : MAX_COUNT);
	c.expected = c.wide ? bits >> WIDE_BITS & MAX_WIDE : bits >> COUNT_BITS & MAX_COUNT;
	c.tx = c.wide ? 0 : (int32_t)(bits >> TX_AT & ((1 << TX_BITS) - 1)) - TX_ZERO;
	return c;
}

static u64 pack(struct counts c)
{
	u64 common = (u64)1 << VALID_AT | (u64)c.wide << WIDE_AT | (u64)c.phase << PHASE_AT | c.pending;

	if (c.wide)
		return common | (u64)c.expected << WIDE_BITS;
	return common | (u64)c.expected << COUNT_BITS | (u64)(uint32_t)(c.tx + TX_ZERO) << TX_AT;
}

/* Only the blocks of a cluster use it, and one thread of the host runs them. */
static u64 *reach_mbarrier(struct thread *t, const struct insn *i, uint64_t addr)
{
	u64 *at = (u64 *)(void *)reach(t, i, (enum space)i->space, addr, sizeof *at, true);

	if (at && !(*at >> VALID_AT)) {
		fault(t, i, PTX_TRAP, "no mbarrier at 0x%llx", (unsigned long long)addr);
		return NULL;
	}
	return at;
}

/* What a checker has to know of an mbarrier at `addr`. */
static void tell(struct thread *t, uint64_t addr, enum mbarrier_event event)
{
	if (t->worker->checker && cluster_rank(t->worker, addr) == t->worker->rank)
		check_mbarrier(t, addr, event);
}

static void end_phase(struct thread *t, uint64_t addr, struct counts *c)
{
	tell(t, addr, MBARRIER_ARRIVE);
	if (c->pending || c->tx)
		return;
	c->pending = c->expected;
	c->phase = !c->phase;
	tell(t, addr, MBARRIER_PHASE);
}

static bool change_tx(struct thread *t, const struct insn *i, struct counts *c, int64_t by)
{
	int64_t tx = c->tx + by;

	if (tx >= TX_ZERO || tx <= -TX_ZERO || (c->wide && by)) {
		fault(t, i, PTX_TRAP, "an mbarrier awaits %lld bytes", (long long)tx);
		return false;
	}
	c->tx = (int32_t)tx;
	return true;
}

bool mbarrier_complete(struct thread *t, const struct insn *i, uint64_t addr, uint32_t bytes)
{
	u64 *at = reach_mbarrier(t, i, addr);
	struct counts c;

	if (!at)
		return false;
	c = unpack(*at);
	if (!change_tx(t, i, &c, -(int64_t)bytes))
		return false;
	end_phase(t, addr, &c);
	*at = pack(c);
	return true;
}

static HANDLER(run_init)
{
	u64 *at = (u64 *)(void *)reach(t, i, (enum space)i->space, effective(r, i), sizeof *at, true);
	u32 count = (u32)r[i->b];

	if (!at)
		return NULL;
	if (!count || count > MAX_WIDE)
		return fault(t, i, PTX_TRAP, "an mbarrier for %u arrivals", count);
	*at = pack((struct counts){ count, count, 0, false, count > MAX_COUNT });
	tell(t, effective(r, i), MBARRIER_INIT);
	return i + 1;
}

static HANDLER(run_inval)
{
	u64 *at = reach_mbarrier(t, i, effective(r, i));

	if (!at)
		return NULL;
	*at = 0;
	return i + 1;
}

enum { ARRIVE_TX = 16, ARRIVE_DROP = 32, ARRIVE_STAY = 64 };

/* b: the cell of the count, c: of the bytes to expect */
static HANDLER(run_arrive)
{
	u64 *at = reach_mbarrier(t, i, effective(r, i));
	u32 count = i->flags & ARRIVE_TX ? 1 : (u32)r[i->b];
	struct counts c;
	u64 before;

	if (!at)
		return NULL;
	before = *at;
	c = unpack(before);
	if (i->flags & ARRIVE_TX && !change_tx(t, i, &c, (u32)r[i->c]))
		return NULL;
	if (!count || count > c.pending || (i->flags & ARRIVE_STAY && count == c.pending))
		return fault(t, i, PTX_TRAP, "%u arrivals at an mbarrier that awaits %u", count, c.pending);
	c.pending -= count;
	if (i->flags & ARRIVE_DROP)
		c.expected -= count < c.expected ? count : c.expected;
	end_phase(t, effective(r, i), &c);
	*at = pack(c);
	r[i->d] = before;
	return i + 1;
}

/* expect_tx; flags: complete_tx */
static HANDLER(run_tx)
{
	u64 *at = reach_mbarrier(t, i, effective(r, i));
	struct counts c;

	if (!at)
		return NULL;
	c = unpack(*at);
	if (!change_tx(t, i, &c, i->flags & ARRIVE_TX ? -(int64_t)(u32)r[i->b] : (int64_t)(u32)r[i->b]))
		return NULL;
	end_phase(t, effective(r, i), &c);
	*at = pack(c);
	return i + 1;
}

/* test_wait and try_wait by a state, or, with the flag, by a phase's parity */
static HANDLER(run_test)
{
	uint64_t where = effective(r, i);
	u64 *at = reach_mbarrier(t, i, where);
	bool phase;

	if (!at)
		return NULL;
	phase = i->flags & ARRIVE_TX ? r[i->b] & 1 : r[i->b] >> PHASE_AT & 1;
	r[i->d] = unpack(*at).phase != phase;
	if (r[i->d]) {
		tell(t, where, MBARRIER_WAITED);
		return i + 1;
	}
	t->fuel = 0;
	t->pc = i + 1;
	return NULL;
}

OP(run_pending, r[i->d] = unpack(r[i->a]).pending)

/* cp.async.mbarrier.arrive: the copies are done, so that it arrives at once; without .noinc it has first added itself. */
static HANDLER(run_arrive_copies)
{
	u64 *at = reach_mbarrier(t, i, effective(r, i));
	struct counts c;

	if (!at)
		return NULL;
	c = unpack(*at);
	if (!(i->flags & ARRIVE_TX))
		return i + 1;
	if (!c.pending)
		return fault(t, i, PTX_TRAP, "1 arrivals at an mbarrier that awaits 0");
	c.pending--;
	end_phase(t, effective(r, i), &c);
	*at = pack(c);
	return i + 1;
}

bool is_mbarrier(const struct insn *i)
{
	return i->run == run_arrive || i->run == run_tx || i->run == run_test || i->run == run_arrive_copies ||
	       i->run == run_unsupported; /* the operand of a copy that tells an mbarrier */
}

/* The order of memory that the qualifiers ask for is kept by all accesses. */
static bool take_qualifiers(struct statement *s, struct insn *i)
{
	static const char *const names[] = { "release", "acquire", "relaxed", "cta", "cluster", NULL };
	enum space space;

	while (take_one(s, names) >= 0)
		;
	space = take_space(s);
	i->space = (uint8_t)space;
	return take(s, "b64") && (space == SPACE_SHARED || space == SPACE_GENERIC);
}

/* The instruction with its address in operand n, or NULL if its modifiers are unknown. */
static struct insn *emit_on_mbarrier(struct body *b, struct statement *s, handler *run, uint32_t n, uint32_t least, uint32_t most)
{
	struct insn form = { .run = NULL }, *i;

	if (!take_qualifiers(s, &form) || !all_taken(s))
		return NULL;
	operands(b, s, least, most);
	i = emit_visible(b, s, run);
	i->space = form.space;
	address(b, s, n, i);
	return i;
}

static bool decode_arrive(struct body *b, struct statement *s, uint16_t flags)
{
	bool stay = take(s, "noComplete"), tx = take(s, "expect_tx");
	struct insn *i = emit_on_mbarrier(b, s, run_arrive, 1, tx || stay ? 3 : 2, 3);

	if (!i || (stay && tx))
		return false;
	i->flags |= (uint16_t)(flags | (stay ? ARRIVE_STAY : 0) | (tx ? ARRIVE_TX : 0));
	i->b = s->n == 3 && !tx ? src(b, s, 2, T_U32) : slot_const(b, INIT_VALUE, 1, NULL);
	i->c = tx ? src(b, s, 2, T_U32) : 0;
	i->d = dst(b, s, 0, T_B64);
	return true;
}

static bool decode_test(struct body *b, struct statement *s, bool may_hint)
{
	bool parity = take(s, "parity");
	struct insn *i = emit_on_mbarrier(b, s, run_test, 1, 3, may_hint ? 4 : 3);

	if (!i)
		return false;
	if (s->n == 4)
		src(b, s, 3, T_U32); /* how long to wait at most */
	i->flags |= parity ? ARRIVE_TX : 0;
	i->b = src(b, s, 2, parity ? T_U32 : T_B64);
	i->d = dst(b, s, 0, T_PRED);
	return true;
}

static bool decode_counted(struct body *b, struct statement *s, handler *run, uint16_t flags)
{
	struct insn *i = emit_on_mbarrier(b, s, run, 0, 2, 2);

	if (!i)
		return false;
	i->flags |= flags;
	i->b = src(b, s, 1, T_U32);
	return true;
}

static bool decode_pending(struct body *b, struct statement *s)
{
	struct insn *i;

	if (!take(s, "b64"))
		return false;
	operands(b, s, 2, 2);
	i = emit(b, s, run_pending);
	i->a = src(b, s, 1, T_B64);
	i->d = dst(b, s, 0, T_U32);
	return true;
}

DECODER(mbarrier)
{
	if (take(s, "init"))
		return decode_counted(b, s, run_init, 0);
	if (take(s, "inval"))
		return emit_on_mbarrier(b, s, run_inval, 0, 1, 1) != NULL;
	if (take(s, "arrive"))
		return decode_arrive(b, s, 0);
	if (take(s, "arrive_drop"))
		return decode_arrive(b, s, ARRIVE_DROP);
	if (take(s, "test_wait"))
		return decode_test(b, s, false);
	if (take(s, "try_wait"))
		return decode_test(b, s, true);
	if (take(s, "expect_tx"))
		return decode_counted(b, s, run_tx, 0);
	if (take(s, "complete_tx"))
		return decode_counted(b, s, run_tx, ARRIVE_TX);
	return take(s, "pending_count") && decode_pending(b, s);
}

/* Behind what st.async and red.async do: operand n is the mbarrier that awaits the bytes. */
bool decode_complete(struct body *b, struct statement *s, uint32_t n, uint32_t bytes)
{
	struct insn *i = emit_visible(b, s, run_tx);

	i->space = SPACE_SHARED;
	i->flags = ARRIVE_TX;
	address(b, s, n, i);
	i->b = slot_const(b, INIT_VALUE, bytes, NULL);
	return true;
}

bool decode_arrive_copies(struct body *b, struct statement *s)
{
	bool counted = take(s, "noinc");
	struct insn *i = emit_on_mbarrier(b, s, run_arrive_copies, 0, 1, 1);

	if (!i)
		return false;
	i->flags |= counted ? ARRIVE_TX : 0;
	return true;
}
