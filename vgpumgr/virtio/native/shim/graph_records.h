/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph's object has beside what it needs of the program: numbers, parameters that were read, child graphs. */
#ifndef VGPUMGR_GRAPH_RECORDS_H
#define VGPUMGR_GRAPH_RECORDS_H

#include "objects.h"

/* As a graph, or an executable one, begins, and ends. */
void shim_records_begin(struct shim_object *graph);
void shim_records_drop(struct shim_object *graph);

/* Pointers to a kernel's parameters, which are valid until its node changes or the graph ends; NULL: out of memory. */
void **shim_kept(struct shim_object *graph, uint32_t node, const struct shim_object *function, const uint8_t *bytes);

/* The same of what has no pointers: a copy of the bytes. */
void *shim_kept_bytes(struct shim_object *graph, uint32_t node, const void *bytes, size_t count);

enum { SHIM_EVERY_NODE = UINT32_MAX };
/* false: out of memory. */
bool shim_child_add(struct shim_object *graph, uint32_t node, uint32_t which, uint64_t child);
/* The child graph of a node that was asked for before, or one of its bodies; 0: none. */
uint64_t shim_child_find(const struct shim_object *graph, uint32_t node, uint32_t which);
/* Any of the node, which is known no more. */
uint64_t shim_child_take(struct shim_object *graph, uint32_t node);

#endif
