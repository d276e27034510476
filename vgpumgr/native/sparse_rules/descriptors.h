/* SPDX-License-Identifier: Apache-2.0 */
/* cuSPARSE's descriptors, kept in the process: what the guest's library and the simulated machine's have in common. */
#ifndef VGPUMGR_SPARSE_DESCRIPTORS_H
#define VGPUMGR_SPARSE_DESCRIPTORS_H

#include <sparse_wire.h>
#include <stdbool.h>
#include <stddef.h>

#define SPARSE_API __attribute__((visibility("default")))

/* An exported function, with its prototype. */
#define SPARSE_FUNCTION(type, name, ...)       \
	SPARSE_API type name(__VA_ARGS__);      \
	type name(__VA_ARGS__)

#define SPARSE_MATRIX 0x7667737000000001
#define SPARSE_DENSE 0x7667737000000002
#define SPARSE_VECTOR 0x7667737000000003
#define SPARSE_ENTRIES 0x7667737000000004
#define SPARSE_SETTINGS 0x7667737000000005

/* One of the generic interface; an argument of a call is its address, so that what travels comes first. */
struct sparse_descriptor {
	union sparse_any any;
	uint64_t kind;
};

/* A cusparseMatDescr_t. */
struct sparse_settings {
	uint64_t kind, word;
};

/* NULL: it is none of that kind. */
struct sparse_descriptor *sparse_descriptor(const void *descriptor, uint64_t kind);
/* The word that travels; 0: it is no cusparseMatDescr_t. */
uint64_t sparse_settings(const void *descriptor);
/* A status. */
int sparse_new(void **out, uint64_t kind, const union sparse_any *any);
int sparse_end(const void *descriptor, uint64_t kind);
bool sparse_is_index(int type);

#endif
