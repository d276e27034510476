/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of the worker's processes, in two stages. The keeper applies the first before it executes the worker:
 * loading a driver, starting programs of the worker's own. The process that has loaded the driver applies the second,
 * which is what remains of the kernel for one whom a guest has taken over.
 */
#ifndef VG_FILTER_H
#define VG_FILTER_H

#include <stdbool.h>

enum vg_filter_stage {
	VG_FILTER_START,
	VG_FILTER_SERVE,
	VG_FILTER_RELAY,         /* the relay's, in the place of SERVE: no driver, no device; it connects to the dialer */
	VG_FILTER_LINK,          /* of a process that serves a link: no files, and no socket but those that it has */
};
/* LOG lets everything pass and has the kernel log what ENFORCE would refuse: for a driver that is new to us. */
enum vg_filter_mode { VG_FILTER_ENFORCE, VG_FILTER_LOG, VG_FILTER_OFF };

#define VG_OPTION_FILTER "--filter="

/* "enforce", "log" or "off"; -1: none of these. */
int vg_filter_mode(const char *word);

/* For this thread and all others of the process, for ever; no_new_privs must be set. Negative errno. */
int vg_filter_apply(enum vg_filter_stage stage, enum vg_filter_mode mode);

/* In a sandbox, each process of the worker first makes itself one that cannot be traced or dumped. Negative errno. */
int vg_hide(int argc, char **argv);

/*
 * A session's lock-down once its driver is loaded: Landlock where the kernel has it, then the second stage. What the
 * keeper's option says is done: nothing without one. Negative errno.
 */
int vg_lock_down(int argc, char **argv);
/* The same with another stage. */
int vg_lock_down_as(enum vg_filter_stage stage, int argc, char **argv);
/* For a process without a root of its own: no file can be opened, made, or executed from now on. Negative errno. */
int vg_lock_files(void);

#endif
