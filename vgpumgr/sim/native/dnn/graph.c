/* SPDX-License-Identifier: Apache-2.0 */
/* A graph of operations becomes a program. */
#include "graph.h"
#include "operations.h"

/* Values of the host are single ones, and vectors of channels are not simulated. */
static int check_tensors(const struct dn_content *operation, const struct dn_tensor *const operands[4])
{
	for (int i = 0; i < 4; i++)
		if (operands[i] && operands[i]->by_value && dn_elements(operands[i]) != 1)
			return dn_fail(DN_BAD_SHAPE, "a value of the host is one element");
	for (int i = 0; i < operation->n; i++) {
		const struct dn_value *v = &operation->values[i];
		const struct dn_content *t = v->is_set && v->type == DN_T_DESCRIPTOR ? *(struct dn_content **)v->data : NULL;

		if (t && t->type == DN_D_TENSOR &&
		    (dn_content_int(t, DN_A_TENSOR_VECTOR, 1) != 1 || dn_content_int(t, DN_A_TENSOR_REORDERING, 0)))
			return dn_fail(DN_BAD_LAYOUT, "vectors of channels and reordered tensors are not simulated");
	}
	return DN_SUCCESS;
}

/* Reductions to more than one element of a dimension are described, but not computed. */
static bool is_whole(const struct dn_operation *o, const struct dn_tensor *const operands[4])
{
	if (o->kind != DN_D_REDUCTION_OP)
		return true;
	for (int i = 0; i < operands[0]->nd; i++)
		if (operands[1]->dims[i] != operands[0]->dims[i] && operands[1]->dims[i] != 1)
			return false;
	return true;
}

static int add(struct dn_program *p, const struct dn_content *operation)
{
	struct dn_operands operands;
	struct dn_operation o;
	int status = dn_operation_read(operation, &o, &operands);

	if (status == DN_SUCCESS)
		status = check_tensors(operation, operands.present);
	if (status == DN_SUCCESS && !is_whole(&o, operands.present))
		return dn_fail(DN_BAD_SHAPE, "a reduction by a part of a dimension is not simulated");
	return status == DN_SUCCESS ? dn_program_add(p, &o, operands.present) : status;
}

int dn_graph_finalize(struct dn_content *c)
{
	int64_t n = dn_content_count(c, DN_A_GRAPH_OPS);
	struct dn_program *p;
	int status = DN_SUCCESS;

	if (!n)
		return dn_fail(DN_BAD_PARAM, "a graph without operations");
	if (dn_content_int(c, DN_A_GRAPH_DYNAMIC, 0))
		return dn_fail(DN_NOT_SUPPORTED, "graphs of dynamic shapes are not simulated");
	p = dn_program_create((int)n);
	if (!p || !dn_content_store_int(c, DN_A_GRAPH_ENGINES, DN_ENGINES) || !dn_content_default(c, DN_A_GRAPH_DYNAMIC, 0))
		status = dn_fail(DN_NO_HOST_MEMORY, "no memory for a graph");
	for (int64_t i = 0; i < n && status == DN_SUCCESS; i++)
		status = add(p, dn_content_ref(c, DN_A_GRAPH_OPS, i));
	if (status == DN_SUCCESS)
		status = dn_program_complete(p);
	if (status == DN_SUCCESS) {
		c->program = p;
		c->release_program = dn_program_destroy;
	} else {
		dn_program_destroy(p);
	}
	return status;
}
