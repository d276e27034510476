/* SPDX-License-Identifier: Apache-2.0 */
/* vgpumgr-guest-check: whether a CUDA program of this VM can have a forwarded GPU, and if not, what to do. */
#ifndef VG_GUEST_CHECK_H
#define VG_GUEST_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../transport.h"

enum result { CHECK_OK, CHECK_WARNING, CHECK_PROBLEM, CHECK_SKIPPED };
enum { CHECK_PATH = 512, CHECK_TEXT = 600 };

/* the operations that this program was built with */
extern const struct vg_interface *const check_interface;

struct check {
	const char *root;        /* before /sys and the libraries: "" or, in tests, another directory */
	unsigned warnings, problems;
};

/* report.c */
/* Prints one line, and with a hint a second one: "  try: ...". */
void check_report(struct check *check, const char *name, enum result result, const char *hint, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* Appends to a text with commas between. */
void check_append(char text[CHECK_TEXT], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* root and a path, which begins with "/". */
void check_path(const struct check *check, char path[CHECK_PATH], const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* devices.c: what QEMU gives this VM */
void check_channel(struct check *check);
void check_managed_memory(struct check *check);

/* loader.c: which libraries a program finds */
void check_libraries(struct check *check);
void check_loader(struct check *check);
void check_environment(struct check *check);

/* wheels.c: whether the active environment brings others */
void check_wheels(struct check *check);

#endif
