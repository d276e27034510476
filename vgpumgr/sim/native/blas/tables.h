/* SPDX-License-Identifier: Apache-2.0 */
/* A call of a function of cuBLAS that computes, and the tables behind them. */
#ifndef VGPUMGR_SIM_BLAS_TABLES_H
#define VGPUMGR_SIM_BLAS_TABLES_H

#include "blas.h"

enum { MAX_ARGS = 26, MAX_OPERANDS = 4, MAX_SCALARS = 6, SCALAR_BYTES = 40 };

enum argument_kind {
	ARG_OP,
	ARG_OPSYM,
	ARG_OPHERM,
	ARG_FILL,
	ARG_DIAG,
	ARG_SIDE,
	ARG_TYPE,
	ARG_COMPUTE,
	ARG_ALGO,
	ARG_SIZE,
	ARG_COUNT,
	ARG_BATCH,
	ARG_INC,
	ARG_STEP,
	ARG_LD,
	ARG_STRIDE,
	ARG_DEVICE,
	ARG_IN,
	ARG_INOUT,
	ARG_OUT,
	ARG_HOST,
};

enum scalar_kind { SCALAR_NONE, SCALAR_LETTER, SCALAR_F32, SCALAR_F64, SCALAR_INT, SCALAR_ARGUMENT, SCALAR_COMPUTE };

struct argument {
	enum argument_kind kind;
	enum scalar_kind scalar;
	int from;  /* SCALAR_ARGUMENT: the argument that has the type */
	int count; /* 0 is one */
};

/* Memory on the device: a matrix, a vector as a matrix of one row, or an array of addresses of such. */
struct operand {
	int64_t rows, cols, ld, stride;
	int element, arg;
	int unless; /* not read where this scalar is 0; -1 */
	bool array;
};

struct call;
struct function;
struct family {
	int n, batch; /* arguments, and the one that counts the batch */
	int (*check)(const void *args, const struct function *function);
	struct operand *(*operands)(const void *args, const struct function *function, struct operand *out);
	void (*run)(const struct call *call);
	struct argument args[MAX_ARGS];
};

struct function {
	const struct family *family;
	const char *routine;
	int scalar, element, result; /* types of scalars, elements and a result that differs, by the function's letters */
};

struct call {
	struct work work;
	const struct function *function;
	bool wide;	      /* integers of results have 64 bits */
	bool scalars_on_device;
	int64_t args[MAX_ARGS]; /* the family's struct */
	void *routine;
	_Alignas(16) unsigned char scalars[MAX_SCALARS][SCALAR_BYTES];
};

/* What every exported function does. */
int bl_call(void *handle, const struct function *function, bool wide, const int64_t *args);

/* plain.c: finds what the call needs of OpenBLAS. */
int bl_call_routine(struct call *c);

/* support.c: the scale type of a call with a compute type */
int bl_call_scale(const struct function *function, const int64_t *args);
/* A status for the types of an Ex function, before it is posted. */
int bl_check_types(const struct function *function, const int64_t *args);
static inline bool bl_is_op(int64_t op)
{
	return op >= BL_OP_N && op <= BL_OP_C;
}

static inline bool bl_short(int64_t ld, int64_t rows)
{
	return ld < (rows > 1 ? rows : 1);
}

static inline int64_t bl_distance(int64_t inc)
{
	return inc < 0 ? -inc : inc;
}

static inline int64_t bl_batch(const struct call *c)
{
	int i = c->function->family->batch;

	return i < 0 ? 1 : c->args[i];
}

/* The entry of an array of addresses. */
static inline void *bl_entry(const void *array, int64_t i)
{
	return ((void *const *)array)[i];
}

#endif
