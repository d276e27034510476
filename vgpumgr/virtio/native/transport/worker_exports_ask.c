/* SPDX-License-Identifier: Apache-2.0 */
/* What a session asks the server about what it shares. */
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

#include "util.h"
#include "worker_exports.h"

static int to_server = -1;

void vg_exports_use(int socket)
{
	to_server = socket;
}

int vg_exports_ask(const struct vg_export_request *request, struct vg_export_answer *answer)
{
	int file = -1, error = vg_exports_ask_with(request, answer, &file);

	vg_close_fd(&file);
	return error;
}

int vg_exports_ask_with(const struct vg_export_request *request, struct vg_export_answer *answer, int *file)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	int error = -ENOTCONN, sent = *file;
	ssize_t n;

	*answer = (struct vg_export_answer){ 0 };
	*file = -1;
	pthread_mutex_lock(&one);
	if (to_server >= 0 && vg_exports_send(to_server, request, sizeof(*request), sent, 0) == (ssize_t)sizeof(*request)) {
		do
			n = vg_exports_receive(to_server, answer, sizeof(*answer), file, 0);
		while (n < 0 && errno == EINTR);
		error = n == (ssize_t)sizeof(*answer) ? answer->error : -ENOTCONN;
	}
	pthread_mutex_unlock(&one);
	return error;
}
