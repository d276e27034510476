/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph computes: tensors, and operations on them in an order in which they can be done. */
#ifndef VGPUMGR_SIM_DNN_PROGRAM_H
#define VGPUMGR_SIM_DNN_PROGRAM_H

#include "backend.h"
#include "convolution.h"
#include "pointwise.h"

/* Operands by role: of convolutions X, W, Y; of pointwise operations X, B, T, Y; of products A, B, C; of reductions X, Y. */
struct dn_operation {
	int kind; /* of descriptor */
	int operands[4]; /* places in the program's tensors; -1: none */
	int output; /* which operand is written */
	int compute;
	bool wide; /* computed in double precision */
	double alpha, beta;
	struct dn_geometry geometry;
	struct dn_pointwise pointwise;
	int reduction;
};

struct dn_program {
	int n_tensors, n_operations;
	struct dn_tensor *tensors;
	struct dn_operation *operations;
};

struct dn_program *dn_program_create(int operations);
void dn_program_destroy(struct dn_program *p);
/* Adds an operation with its operands (NULL: none). Their types must fit, and those with one identity must be one tensor. */
int dn_program_add(struct dn_program *p, const struct dn_operation *o, const struct dn_tensor *const operands[4]);
/* After the last one: puts the operations in order and checks that each virtual tensor is made by one of them. */
int dn_program_complete(struct dn_program *p);

#endif
