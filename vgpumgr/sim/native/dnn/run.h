/* SPDX-License-Identifier: Apache-2.0 */
/* A program as work on a stream. */
#ifndef VGPUMGR_SIM_DNN_RUN_H
#define VGPUMGR_SIM_DNN_RUN_H

#include "graph.h"

struct dn_run_request {
	const struct dn_program *program;
	struct dn_setting setting;
	void *const *data; /* by the program's tensors: on the device, or on the host for values; copied */
	void *workspace;
	struct dn_content *plan; /* kept while the work is there; NULL: the program is the work's own and is destroyed with it */
};
/* Posts it. A program of its own is taken in any case. */
int dn_run_post(const struct dn_handle *handle, struct bl_context *context, const struct dn_run_request *request);

#endif
