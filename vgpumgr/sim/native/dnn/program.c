/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: operations in order, and their tensors, each once. */
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum { ROLES = 4 };

struct dn_program *dn_program_create(int operations)
{
	struct dn_program *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->operations = calloc((size_t)operations, sizeof *p->operations);
	p->tensors = calloc((size_t)operations * ROLES, sizeof *p->tensors);
	if (p->operations && p->tensors)
		return p;
	dn_program_destroy(p);
	return NULL;
}

void dn_program_destroy(struct dn_program *p)
{
	if (!p)
		return;
	free(p->operations);
	free(p->tensors);
	free(p);
}

static bool is_same(const struct dn_tensor *a, const struct dn_tensor *b)
{
	size_t bytes = (size_t)a->nd * sizeof *a->dims;

	return a->type == b->type && a->nd == b->nd && a->is_virtual == b->is_virtual && a->by_value == b->by_value &&
	       !memcmp(a->dims, b->dims, bytes) && !memcmp(a->strides, b->strides, bytes);
}

/* The place of a tensor in the program; -1: another one has its identity. */
static int place(struct dn_program *p, const struct dn_tensor *t)
{
	for (int i = 0; i < p->n_tensors; i++)
		if (p->tensors[i].uid == t->uid)
			return is_same(&p->tensors[i], t) ? i : -1;
	p->tensors[p->n_tensors] = *t;
	return p->n_tensors++;
}

static bool is_compute_type(int type)
{
	return type == DN_FLOAT || type == DN_DOUBLE || type == DN_HALF || type == DN_BFLOAT16 || type == DN_INT32;
}

/* What an operation reads has one type, but for what another operation has just made, and double precision stays double. */
static int check_types(const struct dn_operation *o, const struct dn_tensor *const operands[4])
{
	bool is_pointwise = o->kind == DN_D_POINTWISE_OP;
	int read = -1;

	if (!is_compute_type(o->compute) && !(is_pointwise && o->compute == DN_BOOLEAN))
		return dn_fail(DN_BAD_DATA_TYPE, "no such type to compute in");
	for (int i = 0; i < 4; i++) {
		const struct dn_tensor *t = operands[i];

		if (!t)
			continue;
		if (!dn_is_simulated(t->type))
			return dn_fail(DN_BAD_DATA_TYPE, "a type of elements that is not simulated");
		if (t->type == DN_DOUBLE && o->compute != DN_DOUBLE && !is_pointwise)
			return dn_fail(DN_BAD_DATA_TYPE, "double precision is computed as such");
		if (i == o->output || t->is_virtual || is_pointwise)
			continue;
		if (read >= 0 && read != t->type)
			return dn_fail(DN_BAD_DATA_TYPE, "operands of two types");
		read = t->type;
	}
	return DN_SUCCESS;
}

int dn_program_add(struct dn_program *p, const struct dn_operation *o, const struct dn_tensor *const operands[ROLES])
{
	struct dn_operation *added = &p->operations[p->n_operations++];
	int status = check_types(o, operands);

	if (status != DN_SUCCESS)
		return status;
	*added = *o;
	for (int i = 0; i < ROLES; i++) {
		added->operands[i] = -1;
		if (!operands[i])
			continue;
		added->operands[i] = place(p, operands[i]);
		if (added->operands[i] < 0)
			return dn_fail(DN_BAD_PARAM, "two tensors have one identity");
	}
	return DN_SUCCESS;
}

static int output_of(const struct dn_operation *o)
{
	return o->operands[o->output];
}

static int find_maker(const struct dn_program *p, int tensor)
{
	for (int i = 0; i < p->n_operations; i++)
		if (output_of(&p->operations[i]) == tensor)
			return i;
	return -1;
}

static bool is_ready(const struct dn_program *p, const struct dn_operation *o, const bool *done)
{
	for (int i = 0; i < ROLES; i++) {
		int maker = i == o->output || o->operands[i] < 0 ? -1 : find_maker(p, o->operands[i]);

		if (maker >= 0 && !done[maker])
			return false;
	}
	return true;
}

/* Each time the first operation that has all it reads. */
static int put_in_order(struct dn_program *p, struct dn_operation *sorted, bool *done)
{
	for (int n = 0; n < p->n_operations; n++) {
		int i;

		for (i = 0; i < p->n_operations && (done[i] || !is_ready(p, &p->operations[i], done)); i++)
			;
		if (i == p->n_operations)
			return dn_fail(DN_BAD_PARAM, "operations wait for each other");
		done[i] = true;
		sorted[n] = p->operations[i];
	}
	memcpy(p->operations, sorted, (size_t)p->n_operations * sizeof *sorted);
	return DN_SUCCESS;
}

static int check_outputs(const struct dn_program *p)
{
	for (int i = 0; i < p->n_operations; i++) {
		int output = output_of(&p->operations[i]);

		if (find_maker(p, output) != i)
			return dn_fail(DN_BAD_PARAM, "two operations make one tensor");
		if (p->tensors[output].by_value)
			return dn_fail(DN_BAD_PARAM, "a value of the host is written");
	}
	for (int i = 0; i < p->n_tensors; i++)
		if (p->tensors[i].is_virtual && find_maker(p, i) < 0)
			return dn_fail(DN_BAD_PARAM, "no operation makes a virtual tensor");
	return DN_SUCCESS;
}

int dn_program_complete(struct dn_program *p)
{
	struct dn_operation *sorted = calloc((size_t)p->n_operations, sizeof *sorted);
	bool *done = calloc((size_t)p->n_operations, sizeof *done);
	int status = check_outputs(p);

	if (!sorted || !done)
		status = dn_fail(DN_NO_HOST_MEMORY, "no memory for a graph");
	else if (status == DN_SUCCESS)
		status = put_in_order(p, sorted, done);
	free(sorted);
	free(done);
	return status;
}
