/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, the engines that run them, and plans. */
#ifndef VGPUMGR_SIM_DNN_GRAPH_H
#define VGPUMGR_SIM_DNN_GRAPH_H

#include "program.h"

/* graph.c */
int dn_graph_finalize(struct dn_content *c);

/* engines.c: how a program is run */
enum { DN_ENGINES = 3 };
struct dn_setting {
	int engine;
	int64_t tiles; /* of an image */
};
/* Bytes of workspace; -1: too many. */
int64_t dn_workspace(const struct dn_program *p, const struct dn_setting *s);
/* Of a convolution: how many images' patches lie in the workspace at once. 0: patches are not used. */
int64_t dn_patch_images(const struct dn_setting *s, const struct dn_geometry *g);
/* Does the engine keep virtual tensors in the workspace? */
bool dn_virtuals_in_workspace(const struct dn_setting *s);
/* Where the patches or the next virtual tensor begin in the workspace. */
int64_t dn_align_workspace(int64_t bytes);
/* The setting that a finalised engine configuration stands for. */
void dn_setting_read(const struct dn_content *config, struct dn_setting *out);
int dn_engine_finalize(struct dn_content *c);
int dn_config_finalize(struct dn_content *c);
int dn_heuristics_finalize(struct dn_content *c);
int dn_plan_finalize(struct dn_content *c);

#endif
