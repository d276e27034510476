/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the thread of a rank does with a batch. A collective is cut into rounds of one slot for each rank: a rank puts up its part, reduces
 * its share of all parts, and takes what it needs. Up to SG_SLOTS rounds are on their way at once. Messages between two ranks
 * go beside, in letters. All steps are tried in turn and none of them waits, so that no order of the calls of a group stops another.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl.h"
#include "reduce.h"

enum { SPINS = 64, SLEEP_NS = 20000, SLEEP_MOST_NS = 1000000, CHECK_NS = 20000000 };

enum step { STEP_FAILED = -1, STEP_NONE, STEP_DONE };

struct pause {
	bool alone; /* it is not for other ranks */
	unsigned int idle;
	long slept_ns, checked_ns;
};

/* Between two tries of what was not possible. */
static void wait_a_little(struct pause *p)
{
	struct timespec time = { .tv_nsec = SLEEP_NS };

	if (p->idle++ < SPINS)
		return;
	while (time.tv_nsec < SLEEP_MOST_NS && time.tv_nsec * 8 < p->slept_ns)
		time.tv_nsec *= 2;
	nanosleep(&time, NULL);
	p->slept_ns += time.tv_nsec;
	p->checked_ns += time.tv_nsec;
}

static bool has_failed(ncclComm_t comm, CUresult result, const char *what)
{
	const char *name = "an error";

	if (result == CUDA_SUCCESS)
		return false;
	cu.cuGetErrorName(result, &name);
	comm_fail(comm, ncclUnhandledCudaError, "%s: %s", what, name);
	return true;
}

/* ---- copies */

static bool copy_in(ncclComm_t comm, const struct op *op, void *to, uint64_t from, size_t bytes)
{
	if (op->from_host) {
		memcpy(to, (const void *)from, bytes);
		return true;
	}
	return !bytes || !has_failed(comm, cu.cuMemcpyDtoHAsync(to, from, bytes, comm->stream), "reading a send buffer");
}

static bool copy_out(ncclComm_t comm, const struct op *op, uint64_t to, const void *from, size_t bytes)
{
	if (op->to_host) {
		memcpy((void *)to, from, bytes);
		return true;
	}
	return !bytes || !has_failed(comm, cu.cuMemcpyHtoDAsync(to, from, bytes, comm->stream), "writing a receive buffer");
}

/* ---- collectives: what each kind is made of */

static bool has_blocks(const struct op *op)
{
	return op->kind == OP_REDUCE_SCATTER || op->kind == OP_ALL_TO_ALL || op->kind == OP_SCATTER;
}

static bool does_reduce(const struct op *op)
{
	return op->kind == OP_ALL_REDUCE || op->kind == OP_REDUCE || op->kind == OP_REDUCE_SCATTER;
}

static bool puts_up(const struct op *op, int rank)
{
	return (op->kind != OP_BROADCAST && op->kind != OP_SCATTER) || rank == op->root;
}

static bool takes(const struct op *op, int rank)
{
	return (op->kind != OP_REDUCE && op->kind != OP_GATHER) || rank == op->root;
}

static size_t round_elements(ncclComm_t comm, const struct op *op)
{
	size_t whole = comm->segment->at.piece / type_bytes(op->type);

	return has_blocks(op) ? whole / (size_t)comm->ranks : whole;
}

/* The part of a round: its first element and how many. */
struct part {
	size_t first, count, bytes; /* of an element */
	uint64_t round;
};

static struct part part_of(ncclComm_t comm, const struct op *op, uint64_t number)
{
	size_t each = round_elements(comm, op);
	struct part p = { .first = number * each, .bytes = type_bytes(op->type), .round = op->first + number };

	p.count = op->count - p.first < each ? op->count - p.first : each;
	return p;
}

static struct sg_form make_form(const struct op *op, const struct part *p)
{
	return (struct sg_form){ .kind = op->kind, .count = op->count, .first = p->first, .type = op->type, .op = op->op,
				 .root = op->root, .scaled = op->scaled, .scalar = op->scaled ? op->scalar : 0 };
}

