/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's handles. An object's handle is the wire's: {tag, generation, slot}, see channels.h; a program sees it as an opaque
 * pointer and no guest address is in it. Objects live in chunks that are never freed, so that a stale handle is
 * recognised without a lock.
 */
#ifndef VGPUMGR_OBJECTS_H
#define VGPUMGR_OBJECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <cuda_rules.h>
#include <graph_block.h>
#include <user_object.h>

enum { SHIM_FUNCTION_ATTRIBUTES = 32 };

struct cuda_array;
struct shim_hosts;
struct shim_kept;
struct shim_child;

struct shim_parameter {
	uint32_t offset, size;
};

struct shim_object {
	_Atomic uint64_t id;  /* 0: free */
	uint64_t context;
	uint32_t generation, next_free;
	union {
		struct {
			int device;
			unsigned int flags, api_version;
			int least_priority, greatest_priority;
			bool primary;
			uint64_t number;
			_Atomic int broken; /* the CUresult that it is lost with */
			struct cuda_stream_attributes default_stream;
		} ctx;
		struct {
			unsigned int flags;
			uint64_t number;
			struct cuda_stream_attributes attributes;
		} stream;
		struct {
			unsigned int flags;
			_Atomic uint32_t records;   /* grows with each record */
			_Atomic uint32_t done;      /* the record known complete, plus 1; 0: none */
		} event;
		struct {
			_Atomic uint64_t library; /* not 0: belongs to a CUlibrary */
		} module;
		struct {
			uint64_t module;
			char *name;
			int attributes[SHIM_FUNCTION_ATTRIBUTES];
			uint32_t attributes_count, parameters_count, parameters_bytes;
			struct shim_parameter *parameters;
			struct cuda_launch_limits limits; /* by its code and its device: what no attribute changes */
		} function;
		struct {
			struct shim_hosts *hosts; /* NULL: it needs nothing of this process */
			struct user_objects objects;
			uint64_t flags;           /* of an executable one */
			uint32_t number;          /* as programs and tools are told */
			uint32_t origin;          /* the number of what it is a copy of, else its own */
			uint64_t parent;          /* of a child graph or a body, else 0 */
			struct shim_kept *kept;   /* parameters that were read of nodes */
			struct shim_child *children; /* that were asked for, and bodies */
			bool body;                /* of a conditional node */
			bool decides;             /* it has conditional nodes */
			struct graph_blocks blocks; /* memory that its nodes allocate and free */
			CUevent launched;         /* recorded behind each launch of one that holds objects; NULL: none yet */
		} graph;                  /* and of an executable one */
		struct {
			int device;
			unsigned int handle_types; /* as the program asked */
			bool imported; /* from another process */
			uint64_t bytes;
			uint32_t handles, mappings; /* under virtual.c's lock; it ends with the last of both */
		} physical;
		struct {
			int device;
			bool initial; /* the device's own: never destroyed */
			bool shareable, imported; /* with other processes; from one */
		} pool;
		struct {
			struct cuda_array *made;
			uint64_t *levels;         /* of a mipmapped one: arrays, as far as they were asked for */
			uint32_t levels_count;
			bool is_level;
		} array;                          /* and a mipmapped one; under array.c's lock */
	};
};

enum shim_table { SHIM_CONTEXT, SHIM_STREAM, SHIM_EVENT, SHIM_MODULE, SHIM_FUNCTION, SHIM_POOL, SHIM_PHYSICAL, SHIM_GRAPH, SHIM_GRAPH_EXEC,
		  SHIM_ARRAY, SHIM_MIPMAP, SHIM_TEXTURE, SHIM_SURFACE, SHIM_MATH, SHIM_TABLES };

/* A fresh object of the context's channel, or of this thread's, not yet visible under its handle; NULL: the table is full. */
struct shim_object *shim_object_new(enum shim_table table, uint64_t context, uint64_t *id);
/* Makes the handle valid. */
void shim_object_publish(struct shim_object *object, uint64_t id);
/* The live object of a handle, or NULL. */
struct shim_object *shim_object_get(enum shim_table table, uint64_t id);
/* Of a function; 0: the worker's driver does not know it. Threads set some while others launch. */
static inline unsigned int shim_function_attribute(const struct shim_object *f, CUfunction_attribute attribute)
{
	return (uint32_t)attribute < SHIM_FUNCTION_ATTRIBUTES ?
		       (unsigned int)__atomic_load_n(&f->function.attributes[attribute], __ATOMIC_RELAXED) :
		       0;
}
/* The handle is no longer valid; true for the one caller that made it so. */
bool shim_object_retire(struct shim_object *object, uint64_t id);
/* The slot may be used again: only after the worker has been told. */
void shim_object_recycle(enum shim_table table, uint64_t id);
/* Frees what a function holds. */
void shim_function_free(struct shim_object *function);
/* Retires and recycles all objects of a context; `drop` is called for each, may be NULL. */
void shim_object_forget(enum shim_table table, uint64_t context, void (*drop)(struct shim_object *object));
/* The next live object of the owner's channel at or after slot *at, which moves beyond it; NULL: no more. */
struct shim_object *shim_object_next(enum shim_table table, uint64_t owner, uint32_t *at);

#endif
