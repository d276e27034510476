/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How processes ask each other for what they share: datagrams with descriptors between sockets in the abstract namespace.
 * Both sockets are made at cuInit, by the same calls as a GPU's driver makes its own; after that, sending and receiving is enough.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc.h"

enum { ANSWER_MS = 30000, LOANS = 4096 };

struct request {
	struct ipc_handle what;
	uint64_t number;       /* of the process that asks */
};

static struct {
	pthread_mutex_t asking;
	int serve, ask;
	bool serves;           /* its thread runs; under drv.lock */
	char name[IPC_NAME];   /* of `serve` */
	uint8_t key[IPC_KEY];
	const struct ipc_lender **lenders;
} peer = { .asking = PTHREAD_MUTEX_INITIALIZER, .serve = -1, .ask = -1 };

/* What is lent to one process; of the serving thread. */
struct loan {
	int line;
	const struct ipc_lender *lender;
	void *lent;
	uint64_t who;
};
static struct loan loans[LOANS];
static size_t n_loans;

/* A socket with a name that the kernel chooses. */
static int open_socket(char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t length = sizeof(address);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&address, sizeof(address.sun_family)) ||
	    getsockname(fd, (struct sockaddr *)&address, &length) ||
	    length - offsetof(struct sockaddr_un, sun_path) - 1 >= IPC_NAME) {
		close(fd);
		return -1;
	}
	memset(name, 0, IPC_NAME);
	memcpy(name, address.sun_path + 1, length - offsetof(struct sockaddr_un, sun_path) - 1);
	return fd;
}

void ipc_start(const struct ipc_lender *lenders[])
{
	char unused[IPC_NAME];

	peer.lenders = lenders;
	if (getrandom(peer.key, sizeof(peer.key), 0) != sizeof(peer.key))
		return;
	peer.serve = open_socket(peer.name);
	peer.ask = open_socket(unused);
}

static ssize_t send_with(int socket, const struct sockaddr_un *to, socklen_t to_length, const void *data, size_t length, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct iovec part = { (void *)data, length };
	struct msghdr message = { .msg_name = (void *)to, .msg_namelen = to_length, .msg_iov = &part, .msg_iovlen = 1 };

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.align = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t receive_with(int socket, struct sockaddr_un *from, socklen_t *from_length, void *data, size_t length, int *fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = { data, length };
	struct msghdr message = { .msg_name = from, .msg_namelen = sizeof(*from), .msg_iov = &part, .msg_iovlen = 1,
				  .msg_control = &control, .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	const struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&message);

	*fd = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(c), sizeof(*fd));
	*from_length = message.msg_namelen;
	return n;
}

/* ---- the process that lends */

