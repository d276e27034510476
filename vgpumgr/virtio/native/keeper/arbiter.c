/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel's share of the GPU's time: the keeper joins the GPU's arbiter, makes a page and a bell for each worker, and hands
 * them to both (transport/share.h). Without an arbiter all turns are open, so that no session waits for a process that has ended;
 * then another one is looked for.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "keeper.h"
#include "launcher.h"

enum { ANSWER_S = 10, AGAIN_S = 1, RETRY_MS = 1000 }; /* AGAIN_S: while the channel is served */

static int refuse(struct keeper *keeper, const char *why)
{
	fprintf(stderr, "keeper: the GPU's arbiter at %s: %s\n", keeper->options.arbiter, why);
	return -EPERM;
}

static int say(const struct keeper *keeper, enum vg_share_what what, const int *fds, unsigned count)
{
	const struct keeper_share *share = &keeper->share;
	struct vg_share_message message = {
		.what = what, .compute = share->compute, .fixed = keeper->options.fixed, .priority = share->priority,
	};
	const char *name = strrchr(keeper->options.dir, '/');

	snprintf(message.text, sizeof(message.text), "%s", name && name[1] ? name + 1 : keeper->options.dir);
	return vg_send_fds(share->socket, &message, sizeof(message), fds, count);
}

/* The arbiter's first answer: its account of this channel. */
static int take_account(struct keeper *keeper, const struct vg_share_message *message, int fd)
{
	void *memory;

	if (message->what != VG_SHARE_WELCOME || fd < 0)
		return -EPERM;
	memory = mmap(NULL, VG_ACCOUNT_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	if (keeper->share.account)
		munmap((void *)keeper->share.account, VG_ACCOUNT_SIZE);
	keeper->share.account = memory;
	return 0;
}

/* The arbiter never blocks, so that its answer comes at once or not at all. */
static int join(struct keeper *keeper)
{
	struct timeval limit = { .tv_sec = keeper->launcher < 0 ? ANSWER_S : AGAIN_S };
	struct vg_share_message message;
	char why[VG_SHARE_TEXT];
	int fd = -1, error;

	setsockopt(keeper->share.socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(keeper->share.socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	error = say(keeper, VG_SHARE_JOIN, NULL, 0);
	if (!error)
		error = vg_recv_fds(keeper->share.socket, &message, sizeof(message), &fd, 1);
	if (error)
		return refuse(keeper, strerror(-error));
	error = take_account(keeper, &message, fd);
	vg_close_fd(&fd);
	vg_clean_text(why, sizeof(why), message.text, sizeof(message.text));
	return error ? refuse(keeper, why[0] ? why : "its answer cannot be understood") : 0;
}

int keeper_join_arbiter(struct keeper *keeper)
{
	if (!keeper->options.arbiter)
		return 0;
	keeper->share.compute = keeper->options.compute;
	keeper->share.priority = keeper->options.priority;
	keeper->share.socket = vg_connect_messages(keeper->options.arbiter);
	if (keeper->share.socket < 0)
		return refuse(keeper, strerror(-keeper->share.socket));
	return join(keeper);
}

/* ---- a page for each worker */

static void open_turns(const struct keeper *keeper)
{
	if (!keeper->share.page)
		return;
	atomic_exchange(&keeper->share.page->turn, VG_TURN_OPEN);
	syscall(SYS_futex, &keeper->share.page->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void drop_page(struct keeper_share *share)
{
	if (share->page)
		munmap(share->page, VG_SHARE_SIZE);
	share->page = NULL;
	vg_close_fd(&share->page_fd);
	vg_close_fd(&share->bell);
	vg_close_fd(&share->arbiters_bell);
}

static int make_page(struct keeper_share *share)
{
	int pair[2];
	void *memory;

	share->page_fd = memfd_create("vgpumgr-share", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (share->page_fd < 0 || ftruncate(share->page_fd, VG_SHARE_SIZE) ||
	    fcntl(share->page_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	memory = mmap(NULL, VG_SHARE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, share->page_fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	share->page = memory;
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	share->arbiters_bell = pair[0];
	share->bell = pair[1];
	return 0;
}

static int hand_over_page(const struct keeper *keeper)
{
	const int fds[] = { keeper->share.page_fd, keeper->share.arbiters_bell };

	return keeper->share.socket < 0 ? -ENOTCONN : say(keeper, VG_SHARE_PAGE, fds, 2);
}

int keeper_fresh_share(struct keeper *keeper)
{
	int error;

	if (!keeper->options.arbiter)
		return 0;
	drop_page(&keeper->share);
	error = make_page(&keeper->share);
	if (!error && hand_over_page(keeper))
		open_turns(keeper);
	return error;
}

/* ---- the arbiter ends, and comes again */

static void lose_arbiter(struct keeper *keeper)
{
	vg_close_fd(&keeper->share.socket);
	keeper->share.retry_ms = vg_now_ms() + RETRY_MS;
	open_turns(keeper);
	fprintf(stderr, "keeper: the GPU's arbiter at %s has gone: the share of the GPU's time is not kept\n", keeper->options.arbiter);
}

/* After its first answer it says nothing, so that this is its end. */
void keeper_watch_arbiter(struct keeper *keeper)
{
	char byte;
	ssize_t n = recv(keeper->share.socket, &byte, sizeof(byte), MSG_DONTWAIT);

	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		lose_arbiter(keeper);
}

void keeper_tick_arbiter(struct keeper *keeper)
{
	if (!keeper->options.arbiter || keeper->share.socket >= 0 || keeper->stopping || vg_now_ms() < keeper->share.retry_ms)
		return;
	keeper->share.retry_ms = vg_now_ms() + RETRY_MS;
	launcher_ask(keeper, LAUNCH_ARBITER, 0);
}

void keeper_adopt_arbiter(struct keeper *keeper, int fd)
{
	if (fd < 0 || keeper->share.socket >= 0)
		return;
	keeper->share.socket = dup(fd);
	if (keeper->share.socket < 0)
		return;
	fcntl(keeper->share.socket, F_SETFD, FD_CLOEXEC);
	if (join(keeper) || hand_over_page(keeper))
		lose_arbiter(keeper);
}

uint32_t keeper_read_percent(const char *text)
{
	double percent = strtod(text, NULL);

	return percent >= 1 && percent <= 100 ? (uint32_t)(percent * VG_SHARE_PERCENT + 0.5) : 0;
}

static const char *const priorities[] = { [VG_SHARE_LOW] = "low", [VG_SHARE_NORMAL] = "normal", [VG_SHARE_HIGH] = "high" };

int keeper_read_priority(const char *text)
{
	for (int i = VG_SHARE_LOW; i <= VG_SHARE_HIGH; i++)
		if (!strncmp(text, priorities[i], strlen(priorities[i])) && !isalnum((unsigned char)text[strlen(priorities[i])]))
			return i;
	return -1;
}

const char *keeper_name_priority(uint32_t priority)
{
	return priorities[priority];
}

int keeper_set_share(struct keeper *keeper, uint32_t compute, uint32_t priority)
{
	int error = 0;

	if (!keeper->options.arbiter)
		return -ENOENT;
	if (!compute)
		return -EINVAL;
	keeper->share.compute = compute;
	keeper->share.priority = priority;
	if (keeper->share.socket >= 0)
		error = say(keeper, VG_SHARE_WEIGH, NULL, 0);
	if (error)
		lose_arbiter(keeper);
	return 0;
}
