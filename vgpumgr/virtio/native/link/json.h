/* SPDX-License-Identifier: Apache-2.0 */
/* The little of JSON that brokers speak: one object in a line. Texts are ended by a zero. */
#ifndef VG_LINK_JSON_H
#define VG_LINK_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* The value of that member, or NULL; the whole line must be an object. */
const char *vg_json_member(const char *line, const char *key);
/* What follows the value; NULL: it is none. */
const char *vg_json_skip(const char *value);
/* A string as printable ASCII, cut to its place; a negative errno if it is none. */
int vg_json_string(const char *value, char *text, size_t size);
/* The first element of an array, or the next behind a value: NULL: no more. */
const char *vg_json_first(const char *array);
const char *vg_json_next(const char *value);
/* A string in quotes. */
void vg_json_quote(const char *text, char *quoted, size_t size);

#endif