/* What the others have put up belongs to the same call. */
static bool agrees(ncclComm_t comm, const struct op *op, const struct part *p, int rank)
{
	struct sg_form own = make_form(op, p), other = *sg_form(comm->segment, rank, p->round);

	other.scalar = own.scalar;
	if (!memcmp(&own, &other, sizeof(own)))
		return true;
	comm_fail(comm, ncclInvalidUsage,
		  "rank %d has called another collective than rank %d, or with another count, type, operation or root: "
		  "all ranks call the same ones in the same order", rank, comm->rank);
	return false;
}

static enum step all_published(ncclComm_t comm, const struct op *op, const struct part *p)
{
	for (int rank = 0; rank < comm->ranks; rank++)
		if (puts_up(op, rank) && atomic_load(&sg_state(comm->segment, rank)->published) <= p->round)
			return STEP_NONE;
	for (int rank = 0; rank < comm->ranks; rank++)
		if (puts_up(op, rank) && !agrees(comm, op, p, rank))
			return STEP_FAILED;
	return STEP_DONE;
}

static bool put_up(ncclComm_t comm, struct op *op, const struct part *p)
{
	uint8_t *slot = sg_slot(comm->segment, comm->rank, p->round);
	size_t length = p->count * p->bytes;

	if (op->kind == OP_SPLIT)
		return split_words(op, slot) > 0;
	if (!puts_up(op, comm->rank))
		return true;
	if (!has_blocks(op))
		return copy_in(comm, op, slot, op->from + p->first * p->bytes, length);
	for (int block = 0; block < comm->ranks; block++)
		if (!copy_in(comm, op, slot + block * length, op->from + (block * op->count + p->first) * p->bytes, length))
			return false;
	return true;
}

/* A slot is free when all have taken what was in it before. */
static enum step publish(ncclComm_t comm, struct op *op)
{
	struct part p = part_of(comm, op, op->published);

	for (int rank = 0; rank < comm->ranks; rank++)
		if (atomic_load(&sg_state(comm->segment, rank)->consumed) + SG_SLOTS <= p.round)
			return STEP_NONE;
	if (!put_up(comm, op, &p))
		return STEP_FAILED;
	*sg_form(comm->segment, comm->rank, p.round) = make_form(op, &p);
	atomic_store(&sg_state(comm->segment, comm->rank)->published, p.round + 1);
	op->published++;
	return STEP_DONE;
}

/* This rank's share of the round's elements, or all of its own block. */
static enum step reduce_round(ncclComm_t comm, struct op *op)
{
	struct part p = part_of(comm, op, op->reduced);
	size_t first = p.count * (size_t)comm->rank / (size_t)comm->ranks;
	size_t end = p.count * (size_t)(comm->rank + 1) / (size_t)comm->ranks;
	bool block = op->kind == OP_REDUCE_SCATTER;
	uint64_t scalars[SG_RANKS];
	const void *from[SG_RANKS];
	struct reduction how = { op->type, op->op, comm->ranks, op->scaled ? scalars : NULL };
	enum step r = all_published(comm, op, &p);

	if (r != STEP_DONE)
		return r;
	for (int rank = 0; rank < comm->ranks; rank++) {
		from[rank] = sg_slot(comm->segment, rank, p.round) +
			     (block ? (size_t)comm->rank * p.count : first) * p.bytes;
		scalars[rank] = sg_form(comm->segment, rank, p.round)->scalar;
	}
	if (block) {
		reduce(&how, comm->scratch, from, p.count);
		if (!copy_out(comm, op, op->to + p.first * p.bytes, comm->scratch, p.count * p.bytes))
			return STEP_FAILED;
	} else {
		reduce(&how, sg_result(comm->segment, p.round) + first * p.bytes, from, end - first);
	}
	atomic_store(&sg_state(comm->segment, comm->rank)->reduced, p.round + 1);
	op->reduced++;
	return STEP_DONE;
}

static enum step take_result(ncclComm_t comm, const struct op *op, const struct part *p)
{
	if (op->kind == OP_REDUCE_SCATTER || !takes(op, comm->rank))
		return STEP_DONE;
	for (int rank = 0; rank < comm->ranks; rank++)
		if (atomic_load(&sg_state(comm->segment, rank)->reduced) <= p->round)
			return STEP_NONE;
	return copy_out(comm, op, op->to + p->first * p->bytes, sg_result(comm->segment, p->round), p->count * p->bytes) ?
		       STEP_DONE : STEP_FAILED;
}

