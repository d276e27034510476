/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN of the host: trees of descriptors as guests send them, and the library's own that are made of them. */
#ifndef VG_NETWORKS_H
#define VG_NETWORKS_H

#include "dnn_wire.h"
#include "math_channel.h"
#include "mathematics.h"

/* ---- dnn_tree.c */
struct wk_reader {
	const uint8_t *at;
	size_t left;
	bool wrong;               /* too short, or what cannot be */
};

uint64_t wk_take_word(struct wk_reader *r);
/* NULL: it is not there. Padded to whole words. */
const uint8_t *wk_take_bytes(struct wk_reader *r, size_t bytes);
/* Appended to what the call gives back; false: there is no place. */
bool wk_give_word(struct math_call *call, uint64_t word);
bool wk_give(struct math_call *call, const void *data, size_t bytes);

/* A tensor whose value is on the host. */
struct dnn_value {
	int64_t id;
	size_t bytes;
};

/* The library's descriptors, each finalised, in the order in which they came. */
struct dnn_tree {
	unsigned int count;
	void *at[DNN_TREE];
	uint8_t types[DNN_TREE];
	bool by_value[DNN_TREE];  /* tensors: on the host */
	unsigned int values;
	struct dnn_value value[DNN_VALUES];
};

/* A cudnnStatus_t. In any case wk_tree_drop() ends it. */
int wk_tree_build(struct dnn_tree *tree, struct wk_reader *r, void *handle);
void wk_tree_drop(struct dnn_tree *tree);
/* The library's function. */
void *wk_dnn(const char *name);
int wk_dnn_make(uint64_t type, void **descriptor);
void wk_dnn_end(void *descriptor);
int wk_dnn_get(void *descriptor, uint64_t attribute, uint64_t type, int64_t wanted, int64_t *count, void *values);

/* ---- dnn_find.c: descriptors that the library made */
int wk_dnn_find(struct math_call *call);
/* ---- dnn_classic.c */
int wk_dnn_classic(struct math_call *call, const struct dnn_function *f);
int wk_dnn_set_dropout(struct math_call *call);

#endif
