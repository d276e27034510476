/* SPDX-License-Identifier: Apache-2.0 */
/* What all checks share: their lines, and texts that are put together. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

void check_report(struct check *check, const char *name, enum result result, const char *hint, const char *format, ...)
{
	static const char *const words[] = {
		[CHECK_OK] = "ok", [CHECK_WARNING] = "warning", [CHECK_PROBLEM] = "problem", [CHECK_SKIPPED] = "skipped",
	};
	va_list values;

	check->warnings += result == CHECK_WARNING;
	check->problems += result == CHECK_PROBLEM;
	printf("%-14s  %-7s  ", name, words[result]);
	va_start(values, format);
	vprintf(format, values);
	va_end(values);
	putchar('\n');
	if (hint)
		printf("  try: %s\n", hint);
}

void check_append(char text[CHECK_TEXT], const char *format, ...)
{
	size_t filled = strlen(text);
	va_list values;

	if (filled && filled + 2 < CHECK_TEXT) {
		strcpy(text + filled, ", ");
		filled += 2;
	}
	va_start(values, format);
	vsnprintf(text + filled, CHECK_TEXT - filled, format, values);
	va_end(values);
}

void check_path(const struct check *check, char path[CHECK_PATH], const char *format, ...)
{
	int filled = snprintf(path, CHECK_PATH, "%s", check->root);
	va_list values;

	va_start(values, format);
	if (filled >= 0 && filled < CHECK_PATH)
		vsnprintf(path + filled, (size_t)(CHECK_PATH - filled), format, values);
	va_end(values);
}
