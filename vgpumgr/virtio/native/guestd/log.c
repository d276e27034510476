/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>

#include "agent.h"

void agent_log(const char *format, ...)
{
	va_list arguments;

	fputs("vgpumgr-guestd: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}
