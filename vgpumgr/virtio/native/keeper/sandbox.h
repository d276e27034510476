/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker is put into: see sandbox.c. */
#ifndef VG_SANDBOX_H
#define VG_SANDBOX_H

#include <stdbool.h>
#include <sys/types.h>

#include "../worker/filter.h"

enum { SANDBOX_PATHS = 64 };
enum sandbox_access { SANDBOX_READ, SANDBOX_WRITE, SANDBOX_DEVICE };

struct sandbox_path {
	const char *path;
	enum sandbox_access access;
};

struct sandbox {
	bool on;
	uid_t uid;               /* of the worker, and its group; our own where we are not root */
	gid_t gid;
	enum vg_filter_mode filter;
	struct sandbox_path path[SANDBOX_PATHS];
	unsigned paths;
};

/* Adds what the worker sees; -E2BIG. */
int sandbox_add(struct sandbox *sandbox, const char *path, enum sandbox_access access);

/*
 * As fork(), into namespaces of its own. The child calls sandbox_enter() with *sync, the parent sandbox_attend(), which
 * waits until the child needs it no more.
 */
pid_t sandbox_fork(const struct sandbox *sandbox, int *sync);
int sandbox_attend(const struct sandbox *sandbox, int sync, pid_t child);

/*
 * In the child: root directory, identity, capabilities, limits; `root` is an empty directory. 0, or -1 and in `error`
 * what could not be done. sandbox_filter() is the last step before the worker is executed.
 */
int sandbox_enter(const struct sandbox *sandbox, int sync, const char *root, char *error, size_t size);
int sandbox_filter(const struct sandbox *sandbox, char *error, size_t size);

/*
 * AppArmor's profile of workers, and the relay's of its own, which has the network's sockets and no device; it needs no other
 * part of the sandbox. Whether the kernel has it is asked while the host's files are to be seen: it logs who tries to enter
 * one that it has not.
 */
const char *sandbox_profile(const char *worker);
bool sandbox_has_profile(const char *profile);
void sandbox_enter_profile(const char *profile);

/* For a process of root's that stays outside: becomes that user, without groups and capabilities, for good. */
int sandbox_renounce(uid_t uid, gid_t gid, char *error, size_t size);

/* The environment without what is not the worker's. */
void sandbox_clean_environment(void);

#endif
