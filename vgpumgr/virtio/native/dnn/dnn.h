/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's libcudnn. Descriptors of the backend interface are kept here: once finalised, one of the same content is the same
 * node, so that what the host's library says of it is asked once. Execution plans are objects of the host. Work is posted on the
 * handle's stream and waits for nothing, but for the first call of its kind.
 */
#ifndef VGPUMGR_DNN_GUEST_H
#define VGPUMGR_DNN_GUEST_H

#include <pthread.h>

#include "dnn_wire.h"
#include "guest_math.h"

#define DNN_API __attribute__((visibility("default")))

#define DNN_HANDLE_MAGIC 0x7667646e6e000001     /* "vgdnn" */
#define DNN_DESCRIPTOR_MAGIC 0x7667646e6e000002

/* A cudnnHandle_t. */
struct dnn_handle {
	uint64_t magic;
	uint64_t id;              /* the channel's */
	void *context;            /* CUcontext */
	struct dnn_handle *next;
	pthread_mutex_t lock;
	void *stream;
	struct math_known known;
};

/* ---- handle.c */
/* NULL: it is none, or its context has gone. */
struct dnn_handle *dnn_handle(void *handle);
/* The handle for questions about a device: of that context, or if that is NULL of the current one, or any. NULL: there is none. */
struct dnn_handle *dnn_any_handle(const void *context);
/* Its number; 0: there is none. */
uint64_t dnn_any_id(const void *context);
/* What this thread's last failure was about. */
const char *dnn_last_name(void);
/* What a driver's error is to a caller of the library. */
int dnn_status(int result);
/*
 * The same where the library was called: the error may be that of work posted before, and is none that a program takes for an
 * answer, as it does BAD_PARAM and NOT_SUPPORTED.
 */
int dnn_failure(int result);
/* DNN_NOT_SUPPORTED; says the name the first time, and keeps it for cudnnGetLastErrorString. */
int dnn_unsupported(const char *name, atomic_flag *told);

/* ---- live.c: which pointers are handles and descriptors. false: no memory */
bool dnn_live_add(const void *object);
void dnn_live_remove(const void *object);
bool dnn_is_live(const void *object);

/* ---- node.c */
/* Something that the library has of a node. */
struct dnn_answer {
	struct dnn_answer *next;
	uint64_t attribute, type;
	int status;
	uint64_t count;
	uint8_t values[];
};

/* A descriptor, finalised. The same content is the same node. */
struct dnn_node {
	struct dnn_node *next;    /* of the same bucket */
	uint64_t hash;
	uint32_t type;
	unsigned int references;  /* of descriptors, of nodes that refer to it, and of those that it was found by */
	void *context;            /* of its handle, or that of what it refers to; NULL: none was set */
	_Atomic bool checked;     /* the library was asked whether it finalises it, and said: */
	int status;
	struct dnn_answer *answers;
	/* of heuristics, and of engines: what was found; by attribute */
	struct dnn_found *found;
	struct dnn_plan *plan;    /* of an execution plan that is on the host */
	unsigned int mark, place; /* while it is written */
	/* attributes as they travel, but that a reference is a node and a handle is a word with its context */
	uint32_t attributes, length;
	_Alignas(8) uint8_t bytes[];
};

struct dnn_found {
	struct dnn_found *next;
	uint64_t attribute;
	int status;
	uint64_t count;
	struct dnn_node *nodes[];
};

struct dnn_plan {
	uint64_t id, maker;       /* the channel's: the plan's, and that of the handle that it was made with */
	uint64_t workspace;
	unsigned int values;
	struct {
		int64_t id;
		size_t bytes;
	} value[DNN_VALUES];      /* tensors on the host */
};

/* All below is under this lock, unless said otherwise. */
void dnn_lock(void);
void dnn_unlock(void);
/* The node of that content, with a reference for the caller. NULL: no memory. Takes the lock itself. */
struct dnn_node *dnn_intern(uint32_t type, uint32_t attributes, const uint8_t *bytes, size_t length);
void dnn_node_hold(struct dnn_node *node);
void dnn_node_drop(struct dnn_node *node);
/* Of bytes as in a node: where the attribute's head is; NULL: it was not set. Needs no lock. */
const uint8_t *dnn_attribute_at(const uint8_t *bytes, size_t length, uint64_t number);
/* Bytes of an attribute with its head, in a node. Needs no lock. */
size_t dnn_attribute_bytes(uint64_t head);
/* The tree that ends in the node, as it travels. 0: it does not fit. Takes the lock itself. */
size_t dnn_write_tree(struct dnn_node *node, uint8_t *to, size_t room);
/* Of a tree: the tensors that are on the host. Takes the lock itself. */
void dnn_list_values(struct dnn_node *node, struct dnn_plan *plan);

/* ---- ask.c; none of these takes the lock of what it is called with */
/* What the library says when it finalises the node. */
int dnn_check(struct dnn_node *node);
/* What the library has; *answer stays as long as the node. */
int dnn_ask(struct dnn_node *node, const struct dnn_attribute *a, uint64_t type, const struct dnn_answer **answer);
/* Descriptors that the library made; *found stays as long as the node. */
int dnn_find_nodes(struct dnn_node *node, const struct dnn_attribute *a, const struct dnn_found **found);
/* The plan is on the host, made with a handle that is there still. */
int dnn_open_plan(struct dnn_node *node);
/* A descriptor's reference; with the last one the plan ends. Takes the lock itself. */
void dnn_release(struct dnn_node *node);
/* Bytes; 0 where the plan is not there. */
uint64_t dnn_plan_workspace(struct dnn_node *node);

/* ---- call.c */
/* Of an address, what a library may ask for: the largest power of two that divides it, up to 256; 0 of NULL. */
static inline uint64_t dnn_alignment(uint64_t address)
{
	return (address & -address) > 256 ? 256 : address & -address;
}
/* Under the handle's lock. Waits for the library's status where the kind, whose hash is given, is new. */
int dnn_send(struct dnn_handle *h, struct math_request *request, uint64_t kind);
/* Calls `f` with the words of its arguments. */
int dnn_call(void *handle, const struct dnn_function *f, const uint64_t *words);

/* ---- forms.c */
/* A descriptor of the classic interface: its words as they travel. */
struct dnn_object {
	uint64_t magic;
	uint32_t kind, count;     /* count: of words; 0: nothing was set */
	uint64_t words[DNN_FORM_WORDS];
};
/* NULL: it is none of that kind. */
struct dnn_object *dnn_object(void *opaque, enum dnn_kind kind);

#endif
