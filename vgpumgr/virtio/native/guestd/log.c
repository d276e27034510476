/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>

#include "agent.h"

static void write_line(const char *format, va_list arguments)
{
	fputs("vgpumgr-guestd: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
}

void agent_log(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(format, arguments);
	va_end(arguments);
}

void agent_log_client(const char *format, ...)
{
	static uint64_t until_ms;
	va_list arguments;

	if (vg_now_ms() < until_ms)
		return;
	until_ms = vg_now_ms() + 1000;
	va_start(arguments, format);
	write_line(format, arguments);
	va_end(arguments);
}
