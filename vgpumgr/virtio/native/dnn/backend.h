/* SPDX-License-Identifier: Apache-2.0 */
/* A program's descriptors of the backend interface. */
#ifndef VGPUMGR_DNN_BACKEND_H
#define VGPUMGR_DNN_BACKEND_H

#include "dnn.h"

/* CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: never a node, as it is new for each execution; and the last type of all. */
enum { DNN_PACK = 16, DNN_LAST = 50 };

/* A cudnnBackendDescriptor_t. */
struct dnn_descriptor {
	uint64_t magic;
	uint32_t type;
	bool finalised;           /* of a variant pack */
	struct dnn_node *node;    /* when it is finalised */
	/* until then: as in a node */
	uint32_t attributes;
	size_t length;
	uint8_t *bytes;
	/* of a variant pack */
	int64_t ids_count, pointers_count;
	int64_t *ids;
	void **pointers;
	void *workspace;
};

/* NULL: it is none. */
struct dnn_descriptor *dnn_descriptor(void *opaque);

/* ---- pack.c */
void dnn_pack_clear(struct dnn_descriptor *d);
int dnn_pack_set(struct dnn_descriptor *d, int number, int type, int64_t count, const void *elements);
int dnn_pack_get(const struct dnn_descriptor *d, int number, int type, int64_t wanted, int64_t *given, void *elements);
int dnn_pack_finalise(struct dnn_descriptor *d);

#endif
