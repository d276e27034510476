/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an instruction's decoder works with. A decoder takes the modifiers it knows and returns false for what it cannot
 * run; a modifier that nobody took makes the instruction unsupported as well, so that none is ever ignored by accident.
 */
#ifndef PTX_DECODE_H
#define PTX_DECODE_H

#include "parse.h"

/* The number of %envreg0: beyond all numbers of operand.c's list. */
enum { SPECIAL_ENVREG = 64 };

enum rounding { ROUND_RN, ROUND_RZ, ROUND_RM, ROUND_RP };

struct opcode {
	const char *name;
	bool (*decode)(struct body *b, struct statement *s);
	uint32_t variant;
};
const struct opcode *opcode_find(struct text name);

/* Modifiers may be taken in any order where PTX's order carries no meaning. */
bool take(struct statement *s, const char *modifier);
/* Index of the first of the NULL-terminated names that is present, or -1. */
int take_one(struct statement *s, const char *const *names);
enum type take_type(struct statement *s);
enum space take_space(struct statement *s);
bool all_taken(const struct statement *s);
/* .rn .rz .rm .rp; ROUND_RN if there is none. */
enum rounding take_rounding(struct statement *s);

/* Operands as slots. A syntax error leaves; the register must be as wide as the type. */
uint32_t src(struct body *b, struct statement *s, uint32_t n, enum type type);
uint32_t dst(struct body *b, struct statement *s, uint32_t n, enum type type);
/* Registers may be wider than the type, as ld, st and cvt allow. */
uint32_t src_wide(struct body *b, struct statement *s, uint32_t n, enum type type);
uint32_t dst_wide(struct body *b, struct statement *s, uint32_t n, enum type type);
uint32_t operand_src(struct body *b, struct statement *s, const struct operand *o, enum type type, bool wide);
uint32_t operand_dst(struct body *b, struct statement *s, const struct operand *o, enum type type, bool wide);
/* A predicate source; a negated one costs an instruction. */
uint32_t src_predicate(struct body *b, struct statement *s, uint32_t n);
/* The d|p destination's second part, or the sink. */
uint32_t dst_pair(struct body *b, struct statement *s, uint32_t n);
/* Sets base slot, offset and flags of a memory instruction from operand n. */
void address(struct body *b, struct statement *s, uint32_t n, struct insn *i);
void operands(struct body *b, struct statement *s, uint32_t least, uint32_t most);

/* An instruction that reads and writes registers only and goes on to the next one. */
struct insn *emit(struct body *b, const struct statement *s, handler *run);
/* One that other threads notice, that may stop, or that may go elsewhere. */
struct insn *emit_visible(struct body *b, const struct statement *s, handler *run);
/* Emit `run`, if there is one for this type, with d, a, b, c from the operands; `n` sources. */
bool emit_simple(struct body *b, struct statement *s, handler *run, enum type type, uint32_t n);

_Noreturn void bad_operand(struct body *b, const struct statement *s, uint32_t n, const char *want);

#define DECODER(name) bool decode_##name(struct body *b, struct statement *s)
#define DECODERS(X)                                                                                                  \
	X(add) X(sub) X(mul) X(mad) X(mul24) X(div) X(rem) X(abs) X(neg) X(minmax) X(sad) X(carry) X(dot)            \
	X(logic) X(not) X(cnot) X(shift) X(funnel) X(lop3) X(count) X(bitfield) X(permute) X(fns) X(szext) X(bmsk)   \
	X(mov) X(cvta) X(isspacep) X(selp) X(slct) X(setp) X(set)                                                    \
	X(fma) X(approx) X(copysign) X(testp) X(cvt) X(ld) X(st) X(prefetch) X(cp_async)                             \
	X(atom) X(red) X(fence) X(bra) X(brx) X(call) X(ret) X(exit) X(trap) X(shfl) X(vote) X(match) X(redux)       \
	X(activemask) X(elect) X(bar) X(nanosleep)                                                                   \
	X(mma) X(wmma) X(ldmatrix) X(movmatrix) X(mbarrier) X(priority) X(createpolicy) X(griddepcontrol)            \
	X(setmaxnreg) X(pmevent) X(alloca) X(stacksave) X(video)                                                     \
	X(mapa) X(tex) X(tld4) X(suld) X(sust) X(txq)
#define X(name) DECODER(name);
DECODERS(X)
#undef X

/* Parts of decoders that other files own. */
bool decode_cvt_narrow(struct body *b, struct statement *s, bool *mine);
bool decode_packed_float(struct body *b, struct statement *s, uint32_t op);
bool decode_redux_float(struct body *b, struct statement *s);
bool decode_set_half(struct body *b, struct statement *s, enum type to, enum type type);
bool decode_setp_pair(struct body *b, struct statement *s, enum type type);
bool decode_half_approx(struct body *b, struct statement *s, enum type type);
bool decode_float_binary(struct body *b, struct statement *s, enum type type, uint32_t op);
bool decode_float_minmax(struct body *b, struct statement *s, enum type type);
bool decode_float_unary(struct body *b, struct statement *s, enum type type);
bool decode_float_div(struct body *b, struct statement *s, enum type type);
/* barrier.cluster */
bool decode_cluster_barrier(struct body *b, struct statement *s);
bool decode_half(struct body *b, struct statement *s, enum type type, uint32_t op);

/* Emitted by other files' decoders. */
handler run_mov, run_not_predicate, run_guard, run_guard_not, run_exit, run_ret, run_unsupported, run_bra, run_bra_back;

#endif
