/* SPDX-License-Identifier: Apache-2.0 */
/* A call as decoded. */
#ifndef PTX_CONTROL_H
#define PTX_CONTROL_H

#include "state.h"

struct call_value {
	bool in_frame;     /* else a cell */
	uint32_t at, size;
};

struct call {
	struct function *target;    /* NULL: its address is in cell `a` */
	struct function *prototype; /* of an indirect call */
	struct call_value *args, *returns;
	uint32_t n_args, n_returns;
};

/* Where an instruction may go: to the next one; past `imm` of them as well; to its target; to any of a table; nowhere. */
enum flow { FLOW_NEXT, FLOW_GUARD, FLOW_JUMP, FLOW_TABLE, FLOW_END };
enum flow flow_of(const struct insn *i, const struct insn *const **targets, uint32_t *n);

/* For built-in functions: argument k of the call instruction, and its first return value. */
uint64_t call_argument(const struct thread *t, const struct insn *i, uint32_t k);
void call_return(struct thread *t, const struct insn *i, uint64_t value);

/* grid_sync.c: as builtin_named, of the functions of cooperative groups. */
handler *grid_function_named(struct text name);

#endif