static bool take_from(ncclComm_t comm, const struct op *op, const struct part *p, int rank)
{
	const uint8_t *slot = sg_slot(comm->segment, rank, p->round);
	size_t block = op->kind == OP_BROADCAST || op->kind == OP_SCATTER ? 0 : (size_t)rank * op->count;
	size_t length = p->count * p->bytes;

	if (has_blocks(op))
		slot += (size_t)comm->rank * length;
	return copy_out(comm, op, op->to + (block + p->first) * p->bytes, slot, length);
}

static void take_split(ncclComm_t comm, struct op *op, const struct part *p)
{
	const uint8_t *said[SG_RANKS];

	for (int rank = 0; rank < comm->ranks; rank++)
		said[rank] = sg_slot(comm->segment, rank, p->round);
	split_decide(comm, op, said);
}

static enum step take_parts(ncclComm_t comm, struct op *op, const struct part *p)
{
	enum step r = takes(op, comm->rank) ? all_published(comm, op, p) : STEP_DONE;

	if (r != STEP_DONE || !takes(op, comm->rank))
		return r;
	if (op->kind == OP_SPLIT) {
		take_split(comm, op, p);
		return STEP_DONE;
	}
	for (int rank = 0; rank < comm->ranks; rank++)
		if (puts_up(op, rank) && !take_from(comm, op, p, rank))
			return STEP_FAILED;
	return STEP_DONE;
}

static enum step consume(ncclComm_t comm, struct op *op)
{
	struct part p = part_of(comm, op, op->consumed);
	enum step r = does_reduce(op) ? take_result(comm, op, &p) : take_parts(comm, op, &p);

	if (r != STEP_DONE)
		return r;
	if (!does_reduce(op))
		atomic_store(&sg_state(comm->segment, comm->rank)->reduced, p.round + 1);
	atomic_store(&sg_state(comm->segment, comm->rank)->consumed, p.round + 1);
	op->consumed++;
	return STEP_DONE;
}

static void begin_collective(ncclComm_t comm, struct op *op)
{
	size_t each = round_elements(comm, op);

	op->begun = true;
	op->rounds = op->count / each + (op->count % each > 0);
	op->first = comm->round;
	comm->round += op->rounds;
}

static enum step step_collective(ncclComm_t comm, struct op *op)
{
	enum step done = STEP_NONE, r;

	if (!op->begun)
		begin_collective(comm, op);
	if (op->published < op->rounds) {
		r = publish(comm, op);
		if (r == STEP_FAILED)
			return r;
		done |= r;
	}
	if (does_reduce(op) && op->reduced < op->published) {
		r = reduce_round(comm, op);
		if (r == STEP_FAILED)
			return r;
		done |= r;
	}
	if (op->consumed < (does_reduce(op) ? op->reduced : op->published)) {
		r = consume(comm, op);
		if (r == STEP_FAILED)
			return r;
		done |= r;
	}
	return done;
}

/* ---- messages from one rank to another */

static void begin_message(ncclComm_t comm, struct op *op)
{
	size_t each = comm->segment->at.letter, bytes = op->count * type_bytes(op->type);

	op->begun = true;
	op->rounds = bytes / each + (bytes % each > 0);
}

static enum step broken(ncclComm_t comm, int rank)
{
	comm_fail(comm, ncclInternalError, "what rank %d has written of its messages cannot be", rank);
	return STEP_FAILED;
}

static enum step send_letter(ncclComm_t comm, struct op *op)
{
	struct sg_mail *mail = sg_mail(comm->segment, comm->rank, op->root);
	size_t each = comm->segment->at.letter, total = op->count * type_bytes(op->type), at = op->consumed * each;
	size_t length = total - at < each ? total - at : each;
	uint64_t number = comm->sent[op->root], waiting = number - atomic_load(&mail->taken);

