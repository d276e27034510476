/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker says of its guest. */
#include <stdarg.h>
#include <stdio.h>

#include "util.h"
#include "worker.h"

enum { LOG_LINES_PER_MINUTE = 60 };

/* Bounded: what a guest can cause must not fill the host's disk. */
void vg_log(struct vg_server *server, const char *format, ...)
{
	va_list arguments;
	uint64_t minute = vg_now_ms() / 60000;

	pthread_mutex_lock(&server->lock);
	if (minute != server->log_second) {
		server->log_second = minute;
		server->logged = 0;
	}
	if (server->logged++ < LOG_LINES_PER_MINUTE) {
		va_start(arguments, format);
		vfprintf(stderr, format, arguments);
		va_end(arguments);
	}
	pthread_mutex_unlock(&server->lock);
}

void vg_violation(struct vg_server *server, uint32_t lane, bool ring, const char *text)
{
	char line[VG_STATS_TEXT];

	snprintf(line, sizeof(line), "lane %u (%s): %s", lane, ring ? "ring" : "serial", text);
	pthread_mutex_lock(&server->lock);
	memcpy(server->stats->violation, line, sizeof(line));
	vg_store64(&server->stats->violations, vg_load64(&server->stats->violations) + 1);
	pthread_mutex_unlock(&server->lock);
	vg_log(server, "worker: protocol violation: %s\n", line);
}
