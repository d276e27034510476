/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on single elements. */
#ifndef VGPUMGR_SIM_DNN_POINTWISE_H
#define VGPUMGR_SIM_DNN_POINTWISE_H

#include <stdbool.h>

struct dn_pointwise {
	int mode;
	double lower, upper, slope, elu, softplus, swish;
	int axis;
	double alpha1, alpha2;
};

/* How many inputs a mode has: 1, 2, 3, with the gradients' 2; 0: there is no such mode here. */
int dn_pointwise_inputs(int mode);
/* Is it the gradient of an activation? Its inputs are dY and X. */
bool dn_pointwise_is_gradient(int mode);
/* Does its result depend on where an element is? */
bool dn_pointwise_needs_axis(int mode);
/* Of one element: the inputs, and its index on the axis. */
double dn_pointwise_compute(const struct dn_pointwise *p, double x, double b, double t, double index);

#endif