	if (waiting > SG_LETTERS)
		return broken(comm, op->root);
	if (waiting == SG_LETTERS)
		return STEP_NONE;
	if (!copy_in(comm, op, sg_letter(comm->segment, comm->rank, op->root, number), op->from + at, length))
		return STEP_FAILED;
	mail->total[number % SG_LETTERS] = total;
	mail->length[number % SG_LETTERS] = length;
	atomic_store(&mail->sent, ++comm->sent[op->root]);
	op->consumed++;
	return STEP_DONE;
}

static enum step receive_letter(ncclComm_t comm, struct op *op)
{
	struct sg_mail *mail = sg_mail(comm->segment, op->root, comm->rank);
	size_t each = comm->segment->at.letter, total = op->count * type_bytes(op->type), at = op->consumed * each;
	size_t length = total - at < each ? total - at : each;
	uint64_t number = comm->taken[op->root], waiting = atomic_load(&mail->sent) - number;

	if (waiting > SG_LETTERS)
		return broken(comm, op->root);
	if (!waiting)
		return STEP_NONE;
	if (mail->total[number % SG_LETTERS] != total || mail->length[number % SG_LETTERS] != length) {
		comm_fail(comm, ncclInvalidUsage, "rank %d sends %llu bytes, rank %d receives %zu", op->root,
			  (unsigned long long)mail->total[number % SG_LETTERS], comm->rank, total);
		return STEP_FAILED;
	}
	if (!copy_out(comm, op, op->to + at, sg_letter(comm->segment, op->root, comm->rank, number), length))
		return STEP_FAILED;
	atomic_store(&mail->taken, ++comm->taken[op->root]);
	op->consumed++;
	return STEP_DONE;
}

/* ---- a batch */

static bool is_message(const struct op *op)
{
	return op->kind == OP_SEND || op->kind == OP_RECEIVE;
}

static bool is_done(const struct op *op)
{
	return op->begun && op->consumed == op->rounds;
}

/* The collectives of a batch go one after the other, and so do the messages of a pair in one direction. */
static enum step step_batch(ncclComm_t comm, struct batch *b, bool *finished)
{
	bool busy = false, sends[SG_RANKS] = { false }, receives[SG_RANKS] = { false };
	enum step done = STEP_NONE;

	*finished = true;
	for (struct op *op = b->ops; op; op = op->next) {
		bool *before = !is_message(op) ? &busy : op->kind == OP_SEND ? &sends[op->root] : &receives[op->root];
		enum step r;

		if (*before || is_done(op)) {
			*finished = *finished && !*before;
			continue;
		}
		if (is_message(op) && !op->begun)
			begin_message(comm, op);
		if (is_message(op) && is_done(op))
			continue;
		r = !is_message(op) ? step_collective(comm, op) : op->kind == OP_SEND ? send_letter(comm, op) : receive_letter(comm, op);
		if (r == STEP_FAILED)
			return r;
		done |= r;
		*before = !is_done(op);
		*finished = *finished && !*before;
	}
	return done;
}

/* A rank without which the batch cannot end: it has been left by it, or the rank's process is no more. */
static int find_missing(ncclComm_t comm, const struct batch *b, enum sg_life *how)
{
	bool needed[SG_RANKS] = { false };

	for (const struct op *op = b ? b->ops : NULL; op; op = op->next) {
		if (is_message(op) && !is_done(op))
			needed[op->root] = true;
		for (int rank = 0; !is_message(op) && op->begun && !is_done(op) && rank < comm->ranks; rank++)
			if (atomic_load(&sg_state(comm->segment, rank)->consumed) < op->first + op->rounds)
				needed[rank] = true;
	}
	for (int rank = 0; rank < comm->ranks; rank++) {
		*how = rank == comm->rank ? SG_ALIVE : sg_life(comm->segment, rank);
		if (*how == SG_DEAD || *how == SG_BROKEN || (*how == SG_GONE && (needed[rank] || !b)))
			return rank;
	}
	return -1;
}

static void fail_for(ncclComm_t comm, int rank, enum sg_life how)
{
	static const char *const why[] = {
		[SG_DEAD] = "its process has ended", [SG_GONE] = "it has destroyed its communicator",
		[SG_BROKEN] = "it has failed or aborted"
	};

	comm_fail(comm, ncclRemoteError, "rank %d is no more: %s", rank, why[how]);
}

