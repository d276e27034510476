/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <errno.h>
#include <string.h>

enum { DEPTH = 8 };

static const char *blank(const char *at)
{
	return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at)
{
	if (*at++ != '"')
		return NULL;
	for (; *at && *at != '"'; at++)
		if (*at == '\\' && !*++at)
			return NULL;
	return *at ? at + 1 : NULL;
}

static const char *skip_value(const char *at, unsigned depth);

/* Elements, or members if there are keys. */
static const char *skip_list(const char *at, char end, unsigned depth)
{
	at = blank(at + 1);
	if (*at == end)
		return at + 1;
	while (at) {
		if (end == '}') {
			at = skip_string(blank(at));
			at = at ? blank(at) : NULL;
			if (!at || *at++ != ':')
				return NULL;
		}
		at = skip_value(blank(at), depth + 1);
		at = at ? blank(at) : NULL;
		if (!at || *at == end)
			return at ? at + 1 : NULL;
		at = *at == ',' ? at + 1 : NULL;
	}
	return NULL;
}

static const char *skip_value(const char *at, unsigned depth)
{
	size_t length;

	if (depth > DEPTH)
		return NULL;
	if (*at == '"')
		return skip_string(at);
	if (*at == '[' || *at == '{')
		return skip_list(at, *at == '[' ? ']' : '}', depth);
	length = strspn(at, "+-.0123456789abcdefghijklmnopqrstuvwxyzE");
	return length ? at + length : NULL;
}

const char *vg_json_skip(const char *value)
{
	return skip_value(blank(value), 0);
}

const char *vg_json_member(const char *line, const char *key)
{
	const char *at = blank(line), *end = vg_json_skip(at);
	size_t length = strlen(key);

	if (*at != '{' || !end || *blank(end))
		return NULL;
	at = blank(at + 1);
	while (*at == '"') {
		const char *value = skip_string(at);
		bool found = (size_t)(value - at) == length + 2 && !memcmp(at + 1, key, length);

		value = blank(blank(value) + 1); /* behind the colon */
		if (found)
			return value;
		at = blank(vg_json_skip(value));
		at = *at == ',' ? blank(at + 1) : at;
	}
	return NULL;
}

static const char *take_escape(const char *at, char *letter)
{
	static const char names[] = "\"\\/bfnrt", letters[] = "\"\\/     ";
	const char *found = strchr(names, *at);

	*letter = found ? letters[found - names] : '?';
	if (*at != 'u')
		return at + 1;
	return at + 1 + strspn(at + 1, "0123456789abcdefABCDEF") % 5;
}

int vg_json_string(const char *value, char *text, size_t size)
{
	const char *at = value + 1;
	size_t filled = 0;

	if (*value != '"' || !skip_string(value))
		return -EINVAL;
	while (*at != '"') {
		char letter = *at >= ' ' && *at <= '~' ? *at : '?';

		at = *at == '\\' ? take_escape(at + 1, &letter) : at + 1;
		if (filled + 1 < size)
			text[filled++] = letter;
	}
	text[filled] = '\0';
	return 0;
}

const char *vg_json_first(const char *array)
{
	const char *at = *array == '[' ? blank(array + 1) : NULL;

	return at && *at != ']' ? at : NULL;
}

const char *vg_json_next(const char *value)
{
	const char *at = vg_json_skip(value);

	at = at ? blank(at) : NULL;
	return at && *at == ',' ? blank(at + 1) : NULL;
}

void vg_json_quote(const char *text, char *quoted, size_t size)
{
	size_t filled = 0;

	quoted[filled++] = '"';
	for (; *text && filled + 3 < size; text++) {
		if (*text == '"' || *text == '\\')
			quoted[filled++] = '\\';
		quoted[filled++] = *text >= ' ' && *text <= '~' ? *text : '?';
	}
	quoted[filled++] = '"';
	quoted[filled] = '\0';
}