static CUresult lend(const struct ipc_handle *what, struct loan *loan, struct ipc_offer *offer, int *file)
{
	if (memcmp(what->key, peer.key, sizeof(peer.key)) || n_loans == LOANS ||
	    what->kind < IPC_MEMORY || what->kind >= IPC_KINDS)
		return CUDA_ERROR_INVALID_HANDLE;
	loan->lender = peer.lenders[what->kind];
	loan->lent = loan->lender->lend(what->id, offer, file);
	loan->who = offer->who = next_id();
	return loan->lent ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static void take_back(struct loan *loan)
{
	close(loan->line);
	if (loan->lent)
		loan->lender->take_back(loan->lent, loan->who);
}

static void answer(void)
{
	struct ipc_offer offer = { .result = CUDA_ERROR_INVALID_HANDLE };
	struct sockaddr_un from;
	struct request request;
	struct loan loan = { .line = -1 };
	socklen_t length;
	int file = -1;
	ssize_t n = receive_with(peer.serve, &from, &length, &request, sizeof(request), &loan.line);

	if (n < 0)
		return;
	if (n == sizeof(request) && loan.line >= 0) {
		offer.result = (int32_t)lend(&request.what, &loan, &offer, &file);
		offer.request = request.number;
	}
	if (send_with(peer.serve, &from, length, &offer, sizeof(offer), file) == sizeof(offer) &&
	    offer.result == CUDA_SUCCESS)
		loans[n_loans++] = loan;
	else if (loan.line >= 0)
		take_back(&loan);
}

static void *serve(void *unused)
{
	static struct pollfd wait[LOANS + 1];

	for (;;) {
		size_t n = n_loans;

		wait[0] = (struct pollfd){ .fd = peer.serve, .events = POLLIN };
		for (size_t i = 0; i < n; i++)
			wait[i + 1] = (struct pollfd){ .fd = loans[i].line };
		if (poll(wait, n + 1, -1) < 0)
			continue;
		for (size_t i = n; i--;) {
			if (!wait[i + 1].revents)
				continue;
			take_back(&loans[i]);
			loans[i] = loans[--n_loans];
		}
		if (wait[0].revents)
			answer();
	}
	return unused;
}

CUresult ipc_make(enum ipc_kind kind, uint64_t id, struct ipc_handle *out)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (peer.serve < 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	DRV_LOCKED();
	if (!peer.serves) {
		pthread_attr_init(&attributes);
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
		peer.serves = !pthread_create(&thread, &attributes, serve, NULL);
		pthread_attr_destroy(&attributes);
	}
	if (!peer.serves)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (struct ipc_handle){ .kind = kind, .id = id };
	memcpy(out->name, peer.name, sizeof(out->name));
	memcpy(out->key, peer.key, sizeof(out->key));
	return CUDA_SUCCESS;
}

/* ---- the process that borrows */

bool ipc_is_own(const struct ipc_handle *handle)
{
	return !memcmp(handle->key, peer.key, sizeof(peer.key));
}

/* The writing end of a pipe whose other end the lender has: there is never anything to read. */
bool ipc_has_gone(int line)
{
	struct pollfd other = { .fd = line };

	return poll(&other, 1, 0) > 0 && other.revents & (POLLERR | POLLHUP);
}

/* The answer to this request: one to an earlier one, which came too late, is dropped. */
static bool receive_answer(uint64_t request, struct ipc_offer *offer, int *file)
{
	struct sockaddr_un from;
	socklen_t unused;
	ssize_t n;

	while ((n = receive_with(peer.ask, &from, &unused, offer, sizeof(*offer), file)) >= 0) {
		if (n == sizeof(*offer) && offer->request == request)
			return true;
		if (*file >= 0)
			close(*file);
	}
	*file = -1;
	return false;
}

/* `ends` of the pipe: the lender gets the first, and this process closes it, so that the other one shows when that has gone. */
static CUresult exchange(const struct sockaddr_un *to, socklen_t length, const struct ipc_handle *handle, int ends[2],
			 struct ipc_offer *offer, int *file)
{
	struct pollfd wait[] = { { .fd = peer.ask, .events = POLLIN }, { .fd = ends[1] } };
	struct request request = { *handle, next_id() };
	bool sent = send_with(peer.ask, to, length, &request, sizeof(request), ends[0]) == sizeof(request);

	close(ends[0]);
	while (sent && !receive_answer(request.number, offer, file)) {
		/* it has ended, or is stopped: what it has refused it has answered, too */
		if (poll(wait, 2, ANSWER_MS) <= 0 || (wait[1].revents && !wait[0].revents))
			return CUDA_ERROR_INVALID_HANDLE;
	}
	if (!sent)
		return CUDA_ERROR_INVALID_HANDLE; /* there is no such process */
	return offer->result == CUDA_SUCCESS && *file < 0 && handle->kind != IPC_POOL ? CUDA_ERROR_OPERATING_SYSTEM :
											(CUresult)offer->result;
}

CUresult ipc_ask(const struct ipc_handle *handle, struct ipc_offer *offer, int *file, int *line)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t length = strnlen(handle->name, IPC_NAME);
	int ends[2];
	CUresult r;

	*file = *line = -1;
	if (peer.ask < 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!length || length == IPC_NAME)
		return CUDA_ERROR_INVALID_HANDLE;
	memcpy(to.sun_path + 1, handle->name, length);
	if (pipe2(ends, O_CLOEXEC))
		return CUDA_ERROR_OPERATING_SYSTEM;
	pthread_mutex_lock(&peer.asking);
	r = exchange(&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length), handle, ends, offer, file);
	pthread_mutex_unlock(&peer.asking);
	if (r == CUDA_SUCCESS) {
		*line = ends[1];
		return r;
	}
	close(ends[1]);
	if (*file >= 0)
		close(*file);
	*file = -1;
	return r;
}