/* Also when nothing moves: which of the others are no more, now and then. False: the batch is over. */
static bool keep_waiting(ncclComm_t comm, const struct batch *b, struct pause *p, int *missing)
{
	enum sg_life how;

	wait_a_little(p);
	if (atomic_load(&comm->abort)) {
		comm_fail(comm, ncclInvalidUsage, "the communicator was aborted");
		return false;
	}
	if (p->alone || p->checked_ns < CHECK_NS)
		return true;
	p->checked_ns = 0;
	if (find_missing(comm, b, &how) < 0) {
		*missing = -1;
	} else if (*missing < 0) {
		*missing = find_missing(comm, b, &how); /* what it did before it ended is seen first */
	} else {
		*missing = find_missing(comm, b, &how);
		if (*missing >= 0)
			fail_for(comm, *missing, how);
	}
	return !comm->failed;
}

/* All have joined: one may have ended since. */
static bool check_all(ncclComm_t comm)
{
	enum sg_life how;

	for (int rank = 0; rank < comm->ranks; rank++) {
		how = rank == comm->rank ? SG_ALIVE : sg_life(comm->segment, rank);
		if (how == SG_DEAD || how == SG_BROKEN) {
			fail_for(comm, rank, how);
			return false;
		}
	}
	return true;
}

bool engine_wait_ranks(ncclComm_t comm)
{
	const char *limit = getenv("VGPUMGR_NCCL_JOIN_S");
	long most_s = limit && atol(limit) > 0 ? atol(limit) : 600;
	struct pause p = { 0 };
	int missing = -1;

	while (sg_joined(comm->segment) < comm->ranks) {
		if (!keep_waiting(comm, NULL, &p, &missing))
			return false;
		if (p.slept_ns / 1000000000 < most_s)
			continue;
		comm_fail(comm, ncclSystemError, "%d of %d ranks have joined in %ld s: all run in one guest, as one user, with one /dev/shm",
			  sg_joined(comm->segment), comm->ranks, most_s);
		return false;
	}
	return check_all(comm);
}

/* The streams have come to the batch. */
static bool wait_ready(ncclComm_t comm, struct batch *b)
{
	struct pause p = { .alone = true };
	int missing = -1;

	for (struct ready *r = b->ready; r; r = r->next) {
		CUresult result;

		while ((result = cu.cuEventQuery(r->event)) == CUDA_ERROR_NOT_READY)
			if (!keep_waiting(comm, b, &p, &missing))
				return false;
		if (has_failed(comm, result, "the stream's work before the collective"))
			return false;
	}
	return true;
}

static bool read_scalars(ncclComm_t comm, struct batch *b)
{
	for (struct op *op = b->ops; op; op = op->next)
		if (op->scaled && op->scalar_at &&
		    has_failed(comm, cu.cuMemcpyDtoHAsync(&op->scalar, op->scalar_at, type_bytes(op->type), comm->stream),
			       "reading the scalar of a reduction"))
			return false;
	return true;
}

static void run(ncclComm_t comm, struct batch *b)
{
	struct pause p = { 0 };
	bool finished = false;
	int missing = -1;

	if (comm->failed || !wait_ready(comm, b) || !read_scalars(comm, b))
		return;
	while (!finished) {
		enum step r = step_batch(comm, b, &finished);

		if (r == STEP_FAILED)
			return;
		if (r == STEP_DONE)
			p = (struct pause){ 0 };
		else if (!finished && !keep_waiting(comm, b, &p, &missing))
			return;
		if (r == STEP_DONE)
			missing = -1;
	}
	if (!b->word)
		has_failed(comm, cu.cuStreamWriteValue32(comm->stream, comm->word, b->number, 0), "the end of a collective");
}

void engine_run(ncclComm_t comm, struct batch *b)
{
	run(comm, b);
	if (b->word) /* also of one that has failed: the launch goes on */
		has_failed(comm, cu.cuStreamWriteValue32(comm->stream, comm->word + 4 * (CUdeviceptr)b->word, 1, 0),
			   "the end of a collective in a graph");
}

void op_free(struct op *op)
{
	while (op) {
		struct op *next = op->next;

		if (op->split) {
			split_refuse(op->split, ncclRemoteError);
			split_release(op->split);
		}
		free(op);
		op = next;
	}
}
